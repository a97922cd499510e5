// Where weights come from. A source answers for rows, tiles and pairs of any head; this one has all numbers in the page.

/** @import { Parsed, Place, Told, Tensor } from "./record.js" */
/** @import { HeadParams } from "./head_params.js" */
/** @import { Box, Pair, Tile } from "./weights.js" */
import { fromBase64, measureMap } from "./record.js";
import { headParamsOf } from "./head_params.js";
import { gradientsOf } from "./gradients.js";
import { fillRow, MOST_EXACT, pairOf, shrunkTile } from "./weights.js";

/** "weights"; "norms": shares of the lengths that arrive; "gradient": shares of what weights did for what was said, with either sign;
 * or the name of a map that was computed beforehand, after "map:". @typedef {string} Measure */
/** @typedef {{values: Float32Array, rows: number, cols: number}} Small */

/** The mean over all heads is asked for as this one. */
export const ALL_HEADS = -1;
const ROWS_KEPT = 1024;

/** What local and remote sources share. */
export class Source {
  /** @param {Parsed} record */
  constructor(record) {
    this.record = record;
    /** @type {Told} */
    this.told = record.told;
    /** @type {((prefix: number[]) => Promise<void>) | null} */
    this.rewrite = null;
    /** What a changed model says; null where there is none to ask. @type {((changes: import("./remote.js").Change[]) => Promise<import("./remote.js").Outcome>) | null} */
    this.intervene = null;
    /** Whether a rough tile comes sooner than an exact one. */
    this.rough = false;
    /** @type {Map<string, Promise<Float32Array>>} */
    this.rows = new Map();
    /** Numbers of the maps that were computed beforehand. @type {Map<import("./record.js").MeasureMap, Float32Array>} */
    this.maps = new Map();
  }

  /** @param {string} name @returns {Tensor | null} */
  tensor(name) {
    return this.record.tensors.get(name) ?? null;
  }

  /** The heads of a place whose maps can be read. @param {number} number @returns {number[]} */
  heads(number) {
    return this.told.places[number].kept?.heads ?? [];
  }

  /** @param {number} number @param {number} head */
  readable(number, head) {
    const heads = this.heads(number);
    return head === ALL_HEADS ? heads.length > 0 : heads.includes(head);
  }

  /** Why a map cannot be read. @param {number} number @param {number} head */
  why(number, head) {
    const place = this.told.places[number];
    if (place.kept === null) return `Only statistics were kept here${place.why ? `: ${place.why}` : ""}.`;
    return `Of head ${head} only statistics were kept.`;
  }

  /** Heads that stand behind a head, or behind the mean. @param {number} number @param {number} head */
  behind(number, head) {
    return head === ALL_HEADS ? this.heads(number) : [head];
  }

  /** Whether a place knows what a measure needs. @param {number} number @param {Measure} measure */
  has(number, measure) {
    const needed = { weights: null, norms: "value_norms", gradient: "asks" }[measure];
    if (needed === undefined) return this.fits(number, measure);
    return needed === null || this.tensor(`${number}.${needed}`) !== null;
  }

  /** Whether the map of a measure has the queries and the keys of a place. @param {number} number @param {Measure} measure */
  fits(number, measure) {
    const { queries, keys, T, S } = this.told.places[number];
    const map = measureMap(this.told, number, measure);
    return map !== null && map.rows === queries && map.cols === keys && map.shape[0] === T && map.shape[1] === S;
  }

  /** The numbers of a map that was computed beforehand. @param {import("./record.js").MeasureMap} map @returns {Float32Array} */
  mapValues(map) {
    const known = this.maps.get(map);
    if (known !== undefined) return known;
    const bytes = fromBase64(map.values);
    if (bytes.length !== 4 * map.shape[0] * map.shape[1]) throw new Error(`The map of ${map.title} is damaged.`);
    const values = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
    this.maps.set(map, values);
    return values;
  }

  /**
   * What the weights of a query are multiplied with, for all keys, before they are made shares.
   * @param {number} number @param {number} head @param {number} query @param {Measure} measure @returns {Float32Array | null}
   */
  factors(number, head, query, measure) {
    if (measure === "weights") return null;
    const S = this.told.places[number].S;
    if (measure === "gradient") return gradientsOf(this.record, number, head, query);
    const all = /** @type {Float32Array} */ (this.tensor(`${number}.value_norms`)?.numbers);
    return all.subarray(head * S, (head + 1) * S);
  }

