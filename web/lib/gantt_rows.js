// Rows of the Gantt: which bars lie on which lanes of which node, and when a node was closed. Pure.

/**
 * @typedef {{job: string, attempt: number, name: string, user: string, queue: string, outcome: string, begin: number, end: number, open: boolean, lane: number, lanes: number}} Bar
 * @typedef {{begin: number, end: number, what: string}} Closed
 * @typedef {{node: string, lanes: number, bars: Bar[], closed: Closed[]}} Row
 */

/** Events that close a node, and those that open it again. */
const CLOSES = { NodeCordoned: "cordoned", NodeDraining: "draining", NodeDrained: "drained", NodeQuarantined: "quarantined", NodeLost: "lost" };
const OPENS = new Set(["NodeUncordoned", "NodeUnquarantined", "NodeReturned"]);

/** What the page asks the warehouse for. @param {number} from ms @param {number} to ms */
export function queries(from, to) {
  const [begin, end] = [Math.floor(from), Math.ceil(to)];
  return {
    runs: `SELECT r.job, r.attempt, j.name, j."user", j.queue, coalesce(r.outcome, ''), epoch_ms(r.placed_at), epoch_ms(r.ended_at), r.nodes, r.gpu_count
FROM runs r JOIN jobs j ON j.id = r.job WHERE epoch_ms(r.placed_at) < ${end} AND (r.ended_at IS NULL OR epoch_ms(r.ended_at) > ${begin}) ORDER BY r.placed_at LIMIT 10000`,
    preemptions: `SELECT job, attempt, beneficiary, rule, epoch_ms(asked_at) FROM preemptions WHERE epoch_ms(asked_at) BETWEEN ${begin} AND ${end} ORDER BY sequence LIMIT 2000`,
    nodes: `SELECT node, type, epoch_ms(time) FROM events WHERE type IN (${[...Object.keys(CLOSES), ...OPENS].map((each) => `'${each}'`).join(", ")}) AND epoch_ms(time) < ${end} ORDER BY sequence, idx LIMIT 10000`,
  };
}

/** @param {any[][]} runs @param {any[][]} nodeEvents @param {string[]} nodes every node that is to have a row @param {number} to what still goes on ends here @returns {Row[]} */
export function rowsOf(runs, nodeEvents, nodes, to) {
  /** @type {Map<string, Row>} */
  const rows = new Map(nodes.map((node) => [node, { node, lanes: 8, bars: [], closed: [] }]));
  const row = (/** @type {string} */ node) => {
    let found = rows.get(node);
    if (!found) rows.set(node, (found = { node, lanes: 8, bars: [], closed: [] }));
    return found;
  };
  for (const [job, attempt, name, user, queue, outcome, begin, end, on, gpus] of runs) {
    const each = Math.max(1, Math.round((gpus ?? 1) / Math.max(1, on.length)));
    for (const node of on) row(node).bars.push({ job, attempt, name, user, queue, outcome, begin, end: end ?? to, open: end === null, lane: 0, lanes: each });
  }
  for (const [node, type, at] of nodeEvents) {
    const { closed } = row(node);
    const last = closed[closed.length - 1];
    const goesOn = last && last.end === Infinity;
    if (goesOn) last.end = at;
    const what = CLOSES[/** @type {keyof typeof CLOSES} */ (type)];
    if (what) closed.push({ begin: at, end: Infinity, what });
  }
  for (const each of rows.values()) {
    stack(each);
    for (const gap of each.closed) gap.end = Math.min(gap.end, to);
  }
  return [...rows.values()].sort((a, b) => (a.node < b.node ? -1 : 1));
}

/** Give each bar as many lanes as it has GPUs, beside those that run at the same time. @param {Row} row */
function stack(row) {
  /** End of the newest bar on each lane. @type {number[]} */
  const ends = new Array(row.lanes).fill(-Infinity);
  for (const bar of row.bars) {
    let lane = 0;
    while (lane < ends.length && !ends.slice(lane, lane + bar.lanes).every((end) => end <= bar.begin)) lane += 1;
    // More at once than the row has lanes: shares of one GPU lie over each other, in the last lanes.
    if (lane + bar.lanes > ends.length) lane = Math.max(0, Math.min(lane, ends.length - bar.lanes));
    bar.lane = lane;
    for (let at = lane; at < Math.min(ends.length, lane + bar.lanes); at += 1) ends[at] = Math.max(ends[at], bar.end);
  }
}
