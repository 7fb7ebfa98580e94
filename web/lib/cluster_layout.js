// Where each GPU of the map is drawn, and which one is under a point. Pure: arithmetic alone.

/** Sizes in units of the map; the view scales them. */
export const CELL = 10;
const NODE_GAP = 2;
const RACK_GAP = 14;
const HEAD = 12;

/**
 * @typedef {{node: any, x: number, y: number, width: number}} PlacedNode
 * @typedef {{name: string, x: number, y: number, width: number, height: number, nodes: PlacedNode[], gpus: number}} PlacedRack
 * @typedef {{racks: PlacedRack[], width: number, height: number}} Layout
 */

/** Racks as columns of nodes, side by side in rows that fill a surface of the given aspect. @param {any[]} nodes @param {number} aspect @returns {Layout} */
export function layOut(nodes, aspect) {
  /** @type {Map<string, any[]>} */
  const byRack = new Map();
  for (const node of nodes) {
    const rack = node.domains.rack ?? "";
    const name = rack ? `${node.pool}/${rack}` : node.pool;
    const found = byRack.get(name);
    if (found) found.push(node);
    else byRack.set(name, [node]);
  }
  const racks = [...byRack].map(([name, members]) => split(name, members)).flat();
  const widest = Math.max(...racks.map((rack) => rack.width), 1);
  let best = { scale: 0, width: widest };
  for (let columns = 1; columns <= racks.length; columns = Math.ceil(columns * 1.06)) {
    const width = columns * (widest + RACK_GAP);
    const { used, height } = flow(racks, width);
    const scale = Math.min(aspect / used, 1 / height);
    if (scale > best.scale) best = { scale, width };
  }
  const { used, height } = flow(racks, best.width);
  for (const rack of racks) {
    for (const placed of rack.nodes) {
      placed.x += rack.x;
      placed.y += rack.y;
    }
  }
  return { racks, width: Math.max(1, used), height: Math.max(1, height) };
}

/** Place racks in rows of at most this width; only their own corners are moved. @param {PlacedRack[]} racks @param {number} width */
function flow(racks, width) {
  let [x, y, tall, used] = [0, 0, 0, 1];
  for (const rack of racks) {
    if (x && x + rack.width > width) {
      x = 0;
      y += tall + RACK_GAP;
      tall = 0;
    }
    rack.x = x;
    rack.y = y;
    x += rack.width + RACK_GAP;
    used = Math.max(used, x - RACK_GAP);
    tall = Math.max(tall, rack.height);
  }
  return { used, height: y + tall };
}

/** Nodes of a rack in one column; those without racks in columns of 32. @param {string} name @param {any[]} members @returns {PlacedRack[]} */
function split(name, members) {
  const columns = [];
  for (let at = 0; at < members.length; at += 32) {
    const some = members.slice(at, at + 32);
    const gpus = Math.max(1, ...some.map((node) => node.gpus.length));
    const nodes = some.map((node, row) => ({ node, x: 0, y: HEAD + row * (CELL + NODE_GAP), width: node.gpus.length * CELL }));
    columns.push({ name: at ? "" : name, x: 0, y: 0, width: gpus * CELL, height: HEAD + some.length * (CELL + NODE_GAP), nodes, gpus: some.reduce((sum, node) => sum + node.gpus.length, 0) });
  }
  return columns;
}

/** The node, and the index of its GPU, at a point of the map. @param {Layout} layout @param {number} x @param {number} y @returns {{placed: PlacedNode, gpu: number} | null} */
export function at(layout, x, y) {
  for (const rack of layout.racks) {
    if (x < rack.x || x >= rack.x + rack.width || y < rack.y || y >= rack.y + rack.height) continue;
    const row = Math.floor((y - rack.y - HEAD) / (CELL + NODE_GAP));
    const placed = rack.nodes[row];
    if (row < 0 || !placed) return null;
    const gpu = Math.floor((x - rack.x) / CELL);
    return { placed, gpu: gpu < placed.node.gpus.length ? gpu : -1 };
  }
  return null;
}
