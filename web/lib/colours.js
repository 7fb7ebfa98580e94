// Colours of the map and the Gantt: categories by a stable hash, amounts on one scale of one hue.
import { hash } from "./format.js";

export const CATEGORIES = 12;

/** One of 12 colours of equal lightness, always the same for the same text. @param {string} text */
export function category(text) {
  return `oklch(0.66 0.13 ${Math.round((360 * (hash(text) % CATEGORIES)) / CATEGORIES)})`;
}

/** A step of the scale for amounts, 0 to 1. @param {number} part */
export function amount(part) {
  const step = Math.round(Math.min(1, Math.max(0, part)) * 8) / 8;
  return `oklch(${0.92 - 0.5 * step} ${0.03 + 0.13 * step} 250)`;
}

/** A colour by its name in tokens.css. @param {string} name */
export function token(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** {colour of CSS: its bytes as pixels of a canvas have them} */
const bytes = new Map();

/** A colour of CSS as one pixel of a canvas. @param {string} colour @returns {number} */
export function pixel(colour) {
  let found = bytes.get(colour);
  if (found === undefined) {
    const to = /** @type {CanvasRenderingContext2D} */ (Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true }));
    to.fillStyle = colour;
    to.fillRect(0, 0, 1, 1);
    found = new Uint32Array(to.getImageData(0, 0, 1, 1).data.buffer)[0];
    bytes.set(colour, found);
  }
  return found;
}
