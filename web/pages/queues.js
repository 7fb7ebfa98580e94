// Queues: the tree with what each is guaranteed, uses, borrows and may use at most.
import { html, useMemo, useState } from "../lib/html.js";
import { gpus } from "../lib/format.js";
import { useResource } from "../lib/resource.js";
import { Action } from "../parts/actions.js";
import { DataTable } from "../parts/data_table.js";
import { QueueLink } from "../parts/links.js";
import { Problem } from "../parts/notices.js";

export function Page() {
  const of = useResource("/v1/queues", { shares: "true" }, { all: 1000 });
  const [open, setOpen] = useState("");
  const rows = of.data ?? [];
  const most = useMemo(() => Math.max(1000, ...rows.map((/** @type {any} */ q) => Math.max(q.used.gpu ?? 0, q.guaranteed.gpu ?? 0, q.maximum.gpu ?? 0))), [of.data]);
  return html`<div class="head"><h1>Queues</h1><span class="quiet">GPUs; amounts include the queues below</span></div>
    <${Problem} of=${of} />
    ${of.data && html`<${DataTable}
      label="Queues"
      rows=${rows}
      more=${of.more}
      keyOf=${(/** @type {any} */ q) => q.path}
      empty=${html`No queue that you may see. A queue file makes them: <code>fairlead queues apply -f queues.yaml</code>`}
      columns=${[
        { name: "path", head: "queue", sort: (/** @type {any} */ q) => q.path, show: (/** @type {any} */ q) => html`<span style=${{ paddingLeft: `${(q.path.split("/").length - 1) * 14}px` }}><${QueueLink} path=${q.path} /></span>${q.held ? html` <span class="s-held">held</span>` : ""}${q.drained ? html` <span class="s-drained">drained</span>` : ""}` },
        { name: "bar", head: "guaranteed, used, borrowed, maximum, fair share", show: (/** @type {any} */ q) => html`<${Bar} queue=${q} most=${most} />` },
        { name: "used", head: "used", number: true, sort: (/** @type {any} */ q) => q.used.gpu ?? 0, show: (/** @type {any} */ q) => gpus(q.used.gpu ?? 0) },
        { name: "guaranteed", head: "guaranteed", number: true, sort: (/** @type {any} */ q) => q.guaranteed.gpu ?? 0, show: (/** @type {any} */ q) => gpus(q.guaranteed.gpu) },
        { name: "borrowed", head: "borrowed", number: true, sort: (/** @type {any} */ q) => q.borrowed.gpu ?? 0, show: (/** @type {any} */ q) => gpus(q.borrowed.gpu) },
        { name: "maximum", head: "maximum", number: true, sort: (/** @type {any} */ q) => q.maximum.gpu ?? 0, show: (/** @type {any} */ q) => gpus(q.maximum.gpu) },
        { name: "share", head: "fair share", number: true, sort: (/** @type {any} */ q) => q.share?.fair_share_gpu_milli ?? 0, show: (/** @type {any} */ q) => gpus(q.share?.fair_share_gpu_milli) },
        { name: "running", head: "running", number: true, sort: (/** @type {any} */ q) => q.running, show: (/** @type {any} */ q) => q.running },
        { name: "waiting", head: "waiting", number: true, sort: (/** @type {any} */ q) => q.waiting, show: (/** @type {any} */ q) => q.waiting },
        { name: "budget", head: "budget", number: true, show: (/** @type {any} */ q) => (q.budget ? `${q.share?.spent_percent ?? q.budget.percent_reached} % of ${q.budget.gpu_hours} h` : "") },
        { name: "more", head: "", show: (/** @type {any} */ q) => html`<button aria-expanded=${open === q.path} onClick=${() => setOpen(open === q.path ? "" : q.path)}>${open === q.path ? "Close" : "Open"}</button>` },
      ]}
    />`}
    ${open && html`<${Queue} key=${open} queue=${rows.find((/** @type {any} */ q) => q.path === open)} />`}`;
}

/** @param {{queue: any, most: number}} props */
function Bar({ queue, most }) {
  const width = 260;
  const x = (/** @type {number} */ milli) => (width * milli) / most;
  const used = queue.used.gpu ?? 0;
  const borrowed = Math.min(used, queue.borrowed.gpu ?? 0);
  const share = queue.share?.fair_share_gpu_milli ?? 0;
  const words = `${gpus(used)} used, ${gpus(queue.guaranteed.gpu)} guaranteed, ${gpus(borrowed)} borrowed, at most ${gpus(queue.maximum.gpu)}, fair share ${gpus(share)}`;
  return html`<svg class="bar" viewBox=${`0 0 ${width} 16`} preserveAspectRatio="none" role="img" aria-label=${words}>
    <title>${words}</title>
    <rect class="frame" width=${width} height="16" />
    <rect class="used" y="4" width=${x(used - borrowed)} height="8" />
    <rect class="borrowed" x=${x(used - borrowed)} y="4" width=${x(borrowed)} height="8" />
    ${queue.guaranteed.gpu !== undefined && html`<rect class="guaranteed" x="0.75" y="2" width=${Math.max(0, x(queue.guaranteed.gpu) - 1.5)} height="12" />`}
    ${queue.maximum.gpu !== undefined && html`<line class="maximum" x1=${x(queue.maximum.gpu) - 1} x2=${x(queue.maximum.gpu) - 1} y1="0" y2="16" />`}
    ${share > 0 && html`<path class="share" d=${`M${x(share) - 4} 0h8l-4 6z`} />`}
  </svg>`;
}

/** @param {{queue: any}} props */
function Queue({ queue }) {
  if (!queue) return null;
  const path = encodeURIComponent(queue.path);
  return html`<section aria-label=${`Queue ${queue.path}`}>
    <h2>${queue.path}</h2>
    <div class="row">
      <${Action} label="Hold" path=${`/v1/queues/${path}:hold`} says=${`Nothing new of ${queue.path} and the queues below it starts until it is released.`} why=${queue.held ? "it is held" : ""} />
      <${Action} label="Drain" path=${`/v1/queues/${path}:drain`} says=${`${queue.path} and the queues below it accept no further jobs until it is released.`} why=${queue.drained ? "it is drained" : ""} />
      <${Action} label="Release" path=${`/v1/queues/${path}:release`} says=${`Ends the hold and the drain of ${queue.path}.`} why=${queue.held || queue.drained ? "" : "it is neither held nor drained"} />
    </div>
    ${queue.held && html`<p>Held by ${queue.held.by} since ${queue.held.since}: ${queue.held.reason}</p>`}
    ${Object.keys(queue.users).length > 0 && html`<h2>By user</h2><dl>${Object.entries(queue.users).map(([user, amounts]) => html`<dt>${user}</dt><dd>${gpus(/** @type {any} */ (amounts).gpu)} GPUs</dd>`)}</dl>`}
    <h2>Settings</h2>
    <pre>${JSON.stringify(queue.settings, null, 1)}</pre>
  </section>`;
}
