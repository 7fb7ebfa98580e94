// What stands above a page: a refusal, an answer that does not come, a page that is old.
import { html } from "../lib/html.js";
import { clock } from "../lib/format.js";
import { link } from "../lib/live.js";
import { moment } from "../lib/location.js";
import { useStore } from "../lib/store.js";

/** @param {{of: import("../lib/resource.js").Resource}} props */
export function Problem({ of }) {
  const error = of.error;
  if (!error) return null;
  if (error.status === 401) return html`<div class="notice error" role="alert">${error.message} <a href=${error.hint} data-whole>Sign in</a></div>`;
  return html`<div class="notice error" role="alert">
    ${error.message}${error.hint ? html` <span class="quiet">(${error.hint})</span>` : ""} <button onClick=${of.again}>Try again</button>
  </div>`;
}

/** Since when the page hears nothing; nothing while it does. */
export function Staleness() {
  const state = useStore(link);
  if (moment() || state.connected || Date.now() - state.since < 3000) return null;
  return html`<div class="notice" role="status">Nothing heard from the gateway since ${clock(new Date(state.since).toISOString())}; this page is as of then. It connects again by itself.</div>`;
}
