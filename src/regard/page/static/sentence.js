// Sentence: who looks at whom, as two columns of tokens with lines between them.

/** @import { Item } from "./tokens.js" */
/** @import { Pen, Picture } from "./draw.js" */
/** @import { ViewContext } from "./view_context.js" */
import { make } from "./dom.js";
import { averaged, itemsOf, itemWith, summed } from "./tokens.js";
import { CanvasPen, prepared } from "./draw.js";
import { headName } from "./view_context.js";
import { written } from "./text.js";
import { ROW, TokenList } from "./token_list.js";
import { entropyOf } from "./weights.js";

const GAP = 200; // between the columns
const COLUMN = 220;
const FAINT = 0.15; // of the largest weight in view; fainter lines are not drawn while all tokens speak at once

export class Sentence {
  name = /** @type {const} */ ("sentence");
  title = "Sentence";

  /** @param {ViewContext} context */
  constructor(context) {
    this.context = context;
    /** The item that is pointed at, by its column. @type {{side: "left" | "right", at: number} | null} */
    this.pointed = null;
    const on = (/** @type {"left" | "right"} */ side) => ({
      pick: (/** @type {number} */ at) => this.pick(side, at),
      hover: (/** @type {number} */ at) => this.point(side, at),
      scroll: () => this.show(),
    });
    this.left = new TokenList("Tokens that look", "left", on("left"));
    this.right = new TokenList("Tokens that are looked at", "right", on("right"));
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.middle = make("div", { class: "lines" }, this.canvas);
    this.heads = [make("h2", {}), make("h2", {})];
    const body = make("div", { class: "columns" }, this.left.element, this.middle, this.right.element);
    this.element = make("div", { class: "sentence" }, make("div", { class: "names" }, ...this.heads), body);
    /** What is drawn: for items on the left, the weights of those on the right. @type {Map<number, Float32Array>} */
    this.rows = new Map();
    this.turn = 0;
    this.seeking = false;
    new ResizeObserver(() => this.show()).observe(body);
  }

  /** @param {Set<string> | null} changed null: all of it */
  update(changed) {
    const { state, source } = this.context;
    const shown = state.shown;
    const place = source.told.places[shown.place];
    if (changed === null || ["place", "words", "part"].some((name) => changed.has(name))) {
      const [asking, asked] = [source.told.sides[place.queries], source.told.sides[place.keys]];
      const [from, to] = { all: [null, null], ab: [0, 1], ba: [1, 0], aa: [0, 0], bb: [1, 1] }[shown.part];
      this.left.setItems(itemsOf(asking, place.T, shown.words, from));
      this.right.setItems(itemsOf(asked, place.S, shown.words, to));
      this.heads[0].textContent = `${asking.name}${from === null ? "" : ` ${"AB"[from]}`} looks`;
      this.heads[1].textContent = `at ${place.queries === place.keys && from === to ? "itself" : asked.name}${to === null ? "" : ` ${"AB"[to]}`}`;
      this.pointed = null;
    }
    const chosen = shown.query < 0 ? -1 : itemWith(this.left.items, shown.query);
    this.left.chosen = chosen;
    this.right.chosen = -1;
    this.seeking = chosen >= 0 && (changed === null || changed.has("query"));
    if (this.seeking) this.left.reveal(chosen);
    this.left.render();
    this.show();
  }

  /** @param {"left" | "right"} side @param {number} at */
  pick(side, at) {
    const { state } = this.context;
    if (side === "right") return state.set({ key: this.right.items[at].tokens[0] });
    const token = this.left.items[at].tokens[0];
    state.set({ query: state.shown.query === token ? -1 : token });
  }

  /** @param {"left" | "right"} side @param {number} at */
  point(side, at) {
    if (at < 0 && this.pointed?.side !== side) return;
    this.pointed = at < 0 ? null : { side, at };
    this.show();
  }

  /** The row of an item on the left, over the items on the right. @param {number} at @returns {Promise<Float32Array>} */
  async rowOf(at) {
    const { source, state } = this.context;
    const { place, head, measure } = state.shown;
    const rows = this.left.items[at].tokens.map((query) => source.row(place, head, query, this.context.measure(place, measure)));
    return summed(averaged(await Promise.all(rows)), this.right.items);
  }

  /** Which items on the left speak now. @returns {number[]} */
  speaking() {
    const chosen = this.left.chosen;
    if (this.pointed?.side === "left") return [this.pointed.at];
    if (this.pointed === null && chosen >= 0) return [chosen];
    const [from, to] = this.left.range();
    return Array.from({ length: to - from }, (_, n) => from + n);
  }

  async show() {
    const turn = ++this.turn;
    const speaking = this.speaking();
    const rows = await Promise.all(speaking.map((at) => this.rowOf(at)));
    if (turn !== this.turn) return;
    this.rows = new Map(speaking.map((at, n) => [at, rows[n]]));
    if (this.seeking && rows.length === 1) {
      this.seeking = false; // what was just chosen looks there; the reader may then scroll away
      if (peakOf(rows[0]) > 0) this.right.reveal(rows[0].indexOf(peakOf(rows[0])));
    }
    this.shade();
    const width = this.middle.clientWidth;
    const height = this.middle.clientHeight;
    if (width > 0) this.lines(new CanvasPen(prepared(this.canvas, width, height)), 0, width, (list, at) => Math.min(height + ROW, Math.max(-ROW, list.middle(at))));
    this.tell();
  }

