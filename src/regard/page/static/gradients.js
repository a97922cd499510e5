// The gradient of the model's output with respect to each attention weight of a query.

/** @import { Parsed } from "./record.js" */

/**
 * |d output / d weight| for all keys; multiplied by the weights, their share in the output.
 * @param {Parsed} record @param {number} number of the place @param {number} head @param {number} query @returns {Float32Array}
 */
export function gradientRow(record, number, head, query) {
  const place = record.info.places[number];
  const n = /** @type {{heads: number[]}} */ (place.stored).heads.indexOf(head);
  const group = /** @type {number[]} */ (place.value_heads)[n];
  const part = (/** @type {string} */ name) => /** @type {import("./record.js").Tensor} */ (record.tensors.get(`${number}.${name}`));
  const [grads, values] = [part("output_grads"), part("values")];
  const D = grads.shape[2];
  const [gradScale, valueScale] = [part("output_grads_scale").numbers, part("values_scale").numbers];
  const gradient = new Float32Array(D);
  for (let d = 0; d < D; d++) gradient[d] = grads.numbers[(n * place.T + query) * D + d] * gradScale[n * D + d] * valueScale[group * D + d];
  const found = new Float32Array(place.S);
  for (let j = 0; j < place.S; j++) {
    let sum = 0;
    for (let d = 0, at = (group * place.S + j) * D; d < D; d++) sum += gradient[d] * values.numbers[at + d];
    found[j] = Math.abs(sum);
  }
  return found;
}
