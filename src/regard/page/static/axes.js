// What is drawn around and over the cells of a map: tokens, the chosen pair, and what the colours mean.

/** @import { Viewport } from "./viewport.js" */
/** @import { Pen } from "./draw.js" */
/** @import { ViewContext } from "./view_context.js" */
import { imageOf } from "./draw.js";
import { visible, written } from "./text.js";

const LETTERS = 15; // pixels that a label needs

/** A frame around the chosen pair. @param {Pen} pen @param {ViewContext} context @param {Viewport} viewport */
export function drawCross(pen, context, viewport) {
  const { query, key } = context.state.shown;
  if (query < 0) return;
  const size = Math.max(3, viewport.scale);
  const middle = viewport.pixel(query + 0.5, key + 0.5);
  const [x, y] = [middle.x - size / 2, middle.y - size / 2];
  for (const [dx, dy, w, h] of [[-2, -2, size + 4, 2], [-2, size, size + 4, 2], [-2, 0, 2, size], [size, 0, 2, size]]) {
    pen.rect(x + dx, y + dy, w, h, context.colours.inks.warm);
  }
}

/** Tokens beside and above the cells, as many as there is room for. @param {Pen} pen @param {ViewContext} context @param {Viewport} viewport */
export function drawLabels(pen, context, viewport) {
  const { state, colours } = context;
  const { queries, keys } = context.sides();
  const [top, bottom, left, right] = viewport.box;
  const step = Math.ceil(LETTERS / viewport.scale);
  const { ink, faint, accent } = colours.inks;
  /** @param {number} from @param {number} to @param {string[]} tokens @param {number} chosen @param {(at: number, words: string, how: {colour: string, size: number, bold: boolean}) => void} put */
  const each = (from, to, tokens, chosen, put) => {
    for (let at = Math.max(0, Math.ceil((from - 0.5) / step) * step); at + 0.5 <= to; at += step) {
      put(at, visible(tokens[at] ?? "", 14), { colour: at === chosen ? accent : step > 1 ? faint : ink, size: 12, bold: at === chosen });
    }
  };
  const { query, key } = state.shown;
  each(top, bottom, queries.tokens, query, (at, words, how) => {
    pen.text(viewport.cells.x - 8, viewport.pixel(at + 0.5, 0).y, words, { ...how, align: "right" });
  });
  each(left, right, keys.tokens, query < 0 ? -1 : key, (at, words, how) => {
    pen.text(viewport.pixel(0, at + 0.5).x, viewport.cells.y - 8, words, { ...how, turned: true });
  });
}

/** The colours from nothing to the largest. @param {Pen} pen @param {ViewContext} context @param {Viewport} viewport @param {number} peak */
export function drawScale(pen, context, viewport, peak) {
  const steps = Float32Array.from({ length: 64 }, (_, at) => at / 63);
  const wide = 92;
  const [x, y] = [viewport.cells.x - 8 - wide, viewport.cells.y - 38];
  pen.image(x, y, wide, 8, imageOf(context.colours.pixels(steps, 1), 1, steps.length));
  pen.text(x, y + 19, "0", { colour: context.colours.inks.faint, size: 11 });
  pen.text(x + wide, y + 19, written(peak), { colour: context.colours.inks.faint, size: 11, align: "right" });
}
