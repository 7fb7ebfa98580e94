// Map: every GPU, who holds it, and what could start now.
import { html, useCallback, useMemo, useState } from "../lib/html.js";
import { amount, category, token } from "../lib/colours.js";
import { ago, count, gpus, plural } from "../lib/format.js";
import { place, setParams } from "../lib/location.js";
import { useResource } from "../lib/resource.js";
import { useStore } from "../lib/store.js";
import { DataTable } from "../parts/data_table.js";
import { JobLink, NodeLink, QueueLink } from "../parts/links.js";
import { Mark } from "../parts/mark.js";
import { MapCanvas } from "../parts/map_canvas.js";
import { Problem } from "../parts/notices.js";

const COLOURS = ["job", "queue", "user", "share", "health"];
/** States of GPUs, as the API documents them: what stands in the legend. */
const WORDS = { free: "free", kept: "kept for one job", tainted: "for work that tolerates", cut: "cut into instances", closed: "node takes no work", cleaning: "being cleaned", unhealthy: "unhealthy", held: "held" };
const STATE_TOKENS = { free: "gpu-free", kept: "gpu-kept", tainted: "gpu-tainted", cut: "gpu-kept", closed: "gpu-closed", cleaning: "gpu-cleaning", unhealthy: "gpu-unhealthy", held: "running" };

export function Page() {
  const { params } = useStore(place);
  const of = useResource("/v1/map");
  const [hover, setHover] = useState(/** @type {any} */ (null));
  const [picked, setPicked] = useState(/** @type {any} */ (null));
  const by = COLOURS.includes(params.get("colour") ?? "") ? params.get("colour") : "job";
  const wanted = params.get("find") ?? "";
  const map = of.data;
  const jobs = useMemo(() => new Map((map?.jobs ?? []).map((/** @type {any} */ job) => [job.id, job])), [map]);
  const colourOf = useMemo(() => colours(by ?? "job", jobs), [by, jobs]);
  const job = picked?.job ?? hover?.job ?? "";
  const node = picked?.node ?? "";
  const chosen = useCallback(
    (/** @type {any} */ gpu, /** @type {any} */ at) => (job && gpu.holders.some((/** @type {any} */ each) => each.job === job)) || (node && !job && at.id === node) || matches(wanted, gpu, at, jobs),
    [job, node, wanted, jobs],
  );
  const onHover = useCallback((/** @type {any} */ found) => setHover(what(found)), []);
  const onPick = useCallback((/** @type {any} */ found) => setPicked(what(found)), []);
  if (!map) return html`<h1>Map</h1><${Problem} of=${of} />`;
  const told = hover ?? picked;
  return html`<div class="head">
      <h1>Map</h1>
      <${Totals} pools=${map.pools} />
      <span class="spring"></span>
      <label>Colour by <select value=${by} onChange=${(/** @type {any} */ event) => setParams({ colour: event.target.value })}>${COLOURS.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
      <label>Find <input size="14" value=${wanted} placeholder="job, node, user" onInput=${(/** @type {any} */ event) => setParams({ find: event.target.value })} /></label>
      <button aria-pressed=${params.get("view") === "table"} onClick=${() => setParams({ view: params.get("view") === "table" ? "" : "table" })}>${params.get("view") === "table" ? "Canvas" : "Table"}</button>
    </div>
    <${Problem} of=${of} />
    ${params.get("view") === "table"
      ? html`<${NodeTable} nodes=${map.nodes} />`
      : html`<div class="map-box">
          <div>
            <${MapCanvas} nodes=${map.nodes} colourOf=${colourOf} chosen=${chosen} onHover=${onHover} onPick=${onPick} label=${`Map of ${plural(map.nodes.length, "node")}; the button "Table" shows the same as a table. Arrows move, plus and minus zoom, 0 shows all.`} />
            <${Legend} by=${by} />
            <p class="quiet" aria-live="off">${told ? line(told, jobs) : "Point at a GPU, or click it."}</p>
          </div>
          <aside class="panel" aria-label="Details">
            ${picked ? html`<${Details} picked=${picked} map=${map} jobs=${jobs} /><p><button onClick=${() => setPicked(null)}>Close</button></p>` : html`<${CouldStart} pools=${map.pools} />`}
          </aside>
        </div>`}`;
}

/** @param {any} found */
function what(found) {
  if (!found) return null;
  const { node } = found.placed;
  const gpu = found.gpu >= 0 ? node.gpus[found.gpu] : null;
  return { node: node.id, gpu: gpu?.index ?? -1, state: gpu?.state ?? "", fault: gpu?.fault ?? "", job: gpu?.holders[0]?.job ?? "" };
}

