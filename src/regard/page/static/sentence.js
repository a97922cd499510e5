// The Sentence view, a bipartite graph (as BertViz's head view): attention as lines between words, from a column of query tokens to a column of key tokens.

/** @import { Item } from "./tokens.js" */
/** @import { Pen, Picture } from "./draw.js" */
/** @import { ViewContext } from "./view_context.js" */
import { make } from "./dom.js";
import { meanRow, groupTokens, itemIndexOf, sumOverItems } from "./tokens.js";
import { CanvasPen, prepareCanvas } from "./draw.js";
import { headLabel } from "./view_context.js";
import { formatNumber } from "./text.js";
import { ROW, TokenList } from "./token_list.js";
import { entropyOf } from "./weights.js";

const COLUMN_GAP = 200; // between the columns
const COLUMN_WIDTH = 220;
const MIN_SHARE = 0.15; // of the largest weight in view; weaker lines are not drawn while all queries are shown

export class Sentence {
  name = /** @type {const} */ ("sentence");
  title = "Sentence";

  /** @param {ViewContext} context */
  constructor(context) {
    this.context = context;
    /** The item under the pointer, and its column. @type {{side: "left" | "right", at: number} | null} */
    this.hovered = null;
    const on = (/** @type {"left" | "right"} */ side) => ({
      pick: (/** @type {number} */ at) => this.pick(side, at),
      hover: (/** @type {number} */ at) => this.hover(side, at),
      scroll: () => this.refresh(),
    });
    this.left = new TokenList("Query tokens", "left", on("left"));
    this.right = new TokenList("Key tokens", "right", on("right"));
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.middle = make("div", { class: "lines" }, this.canvas);
    this.heads = [make("h2", {}), make("h2", {})];
    const body = make("div", { class: "columns" }, this.left.element, this.middle, this.right.element);
    this.element = make("div", { class: "sentence" }, make("div", { class: "names" }, ...this.heads), body);
    /** The lines that are drawn: the weights of the key items, for each query item. @type {Map<number, Float32Array>} */
    this.rows = new Map();
    this.version = 0;
    this.revealTarget = false;
    new ResizeObserver(() => this.refresh()).observe(body);
  }

  /** @param {Set<string> | null} changed null: all of it */
  update(changed) {
    const { state, source } = this.context;
    const shown = state.shown;
    const place = source.info.places[shown.place];
    if (changed === null || ["place", "words", "part"].some((name) => changed.has(name))) {
      const [queryAxis, keyAxis] = [source.info.axes[place.queries], source.info.axes[place.keys]];
      const [from, to] = { all: [null, null], ab: [0, 1], ba: [1, 0], aa: [0, 0], bb: [1, 1] }[shown.part];
      this.left.setItems(groupTokens(queryAxis, place.T, shown.words, from));
      this.right.setItems(groupTokens(keyAxis, place.S, shown.words, to));
      this.heads[0].textContent = `queries: ${queryAxis.name}${from === null ? "" : ` ${"AB"[from]}`}`;
      this.heads[1].textContent = `keys: ${keyAxis.name}${to === null ? "" : ` ${"AB"[to]}`}`;
      this.hovered = null;
    }
    const chosen = shown.query < 0 ? -1 : itemIndexOf(this.left.items, shown.query);
    this.left.chosen = chosen;
    this.right.chosen = -1;
    this.revealTarget = chosen >= 0 && (changed === null || changed.has("query"));
    if (this.revealTarget) this.left.reveal(chosen);
    this.left.render();
    this.refresh();
  }

  /** @param {"left" | "right"} side @param {number} at */
  pick(side, at) {
    const { state } = this.context;
    if (side === "right") return state.set({ key: this.right.items[at].tokens[0] });
    const token = this.left.items[at].tokens[0];
    state.set({ query: state.shown.query === token ? -1 : token });
  }

  /** @param {"left" | "right"} side @param {number} at */
  hover(side, at) {
    if (at < 0 && this.hovered?.side !== side) return;
    this.hovered = at < 0 ? null : { side, at };
    this.refresh();
  }

  /** The weights of a query item, over the key items. @param {number} at @returns {Promise<Float32Array>} */
  async rowOf(at) {
    const { source, state } = this.context;
    const { place, head, measure } = state.shown;
    const rows = this.left.items[at].tokens.map((query) => source.row(place, head, query, this.context.measure(place, measure)));
    return sumOverItems(meanRow(await Promise.all(rows)), this.right.items);
  }

  /** The query items whose weights are shown. @returns {number[]} */
  active() {
    const chosen = this.left.chosen;
    if (this.hovered?.side === "left") return [this.hovered.at];
    if (this.hovered === null && chosen >= 0) return [chosen];
    const [from, to] = this.left.range();
    return Array.from({ length: to - from }, (_, n) => from + n);
  }

  async refresh() {
    const version = ++this.version;
    const active = this.active();
    const rows = await Promise.all(active.map((at) => this.rowOf(at)));
    if (version !== this.version) return;
    this.rows = new Map(active.map((at, n) => [at, rows[n]]));
    if (this.revealTarget && rows.length === 1) {
      this.revealTarget = false; // scroll once to the largest weight; the reader may then scroll away
      if (peakOf(rows[0]) > 0) this.right.reveal(rows[0].indexOf(peakOf(rows[0])));
    }
    this.shade();
    const width = this.middle.clientWidth;
    const height = this.middle.clientHeight;
    if (width > 0) this.lines(new CanvasPen(prepareCanvas(this.canvas, width, height)), 0, width, (list, at) => Math.min(height + ROW, Math.max(-ROW, list.middle(at))));
    this.updateStatus();
  }

