// Submit: a form, the job file and the command line that it stands for, with the dry run beside it. A link may fill the form, and never sends it.
import { html, useEffect, useMemo, useState } from "../lib/html.js";
import { send } from "../lib/api.js";
import { go, href, moment, place } from "../lib/location.js";
import { useStore } from "../lib/store.js";

/** @typedef {{command: string, name: string, queue: string, gpus: string, nodes: string, cpu: string, memory: string, time: string}} Form */

/** @type {Form} */
const EMPTY = { command: "python train.py", name: "", queue: "", gpus: "1", nodes: "1", cpu: "4", memory: "16Gi", time: "" };
const LABELS = { command: "Command", name: "Name", queue: "Queue", gpus: "GPUs on each node", nodes: "Nodes", cpu: "CPUs", memory: "Memory", time: "Time limit" };

/** Words of a command line as a shell would see them. @param {string} text */
export function words(text) {
  return (text.match(/"[^"]*"|'[^']*'|\S+/g) ?? []).map((word) => (/^(["']).*\1$/.test(word) ? word.slice(1, -1) : word));
}

/** The job file of a form. @param {Form} form */
export function jobFile(form) {
  /** @type {any} */
  const file = { command: words(form.command), resources: { "nvidia.com/gpu": Number(form.gpus) || 0, cpu: form.cpu, memory: form.memory } };
  if (form.name) file.name = form.name;
  if (form.queue) file.queue = form.queue;
  if (Number(form.nodes) > 1) file.nodes = Number(form.nodes);
  if (form.time) file.time = { total: form.time };
  return file;
}

/** @param {Form} form */
function commandLine(form) {
  const quoted = (/** @type {string} */ text) => (/^[\w./:=@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  const options = [["--gpus", form.gpus], ["--nodes", Number(form.nodes) > 1 ? form.nodes : ""], ["--cpus", form.cpu], ["--memory", form.memory], ["--name", form.name], ["--queue", form.queue], ["--time", form.time]];
  return ["fairlead submit", ...options.filter(([, value]) => value).map(([name, value]) => `${name} ${quoted(value)}`), "--", words(form.command).map(quoted).join(" ")].join(" ");
}

export function Page() {
  const { params } = useStore(place);
  const [form, setForm] = useState(() => /** @type {Form} */ (Object.fromEntries(Object.entries(EMPTY).map(([name, value]) => [name, params.get(name) ?? value]))));
  const [told, setTold] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState("");
  const file = useMemo(() => jobFile(form), [form]);

  useEffect(() => {
    const ending = new AbortController();
    const timer = setTimeout(() => {
      send("/v1/jobs:dryrun", file, { signal: ending.signal }).then(
        (answer) => { setTold(answer); setProblem(""); },
        (error) => { if (!ending.signal.aborted) { setTold(null); setProblem(error.message); } },
      );
    }, 400);
    return () => { clearTimeout(timer); ending.abort(); };
  }, [file]);

  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      const answer = await send("/v1/jobs", file);
      go(href(`/jobs/${encodeURIComponent(answer.id)}`));
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };

  return html`<h1>Submit</h1>
    <div class="map-box">
      <form onSubmit=${submit}>
        ${Object.entries(LABELS).map(([name, label]) => html`<p><label>${label}<br /><input style=${{ width: "100%" }} name=${name} value=${form[/** @type {keyof Form} */ (name)]} onInput=${(/** @type {any} */ event) => setForm({ ...form, [name]: event.target.value })} /></label></p>`)}
        <button class="first" disabled=${Boolean(moment())}>Submit</button>
        <h2>As a command</h2><pre>${commandLine(form)}</pre>
        <h2>As a job file</h2><pre>${JSON.stringify(file, null, 2)}</pre>
      </form>
      <aside class="panel" aria-label="Dry run" aria-live="polite">
        <h2>If it were submitted now</h2>
        ${problem && html`<div class="notice error" role="alert">${problem}</div>`}
        ${told && html`<p>${told.message}</p>
          ${told.errors.length > 0 && html`<ul>${told.errors.map((/** @type {any} */ each) => html`<li><code>${each.field}</code>: ${each.message}</li>`)}</ul>`}
          ${told.ahead > 0 && html`<p>${told.ahead} jobs get their turn before it.</p>`}
          ${told.changes.length > 0 && html`<ul>${told.changes.map((/** @type {any} */ each) => html`<li>${each.message}</li>`)}</ul>`}
          ${told.displaces.length > 0 && html`<p>Might be asked to yield: ${told.displaces.map((/** @type {any} */ each) => each.job).join(", ")}</p>`}
          ${told.estimate?.start_at && html`<p>Would start about ${told.estimate.start_at} (${told.estimate.basis}).</p>`}`}
      </aside>
    </div>`;
}
