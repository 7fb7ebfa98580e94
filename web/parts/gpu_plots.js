// Utilisation, memory and power of a job's GPUs over time: one small plot for each amount, one line for each GPU.
import { html, useEffect, useRef } from "../lib/html.js";
import { category } from "../lib/colours.js";
import { useResource } from "../lib/resource.js";
import { Problem } from "./notices.js";

const AMOUNTS = [
  { name: "utilization_pct", words: "Utilisation, %", scale: 1 },
  { name: "memory_used_mib", words: "Memory used, GiB", scale: 1 / 1024 },
  { name: "power_mw", words: "Power, W", scale: 1 / 1000 },
];

/** @param {{job: any}} props */
export function GpuPlots({ job }) {
  const of = useResource(`/v1/jobs/${encodeURIComponent(job.id)}/metrics`, {}, { timeless: true });
  if (!of.data) return html`<${Problem} of=${of} />`;
  const data = of.data;
  if (!data.gpus.length || !data.measured_pct) return html`<div class="empty">Nothing was measured of this job's GPUs. Agents with a driver, or simulated ones, send samples each second.</div>`;
  return html`<${Problem} of=${of} />
    <p class="quiet">Steps of ${data.step_s} s, of ${data.source}; ${Math.round(data.measured_pct)} % of them measured${data.simulated ? "; simulated" : ""}.</p>
    <div class="plots">${AMOUNTS.map((each) => html`<${Plot} key=${each.name} data=${data} amount=${each} />`)}</div>`;
}

/** Add the plotter's own style, once. */
function loadStyle() {
  const address = import.meta.resolve("uplot").replace(/\.js$/, ".css");
  if (document.querySelector(`link[href="${address}"]`)) return;
  document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href: address }));
}

/** @param {{data: any, amount: typeof AMOUNTS[number]}} props */
function Plot({ data, amount }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  useEffect(() => {
    let ended = false;
    /** @type {any} */
    let plot = null;
    const times = Array.from({ length: data.steps }, (_, step) => data.from_ns / 1e9 + step * data.step_s);
    const lines = data.gpus.map((/** @type {any} */ gpu) => gpu[amount.name].map((/** @type {number | null} */ value) => (value === null ? null : value * amount.scale)));
    loadStyle();
    import("uplot").then((/** @type {any} */ { default: Plotter }) => {
      if (ended || !box.current) return;
      const style = getComputedStyle(document.documentElement);
      const axis = { stroke: style.getPropertyValue("--text-2"), grid: { stroke: style.getPropertyValue("--line"), width: 1 } };
      const series = data.gpus.map((/** @type {any} */ gpu) => ({ label: `${gpu.node} ${gpu.uuid.slice(4, 8)}`, stroke: category(gpu.uuid), width: 1 }));
      plot = new Plotter({ width: box.current.clientWidth, height: 150, cursor: { sync: { key: "gpus" } }, legend: { show: false }, scales: { y: { range: [0, null] } }, axes: [axis, { ...axis, size: 44 }], series: [{}, ...series] }, [times, ...lines], box.current);
    });
    return () => {
      ended = true;
      plot?.destroy();
    };
  }, [data, amount]);
  const last = data.gpus.map((/** @type {any} */ gpu) => gpu[amount.name].findLast((/** @type {any} */ value) => value !== null)).filter((/** @type {any} */ value) => value !== undefined);
  const mean = last.length ? last.reduce((/** @type {number} */ sum, /** @type {number} */ value) => sum + value * amount.scale, 0) / last.length : null;
  return html`<figure aria-label=${`${amount.words}: ${mean === null ? "not measured" : `${mean.toFixed(1)} in the mean of its GPUs, by the newest samples`}`}>
    <figcaption>${amount.words} <span class="quiet">${mean === null ? "" : `now ${mean.toFixed(1)} in the mean`}</span></figcaption>
    <div ref=${box}></div>
  </figure>`;
}
