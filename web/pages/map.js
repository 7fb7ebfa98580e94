// Map: every GPU, who holds it, and what could start now.
import { html, useCallback, useMemo, useState } from "../lib/html.js";
import { amount, category, token } from "../lib/colours.js";
import { ago, count, duration, gpus, plural } from "../lib/format.js";
import { useMap } from "../lib/live_map.js";
import { place, setParams } from "../lib/location.js";
import { useStore } from "../lib/store.js";
import { DataTable } from "../parts/data_table.js";
import { JobLink, NodeLink, QueueLink } from "../parts/links.js";
import { Mark } from "../parts/mark.js";
import { MapCanvas } from "../parts/map_canvas.js";
import { Problem } from "../parts/notices.js";

/** @typedef {import("../lib/map_model.js").Model} Model @typedef {import("../lib/map_model.js").Gpu} Gpu @typedef {import("../lib/map_model.js").Node} Node @typedef {import("../lib/map_model.js").Job} Job */

const COLOURS = ["job", "queue", "user", "share", "age", "health"];
/** States of GPUs, as the API documents them: what stands in the legend. */
const WORDS = { free: "free", kept: "kept for one job", tainted: "for work that tolerates", cut: "cut into instances", closed: "node takes no work", cleaning: "being cleaned", unhealthy: "unhealthy (a cross)", held: "held" };
const STATE_TOKENS = { free: "gpu-free", kept: "gpu-kept", tainted: "gpu-tainted", cut: "gpu-kept", closed: "gpu-closed", cleaning: "gpu-cleaning", unhealthy: "gpu-unhealthy", held: "running" };
/** Ages of runs that have a step of the scale of their own, in seconds. */
const AGES = [60, 600, 3600, 6 * 3600, 24 * 3600, 3 * 86400, 7 * 86400, 30 * 86400];

export function Page() {
  const { params } = useStore(place);
  const of = useMap();
  const [hover, setHover] = useState(/** @type {any} */ (null));
  const [picked, setPicked] = useState(/** @type {any} */ (null));
  const by = COLOURS.includes(params.get("colour") ?? "") ? (params.get("colour") ?? "") : "job";
  const wanted = params.get("find") ?? "";
  const map = of.data;
  const colourOf = useMemo(() => colours(by, map), [by, map?.jobs, by === "age" && map]);
  const partsOf = useMemo(() => parts(by, map), [by, map?.jobs]);
  const job = picked?.job ?? hover?.job ?? "";
  const node = picked?.node ?? "";
  const chosen = useCallback(
    (/** @type {Gpu} */ gpu, /** @type {Node} */ at) => (job !== "" && gpu.holders.some((each) => each.job === job)) || (node !== "" && job === "" && at.id === node) || matches(wanted, gpu, at, map),
    [job, node, wanted, map?.jobs],
  );
  const onHover = useCallback((/** @type {any} */ found) => setHover((/** @type {any} */ old) => (same(old, what(found)) ? old : what(found))), []);
  const onPick = useCallback((/** @type {any} */ found) => setPicked(what(found)), []);
  const legend = useMemo(() => html`<${Legend} by=${by} />`, [by]);
  if (!map) return html`<h1>Map</h1><${Problem} of=${of} />`;
  const told = hover ?? picked;
  const table = params.get("view") === "table";
  return html`<div class="head">
      <h1>Map</h1>
      <${Totals} pools=${map.pools} />
      <span class="spring"></span>
      <label>Colour by <select value=${by} onChange=${(/** @type {any} */ event) => setParams({ colour: event.target.value })}>${COLOURS.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
      <label>Find <input size="14" value=${wanted} placeholder="job, node, user" onInput=${(/** @type {any} */ event) => setParams({ find: event.target.value })} /></label>
      <button aria-pressed=${table} onClick=${() => setParams({ view: table ? "" : "table" })}>${table ? "Canvas" : "Table"}</button>
    </div>
    <${Problem} of=${of} />
    ${table
      ? html`<${NodeTable} nodes=${map.nodes} />`
      : html`<div class="map-box">
          <div>
            <${MapCanvas} model=${map} colourOf=${colourOf} partsOf=${partsOf} chosen=${chosen} onHover=${onHover} onPick=${onPick} label=${`Map of ${plural(map.nodes.length, "node")}; the button "Table" shows the same as a table. Arrows move, plus and minus zoom, 0 shows all.`} />
            ${legend}
            <p class="quiet" aria-live="off">${told ? line(told, map) : "Point at a GPU, or click it."}</p>
          </div>
          <aside class="panel" aria-label="Details">
            ${picked ? html`<${Details} picked=${picked} map=${map} /><p><button onClick=${() => setPicked(null)}>Close</button></p>` : html`<${CouldStart} pools=${map.pools} />`}
          </aside>
        </div>`}`;
}