  shade() {
    const { colours } = this.context;
    const one = this.rows.size === 1 ? [...this.rows.values()][0] : null;
    const key = this.pointed?.side === "right" ? this.pointed.at : -1;
    /** @param {number} value @param {number} peak */
    const shaded = (value, peak) => {
      if (Number.isNaN(value)) return null;
      const share = peak > 0 ? value / peak : 0;
      return { colour: colours.css(share), ink: colours.inkOn(share), number: written(value) };
    };
    const peak = one === null ? 0 : peakOf(one);
    this.right.setShade((at) => (one === null ? null : shaded(one[at], peak)));
    const received = key < 0 ? null : new Map([...this.rows].map(([at, row]) => [at, row[key]]));
    const most = received === null ? 0 : peakOf([...received.values()]);
    this.left.setShade((at) => {
      const value = received?.get(at);
      return value === undefined ? null : shaded(value, most);
    });
  }

  /** @param {Pen} pen @param {number} left @param {number} right @param {(list: TokenList, at: number) => number} middle */
  lines(pen, left, right, middle) {
    const { inks } = this.context.colours;
    const key = this.pointed?.side === "right" ? this.pointed.at : -1;
    const alone = this.rows.size === 1;
    const peak = Math.max(0.05, ...[...this.rows.values()].map(peakOf));
    const [from, to] = this.right.range();
    for (const [at, row] of this.rows) {
      const best = row.indexOf(peakOf(row));
      for (let j = 0; j < row.length; j++) {
        const share = row[j] / peak;
        if (!(share > (alone || key >= 0 ? 0.01 : FAINT)) || (key >= 0 && j !== key)) continue;
        // where all speak at once, more lines to what is out of view than one of each would hide the others
        if (!alone && key < 0 && j !== best && (j < from || j >= to)) continue;
        const opacity = (alone ? 0.9 : 0.75) * Math.sqrt(Math.min(1, share));
        pen.curve(left, middle(this.left, at), right, middle(this.right, j), inks.accent, 0.75 + 3.25 * Math.min(1, row[j]), opacity);
      }
    }
  }

  tell() {
    const { source, state, status } = this.context;
    const { place, head, measure } = state.shown;
    const where = `${source.told.places[place].name}, ${headName(head)}`;
    if (!source.readable(place, head)) return status(`${source.why(place, head)} Known are the largest weights of each token.`);
    const [at, row] = this.rows.size === 1 ? [...this.rows][0] : [-1, null];
    if (row === null) return status(`${where}. Point at a token, or choose one, to read its weights.`);
    const best = peakOf(row) > 0 ? row.indexOf(peakOf(row)) : -1;
    const word = this.left.items[at].label;
    const kind = this.context.measure(place, measure) === "weights" ? "weight" : "share";
    const most = best < 0 ? "" : `, most at \u2068${this.right.items[best].label}\u2069 (${kind} ${written(row[best])})`;
    status(`${where}. \u2068${word}\u2069 looks${most}; entropy ${entropyOf(row).toFixed(3)}.`);
  }

  /** @param {KeyboardEvent} event @returns {boolean} */
  key(event) {
    if (event.key !== "j" && event.key !== "k") return false;
    const now = this.left.chosen;
    const next = Math.min(this.left.items.length - 1, Math.max(0, now + (event.key === "j" ? 1 : -1)));
    if (this.left.items.length > 0) {
      this.context.state.set({ query: this.left.items[next].tokens[0] });
      this.left.focus(next);
    }
    return true;
  }

  /** @returns {Picture} */
  picture() {
    const { colours } = this.context;
    const inks = colours.inks;
    const lists = [this.left, this.right];
    const ranges = lists.map((list) => list.range());
    const rows = Math.max(...ranges.map(([from, to]) => to - from));
    const one = this.rows.size === 1 ? [...this.rows.values()][0] : null;
    const peak = one === null ? 0 : peakOf(one);
    /** @param {TokenList} list @param {number} at */
    const middle = (list, at) => (at - ranges[lists.indexOf(list)][0] + 0.5) * ROW + 16;
    return {
      width: 2 * COLUMN + GAP, height: rows * ROW + 32,
      draw: (pen) => {
        pen.clipped(0, 16, 2 * COLUMN + GAP, rows * ROW, () => this.lines(pen, COLUMN, COLUMN + GAP, middle));
        lists.forEach((list, side) => {
          for (let at = ranges[side][0]; at < ranges[side][1]; at++) {
            const share = side === 1 && one !== null && peak > 0 && one[at] > 0 ? one[at] / peak : 0;
            const x = side === 0 ? COLUMN - 8 : COLUMN + GAP + 8;
            const label = list.items[at].label.length > 26 ? `${[...list.items[at].label].slice(0, 25).join("")}…` : list.items[at].label;
            if (share > 0) pen.rect(COLUMN + GAP, middle(list, at) - 11, COLUMN - 60, 22, colours.css(share));
            pen.text(x, middle(list, at), label, { colour: share > 0 ? colours.inkOn(share) : inks.ink, align: side === 0 ? "right" : "left", bold: side === 0 && at === list.chosen });
            if (share > 0) pen.text(2 * COLUMN + GAP - 6, middle(list, at), written(/** @type {Float32Array} */ (one)[at]), { colour: inks.faint, size: 11, align: "right" });
          }
        });
      },
    };
  }

  /** What is on the screen, for a file. */
  numbers() {
    const tokens = (/** @type {Item[]} */ items) => items.map((item) => item.label);
    const rows = [...this.rows].map(([at, row]) => ({ at, token: this.left.items[at].label, weights: [...row] }));
    return { looking: tokens(this.left.items), lookedAt: tokens(this.right.items), rows };
  }
}

/** The largest that is a number. @param {ArrayLike<number>} values */
function peakOf(values) {
  let peak = 0;
  for (let at = 0; at < values.length; at++) if (values[at] > peak) peak = values[at];
  return peak;
}
