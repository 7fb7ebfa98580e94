// GPUs that a queue and those below it have held over the last day, or since the log began, against its guarantee, maximum and fair share of now.
import { html, useEffect, useState } from "../lib/html.js";
import { duration, gpus } from "../lib/format.js";
import { sql } from "../lib/rows_of_sql.js";

const HOURS = 24;
const STEPS = 96;
const [WIDTH, HEIGHT] = [600, 110];

/** GPUs held at each of the steps, by runs of a queue and of those below it. @param {string} path */
function query(path) {
  const named = path.replaceAll("'", "''");
  return `WITH span AS (SELECT max(time)::TIMESTAMP AS last, greatest(min(time), max(time) - INTERVAL ${HOURS} HOUR)::TIMESTAMP AS first FROM events),
steps AS (SELECT step, make_timestamp_ns(CAST(epoch_ns(first) + (epoch_ns(last) - epoch_ns(first)) * step / ${STEPS} AS BIGINT))::TIMESTAMP AS at FROM span, range(${STEPS + 1}) AS each(step)),
held AS (SELECT r.placed_at, r.ended_at, r.gpu_count FROM runs r JOIN jobs j ON j.id = r.job WHERE j.queue = '${named}' OR starts_with(j.queue, '${named}/'))
SELECT steps.step, epoch_ms(any_value(steps.at)), coalesce(sum(r.gpu_count), 0) FROM steps LEFT JOIN held r
ON r.placed_at <= steps.at AND (r.ended_at IS NULL OR r.ended_at > steps.at)
GROUP BY 1 ORDER BY 1`;
}

/** @param {{queue: any}} props */
export function SharePlot({ queue }) {
  const [rows, setRows] = useState(/** @type {any[][] | null} */ (null));
  const [refused, setRefused] = useState("");
  useEffect(() => {
    const ending = new AbortController();
    sql(query(queue.path), { signal: ending.signal }).then(
      (answer) => setRows(answer.rows),
      (error) => {
        if (!ending.signal.aborted) setRefused(error instanceof Error ? error.message : String(error));
      },
    );
    return () => ending.abort();
  }, [queue.path]);
  if (refused) return html`<p class="quiet">Its last day is not known: ${refused}</p>`;
  if (!rows) return null;
  const held = rows.map((row) => Number(row[2]));
  const lines = [
    { words: "guaranteed", value: queue.guaranteed.gpu, colour: "var(--text)", dash: "" },
    { words: "at most", value: queue.maximum.gpu, colour: "var(--failed)", dash: "" },
    { words: "fair share", value: queue.share?.fair_share_gpu_milli, colour: "var(--preempted)", dash: "4 3" },
  ].filter((each) => each.value > 0);
  const most = Math.max(1, ...held, ...lines.map((each) => each.value / 1000)) * 1.08;
  const x = (/** @type {number} */ step) => (WIDTH * step) / STEPS;
  const y = (/** @type {number} */ amount) => HEIGHT - (HEIGHT * amount) / most;
  const span = duration((Number(rows.at(-1)?.[1] ?? 0) - Number(rows[0]?.[1] ?? 0)) / 1000);
  const words = `GPUs held by ${queue.path} over the last ${span}: now ${held.at(-1) ?? 0}, at most ${Math.max(0, ...held)}`;
  return html`<h2>Last ${span}</h2>
    <svg class="share-plot" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${words}>
      <title>${words}</title>
      <path class="held" d=${`M0 ${HEIGHT}${held.map((amount, step) => `L${x(step).toFixed(1)} ${y(amount).toFixed(1)}`).join("")}L${WIDTH} ${HEIGHT}Z`} />
      ${lines.map((each) => html`<line x1="0" x2=${WIDTH} y1=${y(each.value / 1000)} y2=${y(each.value / 1000)} stroke=${each.colour} stroke-dasharray=${each.dash} vector-effect="non-scaling-stroke" />`)}
    </svg>
    <p class="legend"><span><i style=${{ background: "var(--running)" }}></i>GPUs held, ${held.at(-1) ?? 0} now, ${Math.max(0, ...held)} at most</span>${lines.map((each) => html`<span><i style=${{ background: each.colour }}></i>${each.words} ${gpus(each.value)} (of now)</span>`)}</p>`;
}
