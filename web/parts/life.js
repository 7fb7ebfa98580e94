// A job's life as a line: attempts before, waiting, running.
import { html } from "../lib/html.js";
import { clock, duration } from "../lib/format.js";
import { moment } from "../lib/location.js";
import { shown } from "../lib/resource.js";
import { useStore } from "../lib/store.js";

const WIDTH = 1000;

/** @param {{job: any}} props */
export function Life({ job }) {
  const told = useStore(shown);
  const now = moment() ? Date.parse(told.at || "") || Date.now() : Date.now();
  const begin = Date.parse(job.submitted_at);
  const end = job.ended_at ? Date.parse(job.ended_at) : Math.max(now, begin + 1);
  const x = (/** @type {number} */ time) => (WIDTH * (time - begin)) / Math.max(1, end - begin);
  const runs = [...job.attempts, { attempt: job.attempt, started_at: job.started_at, ended_at: job.ended_at, reason: job.state, nodes: job.nodes }].filter((each) => each.started_at);
  const words = [`submitted ${clock(job.submitted_at)}`, ...runs.map((each) => `attempt ${each.attempt} began ${clock(each.started_at)}${each.ended_at ? `, ended ${clock(each.ended_at)}` : ""} (${each.reason})`)].join("; ");
  return html`<svg class="life" viewBox=${`0 0 ${WIDTH} 34`} preserveAspectRatio="none" role="img" aria-label=${words}>
      <title>${words}</title>
      <rect y="13" width=${WIDTH} height="4" fill="var(--waiting)" opacity="0.5" />
      ${runs.map((each, index) => {
        const from = x(Date.parse(each.started_at));
        const to = x(each.ended_at ? Date.parse(each.ended_at) : end);
        const colour = index < runs.length - 1 ? "var(--preempted)" : job.state === "failed" ? "var(--failed)" : job.ended_at ? "var(--succeeded)" : "var(--running)";
        return html`<rect x=${from} y="6" width=${Math.max(2, to - from)} height="18" fill=${colour} />`;
      })}
    </svg>
    <p class="quiet">${words}${runs.length ? "" : `; has waited ${duration((end - begin) / 1000)}`}</p>`;
}
