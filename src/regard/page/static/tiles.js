// Tiles of a map at every zoom level: those in view are computed, the nearest first; the most recently used are cached.

/** @import { Source, Measure } from "./source.js" */
/** @import { Tile } from "./weights.js" */
/** @import { Colours } from "./colours.js" */
import { canvasOfPixels } from "./draw.js";
import { MAX_EXACT } from "./weights.js";

export const TILE_SIDE = 256; // cells along a side
const MAX_TILES = 96;
const ESTIMATE_OVER = 2 ** 20; // weights under a tile, beyond which an estimate is shown first

/** A map: its place, head and measure. @typedef {{place: number, head: number, measure: Measure, T: number, S: number}} MapId */
/** @typedef {{level: number, top: number, bottom: number, left: number, right: number}} TileArea */
/** @typedef {{map: MapId, area: TileArea, maxExact: number}} TileRequest */
/** `final`: no better version will follow. @typedef {Tile & {final: boolean, area: TileArea, map: string, rows: number, cols: number, image: HTMLCanvasElement | null, imageKey: string}} LoadedTile */

export class Tiles {
  /** @param {Source} source @param {Colours} colours @param {() => void} onLoad */
  constructor(source, colours, onLoad) {
    this.source = source;
    this.colours = colours;
    this.onLoad = onLoad;
    /** @type {Map<string, LoadedTile>} */
    this.loaded = new Map();
    /** @type {{name: string, stop: AbortController} | null} */
    this.busy = null;
    /** @type {TileRequest[]} */
    this.queue = [];
    /** Errors by tile, until another map is requested. @type {Map<string, Error>} */
    this.failures = new Map();
    this.mapKey = "";
  }

  /** Tiles of one level that a part of a map needs. @param {MapId} map @param {number} level @param {number[]} box top, bottom, left, right @returns {TileArea[]} */
  static areas(map, level, [top, bottom, left, right]) {
    const size = TILE_SIDE * 2 ** level;
    /** @type {TileArea[]} */
    const found = [];
    for (let r = Math.max(0, Math.floor(top / size)); r * size < Math.min(bottom, map.T); r++) {
      for (let c = Math.max(0, Math.floor(left / size)); c * size < Math.min(right, map.S); c++) {
        found.push({ level, top: r * size, bottom: Math.min(map.T, (r + 1) * size), left: c * size, right: Math.min(map.S, (c + 1) * size) });
      }
    }
    return found;
  }

  /** @param {MapId} map @returns {string} */
  static mapKey(map) {
    return `${map.place} ${map.head} ${map.measure}`;
  }

  /** @param {MapId} map @param {TileArea} area */
  static key(map, area) {
    return `${Tiles.mapKey(map)} ${area.level} ${area.top} ${area.left}`;
  }

  /** @param {TileRequest} request */
  static requestKey(request) {
    return `${Tiles.key(request.map, request.area)} ${request.maxExact}`;
  }

  /** Replace the queue by these tiles. @param {MapId} map @param {TileArea[]} areas the most urgent first */
  request(map, areas) {
    if (this.mapKey !== Tiles.mapKey(map)) this.failures.clear();
    this.mapKey = Tiles.mapKey(map);
    const open = areas.filter((area) => !this.loaded.get(Tiles.key(map, area))?.final && !this.failures.has(Tiles.key(map, area)));
    const first = open.filter((area) => this.source.estimatesFirst && !this.loaded.has(Tiles.key(map, area)) && weightsOf(area) > ESTIMATE_OVER);
    /** @param {number} maxExact @returns {(area: TileArea) => TileRequest} */
    const requestOf = (maxExact) => (area) => ({ map, area, maxExact });
    this.queue = [...first.map(requestOf(ESTIMATE_OVER)), ...open.map(requestOf(MAX_EXACT))];
    const busy = this.busy;
    if (busy !== null && !this.queue.some((one) => Tiles.requestKey(one) === busy.name)) {
      busy.stop.abort();
      this.busy = null;
    }
    if (this.busy === null) this.next();
  }

  async next() {
    const one = this.queue.shift();
    if (one === undefined) return;
    const name = Tiles.key(one.map, one.area);
    const known = this.loaded.get(name);
    if (known?.final || (known && one.maxExact === ESTIMATE_OVER) || this.failures.has(name)) return void this.next();
    const busy = (this.busy = { name: Tiles.requestKey(one), stop: new AbortController() });
    const { level, top, bottom, left, right } = one.area;
    const [rows, cols] = [Math.ceil((bottom - top) / 2 ** level), Math.ceil((right - left) / 2 ** level)];
    try {
      const tile = await this.source.tile(one.map.place, one.map.head, { top, bottom, left, right }, rows, cols, one.map.measure, busy.stop.signal, one.maxExact);
      this.loaded.set(name, { ...tile, final: tile.exact || one.maxExact === MAX_EXACT, area: one.area, map: Tiles.mapKey(one.map), rows, cols, image: null, imageKey: "" });
      this.evict();
    } catch (error) {
      if (!busy.stop.signal.aborted) this.failures.set(name, /** @type {Error} */ (error));
    }
    if (this.busy !== busy) return; // another request has taken its place
    this.busy = null;
    this.onLoad();
    if (this.busy === null) this.next();
  }

  evict() {
    while (this.loaded.size > MAX_TILES) this.loaded.delete(/** @type {string} */ (this.loaded.keys().next().value));
  }

  /** The loaded tiles of a map, the coarsest first. @param {MapId} map @param {number} finest @returns {LoadedTile[]} */
  of(map, finest) {
    const name = Tiles.mapKey(map);
    return [...this.loaded.values()].filter((one) => one.map === name && one.area.level >= finest).sort((a, b) => b.area.level - a.area.level);
  }

  /** @param {MapId} map @param {TileArea} area @returns {LoadedTile | null} */
  get(map, area) {
    const key = Tiles.key(map, area);
    const found = this.loaded.get(key);
    if (found === undefined) return null;
    this.loaded.delete(key); // most recently used: last to be evicted
    this.loaded.set(key, found);
    return found;
  }

  /** @param {LoadedTile} tile @param {number} peak @returns {HTMLCanvasElement} */
  imageFor(tile, peak) {
    const key = `${peak} ${this.colours.theme}`;
    if (tile.image === null || tile.imageKey !== key) {
      tile.image = canvasOfPixels(this.colours.pixels(tile.values, peak), tile.rows, tile.cols);
      tile.imageKey = key;
    }
    return tile.image;
  }
}

/** @param {TileArea} area */
function weightsOf(area) {
  return (area.bottom - area.top) * (area.right - area.left);
}

/** @param {Float32Array} values */
export function maxOf(values) {
  return values.reduce((peak, value) => Math.max(peak, value), 0);
}

/** The largest cell of a tile that is in view. @param {LoadedTile} tile @param {number[]} box top, bottom, left, right */
export function peakWithin({ values, area, rows, cols }, [top, bottom, left, right]) {
  const cell = 2 ** area.level;
  const [first, last] = [Math.max(0, Math.floor((top - area.top) / cell)), Math.min(rows, Math.ceil((bottom - area.top) / cell))];
  const [from, to] = [Math.max(0, Math.floor((left - area.left) / cell)), Math.min(cols, Math.ceil((right - area.left) / cell))];
  let peak = 0;
  for (let r = first; r < last; r++) {
    for (let at = r * cols + from; at < r * cols + to; at++) if (values[at] > peak) peak = values[at];
  }
  return peak;
}
