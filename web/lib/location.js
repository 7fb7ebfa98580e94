// The address as state: path, parameters and the moment (`?at=`). Every state of a page is in its address.
import { Store } from "./store.js";

/** @typedef {{path: string, params: URLSearchParams}} Place */

/** @returns {Place} */
function read() {
  return { path: window.location.pathname, params: new URLSearchParams(window.location.search) };
}

/** @type {Store<Place>} */
export const place = new Store(read());

window.addEventListener("popstate", () => place.set(read()));

/** The moment that is looked at: RFC 3339 or a sequence; "" is now. */
export function moment() {
  return place.value.params.get("at") ?? "";
}

/**
 * An address with the moment of this one.
 * @param {string} path
 * @param {Record<string, string>} [params]
 */
export function href(path, params = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== ""));
  if (!query.has("at") && moment()) query.set("at", moment());
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

/** @param {string} target @param {{replace?: boolean}} [how] */
export function go(target, how = {}) {
  if (how.replace) history.replaceState(null, "", target);
  else history.pushState(null, "", target);
  place.set(read());
}

/** Change parameters of the address; an empty value removes one. @param {Record<string, string>} changes */
export function setParams(changes) {
  const params = new URLSearchParams(place.value.params);
  for (const [name, value] of Object.entries(changes)) {
    if (value === "") params.delete(name);
    else params.set(name, value);
  }
  const text = params.toString();
  go(text ? `${place.value.path}?${text}` : place.value.path, { replace: !("at" in changes) });
}

/** Follow links of this site without loading the page again. */
export function interceptLinks() {
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    if (link.origin !== window.location.origin || link.hasAttribute("data-whole") || link.hash) return;
    event.preventDefault();
    go(link.pathname + link.search);
    document.querySelector("main")?.focus();
  });
}
