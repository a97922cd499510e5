// One direction of attention over a picture: where a token looks, or who looks at it; the picture, its legend, and the words beside it.

/** @import { Grid } from "./patches.js" */
/** @import { Item } from "./tokens.js" */
/** @import { Pen } from "./draw.js" */
/** @import { OverlayStyle, Rect } from "./overlay.js" */
/** @import { TokenAxis } from "./record.js" */
/** @import { ViewContext } from "./view_context.js" */
import { bidiText, make } from "./dom.js";
import { CanvasPen, prepareCanvas } from "./draw.js";
import { drawOverlay, outlineTokens, peakOfPatches, scaleImage, tint } from "./overlay.js";
import { PatchMap, tokenAt } from "./patches.js";
import { formatNumber, isolateBidi, visibleText } from "./text.js";
import { groupTokens } from "./tokens.js";

const MAX_WORDS = 600; // beyond which those in the middle of a long text are left out
const MAX_DRAWN_WORDS = 10; // in an exported picture
const PICTURE_SIDE = { least: 280, most: 560, around: 390 }; // pixels, and those of the page above and below
const SCALE_WIDTH = 120;
const EXPORTED_SIDE = 420;
const EXPORTED_LINE = 20;

/** What a panel shows. `values`: of all its tokens, null where there are none; `chosen`: the tokens of the subject; `without`: those left out.
 * @typedef {{heading: string, values: Float32Array | null, chosen: number[], pinned: boolean, without: Set<number>, legend: string, grids: Grid[], picture: HTMLCanvasElement | null, style: OverlayStyle, why: string}} Look */
/** @typedef {{hover: (tokens: number[]) => void, pick: (tokens: number[]) => void}} LookEvents */

