// What the weights of one head come from: its part of the numbers that were kept.

/** @import { Parsed } from "./record.js" */

/** What one head's weights come from; `first`, `last`, ... are cut to this head.
 * @typedef {{T: number, S: number, D: number, queries: Int16Array, queriesScale: Float32Array, keys: Int16Array,
 *   keysScale: Float32Array, centres: Float32Array, vector: Float32Array | null, first: Int32Array, last: Int32Array,
 *   sight: Uint8Array | null, added: Float32Array | null, addedKind: string | null, lse: Float32Array,
 *   middle: Float32Array | null, halfWidth: number}} HeadParams */

/**
 * What the weights of a head come from; null where they were not kept.
 * @param {Parsed} record @param {number} number of the place @param {number} head @returns {HeadParams | null}
 */
export function headParamsOf(record, number, head) {
  const place = record.told.places[number];
  const kept = place.kept;
  const at = kept === null ? -1 : kept.heads.indexOf(head);
  const get = (/** @type {string} */ name) => record.tensors.get(`${number}.${name}`) ?? null;
  const queries = get("queries");
  if (kept === null || at < 0 || queries === null) return null;
  const { T, S } = place;
  const D = queries.shape[2];
  const g = kept.key_heads[at];
  /** A run of `size` numbers, the `index`th. @param {string} name @param {number} index @param {number} size */
  const part = (name, index, size) => {
    const found = get(name);
    return found === null ? null : /** @type {any} */ (found.numbers.subarray(index * size, (index + 1) * size));
  };
  /** The same for what all heads may share. @param {string} name @param {number} size */
  const shared = (name, size) => part(name, (get(name)?.shape[0] ?? 0) > 1 ? head : 0, size);
  const addedSize = { distance: T + S - 1, key: S, pair: T * S }[kept.added ?? "key"];
  return {
    T, S, D,
    queries: part("queries", at, T * D), queriesScale: part("queries_scale", at, D),
    keys: part("keys", g, S * D), keysScale: part("keys_scale", g, D), centres: part("keys_centre", g, D),
    vector: /** @type {Float32Array | null} */ (get("vector")?.numbers ?? null),
    first: shared("first", T), last: shared("last", T), sight: shared("sight", T * S),
    added: kept.added === null ? null : shared("added", addedSize), addedKind: kept.added,
    lse: part("lse", at, T), middle: shared("centre", T), halfWidth: kept.half_width ?? 0,
  };
}

/** What a bias adds to the score of a pair. @param {HeadParams} params @param {number} i @param {number} j */
export function addedTo(params, i, j) {
  if (params.added === null) return 0;
  if (params.addedKind === "key") return params.added[j];
  if (params.addedKind === "distance") return params.added[j - i + params.T - 1];
  return params.added[i * params.S + j];
}

/** Whether query i may look at key j. @param {HeadParams} params @param {number} i @param {number} j */
export function sees(params, i, j) {
  if (j < params.first[i] || j >= params.last[i]) return false;
  if (params.sight !== null && params.sight[i * params.S + j] === 0) return false;
  return params.middle === null || Math.abs(j - params.middle[i]) <= params.halfWidth;
}
