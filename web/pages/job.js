// Job: its state and why, its life, its placement, its GPUs over time, its output, its events, its file, and what one may do.
import { html } from "../lib/html.js";
import { ago, clock, duration, gpus } from "../lib/format.js";
import { place, setParams } from "../lib/location.js";
import { useResource } from "../lib/resource.js";
import { useStore } from "../lib/store.js";
import { Action } from "../parts/actions.js";
import { EndNotice } from "../parts/end_notice.js";
import { JobCost } from "../parts/job_cost.js";
import { JobLink, NodeLink, QueueLink } from "../parts/links.js";
import { Life } from "../parts/life.js";
import { LogView } from "../parts/log_view.js";
import { Mark } from "../parts/mark.js";
import { Problem } from "../parts/notices.js";
import { GpuPlots } from "../parts/gpu_plots.js";
import { gpuMilli } from "./jobs.js";

const TABS = ["log", "GPUs", "placement", "events", "cost", "file"];
const WAITING = new Set(["queued", "offered", "scheduled"]);
const ENDED = new Set(["succeeded", "failed", "cancelled"]);

/** @param {{name: string}} props */
export function Page({ name }) {
  const { params } = useStore(place);
  const id = encodeURIComponent(name);
  const of = useResource(`/v1/jobs/${id}`);
  const why = useResource(`/v1/jobs/${id}/why`);
  const job = of.data;
  if (!job) return html`<h1>Job ${name}</h1><${Problem} of=${of} />`;
  const tab = TABS.includes(params.get("tab") ?? "") ? params.get("tab") : "log";
  return html`<div class="head">
      <h1>Job <span class="mono">${job.id}</span> ${job.name}</h1>
      <span class="big"><${Mark} state=${job.state} /></span>
      <span class="spring"></span>
      <${EndNotice} key=${job.id} job=${job} />
      <${Actions} job=${job} />
    </div>
    <${Problem} of=${of} />
    <p id="why">${why.data?.reason.message ?? job.reason?.message ?? ""}</p>
    ${(why.data?.changes ?? []).length > 0 && html`<ul>${why.data.changes.map((/** @type {any} */ each) => html`<li>${each.message}</li>`)}</ul>`}
    <${Life} job=${job} />
    <dl>
      <dt>user</dt><dd>${job.user}</dd>
      <dt>queue</dt><dd><${QueueLink} path=${job.queue} /></dd>
      <dt>priority</dt><dd>${job.priority}</dd>
      <dt>GPUs</dt><dd>${gpus(gpuMilli(job))}</dd>
      <dt>submitted</dt><dd><span title=${job.submitted_at}>${clock(job.submitted_at)}, ${ago(job.submitted_at)}</span></dd>
      ${job.started_at && html`<dt>ran</dt><dd>${duration(job.used_seconds)}${job.left_seconds !== null ? `, ${duration(job.left_seconds)} left of its limit` : ""}</dd>`}
      ${job.exit_code !== null && html`<dt>exit code</dt><dd>${job.exit_code}</dd>`}
      ${job.signal !== null && html`<dt>signal</dt><dd>${job.signal}</dd>`}
      ${job.array && html`<dt>elements</dt><dd>${Object.entries(job.array).map(([state, many]) => `${many} ${state}`).join(", ")}</dd>`}
      ${job.after.length > 0 && html`<dt>after</dt><dd>${job.after.map((/** @type {any} */ each) => html`<${JobLink} id=${each.job} /> `)}</dd>`}
      ${job.idle && html`<dt>idle</dt><dd>${job.idle.words}</dd>`}
      ${job.preempted > 0 && html`<dt>preempted</dt><dd>${job.preempted} times</dd>`}
    </dl>
    <div class="tabs" role="tablist">${TABS.map((each) => html`<button role="tab" aria-selected=${each === tab} onClick=${() => setParams({ tab: each })}>${each}</button>`)}</div>
    <div role="tabpanel" aria-label=${tab}>
      ${tab === "log" && html`<${LogView} job=${job} ended=${ENDED.has(job.state)} />`}
      ${tab === "GPUs" && html`<${GpuPlots} job=${job} />`}
      ${tab === "placement" && html`<${Placement} job=${job} />`}
      ${tab === "events" && html`<${Events} id=${job.id} />`}
      ${tab === "cost" && html`<${JobCost} job=${job} />`}
      ${tab === "file" && html`<pre>${JSON.stringify(job.spec, null, 2)}</pre>`}
    </div>`;
}

