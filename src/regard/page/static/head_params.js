// The parameters that reproduce one head's attention weights: its slices of the stored tensors.

/** @import { Parsed } from "./record.js" */

/** Stored tensors, sliced to one head. Query i may attend to keys from first[i] to before last[i], less the gaps of `visibleTable`.
 * @typedef {{T: number, S: number, D: number, queries: Int16Array, queriesScale: Float32Array, keys: Int16Array,
 *   keysScale: Float32Array, keyCentres: Float32Array, vector: Float32Array | null, first: Int32Array, last: Int32Array,
 *   visibleTable: Uint8Array | null, bias: Float32Array | null, biasKind: string | null,
 *   biasRows: number, biasCols: number, biasStarts: Int32Array | null, lse: Float32Array,
 *   windowCentre: Float32Array | null, halfWidth: number, cap: number | null, alpha: number | null}} HeadParams */

/**
 * The parameters of a head; null where they were not stored.
 * @param {Parsed} record @param {number} number of the place @param {number} head @returns {HeadParams | null}
 */
export function readHeadParams(record, number, head) {
  const place = record.info.places[number];
  const stored = place.stored;
  const at = stored === null ? -1 : stored.heads.indexOf(head);
  const get = (/** @type {string} */ name) => record.tensors.get(`${number}.${name}`) ?? null;
  const queries = get("queries");
  if (stored === null || at < 0 || queries === null) return null;
  const { T, S } = place;
  const D = queries.shape[2];
  const g = stored.key_heads[at];
  /** The `index`th slice of `size` numbers. @param {string} name @param {number} index @param {number} size */
  const part = (name, index, size) => {
    const found = get(name);
    return found === null ? null : /** @type {any} */ (found.numbers.subarray(index * size, (index + 1) * size));
  };
  /** The slice of this head, or the only one where all heads share it. @param {string} name @param {number} size */
  const shared = (name, size) => part(name, (get(name)?.shape[0] ?? 0) > 1 ? head : 0, size);
  const [, biasRows = 0, biasCols = 0] = get("bias")?.shape ?? [];
  const biasSize = { distance: T + S - 1, key: S, pair: T * S, block: biasRows * biasCols }[stored.bias ?? "key"];
  return {
    T, S, D,
    queries: part("queries", at, T * D), queriesScale: part("queries_scale", at, D),
    keys: part("keys", g, S * D), keysScale: part("keys_scale", g, D), keyCentres: part("keys_centre", g, D),
    vector: /** @type {Float32Array | null} */ (get("vector")?.numbers ?? null),
    first: shared("first", T), last: shared("last", T), visibleTable: shared("mask", T * S),
    bias: stored.bias === null ? null : shared("bias", biasSize), biasKind: stored.bias,
    biasRows, biasCols, biasStarts: /** @type {Int32Array | null} */ (get("bias_starts")?.numbers ?? null),
    lse: part("lse", at, T), windowCentre: shared("centre", T), halfWidth: stored.half_width ?? 0,
    cap: stored.cap ?? null, alpha: stored.alpha ?? null,
  };
}

/** A score after its soft cap. @param {HeadParams} params @param {number} score */
export function softCap(params, score) {
  return params.cap === null ? score : params.cap * Math.tanh(score / params.cap);
}

/** The weight of a score: of a softmax, whose lse may hold a sink, or of an entmax, whose lse is the threshold.
 * @param {HeadParams} params @param {number} score @param {number} lse */
export function weightOf(params, score, lse) {
  if (params.alpha === null) return Math.exp(Math.min(0, score - lse));
  return Math.max(0, (params.alpha - 1) * score - lse) ** (1 / (params.alpha - 1));
}

/** The bias that is added to the score of a pair. @param {HeadParams} params @param {number} i @param {number} j */
export function biasOf(params, i, j) {
  if (params.bias === null) return 0;
  if (params.biasKind === "key") return params.bias[j];
  if (params.biasKind === "distance") return params.bias[j - i + params.T - 1];
  if (params.biasStarts !== null) {
    const at = j - params.biasStarts[i]; // counted from the first key of the query's block
    return at < 0 || at >= params.biasCols ? 0 : params.bias[(i % params.biasRows) * params.biasCols + at];
  }
  return params.bias[i * params.S + j];
}

/** Whether query i may attend to key j. @param {HeadParams} params @param {number} i @param {number} j */
export function isVisible(params, i, j) {
  if (j < params.first[i] || j >= params.last[i]) return false;
  if (params.visibleTable !== null && params.visibleTable[i * params.S + j] === 0) return false;
  return params.windowCentre === null || Math.abs(j - params.windowCentre[i]) <= params.halfWidth;
}