  /** The whole map, shrunk; null where there is none. @param {number} number @param {number} head @returns {Small | null} */
  thumbnail(number, head) {
    const found = this.tensor(`${number}.thumbnail`);
    const peaks = this.tensor(`${number}.thumbnail_peak`);
    if (found === null || peaks === null) return null;
    const [, rows, cols] = found.shape;
    const values = new Float32Array(rows * cols);
    const place = this.told.places[number];
    const heads = head === ALL_HEADS ? Array.from({ length: place.heads }, (_, h) => h) : [head];
    for (const h of heads) {
      const peak = peaks.numbers[h] / heads.length;
      for (let at = 0; at < values.length; at++) {
        const step = found.numbers[h * values.length + at] / 255;
        values[at] += step * step * peak;
      }
    }
    return { values, rows, cols };
  }

  /**
   * Weights of a query for all keys; NaN where nothing is known.
   * @param {number} number @param {number} head @param {number} query @param {Measure} [measure] @returns {Promise<Float32Array>}
   */
  row(number, head, query, measure = "weights") {
    const name = `${number} ${head} ${query} ${measure}`;
    const known = this.rows.get(name);
    if (known !== undefined) return known;
    const coming = this.mean(number, head, query, measure);
    this.rows.set(name, coming);
    coming.catch(() => this.rows.delete(name));
    if (this.rows.size > ROWS_KEPT) this.rows.delete(/** @type {string} */ (this.rows.keys().next().value));
    return coming;
  }

  /** @param {number} number @param {number} head @param {number} query @param {Measure} measure @returns {Promise<Float32Array>} */
  async mean(number, head, query, measure) {
    const place = this.told.places[number];
    const map = measureMap(this.told, number, measure);
    if (map !== null) return this.mapValues(map).slice(query * map.shape[1], (query + 1) * map.shape[1]);
    if (!this.readable(number, head)) return this.known(number, head, query);
    const heads = this.behind(number, head);
    const sum = new Float32Array(place.S);
    for (const h of heads) {
      const row = await this.weights(number, h, query);
      const factors = this.factors(number, h, query, measure);
      const share = (factors === null ? 1 : shareOf(row, factors)) / heads.length;
      for (let j = 0; j < row.length; j++) sum[j] += row[j] * (factors === null ? 1 : factors[j]) * share;
    }
    return sum;
  }

  /** What statistics know of a row: its largest weights. @param {number} number @param {number} head @param {number} query */
  known(number, head, query) {
    const row = new Float32Array(this.told.places[number].S).fill(NaN);
    const values = this.tensor(`${number}.top_values`);
    const indices = this.tensor(`${number}.top_indices`);
    if (values === null || indices === null || head === ALL_HEADS) return row;
    const [, T, count] = values.shape;
    for (let n = 0, at = (head * T + query) * count; n < count; n++, at++) {
      if (indices.numbers[at] >= 0) row[indices.numbers[at]] = values.numbers[at];
    }
    return row;
  }

  /** @param {number} number @param {number} head @param {number} query @returns {Promise<Float32Array>} */
  weights(number, head, query) {
    throw new Error(`no weights of ${number}, ${head}, ${query}`);
  }

  /**
   * @param {number} number @param {number} head @param {Box} box @param {number} rows @param {number} cols
   * @param {Measure} [measure] @param {AbortSignal} [signal]
   * @param {number} [most] weights, beyond which an estimate will do @returns {Promise<Tile>}
   */
  async tile(number, head, box, rows, cols, measure = "weights", signal = undefined, most = MOST_EXACT) {
    const map = measureMap(this.told, number, measure);
    if (map !== null) return { values: meanCells(this.mapValues(map), map.shape[1], box, rows, cols), exact: true };
    const heads = this.behind(number, head);
    let exact = true;
    const values = new Float32Array(rows * cols);
    for (const h of heads) {
      const one = await this.tileOf(number, h, box, rows, cols, measure, signal, most);
      exact = exact && one.exact;
      for (let at = 0; at < values.length; at++) values[at] += one.values[at] / heads.length;
    }
    return { values, exact };
  }

