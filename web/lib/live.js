// The page's one stream of events: says that something changed, and since when nothing is heard.
import { Store } from "./store.js";

/** @typedef {{connected: boolean, since: number}} LinkState */

export const link = new Store(/** @type {LinkState} */ ({ connected: false, since: Date.now() }));
/** Sequence of the newest event that was heard. @type {Store<number>} */
export const newest = new Store(0);

/** @type {EventSource | null} */
let source = null;

/** Follow the log from behind a sequence. @param {number} sequence */
export function follow(sequence) {
  if (source) return;
  newest.set(sequence);
  source = new EventSource(`/v1/events?follow=1&from=${sequence + 1}`);
  source.addEventListener("open", () => link.set({ connected: true, since: Date.now() }));
  source.addEventListener("error", () => {
    if (link.value.connected) link.set({ connected: false, since: Date.now() });
    // The browser connects again by itself, unless it was refused: then a new one is tried.
    if (source?.readyState === EventSource.CLOSED) {
      source = null;
      setTimeout(() => follow(newest.value), 3000);
    }
  });
  source.addEventListener("fairlead", (event) => {
    const told = Number.parseInt(/** @type {MessageEvent} */ (event).lastEventId, 10);
    if (told > newest.value) newest.set(told);
  });
}
