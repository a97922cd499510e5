// The axes of a matrix: token labels, the frame around the selected pair, and the colour scale.

/** @import { Viewport } from "./viewport.js" */
/** @import { Pen } from "./draw.js" */
/** @import { ViewContext } from "./view_context.js" */
import { canvasOfPixels } from "./draw.js";
import { visibleText, formatNumber } from "./text.js";

const LABEL_STEP = 15; // pixels of one label

/** A frame around the selected pair. @param {Pen} pen @param {ViewContext} context @param {Viewport} viewport */
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

/** Token labels beside and above the cells, as many as fit. @param {Pen} pen @param {ViewContext} context @param {Viewport} viewport */
export function drawLabels(pen, context, viewport) {
  const { state, colours } = context;
  const { queries, keys } = context.axes();
  const [top, bottom, left, right] = viewport.box;
  const step = Math.ceil(LABEL_STEP / viewport.scale);
  const { ink, faint, accent } = colours.inks;
  /** @param {number} from @param {number} to @param {string[]} tokens @param {number} chosen @param {(at: number, text: string, style: {colour: string, size: number, bold: boolean}) => void} place */
  const each = (from, to, tokens, chosen, place) => {
    for (let at = Math.max(0, Math.ceil((from - 0.5) / step) * step); at + 0.5 <= to; at += step) {
      place(at, visibleText(tokens[at] ?? "", 14), { colour: at === chosen ? accent : step > 1 ? faint : ink, size: 12, bold: at === chosen });
    }
  };
  const { query, key } = state.shown;
  each(top, bottom, queries.tokens, query, (at, text, style) => {
    pen.text(viewport.cells.x - 8, viewport.pixel(at + 0.5, 0).y, text, { ...style, align: "right" });
  });
  each(left, right, keys.tokens, query < 0 ? -1 : key, (at, text, style) => {
    pen.text(viewport.pixel(0, at + 0.5).x, viewport.cells.y - 8, text, { ...style, rotated: true });
  });
}

/** The colour scale from 0 to the largest weight. @param {Pen} pen @param {ViewContext} context @param {Viewport} viewport @param {number} peak */
export function drawScale(pen, context, viewport, peak) {
  const steps = Float32Array.from({ length: 64 }, (_, at) => at / 63);
  const width = 92;
  const [x, y] = [viewport.cells.x - 8 - width, viewport.cells.y - 38];
  pen.image(x, y, width, 8, canvasOfPixels(context.colours.pixels(steps, 1), 1, steps.length));
  pen.text(x, y + 19, "0", { colour: context.colours.inks.faint, size: 11 });
  pen.text(x + width, y + 19, formatNumber(peak), { colour: context.colours.inks.faint, size: 11, align: "right" });
}
