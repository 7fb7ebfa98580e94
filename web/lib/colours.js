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
