// Idle: runs that do nothing with their GPUs, what follows and when, and what policies would have saved.
import { html } from "../lib/html.js";
import { ago } from "../lib/format.js";
import { useResource } from "../lib/resource.js";
import { Action } from "../parts/actions.js";
import { DataTable } from "../parts/data_table.js";
import { JobLink } from "../parts/links.js";
import { Problem } from "../parts/notices.js";

export function Page() {
  const of = useResource("/v1/idle");
  if (!of.data) return html`<h1>Idle</h1><${Problem} of=${of} />`;
  return html`<div class="head"><h1>Idle</h1><span><span class="big">${of.data.items.length}</span> ${of.data.items.length === 1 ? "run lies" : "runs lie"} idle under a policy</span></div>
    <${Problem} of=${of} />
    <${DataTable}
      label="Idle runs"
      rows=${of.data.items}
      keyOf=${(/** @type {any} */ each) => each.job}
      empty=${of.data.policies.length ? "No run lies idle." : html`No idle policy is set. <code>fairlead idle apply -f idle.yaml</code> sets one; a dry run of it shows what it would have saved.`}
      columns=${[
        { name: "job", head: "job", show: (/** @type {any} */ r) => html`<${JobLink} id=${r.job} />` },
        { name: "user", head: "user", sort: (/** @type {any} */ r) => r.user, show: (/** @type {any} */ r) => r.user },
        { name: "gpus", head: "GPUs", number: true, sort: (/** @type {any} */ r) => r.gpus, show: (/** @type {any} */ r) => r.gpus },
        { name: "since", head: "since", sort: (/** @type {any} */ r) => r.idle?.since, show: (/** @type {any} */ r) => ago(r.idle?.since) },
        { name: "words", head: "why it counts as idle", wide: true, show: (/** @type {any} */ r) => r.idle?.words ?? "" },
        { name: "then", head: "what follows", show: (/** @type {any} */ r) => (r.idle ? `${r.idle.action}${r.idle.reclaim_at ? ` ${ago(r.idle.reclaim_at)}` : ""}` : "") },
        { name: "keep", head: "", show: (/** @type {any} */ r) => html`<${Action} label="Extend" path=${`/v1/jobs/${encodeURIComponent(r.job)}:extend`} says=${`No idle policy acts on job ${r.job} for a while.`} />` },
      ]}
    />
    <h2>Policies</h2>
    ${of.data.policies.length ? html`<pre>${JSON.stringify(of.data.policies, null, 1)}</pre>` : html`<p class="quiet">none</p>`}
    <h2>What dry runs would have saved</h2>
    ${of.data.savings.length ? html`<pre>${JSON.stringify(of.data.savings, null, 1)}</pre>` : html`<p class="quiet">nothing yet</p>`}`;
}
