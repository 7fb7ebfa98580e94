// The map's canvas: draws, zooms, pans, and says what is under the pointer. Its table twin is in pages/map.js.
import { html, useEffect, useMemo, useRef } from "../lib/html.js";
import { CELL, at, layOut } from "../lib/cluster_layout.js";
import { token } from "../lib/colours.js";

/** From this size of a GPU on, in px, there is a gap between two; below it a node is one bar. */
const DETAIL_PX = 2.2;
const MARGIN_PX = 10;

/**
 * @param {{nodes: any[], colourOf: (gpu: any, node: any) => string, chosen: (gpu: any, node: any) => boolean,
 *   onHover: (found: any) => void, onPick: (found: any) => void, label: string}} props
 */
export function MapCanvas({ nodes, colourOf, chosen, onHover, onPick, label }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const view = useRef({ scale: 0, x: 0, y: 0 });
  const layout = useMemo(() => layOut(nodes, 1.7), [nodes]);

  const draw = useRef(() => {});
  draw.current = () => {
    const surface = canvas.current;
    if (!surface) return;
    const ratio = window.devicePixelRatio || 1;
    const width = surface.clientWidth;
    const height = surface.clientHeight;
    if (surface.width !== width * ratio || surface.height !== height * ratio) {
      surface.width = width * ratio;
      surface.height = height * ratio;
    }
    if (!view.current.scale) view.current = fitted(layout, width, height);
    const { scale, x, y } = view.current;
    const to = /** @type {CanvasRenderingContext2D} */ (surface.getContext("2d"));
    to.setTransform(ratio, 0, 0, ratio, 0, 0);
    to.clearRect(0, 0, width, height);
    const cell = CELL * scale;
    const gap = cell > 6 ? 1 : cell > DETAIL_PX ? 0.5 : 0;
    const text = token("text-2");
    const ring = token("text");
    to.font = "10px system-ui";
    for (const rack of layout.racks) {
      const left = (rack.x - x) * scale;
      const top = (rack.y - y) * scale;
      if (left > width || top > height || left + rack.width * scale < 0 || top + rack.height * scale < 0) continue;
      if (rack.name && cell > 7) {
        to.fillStyle = text;
        to.fillText(rack.name, left, top + 9 * Math.min(1, scale), Math.max(20, rack.width * scale));
      }
      for (const placed of rack.nodes) {
        const row = (placed.y - y) * scale;
        if (row > height || row + cell < 0) continue;
        placed.node.gpus.forEach((/** @type {any} */ gpu, /** @type {number} */ index) => {
          const from = left + index * cell;
          to.fillStyle = colourOf(gpu, placed.node);
          to.fillRect(from, row, Math.max(0.6, cell - gap), Math.max(0.6, cell - gap));
          if (gpu.state === "unhealthy" && cell > 6) cross(to, from, row, cell - gap, ring);
          if (chosen(gpu, placed.node)) {
            to.strokeStyle = ring;
            to.lineWidth = 2;
            to.strokeRect(from + 0.5, row + 0.5, Math.max(1, cell - gap - 1), Math.max(1, cell - gap - 1));
          }
        });
      }
    }
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

/** @param {CanvasRenderingContext2D} to @param {number} x @param {number} y @param {number} size @param {string} colour */
function cross(to, x, y, size, colour) {
  to.strokeStyle = colour;
  to.lineWidth = 1;
  to.beginPath();
  to.moveTo(x, y);
  to.lineTo(x + size, y + size);
  to.moveTo(x + size, y);
  to.lineTo(x, y + size);
  to.stroke();
}
