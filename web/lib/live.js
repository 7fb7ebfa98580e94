// The page's one stream: says that the log has gone on, how long to wait between two requests, and since when nothing is heard.
import { Store } from "./store.js";

/** @typedef {{connected: boolean, since: number}} LinkState */

export const link = new Store(/** @type {LinkState} */ ({ connected: false, since: Date.now() }));
/** Newest sequence that was heard of. @type {Store<number>} */
export const newest = new Store(0);
/** Least time between two requests for one document, as the gateway tells it: the more pages are open, the longer. @type {Store<number>} */
export const pauseMs = new Store(1000);

/** How long to wait after news before asking: a part of the pause, drawn at random, so that many pages do not ask at once. One page alone asks at once. */
export function spreadMs() {
  return Math.random() * (pauseMs.value - 1000);
}

/** @type {EventSource | null} */
let source = null;

/** Follow the log from a sequence on. @param {number} sequence */
export function follow(sequence) {
  if (source) return;
  newest.set(sequence);
  source = new EventSource("/v1/ticks?follow=1");
  source.addEventListener("open", () => link.set({ connected: true, since: Date.now() }));
  source.addEventListener("error", () => {
    if (link.value.connected) link.set({ connected: false, since: Date.now() });
    // The browser connects again by itself, unless it was refused: then a new one is tried.
    if (source?.readyState === EventSource.CLOSED) {
      source = null;
      setTimeout(() => follow(newest.value), 3000);
    }
  });
  source.addEventListener("tick", (event) => {
    const told = JSON.parse(/** @type {MessageEvent} */ (event).data);
    pauseMs.set(told.pause_ms);
    if (told.sequence > newest.value) newest.set(told.sequence);
  });
}
