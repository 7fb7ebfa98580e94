// Requests to /v1. A refusal is a `Refused` with the server's words.
import { moment } from "./location.js";
import { lacking } from "./rights.js";

/** A refusal, or a gateway that does not answer (status 0). */
export class Refused extends Error {
  /** @param {number} status @param {string} message @param {string} hint */
  constructor(status, message, hint = "") {
    super(message);
    this.status = status;
    this.hint = hint;
  }
}

/**
 * @typedef {{data: any, sequence: number, at: string}} Answer
 */

/** @param {Response} response @returns {Promise<Refused>} */
async function refusal(response) {
  if (response.status === 401) {
    const back = encodeURIComponent(window.location.pathname + window.location.search);
    return new Refused(401, "You are signed out.", `/sign-in?to=${back}`);
  }
  try {
    const problem = await response.json();
    const errors = (problem.errors ?? []).map((/** @type {any} */ each) => `${each.field}: ${each.message}`);
    return new Refused(response.status, [problem.detail || problem.title, ...errors].join("; "), problem.hint ?? "");
  } catch {
    return new Refused(response.status, `the gateway answered ${response.status}`);
  }
}

/**
 * @param {string} path
 * @param {RequestInit} [init]
 * @returns {Promise<Response>} which is good; else raises Refused
 */
export async function request(path, init = {}) {
  const verb = lacking(path);
  if (verb) throw new Refused(403, `You may not see this: none of your roles has ${verb}.`, "the page Access says who could grant it");
  let response;
  try {
    response = await fetch(path, { ...init, headers: { accept: "application/json", ...init.headers } });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Refused(0, "the gateway does not answer");
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

/**
 * A document of /v1, at the moment of the address.
 * @param {string} path
 * @param {Record<string, string>} [params]
 * @param {{signal?: AbortSignal, timeless?: boolean}} [how] timeless: the route takes no moment
 * @returns {Promise<Answer>}
 */
export async function get(path, params = {}, how = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== ""));
  if (moment() && !how.timeless) query.set("at", moment());
  const text = query.toString();
  const response = await request(text ? `${path}?${text}` : path, { signal: how.signal });
  const sequence = Number(response.headers.get("x-fairlead-sequence") ?? 0);
  return { data: await response.json(), sequence, at: response.headers.get("x-fairlead-at") ?? "" };
}

/** Rows that are asked for first, so that something is on screen soon. */
const FIRST_ROWS = 200;

/**
 * All rows of a list, page by page, at most `most`.
 * @param {string} path
 * @param {Record<string, string>} [params]
 * @param {{signal?: AbortSignal, most?: number, timeless?: boolean, onFirst?: (rows: any[]) => void}} [how] onFirst: is called with the first rows, if there are more
 * @returns {Promise<Answer & {more: boolean}>}
 */
export async function list(path, params = {}, how = {}) {
  const rows = [];
  let answer = null;
  let next = "";
  const most = how.most ?? 1000;
  do {
    answer = await get(path, { ...params, limit: String(Math.min(how.onFirst && !rows.length ? FIRST_ROWS : 1000, most - rows.length)), continue: next }, how);
    const first = !rows.length;
    rows.push(...answer.data.items);
    next = answer.data.next ?? "";
    if (first && next && rows.length < most) how.onFirst?.([...rows]);
  } while (next && rows.length < most);
  return { data: rows, sequence: answer.sequence, at: answer.at, more: Boolean(next) };
}

/** @param {string} path @param {unknown} body @param {{method?: string, signal?: AbortSignal, accept?: string, headers?: Record<string, string>}} [how] @returns {Promise<any>} */
export async function send(path, body, how = {}) {
  const response = await request(path, {
    method: how.method ?? "POST",
    body: body === undefined ? undefined : JSON.stringify(body),
    headers: { ...(body === undefined ? {} : { "content-type": "application/json" }), ...(how.accept ? { accept: how.accept } : {}), ...how.headers },
    signal: how.signal,
  });
  return response.status === 204 ? null : response.json();
}
