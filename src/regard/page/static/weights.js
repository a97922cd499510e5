// The attention weights of one head, recomputed from its stored queries and keys.

/** @import { HeadParams } from "./head_params.js" */
import { biasOf, isVisible, softCap, weightOf } from "./head_params.js";

/** Queries from top to bottom, keys from left to right. @typedef {{top: number, bottom: number, left: number, right: number}} Box */
/** @typedef {{values: Float32Array, exact: boolean}} Tile */

export const MAX_EXACT = 4096 * 4096;
const QUERIES_PER_KEY = 4; // queries that share one read of each key
const MAX_WIDENED = 16;
const SLICE_MS = 12; // milliseconds of computation before yielding to the browser

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
  const query = scaledQuery(params, i);
  const compare = params.vector === null ? dot : additive;
  const plain = params.visibleTable === null && params.windowCentre === null;
  for (let j = from; j < to; j++) {
    if (!plain && !isVisible(params, i, j)) continue;
    const score = softCap(params, compare(params, query, j)) + (params.bias === null ? 0 : biasOf(params, i, j));
    let weight = weightOf(params, score, lse);
    if (params.windowCentre !== null) {
      const away = j - params.windowCentre[i];
      weight *= Math.exp((-2 * away * away) / (params.halfWidth * params.halfWidth));
    }
    out[j - left] = weight;
  }
}

/** fillRow for several queries; dot products of four queries at once, so that each key is read once.
 * @param {HeadParams} params @param {number[]} queries @param {number} left @param {number} right @param {Float32Array[]} out */
function fillRows(params, queries, left, right, out) {
  if (queries.length < QUERIES_PER_KEY || params.vector !== null || params.visibleTable !== null || params.windowCentre !== null) {
    queries.forEach((i, n) => fillRow(params, i, left, right, out[n]));
    return;
  }
  const from = Math.max(left, Math.min(...queries.map((i) => params.first[i])));
  const to = Math.min(right, Math.max(...queries.map((i) => params.last[i])));
  const [a, b, c, e] = queries.map((i) => scaledQuery(params, i));
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
  queries.forEach((i, n) => weighRow(params, i, left, right, out[n]));
}

/** Turns a row of dot products into weights. @param {HeadParams} params @param {number} i @param {number} left @param {number} right @param {Float32Array} row */
function weighRow(params, i, left, right, row) {
  const lse = params.lse[i];
  const from = lse === -Infinity ? right : Math.min(right, Math.max(left, params.first[i]));
  const to = Math.max(from, Math.min(right, params.last[i]));
  row.fill(0, 0, from - left);
  row.fill(0, to - left, right - left);
  for (let j = from; j < to; j++) {
    const added = params.bias === null ? 0 : biasOf(params, i, j);
    row[j - left] = weightOf(params, softCap(params, row[j - left]) + added, lse);
  }
}

/** Keys as float64, of the most recently used heads. @type {Map<Int16Array, Float64Array>} */
const widenedKeys = new Map();

/** @param {HeadParams} params @returns {Float64Array} */
function wideKeys(params) {
  const keys = widenedKeys.get(params.keys) ?? Float64Array.from(params.keys);
  widenedKeys.delete(params.keys);
  widenedKeys.set(params.keys, keys);
  if (widenedKeys.size > MAX_WIDENED) widenedKeys.delete(/** @type {Int16Array} */ (widenedKeys.keys().next().value));
  return keys;
}

