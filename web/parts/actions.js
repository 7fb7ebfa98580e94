// Buttons that change something: they ask first, then show what was sent and how the log answered. In the past they are off.
import { html, useState } from "../lib/html.js";
import { send } from "../lib/api.js";
import { moment } from "../lib/location.js";

/**
 * @param {{label: string, says: string, path: string, body?: unknown, method?: string, why?: string}} props
 * says: what it will do, in the question; why: why it cannot be done now ("": it can).
 */
export function Action({ label, says, path, body = {}, method = "POST", why = "" }) {
  const [state, setState] = useState(/** @type {{phase: string, text: string}} */ ({ phase: "", text: "" }));
  const off = moment() ? "you are looking at the past" : why;
  const act = async () => {
    setState({ phase: "sent", text: "sent" });
    try {
      const answer = await send(path, body, { method });
      setState({ phase: "done", text: answer?.sequence ? `done, sequence ${answer.sequence}` : "done" });
    } catch (error) {
      setState({ phase: "refused", text: error instanceof Error ? error.message : String(error) });
    }
  };
  if (state.phase === "asking")
    return html`<span class="row" role="group" aria-label=${label}>
      <span>${says}</span><button class="first" onClick=${act}>${label}</button><button onClick=${() => setState({ phase: "", text: "" })}>Leave it</button>
    </span>`;
  return html`<span class="row">
    <button disabled=${Boolean(off) || state.phase === "sent"} title=${off || says} onClick=${() => setState({ phase: "asking", text: "" })}>${label}</button>
    ${state.text && html`<span role="status" class="quiet">${state.text}</span>`}
  </span>`;
}
