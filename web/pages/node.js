// Node: its GPUs and jobs, its health, and what an admin may do with it.
import { html } from "../lib/html.js";
import { ago, clock } from "../lib/format.js";
import { useResource } from "../lib/resource.js";
import { Action } from "../parts/actions.js";
import { JobLink } from "../parts/links.js";
import { Mark } from "../parts/mark.js";
import { Problem } from "../parts/notices.js";

/** @param {{name: string}} props */
export function Page({ name }) {
  const id = encodeURIComponent(name);
  const of = useResource(`/v1/nodes/${id}`);
  const changes = useResource("/v1/changes", { node: name, from: "1", limit: "200" }, { timeless: true });
  const node = of.data;
  if (!node) return html`<h1>Node ${name}</h1><${Problem} of=${of} />`;
  const path = `/v1/nodes/${id}`;
  const open = node.state === "ready" || node.state === "suspect";
  return html`<div class="head">
      <h1>Node <span class="mono">${node.id}</span></h1><span class="big"><${Mark} state=${node.state} /></span>${node.simulated && html`<span class="quiet">simulated</span>`}<span class="spring"></span>
      <${Action} label="Cordon" path=${`${path}:cordon`} body=${{ reason: "by a page" }} says=${`${node.id} gets no new work; its runs continue.`} why=${open ? "" : `it is ${node.state}`} />
      <${Action} label="Drain" path=${`${path}:drain`} body=${{ reason: "by a page" }} says=${`${node.id} gets no new work, and its runs are moved away.`} why=${open || node.state === "cordoned" ? "" : `it is ${node.state}`} />
      <${Action} label="Uncordon" path=${`${path}:uncordon`} says=${`${node.id} gets work again.`} why=${["cordoned", "draining", "drained"].includes(node.state) ? "" : "it is not closed by a person"} />
    </div>
    <${Problem} of=${of} />
    ${node.reason && html`<p>${node.reason}</p>`}
    <dl>
      <dt>GPUs</dt><dd>${node.gpus} × ${node.gpu_model}, ${node.gpus_free} free: ${Object.entries(node.gpu_states).map(([state, many]) => `${many} ${state}`).join(", ")}</dd>
      <dt>inside</dt><dd>${node.inside || "not known"}</dd>
      ${node.mig && html`<dt>MIG</dt><dd>${node.mig}</dd>`}
      <dt>CPUs</dt><dd>${node.cpu_milli_free / 1000} of ${node.cpu_milli / 1000} free</dd>
      <dt>memory</dt><dd>${Math.floor(node.memory_mib_free / 1024)} of ${Math.floor(node.memory_mib / 1024)} GiB free</dd>
      <dt>runtime</dt><dd>${node.runtime}</dd>
      <dt>address</dt><dd>${node.address} (${node.hostname})</dd>
      ${node.silent_seconds > 0 && html`<dt>silent</dt><dd>for ${node.silent_seconds} s</dd>`}
      ${node.taints.length > 0 && html`<dt>taints</dt><dd>${node.taints.join(", ")}</dd>`}
      <dt>jobs</dt><dd>${node.jobs.length ? node.jobs.map((/** @type {string} */ job) => html`<${JobLink} id=${job} /> `) : "none"}</dd>
    </dl>
    ${node.health.length > 0 && html`<h2>Not well</h2><ul>${node.health.map((/** @type {any} */ each) => html`<li>${each.gpu ? `GPU ${each.gpu}: ` : ""}${each.words} (${each.code}), since ${ago(each.since)}; ${each.evidence}; well again: ${each.returns}</li>`)}</ul>`}
    <h2>Labels</h2>
    <dl>${Object.entries(node.labels).map(([key, value]) => html`<dt class="mono">${key}</dt><dd class="mono">${value}</dd>`)}</dl>
    <h2>What happened to it</h2>
    <${Problem} of=${changes} />
    <ul>${(changes.data?.items ?? []).map((/** @type {any} */ each) => html`<li key=${each.id}><span title=${each.time}>${clock(each.time)}</span> ${each.data.type} ${each.data.job ? html`<${JobLink} id=${each.data.job} />` : ""} ${each.data.reason ?? ""}</li>`)}</ul>`;
}