/** @param {{job: any}} props */
function Actions({ job }) {
  const path = `/v1/jobs/${encodeURIComponent(job.id)}`;
  const over = ENDED.has(job.state) ? `it has ${job.state === "succeeded" ? "succeeded" : `ended: ${job.state}`}` : "";
  return html`<${Action} label="Cancel" path=${`${path}:cancel`} says=${`Job ${job.id} ends and is not started again.`} why=${over} />
    ${job.state === "held"
      ? html`<${Action} label="Release" path=${`${path}:release`} says=${`Job ${job.id} waits for its turn again.`} />`
      : html`<${Action} label="Hold" path=${`${path}:hold`} says=${`Job ${job.id} keeps its place in time and does not start until it is released.`} why=${over || (WAITING.has(job.state) ? "" : "it does not wait")} />`}
    ${job.idle && html`<${Action} label="Extend" path=${`${path}:extend`} says=${`No idle policy acts on job ${job.id} for a while.`} why=${over} />`}
    <${Action} label="Requeue" path=${`${path}:requeue`} says=${`The present run of job ${job.id} ends, and it waits for its turn again.`} why=${over || (WAITING.has(job.state) || job.state === "held" ? "it does not run" : "")} />`;
}

/** @param {{job: any}} props */
function Placement({ job }) {
  const held = Object.entries(/** @type {Record<string, string[]>} */ (job.gpus));
  if (!held.length) return html`<div class="empty">It has no place${job.nodes.length ? ` now; it ran on ${job.nodes.join(", ")}` : ""}.</div>`;
  return html`${held.map(([node, uuids]) => html`<${OnNode} key=${node} node=${node} uuids=${uuids} />`)}`;
}

/** @param {{node: string, uuids: string[]}} props */
function OnNode({ node, uuids }) {
  const of = useResource(`/v1/nodes/${encodeURIComponent(node)}`);
  const map = useResource("/v1/map", { rack: of.data?.labels?.["fairlead/rack"] ?? "" });
  const found = map.data?.nodes.find((/** @type {any} */ each) => each.id === node);
  const mine = new Set(uuids);
  return html`<h2><${NodeLink} id=${node} /></h2>
    ${of.data && html`<p class="quiet">${of.data.inside || of.data.gpu_model}</p>`}
    <div class="row" role="list">
      ${(found?.gpus ?? []).map((/** @type {any} */ gpu) => html`<span role="listitem" class="panel" style=${{ outline: mine.has(gpu.uuid) ? "2px solid var(--accent)" : "none", padding: "4px 8px" }} title=${gpu.uuid}>${gpu.index}: ${mine.has(gpu.uuid) ? "this job" : gpu.state === "held" ? "another job" : gpu.state}</span>`)}
    </div>`;
}

/** @param {{id: string}} props */
function Events({ id }) {
  const of = useResource("/v1/changes", { job: id, from: "1", limit: "1000" }, { timeless: true });
  const events = of.data?.items ?? [];
  return html`<${Problem} of=${of} />
    <div class="table-box" tabindex="0" role="region" aria-label="Events"><table>
      <thead><tr><th class="n">sequence</th><th>time</th><th>what</th><th>cause</th><th>facts</th></tr></thead>
      <tbody>${events.map((/** @type {any} */ each) => html`<tr key=${each.id}><td class="n mono">${each.id}</td><td title=${each.time}>${clock(each.time)}</td><td>${each.data.type}</td><td class="mono">${each.cause ?? ""}</td><td class="wide mono">${facts(each.data)}</td></tr>`)}</tbody>
    </table></div>`;
}

/** @param {any} data */
function facts(data) {
  return Object.entries(data)
    .filter(([name]) => !["type", "cause", "job", "spec", "key", "digest"].includes(name))
    .map(([name, value]) => `${name}=${typeof value === "object" ? JSON.stringify(value) : value}`)
    .join(" ");
}