  shade() {
    const { colours } = this.context;
    const one = this.rows.size === 1 ? [...this.rows.values()][0] : null;
    const key = this.hovered?.side === "right" ? this.hovered.at : -1;
    /** @param {number} value @param {number} peak */
    const shaded = (value, peak) => {
      if (Number.isNaN(value)) return null;
      const share = peak > 0 ? value / peak : 0;
      return { colour: colours.css(share), ink: colours.inkOn(share), number: formatNumber(value) };
    };
    const peak = one === null ? 0 : peakOf(one);
    this.right.setShade((at) => (one === null ? null : shaded(one[at], peak)));
    const received = key < 0 ? null : new Map([...this.rows].map(([at, row]) => [at, row[key]]));
    const largest = received === null ? 0 : peakOf([...received.values()]);
    this.left.setShade((at) => {
      const value = received?.get(at);
      return value === undefined ? null : shaded(value, largest);
    });
  }

  /** Draw a line for each weight, wider and more opaque the larger it is. @param {Pen} pen @param {number} left @param {number} right
   * @param {(list: TokenList, at: number) => number} middle */
  lines(pen, left, right, middle) {
    const { inks } = this.context.colours;
    const key = this.hovered?.side === "right" ? this.hovered.at : -1;
    const single = this.rows.size === 1;
    const peak = Math.max(0.05, ...[...this.rows.values()].map(peakOf));
    const [from, to] = this.right.range();
    for (const [at, row] of this.rows) {
      const best = row.indexOf(peakOf(row));
      for (let j = 0; j < row.length; j++) {
        const share = row[j] / peak;
        if (!(share > (single || key >= 0 ? 0.01 : MIN_SHARE)) || (key >= 0 && j !== key)) continue;
        // while all queries are shown, only the strongest line of each may leave the view
        if (!single && key < 0 && j !== best && (j < from || j >= to)) continue;
        const opacity = (single ? 0.9 : 0.75) * Math.sqrt(Math.min(1, share));
        pen.curve(left, middle(this.left, at), right, middle(this.right, j), inks.accent, 0.75 + 3.25 * Math.min(1, row[j]), opacity);
      }
    }
  }

  updateStatus() {
    const { source, state, status } = this.context;
    const { place, head, measure } = state.shown;
    const where = `${source.info.places[place].name}, ${headLabel(head)}`;
    if (!source.readable(place, head)) return status(`${source.why(place, head)} Only the largest weights of each query are known.`);
    const [at, row] = this.rows.size === 1 ? [...this.rows][0] : [-1, null];
    if (row === null) return status(`${where}. Hover over a token, or select one, to read its weights.`);
    const best = peakOf(row) > 0 ? row.indexOf(peakOf(row)) : -1;
    const token = this.left.items[at].label;
    const kind = this.context.measure(place, measure) === "weights" ? "weight" : "share";
    const target = best < 0 ? "" : ` most to \u2068${this.right.items[best].label}\u2069 (${kind} ${formatNumber(row[best])})`;
    const shares = this.left.items[at].tokens.map((one) => source.sinkShare(place, head, one) ?? NaN);
    const share = shares.reduce((sum, one) => sum + one, 0) / shares.length;
    const sink = Number.isNaN(share) ? "" : `; the sink took ${formatNumber(share)}`;
    status(`${where}. \u2068${token}\u2069 attends${target}${sink}; entropy ${entropyOf(row).toFixed(3)}.`);
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
      width: 2 * COLUMN_WIDTH + COLUMN_GAP, height: rows * ROW + 32,
      draw: (pen) => {
        pen.clipped(0, 16, 2 * COLUMN_WIDTH + COLUMN_GAP, rows * ROW, () => this.lines(pen, COLUMN_WIDTH, COLUMN_WIDTH + COLUMN_GAP, middle));
        lists.forEach((list, side) => {
          for (let at = ranges[side][0]; at < ranges[side][1]; at++) {
            const share = side === 1 && one !== null && peak > 0 && one[at] > 0 ? one[at] / peak : 0;
            const x = side === 0 ? COLUMN_WIDTH - 8 : COLUMN_WIDTH + COLUMN_GAP + 8;
            const label = list.items[at].label.length > 26 ? `${[...list.items[at].label].slice(0, 25).join("")}…` : list.items[at].label;
            if (share > 0) pen.rect(COLUMN_WIDTH + COLUMN_GAP, middle(list, at) - 11, COLUMN_WIDTH - 60, 22, colours.css(share));
            pen.text(x, middle(list, at), label, { colour: share > 0 ? colours.inkOn(share) : inks.ink, align: side === 0 ? "right" : "left", bold: side === 0 && at === list.chosen });
            if (share > 0) pen.text(2 * COLUMN_WIDTH + COLUMN_GAP - 6, middle(list, at), formatNumber(/** @type {Float32Array} */ (one)[at]), { colour: inks.faint, size: 11, align: "right" });
          }
        });
      },
    };
  }

  /** The visible numbers, for export. */
  numbers() {
    const tokens = (/** @type {Item[]} */ items) => items.map((item) => item.label);
    const rows = [...this.rows].map(([at, row]) => ({ at, token: this.left.items[at].label, weights: [...row] }));
    return { queries: tokens(this.left.items), keys: tokens(this.right.items), rows };
  }
}

/** The largest value, ignoring NaN. @param {ArrayLike<number>} values */
function peakOf(values) {
  let peak = 0;
  for (let at = 0; at < values.length; at++) if (values[at] > peak) peak = values[at];
  return peak;
}
