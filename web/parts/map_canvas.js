// The map's canvas: draws, zooms, pans, and says what is under the pointer. Its table twin is in pages/map.js.
import { html, useEffect, useMemo, useRef } from "../lib/html.js";
import { CELL, at, layOut } from "../lib/cluster_layout.js";
import { pixel, token } from "../lib/colours.js";
import { CROSS, RING, paint } from "../lib/map_pixels.js";

const MARGIN_PX = 10;
/** From this size of a square on, in px, racks have names. */
const NAMES_FROM_PX = 7;

/** @typedef {import("../lib/map_model.js").Model} Model @typedef {import("../lib/map_model.js").Gpu} Gpu @typedef {import("../lib/map_model.js").Node} Node */

/**
 * @param {{model: Model, colourOf: (gpu: Gpu, node: Node) => string, partsOf: (gpu: Gpu) => {part: number, colour: string}[],
 *   chosen: (gpu: Gpu, node: Node) => boolean, onHover: (found: any) => void, onPick: (found: any) => void, label: string}} props
 */
export function MapCanvas({ model, colourOf, partsOf, chosen, onHover, onPick, label }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const view = useRef({ scale: 0, x: 0, y: 0 });
  const layout = useMemo(() => layOut(model.nodes, 1.7), [model.shape]);
  const look = useRef(/** @type {any} */ ({}));
  look.current = useMemo(() => looked(look.current, layout, model, colourOf, partsOf, chosen), [layout, model, colourOf, partsOf, chosen]);

  const image = useRef(/** @type {ImageData | null} */ (null));
  const draw = useRef(() => {});
  draw.current = () => {
    const surface = canvas.current;
    if (!surface) return;
    const ratio = window.devicePixelRatio || 1;
    const width = surface.clientWidth;
    const height = surface.clientHeight;
    const [wide, tall] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (!wide || !tall) return;
    if (surface.width !== wide || surface.height !== tall) {
      surface.width = wide;
      surface.height = tall;
    }
    if (!view.current.scale) view.current = fitted(layout, width, height);
    const { scale, x, y } = view.current;
    const to = /** @type {CanvasRenderingContext2D} */ (surface.getContext("2d"));
    if (image.current?.width !== wide || image.current?.height !== tall) image.current = to.createImageData(wide, tall);
    const pixels = new Uint32Array(image.current.data.buffer);
    paint(pixels, wide, tall, layout, look.current, { scale: scale * ratio, x, y }, look.current.ground);
    to.putImageData(image.current, 0, 0);
    if (CELL * scale <= NAMES_FROM_PX) return;
    to.setTransform(ratio, 0, 0, ratio, 0, 0);
    to.fillStyle = look.current.text;
    to.font = "10px system-ui";
    for (const rack of layout.racks) {
      const left = (rack.x - x) * scale;
      const top = (rack.y - y) * scale;
      if (!rack.name || left > width || top > height || left + rack.width * scale < 0 || top + 12 * scale < 0) continue;
      to.fillText(rack.name, left, top + 9 * Math.min(1, scale), Math.max(20, rack.width * scale));
    }
    to.setTransform(1, 0, 0, 1, 0, 0);
  };

  useEffect(() => {
    let frame = 0;
    const soon = () => {
      if (!frame) frame = requestAnimationFrame(() => { frame = 0; draw.current(); });
    };
    const surface = /** @type {HTMLCanvasElement} */ (canvas.current);
    const resized = new ResizeObserver(soon);
    resized.observe(surface);
    const spot = (/** @type {MouseEvent} */ event) => {
      const box = surface.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    };
    const under = (/** @type {MouseEvent} */ event) => {
      const { x, y } = spot(event);
      return at(layout, view.current.x + x / view.current.scale, view.current.y + y / view.current.scale);
    };
    let drag = /** @type {{x: number, y: number, moved: boolean} | null} */ (null);
    const handlers = {
      /** @param {WheelEvent} event */
      wheel: (event) => {
        event.preventDefault();
        const { x, y } = spot(event);
        zoom(view.current, Math.exp(-event.deltaY / 400), x, y);
        soon();
      },
      /** @param {PointerEvent} event */
      pointerdown: (event) => {
        drag = { ...spot(event), moved: false };
        surface.setPointerCapture(event.pointerId);
      },
      /** @param {PointerEvent} event */
      pointermove: (event) => {
        const now = spot(event);
        if (!drag) return onHover(under(event));
        if (Math.abs(now.x - drag.x) + Math.abs(now.y - drag.y) < 3 && !drag.moved) return undefined;
        view.current.x -= (now.x - drag.x) / view.current.scale;
        view.current.y -= (now.y - drag.y) / view.current.scale;
        drag = { ...now, moved: true };
        return soon();
      },
      /** @param {PointerEvent} event */
      pointerup: (event) => {
        if (drag && !drag.moved) onPick(under(event));
        drag = null;
      },
      pointerleave: () => onHover(null),
      /** @param {KeyboardEvent} event */
      keydown: (event) => {
        const step = 60 / view.current.scale;
        const box = surface.getBoundingClientRect();
        if (event.key === "ArrowLeft") view.current.x -= step;
        else if (event.key === "ArrowRight") view.current.x += step;
        else if (event.key === "ArrowUp") view.current.y -= step;
        else if (event.key === "ArrowDown") view.current.y += step;
        else if (event.key === "+" || event.key === "=") zoom(view.current, 1.25, box.width / 2, box.height / 2);
        else if (event.key === "-") zoom(view.current, 0.8, box.width / 2, box.height / 2);
        else if (event.key === "0") view.current = { scale: 0, x: 0, y: 0 };
        else return;
        event.preventDefault();
        soon();
      },
    };
    for (const [name, handler] of Object.entries(handlers)) surface.addEventListener(name, /** @type {any} */ (handler), { passive: false });
    soon();
    return () => {
      cancelAnimationFrame(frame);
      resized.disconnect();
      for (const [name, handler] of Object.entries(handlers)) surface.removeEventListener(name, /** @type {any} */ (handler));
    };
  }, [layout, onHover, onPick]);

  useEffect(() => draw.current());
  return html`<canvas ref=${canvas} tabindex="0" role="img" aria-label=${label}></canvas>`;
}

