// What stands in the columns: pieces as the model reads them, or whole words; of all the text, or of one segment.

/** @import { Side } from "./record.js" */
import { visible } from "./text.js";

/** Tokens that are shown as one. @typedef {{label: string, tokens: number[]}} Item */

/**
 * @param {Side} side @param {number} count of its tokens that take part @param {boolean} words @param {number | null} segment
 * @returns {Item[]}
 */
export function itemsOf(side, count, words, segment) {
  /** @type {Item[]} */
  const items = [];
  let before = -1;
  for (let at = 0; at < Math.min(count, side.tokens.length); at++) {
    if (segment !== null && side.segments !== null && side.segments[at] !== segment) continue;
    const word = side.words[at];
    const last = items[items.length - 1];
    if (words && word >= 0 && word === before && last.tokens[last.tokens.length - 1] === at - 1) last.tokens.push(at);
    else items.push({ label: "", tokens: [at] });
    before = word;
  }
  // spans count characters, which JavaScript counts so only where none of them takes two of its own
  const text = /[\ud800-\udfff]/.test(side.text) ? [...side.text] : side.text;
  for (const item of items) item.label = labelOf(side, text, item.tokens);
  return items;
}

/** @param {Side} side @param {string | string[]} text @param {number[]} tokens */
function labelOf(side, text, tokens) {
  const from = side.spans[tokens[0]][0];
  const to = side.spans[tokens[tokens.length - 1]][1];
  if (tokens.length === 1 || from < 0 || to < from) return visible(tokens.map((at) => side.tokens[at]).join(""));
  const part = text.slice(from, to);
  return visible(typeof part === "string" ? part : part.join(""));
}

/** The weight of each item: what its pieces get together. @param {Float32Array} row @param {Item[]} items */
export function summed(row, items) {
  return Float32Array.from(items, (item) => item.tokens.reduce((sum, at) => sum + row[at], 0));
}

/** The mean of what the pieces of an item give. @param {Float32Array[]} rows */
export function averaged(rows) {
  if (rows.length === 1) return rows[0];
  const mean = new Float32Array(rows[0].length);
  for (const row of rows) for (let j = 0; j < mean.length; j++) mean[j] += row[j] / rows.length;
  return mean;
}

/** Which item a token is in; -1 for none. @param {Item[]} items @param {number} token */
export function itemWith(items, token) {
  return items.findIndex((item) => item.tokens.includes(token));
}
