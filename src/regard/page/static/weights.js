// The weights of one head, computed again from what was kept of its queries and keys.

/** @import { HeadParams } from "./head_params.js" */
import { addedTo, sees } from "./head_params.js";

/** Queries from top to bottom, keys from left to right. @typedef {{top: number, bottom: number, left: number, right: number}} Box */
/** @typedef {{values: Float32Array, exact: boolean}} Tile */

export const MOST_EXACT = 4096 * 4096;
const TOGETHER = 4; // queries that are compared with a key while it is at hand
const WIDE_KEPT = 16;
const SLICE_MS = 12; // so long may a computation hold the page before it lets others go on

/**
 * Weights of query i for the keys from left to right, into `out` from its start.
 * @param {HeadParams} params @param {number} i @param {number} left @param {number} right @param {Float32Array} out
 */
export function fillRow(params, i, left, right, out) {
  out.fill(0, 0, right - left);
  const lse = params.lse[i];
  if (lse === -Infinity) return;
  const from = Math.max(left, params.first[i]);
  const to = Math.min(right, params.last[i]);
  const query = asked(params, i);
  const compare = params.vector === null ? dot : additive;
  const plain = params.sight === null && params.middle === null;
  for (let j = from; j < to; j++) {
    if (!plain && !sees(params, i, j)) continue;
    const score = compare(params, query, j) + (params.added === null ? 0 : addedTo(params, i, j));
    let weight = Math.exp(Math.min(0, score - lse));
    if (params.middle !== null) {
      const away = j - params.middle[i];
      weight *= Math.exp((-2 * away * away) / (params.halfWidth * params.halfWidth));
    }
    out[j - left] = weight;
  }
}

/** The same for several queries; dot products of four at once, which reads each key once for all of them.
 * @param {HeadParams} params @param {number[]} queries @param {number} left @param {number} right @param {Float32Array[]} out */
function fillRows(params, queries, left, right, out) {
  if (queries.length < TOGETHER || params.vector !== null || params.sight !== null || params.middle !== null) {
    queries.forEach((i, n) => fillRow(params, i, left, right, out[n]));
    return;
  }
  const from = Math.max(left, Math.min(...queries.map((i) => params.first[i])));
  const to = Math.min(right, Math.max(...queries.map((i) => params.last[i])));
  const [a, b, c, e] = queries.map((i) => asked(params, i));
  const [first, second, third, fourth] = out;
  const { D } = params;
  const keys = wideKeys(params);
  for (let j = from, at = from * D; j < to; j++) {
    let sa = 0, sb = 0, sc = 0, se = 0;
    for (let d = 0; d < D; d++, at++) {
      const key = keys[at];
      sa += a[d] * key;
      sb += b[d] * key;
      sc += c[d] * key;
      se += e[d] * key;
    }
    first[j - left] = sa;
    second[j - left] = sb;
    third[j - left] = sc;
    fourth[j - left] = se;
  }
  queries.forEach((i, n) => weigh(params, i, left, right, out[n]));
}

/** Turns dot products into weights. @param {HeadParams} params @param {number} i @param {number} left @param {number} right @param {Float32Array} row */
function weigh(params, i, left, right, row) {
  const lse = params.lse[i];
  const from = lse === -Infinity ? right : Math.min(right, Math.max(left, params.first[i]));
  const to = Math.max(from, Math.min(right, params.last[i]));
  row.fill(0, 0, from - left);
  row.fill(0, to - left, right - left);
  for (let j = from; j < to; j++) {
    const added = params.added === null ? 0 : addedTo(params, i, j);
    row[j - left] = Math.exp(Math.min(0, row[j - left] + added - lse));
  }
}

/** Keys as the processor multiplies them, of the heads that were last looked at. @type {Map<Int16Array, Float64Array>} */
const widened = new Map();

/** @param {HeadParams} params @returns {Float64Array} */
function wideKeys(params) {
  const keys = widened.get(params.keys) ?? Float64Array.from(params.keys);
  widened.delete(params.keys);
  widened.set(params.keys, keys);
  if (widened.size > WIDE_KEPT) widened.delete(/** @type {Int16Array} */ (widened.keys().next().value));
  return keys;
}

/** Query i; for dot products already times the scale of the keys. @param {HeadParams} params @param {number} i */
function asked(params, i) {
  const query = new Float64Array(params.D);
  for (let d = 0; d < params.D; d++) {
    query[d] = params.queries[i * params.D + d] * params.queriesScale[d] * (params.vector === null ? params.keysScale[d] : 1);
  }
  return query;
}

/** @param {HeadParams} params @param {Float64Array} query @param {number} j */
function dot(params, query, j) {
  const keys = params.keys;
  const D = query.length;
  let one = 0, two = 0, d = 0;
  for (let at = j * D; d + 1 < D; d += 2, at += 2) {
    one += query[d] * keys[at];
    two += query[d + 1] * keys[at + 1];
  }
  return d < D ? one + two + query[d] * keys[j * D + d] : one + two;
}

/** @param {HeadParams} params @param {Float64Array} query @param {number} j */
function additive(params, query, j) {
  const vector = /** @type {Float32Array} */ (params.vector);
  let sum = 0;
  for (let d = 0, at = j * params.D; d < params.D; d++, at++) {
    sum += vector[d] * Math.tanh(query[d] + params.keys[at] * params.keysScale[d]);
  }
  return sum;
}

