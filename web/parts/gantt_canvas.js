// The Gantt's canvas: bars over time, hatched where nodes were closed, arrows from victims to causes. Wheel zooms, drag pans.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { token } from "../lib/colours.js";

const LEFT = 110;
const TOP = 22;
const MARKS_MAX = 4000;

/**
 * @typedef {{from: number, to: number}} Span
 * @param {{rows: import("../lib/gantt_rows.js").Row[], preemptions: any[][], span: Span, colourOf: (bar: any) => string, onSpan: (span: Span) => void, onPick: (bar: any) => void, onMoment: (ms: number) => void, label: string}} props
 */
export function GanttCanvas({ rows, preemptions, span, colourOf, onSpan, onPick, onMoment, label }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const shift = useRef(0);
  const spots = useRef(/** @type {{x: number, y: number, width: number, height: number, bar: any, node: string}[]} */ ([]));
  const [hover, setHover] = useState(/** @type {any} */ (null));
  const high = Math.max(6, Math.min(26, Math.floor((window.innerHeight * 0.6 - TOP) / Math.max(1, rows.length))));
  const live = useRef(span);
  live.current = span;

  const draw = () => {
    const surface = canvas.current;
    if (!surface) return;
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [surface.clientWidth, surface.clientHeight];
    surface.width = width * ratio;
    surface.height = height * ratio;
    const to = /** @type {CanvasRenderingContext2D} */ (surface.getContext("2d"));
    to.setTransform(ratio, 0, 0, ratio, 0, 0);
    const { from, to: until } = live.current;
    const x = (/** @type {number} */ time) => LEFT + ((time - from) / (until - from)) * (width - LEFT);
    const [text, line] = [token("text-2"), token("line")];
    const hatch = hatched(to, token("held"));
    to.font = "10px system-ui";
    for (const tick of ticks(from, until)) {
      to.fillStyle = line;
      to.fillRect(x(tick), TOP - 6, 1, height);
      to.fillStyle = text;
      to.fillText(new Date(tick).toLocaleString("en-GB", until - from > 172_800_000 ? { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit" } : { hour: "2-digit", minute: "2-digit", second: until - from < 600_000 ? "2-digit" : undefined }), x(tick) + 3, 12);
    }
    spots.current = [];
    let marks = 0;
    rows.forEach((row, index) => {
      const y = TOP + index * high - shift.current;
      if (y + high < TOP || y > height) return;
      if (high >= 9 || index % Math.ceil(10 / high) === 0) {
        to.fillStyle = text;
        to.fillText(row.node, 4, y + Math.min(high, 10), LEFT - 8);
      }
      for (const gap of row.closed) {
        if (gap.end < from || gap.begin > until) continue;
        to.fillStyle = hatch;
        to.fillRect(Math.max(LEFT, x(gap.begin)), y, Math.min(width, x(gap.end)) - Math.max(LEFT, x(gap.begin)), high - 1);
      }
      for (const bar of row.bars) {
        if (bar.end < from || bar.begin > until || marks >= MARKS_MAX) continue;
        const left = Math.max(LEFT, x(bar.begin));
        const wide = Math.min(width, x(bar.end)) - left;
        if (wide < 0.3) continue;
        marks += 1;
        const one = (high - 2) / row.lanes;
        const spot = { x: left, y: y + bar.lane * one, width: Math.max(1, wide), height: Math.max(1, bar.lanes * one - (one > 2 ? 0.5 : 0)), bar, node: row.node };
        to.fillStyle = colourOf(bar);
        to.fillRect(spot.x, spot.y, spot.width, spot.height);
        if (bar.outcome && !["exited", "succeeded", ""].includes(bar.outcome) && spot.width > 6) {
          to.fillStyle = token("failed");
          to.fillRect(spot.x + spot.width - 2, spot.y, 2, spot.height);
        }
        spots.current.push(spot);
      }
    });
    if (hover) arrows(to, preemptions, spots.current, hover.bar.job, x);
  };

  useEffect(() => {
    draw();
    const resized = new ResizeObserver(draw);
    if (canvas.current) resized.observe(canvas.current);
    return () => resized.disconnect();
  });

  useEffect(() => {
    const surface = /** @type {HTMLCanvasElement} */ (canvas.current);
    const spot = (/** @type {MouseEvent} */ event) => {
      const box = surface.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top, width: box.width };
    };
    const under = (/** @type {MouseEvent} */ event) => {
      const { x, y } = spot(event);
      return spots.current.findLast((each) => x >= each.x && x <= each.x + each.width && y >= each.y && y <= each.y + each.height) ?? null;
    };
    const time = (/** @type {{x: number, width: number}} */ at) => live.current.from + (Math.max(0, at.x - LEFT) / (at.width - LEFT)) * (live.current.to - live.current.from);
    let drag = /** @type {{x: number, y: number, moved: boolean} | null} */ (null);
    const scale = (/** @type {number} */ factor, /** @type {number} */ centre) => onSpan({ from: centre - (centre - live.current.from) * factor, to: centre + (live.current.to - centre) * factor });
    const handlers = {
      /** @param {WheelEvent} event */
      wheel: (event) => {
        event.preventDefault();
        scale(Math.exp(event.deltaY / 400), time(spot(event)));
      },
      /** @param {PointerEvent} event */
      pointerdown: (event) => {
        drag = { ...spot(event), moved: false };
        surface.setPointerCapture(event.pointerId);
      },
      /** @param {PointerEvent} event */
      pointermove: (event) => {
        const now = spot(event);
        if (!drag) return setHover(under(event));
        if (!drag.moved && Math.abs(now.x - drag.x) + Math.abs(now.y - drag.y) < 3) return undefined;
        const moved = ((now.x - drag.x) / (now.width - LEFT)) * (live.current.to - live.current.from);
        shift.current = Math.max(0, Math.min(shift.current - (now.y - drag.y), rows.length * high - 60));
        drag = { ...now, moved: true };
        return onSpan({ from: live.current.from - moved, to: live.current.to - moved });
      },
      /** @param {PointerEvent} event */
      pointerup: (event) => {
        if (drag && !drag.moved) {
          const found = under(event);
          if (found) onPick(found.bar);
        }
        drag = null;
      },
      pointerleave: () => setHover(null),
      /** @param {MouseEvent} event */
      dblclick: (event) => onMoment(time(spot(event))),
      /** @param {KeyboardEvent} event */
      keydown: (event) => {
        const { from, to } = live.current;
        const step = (to - from) / 8;
        if (event.key === "ArrowLeft") onSpan({ from: from - step, to: to - step });
        else if (event.key === "ArrowRight") onSpan({ from: from + step, to: to + step });
        else if (event.key === "ArrowDown") shift.current += high * 4;
        else if (event.key === "ArrowUp") shift.current = Math.max(0, shift.current - high * 4);
        else if (event.key === "+" || event.key === "=") scale(0.7, (from + to) / 2);
        else if (event.key === "-") scale(1.4, (from + to) / 2);
        else if (event.key === "Enter") onMoment((from + to) / 2);
        else return;
        event.preventDefault();
        setHover(null);
      },
    };
    for (const [name, handler] of Object.entries(handlers)) surface.addEventListener(name, /** @type {any} */ (handler), { passive: false });
    return () => {
      for (const [name, handler] of Object.entries(handlers)) surface.removeEventListener(name, /** @type {any} */ (handler));
    };
  }, [rows, high, onSpan, onPick, onMoment]);

  const height = Math.min(Math.max(120, TOP + rows.length * high + 8), Math.round(window.innerHeight * 0.66));
  return html`<canvas class="gantt" ref=${canvas} style=${{ height: `${height}px` }} tabindex="0" role="img" aria-label=${label}></canvas>
    <p class="quiet">${hover ? `job ${hover.bar.job} "${hover.bar.name}" of ${hover.bar.user} in ${hover.bar.queue}, attempt ${hover.bar.attempt} on ${hover.node}: ${new Date(hover.bar.begin).toLocaleTimeString("en-GB")} to ${hover.bar.open ? "now" : new Date(hover.bar.end).toLocaleTimeString("en-GB")}${hover.bar.outcome ? `, ${hover.bar.outcome}` : ""}` : "Wheel zooms, drag pans, a click opens the job, a double click goes to that moment."}</p>`;
}

/** Round times to write along the top. @param {number} from @param {number} to */
function ticks(from, to) {
  const steps = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10_800, 21_600, 43_200, 86_400, 604_800].map((each) => each * 1000);
  const step = steps.find((each) => (to - from) / each <= 9) ?? steps[steps.length - 1];
  const zone = new Date(from).getTimezoneOffset() * 60_000;
  const found = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at < to && found.length < 40; at += step) found.push(at);
  return found;
}

