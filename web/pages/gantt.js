// Gantt: nodes over time. The span is in the address; a double click takes everything else to that moment.
import { html, useCallback, useEffect, useMemo, useState } from "../lib/html.js";
import { category } from "../lib/colours.js";
import { clock, duration } from "../lib/format.js";
import { queries, rowsOf } from "../lib/gantt_rows.js";
import { newest } from "../lib/live.js";
import { go, href, moment, place, setParams } from "../lib/location.js";
import { useResource } from "../lib/resource.js";
import { sql } from "../lib/rows_of_sql.js";
import { useStore } from "../lib/store.js";
import { DataTable } from "../parts/data_table.js";
import { GanttCanvas } from "../parts/gantt_canvas.js";
import { JobLink, NodeLink, QueueLink } from "../parts/links.js";
import { Problem } from "../parts/notices.js";

const SPANS = { "15 min": 900, "1 h": 3600, "6 h": 21_600, "1 day": 86_400, "1 week": 604_800, "1 month": 2_592_000 };
const COLOURS = ["job", "queue", "user"];
const LEAST_MS = 5_000;
const RELOAD_MS = 5_000;

export function Page() {
  const { params } = useStore(place);
  const nodes = useResource("/v1/nodes", {}, { all: 20000 });
  const at = moment();
  const end = at && !/^\d+$/.test(at) ? Date.parse(at) : Date.now();
  const seconds = Math.max(5, Number(params.get("seconds")) || 3600);
  const [span, setSpan] = useState({ from: end - seconds * 1000, to: end + seconds * 20 });
  const [found, setFound] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState("");
  const by = COLOURS.includes(params.get("colour") ?? "") ? (params.get("colour") ?? "job") : "job";

  useEffect(() => setSpan({ from: end - seconds * 1000, to: end + seconds * 20 }), [seconds, at]);

  // What is drawn is asked for with a margin, and again when the view leaves it or the log goes on.
  const wide = span.to - span.from;
  const margin = Math.ceil(wide / 2);
  const key = `${Math.floor(span.from / margin)} ${Math.ceil(span.to / margin)}`;
  useEffect(() => {
    const ending = new AbortController();
    let timer = 0;
    const load = async () => {
      const asked = queries(span.from - margin, span.to + margin);
      try {
        const [runs, preemptions, events] = await Promise.all([asked.runs, asked.preemptions, asked.nodes].map((query) => sql(query, { limit: 10_000, signal: ending.signal })));
        setFound({ runs: runs.rows, preemptions: preemptions.rows, events: events.rows, cut: runs.truncated || runs.rows.length >= 10_000, now: Date.now() });
        setProblem("");
      } catch (error) {
        if (!ending.signal.aborted) setProblem(error instanceof Error ? error.message : String(error));
      }
    };
    load();
    const ends = newest.follow(() => {
      if (!timer && !at && !document.hidden) timer = window.setTimeout(() => { timer = 0; load(); }, RELOAD_MS);
    });
    return () => { ending.abort(); clearTimeout(timer); ends(); };
  }, [key, at]);

  const rows = useMemo(() => (found ? rowsOf(found.runs, found.events, (nodes.data ?? []).map((/** @type {any} */ node) => node.id), at ? end : found.now) : []), [found, nodes.data, at]);
  const onSpan = useCallback((/** @type {any} */ next) => setSpan(next.to - next.from < LEAST_MS ? span : next), [span]);
  const onPick = useCallback((/** @type {any} */ bar) => go(href(`/jobs/${encodeURIComponent(bar.job)}`)), []);
  const onMoment = useCallback((/** @type {number} */ ms) => setParams({ at: ms >= Date.now() ? "" : new Date(ms).toISOString().replace(/\.\d+Z$/, "Z") }), []);
  const colourOf = useCallback((/** @type {any} */ bar) => category(bar[by]), [by]);
  const table = params.get("view") === "table";
  const seen = rows.flatMap((row) => row.bars.filter((bar) => bar.end > span.from && bar.begin < span.to).map((bar) => ({ ...bar, node: row.node })));
  return html`<div class="head">
      <h1>Gantt</h1><span class="quiet">${clock(new Date(span.from).toISOString())} to ${clock(new Date(span.to).toISOString())}, ${duration(wide / 1000)}</span><span class="spring"></span>
      ${Object.entries(SPANS).map(([word, each]) => html`<button aria-pressed=${seconds === each} onClick=${() => setParams({ seconds: String(each) })}>${word}</button>`)}
      <label>Colour by <select value=${by} onChange=${(/** @type {any} */ event) => setParams({ colour: event.target.value })}>${COLOURS.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
      <button aria-pressed=${table} onClick=${() => setParams({ view: table ? "" : "table" })}>${table ? "Canvas" : "Table"}</button>
    </div>
    <${Problem} of=${nodes} />
    ${problem && html`<div class="notice error" role="alert">${problem}</div>`}
    ${found?.cut && html`<div class="notice">The first 10,000 runs of this span are shown: choose a shorter one.</div>`}
    ${found && !rows.length && html`<div class="empty">No node and no run in this span.</div>`}
    ${rows.length > 0 && !table && html`<${GanttCanvas} rows=${rows} preemptions=${found.preemptions} span=${span} colourOf=${colourOf} onSpan=${onSpan} onPick=${onPick} onMoment=${onMoment} label=${`${seen.length} runs on ${rows.length} nodes; the button "Table" shows the same as a table. Arrows pan, plus and minus zoom, Enter goes to the moment in the middle.`} />`}
    ${table && html`<${DataTable} label="Runs" rows=${seen} keyOf=${(/** @type {any} */ bar) => `${bar.job} ${bar.attempt} ${bar.node}`} empty="No run in this span." columns=${[
      { name: "node", head: "node", sort: (/** @type {any} */ b) => b.node, show: (/** @type {any} */ b) => html`<${NodeLink} id=${b.node} />` },
      { name: "job", head: "job", sort: (/** @type {any} */ b) => Number.parseInt(b.job, 10), show: (/** @type {any} */ b) => html`<${JobLink} id=${b.job} />` },
      { name: "attempt", head: "attempt", number: true, show: (/** @type {any} */ b) => b.attempt },
      { name: "name", head: "name", wide: true, sort: (/** @type {any} */ b) => b.name, show: (/** @type {any} */ b) => b.name },
      { name: "user", head: "user", sort: (/** @type {any} */ b) => b.user, show: (/** @type {any} */ b) => b.user },
      { name: "queue", head: "queue", sort: (/** @type {any} */ b) => b.queue, show: (/** @type {any} */ b) => html`<${QueueLink} path=${b.queue} />` },
      { name: "begin", head: "began", sort: (/** @type {any} */ b) => b.begin, show: (/** @type {any} */ b) => clock(new Date(b.begin).toISOString()) },
      { name: "end", head: "ended", sort: (/** @type {any} */ b) => b.end, show: (/** @type {any} */ b) => (b.open ? "goes on" : clock(new Date(b.end).toISOString())) },
      { name: "outcome", head: "outcome", show: (/** @type {any} */ b) => b.outcome },
    ]} />`}`;
}