/** What is under a point, as the page remembers it. @param {any} found */
function what(found) {
  if (!found) return null;
  const { node } = found.placed;
  const gpu = found.gpu >= 0 ? node.gpus[found.gpu] : null;
  return { node: node.id, gpu: found.gpu, job: gpu?.holders[0]?.job ?? "" };
}

/** @param {any} a @param {any} b */
function same(a, b) {
  return a === b || (a && b && a.node === b.node && a.gpu === b.gpu);
}

/** @param {any} told @param {Model} map */
function line(told, map) {
  const gpu = map.byId.get(told.node)?.gpus[told.gpu];
  if (!gpu) return told.node;
  const holders = gpu.holders.map((each) => {
    const job = map.jobs.get(each.job);
    const part = each.milli < 1000 || each.profile ? ` (${each.profile || `${each.milli / 10} %`})` : "";
    return job?.id ? `, job ${job.id} "${job.name}" of ${job.user} in ${job.queue}${part}` : `, a job of others${part}`;
  });
  const cut = gpu.instances.length ? `, cut into ${gpu.instances.join(", ")}` : "";
  return `${told.node}, GPU ${gpu.index}: ${gpu.state}${gpu.fault ? ` (${gpu.fault})` : ""}${cut}${holders.join("")}`;
}

/** @param {string} text @param {Gpu} gpu @param {Node} node @param {Model | null} map */
function matches(text, gpu, node, map) {
  if (!text) return false;
  if (node.id.includes(text)) return true;
  return gpu.holders.some((each) => {
    const job = map?.jobs.get(each.job);
    return each.job === text || (job !== undefined && (job.user.includes(text) || job.queue.includes(text) || job.name.includes(text)));
  });
}

/** Colour of one who holds a GPU. @param {string} by @param {Model | null} map @returns {(job: string) => string} */
function holderColours(by, map) {
  /** @type {Map<string, string>} */
  const known = new Map();
  const named = (/** @type {string} */ text) => {
    let colour = known.get(text);
    if (!colour) known.set(text, (colour = category(text)));
    return colour;
  };
  const now = map?.at ? Date.parse(map.at) / 1000 : Date.now() / 1000;
  return (id) => {
    const job = map?.jobs.get(id);
    if (by === "age") return amount(age(now - (job?.placedAt || now)));
    return named(by === "queue" ? (job?.queue ?? id) : by === "user" ? (job?.user ?? id) : id);
  };
}

/** Part of the scale for an age. @param {number} seconds */
function age(seconds) {
  return AGES.filter((each) => seconds >= each).length / AGES.length;
}

/** @param {string} by @param {Model | null} map @returns {(gpu: Gpu, node: Node) => string} */
function colours(by, map) {
  const states = /** @type {Record<string, string>} */ (Object.fromEntries(Object.entries(STATE_TOKENS).map(([state, name]) => [state, token(name)])));
  const ofHolder = holderColours(by, map);
  return (gpu) => {
    if (gpu.state !== "held") return states[gpu.state] ?? states.closed;
    if (by === "health") return gpu.fault ? states.unhealthy : states.held;
    if (by === "share") return amount(gpu.holders.reduce((sum, each) => sum + each.milli, 0) / 1000);
    // What nobody holds of a GPU that is held in parts.
    if (gpu.holders.length !== 1 || gpu.holders[0].milli < 1000 || gpu.holders[0].profile) return states[gpu.instances.length ? "cut" : "free"];
    return ofHolder(gpu.holders[0].job);
  };
}

