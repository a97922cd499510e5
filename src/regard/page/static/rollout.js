// Attention rollout (Abnar & Zuidema 2020): the share of each input token in an output token, layer by layer. In every
// layer half of a vector is the residual, half is the mean over heads of the tokens that it attends to.

/** @import { Place, RecordInfo } from "./record.js" */
/** @import { Source } from "./source.js" */
import { ALL_HEADS } from "./source.js";

/** One step back through a place, from the stream of its queries to that of its keys (indices of axes). @typedef {{place: number, queries: number, keys: number}} PlaceStep */
/** A step, and the mass of each token of each stream after it. @typedef {{step: PlaceStep, masses: Map<number, Float64Array>}} RolloutStep */

const ROWS_PER_TILE = 64; // rows of a map requested at once
const MAX_PICTURE_TOKENS = 2048;
const RESIDUAL = 0.5; // as in inspection/attribution/rollout.py

/** The steps from the last place back to the first place of layer `first`. @param {RecordInfo} info @param {number} first @returns {PlaceStep[]} */
export function rolloutSteps(info, first) {
  const same = mergeStreams(info.places);
  return info.places
    .map((place, number) => ({ place: number, queries: same.get(place.queries) ?? place.queries, keys: same.get(place.keys) ?? place.keys }))
    .filter((step) => info.places[step.place].layer >= first)
    .reverse();
}

/** Why attention cannot be rolled out over these steps, in words; empty where it can: positions must be the same tokens
 * in every layer. @param {RecordInfo} info @param {PlaceStep[]} steps @returns {string} */
export function rolloutProblem(info, steps) {
  /** @type {Map<number, number>} */
  const lengths = new Map();
  for (const step of steps) {
    const place = info.places[step.place];
    if (place.joined === "windows") return `${place.name} attends in windows, whose positions are not the same tokens in every layer, so there is no rollout.`;
    for (const [stream, count] of [[step.queries, place.T], [step.keys, place.S]]) {
      const known = lengths.get(stream) ?? count;
      if (known !== count) return `${place.name} has ${count} positions where other places have ${known}, so there is no rollout.`;
      lengths.set(stream, count);
    }
  }
  return "";
}

/** Whether attention can be rolled out through all layers, in seconds. @param {Source} source */
export function canRollOut(source) {
  const steps = rolloutSteps(source.info, -1);
  const few = source.info.places.every((place) => Math.max(place.T, place.S) <= MAX_PICTURE_TOKENS);
  return steps.length > 1 && few && rolloutProblem(source.info, steps) === "" && steps.every((step) => source.heads(step.place).length > 0);
}

/** For each axis the axis that represents its stream: a decoder's outputs are its inputs shifted by one position, two
 * axes, but one stream. @param {Place[]} places @returns {Map<number, number>} */
function mergeStreams(places) {
  /** @type {Map<number, number>} */
  const same = new Map();
  const selfPlaces = places.filter((place) => place.kind === "self");
  const selfAxes = new Set(selfPlaces.flatMap((place) => [place.queries, place.keys]));
  /** @type {Place | null} */
  let lastSelf = null;
  for (const place of places) {
    if (place.kind === "self") {
      lastSelf = place;
      if (place.queries !== place.keys) same.set(place.queries, place.keys);
    } else if (!selfAxes.has(place.queries) && lastSelf !== null && lastSelf.T === place.T && lastSelf.keys !== place.keys) {
      same.set(place.queries, lastSelf.keys);
    }
  }
  return same;
}

/**
 * @param {Source} source @param {number} token @param {number} first layer
 * @param {AbortSignal} signal @param {(done: number, all: number) => void} progress @returns {Promise<RolloutStep[]>}
 */
export async function computeRollout(source, token, first, signal, progress) {
  const steps = rolloutSteps(source.info, first);
  const start = new Float64Array(source.info.places[steps[0].place].T);
  start[token] = 1;
  let masses = new Map([[steps[0].queries, start]]);
  /** @type {RolloutStep[]} */
  const found = [];
  for (const step of steps) {
    progress(found.length, steps.length);
    const mass = masses.get(step.queries) ?? new Float64Array(source.info.places[step.place].T);
    const { residual, attended } = await propagate(source, step.place, mass, signal);
    masses = new Map(masses).set(step.queries, residual);
    const known = masses.get(step.keys);
    masses.set(step.keys, known === undefined ? attended : attended.map((one, j) => one + (known[j] ?? 0)));
    found.push({ step, masses });
  }
  return found;
}

/** @param {Source} source @param {number} number @param {Float64Array} mass @param {AbortSignal} signal */
async function propagate(source, number, mass, signal) {
  const { T, S } = source.info.places[number];
  const [residual, attended] = [new Float64Array(mass.length), new Float64Array(S)];
  for (let start = 0; start < T; start += ROWS_PER_TILE) {
    let [top, bottom] = [start, Math.min(T, start + ROWS_PER_TILE)];
    while (top < bottom && mass[top] === 0) top++;
    while (bottom > top && mass[bottom - 1] === 0) bottom--;
    if (top === bottom) continue; // no mass in these rows
    const { values } = await source.tile(number, ALL_HEADS, { top, bottom, left: 0, right: S }, bottom - top, S, "weights", signal);
    for (let i = top; i < bottom; i++) {
      const row = values.subarray((i - top) * S, (i - top + 1) * S);
      const share = mass[i] / (RESIDUAL + (1 - RESIDUAL) * row.reduce((sum, one) => sum + one, 0));
      residual[i] = RESIDUAL * share;
      for (let j = 0; j < S; j++) attended[j] += (1 - RESIDUAL) * share * row[j];
    }
  }
  return { residual, attended };
}
