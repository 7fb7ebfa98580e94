// Pixels of the map: every GPU as a square of its colour, written into a buffer line by line. Pure: a frame costs the same however
// much of the map has changed, a few ms for 14,000 GPUs.
import { CELL } from "./cluster_layout.js";

/** From this size of a square on, in px, there is a gap between two. */
const GAP_FROM_PX = 2.2;
/** From this size on a square has a cross, a ring, and is divided among those who hold parts of it. */
export const DETAIL_PX = 6;

/**
 * What is drawn, one in each place for each GPU, in the order of the layout.
 * @typedef {{colour: Uint32Array, marks: Uint8Array, parts: Map<number, {part: number, colour: number}[]>}} Look
 * marks: 1: a ring, 2: a cross. parts: of GPUs that are divided, from left to right; what is left has the GPU's own colour.
 * @typedef {{scale: number, x: number, y: number}} View scale in pixels of the buffer
 */
export const RING = 1;
export const CROSS = 2;

/**
 * @param {Uint32Array} pixels
 * @param {number} width
 * @param {number} height
 * @param {import("./cluster_layout.js").Layout} layout
 * @param {Look} look
 * @param {View} view
 * @param {{ground: number, ring: number}} colours
 */
export function paint(pixels, width, height, layout, look, view, colours) {
  pixels.fill(colours.ground);
  const { scale, x, y } = view;
  const cell = CELL * scale;
  const gap = cell >= GAP_FROM_PX ? Math.max(1, Math.round(cell / 12)) : 0;
  const tall = Math.max(1, Math.round(cell) - gap);
  let first = 0;
  for (const rack of layout.racks) {
    const from = first;
    first += rack.gpus;
    const left = (rack.x - x) * scale;
    const top = (rack.y - y) * scale;
    if (left >= width || top >= height || left + rack.width * scale < 0 || top + rack.height * scale < 0) continue;
    let gpu = from;
    for (const placed of rack.nodes) {
      const begin = gpu;
      gpu += placed.node.gpus.length;
      const row = Math.round((placed.y - y) * scale);
      const above = Math.max(0, row);
      const below = Math.min(height, row + tall);
      if (above >= below) continue;
      const line = above * width;
      let marked = false;
      let nearest = width;
      let farthest = 0;
      for (let each = begin; each < gpu; each += 1) {
        if (look.marks[each] || look.parts.has(each)) marked = true;
        const start = Math.max(0, Math.round(left + (each - begin) * cell));
        const end = Math.min(width, Math.max(start + 1, Math.round(left + (each - begin + 1) * cell) - gap));
        if (start >= width || end <= 0 || start >= end) continue;
        pixels.fill(look.colour[each], line + start, line + end);
        if (start < nearest) nearest = start;
        if (end > farthest) farthest = end;
      }
      for (let each = above + 1; each < below; each += 1) pixels.copyWithin(each * width + nearest, line + nearest, line + farthest);
      if (!marked) continue;
      for (let each = begin; each < gpu; each += 1) {
        const start = Math.round(left + (each - begin) * cell);
        const end = Math.max(start + 1, Math.round(left + (each - begin + 1) * cell) - gap);
        const box = { pixels, width, height, start, end, row, below: row + tall };
        if (cell >= DETAIL_PX) divide(box, look.parts.get(each));
        mark(box, look.marks[each], colours.ring, cell >= DETAIL_PX);
      }
    }
  }
}

/** @typedef {{pixels: Uint32Array, width: number, height: number, start: number, end: number, row: number, below: number}} Box */

/** @param {Box} box @param {number} x @param {number} y @param {number} colour */
function dot({ pixels, width, height }, x, y, colour) {
  if (x >= 0 && x < width && y >= 0 && y < height) pixels[y * width + x] = colour;
}

/** @param {Box} box @param {{part: number, colour: number}[] | undefined} parts */
function divide(box, parts) {
  if (!parts) return;
  let done = 0;
  for (const { part, colour } of parts) {
    const from = box.start + Math.round(done * (box.end - box.start));
    done = Math.min(1, done + part);
    const to = box.start + Math.round(done * (box.end - box.start));
    for (let y = box.row; y < box.below; y += 1) for (let x = from; x < to; x += 1) dot(box, x, y, colour);
  }
}

/** @param {Box} box @param {number} marks @param {number} colour @param {boolean} detailed */
function mark(box, marks, colour, detailed) {
  const { start, end, row, below } = box;
  if (marks & CROSS && detailed) {
    const size = Math.min(end - start, below - row);
    for (let step = 0; step < size; step += 1) {
      dot(box, start + step, row + step, colour);
      dot(box, start + size - 1 - step, row + step, colour);
    }
  }
  if (!(marks & RING)) return;
  const thick = detailed ? 2 : 1;
  for (let step = 0; step < thick; step += 1) {
    for (let x = start; x < end; x += 1) {
      dot(box, x, row + step, colour);
      dot(box, x, below - 1 - step, colour);
    }
    for (let y = row; y < below; y += 1) {
      dot(box, start + step, y, colour);
      dot(box, end - 1 - step, y, colour);
    }
  }
}