/** @param {CanvasRenderingContext2D} to @param {string} colour */
function hatched(to, colour) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const on = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
  on.strokeStyle = colour;
  on.beginPath();
  on.moveTo(0, 6);
  on.lineTo(6, 0);
  on.stroke();
  return /** @type {CanvasPattern} */ (to.createPattern(tile, "repeat"));
}

/** Arrows of the preemptions that a job is a part of. @param {CanvasRenderingContext2D} to @param {any[][]} preemptions @param {any[]} spots @param {string} job @param {(time: number) => number} x */
function arrows(to, preemptions, spots, job, x) {
  to.strokeStyle = token("preempted");
  to.lineWidth = 1.5;
  for (const [victim, attempt, cause, , at] of preemptions) {
    if (victim !== job && cause !== job) continue;
    const from = spots.find((each) => each.bar.job === victim && each.bar.attempt === attempt);
    const until = spots.find((each) => each.bar.job === cause);
    if (!from || !until) continue;
    const [y, target] = [from.y + from.height / 2, until.y + until.height / 2];
    to.beginPath();
    to.moveTo(x(at), y);
    to.lineTo(until.x, target);
    to.lineTo(until.x - 5, target - 4);
    to.moveTo(until.x, target);
    to.lineTo(until.x - 5, target + 4);
    to.stroke();
  }
}
