// The frame of every page: top bar with search, rail, page, time bar; and the keys that work everywhere.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { go, href, moment, place } from "../lib/location.js";
import { useStore } from "../lib/store.js";
import { Staleness } from "./notices.js";
import { TimeBar } from "./time_bar.js";

/** @typedef {{path: string, word: string, glyph: string, key: string}} Entry */

/** @type {Entry[]} */
export const ENTRIES = [
  { path: "/map", word: "Map", glyph: "▦", key: "m" },
  { path: "/queues", word: "Queues", glyph: "≡", key: "q" },
  { path: "/pending", word: "Pending", glyph: "◌", key: "p" },
  { path: "/jobs", word: "Jobs", glyph: "▸", key: "j" },
  { path: "/gantt", word: "Gantt", glyph: "▤", key: "g" },
  { path: "/nodes", word: "Nodes", glyph: "▢", key: "n" },
  { path: "/idle", word: "Idle", glyph: "☾", key: "i" },
  { path: "/usage", word: "Usage", glyph: "Σ", key: "u" },
  { path: "/sql", word: "SQL", glyph: "›", key: "s" },
  { path: "/access", word: "Access", glyph: "@", key: "a" },
  { path: "/admin", word: "Admin", glyph: "⚙", key: "d" },
  { path: "/submit", word: "Submit", glyph: "+", key: "c" },
];

/** Where a search leads: "j 812", "n gpu-7", "q research/vision", a page's word, or anything as a job's id or name. @param {string} text */
export function target(text) {
  const found = text.trim().match(/^([jnq])\s+(\S+)$/);
  if (found) {
    const [, kind, name] = found;
    if (kind === "j") return href(`/jobs/${encodeURIComponent(name)}`);
    if (kind === "n") return href(`/nodes/${encodeURIComponent(name)}`);
    return href("/jobs", { queue: name });
  }
  const word = text.trim().toLowerCase();
  const page = ENTRIES.find((each) => each.word.toLowerCase() === word);
  if (page) return href(page.path);
  return /^\d+(\.\d+)?$/.test(word) ? href(`/jobs/${word}`) : href("/jobs", { name: text.trim() });
}

/** @param {KeyboardEvent} event */
function inField(event) {
  return event.target instanceof Element && Boolean(event.target.closest("input, textarea, select"));
}

/** @param {{person: string, children: any}} props */
export function Frame({ person, children }) {
  const { path } = useStore(place);
  const search = useRef(/** @type {HTMLInputElement | null} */ (null));
  const keys = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [text, setText] = useState("");

  useEffect(() => {
    let going = 0;
    /** @param {KeyboardEvent} event */
    const press = (event) => {
      if (inField(event) || event.ctrlKey || event.metaKey || event.altKey) return;
      const entry = ENTRIES.find((each) => each.key === event.key);
      if (performance.now() - going < 1200 && entry) {
        going = 0;
        event.preventDefault();
        go(href(entry.path));
      } else if (event.key === "g") going = performance.now();
      else if (event.key === "/") {
        event.preventDefault();
        search.current?.focus();
      } else if (event.key === "?") keys.current?.showModal();
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);

  return html`<div id="app" class=${moment() ? "past" : ""}>
    <header class="top">
      <a class="skip" href="#main">To the page</a>
      <a class="brand" href=${href("/map")}>Fairlead</a>
      <form role="search" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); if (text.trim()) go(target(text)); setText(""); search.current?.blur(); }}>
        <input ref=${search} aria-label="Search" placeholder="Search ( / ): j 812, n gpu-7, q research" value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} />
      </form>
      <span class="spring"></span>
      <button onClick=${() => keys.current?.showModal()} title="Keys ( ? )">?</button>
      <span class="quiet">${person}</span>
    </header>
    <nav class="rail" aria-label="Pages">
      ${ENTRIES.map((each) => html`<a href=${href(each.path)} aria-current=${path === each.path || path.startsWith(`${each.path}/`) || (path === "/" && each.path === "/map") ? "page" : undefined}><span class="glyph" aria-hidden="true">${each.glyph}</span>${each.word}</a>`)}
    </nav>
    <main id="main" tabindex="-1">
      <${Staleness} />
      ${children}
    </main>
    <${TimeBar} />
    <dialog ref=${keys} aria-label="Keys">
      <h2>Keys</h2>
      <dl>
        <dt>/</dt><dd>search</dd>
        <dt>?</dt><dd>this list</dd>
        ${ENTRIES.map((each) => html`<dt>g ${each.key}</dt><dd>${each.word}</dd>`)}
      </dl>
      <form method="dialog"><button>Close</button></form>
    </dialog>
  </div>`;
}