/**
 * Means of the weights in rows x cols cells of a box; each row of weights may first be changed by `measure`. Over
 * `most` weights it is estimated from evenly spaced queries of each row of cells. Lets others go on in between.
 * @param {HeadParams} params @param {Box} box @param {number} rows @param {number} cols
 * @param {((i: number, left: number, row: Float32Array) => void) | null} [measure] @param {AbortSignal} [signal]
 * @param {number} [most] @returns {Promise<Tile>}
 */
export async function shrunkTile(params, box, rows, cols, measure = null, signal = undefined, most = MOST_EXACT) {
  const high = box.bottom - box.top;
  const wide = box.right - box.left;
  const exact = high * wide <= most;
  const perCell = exact ? Infinity : Math.max(1, Math.floor(most / 4 / (rows * wide)));
  const sums = new Float64Array(rows * cols);
  const counts = new Int32Array(rows);
  const inCol = new Int32Array(cols);
  const cell = new Int32Array(wide);
  for (let j = 0; j < wide; j++) inCol[(cell[j] = Math.floor((j * cols) / wide))]++;
  const picked = queriesOf(high, rows, perCell);
  const lines = Array.from({ length: TOGETHER }, () => new Float32Array(wide));
  let since = performance.now();
  for (let n = 0; n < picked.length; n += TOGETHER) {
    const some = picked.slice(n, n + TOGETHER).map((one) => box.top + one.at);
    fillRows(params, some, box.left, box.right, lines);
    some.forEach((i, at) => {
      const { row } = picked[n + at];
      const line = lines[at];
      if (measure !== null) measure(i, box.left, line);
      for (let j = 0; j < wide; j++) sums[row * cols + cell[j]] += line[j];
      counts[row]++;
    });
    if (performance.now() - since > SLICE_MS) {
      await others();
      signal?.throwIfAborted();
      since = performance.now();
    }
  }
  const values = new Float32Array(rows * cols);
  for (let at = 0; at < values.length; at++) {
    values[at] = sums[at] / Math.max(1, counts[Math.floor(at / cols)] * inCol[at % cols]);
  }
  return { values, exact };
}

/** Which queries stand for each row of cells: at most `perCell`, evenly spaced. @param {number} high @param {number} rows @param {number} perCell */
function queriesOf(high, rows, perCell) {
  /** @type {{row: number, at: number}[]} */
  const picked = [];
  for (let row = 0; row < rows; row++) {
    const start = Math.ceil((row * high) / rows);
    const count = Math.ceil(((row + 1) * high) / rows) - start;
    const taken = Math.min(perCell, count);
    for (let n = 0; n < taken; n++) picked.push({ row, at: start + (taken === count ? n : Math.floor(((n + 0.5) * count) / taken)) });
  }
  return picked;
}

const channel = new MessageChannel();
/** @type {(() => void)[]} */
const held = [];
channel.port1.onmessage = () => held.shift()?.();

/** Resolves when the browser has had a chance to draw and to hear the user; timers would wait longer. @returns {Promise<void>} */
export function others() {
  return new Promise((resolve) => {
    held.push(resolve);
    channel.port2.postMessage(null);
  });
}

/** @typedef {{q: number[], k: number[], parts: number[], score: number, added: number, lse: number, gain: number, weight: number, seen: boolean}} Pair */

/** How the score of a pair comes about, the keys with their centre. @param {HeadParams} params @param {number} i @param {number} j @returns {Pair} */
export function pairOf(params, i, j) {
  const { D, vector } = params;
  const q = Array.from({ length: D }, (_, d) => params.queries[i * D + d] * params.queriesScale[d]);
  const k = Array.from({ length: D }, (_, d) => params.keys[j * D + d] * params.keysScale[d] + params.centres[d]);
  const parts = q.map((one, d) => (vector === null ? one * k[d] : vector[d] * Math.tanh(one + k[d])));
  // the centre of the keys is the same for all of them: what it adds to each score it adds to their sum
  const centre = vector === null ? q.reduce((sum, one, d) => sum + one * params.centres[d], 0) : 0;
  const row = new Float32Array(1);
  fillRow(params, i, j, j + 1, row);
  const away = params.middle === null ? 0 : j - params.middle[i];
  const gain = params.middle === null ? 1 : Math.exp((-2 * away * away) / (params.halfWidth * params.halfWidth));
  return {
    q, k, parts, score: parts.reduce((sum, part) => sum + part, 0), added: addedTo(params, i, j),
    lse: params.lse[i] + centre, gain, weight: row[0], seen: sees(params, i, j),
  };
}

/** The largest of a row, first the largest, ties by place. @param {ArrayLike<number>} row @param {number} count @returns {number[]} */
export function largest(row, count) {
  /** @type {number[]} */
  const best = [];
  for (let j = 0; j < row.length; j++) {
    if (!(row[j] > 0) || (best.length === count && row[j] <= row[best[count - 1]])) continue;
    let at = best.length;
    while (at > 0 && row[best[at - 1]] < row[j]) at--;
    best.splice(at, 0, j);
    if (best.length > count) best.pop();
  }
  return best;
}

/** - sum w ln w. @param {ArrayLike<number>} row @returns {number} */
export function entropyOf(row) {
  let sum = 0;
  for (let j = 0; j < row.length; j++) if (row[j] > 0) sum -= row[j] * Math.log(row[j]);
  return sum;
}
