// Sources of attention weights: rows, tiles and pairs of any head. LocalSource computes them from tensors in the page.

/** @import { Parsed, Place, RecordInfo, Tensor } from "./record.js" */
/** @import { HeadParams } from "./head_params.js" */
/** @import { Box, Pair, Tile } from "./weights.js" */
import { fromBase64, measureMap } from "./record.js";
import { readHeadParams } from "./head_params.js";
import { gradientRow } from "./gradients.js";
import { fillRow, MAX_EXACT, breakDownScore, computeTile } from "./weights.js";

/** "weights"; "norms": weight × value norm, as shares; "gradient": weight × |gradient|, as shares;
 * or "map:" and the name of a stored attribution map. @typedef {string} Measure */
/** @typedef {{values: Float32Array, rows: number, cols: number}} Small */

/** The head number that stands for the mean over all heads. */
export const ALL_HEADS = -1;
const MAX_ROWS = 1024;

/** The base class of local and remote sources. */
export class Source {
  /** @param {Parsed} record */
  constructor(record) {
    this.record = record;
    /** @type {RecordInfo} */
    this.info = record.info;
    /** @type {((prefix: number[]) => Promise<void>) | null} */
    this.rewrite = null;
    /** Runs the model with changed heads; null where no model is available. @type {((changes: import("./remote.js").HeadChange[]) => Promise<import("./remote.js").InterventionResult>) | null} */
    this.intervene = null;
    /** Whether an estimate of a tile is faster than the exact tile. */
    this.estimatesFirst = false;
    /** @type {Map<string, Promise<Float32Array>>} */
    this.rows = new Map();
    /** @type {Map<string, Promise<Float32Array>>} */
    this.columns = new Map();
    /** Decoded values of stored attribution maps. @type {Map<import("./record.js").MeasureMap, Float32Array>} */
    this.maps = new Map();
  }

  /** @param {string} name @returns {Tensor | null} */
  tensor(name) {
    return this.record.tensors.get(name) ?? null;
  }

  /** The heads of a place whose maps can be recomputed. @param {number} number @returns {number[]} */
  heads(number) {
    return this.info.places[number].stored?.heads ?? [];
  }

  /** @param {number} number @param {number} head */
  readable(number, head) {
    const heads = this.heads(number);
    return head === ALL_HEADS ? heads.length > 0 : heads.includes(head);
  }

  /** Why a map cannot be recomputed. @param {number} number @param {number} head */
  why(number, head) {
    const place = this.info.places[number];
    if (place.stored === null) return place.why || "Only statistics were stored for this place.";
    return `Only statistics were stored for head ${head}.`;
  }

  /** The heads whose mean is shown: one head, or all. @param {number} number @param {number} head */
  averagedHeads(number, head) {
    return head === ALL_HEADS ? this.heads(number) : [head];
  }

  /** Whether a place has the tensors of a measure. @param {number} number @param {Measure} measure */
  has(number, measure) {
    const needed = { weights: null, norms: "value_norms", gradient: "output_grads" }[measure];
    if (needed === undefined) return this.fits(number, measure);
    return needed === null || this.tensor(`${number}.${needed}`) !== null;
  }

  /** Whether the stored map of a measure has the queries and keys of a place. @param {number} number @param {Measure} measure */
  fits(number, measure) {
    const { queries, keys, T, S } = this.info.places[number];
    const map = measureMap(this.info, number, measure);
    return map !== null && map.rows === queries && map.cols === keys && map.shape[0] === T && map.shape[1] === S;
  }

  /** The values of a stored attribution map. @param {import("./record.js").MeasureMap} map @returns {Float32Array} */
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
   * The factors of a query's weights, for all keys, before the products are normalised.
   * @param {number} number @param {number} head @param {number} query @param {Measure} measure @returns {Float32Array | null}
   */
  factors(number, head, query, measure) {
    if (measure === "weights") return null;
    const S = this.info.places[number].S;
    if (measure === "gradient") return gradientRow(this.record, number, head, query);
    const all = /** @type {Float32Array} */ (this.tensor(`${number}.value_norms`)?.numbers);
    return all.subarray(head * S, (head + 1) * S);
  }

