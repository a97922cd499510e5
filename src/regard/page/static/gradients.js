// How much each weight of a query matters to what the model said: the size of gradient times value.

/** @import { Parsed } from "./record.js" */

/**
 * |d said / d weight| for all keys; times the weights, what they did for what was said.
 * @param {Parsed} record @param {number} number of the place @param {number} head @param {number} query @returns {Float32Array}
 */
export function gradientsOf(record, number, head, query) {
  const place = record.told.places[number];
  const n = /** @type {{heads: number[]}} */ (place.kept).heads.indexOf(head);
  const group = /** @type {number[]} */ (place.slopes)[n];
  const part = (/** @type {string} */ name) => /** @type {import("./record.js").Tensor} */ (record.tensors.get(`${number}.${name}`));
  const [asks, sends] = [part("asks"), part("sends")];
  const D = asks.shape[2];
  const [byAsk, bySend] = [part("asks_scale").numbers, part("sends_scale").numbers];
  const ask = new Float32Array(D);
  for (let d = 0; d < D; d++) ask[d] = asks.numbers[(n * place.T + query) * D + d] * byAsk[n * D + d] * bySend[group * D + d];
  const found = new Float32Array(place.S);
  for (let j = 0; j < place.S; j++) {
    let sum = 0;
    for (let d = 0, at = (group * place.S + j) * D; d < D; d++) sum += ask[d] * sends.numbers[at + d];
    found[j] = Math.abs(sum);
  }
  return found;
}
