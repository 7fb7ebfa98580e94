// Ids are links, everywhere the same.
import { html } from "../lib/html.js";
import { href } from "../lib/location.js";

/** @param {{id: string}} props */
export function JobLink({ id }) {
  return html`<a class="mono" href=${href(`/jobs/${encodeURIComponent(id)}`)}>${id}</a>`;
}

/** @param {{id: string}} props */
export function NodeLink({ id }) {
  return html`<a class="mono" href=${href(`/nodes/${encodeURIComponent(id)}`)}>${id}</a>`;
}

/** @param {{path: string}} props */
export function QueueLink({ path }) {
  return html`<a class="mono" href=${href("/jobs", { queue: path })}>${path}</a>`;
}