export class LookPanel {
  /** @param {ViewContext} context @param {"query" | "key"} side the tokens of the panel @param {LookEvents} on */
  constructor(context, side, on) {
    this.context = context;
    this.side = side;
    this.on = on;
    /** @type {TokenAxis | null} */
    this.axis = null;
    this.patches = new PatchMap({ name: "", text: "", tokens: [], spans: [], words: [], segments: null }, 0);
    /** The tokens that are no patches, as words or pieces. @type {Item[]} */
    this.items = [];
    /** @type {Map<number, HTMLButtonElement>} by the first token of an item */
    this.chips = new Map();
    /** @type {Look | null} */
    this.look = null;
    this.cursor = -1; // the patch under the pointer or chosen by keys
    this.heading = make("h2", {});
    this.canvas = make("canvas", { tabindex: "0", role: "application" });
    this.tip = make("div", { class: "tip", hidden: "" });
    this.frame = make("div", { class: "picture-frame" }, this.canvas, this.tip);
    this.scale = make("canvas", { "aria-hidden": "true" });
    prepareCanvas(this.scale, SCALE_WIDTH, 10);
    this.scaleEnds = [make("span", { class: "number" }), make("span", { class: "number" })];
    this.scaleRow = make("div", { class: "picture-scale" }, this.scaleEnds[0], this.scale, this.scaleEnds[1]);
    this.legend = make("p", { class: "note" });
    this.words = make("div", { class: "picture-words", role: "group" });
    this.element = make("section", { class: "look-panel" }, this.heading, this.frame, this.scaleRow, this.words, this.legend);
    this.canvas.addEventListener("pointermove", (event) => this.point(event.offsetX, event.offsetY));
    this.canvas.addEventListener("pointerleave", () => this.moveCursor(-1));
    this.canvas.addEventListener("click", (event) => {
      this.point(event.offsetX, event.offsetY);
      if (this.cursor >= 0) this.on.pick([this.cursor]);
    });
    this.canvas.addEventListener("focus", () => {
      if (this.canvas.matches(":focus-visible") && this.cursor < 0) this.moveCursor(this.firstPatch());
    });
    this.canvas.addEventListener("blur", () => this.moveCursor(-1));
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  /** @param {TokenAxis} axis @param {number} count of tokens @param {boolean} words */
  setAxis(axis, count, words) {
    this.axis = axis;
    this.patches = new PatchMap(axis, count);
    this.items = groupTokens(axis, count, words, null).filter((item) => !this.patches.spots.has(item.tokens[0]));
    this.cursor = -1;
    this.renderWords();
  }

  renderWords() {
    const shown = this.items.length <= MAX_WORDS ? this.items : [...this.items.slice(0, MAX_WORDS / 2), ...this.items.slice(-MAX_WORDS / 2)];
    this.chips = new Map(shown.map((item) => [item.tokens[0], this.chip(item)]));
    const parts = /** @type {HTMLElement[]} */ ([...this.chips.values()]);
    if (shown.length < this.items.length) parts.splice(MAX_WORDS / 2, 0, make("span", { class: "note" }, `… ${this.items.length - shown.length} more …`));
    this.words.replaceChildren(...parts);
    this.words.hidden = parts.length === 0;
    this.words.setAttribute("aria-label", `${this.patches.grids.length > 0 ? "Other tokens" : "Tokens"} of ${visibleText(this.axis?.name ?? "", 60)}, ${this.side === "query" ? "queries" : "keys"}`);
  }

  /** @param {Item} item */
  chip(item) {
    const chip = make("button", { type: "button", class: "chip picture-word", "aria-pressed": "false" }, bidiText(visibleText(item.label, 60), "word"), make("span", { class: "number", "aria-hidden": "true" }));
    chip.addEventListener("click", () => this.on.pick(item.tokens));
    for (const kind of ["pointerenter", "focus"]) chip.addEventListener(kind, () => this.on.hover(item.tokens));
    for (const kind of ["pointerleave", "blur"]) chip.addEventListener(kind, () => this.on.hover([]));
    return chip;
  }

  /** @param {Look} look */
  show(look) {
    this.look = look;
    this.element.hidden = false;
    this.heading.textContent = look.heading;
    const hasPicture = look.picture !== null && look.grids.length > 0;
    this.frame.hidden = !hasPicture;
    this.element.classList.toggle("words-only", this.patches.grids.length === 0);
    const drawn = look.values !== null && look.why === "";
    this.scaleRow.classList.toggle("empty", !drawn); // it keeps its room, so that words do not move under the pointer
    this.legend.textContent = look.why !== "" ? look.why : look.legend;
    this.legend.hidden = this.legend.textContent === "";
    this.paintWords();
    this.draw();
  }

  /** The largest value in the panel's picture, or of its words where it has none. */
  get peak() {
    const values = this.look?.values ?? null;
    if (values === null) return 0;
    const peak = peakOfPatches(this.patches, values);
    return peak > 0 ? peak : this.items.reduce((most, item) => Math.max(most, Math.abs(this.valueOf(item.tokens))), 0);
  }

  /** The value of a word: the sum over its pieces if they are keys, the mean if they are queries. @param {number[]} tokens */
  valueOf(tokens) {
    const values = this.look?.values ?? null;
    if (values === null) return NaN;
    const sum = tokens.reduce((all, at) => all + values[at], 0);
    return this.side === "key" ? sum : sum / tokens.length;
  }

  paintWords() {
    const { look } = this;
    if (look === null) return;
    const peak = this.peak;
    const ground = this.context.colours.inks.panel;
    for (const item of this.items) {
      const chip = this.chips.get(item.tokens[0]);
      if (chip === undefined) continue;
      const out = look.without.has(item.tokens[0]);
      const value = look.why === "" ? this.valueOf(item.tokens) : NaN;
      const known = !Number.isNaN(value) && !out;
      const chosen = look.chosen.includes(item.tokens[0]);
      const shade = known && peak > 0 ? tint(Math.max(-1, Math.min(1, value / peak)), look.style, ground) : null;
      chip.style.backgroundColor = shade?.colour ?? "";
      chip.style.color = shade?.ink ?? "";
      chip.classList.toggle("left-out", out);
      chip.classList.toggle("chosen", chosen);
      chip.setAttribute("aria-pressed", String(chosen && look.pinned));
      const number = known ? formatNumber(value) : "";
      const last = /** @type {HTMLElement} */ (chip.lastChild);
      if (last.textContent !== number) last.textContent = number;
      chip.setAttribute("aria-label", `${item.label}${number === "" ? "" : `, weight ${number}`}${out ? ", left out" : ""}`);
    }
  }

  draw() {
    const { look } = this;
    if (look === null || this.element.clientWidth === 0) return;
    if (look.values !== null && look.why === "") this.drawScale(look);
    if (look.picture === null || look.grids.length === 0) return;
    const { width, height } = this.pictureSize(look.picture);
    const pen = new CanvasPen(prepareCanvas(this.canvas, width, height));
    this.drawPicture(pen, { x: 0, y: 0, w: width, h: height }, this.cursor);
    this.canvas.setAttribute("aria-label", `${look.heading}: picture of patches. Arrow keys move between patches, Enter pins one; with Shift they choose head and place.`);
    this.showTip();
  }

  /** The size at which a picture leaves room for what is below it. @param {HTMLCanvasElement} picture */
  pictureSize(picture) {
    const { least, most, around } = PICTURE_SIDE;
    const narrow = matchMedia("(max-width: 640px)").matches;
    const room = narrow ? most : (this.element.closest(".app")?.clientHeight ?? 0) - around;
    const side = Math.min(most, Math.max(least, room));
    return fitPicture(picture, Math.min(side * 1.25, this.element.clientWidth), side);
  }

  /** @param {Pen} pen @param {Rect} rect @param {number} cursor */
  drawPicture(pen, rect, cursor) {
    const look = /** @type {Look} */ (this.look);
    const picture = /** @type {HTMLCanvasElement} */ (look.picture);
    drawOverlay(pen, rect, picture, look.grids, look.why === "" ? look.values : null, this.peak, look.style);
    if (cursor >= 0) outlineTokens(pen, rect, this.patches, look.grids, [cursor], "#ffffff", 1.5);
    outlineTokens(pen, rect, this.patches, look.grids, look.chosen, "#39d0ff", 2.5);
  }

  /** @param {Look} look */
  drawScale(look) {
    const signed = look.values?.some((value) => value < 0) ?? false;
    const context = prepareCanvas(this.scale, SCALE_WIDTH, 10);
    context.drawImage(scaleImage(look.style, signed), 0, 0, SCALE_WIDTH, 10);
    this.scaleEnds[0].textContent = signed ? formatNumber(-this.peak) : "0";
    this.scaleEnds[1].textContent = formatNumber(this.peak);
  }

  /** @param {number} x @param {number} y pixels of the canvas */
  point(x, y) {
    const [w, h] = [this.canvas.clientWidth, this.canvas.clientHeight];
    this.moveCursor(w > 0 && h > 0 ? tokenAt(this.look?.grids ?? [], x / w, y / h) : -1);
  }

  /** @param {number} token -1: none */
  moveCursor(token) {
    if (token === this.cursor) return;
    this.cursor = token;
    this.on.hover(token < 0 ? [] : [token]);
    this.draw();
  }

  /** The value of the patch under the pointer. */
  showTip() {
    const { look, cursor, patches } = this;
    const spot = look === null ? undefined : patches.spots.get(cursor)?.find((one) => look.grids.includes(one.grid));
    this.tip.hidden = spot === undefined;
    if (spot === undefined || look === null) return;
    const known = look.values !== null && look.why === "";
    const number = look.without.has(cursor) ? "left out" : known ? formatNumber(/** @type {Float32Array} */ (look.values)[cursor]) : "";
    this.tip.replaceChildren(...(number === "" ? [] : [make("strong", { class: "value" }, number)]), make("span", { class: "where" }, this.name([cursor])));
    const [left, top, right, bottom] = spot.grid.box;
    const [w, h] = [this.canvas.clientWidth, this.canvas.clientHeight];
    const x = (left + ((spot.col + 1) / spot.grid.cols) * (right - left)) * w;
    const y = (top + ((spot.row + 1) / spot.grid.rows) * (bottom - top)) * h;
    this.tip.style.left = `${Math.max(0, Math.min(x + 6, w - this.tip.offsetWidth))}px`;
    this.tip.style.top = `${y + 6 + this.tip.offsetHeight > h ? Math.max(0, y - this.tip.offsetHeight - h / spot.grid.rows - 6) : y + 6}px`;
  }

  firstPatch() {
    const { look } = this;
    const patch = look?.chosen.find((at) => this.patches.spots.has(at));
    return patch ?? look?.grids[0]?.tokens.find((token) => token >= 0) ?? -1;
  }

  /** Arrow keys move between patches. @param {KeyboardEvent} event @returns {boolean} */
  key(event) {
    /** @type {Record<string, [number, number]>} */
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (document.activeElement !== this.canvas || event.shiftKey) return false;
    if (event.key === "Enter" || event.key === " ") {
      if (this.cursor >= 0) this.on.pick([this.cursor]);
      return true;
    }
    const move = moves[event.key];
    if (move === undefined) return false;
    const spot = this.patches.spots.get(this.cursor)?.find((one) => this.look?.grids.includes(one.grid));
    if (spot === undefined) this.moveCursor(this.firstPatch());
    else {
      const { grid, row, col } = spot;
      const [r, c] = [Math.min(grid.rows - 1, Math.max(0, row + move[0])), Math.min(grid.cols - 1, Math.max(0, col + move[1]))];
      const token = grid.tokens[r * grid.cols + c];
      if (token >= 0) this.moveCursor(token);
    }
    return true;
  }

  /** How tokens are called. @param {number[]} tokens */
  name(tokens) {
    const spot = tokens.length === 1 ? this.patches.spot(tokens[0]) : null;
    const several = new Set(this.patches.grids.map((grid) => grid.picture)).size > 1;
    if (spot !== null) return `patch ${spot.row}, ${spot.col}${several ? ` of picture ${spot.grid.picture + 1}` : ""}`;
    const item = this.items.find((one) => one.tokens[0] === tokens[0]);
    const text = isolateBidi(visibleText(item?.label ?? this.axis?.tokens[tokens[0]] ?? "", 40));
    return (this.axis?.words[tokens[0]] ?? -1) < 0 ? text : `“${text}”`;
  }

  /** The largest values: patches and words together. @param {number} count @returns {{name: string, value: number}[]} */
  largest(count) {
    const values = this.look?.values ?? null;
    if (values === null || this.look?.why !== "") return [];
    const all = [...this.patches.spots.keys()].map((token) => ({ tokens: [token], value: values[token] }));
    for (const item of this.items) all.push({ tokens: item.tokens, value: this.valueOf(item.tokens) });
    return all.filter(({ value }) => value > 0).sort((a, b) => b.value - a.value).slice(0, count).map(({ tokens, value }) => ({ name: this.name(tokens), value }));
  }

  /** The size of the panel in an exported picture, and how it is drawn there. */
  exported() {
    const { look } = this;
    const { inks } = this.context.colours;
    const hasPicture = look !== null && look.picture !== null && look.grids.length > 0;
    const size = hasPicture ? fitPicture(/** @type {HTMLCanvasElement} */ (look?.picture), EXPORTED_SIDE, EXPORTED_SIDE) : { width: EXPORTED_SIDE, height: 0 };
    const words = this.exportedWords();
    const drawn = look !== null && look.values !== null && look.why === "";
    const lines = wrapText(this.legend.textContent ?? "", 64);
    const under = (drawn ? 26 : 0) + lines.length * EXPORTED_LINE;
    /** @param {Pen} pen @param {number} x @param {number} y */
    const draw = (pen, x, y) => {
      if (look === null) return;
      pen.text(x, y + 10, look.heading, { colour: inks.ink, size: 14, bold: true });
      let at = y + (hasPicture ? 28 : 40);
      if (hasPicture) this.drawPicture(pen, { x, y: at, w: size.width, h: size.height }, -1);
      at += size.height + (hasPicture ? 14 : 0);
      if (drawn) {
        const signed = look.values?.some((value) => value < 0) ?? false;
        pen.text(x, at + 5, signed ? formatNumber(-this.peak) : "0", { colour: inks.faint, size: 11 });
        pen.image(x + 52, at, 160, 10, scaleImage(look.style, signed), undefined, true);
        pen.text(x + 220, at + 5, formatNumber(this.peak), { colour: inks.faint, size: 11 });
        at += 26;
      }
      for (const line of lines) {
        pen.text(x, at, line, { colour: inks.faint, size: 12 });
        at += EXPORTED_LINE;
      }
      for (const { item, value, chosen } of words) {
        const shade = Number.isNaN(value) || this.peak === 0 ? null : tint(Math.max(-1, Math.min(1, value / this.peak)), look.style, inks.panel);
        if (shade !== null) pen.rect(x, at - 9, EXPORTED_SIDE - 90, 18, shade.colour);
        pen.text(x + 6, at, visibleText(item.label, 40), { colour: shade?.ink ?? inks.ink, size: 13, bold: chosen });
        if (shade !== null) pen.text(x + EXPORTED_SIDE - 14, at, formatNumber(value), { colour: inks.faint, size: 11, align: "right" });
        at += EXPORTED_LINE;
      }
    };
    return { width: EXPORTED_SIDE, height: 52 + size.height + (hasPicture ? 14 : 0) + under + words.length * EXPORTED_LINE, draw };
  }

  /** The words of an exported picture, in the order of the text: all where they are few, else the largest. */
  exportedWords() {
    const { look } = this;
    if (look === null) return [];
    const all = this.items.map((item) => ({ item, value: look.why === "" && !look.without.has(item.tokens[0]) ? this.valueOf(item.tokens) : NaN, chosen: look.chosen.includes(item.tokens[0]) }));
    const most = this.patches.grids.length === 0 ? 3 * MAX_DRAWN_WORDS : MAX_DRAWN_WORDS;
    if (all.length <= most) return all;
    const kept = new Set([...all].sort((a, b) => Number(b.chosen) - Number(a.chosen) || (b.value || 0) - (a.value || 0)).slice(0, most));
    return all.filter((one) => kept.has(one));
  }

  numbers() {
    const { look } = this;
    if (look === null || look.values === null || look.why !== "") return null;
    return { heading: look.heading, tokens: this.axis?.tokens ?? [], values: [...look.values], peak: this.peak, without: [...look.without] };
  }
}

/** The size of a picture in a room. @param {HTMLCanvasElement} picture @param {number} width @param {number} height */
export function fitPicture(picture, width, height) {
  const scale = Math.min(width / picture.width, height / picture.height);
  return { width: Math.max(1, Math.round(picture.width * scale)), height: Math.max(1, Math.round(picture.height * scale)) };
}

/** Lines of at most so many characters. @param {string} text @param {number} most @returns {string[]} */
function wrapText(text, most) {
  /** @type {string[]} */
  const lines = [];
  for (const word of text.split(" ").filter(Boolean)) {
    const last = lines.length - 1;
    if (last >= 0 && lines[last].length + 1 + word.length <= most) lines[last] += ` ${word}`;
    else lines.push(word);
  }
  return lines;
}