  /** @param {number} number @param {number} head @param {Box} box @param {number} rows @param {number} cols
   * @param {Measure} measure @param {AbortSignal} [signal] @param {number} [most] @returns {Promise<Tile>} */
  tileOf(number, head, box, rows, cols, measure, signal, most) {
    throw new Error(`no tile of ${[number, head, box.top, rows, cols, measure, signal, most].join(", ")}`);
  }

  /** @param {number} number @param {number} head @param {number} query @param {number} key @returns {Promise<Pair>} */
  pair(number, head, query, key) {
    throw new Error(`no pair of ${number}, ${head}, ${query}, ${key}`);
  }
}

/** All numbers are in the page. */
export class LocalSource extends Source {
  /** @param {Parsed} record */
  constructor(record) {
    super(record);
    this.rough = true;
    /** @type {Map<string, HeadParams>} */
    this.headParams = new Map();
    /** What turns products into shares, by place, head and measure; NaN: not yet known. @type {Map<string, Float64Array>} */
    this.shares = new Map();
  }

  /** @param {number} number @param {number} head @returns {HeadParams} */
  params(number, head) {
    const name = `${number} ${head}`;
    const params = this.headParams.get(name) ?? headParamsOf(this.record, number, head);
    if (params === null) throw new Error(this.why(number, head));
    this.headParams.set(name, params);
    return params;
  }

  /** @override @param {number} number @param {number} head @param {number} query @returns {Promise<Float32Array>} */
  async weights(number, head, query) {
    const params = this.params(number, head);
    const row = new Float32Array(params.S);
    fillRow(params, query, 0, params.S, row);
    return row;
  }

  /** @override @param {number} number @param {number} head @param {Box} box @param {number} rows @param {number} cols
   * @param {Measure} measure @param {AbortSignal} [signal] @param {number} [most] @returns {Promise<Tile>} */
  async tileOf(number, head, box, rows, cols, measure, signal, most) {
    signal?.throwIfAborted();
    const change = measure === "weights" ? null : this.changed(number, head, measure);
    return shrunkTile(this.params(number, head), box, rows, cols, change, signal, most);
  }

  /** Turns a part of a row of weights into shares. @param {number} number @param {number} head @param {Measure} measure */
  changed(number, head, measure) {
    const params = this.params(number, head);
    const name = `${number} ${head} ${measure}`;
    const shares = this.shares.get(name) ?? new Float64Array(params.T).fill(NaN);
    this.shares.set(name, shares);
    const whole = new Float32Array(params.S);
    return (/** @type {number} */ i, /** @type {number} */ left, /** @type {Float32Array} */ row) => {
      const factors = /** @type {Float32Array} */ (this.factors(number, head, i, measure));
      if (Number.isNaN(shares[i])) {
        fillRow(params, i, 0, params.S, whole);
        shares[i] = shareOf(whole, factors);
      }
      for (let j = 0; j < row.length; j++) row[j] *= factors[left + j] * shares[i];
    };
  }

  /** @override @param {number} number @param {number} head @param {number} query @param {number} key @returns {Promise<Pair>} */
  async pair(number, head, query, key) {
    return pairOf(this.params(number, head), query, key);
  }
}

/** Means of the cells of a box of a map with S columns. @param {Float32Array} map @param {number} S @param {Box} box @param {number} rows @param {number} cols */
function meanCells(map, S, { top, bottom, left, right }, rows, cols) {
  const [sums, counts] = [new Float32Array(rows * cols), new Float32Array(rows * cols)];
  for (let i = top; i < bottom; i++) {
    const row = Math.floor(((i - top) * rows) / (bottom - top)) * cols;
    for (let j = left; j < right; j++) {
      const at = row + Math.floor(((j - left) * cols) / (right - left));
      sums[at] += map[i * S + j];
      counts[at]++;
    }
  }
  return sums.map((sum, at) => sum / counts[at]);
}

/** One over the sum of all products; 0 where there is nothing. @param {Float32Array} row @param {Float32Array} factors */
function shareOf(row, factors) {
  let total = 0;
  for (let j = 0; j < row.length; j++) total += row[j] * factors[j];
  return total > 0 ? 1 / total : 0;
}
