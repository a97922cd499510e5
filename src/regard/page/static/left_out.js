// Keys that are left out of a map: the class token, registers, attention sinks. The rest of each query's weight is renormalised.

/** @import { PatchMap } from "./patches.js" */
/** @import { TokenAxis } from "./record.js" */
/** @import { Measure, Source } from "./source.js" */
import { MAP_PREFIX, measureMap } from "./record.js";
import { yieldToBrowser } from "./weights.js";

/** @typedef {"class" | "registers" | "sinks"} Kind */
/** @type {Record<Kind, string>} */
export const LEFT_OUT_KINDS = { class: "class token", registers: "registers", sinks: "sinks" };

const CLASS_TOKEN = /^[[<]?(cls|class|dist|distillation)([\s_-]*token)?[\]>]?$/i;
const REGISTER = /^[[<]?(reg|register|storage)([\s_-]*token)?[\s_-]*\d*[\]>]?$/i;
const SINK_QUERIES = 24; // evenly spaced queries that are asked for sinks
const SINK_SHARE = 0.75; // of the queries, that must give a sink ...
const SINK_TIMES = 4; // ... so many times the weight that uniform attention would give it

/** The class and register tokens of an axis. @param {TokenAxis} axis @param {PatchMap} patches @returns {{class: number[], registers: number[]}} */
export function specialTokens(axis, patches) {
  const like = (/** @type {RegExp} */ form) => patches.others.filter((at) => form.test(axis.tokens[at] ?? ""));
  return { class: like(CLASS_TOKEN), registers: like(REGISTER) };
}

/** A map: its place, head and measure, and the numbers of its queries and keys. @typedef {{place: number, head: number, measure: Measure, T: number, S: number}} MapShape */

/** A map without some of its keys. */
export class LeftOut {
  /** @param {Source} source @param {MapShape} map @param {Set<number>} keys @param {boolean} sink whether the share of a learned sink is left out too */
  constructor(source, map, keys, sink) {
    this.source = source;
    this.map = map;
    this.keys = keys;
    this.sink = sink && map.measure === "weights" && source.tensor(`${map.place}.sink`) !== null;
    /** What was left out of each query, and the whole of its row. @type {Promise<{removed: Float32Array, total: Float32Array}> | null} */
    this.sums = null;
  }

  get isEmpty() {
    return this.keys.size === 0 && !this.sink;
  }

  /** The row of a query, and the share of it that was left out. @param {number} query @returns {Promise<{values: Float32Array, removed: number}>} */
  async row(query) {
    const { place, head, measure } = this.map;
    const row = await this.source.row(place, head, query, measure);
    if (this.isEmpty) return { values: row, removed: 0 };
    let removed = this.sinkOf(query);
    for (const key of this.keys) removed += row[key] || 0;
    const factor = isSigned(row) ? 1 : scaleWithout(removed, this.totalOf(row));
    const values = row.map((value, key) => (this.keys.has(key) ? 0 : value * factor));
    return { values, removed };
  }

  /** The column of a key. @param {number} key @returns {Promise<Float32Array>} */
  async column(key) {
    const { place, head, measure, T } = this.map;
    if (this.keys.has(key)) return new Float32Array(T);
    const column = await this.source.column(place, head, key, measure);
    if (this.isEmpty) return column;
    const { removed, total } = await (this.sums ??= this.sumsOfAll());
    const signed = isSigned(column);
    return column.map((value, query) => (signed ? value : value * scaleWithout(removed[query], total[query])));
  }

  /** @param {number} query */
  sinkOf(query) {
    return this.sink ? this.source.sinkShare(this.map.place, this.map.head, query) ?? 0 : 0;
  }

  /** The whole of a row: 1, but for a stored map. @param {Float32Array} row */
  totalOf(row) {
    return this.map.measure.startsWith(MAP_PREFIX) ? row.reduce((sum, one) => sum + (one || 0), 0) : 1;
  }

  async sumsOfAll() {
    const { place, head, measure, T } = this.map;
    const [removed, total] = [new Float32Array(T), new Float32Array(T).fill(1)];
    for (let query = 0; query < T; query++) removed[query] = this.sinkOf(query);
    for (const key of this.keys) {
      const column = await this.source.column(place, head, key, measure);
      for (let query = 0; query < T; query++) removed[query] += column[query] || 0;
    }
    const map = measureMap(this.source.info, place, measure);
    if (map !== null) {
      const values = this.source.mapValues(map);
      for (let query = 0; query < T; query++) total[query] = this.totalOf(values.subarray(query * map.shape[1], (query + 1) * map.shape[1]));
    }
    return { removed, total };
  }
}

/** Maps with negative values stay as they are: their sum means little. @param {Float32Array} values */
function isSigned(values) {
  return values.some((value) => value < 0);
}

/** What the rest is multiplied by, so that the whole stays what it was. @param {number} removed @param {number} total */
function scaleWithout(removed, total) {
  return total - removed > 1e-6 * total ? total / (total - removed) : 0;
}

/** Attention sinks: keys to which most queries, whatever they are, give far more than uniform attention would. @param {Source} source @param {MapShape} map @returns {Promise<number[]>} */
export async function findSinks(source, { place, head, measure, T, S }) {
  const count = Math.min(SINK_QUERIES, T);
  if (count < 4 || S < 2 * SINK_TIMES) return [];
  const large = new Int32Array(S);
  for (let n = 0; n < count; n++) {
    const row = await source.row(place, head, Math.floor(((n + 0.5) * T) / count), measure);
    const total = row.reduce((sum, one) => sum + (one || 0), 0);
    for (let key = 0; key < S; key++) if (row[key] > (SINK_TIMES * total) / S) large[key]++;
    await yieldToBrowser();
  }
  return [...large.keys()].filter((key) => large[key] >= SINK_SHARE * count);
}
