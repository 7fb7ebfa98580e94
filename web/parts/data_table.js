// A table that sorts by its heads. Numbers stand at the right.
import { html, useState } from "../lib/html.js";

/**
 * @typedef {{name: string, head: string, number?: boolean, wide?: boolean, sort?: (row: any) => any, show: (row: any) => any}} Column
 */

/** Rows that are drawn at most: a page with more of them would not answer any more. */
export const ROWS_MAX = 500;

/** @param {{label: string, columns: Column[], rows: any[], keyOf: (row: any) => string, empty: any, more?: boolean}} props */
export function DataTable({ label, columns, rows, keyOf, empty, more = false }) {
  const [order, setOrder] = useState({ name: "", down: false });
  if (!rows.length) return html`<div class="empty">${empty}</div>`;
  const by = columns.find((each) => each.name === order.name);
  const sorted = by?.sort ? [...rows].sort((a, b) => compare(by.sort?.(a), by.sort?.(b)) * (order.down ? -1 : 1)) : rows;
  const drawn = sorted.slice(0, ROWS_MAX);
  return html`<div class="table-box" tabindex="0" role="region" aria-label=${label}>
    <table>
      <thead>
        <tr>
          ${columns.map(
            (each) => html`<th class=${each.number ? "n" : ""} aria-sort=${order.name === each.name ? (order.down ? "descending" : "ascending") : undefined}>
              ${each.sort ? html`<button onClick=${() => setOrder({ name: each.name, down: order.name === each.name && !order.down })}>${each.head}${order.name === each.name ? (order.down ? " ↓" : " ↑") : ""}</button>` : each.head}
            </th>`,
          )}
        </tr>
      </thead>
      <tbody>
        ${drawn.map((row) => html`<tr key=${keyOf(row)}>${columns.map((each) => html`<td class=${each.number ? "n" : each.wide ? "wide" : ""}>${each.show(row)}</td>`)}</tr>`)}
      </tbody>
    </table>
    ${(more || sorted.length > drawn.length) && html`<p class="quiet">The first ${drawn.length}${more ? "" : ` of ${sorted.length}`} rows; filter to see others.</p>`}
  </div>`;
}

/** @param {any} a @param {any} b */
function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  return a < b ? -1 : 1;
}
