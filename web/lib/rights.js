// Verbs that the reader may use somewhere, as the page was sent with them: what would be refused is not asked. The gateway checks every request all the same.

const held = new Set((document.body.dataset.may ?? "").split(" "));

/** What a path of /v1 begins with, and the verb without which it is refused. */
const NEEDS = {
  "/v1/map": "node:read",
  "/v1/nodes": "node:read",
  "/v1/maintenance": "node:read",
  "/v1/rollouts": "node:read",
  "/v1/breaker": "node:read",
  "/v1/queues": "queue:read",
  "/v1/pools": "queue:read",
  "/v1/sql": "sql:read",
};

/** The verb that the reader lacks for a path; "" if there is none. @param {string} path */
export function lacking(path) {
  const needed = Object.entries(NEEDS).find(([begin]) => path.startsWith(begin))?.[1] ?? "";
  return needed && !held.has(needed) ? needed : "";
}
