// Jobs: a list that the address filters.
import { html } from "../lib/html.js";
import { ago, clock, gpus } from "../lib/format.js";
import { place, setParams } from "../lib/location.js";
import { useResource } from "../lib/resource.js";
import { useStore } from "../lib/store.js";
import { DataTable } from "../parts/data_table.js";
import { JobLink, NodeLink, QueueLink } from "../parts/links.js";
import { Mark } from "../parts/mark.js";
import { Problem } from "../parts/notices.js";

const STATES = ["", "scheduled", "held", "queued", "offered", "placed", "running", "stopping", "succeeded", "failed", "cancelled"];

/** milli-GPU that a job asks for, of its file. @param {any} job */
export function gpuMilli(job) {
  const asked = Number(job.spec?.resources?.["nvidia.com/gpu"] ?? 0);
  return Math.round(1000 * asked * Math.max(1, Number(job.spec?.nodes ?? 1)));
}

/** @typedef {import("../parts/data_table.js").Column} Column */

/** @type {Column[]} */
export const JOB_COLUMNS = [
  { name: "id", head: "job", sort: (job) => Number.parseInt(job.id, 10), show: (job) => html`<${JobLink} id=${job.id} />` },
  { name: "name", head: "name", wide: true, sort: (job) => job.name, show: (job) => job.name },
  { name: "state", head: "state", sort: (job) => job.state, show: (job) => html`<${Mark} state=${job.state} />` },
  { name: "user", head: "user", sort: (job) => job.user, show: (job) => job.user },
  { name: "queue", head: "queue", sort: (job) => job.queue, show: (job) => html`<${QueueLink} path=${job.queue} />` },
  { name: "gpus", head: "GPUs", number: true, sort: gpuMilli, show: (job) => gpus(gpuMilli(job)) },
  { name: "submitted", head: "submitted", number: true, sort: (job) => job.submitted_at, show: (job) => html`<span title=${job.submitted_at}>${ago(job.submitted_at)}</span>` },
  { name: "started", head: "started", number: true, sort: (job) => job.started_at, show: (job) => html`<span title=${job.started_at ?? ""}>${clock(job.started_at)}</span>` },
  { name: "nodes", head: "nodes", wide: true, show: (job) => job.nodes.map((/** @type {string} */ node) => html`<${NodeLink} id=${node} /> `) },
  { name: "reason", head: "why", wide: true, show: (job) => job.reason?.message ?? "" },
];

export function Page() {
  const { params } = useStore(place);
  const wanted = Object.fromEntries(["state", "queue", "user", "name"].map((name) => [name, params.get(name) ?? ""]));
  const of = useResource("/v1/jobs", wanted, { all: 500 });
  const field = (/** @type {string} */ name, /** @type {string} */ hint) => html`<label>${name} <input size="14" placeholder=${hint} value=${wanted[name]} onChange=${(/** @type {any} */ event) => setParams({ [name]: event.target.value.trim() })} /></label>`;
  return html`<div class="head">
      <h1>Jobs</h1>
      <span class="spring"></span>
      <label>state <select value=${wanted.state} onChange=${(/** @type {any} */ event) => setParams({ state: event.target.value })}>${STATES.map((each) => html`<option value=${each}>${each || "any"}</option>`)}</select></label>
      ${field("queue", "research/vision")} ${field("user", "ada")} ${field("name", "train")}
    </div>
    <${Problem} of=${of} />
    ${of.data && html`<${DataTable} label="Jobs" rows=${of.data} more=${of.more} keyOf=${(/** @type {any} */ job) => job.id} columns=${JOB_COLUMNS} empty=${html`No job matches. Submit one: <code>fairlead submit --gpus 1 -- python train.py</code>`} />`}`;
}
