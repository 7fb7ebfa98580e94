// A job's output: followed while it runs, searched, of one rank or all. Escape sequences are left out, never obeyed.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { Refused, request } from "../lib/api.js";
import { moment } from "../lib/location.js";

/** Lines that are kept: the newest. */
const LINES_MAX = 5000;
const TAIL = 1000;

/** Colours and other escape sequences of terminals, and control characters. */
const ESCAPES = /\u001b\[[0-?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;

/** @param {{job: any, ended: boolean}} props */
export function LogView({ job, ended }) {
  const [lines, setLines] = useState(/** @type {string[]} */ ([]));
  const [note, setNote] = useState("");
  const [rank, setRank] = useState("");
  const [text, setText] = useState("");
  const [following, setFollowing] = useState(true);
  const box = useRef(/** @type {HTMLPreElement | null} */ (null));
  const follows = !ended && !moment();

  useEffect(() => {
    const ending = new AbortController();
    setLines([]);
    setNote("");
    const query = new URLSearchParams({ tail: String(TAIL), ...(follows ? { follow: "1" } : {}), ...(rank ? { rank } : {}) });
    read(`/v1/jobs/${encodeURIComponent(job.id)}/logs?${query}`, ending.signal, setLines).catch((error) => {
      if (!ending.signal.aborted) setNote(error instanceof Refused ? error.message : String(error));
    });
    return () => ending.abort();
  }, [job.id, job.attempt, rank, follows]);

  useEffect(() => {
    if (following && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, following]);

  const found = text ? lines.filter((line) => line.toLowerCase().includes(text.toLowerCase())) : lines;
  return html`<div class="row">
      <label>Search <input value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} /></label>
      <label>Rank <input size="4" inputmode="numeric" placeholder="all" value=${rank} onChange=${(/** @type {any} */ event) => setRank(/^\d*$/.test(event.target.value) ? event.target.value : "")} /></label>
      <label><input type="checkbox" checked=${following} onChange=${(/** @type {any} */ event) => setFollowing(event.target.checked)} /> stay at the end</label>
      <span class="quiet">${text ? `${found.length} of ${lines.length} lines` : `${lines.length} lines`}</span>
    </div>
    ${note && html`<div class="notice error" role="alert">${note}</div>`}
    ${moment() && html`<p class="quiet">Output has no past: this is what exists now.</p>`}
    <pre class="log" ref=${box} tabindex="0" aria-label="Output">${found.length ? found.join("\n") : note ? "" : "no output yet"}</pre>`;
}

/** @param {string} path @param {AbortSignal} signal @param {(update: (old: string[]) => string[]) => void} show */
async function read(path, signal, show) {
  const response = await request(path, { signal, headers: { accept: "text/plain" } });
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  const decoder = new TextDecoder();
  let rest = "";
  /** @type {string[]} */
  let fresh = [];
  let timer = 0;
  // A burst of lines is drawn once per tenth of a second: a page that draws each would not answer.
  const flush = () => {
    timer = 0;
    const more = fresh;
    fresh = [];
    if (!signal.aborted) show((old) => [...old, ...more].slice(-LINES_MAX));
  };
  for (;;) {
    const { done, value } = await reader.read();
    const parts = (rest + decoder.decode(value, { stream: !done })).split("\n");
    rest = done ? "" : (parts.pop() ?? "");
    fresh.push(...parts.filter((each, index) => !done || each || index < parts.length - 1).map((line) => line.replaceAll(ESCAPES, "")));
    if (fresh.length > LINES_MAX) fresh = fresh.slice(-LINES_MAX);
    if (done) return flush();
    if (fresh.length && !timer) timer = window.setTimeout(flush, 100);
  }
}
