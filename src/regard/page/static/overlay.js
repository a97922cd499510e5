// The overlay: a picture with the weights of its patches over it, as colours and contour lines, on any pen.

/** @import { Pen } from "./draw.js" */
/** @import { Grid, PatchMap } from "./patches.js" */
/** @import { Palette } from "./colours.js" */
/** @import { Shown } from "./state.js" */
import { overlayPixels, PALETTES } from "./colours.js";
import { canvasOfPixels, sides } from "./draw.js";
import { blockField, contourLines, smoothField, spotBox } from "./patches.js";

/** How weights are drawn. @typedef {{palette: Palette, opacity: number, blocks: boolean, contours: boolean}} OverlayStyle */
/** Where on a pen a picture is. @typedef {{x: number, y: number, w: number, h: number}} Rect */

const CONTOUR_SHARES = [0.25, 0.5, 0.75]; // of the largest value

/** @param {Shown} shown @returns {OverlayStyle} */
export function overlayStyle({ palette, opacity, blocks, contours }) {
  return { palette: palette in PALETTES ? /** @type {Palette} */ (palette) : "heat", opacity: opacity / 100, blocks, contours };
}

/** The largest size of a token that is a patch. @param {PatchMap} patches @param {ArrayLike<number>} values */
export function peakOfPatches(patches, values) {
  let peak = 0;
  for (const token of patches.spots.keys()) if (Math.abs(values[token]) > peak) peak = Math.abs(values[token]);
  return peak;
}

/** @param {Pen} pen @param {Rect} rect @param {HTMLCanvasElement} picture @param {Grid[]} grids @param {ArrayLike<number> | null} values
 * @param {number} peak @param {OverlayStyle} style */
export function drawOverlay(pen, rect, picture, grids, values, peak, style) {
  pen.image(rect.x, rect.y, rect.w, rect.h, picture, undefined, true);
  for (const grid of grids) {
    const [left, top, right, bottom] = grid.box;
    const [x, y, w, h] = [rect.x + left * rect.w, rect.y + top * rect.h, (right - left) * rect.w, (bottom - top) * rect.h];
    if (values !== null) {
      const blocks = blockField(grid, values);
      const field = style.blocks ? blocks : smoothField(blocks);
      pen.image(x, y, w, h, canvasOfPixels(overlayPixels(field.values, peak, style.palette, style.opacity), field.rows, field.cols), undefined, !style.blocks);
      if (style.contours && peak > 0) drawContours(pen, { x, y, w, h }, blocks, peak);
    }
    if (right - left < 1 || bottom - top < 1) outline(pen, { x, y, w, h }, "rgba(255,255,255,.75)", 1);
  }
}

/** @param {Pen} pen @param {Rect} rect @param {import("./patches.js").Field} blocks @param {number} peak */
function drawContours(pen, { x, y, w, h }, blocks, peak) {
  CONTOUR_SHARES.forEach((share, n) => {
    const lines = contourLines(blocks, share * peak).map(([x1, y1, x2, y2]) => [x + x1 * w, y + y1 * h, x + x2 * w, y + y2 * h]);
    pen.segments(lines, "#14171d", 2 + n * 0.5);
    pen.segments(lines, "#ffffff", 0.9 + n * 0.5);
  });
}

/** A rectangle in two colours, so that it is seen on any picture. @param {Pen} pen @param {Rect} rect @param {string} colour @param {number} width */
export function outline(pen, { x, y, w, h }, colour, width) {
  pen.segments(sides(x, y, w, h), "rgba(12,15,20,.8)", width + 2);
  pen.segments(sides(x, y, w, h), colour, width);
}

/** Frames around the patches of tokens. @param {Pen} pen @param {Rect} rect @param {PatchMap} patches @param {Grid[]} grids @param {number[]} tokens @param {string} colour @param {number} width */
export function outlineTokens(pen, rect, patches, grids, tokens, colour, width) {
  for (const token of tokens) {
    for (const spot of patches.spots.get(token) ?? []) {
      if (!grids.includes(spot.grid)) continue;
      const [x, y, w, h] = spotBox(spot);
      outline(pen, { x: rect.x + x * rect.w, y: rect.y + y * rect.h, w: w * rect.w, h: h * rect.h }, colour, width);
    }
  }
}

/** The colours of an overlay from 0 to the largest value, or from the most negative one, over grey. @param {OverlayStyle} style @param {boolean} signed */
export function scaleImage(style, signed) {
  const values = Float32Array.from({ length: 128 }, (_, at) => (signed ? (at - 63.5) / 63.5 : at / 127));
  const scale = canvasOfPixels(overlayPixels(values, 1, style.palette, style.opacity), 1, values.length);
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [values.length, 1];
  const context = canvas.getContext("2d");
  if (context === null) return canvas;
  context.fillStyle = "#8a8f98";
  context.fillRect(0, 0, values.length, 1);
  context.drawImage(scale, 0, 0);
  return canvas;
}

/** The colour of a share on grey, for the background of a word, and the ink that reads on it. @param {number} share -1 to 1 @param {OverlayStyle} style @param {string} ground "#rrggbb" */
export function tint(share, style, ground) {
  const palette = style.palette === "spotlight" ? "heat" : style.palette;
  const [r, g, b, a] = overlayPixels([share], 1, palette, 1);
  const mixed = [r, g, b].map((one, n) => Math.round(one * (a / 255) + parseInt(ground.slice(1 + 2 * n, 3 + 2 * n), 16) * (1 - a / 255)));
  const linear = mixed.map((one) => (one / 255 <= 0.04045 ? one / 3294.6 : ((one / 255 + 0.055) / 1.055) ** 2.4));
  const light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return { colour: `rgb(${mixed.join(",")})`, ink: light > 0.179 ? "#0c0f14" : "#ffffff" };
}
