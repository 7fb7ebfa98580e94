// A state as shape and word: hollow waits, solid runs, a check or a cross has ended.
import { html } from "../lib/html.js";

const SHAPES = {
  hollow: html`<circle cx="5" cy="5" r="4" fill="none" stroke="currentColor" stroke-width="2" />`,
  solid: html`<circle cx="5" cy="5" r="5" fill="currentColor" />`,
  check: html`<path d="M1 5l3 3 5-6" fill="none" stroke="currentColor" stroke-width="2" />`,
  cross: html`<path d="M1 1l8 8M9 1l-8 8" stroke="currentColor" stroke-width="2" />`,
  bars: html`<path d="M2 0v10M5 0v10M8 0v10" stroke="currentColor" stroke-width="2" />`,
  square: html`<rect width="10" height="10" fill="currentColor" />`,
};

/** @type {Record<string, keyof typeof SHAPES>} */
const SHAPE_OF = {
  scheduled: "hollow",
  queued: "hollow",
  offered: "hollow",
  held: "bars",
  placed: "solid",
  running: "solid",
  stopping: "square",
  succeeded: "check",
  failed: "cross",
  cancelled: "bars",
  ready: "check",
  suspect: "hollow",
  silent: "cross",
  cordoned: "bars",
  draining: "square",
  drained: "bars",
  quarantined: "cross",
  lost: "cross",
};

/** @param {{state: string}} props */
export function Mark({ state }) {
  return html`<span class=${`mark s-${state}`}><svg viewBox="0 0 10 10" aria-hidden="true">${SHAPES[SHAPE_OF[state] ?? "solid"]}</svg>${state}</span>`;
}
