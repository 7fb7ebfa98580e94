// Numbers and times as people read them. The exact value is in a title.
const COUNT = new Intl.NumberFormat("en");

/** @param {number} value */
export function count(value) {
  return COUNT.format(value);
}

/** GPUs of milli-GPU: at most three decimals. @param {number | null | undefined} milli */
export function gpus(milli) {
  return milli === null || milli === undefined ? "–" : COUNT.format(milli / 1000);
}

/** @param {number} seconds */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** @param {string | null} time RFC 3339 @param {number} [now] ms */
export function ago(time, now = Date.now()) {
  if (!time) return "";
  const seconds = (now - Date.parse(time)) / 1000;
  return seconds < -1 ? `in ${duration(-seconds)}` : `${duration(seconds)} ago`;
}

/** @param {string | null} time RFC 3339 */
export function clock(time) {
  if (!time) return "";
  const date = new Date(time);
  const day = date.toLocaleDateString("en-CA");
  return `${day === new Date().toLocaleDateString("en-CA") ? "" : `${day} `}${date.toLocaleTimeString("en-GB")}`;
}

/** @param {number} part @param {number} whole */
export function percent(part, whole) {
  return whole ? `${Math.round((100 * part) / whole)} %` : "–";
}

/** The same number for the same text, always. @param {string} text */
export function hash(text) {
  let value = 2166136261;
  for (let at = 0; at < text.length; at += 1) value = Math.imul(value ^ text.charCodeAt(at), 16777619);
  return value >>> 0;
}

/** @param {number} number @param {string} one @param {string} [many] */
export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
