// Queues: the tree with what each is guaranteed, uses, borrows and may use at most.
import { html, useMemo, useState } from "../lib/html.js";
import { send } from "../lib/api.js";
import { gpus, plural } from "../lib/format.js";
import { moment } from "../lib/location.js";
import { useResource } from "../lib/resource.js";
import { Action } from "../parts/actions.js";
import { DataTable } from "../parts/data_table.js";
import { JobLink, QueueLink } from "../parts/links.js";
import { SharePlot } from "../parts/share_plot.js";
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
    ${open && html`<${Queue} key=${open} queue=${rows.find((/** @type {any} */ q) => q.path === open)} rows=${rows} again=${of.again} />`}`;
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

/** @param {{queue: any, rows: any[], again: () => void}} props */
function Queue({ queue, rows, again }) {
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
    <${Borrowing} queue=${queue} rows=${rows} />
    <${Limits} key=${queue.path} queue=${queue} again=${again} />
    <${SharePlot} queue=${queue} />
    ${Object.keys(queue.users).length > 0 && html`<h2>By user</h2><dl>${Object.entries(queue.users).map(([user, amounts]) => html`<dt>${user}</dt><dd>${gpus(/** @type {any} */ (amounts).gpu)} GPUs</dd>`)}</dl>`}
    <h2>Settings</h2>
    <pre>${JSON.stringify(queue.settings, null, 1)}</pre>
  </section>`;
}

/** The queue above one; "" for one at the top. @param {string} path */
function above(path) {
  return path.includes("/") ? path.slice(0, path.lastIndexOf("/")) : "";
}

/** What a queue has beyond its guarantee, and what of its guarantee it does not use. @param {any} queue */
function balance(queue) {
  const used = queue.used.gpu ?? 0;
  const owed = queue.guaranteed.gpu ?? 0;
  return { borrows: Math.max(0, used - owed), lends: Math.max(0, owed - used) };
}

/** Who uses more than its guarantee, and whose guarantee is free, among the queues beside this one. @param {{queue: any, rows: any[]}} props */
function Borrowing({ queue, rows }) {
  const beside = rows.filter((each) => above(each.path) === above(queue.path) && (each.settings?.pool ?? "") === (queue.settings?.pool ?? ""));
  const borrowers = beside.filter((each) => balance(each).borrows > 0);
  const lenders = beside.filter((each) => balance(each).lends > 0);
  if (!borrowers.length) return html`<p>No queue beside it uses more than its guarantee${lenders.length ? "" : ", and no guarantee is free"}.</p>`;
  const named = (/** @type {any[]} */ queues, /** @type {"borrows" | "lends"} */ what) => queues.map((each, at) => html`${at ? ", " : ""}<${QueueLink} path=${each.path} /> ${gpus(balance(each)[what])}`);
  return html`<p id="borrowing">Beyond their guarantees use: ${named(borrowers, "borrows")} GPUs. ${lenders.length ? html`Of these guarantees are free, and lent: ${named(lenders, "lends")} GPUs.` : "No guarantee beside it is free: what they use is guaranteed to nobody."}</p>`;
}

/** Amounts of GPUs that can be edited, and their words in a queue file. */
const AMOUNTS = { guaranteed: "guaranteed", maximum: "at most" };
const GPU = "nvidia.com/gpu";

/** @param {{queue: any, again: () => void}} props */
function Limits({ queue, again }) {
  const [stated, setStated] = useState(/** @type {Record<string, string>} */ ({}));
  const [reclaim, setReclaim] = useState(false);
  const [tried, setTried] = useState(/** @type {any} */ (null));
  const [said, setSaid] = useState("");
  const now = (/** @type {string} */ name) => stated[name] ?? String(queue.settings?.[name]?.[GPU] ?? "");
  const weight = stated.weight ?? String(queue.settings?.weight ?? 1);
  const off = moment() ? "you are looking at the past" : "";
  const edit = (/** @type {string} */ name) => (/** @type {any} */ event) => {
    setStated({ ...stated, [name]: event.target.value.trim() });
    setTried(null);
    setSaid("");
  };
  /** The queue file with this queue alone: its present settings, and what was edited. */
  const file = () => {
    const settings = { ...queue.settings };
    for (const name of Object.keys(AMOUNTS)) {
      const amounts = { ...settings[name] };
      if (now(name) === "") delete amounts[GPU];
      else amounts[GPU] = Number.isNaN(Number(now(name))) ? now(name) : Number(now(name));
      if (Object.keys(amounts).length) settings[name] = amounts;
      else delete settings[name];
    }
    settings.weight = Number(weight);
    return { queues: { [queue.path]: settings } };
  };
  const query = reclaim ? "?reclaim=true" : "";
  const attempt = async (/** @type {() => Promise<any>} */ what) => {
    try {
      await what();
    } catch (error) {
      setTried(null);
      setSaid(error instanceof Error ? error.message : String(error));
    }
  };
  const look = () => attempt(async () => {
    setSaid("");
    setTried(await send(`/v1/queues:dryrun${query}`, file()));
  });
  const apply = () => attempt(async () => {
    const done = await send(`/v1/queues:apply${query}`, file(), { headers: { "if-match": `W/"${tried.sequence}"` } });
    setTried(null);
    setStated({});
    setSaid(done?.sequence ? `applied, sequence ${done.sequence}` : "sent; it is decided later");
    again();
  });
  return html`<h2>Limits</h2>
    <form class="row" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); look(); }}>
      ${Object.entries(AMOUNTS).map(([name, words]) => html`<label>GPUs ${words} <input size="6" inputmode="numeric" name=${name} value=${now(name)} placeholder="none" onInput=${edit(name)} /></label>`)}
      <label>weight <input size="4" inputmode="numeric" name="weight" value=${weight} onInput=${edit("weight")} /></label>
      <label><input type="checkbox" checked=${reclaim} onChange=${(/** @type {any} */ event) => { setReclaim(event.target.checked); setTried(null); }} /> ask runs beyond the maximum to yield</label>
      <button disabled=${Boolean(off)} title=${off || "Shows what would change; changes nothing"}>What would change?</button>
    </form>
    ${tried && html`<div id="preview" class="notice" role="status">
      <p>${tried.configured ? plural(tried.configured, "queue") + " would change." : "Nothing would change."} ${reclaim ? "" : "What runs goes on."}</p>
      ${[["yields", "asked to yield"], ["withdrawn", "lose an offer"], ["offered", "offered next"]].map(([kind, words]) => tried[kind].length > 0 && html`<p>${plural(tried[kind].length, "job")} would be ${words === "lose an offer" ? "without the offer that it has" : words}: ${tried[kind].slice(0, 20).map((/** @type {any} */ job) => html`<${JobLink} id=${job.id} /> "${job.name}" of ${job.user} in ${job.queue}, ${gpus(job.gpu_milli)} GPUs; `)}${tried[kind].length > 20 ? `and ${tried[kind].length - 20} more` : ""}</p>`)}
      ${tried.hidden > 0 && html`<p>${plural(tried.hidden, "job")} that you may not see.</p>`}
      <p class="quiet">As of sequence ${tried.sequence}; the same: <code>fairlead queues apply -f FILE --dry-run${reclaim ? " --reclaim" : ""}</code></p>
      ${tried.configured > 0 && html`<button class="first" onClick=${apply}>Apply</button>`}
    </div>`}
    ${said && html`<p role="status" id="limits-said">${said}</p>`}`;
}