/** @param {any} told @param {Map<string, any>} jobs */
function line(told, jobs) {
  const job = jobs.get(told.job);
  const holder = job ? `, job ${job.id} "${job.name}" of ${job.user} in ${job.queue}` : "";
  return `${told.node}${told.gpu >= 0 ? `, GPU ${told.gpu}: ${told.state}${told.fault ? ` (${told.fault})` : ""}` : ""}${holder}`;
}

/** @param {string} text @param {any} gpu @param {any} node @param {Map<string, any>} jobs */
function matches(text, gpu, node, jobs) {
  if (!text) return false;
  if (node.id.includes(text)) return true;
  return gpu.holders.some((/** @type {any} */ each) => {
    const job = jobs.get(each.job);
    return each.job === text || (job && (job.user.includes(text) || job.queue.includes(text) || job.name.includes(text)));
  });
}

/** @param {string} by @param {Map<string, any>} jobs @returns {(gpu: any, node: any) => string} */
function colours(by, jobs) {
  const states = Object.fromEntries(Object.entries(STATE_TOKENS).map(([state, name]) => [state, token(name)]));
  /** @type {Map<string, string>} */
  const known = new Map();
  const named = (/** @type {string} */ text) => {
    let colour = known.get(text);
    if (!colour) known.set(text, (colour = category(text)));
    return colour;
  };
  return (gpu) => {
    if (gpu.state !== "held") return states[gpu.state] ?? states.closed;
    if (by === "health") return gpu.fault ? states.unhealthy : states.held;
    if (by === "share") return amount(gpu.holders.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + each.milli, 0) / 1000);
    const job = jobs.get(gpu.holders[0].job);
    return named(by === "job" || !job ? gpu.holders[0].job : job[by]);
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

/** @param {{picked: any, map: any, jobs: Map<string, any>}} props */
function Details({ picked, map, jobs }) {
  const node = map.nodes.find((/** @type {any} */ each) => each.id === picked.node);
  const job = jobs.get(picked.job);
  return html`${job && html`<h2>Job <${JobLink} id=${job.id} /></h2>
      <dl><dt>name</dt><dd>${job.name}</dd><dt>user</dt><dd>${job.user}</dd><dt>queue</dt><dd><${QueueLink} path=${job.queue} /></dd><dt>state</dt><dd><${Mark} state=${job.state || "lost"} /></dd><dt>holds</dt><dd>${gpus(job.gpu_milli)} GPUs</dd></dl>`}
    ${node && html`<h2>Node <${NodeLink} id=${node.id} /></h2>
      <dl>
        <dt>state</dt><dd><${Mark} state=${node.state} /> ${node.reason}</dd><dt>pool</dt><dd>${node.pool}</dd>
        ${Object.entries(node.domains).map(([level, domain]) => html`<dt>${level}</dt><dd>${domain}</dd>`)}
        ${node.reserved_for && html`<dt>kept for</dt><dd><${JobLink} id=${node.reserved_for} />${node.reserved_from ? `, ${ago(node.reserved_from)}` : ""}</dd>`}
        ${node.taints.length > 0 && html`<dt>taints</dt><dd>${node.taints.join(", ")}</dd>`}
        <dt>GPUs</dt><dd>${node.gpus[0]?.model ?? "none"}</dd>
        ${node.gpus.map((/** @type {any} */ gpu) => html`<dt>${gpu.index}</dt><dd>${gpu.state}${gpu.fault ? ` (${gpu.fault})` : ""} ${gpu.holders.map((/** @type {any} */ each) => html`<${JobLink} id=${each.job} /> `)}</dd>`)}
      </dl>`}`;
}

/** @param {{by: any}} props */
function Legend({ by }) {
  const held = by === "share" ? "held: the darker, the more of it" : by === "health" ? "held" : `held: a colour for each ${by} (12 colours, so some share one)`;
  return html`<div class="legend">${Object.entries(WORDS).map(([state, words]) => html`<span><i style=${{ background: state === "held" ? (by === "share" ? amount(0.6) : by === "health" ? token("running") : category("1")) : token(STATE_TOKENS[/** @type {keyof typeof STATE_TOKENS} */ (state)]) }}></i>${state === "held" ? held : words}</span>`)}</div>`;
}

/** @param {{nodes: any[]}} props */
function NodeTable({ nodes }) {
  const states = (/** @type {any} */ node, /** @type {string} */ state) => node.gpus.filter((/** @type {any} */ gpu) => gpu.state === state).length;
  const holders = (/** @type {any} */ node) => [...new Set(node.gpus.flatMap((/** @type {any} */ gpu) => gpu.holders.map((/** @type {any} */ each) => each.job)))];
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
