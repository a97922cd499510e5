// The items of a column: sub-word pieces or whole words, of the whole text or of one segment.

/** @import { TokenAxis } from "./record.js" */
import { visibleText } from "./text.js";

/** Tokens that are displayed as one item. @typedef {{label: string, tokens: number[]}} Item */

/**
 * @param {TokenAxis} axis @param {number} count of tokens, from the first @param {boolean} words @param {number | null} segment
 * @returns {Item[]}
 */
export function groupTokens(axis, count, words, segment) {
  /** @type {Item[]} */
  const items = [];
  let before = -1;
  for (let at = 0; at < Math.min(count, axis.tokens.length); at++) {
    if (segment !== null && axis.segments !== null && axis.segments[at] !== segment) continue;
    const word = axis.words[at];
    const last = items[items.length - 1];
    if (words && word >= 0 && word === before && last.tokens[last.tokens.length - 1] === at - 1) last.tokens.push(at);
    else items.push({ label: "", tokens: [at] });
    before = word;
  }
  // spans count code points; JavaScript strings count UTF-16 units, which differ where there are surrogate pairs
  const text = /[\ud800-\udfff]/.test(axis.text) ? [...axis.text] : axis.text;
  for (const item of items) item.label = itemLabel(axis, text, item.tokens);
  return items;
}

/** @param {TokenAxis} axis @param {string | string[]} text @param {number[]} tokens */
function itemLabel(axis, text, tokens) {
  const from = axis.spans[tokens[0]][0];
  const to = axis.spans[tokens[tokens.length - 1]][1];
  if (tokens.length === 1 || from < 0 || to < from) return visibleText(tokens.map((at) => axis.tokens[at]).join(""));
  const part = text.slice(from, to);
  return visibleText(typeof part === "string" ? part : part.join(""));
}

/** The weight of each item: the sum over its pieces. @param {Float32Array} row @param {Item[]} items */
export function sumOverItems(row, items) {
  return Float32Array.from(items, (item) => item.tokens.reduce((sum, at) => sum + row[at], 0));
}

/** The mean of the rows of an item's pieces. @param {Float32Array[]} rows */
export function meanRow(rows) {
  if (rows.length === 1) return rows[0];
  const mean = new Float32Array(rows[0].length);
  for (const row of rows) for (let j = 0; j < mean.length; j++) mean[j] += row[j] / rows.length;
  return mean;
}

/** The index of the item that contains a token; -1 for none. @param {Item[]} items @param {number} token */
export function itemIndexOf(items, token) {
  return items.findIndex((item) => item.tokens.includes(token));
}
