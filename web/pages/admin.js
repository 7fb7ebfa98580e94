// Admin: whether the cluster takes jobs, what is wrong and what to do, pools, windows and rollouts.
import { html } from "../lib/html.js";
import { count } from "../lib/format.js";
import { useResource } from "../lib/resource.js";
import { Problem } from "../parts/notices.js";

export function Page() {
  const ready = useResource("/readyz", {}, { timeless: true });
  const breaker = useResource("/v1/breaker");
  const windows = useResource("/v1/maintenance", {}, { all: 200 });
  const rollouts = useResource("/v1/rollouts", {}, { all: 200 });
  const pools = useResource("/v1/pools", {}, { all: 200 });
  const told = ready.data;
  return html`<div class="head"><h1>Admin</h1>${told && html`<span class="big">${told.ready ? "Jobs are accepted and run" : "Not ready"}</span>`}</div>
    <${Problem} of=${ready} />
    ${told && html`<dl>
        <dt>this gateway</dt><dd>at sequence ${count(told.sequence)} of ${count(told.log_end)}</dd>
        ${told.nodes && html`<dt>nodes</dt><dd>${told.nodes.heard} of ${told.nodes.known} heard${told.nodes.unheard.length ? `; not heard: ${told.nodes.unheard.join(", ")}` : ""}</dd>`}
        ${told.scrub && html`<dt>log checked</dt><dd>to sequence ${count(told.scrub.sequence)} of ${count(told.scrub.end)}, ${told.scrub.damaged} damaged ${told.scrub.reason}</dd>`}
      </dl>
      ${told.conditions.length > 0 && html`<h2>What is wrong</h2><ul>${told.conditions.map((/** @type {any} */ each) => html`<li><strong>${each.code}</strong>: ${each.message} ${told.remedies?.[each.code] ?? ""}</li>`)}</ul>`}`}
    <h2>Automatic action on nodes</h2>
    <${Problem} of=${breaker} />
    <p>${breaker.data && (breaker.data.tripped.length ? breaker.data.tripped.map((/** @type {any} */ each) => `stopped (${each.kind}): ${each.found} of ${each.of} nodes, up to ${each.allowed} are acceptable`).join("; ") : "goes on: nothing has stopped it")}</p>
    <h2>Pools</h2>
    <${Problem} of=${pools} />
    <ul>${(pools.data ?? []).map((/** @type {any} */ pool) => html`<li>${pool.name}: ${pool.nodes} nodes, ${pool.gpus} GPUs, queues ${pool.queues.join(", ")}</li>`)}</ul>
    <h2>Maintenance windows</h2>
    <${Problem} of=${windows} />
    ${windows.data && (windows.data.length ? html`<pre>${JSON.stringify(windows.data, null, 1)}</pre>` : html`<p class="quiet">none</p>`)}
    <h2>Rollouts</h2>
    <${Problem} of=${rollouts} />
    ${rollouts.data && (rollouts.data.length ? html`<pre>${JSON.stringify(rollouts.data, null, 1)}</pre>` : html`<p class="quiet">none</p>`)}`;
}
