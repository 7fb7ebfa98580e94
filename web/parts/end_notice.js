// Notification of the browser when a job ends, for those who ask for it: per job, while one of its pages is open.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { moment } from "../lib/location.js";

const ENDED = new Set(["succeeded", "failed", "cancelled"]);
/** Where the browser keeps for which jobs its reader wants to be told. */
const KEY = "fairlead.tell";
/** Jobs that are remembered. */
const JOBS_MAX = 100;

/** @returns {string[]} */
function wanted() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter((each) => typeof each === "string") : [];
  } catch {
    return [];
  }
}

/** @param {string} job @param {boolean} on */
function remember(job, on) {
  const rest = wanted().filter((each) => each !== job);
  try {
    localStorage.setItem(KEY, JSON.stringify((on ? [...rest, job] : rest).slice(-JOBS_MAX)));
  } catch {
    // A browser that keeps nothing tells while this page is open.
  }
}

/** @param {{job: any}} props */
export function EndNotice({ job }) {
  const [on, setOn] = useState(() => wanted().includes(job.id));
  const [said, setSaid] = useState("");
  const before = useRef(job.state);

  useEffect(() => {
    const ends = ENDED.has(job.state) && !ENDED.has(before.current);
    before.current = job.state;
    if (!ends || !on || moment()) return;
    remember(job.id, false);
    setOn(false);
    const told = new Notification(`Job ${job.id} has ended: ${job.state}`, { body: job.name, tag: `fairlead-job-${job.id}` });
    told.onclick = () => window.focus();
  }, [job.state, on]);

  if (ENDED.has(job.state) || moment()) return null;
  const ask = async (/** @type {boolean} */ want) => {
    setSaid("");
    if (want && !("Notification" in window)) return setSaid("this browser has no notifications");
    if (want && (await Notification.requestPermission()) !== "granted") return setSaid("the browser does not allow it; its settings for this address do");
    remember(job.id, want);
    setOn(want);
    return undefined;
  };
  return html`<label title="While this page is open; for mail and webhooks: fairlead notify"><input type="checkbox" checked=${on} onChange=${(/** @type {any} */ event) => { const want = event.target.checked; event.target.checked = on; ask(want); }} /> tell me when it ends</label>${said && html` <span class="quiet" role="status">${said}</span>`}`;
}
