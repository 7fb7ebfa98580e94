// SQL: an editor, the tables that there are, the answer as a table and a simple chart. The query is in the address.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { category } from "../lib/colours.js";
import { count } from "../lib/format.js";
import { place, setParams } from "../lib/location.js";
import { sql } from "../lib/rows_of_sql.js";
import { useStore } from "../lib/store.js";
import { DataTable } from "../parts/data_table.js";

const FIRST = 'SELECT queue, count(*) AS jobs, round(avg(epoch(started_at - submitted_at)), 1) AS mean_wait_s\nFROM jobs WHERE started_at IS NOT NULL GROUP BY queue ORDER BY mean_wait_s DESC';
const COLUMNS = "SELECT table_name, string_agg(column_name || ' ' || data_type, ', ' ORDER BY ordinal_position) AS columns FROM information_schema.columns WHERE table_schema = current_schema() GROUP BY 1 ORDER BY 1";
const ROWS_OF_CHART = 40;

export function Page() {
  const { params } = useStore(place);
  const [text, setText] = useState(params.get("query") ?? FIRST);
  const [answer, setAnswer] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState("");
  const [tables, setTables] = useState(/** @type {any[][]} */ ([]));
  const running = useRef(/** @type {AbortController | null} */ (null));
  const [busy, setBusy] = useState(false);

  useEffect(() => {
    sql(COLUMNS).then((found) => setTables(found.rows), () => setTables([]));
  }, []);

  const run = async () => {
    running.current?.abort();
    const mine = (running.current = new AbortController());
    setBusy(true);
    setProblem("");
    setParams({ query: text });
    try {
      setAnswer(await sql(text, { limit: 1000, signal: mine.signal }));
    } catch (error) {
      if (!mine.signal.aborted) setProblem(error instanceof Error ? error.message : String(error));
    } finally {
      if (running.current === mine) setBusy(false);
    }
  };

  return html`<div class="head"><h1>SQL</h1><span class="quiet">One statement that reads, over what you may see. Ctrl-Enter runs it.</span></div>
    <label class="hidden-label" for="query">Query</label>
    <textarea id="query" class="sql-editor" spellcheck=${false} value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} onKeyDown=${(/** @type {KeyboardEvent} */ event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run(); }}></textarea>
    <div class="row"><button class="first" onClick=${run}>Run</button>${busy && html`<button onClick=${() => running.current?.abort()}>Stop</button>`}<span class="quiet" role="status">${busy ? "running" : answer ? `${count(answer.rows.length)} ${answer.rows.length === 1 ? "row" : "rows"}${answer.truncated ? ", cut off" : ""}` : ""}</span></div>
    ${problem && html`<div class="notice error" role="alert"><pre>${problem}</pre></div>`}
    ${answer && !problem && html`<${Chart} answer=${answer} />
      <${DataTable} label="Answer" rows=${answer.rows.map((/** @type {any[]} */ row, /** @type {number} */ index) => ({ row, index }))} more=${answer.truncated} keyOf=${(/** @type {any} */ each) => String(each.index)} empty="No rows." columns=${answer.columns.map((/** @type {string} */ name, /** @type {number} */ at) => ({ name, head: name, number: typeof answer.rows[0]?.[at] === "number", sort: (/** @type {any} */ each) => each.row[at], show: (/** @type {any} */ each) => cell(each.row[at]) }))} />`}
    <h2>Tables</h2>
    ${tables.map(([name, columns]) => html`<details><summary class="mono">${name}</summary><p class="mono quiet">${columns}</p><button onClick=${() => setText(`SELECT * FROM ${name} LIMIT 100`)}>Look into it</button></details>`)}`;
}

/** @param {unknown} value */
function cell(value) {
  if (value === null || value === undefined) return html`<span class="quiet">null</span>`;
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Bars of the first number by the first column, where the answer has both. @param {{answer: any}} props */
function Chart({ answer }) {
  const at = answer.columns.findIndex((/** @type {string} */ _, /** @type {number} */ index) => index > 0 && typeof answer.rows[0]?.[index] === "number");
  const rows = answer.rows.slice(0, ROWS_OF_CHART);
  if (at < 1 || rows.length < 2) return null;
  const most = Math.max(...rows.map((/** @type {any[]} */ row) => Math.abs(row[at] ?? 0)), 1e-9);
  const high = 18;
  return html`<svg class="gantt" viewBox=${`0 0 600 ${rows.length * high}`} style=${{ maxWidth: "600px" }} role="img" aria-label=${`Bars of ${answer.columns[at]} by ${answer.columns[0]}; the table below has the numbers`}>
    ${rows.map((/** @type {any[]} */ row, /** @type {number} */ index) => html`<g transform=${`translate(0 ${index * high})`}>
      <text x="4" y="13" font-size="11" fill="var(--text)">${String(row[0]).slice(0, 26)}</text>
      <rect x="180" y="3" width=${(360 * Math.abs(row[at] ?? 0)) / most} height="12" fill=${category(answer.columns[at])} />
    </g>`)}
  </svg>`;
}