/** GPUs that are divided: a part for each who holds one, as wide as what it holds. @param {string} by @param {Model | null} map @returns {(gpu: Gpu) => {part: number, colour: string}[]} */
function parts(by, map) {
  if (by === "health" || by === "share") return () => [];
  const ofHolder = holderColours(by, map);
  return (gpu) => {
    if (!gpu.holders.length || (gpu.holders.length === 1 && gpu.holders[0].milli >= 1000 && !gpu.holders[0].profile)) return [];
    return gpu.holders.map((each) => ({ part: each.profile && gpu.instances.length ? 1 / gpu.instances.length : each.milli / 1000, colour: ofHolder(each.job) }));
  };
}

/** @param {{pools: any[]}} props */
function Totals({ pools }) {
  const sum = (/** @type {(pool: any) => number} */ of) => pools.reduce((total, pool) => total + of(pool), 0);
  const all = sum((pool) => pool.gpus);
  return html`<span><span class="big" id="gpus-held">${count(sum((pool) => pool.states.held))}</span> of ${plural(all, "GPU")} held</span>
    <span>${count(sum((pool) => pool.states.free))} free</span>
    <span>${count(sum((pool) => pool.gpus_fragmented))} of them fragmented</span>
    <span>${count(sum((pool) => pool.states.unhealthy + pool.states.closed))} broken or closed</span>
    ${sum((pool) => pool.nodes_simulated) > 0 && html`<span class="quiet">${plural(sum((pool) => pool.nodes_simulated), "node")} simulated</span>`}`;
}

/** @param {{pools: any[]}} props */
function CouldStart({ pools }) {
  return html`<h2>Could start now</h2>
    ${pools.map((pool) => html`<h2>${pool.pool}</h2>
      <ul>
        ${pool.largest_on_one_node ? html`<li>${plural(pool.largest_on_one_node.gpus, "GPU")} on one node (<${NodeLink} id=${pool.largest_on_one_node.node} />)</li>` : html`<li>nothing on one node</li>`}
        ${Object.entries(pool.largest_of_whole_nodes).map(([level, gang]) => gang && html`<li>${plural(gang.nodes, "whole node")} × ${gang.gpus_per_node} in ${level === "pool" ? "the pool" : `one ${level} (${gang.domain})`}</li>`)}
        ${pool.shares_free_milli > 0 && html`<li>${gpus(pool.shares_free_milli)} GPUs in parts</li>`}
      </ul>`)}
    <p class="quiet">By GPUs alone; a dry run counts CPUs and memory, too.</p>`;
}

/** @param {{picked: any, map: Model}} props */
function Details({ picked, map }) {
  const node = map.byId.get(picked.node);
  const job = map.jobs.get(picked.job);
  return html`${job && job.id && html`<h2>Job <${JobLink} id=${job.id} /></h2>
      <dl><dt>name</dt><dd>${job.name}</dd><dt>user</dt><dd>${job.user}</dd><dt>queue</dt><dd><${QueueLink} path=${job.queue} /></dd><dt>state</dt><dd><${Mark} state=${job.state || "lost"} /></dd><dt>holds</dt><dd>${gpus(job.milli)} GPUs${job.placedAt ? `, since ${ago(new Date(job.placedAt * 1000).toISOString())}` : ""}</dd></dl>`}
    ${node && html`<h2>Node <${NodeLink} id=${node.id} /></h2>
      <dl>
        <dt>state</dt><dd><${Mark} state=${node.state} /> ${node.reason}</dd><dt>pool</dt><dd>${node.pool}</dd>
        ${Object.entries(node.domains).map(([level, domain]) => html`<dt>${level}</dt><dd>${domain}</dd>`)}
        ${node.reserved_for && html`<dt>kept for</dt><dd><${JobLink} id=${node.reserved_for} />${node.reserved_from ? `, ${ago(node.reserved_from)}` : ""}</dd>`}
        ${node.taints && html`<dt>taints</dt><dd>${node.taints}</dd>`}
        <dt>GPUs</dt><dd>${node.model || "none"}</dd>
        ${node.gpus.map((gpu) => html`<dt>${gpu.index}</dt><dd>${gpu.state}${gpu.fault ? ` (${gpu.fault})` : ""} ${gpu.holders.map((each) => html`<${JobLink} id=${each.job} />${each.milli < 1000 || each.profile ? ` ${each.profile || `${each.milli / 10} %`}` : ""} `)}</dd>`)}
      </dl>`}`;
}

