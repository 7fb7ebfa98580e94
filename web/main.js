// Starts the pages: the frame around the page that the address names. A page's module is loaded when it is first opened.
import { html, render, useEffect, useState } from "./lib/html.js";
import { follow } from "./lib/live.js";
import { interceptLinks, place } from "./lib/location.js";
import { useStore } from "./lib/store.js";
import { Frame } from "./parts/frame.js";

/** @type {[RegExp, string, () => Promise<any>][]} */
const PAGES = [
  [/^\/(map)?$/, "Map", () => import("./pages/map.js")],
  [/^\/queues$/, "Queues", () => import("./pages/queues.js")],
  [/^\/pending$/, "Pending", () => import("./pages/pending.js")],
  [/^\/jobs$/, "Jobs", () => import("./pages/jobs.js")],
  [/^\/jobs\/([^/]+)$/, "Job", () => import("./pages/job.js")],
  [/^\/gantt$/, "Gantt", () => import("./pages/gantt.js")],
  [/^\/nodes$/, "Nodes", () => import("./pages/nodes.js")],
  [/^\/nodes\/([^/]+)$/, "Node", () => import("./pages/node.js")],
  [/^\/idle$/, "Idle", () => import("./pages/idle.js")],
  [/^\/usage$/, "Usage", () => import("./pages/usage.js")],
  [/^\/sql$/, "SQL", () => import("./pages/sql.js")],
  [/^\/access$/, "Access", () => import("./pages/access.js")],
  [/^\/admin$/, "Admin", () => import("./pages/admin.js")],
  [/^\/submit$/, "Submit", () => import("./pages/submit.js")],
];

/** @param {{person: string}} props */
function App({ person }) {
  const { path } = useStore(place);
  const [page, setPage] = useState(/** @type {any} */ (null));
  useEffect(() => {
    const found = PAGES.find(([shape]) => shape.test(path));
    if (!found) return;
    const [shape, title, load] = found;
    const name = decodeURIComponent(path.match(shape)?.[1] ?? "");
    document.title = `${title}${title === "Job" || title === "Node" ? ` ${name}` : ""} – Fairlead`;
    load().then((module) => setPage({ Page: module.Page, name, path }));
  }, [path]);
  return html`<${Frame} person=${person}>${page && html`<${page.Page} key=${page.path} name=${page.name} />`}<//>`;
}

const told = document.body.dataset;
interceptLinks();
follow(Number(told.sequence));
const first = document.getElementById("app");
if (first) render(html`<${App} person=${told.person ?? ""} />`, document.body, first);
