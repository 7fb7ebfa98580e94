// Pending: what waits, grouped by its dominant reason, with the smallest changes that would start it.
import { html, useMemo } from "../lib/html.js";
import { ago, gpus, plural } from "../lib/format.js";
import { useResource } from "../lib/resource.js";
import { DataTable } from "../parts/data_table.js";
import { Problem } from "../parts/notices.js";
import { JOB_COLUMNS, gpuMilli } from "./jobs.js";

const WAITING = ["queued", "offered", "scheduled", "held"];

export function Page() {
  const lists = WAITING.map((state) => useResource("/v1/jobs", { state }, { all: 1000 }));
  const groups = useMemo(() => grouped(lists.flatMap((of) => of.data ?? [])), lists.map((of) => of.data));
  const total = groups.reduce((sum, each) => sum + each.jobs.length, 0);
  const failed = lists.find((of) => of.error);
  return html`<div class="head"><h1>Pending</h1><span><span class="big" id="pending-total">${total}${lists.some((of) => of.more) ? "+" : ""}</span> ${total === 1 ? "job waits" : "jobs wait"}</span></div>
    ${failed && html`<${Problem} of=${failed} />`}
    ${!total && lists.every((of) => of.data) && html`<div class="empty">Nothing waits. What waits is shown here by its reason, with what would start it.</div>`}
    ${groups.map((group) => html`<details class="reason" key=${group.code}>
      <summary>
        <strong>${group.message}</strong> <span class="quiet">${group.code}</span><br />
        ${plural(group.jobs.length, "job")}, ${gpus(group.milli)} GPUs wanted, the oldest, job ${group.oldest.id}, submitted ${ago(group.oldest.submitted_at)}
      </summary>
      <${Smallest} job=${group.oldest.id} />
      <${DataTable} label=${group.code} rows=${group.jobs} keyOf=${(/** @type {any} */ job) => job.id} columns=${JOB_COLUMNS.filter((each) => each.name !== "nodes" && each.name !== "started")} empty="" />
    </details>`)}`;
}

/** The dominant reasons, the biggest group first. @param {any[]} jobs */
function grouped(jobs) {
  /** @type {Map<string, any>} */
  const found = new Map();
  for (const job of jobs) {
    const code = job.reason?.code ?? job.state;
    const group = found.get(code) ?? { code, message: job.reason?.message ?? job.state, jobs: [], milli: 0, oldest: job };
    group.jobs.push(job);
    group.milli += gpuMilli(job);
    if (job.submitted_at < group.oldest.submitted_at) group.oldest = job;
    group.message = group.oldest.reason?.message ?? group.message;
    found.set(code, group);
  }
  return [...found.values()].sort((a, b) => b.jobs.length - a.jobs.length);
}

/** @param {{job: string}} props */
function Smallest({ job }) {
  const of = useResource(`/v1/jobs/${encodeURIComponent(job)}/why`);
  const changes = of.data?.changes ?? [];
  if (!changes.length) return html`<${Problem} of=${of} />`;
  return html`<p>What would start job ${job}: </p><ul>${changes.map((/** @type {any} */ each) => html`<li>${each.message}</li>`)}</ul>`;
}