/** Query i, dequantised; for dot products, multiplied by the scale of the keys. @param {HeadParams} params @param {number} i */
function scaledQuery(params, i) {
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
 * Mean weights in rows x cols cells of a box; `measure` may change each row of weights first. For more than `maxExact`
 * weights it is an estimate from evenly spaced queries of each row of cells. Yields to the browser in between.
 * @param {HeadParams} params @param {Box} box @param {number} rows @param {number} cols
 * @param {((i: number, left: number, row: Float32Array) => void) | null} [measure] @param {AbortSignal} [signal]
 * @param {number} [maxExact] @returns {Promise<Tile>}
 */
export async function computeTile(params, box, rows, cols, measure = null, signal = undefined, maxExact = MAX_EXACT) {
  const high = box.bottom - box.top;
  const width = box.right - box.left;
  const exact = high * width <= maxExact;
  const perCell = exact ? Infinity : Math.max(1, Math.floor(maxExact / 4 / (rows * width)));
  const sums = new Float64Array(rows * cols);
  const counts = new Int32Array(rows);
  const inCol = new Int32Array(cols);
  const cell = new Int32Array(width);
  for (let j = 0; j < width; j++) inCol[(cell[j] = Math.floor((j * cols) / width))]++;
  const picked = sampleQueries(high, rows, perCell);
  const lines = Array.from({ length: QUERIES_PER_KEY }, () => new Float32Array(width));
  let sliceStart = performance.now();
  for (let n = 0; n < picked.length; n += QUERIES_PER_KEY) {
    const some = picked.slice(n, n + QUERIES_PER_KEY).map((one) => box.top + one.at);
    fillRows(params, some, box.left, box.right, lines);
    some.forEach((i, at) => {
      const { row } = picked[n + at];
      const line = lines[at];
      if (measure !== null) measure(i, box.left, line);
      for (let j = 0; j < width; j++) sums[row * cols + cell[j]] += line[j];
      counts[row]++;
    });
    if (performance.now() - sliceStart > SLICE_MS) {
      await yieldToBrowser();
      signal?.throwIfAborted();
      sliceStart = performance.now();
    }
  }
  const values = new Float32Array(rows * cols);
  for (let at = 0; at < values.length; at++) {
    values[at] = sums[at] / Math.max(1, counts[Math.floor(at / cols)] * inCol[at % cols]);
  }
  return { values, exact };
}

/** The queries sampled for each row of cells: at maxExact `perCell`, evenly spaced. @param {number} high @param {number} rows @param {number} perCell */
function sampleQueries(high, rows, perCell) {
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
const resolvers = [];
channel.port1.onmessage = () => resolvers.shift()?.();

/** Resolves when the browser has had a chance to draw and to handle events; timers would wait longer. @returns {Promise<void>} */
export function yieldToBrowser() {
  return new Promise((resolve) => {
    resolvers.push(resolve);
    channel.port2.postMessage(null);
  });
}

/** `terms` sum to `score`, which its soft cap turns into `capped`.
 * @typedef {{q: number[], k: number[], terms: number[], score: number, capped: number, bias: number, lse: number, windowWeight: number, weight: number, visible: boolean}} Pair */

/** The terms of a pair's score, and its weight; keys include their centre. @param {HeadParams} params @param {number} i @param {number} j @returns {Pair} */
export function breakDownScore(params, i, j) {
  const { D, vector } = params;
  const q = Array.from({ length: D }, (_, d) => params.queries[i * D + d] * params.queriesScale[d]);
  const k = Array.from({ length: D }, (_, d) => params.keys[j * D + d] * params.keysScale[d] + params.keyCentres[d]);
  const terms = q.map((one, d) => (vector === null ? one * k[d] : vector[d] * Math.tanh(one + k[d])));
  // the centre of the keys adds the same to every score of a query, and so to the log-sum-exp
  const centre = vector === null ? q.reduce((sum, one, d) => sum + one * params.keyCentres[d], 0) : 0;
  const score = terms.reduce((sum, term) => sum + term, 0);
  const row = new Float32Array(1);
  fillRow(params, i, j, j + 1, row);
  const away = params.windowCentre === null ? 0 : j - params.windowCentre[i];
  const windowWeight = params.windowCentre === null ? 1 : Math.exp((-2 * away * away) / (params.halfWidth * params.halfWidth));
  return {
    q, k, terms, score, capped: softCap(params, score), bias: biasOf(params, i, j),
    lse: params.lse[i] + centre * (params.alpha === null ? 1 : params.alpha - 1), windowWeight, weight: row[0], visible: isVisible(params, i, j),
  };
}

/** The indices of the largest values of a row, in descending order, ties by index. @param {ArrayLike<number>} row @param {number} count @returns {number[]} */
export function topIndices(row, count) {
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

/** Entropy: - sum w ln w. @param {ArrayLike<number>} row @returns {number} */
export function entropyOf(row) {
  let sum = 0;
  for (let j = 0; j < row.length; j++) if (row[j] > 0) sum -= row[j] * Math.log(row[j]);
  return sum;
}
