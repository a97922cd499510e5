// Patches: which token is which part of a picture, numbers of patches as a smooth field, its contour lines; pictures decoded.

/** @import { StoredPicture, TokenAxis } from "./record.js" */
import { fromBase64 } from "./record.js";

/** The patches of a picture. `tokens`: of each, row by row, -1: none; `box`: the part of the picture that they cover.
 * @typedef {{picture: number, rows: number, cols: number, box: [number, number, number, number], tokens: Int32Array}} Grid */
/** Where a token is. @typedef {{grid: Grid, row: number, col: number}} Spot */
/** Values of rows x cols points in equal steps. @typedef {{values: Float32Array, rows: number, cols: number}} Field */

const FIELD_SIDE = 224; // points of a smooth field along its longer side
const CONTOUR_SIDE = 96;
const IMAGE_TYPES = ["image/png", "image/jpeg"];

/** The tokens of an axis: those that are patches, and the others. */
export class PatchMap {
  /** @param {TokenAxis} axis @param {number} count of tokens */
  constructor(axis, count) {
    /** @type {Grid[]} */
    this.grids = (axis.grids ?? []).map(({ picture, rows, cols, box, first, tokens }) => ({
      picture, rows, cols, box, tokens: Int32Array.from({ length: rows * cols }, (_, at) => inside(tokens?.[at] ?? (first ?? 0) + at, count)),
    }));
    /** @type {Map<number, Spot[]>} */
    this.spots = new Map();
    for (const grid of this.grids) {
      grid.tokens.forEach((token, at) => {
        if (token < 0) return;
        const spot = { grid, row: Math.floor(at / grid.cols), col: at % grid.cols };
        this.spots.set(token, [...(this.spots.get(token) ?? []), spot]);
      });
    }
    /** Tokens that are no patches. */
    this.others = Array.from({ length: count }, (_, at) => at).filter((at) => !this.spots.has(at));
  }

  /** The grids of a picture in layers, so that no two grids of a layer overlap: a whole picture, and its tiles. @param {number} picture @returns {Grid[][]} */
  layers(picture) {
    /** @type {Grid[][]} */
    const found = [];
    for (const grid of this.grids.filter((one) => one.picture === picture)) {
      const free = found.find((layer) => !layer.some((one) => overlap(one, grid)));
      if (free === undefined) found.push([grid]);
      else free.push(grid);
    }
    return found;
  }

  /** How a token is called: its text, or its row and column. @param {number} token */
  spot(token) {
    return this.spots.get(token)?.[0] ?? null;
  }
}

/** @param {number} token @param {number} count */
function inside(token, count) {
  return token >= 0 && token < count ? token : -1;
}

/** @param {Grid} a @param {Grid} b */
function overlap(a, b) {
  const little = 1e-6;
  return a.box[0] < b.box[2] - little && b.box[0] < a.box[2] - little && a.box[1] < b.box[3] - little && b.box[1] < a.box[3] - little;
}

/** The token under a point of the picture, given as shares of its sides; -1: none. @param {Grid[]} grids @param {number} x @param {number} y */
export function tokenAt(grids, x, y) {
  for (const grid of grids) {
    const [left, top, right, bottom] = grid.box;
    if (x < left || x >= right || y < top || y >= bottom) continue;
    const row = Math.floor(((y - top) / (bottom - top)) * grid.rows);
    return grid.tokens[row * grid.cols + Math.floor(((x - left) / (right - left)) * grid.cols)];
  }
  return -1;
}

/** The part of the picture that a patch covers, as shares: left, top, width, height. @param {Spot} spot */
export function spotBox({ grid, row, col }) {
  const [left, top, right, bottom] = grid.box;
  const [w, h] = [(right - left) / grid.cols, (bottom - top) / grid.rows];
  return [left + col * w, top + row * h, w, h];
}

/** The values of the patches of a grid; NaN where a patch has no token. @param {Grid} grid @param {ArrayLike<number>} values of all tokens @returns {Field} */
export function blockField(grid, values) {
  return { rows: grid.rows, cols: grid.cols, values: Float32Array.from(grid.tokens, (token) => (token < 0 ? NaN : values[token])) };
}

/** A field on a finer grid, bilinear between the middles of its cells; what is unknown counts as 0. @param {Field} field @param {number} side @returns {Field} */
export function smoothField({ values, rows, cols }, side = FIELD_SIDE) {
  const times = Math.max(2, Math.round(side / Math.max(rows, cols)));
  const [high, wide] = [rows * times, cols * times];
  const [down, across] = [steps(rows, high), steps(cols, wide)];
  const found = new Float32Array(high * wide);
  const at = (/** @type {number} */ r, /** @type {number} */ c) => values[r * cols + c] || 0;
  for (let i = 0; i < high; i++) {
    const { low: r, next: r2, share: y } = down[i];
    for (let j = 0; j < wide; j++) {
      const { low: c, next: c2, share: x } = across[j];
      found[i * wide + j] = (1 - y) * ((1 - x) * at(r, c) + x * at(r, c2)) + y * ((1 - x) * at(r2, c) + x * at(r2, c2));
    }
  }
  return { values: found, rows: high, cols: wide };
}

/** For each of `fine` points, the two of `count` cells that it lies between, and how near it is to the second. @param {number} count @param {number} fine */
function steps(count, fine) {
  return Array.from({ length: fine }, (_, at) => {
    const place = Math.min(count - 1, Math.max(0, ((at + 0.5) * count) / fine - 0.5));
    const low = Math.floor(place);
    return { low, next: Math.min(count - 1, low + 1), share: place - low };
  });
}

/** Lines along which a field has a value (marching squares), in shares of its sides: [x1, y1, x2, y2]. @param {Field} blocks @param {number} level @returns {number[][]} */
export function contourLines(blocks, level) {
  const { values, rows, cols } = smoothField(blocks, CONTOUR_SIDE);
  /** @type {number[][]} */
  const lines = [];
  for (let i = 0; i + 1 < rows; i++) {
    for (let j = 0; j + 1 < cols; j++) {
      const corner = [values[i * cols + j], values[i * cols + j + 1], values[(i + 1) * cols + j + 1], values[(i + 1) * cols + j]];
      /** @type {number[][]} */
      const crossings = [];
      for (let side = 0; side < 4; side++) {
        const [a, b] = [corner[side], corner[(side + 1) % 4]];
        if (a >= level === b >= level) continue;
        const t = (level - a) / (b - a);
        const [x, y] = [[t, 0], [1, t], [1 - t, 1], [0, 1 - t]][side];
        crossings.push([(j + 0.5 + x) / cols, (i + 0.5 + y) / rows]);
      }
      for (let n = 0; n + 1 < crossings.length; n += 2) lines.push([...crossings[n], ...crossings[n + 1]]);
    }
  }
  return lines;
}

/** A stored picture on a canvas. Its bytes go through a Blob of their type alone: no URL, no other format. @param {StoredPicture} stored @returns {Promise<HTMLCanvasElement>} */
export async function decodePicture({ content, type, width, height }) {
  if (!IMAGE_TYPES.includes(type)) throw new Error("A picture of this record is neither PNG nor JPEG.");
  const image = await createImageBitmap(new Blob([fromBase64(content)], { type })).catch(() => null);
  if (image === null || image.width !== width || image.height !== height) throw new Error("A picture of this record is damaged.");
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  canvas.getContext("2d")?.drawImage(image, 0, 0);
  image.close();
  return canvas;
}
