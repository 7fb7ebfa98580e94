// Access: who has which role where, and why somebody may do something or may not.
import { html, useState } from "../lib/html.js";
import { get } from "../lib/api.js";
import { useResource } from "../lib/resource.js";
import { DataTable } from "../parts/data_table.js";
import { Problem } from "../parts/notices.js";

export function Page() {
  const me = useResource("/v1/whoami", {}, { timeless: true });
  const of = useResource("/v1/access", {}, { all: 1000 });
  return html`<div class="head"><h1>Access</h1>${me.data && html`<span class="quiet">you are ${me.data.login || me.data.principal}</span>`}</div>
    ${me.data && html`<p>${me.data.roles.length ? `You hold: ${me.data.roles.map((/** @type {any} */ each) => `${each.role} in ${each.scope}`).join(", ")}.` : me.data.principal === "anonymous" ? "There is no sign-on here: everybody may do everything." : "You hold no role."}</p>`}
    <${Ask} />
    <h2>Grants</h2>
    <${Problem} of=${of} />
    ${of.data && html`<${DataTable}
      label="Grants"
      rows=${of.data}
      more=${of.more}
      keyOf=${(/** @type {any} */ each) => `${each.subject} ${each.role} ${each.scope}`}
      empty=${html`No grants that you may see. <code>fairlead access grant ada operator queue:research</code>`}
      columns=${[
        { name: "subject", head: "who", sort: (/** @type {any} */ g) => g.subject, show: (/** @type {any} */ g) => g.name || g.login || g.subject },
        { name: "role", head: "is", sort: (/** @type {any} */ g) => g.role, show: (/** @type {any} */ g) => g.role },
        { name: "scope", head: "in", sort: (/** @type {any} */ g) => g.scope, show: (/** @type {any} */ g) => g.scope },
        { name: "by", head: "by", show: (/** @type {any} */ g) => g.by ?? "" },
      ]}
    />`}`;
}

function Ask() {
  const [asked, setAsked] = useState({ subject: "", verb: "job:submit", on: "cluster" });
  const [answer, setAnswer] = useState("");
  const ask = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      const { data } = await get("/v1/access/why", asked);
      setAnswer([data.sentence.trim(), data.givers.length ? `${data.givers.join(", ")} could grant it` : ""].filter(Boolean).join("; "));
    } catch (error) {
      setAnswer(error instanceof Error ? error.message : String(error));
    }
  };
  const field = (/** @type {"subject" | "verb" | "on"} */ name, /** @type {string} */ words, /** @type {string} */ hint) => html`<label>${words} <input size="16" placeholder=${hint} value=${asked[name]} onInput=${(/** @type {any} */ event) => setAsked({ ...asked, [name]: event.target.value })} /></label>`;
  return html`<form class="row" onSubmit=${ask}>${field("subject", "Why may", "you")} ${field("verb", "do", "job:submit")} ${field("on", "on", "queue:research")} <button>Ask</button></form>${answer && html`<p role="status">${answer}</p>`}`;
}