  /** What an attention sink took of a query; null where there is none. @param {number} number @param {number} head @param {number} query @returns {number | null} */
  sinkShare(number, head, query) {
    const found = this.tensor(`${number}.sink`);
    if (found === null) return null;
    const { T, heads } = this.info.places[number];
    if (head !== ALL_HEADS) return found.numbers[head * T + query];
    let sum = 0;
    for (let h = 0; h < heads; h++) sum += found.numbers[h * T + query];
    return sum / heads;
  }

  /** The thumbnail of the map; null where there is none. @param {number} number @param {number} head @returns {Small | null} */
  thumbnail(number, head) {
    const found = this.tensor(`${number}.thumbnail`);
    const peaks = this.tensor(`${number}.thumbnail_peak`);
    if (found === null || peaks === null) return null;
    const [, rows, cols] = found.shape;
    const values = new Float32Array(rows * cols);
    const place = this.info.places[number];
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
   * The weights of a query for all keys; NaN where they are unknown.
   * @param {number} number @param {number} head @param {number} query @param {Measure} [measure] @returns {Promise<Float32Array>}
   */
  row(number, head, query, measure = "weights") {
    const name = `${number} ${head} ${query} ${measure}`;
    const known = this.rows.get(name);
    if (known !== undefined) return known;
    const pending = this.mean(number, head, query, measure);
    this.rows.set(name, pending);
    pending.catch(() => this.rows.delete(name));
    if (this.rows.size > MAX_ROWS) this.rows.delete(/** @type {string} */ (this.rows.keys().next().value));
    return pending;
  }

  /**
   * The weights of all queries for a key; NaN where they are unknown.
   * @param {number} number @param {number} head @param {number} key @param {Measure} [measure] @returns {Promise<Float32Array>}
   */
  column(number, head, key, measure = "weights") {
    const name = `${number} ${head} ${key} ${measure}`;
    const known = this.columns.get(name);
    if (known !== undefined) return known;
    const map = measureMap(this.info, number, measure);
    const T = map?.shape[0] ?? this.info.places[number].T;
    const box = { top: 0, bottom: T, left: key, right: key + 1 };
    const readable = map !== null || this.readable(number, head);
    const pending = readable ? this.tile(number, head, box, T, 1, measure).then(({ values }) => values) : Promise.resolve(new Float32Array(T).fill(NaN));
    this.columns.set(name, pending);
    pending.catch(() => this.columns.delete(name));
    if (this.columns.size > MAX_ROWS) this.columns.delete(/** @type {string} */ (this.columns.keys().next().value));
    return pending;
  }

  /** @param {number} number @param {number} head @param {number} query @param {Measure} measure @returns {Promise<Float32Array>} */
  async mean(number, head, query, measure) {
    const place = this.info.places[number];
    const map = measureMap(this.info, number, measure);
    if (map !== null) return this.mapValues(map).slice(query * map.shape[1], (query + 1) * map.shape[1]);
    if (!this.readable(number, head)) return this.topWeights(number, head, query);
    const heads = this.averagedHeads(number, head);
    const sum = new Float32Array(place.S);
    for (const h of heads) {
      const row = await this.weights(number, h, query);
      const factors = this.factors(number, h, query, measure);
      const share = (factors === null ? 1 : normaliser(row, factors)) / heads.length;
      for (let j = 0; j < row.length; j++) sum[j] += row[j] * (factors === null ? 1 : factors[j]) * share;
    }
    return sum;
  }

  /** The largest weights of a row, from the statistics; NaN elsewhere. @param {number} number @param {number} head @param {number} query */
  topWeights(number, head, query) {
    const row = new Float32Array(this.info.places[number].S).fill(NaN);
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
   * @param {number} [maxExact] weights, beyond which an estimate is returned @returns {Promise<Tile>}
   */
  async tile(number, head, box, rows, cols, measure = "weights", signal = undefined, maxExact = MAX_EXACT) {
    const map = measureMap(this.info, number, measure);
    if (map !== null) return { values: meanCells(this.mapValues(map), map.shape[1], box, rows, cols), exact: true };
    const heads = this.averagedHeads(number, head);
    let exact = true;
    const values = new Float32Array(rows * cols);
    for (const h of heads) {
      const one = await this.tileOf(number, h, box, rows, cols, measure, signal, maxExact);
      exact = exact && one.exact;
      for (let at = 0; at < values.length; at++) values[at] += one.values[at] / heads.length;
    }
    return { values, exact };
  }

  /** @param {number} number @param {number} head @param {Box} box @param {number} rows @param {number} cols
   * @param {Measure} measure @param {AbortSignal} [signal] @param {number} [maxExact] @returns {Promise<Tile>} */
  tileOf(number, head, box, rows, cols, measure, signal, maxExact) {
    throw new Error(`no tile of ${[number, head, box.top, rows, cols, measure, signal, maxExact].join(", ")}`);
  }

  /** @param {number} number @param {number} head @param {number} query @param {number} key @returns {Promise<Pair>} */
  pair(number, head, query, key) {
    throw new Error(`no pair of ${number}, ${head}, ${query}, ${key}`);
  }
}

/** The source of a record whose tensors are all in the page. */
export class LocalSource extends Source {
  /** @param {Parsed} record */
  constructor(record) {
    super(record);
    this.estimatesFirst = true;
    /** @type {Map<string, HeadParams>} */
    this.headParams = new Map();
    /** Normalisers of the products of each row, by place, head and measure; NaN: not computed yet. @type {Map<string, Float64Array>} */
    this.shares = new Map();
  }

  /** @param {number} number @param {number} head @returns {HeadParams} */
  params(number, head) {
    const name = `${number} ${head}`;
    const params = this.headParams.get(name) ?? readHeadParams(this.record, number, head);
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
   * @param {Measure} measure @param {AbortSignal} [signal] @param {number} [maxExact] @returns {Promise<Tile>} */
  async tileOf(number, head, box, rows, cols, measure, signal, maxExact) {
    signal?.throwIfAborted();
    const change = measure === "weights" ? null : this.measureRow(number, head, measure);
    return computeTile(this.params(number, head), box, rows, cols, change, signal, maxExact);
  }

  /** Turns a part of a row of weights into normalised shares of a measure. @param {number} number @param {number} head @param {Measure} measure */
  measureRow(number, head, measure) {
    const params = this.params(number, head);
    const name = `${number} ${head} ${measure}`;
    const shares = this.shares.get(name) ?? new Float64Array(params.T).fill(NaN);
    this.shares.set(name, shares);
    const whole = new Float32Array(params.S);
    return (/** @type {number} */ i, /** @type {number} */ left, /** @type {Float32Array} */ row) => {
      const factors = /** @type {Float32Array} */ (this.factors(number, head, i, measure));
      if (Number.isNaN(shares[i])) {
        fillRow(params, i, 0, params.S, whole);
        shares[i] = normaliser(whole, factors);
      }
      for (let j = 0; j < row.length; j++) row[j] *= factors[left + j] * shares[i];
    };
  }

  /** @override @param {number} number @param {number} head @param {number} query @param {number} key @returns {Promise<Pair>} */
  async pair(number, head, query, key) {
    return breakDownScore(this.params(number, head), query, key);
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

/** 1 / the sum of all products; 0 where the sum is 0. @param {Float32Array} row @param {Float32Array} factors */
function normaliser(row, factors) {
  let total = 0;
  for (let j = 0; j < row.length; j++) total += row[j] * factors[j];
  return total > 0 ? 1 / total : 0;
}
