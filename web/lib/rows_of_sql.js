// Answers of POST /v1/sql as objects by column.
import { send } from "./api.js";

/** @param {string} query @param {{limit?: number, signal?: AbortSignal}} [how] @returns {Promise<{columns: string[], types: string[], rows: any[][], truncated: boolean}>} */
export async function sql(query, how = {}) {
  const answer = await send("/v1/sql", how.limit ? { query, limit: how.limit } : { query }, { signal: how.signal });
  return { columns: answer.columns.map((/** @type {any} */ each) => each.name ?? each), types: answer.columns.map((/** @type {any} */ each) => each.type ?? ""), rows: answer.rows, truncated: Boolean(answer.truncated) };
}