/** @param {{by: string}} props */
function Legend({ by }) {
  const scale = [0, 0.25, 0.5, 0.75, 1];
  const held = by === "share" ? "held: the darker, the more of it" : by === "health" ? "held" : by === "age" ? `held: for less than ${duration(AGES[0])} to more than ${duration(AGES[AGES.length - 1])}` : `held: a colour for each ${by} (12 colours, so some share one)`;
  const square = (/** @type {string} */ colour) => html`<i style=${{ background: colour }}></i>`;
  const ofHeld = by === "share" || by === "age" ? scale.map((each) => square(amount(each))) : square(by === "health" ? token("running") : category("1"));
  return html`<div class="legend">${Object.entries(WORDS).map(([state, words]) => html`<span>${state === "held" ? ofHeld : square(token(STATE_TOKENS[/** @type {keyof typeof STATE_TOKENS} */ (state)]))}${state === "held" ? held : words}</span>`)}</div>`;
}

/** @param {{nodes: any[]}} props */
function NodeTable({ nodes }) {
  const states = (/** @type {any} */ node, /** @type {string} */ state) => node.gpus.filter((/** @type {any} */ gpu) => gpu.state === state).length;
  const holders = (/** @type {any} */ node) => [...new Set(node.gpus.flatMap((/** @type {any} */ gpu) => gpu.holders.map((/** @type {any} */ each) => each.job)))].filter(Boolean);
  return html`<${DataTable}
    label="Nodes of the map"
    rows=${nodes}
    keyOf=${(/** @type {any} */ node) => node.id}
    empty="No node has joined. On a node: fairlead agent."
    columns=${[
      { name: "id", head: "node", sort: (/** @type {any} */ n) => n.id, show: (/** @type {any} */ n) => html`<${NodeLink} id=${n.id} />` },
      { name: "state", head: "state", sort: (/** @type {any} */ n) => n.state, show: (/** @type {any} */ n) => html`<${Mark} state=${n.state} />` },
      { name: "pool", head: "pool", sort: (/** @type {any} */ n) => n.pool, show: (/** @type {any} */ n) => n.pool },
      { name: "rack", head: "rack", sort: (/** @type {any} */ n) => n.domains.rack ?? "", show: (/** @type {any} */ n) => n.domains.rack ?? "" },
      { name: "gpus", head: "GPUs", number: true, sort: (/** @type {any} */ n) => n.gpus.length, show: (/** @type {any} */ n) => n.gpus.length },
      { name: "held", head: "held", number: true, sort: (/** @type {any} */ n) => states(n, "held"), show: (/** @type {any} */ n) => states(n, "held") },
      { name: "free", head: "free", number: true, sort: (/** @type {any} */ n) => states(n, "free"), show: (/** @type {any} */ n) => states(n, "free") },
      { name: "unhealthy", head: "unhealthy", number: true, sort: (/** @type {any} */ n) => states(n, "unhealthy"), show: (/** @type {any} */ n) => states(n, "unhealthy") },
      { name: "jobs", head: "jobs", wide: true, show: (/** @type {any} */ n) => holders(n).map((job) => html`<${JobLink} id=${job} /> `) },
    ]}
  />`;
}
