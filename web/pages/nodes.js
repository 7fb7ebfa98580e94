// Nodes: their state, their free resources, what is not well.
import { html } from "../lib/html.js";
import { gpus } from "../lib/format.js";
import { place, setParams } from "../lib/location.js";
import { useResource } from "../lib/resource.js";
import { useStore } from "../lib/store.js";
import { DataTable } from "../parts/data_table.js";
import { JobLink, NodeLink } from "../parts/links.js";
import { Mark } from "../parts/mark.js";
import { Problem } from "../parts/notices.js";

export function Page() {
  const { params } = useStore(place);
  const of = useResource("/v1/nodes", {}, { all: 20000 });
  const wanted = params.get("find") ?? "";
  const unwell = params.get("unwell") === "1";
  const rows = (of.data ?? []).filter((/** @type {any} */ node) => (!wanted || node.id.includes(wanted) || node.state === wanted) && (!unwell || node.state !== "ready" || node.health.length > 0));
  return html`<div class="head">
      <h1>Nodes</h1><span><span class="big" id="nodes-total">${rows.length}</span> ${rows.length === 1 ? "node" : "nodes"}</span><span class="spring"></span>
      <label><input type="checkbox" checked=${unwell} onChange=${(/** @type {any} */ event) => setParams({ unwell: event.target.checked ? "1" : "" })} /> only those that are not well</label>
      <label>Find <input size="14" value=${wanted} onInput=${(/** @type {any} */ event) => setParams({ find: event.target.value })} /></label>
    </div>
    <${Problem} of=${of} />
    ${of.data && html`<${DataTable}
      label="Nodes"
      rows=${rows}
      keyOf=${(/** @type {any} */ node) => node.id}
      empty=${of.data.length ? "No node matches." : html`No node has joined. On a machine with GPUs: <code>fairlead agent</code>`}
      columns=${[
        { name: "id", head: "node", sort: (/** @type {any} */ n) => n.id, show: (/** @type {any} */ n) => html`<${NodeLink} id=${n.id} />` },
        { name: "state", head: "state", sort: (/** @type {any} */ n) => n.state, show: (/** @type {any} */ n) => html`<${Mark} state=${n.state} />${n.simulated ? html` <span class="quiet">simulated</span>` : ""}` },
        { name: "model", head: "GPU model", sort: (/** @type {any} */ n) => n.gpu_model, show: (/** @type {any} */ n) => n.gpu_model },
        { name: "gpus", head: "GPUs", number: true, sort: (/** @type {any} */ n) => n.gpus, show: (/** @type {any} */ n) => n.gpus },
        { name: "free", head: "free", number: true, sort: (/** @type {any} */ n) => n.gpus_free, show: (/** @type {any} */ n) => n.gpus_free },
        { name: "cpu", head: "CPUs free", number: true, sort: (/** @type {any} */ n) => n.cpu_milli_free, show: (/** @type {any} */ n) => gpus(n.cpu_milli_free) },
        { name: "memory", head: "GiB free", number: true, sort: (/** @type {any} */ n) => n.memory_mib_free, show: (/** @type {any} */ n) => Math.floor(n.memory_mib_free / 1024) },
        { name: "jobs", head: "jobs", wide: true, show: (/** @type {any} */ n) => n.jobs.map((/** @type {string} */ job) => html`<${JobLink} id=${job} /> `) },
        { name: "health", head: "not well", wide: true, show: (/** @type {any} */ n) => n.reason || n.health.map((/** @type {any} */ each) => each.words).join("; ") },
      ]}
    />`}`;
}
