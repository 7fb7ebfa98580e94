// What a job has cost: its charged GPU time by attempt, node and price, as statements count it.
import { html, useEffect, useState } from "../lib/html.js";
import { sql } from "../lib/rows_of_sql.js";
import { DataTable } from "./data_table.js";

/** @param {{job: any}} props */
export function JobCost({ job }) {
  const [rows, setRows] = useState(/** @type {any[][] | null} */ (null));
  const [refused, setRefused] = useState("");
  useEffect(() => {
    const ending = new AbortController();
    const query = `SELECT attempt, node, model, date_trunc('second', min(begins_at))::VARCHAR, sum(gpu_hours), per_gpu_hour::VARCHAR, any_value(currency), sum(cost) FROM costs WHERE job = '${job.id.replaceAll("'", "''")}' GROUP BY attempt, node, model, per_gpu_hour ORDER BY attempt, node`;
    sql(query, { signal: ending.signal }).then(
      (answer) => setRows(answer.rows),
      (error) => {
        if (!ending.signal.aborted) setRefused(error instanceof Error ? error.message : String(error));
      },
    );
    return () => ending.abort();
  }, [job.id, job.attempt, job.state]);
  if (refused) return html`<div class="notice error" role="alert">${refused}</div>`;
  if (!rows) return html`<p class="quiet">being counted</p>`;
  const total = rows.reduce((sum, row) => sum + Number(row[4]), 0);
  /** @type {Map<string, number>} */
  const money = new Map();
  for (const row of rows) if (row[7] !== null) money.set(row[6], (money.get(row[6]) ?? 0) + Number(row[7]));
  const paid = [...money].map(([currency, amount]) => `${amount.toFixed(2)} ${currency}`).join(", ");
  return html`<p><span class="big" id="cost-hours">${total.toFixed(3)}</span> GPU-hours${paid ? html`, <span class="big">${paid}</span>` : rows.length ? ", no price is set (fairlead usage prices)" : ""}</p>
    <${DataTable}
      label="Cost"
      rows=${rows}
      keyOf=${(/** @type {any[]} */ row) => row.slice(0, 6).join(" ")}
      empty="Nothing is charged yet: it has held no GPU."
      columns=${[
        { name: "attempt", head: "attempt", number: true, show: (/** @type {any[]} */ row) => row[0] },
        { name: "node", head: "node", show: (/** @type {any[]} */ row) => row[1] },
        { name: "model", head: "model", show: (/** @type {any[]} */ row) => row[2] },
        { name: "begins", head: "from, UTC", show: (/** @type {any[]} */ row) => row[3] },
        { name: "hours", head: "GPU-hours", number: true, show: (/** @type {any[]} */ row) => Number(row[4]).toFixed(3) },
        { name: "price", head: "per GPU-hour", number: true, show: (/** @type {any[]} */ row) => row[5] ?? "–" },
        { name: "cost", head: "cost", number: true, show: (/** @type {any[]} */ row) => (row[7] === null ? "–" : `${Number(row[7]).toFixed(2)} ${row[6]}`) },
      ]}
    />`;
}
