// The time bar under every page: density of events, slider, live button, and what the page is true for.
import { html, useEffect, useMemo, useState } from "../lib/html.js";
import { send } from "../lib/api.js";
import { clock } from "../lib/format.js";
import { link, newest } from "../lib/live.js";
import { moment, place, setParams } from "../lib/location.js";
import { shown } from "../lib/resource.js";
import { useStore } from "../lib/store.js";

const STEPS = 600;
const BINS = 60;
/** A minute of playing goes through the whole span. */
const PLAY_MS = 60_000;
const TICK_MS = 1_000;
const FIRST_MS = 1_000;

/** The span of the slider, in ms: from the log's beginning, at most 30 days. */
const SPAN_SQL = `SELECT epoch_ms(greatest(min(time), max(time) - INTERVAL 30 DAY)) AS first, epoch_ms(max(time)) AS last FROM events`;

/** @param {number} first @param {number} last */
const densitySql = (first, last) =>
  `SELECT CAST(floor((epoch_ms(time) - ${first}) * ${BINS} / ${Math.max(1, last - first + 1)}) AS INTEGER) AS bin, count(*) AS events FROM events WHERE epoch_ms(time) >= ${first} GROUP BY 1 ORDER BY 1`;

/** @param {string} query */
async function rows(query) {
  const answer = await send("/v1/sql", { query });
  return answer.rows;
}

export function TimeBar() {
  useStore(place);
  const state = useStore(link);
  const told = useStore(shown);
  const [span, setSpan] = useState(/** @type {{first: number, last: number, bins: number[]} | null} */ (null));
  const [playing, setPlaying] = useState(false);
  const at = moment();

  useEffect(() => {
    let ended = false;
    const load = async () => {
      try {
        const [[first, last]] = await rows(SPAN_SQL);
        if (!first || ended) return;
        const bins = new Array(BINS).fill(0);
        for (const [bin, events] of await rows(densitySql(first, last))) if (bin >= 0 && bin < BINS) bins[bin] = events;
        if (!ended) setSpan({ first, last, bins });
      } catch {
        // Without telemetry, or without the right to read events, the bar has its slider only.
        if (!ended) setSpan((old) => old ?? { first: Date.now() - 86_400_000, last: Date.now(), bins: [] });
      }
    };
    // The page's own data first: both are counted by the same few processes.
    const begin = setTimeout(load, FIRST_MS);
    const timer = setInterval(load, 60_000);
    return () => {
      ended = true;
      clearTimeout(begin);
      clearInterval(timer);
    };
  }, []);

  const last = Math.max(span?.last ?? 0, Date.now());
  const first = span ? Math.min(span.first, last - 1000) : last - 1000;
  const position = useMemo(() => {
    const time = /^\d+$/.test(at) ? Date.parse(told.at || "") : Date.parse(at);
    return at && Number.isFinite(time) ? Math.round(((time - first) / (last - first)) * STEPS) : STEPS;
  }, [at, told.at, first, last]);

  /** @param {number} step */
  const move = (step) => setParams({ at: step >= STEPS ? "" : new Date(first + (step / STEPS) * (last - first)).toISOString().replace(/\.\d+Z$/, "Z") });

  useEffect(() => {
    if (!playing) return undefined;
    const timer = setTimeout(() => {
      const next = position + Math.max(1, Math.round((STEPS * TICK_MS) / PLAY_MS));
      if (next >= STEPS) setPlaying(false);
      move(next);
    }, TICK_MS);
    return () => clearTimeout(timer);
  }, [playing, position]);

  const most = Math.max(1, ...(span?.bins ?? []));
  return html`<footer class="time" aria-label="Time">
    <button onClick=${() => { if (position >= STEPS) move(0); setPlaying(!playing); }} aria-pressed=${playing} title="Play the span in a minute">${playing ? "Pause" : "Play"}</button>
    <span class="quiet" title="where the slider begins">${clock(new Date(first).toISOString())}</span>
    <div class="strip">
      <svg viewBox=${`0 0 ${BINS} 10`} preserveAspectRatio="none" aria-hidden="true">
        ${(span?.bins ?? []).map((events, bin) => events > 0 && html`<rect x=${bin + 0.1} y=${10 - (9 * Math.sqrt(events / most) + 1)} width="0.8" height=${9 * Math.sqrt(events / most) + 1} />`)}
      </svg>
      <input type="range" min="0" max=${STEPS} value=${position} aria-label="Moment that is shown" aria-valuetext=${at || "now"} onChange=${(/** @type {any} */ event) => move(Number(event.target.value))} />
    </div>
    <span id="as-of">
      ${at ? html`<strong>as of sequence ${told.sequence}</strong>, ${clock(told.at || at)}` : html`<span class=${`live-dot ${state.connected ? "" : "off"}`}></span>live, as of sequence ${Math.max(told.sequence, state.connected ? newest.value : 0)}`}
    </span>
    ${at && html`<button onClick=${() => { setPlaying(false); move(STEPS); }}>Live</button>`}
  </footer>`;
}
