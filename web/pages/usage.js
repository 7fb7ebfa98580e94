// Usage: GPU-hours and money of a month, by user, queue, project or model, and the same as CSV.
import { html } from "../lib/html.js";
import { count } from "../lib/format.js";
import { place, setParams } from "../lib/location.js";
import { useResource } from "../lib/resource.js";
import { useStore } from "../lib/store.js";
import { DataTable } from "../parts/data_table.js";
import { Problem } from "../parts/notices.js";

const BY = ["user", "queue", "project"];

/** @param {any[]} lines */
function csv(lines) {
  // A cell that begins with one of these would be a formula in a spreadsheet.
  const cell = (/** @type {unknown} */ value) => {
    const text = String(value ?? "");
    const safe = /^[=+\-@\t\r]/.test(text) && !/^-?[\d.]+$/.test(text) ? `'${text}` : text;
    return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const names = ["key", "name", "model", "runs", "gpu_hours", "per_gpu_hour", "amount", "currency"];
  return [names.join(","), ...lines.map((line) => names.map((name) => cell(line[name])).join(","))].join("\n");
}

export function Page() {
  const { params } = useStore(place);
  const month = params.get("month") ?? new Date().toISOString().slice(0, 7);
  const by = BY.includes(params.get("by") ?? "") ? (params.get("by") ?? "user") : "user";
  const of = useResource("/v1/usage", { statement: month, by }, { timeless: true });
  const data = of.data;
  const save = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv(data.lines)], { type: "text/csv" }));
    link.download = `usage-${month}-by-${by}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  };
  return html`<div class="head">
      <h1>Usage</h1>${data && html`<span><span class="big" id="gpu-hours">${count(Math.round(data.gpu_hours * 1000) / 1000)}</span> GPU-hours</span>`}<span class="spring"></span>
      <label>month <input type="month" value=${month} onChange=${(/** @type {any} */ event) => event.target.value && setParams({ month: event.target.value })} /></label>
      <label>by <select value=${by} onChange=${(/** @type {any} */ event) => setParams({ by: event.target.value })}>${BY.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
      <button disabled=${!data?.lines.length} onClick=${save}>CSV</button>
    </div>
    <${Problem} of=${of} />
    ${data && html`<p class="quiet">${data.is_final ? "The month is over and settled." : "So far; runs that go on are counted until now in the estimate."}${data.unpriced.length ? ` Without a price: ${data.unpriced.join(", ")}.` : ""}</p>
      <${DataTable}
        label="Usage"
        rows=${data.lines}
        keyOf=${(/** @type {any} */ line) => `${line.key} ${line.model} ${line.from_ns}`}
        empty="Nobody has used a GPU in this month."
        columns=${[
          { name: "key", head: by, sort: (/** @type {any} */ l) => l.key, show: (/** @type {any} */ l) => l.name || l.key },
          { name: "model", head: "model", sort: (/** @type {any} */ l) => l.model, show: (/** @type {any} */ l) => l.model },
          { name: "runs", head: "runs", number: true, sort: (/** @type {any} */ l) => l.runs, show: (/** @type {any} */ l) => count(l.runs) },
          { name: "hours", head: "GPU-hours", number: true, sort: (/** @type {any} */ l) => l.gpu_hours, show: (/** @type {any} */ l) => count(Math.round(l.gpu_hours * 1000) / 1000) },
          { name: "price", head: "price per hour", number: true, show: (/** @type {any} */ l) => (l.per_gpu_hour ? `${l.per_gpu_hour} ${l.currency}` : "–") },
          { name: "amount", head: "amount", number: true, sort: (/** @type {any} */ l) => Number(l.amount), show: (/** @type {any} */ l) => (l.amount ? `${l.amount} ${l.currency}` : "–") },
        ]}
      />`}`;
}
