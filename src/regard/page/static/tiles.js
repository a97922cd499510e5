// Tiles of a map at every scale: those in view are computed, the newest wish first, and the last used are kept.

/** @import { Source, Measure } from "./source.js" */
/** @import { Tile } from "./weights.js" */
/** @import { Colours } from "./colours.js" */
import { imageOf } from "./draw.js";
import { MOST_EXACT } from "./weights.js";

export const TILE = 256; // cells along a side
const TILES_KEPT = 96;
const ROUGH = 2 ** 20; // weights under a tile, beyond which an estimate comes first

/** A map: its place, head and measure. @typedef {{place: number, head: number, measure: Measure, T: number, S: number}} Map_ */
/** @typedef {{level: number, top: number, bottom: number, left: number, right: number}} Spot */
/** @typedef {{map: Map_, spot: Spot, most: number}} Wish */
/** `done`: no better one will come. @typedef {Tile & {done: boolean, spot: Spot, map: string, rows: number, cols: number, image: HTMLCanvasElement | null, painted: string}} Ready */

export class Tiles {
  /** @param {Source} source @param {Colours} colours @param {() => void} arrived */
  constructor(source, colours, arrived) {
    this.source = source;
    this.colours = colours;
    this.arrived = arrived;
    /** @type {Map<string, Ready>} */
    this.ready = new Map();
    /** @type {{name: string, stop: AbortController} | null} */
    this.busy = null;
    /** @type {Wish[]} */
    this.wanted = [];
    /** What went wrong, until another map is asked for: by the name of the tile. @type {Map<string, Error>} */
    this.failures = new Map();
    this.asked = "";
  }

  /** Tiles of one level that a part of a map needs. @param {Map_} map @param {number} level @param {number[]} box top, bottom, left, right @returns {Spot[]} */
  static spots(map, level, [top, bottom, left, right]) {
    const size = TILE * 2 ** level;
    /** @type {Spot[]} */
    const found = [];
    for (let r = Math.max(0, Math.floor(top / size)); r * size < Math.min(bottom, map.T); r++) {
      for (let c = Math.max(0, Math.floor(left / size)); c * size < Math.min(right, map.S); c++) {
        found.push({ level, top: r * size, bottom: Math.min(map.T, (r + 1) * size), left: c * size, right: Math.min(map.S, (c + 1) * size) });
      }
    }
    return found;
  }

  /** @param {Map_} map @returns {string} */
  static named(map) {
    return `${map.place} ${map.head} ${map.measure}`;
  }

  /** @param {Map_} map @param {Spot} spot */
  static key(map, spot) {
    return `${Tiles.named(map)} ${spot.level} ${spot.top} ${spot.left}`;
  }

  /** @param {Wish} wish */
  static wish(wish) {
    return `${Tiles.key(wish.map, wish.spot)} ${wish.most}`;
  }

  /** From now on these are wanted, and no others. @param {Map_} map @param {Spot[]} spots the most urgent first */
  want(map, spots) {
    if (this.asked !== Tiles.named(map)) this.failures.clear();
    this.asked = Tiles.named(map);
    const open = spots.filter((spot) => !this.ready.get(Tiles.key(map, spot))?.done && !this.failures.has(Tiles.key(map, spot)));
    const first = open.filter((spot) => this.source.rough && !this.ready.has(Tiles.key(map, spot)) && weightsOf(spot) > ROUGH);
    /** @param {number} most @returns {(spot: Spot) => Wish} */
    const wish = (most) => (spot) => ({ map, spot, most });
    this.wanted = [...first.map(wish(ROUGH)), ...open.map(wish(MOST_EXACT))];
    const busy = this.busy;
    if (busy !== null && !this.wanted.some((one) => Tiles.wish(one) === busy.name)) {
      busy.stop.abort();
      this.busy = null;
    }
    if (this.busy === null) this.next();
  }

  async next() {
    const one = this.wanted.shift();
    if (one === undefined) return;
    const name = Tiles.key(one.map, one.spot);
    const there = this.ready.get(name);
    if (there?.done || (there && one.most === ROUGH) || this.failures.has(name)) return void this.next();
    const busy = (this.busy = { name: Tiles.wish(one), stop: new AbortController() });
    const { level, top, bottom, left, right } = one.spot;
    const [rows, cols] = [Math.ceil((bottom - top) / 2 ** level), Math.ceil((right - left) / 2 ** level)];
    try {
      const tile = await this.source.tile(one.map.place, one.map.head, { top, bottom, left, right }, rows, cols, one.map.measure, busy.stop.signal, one.most);
      this.ready.set(name, { ...tile, done: tile.exact || one.most === MOST_EXACT, spot: one.spot, map: Tiles.named(one.map), rows, cols, image: null, painted: "" });
      this.forget();
    } catch (error) {
      if (!busy.stop.signal.aborted) this.failures.set(name, /** @type {Error} */ (error));
    }
    if (this.busy !== busy) return; // another wish has taken its place
    this.busy = null;
    this.arrived();
    if (this.busy === null) this.next();
  }

  forget() {
    while (this.ready.size > TILES_KEPT) this.ready.delete(/** @type {string} */ (this.ready.keys().next().value));
  }

  /** Those of a map that are there, the coarsest first. @param {Map_} map @param {number} finest @returns {Ready[]} */
  of(map, finest) {
    const name = Tiles.named(map);
    return [...this.ready.values()].filter((one) => one.map === name && one.spot.level >= finest).sort((a, b) => b.spot.level - a.spot.level);
  }

  /** @param {Map_} map @param {Spot} spot @returns {Ready | null} */
  get(map, spot) {
    const key = Tiles.key(map, spot);
    const found = this.ready.get(key);
    if (found === undefined) return null;
    this.ready.delete(key); // and last again in the row of those to forget
    this.ready.set(key, found);
    return found;
  }

  /** @param {Ready} tile @param {number} peak @returns {HTMLCanvasElement} */
  painted(tile, peak) {
    const how = `${peak} ${this.colours.theme}`;
    if (tile.image === null || tile.painted !== how) {
      tile.image = imageOf(this.colours.pixels(tile.values, peak), tile.rows, tile.cols);
      tile.painted = how;
    }
    return tile.image;
  }
}

/** @param {Spot} spot */
function weightsOf(spot) {
  return (spot.bottom - spot.top) * (spot.right - spot.left);
}

/** @param {Float32Array} values */
export function largestOf(values) {
  return values.reduce((most, value) => Math.max(most, value), 0);
}

/** The largest cell of a tile that is in view. @param {Ready} tile @param {number[]} box top, bottom, left, right */
export function peakWithin({ values, spot, rows, cols }, [top, bottom, left, right]) {
  const cell = 2 ** spot.level;
  const [first, last] = [Math.max(0, Math.floor((top - spot.top) / cell)), Math.min(rows, Math.ceil((bottom - spot.top) / cell))];
  const [from, to] = [Math.max(0, Math.floor((left - spot.left) / cell)), Math.min(cols, Math.ceil((right - spot.left) / cell))];
  let peak = 0;
  for (let r = first; r < last; r++) {
    for (let at = r * cols + from; at < r * cols + to; at++) if (values[at] > peak) peak = values[at];
  }
  return peak;
}
