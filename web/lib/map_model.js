// The map as a page keeps it: nodes and jobs as they were last told, changed in place by answers of /v1/map/columns. Pure.

/** @type {Record<string, string>} */
const STATES = { f: "free", k: "kept", t: "tainted", x: "cut", c: "closed", h: "held", l: "cleaning", u: "unhealthy" };

/**
 * @typedef {{job: string, milli: number, profile: string}} Holder
 * @typedef {{index: number, state: string, fault: string, instances: string[], holders: Holder[]}} Gpu
 * @typedef {{id: string, pool: string, domains: Record<string, string>, state: string, reason: string, access: string, reserved_for: string,
 *   reserved_from: string, taints: string, silent: boolean, simulated: boolean, model: string, gpus: Gpu[]}} Node
 * @typedef {{id: string, name: string, user: string, queue: string, state: string, placedAt: number, milli: number}} Job
 * @typedef {{sequence: number, at: string, cursor: string, pools: any[], nodes: Node[], byId: Map<string, Node>, jobs: Map<string, Job>,
 *   shape: number, since: string, changed: Set<Node> | null}} Model
 * shape rises when nodes come, go or change their place; changed: the nodes that have changed since cursor `since` (null: all).
 */

/** What the answer says. @param {any} answer @returns {{nodes: Node[], jobs: Job[]}} */
export function told(answer) {
  const { texts, nodes, jobs } = answer;
  /** @type {Node[]} */
  const found = [];
  let at = 0;
  for (let place = 0; place < nodes.id.length; place += 1) {
    const letters = nodes.gpus[place];
    /** @type {Gpu[]} */
    const gpus = new Array(letters.length);
    for (let number = 0; number < letters.length; number += 1, at += 1) {
      const holder = nodes.holders[at];
      gpus[number] = { index: number, state: STATES[letters[number]] ?? "closed", fault: "", instances: [], holders: holder < 0 ? [] : [{ job: jobs.id[holder], milli: 1000, profile: "" }] };
    }
    /** @type {Record<string, string>} */
    const domains = {};
    for (const level of Object.keys(nodes.domains)) {
      const domain = texts[nodes.domains[level][place]];
      if (domain) domains[level] = domain;
    }
    found.push({
      id: nodes.id[place],
      pool: texts[nodes.pool[place]],
      domains,
      state: texts[nodes.state[place]],
      reason: texts[nodes.reason[place]],
      access: texts[nodes.access[place]],
      reserved_for: texts[nodes.reserved_for[place]],
      reserved_from: texts[nodes.reserved_from[place]],
      taints: texts[nodes.taints[place]],
      silent: nodes.silent[place],
      simulated: nodes.simulated[place],
      model: texts[nodes.model[place]],
      gpus,
    });
  }
  for (const [place, ...indices] of nodes.indices) indices.forEach((/** @type {number} */ index, /** @type {number} */ number) => (found[place].gpus[number].index = index));
  for (const [place, number, job, milli, profile] of nodes.shares) found[place].gpus[number].holders.push({ job: jobs.id[job], milli, profile: texts[profile] });
  for (const [place, number, fault] of nodes.faults) found[place].gpus[number].fault = texts[fault];
  for (const [place, number, profile] of nodes.instances) found[place].gpus[number].instances.push(texts[profile]);
  const named = jobs.id.map((/** @type {string} */ id, /** @type {number} */ place) => ({
    id,
    name: jobs.name[place],
    user: texts[jobs.user[place]],
    queue: texts[jobs.queue[place]],
    state: texts[jobs.state[place]],
    placedAt: jobs.placed_at[place],
    milli: 0,
  }));
  return { nodes: found, jobs: named };
}

/** The model after an answer; nodes that have changed are changed in place. @param {Model | null} before @param {any} answer @returns {Model} */
export function taken(before, answer) {
  const { nodes, jobs } = told(answer);
  const old = answer.whole ? null : before;
  const byId = old?.byId ?? new Map();
  const known = old?.jobs ?? new Map();
  for (const job of jobs) {
    const same = known.get(job.id);
    if (same) Object.assign(same, job, { milli: same.milli });
    else known.set(job.id, job);
  }
  let moved = !old;
  /** @type {Set<Node>} */
  const changed = new Set();
  for (const node of nodes) {
    const same = byId.get(node.id);
    if (same) {
      count(known, same, -1);
      if (same.gpus.length !== node.gpus.length || same.pool !== node.pool || same.domains.rack !== node.domains.rack) moved = true;
      Object.assign(same, node);
    } else {
      byId.set(node.id, node);
      moved = true;
    }
    count(known, node, 1);
    changed.add(same ?? node);
  }
  for (const [id, job] of known) if (job.milli <= 0) known.delete(id);
  const all = moved ? [...byId.values()].sort((a, b) => (a.id < b.id ? -1 : 1)) : /** @type {Model} */ (old).nodes;
  const shape = (before?.shape ?? 0) + (moved ? 1 : 0);
  return { sequence: answer.sequence, at: answer.at ?? "", cursor: answer.cursor, pools: answer.pools, nodes: all, byId, jobs: known, shape, since: old?.cursor ?? "", changed: moved ? null : changed };
}

/** @param {Map<string, Job>} jobs @param {Node} node @param {1 | -1} sign */
function count(jobs, node, sign) {
  for (const gpu of node.gpus) {
    for (const holder of gpu.holders) {
      const job = jobs.get(holder.job);
      if (job) job.milli += sign * holder.milli;
    }
  }
}