/** The view in which all is seen, with a margin. @param {import("../lib/cluster_layout.js").Layout} layout @param {number} width @param {number} height */
function fitted(layout, width, height) {
  const scale = Math.min((width - 2 * MARGIN_PX) / layout.width, (height - 2 * MARGIN_PX) / layout.height, 2.4);
  return { scale, x: -MARGIN_PX / scale, y: -MARGIN_PX / scale };
}

/** Zoom so that what is at a point of the canvas stays there. @param {{scale: number, x: number, y: number}} view @param {number} factor @param {number} x @param {number} y */
function zoom(view, factor, x, y) {
  const scale = Math.min(8, Math.max(0.05, view.scale * factor));
  view.x += x / view.scale - x / scale;
  view.y += y / view.scale - y / scale;
  view.scale = scale;
}

/**
 * What is to be drawn. Colours of nodes that have not changed are kept, as long as all else is the same.
 * @param {any} before @param {import("../lib/cluster_layout.js").Layout} layout @param {Model} model @param {(gpu: Gpu, node: Node) => string} colourOf
 * @param {(gpu: Gpu) => {part: number, colour: string}[]} partsOf @param {(gpu: Gpu, node: Node) => boolean} chosen
 */
function looked(before, layout, model, colourOf, partsOf, chosen) {
  const same = before.layout === layout && before.colourOf === colourOf && before.chosen === chosen && model.changed && before.model.cursor === model.since;
  const total = layout.racks.reduce((sum, rack) => sum + rack.gpus, 0);
  const colour = same ? before.colour : new Uint32Array(total);
  const marks = same ? before.marks : new Uint8Array(total);
  /** @type {Map<number, {part: number, colour: number}[]>} */
  const parts = same ? before.parts : new Map();
  let place = 0;
  for (const rack of layout.racks) {
    for (const { node } of rack.nodes) {
      if (same && !model.changed?.has(node)) {
        place += node.gpus.length;
        continue;
      }
      for (const gpu of node.gpus) {
        colour[place] = pixel(colourOf(gpu, node));
        marks[place] = (chosen(gpu, node) ? RING : 0) | (gpu.state === "unhealthy" || gpu.fault ? CROSS : 0);
        const divided = partsOf(gpu);
        if (divided.length) parts.set(place, divided.map((each) => ({ part: each.part, colour: pixel(each.colour) })));
        else if (same) parts.delete(place);
        place += 1;
      }
    }
  }
  return { layout, model, colourOf, chosen, colour, marks, parts, ground: { ground: pixel(token("panel")), ring: pixel(token("text")) }, text: token("text-2") };
}
