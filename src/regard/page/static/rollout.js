// Rollout: how much of an output token comes from each token below, if every layer mixes as its weights say.
// Abnar & Zuidema 2020: half of a vector is what it was before, half is the mean over heads of what it looks at.

/** @import { Place, Told } from "./record.js" */
/** @import { Source } from "./source.js" */
import { ALL_HEADS } from "./source.js";

/** One step back through a place, between streams that are told by numbers of sides. @typedef {{place: number, queries: number, keys: number}} Back */
/** After a step: what lies in each token of each stream. @typedef {{back: Back, masses: Map<number, Float64Array>}} RolloutStep */

const AT_ONCE = 64; // rows of a map that are asked for at once
const RESIDUAL = 0.5;

/** The steps from the last place to the first of those from a layer on. @param {Told} told @param {number} first @returns {Back[]} */
export function stepsBack(told, first) {
  const same = streamsOf(told.places);
  return told.places
    .map((place, number) => ({ place: number, queries: same.get(place.queries) ?? place.queries, keys: same.get(place.keys) ?? place.keys }))
    .filter((step) => told.places[step.place].layer >= first)
    .reverse();
}

/** The side that stands for a stream, for every other side of it: a decoder says tokens that stand one place further
 * than those it reads, two sides, but one stream. @param {Place[]} places @returns {Map<number, number>} */
function streamsOf(places) {
  /** @type {Map<number, number>} */
  const same = new Map();
  const own = places.filter((place) => place.kind === "self");
  const alone = new Set(own.flatMap((place) => [place.queries, place.keys]));
  /** @type {Place | null} */
  let before = null;
  for (const place of places) {
    if (place.kind === "self") {
      before = place;
      if (place.queries !== place.keys) same.set(place.queries, place.keys);
    } else if (!alone.has(place.queries) && before !== null && before.T === place.T && before.keys !== place.keys) {
      same.set(place.queries, before.keys);
    }
  }
  return same;
}

/**
 * @param {Source} source @param {number} token @param {number} first layer
 * @param {AbortSignal} signal @param {(done: number, all: number) => void} progress @returns {Promise<RolloutStep[]>}
 */
export async function rolledOut(source, token, first, signal, progress) {
  const steps = stepsBack(source.told, first);
  const start = new Float64Array(source.told.places[steps[0].place].T);
  start[token] = 1;
  let masses = new Map([[steps[0].queries, start]]);
  /** @type {RolloutStep[]} */
  const found = [];
  for (const back of steps) {
    progress(found.length, steps.length);
    const mass = masses.get(back.queries) ?? new Float64Array(source.told.places[back.place].T);
    const { stayed, gone } = await through(source, back.place, mass, signal);
    masses = new Map(masses).set(back.queries, stayed);
    const there = masses.get(back.keys);
    masses.set(back.keys, there === undefined ? gone : gone.map((one, j) => one + (there[j] ?? 0)));
    found.push({ back, masses });
  }
  return found;
}

/** @param {Source} source @param {number} number @param {Float64Array} mass @param {AbortSignal} signal */
async function through(source, number, mass, signal) {
  const { T, S } = source.told.places[number];
  const [stayed, gone] = [new Float64Array(mass.length), new Float64Array(S)];
  for (let start = 0; start < T; start += AT_ONCE) {
    let [top, bottom] = [start, Math.min(T, start + AT_ONCE)];
    while (top < bottom && mass[top] === 0) top++;
    while (bottom > top && mass[bottom - 1] === 0) bottom--;
    if (top === bottom) continue; // these have nothing to hand on
    const { values } = await source.tile(number, ALL_HEADS, { top, bottom, left: 0, right: S }, bottom - top, S, "weights", signal);
    for (let i = top; i < bottom; i++) {
      const row = values.subarray((i - top) * S, (i - top + 1) * S);
      const share = mass[i] / (RESIDUAL + (1 - RESIDUAL) * row.reduce((sum, one) => sum + one, 0));
      stayed[i] = RESIDUAL * share;
      for (let j = 0; j < S; j++) gone[j] += (1 - RESIDUAL) * share * row[j];
    }
  }
  return { stayed, gone };
}
