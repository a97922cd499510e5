// Query-key: the contribution of each dimension to the score of a pair, and the weight that follows from the score.

/** @import { Pen, Picture } from "./draw.js" */
/** @import { ViewContext } from "./view_context.js" */
/** @import { Pair } from "./weights.js" */
import { make, bidiText } from "./dom.js";
import { CanvasPen, prepareCanvas } from "./draw.js";
import { ALL_HEADS } from "./source.js";
import { visibleText, formatNumber } from "./text.js";

const NAME_WIDTH = 64; // pixels left of the drawing
const STRIP_SIZE = 26;

export class PairView {
  name = /** @type {const} */ ("pair");
  title = "Query-key";

  /** @param {ViewContext} context */
  constructor(context) {
    this.context = context;
    /** @type {Pair | null} */
    this.pair = null;
    this.version = 0;
    this.queryBox = make("div", { class: "pair-token" });
    this.keyBox = make("div", { class: "pair-token" });
    this.sums = make("dl", { class: "sums" });
    this.canvas = make("canvas", { tabindex: "0", role: "application", "aria-label": "Contribution of each dimension to the score. Up and down choose the query, left and right the key." });
    this.plot = make("div", { class: "plot" }, this.canvas);
    this.note = make("p", { class: "note" });
    const arrow = make("span", { class: "arrow", "aria-hidden": "true" }, "→");
    this.element = make("div", { class: "pair" }, make("div", { class: "pair-tokens" }, this.queryBox, arrow, this.keyBox), this.sums, this.plot, this.note);
    this.canvas.addEventListener("pointermove", (event) => this.hover(event.offsetX));
    this.canvas.addEventListener("pointerleave", () => this.updateStatus());
    new ResizeObserver(() => this.draw()).observe(this.plot);
    context.colours.listeners.push(() => this.draw());
  }

  /** The selected head; the first head where the mean over heads is selected, since a mean has no query vector. */
  get head() {
    const { source, state } = this.context;
    const { place, head } = state.shown;
    return head === ALL_HEADS ? (source.heads(place)[0] ?? 0) : head;
  }

  async update() {
    const { source, state } = this.context;
    const { place, key } = state.shown;
    const query = Math.max(0, state.shown.query);
    const version = ++this.version;
    const { queries, keys, T, S } = source.info.places[place];
    this.renderToken(this.queryBox, "query", source.info.axes[queries].tokens[query] ?? "", query, T);
    this.renderToken(this.keyBox, "key", source.info.axes[keys].tokens[key] ?? "", key, S);
    const readable = source.readable(place, this.head);
    const pair = readable ? await source.pair(place, this.head, query, key) : null;
    if (version !== this.version) return;
    this.pair = pair;
    this.note.textContent = readable ? this.explanation() : source.why(place, this.head);
    this.renderSum();
    this.draw();
    this.updateStatus();
  }

  /** @param {HTMLElement} at @param {"query" | "key"} what @param {string} token @param {number} index @param {number} count */
  renderToken(at, what, token, index, count) {
    const step = (/** @type {number} */ by, /** @type {string} */ sign) => {
      const button = make("button", { type: "button", class: "step", "aria-label": `${by < 0 ? "previous" : "next"} ${what}` }, sign);
      button.disabled = index + by < 0 || index + by >= count;
      button.addEventListener("click", () => this.context.state.set({ [what]: index + by, ...(what === "key" ? { query: Math.max(0, this.context.state.shown.query) } : {}) }));
      return button;
    };
    const focused = [...at.querySelectorAll("button")].indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
    at.replaceChildren(make("span", { class: "what" }, `${what} ${index}`), make("div", { class: "chosen" }, step(-1, "‹"), bidiText(visibleText(token, 60), "bidi large"), step(1, "›")));
    if (focused >= 0) at.querySelectorAll("button")[focused].focus();
  }

  explanation() {
    const { source, state } = this.context;
    const stored = source.info.places[state.shown.place].stored;
    const mean = state.shown.head === ALL_HEADS ? `A mean over heads has no query vector: this is head ${this.head}. ` : "";
    const terms = stored?.score === "additive" ? "Each bar is v tanh(q + k) in one dimension" : "Each bar is q × k in one dimension, with the scale of the score included in q";
    const hidden = this.pair !== null && !this.pair.visible ? " This query may not attend to this key (it is masked), so the weight is 0." : "";
    return `${mean}${terms}; their sum is the score.${hidden}`;
  }

  renderSum() {
    const pair = this.pair;
    /** @type {[string, string, string][]} */
    const terms = [];
    if (pair !== null) {
      const { source, state } = this.context;
      const { cap, alpha } = source.info.places[state.shown.place].stored ?? { cap: null, alpha: null };
      const sink = source.sinkShare(state.shown.place, this.head, Math.max(0, state.shown.query)) === null ? "" : " and the sink";
      terms.push(["score", formatNumber(pair.score), ""]);
      if (cap !== null) terms.push([`after the soft cap of ${formatNumber(cap)}`, formatNumber(pair.capped), "→"]);
      terms.push(["bias", formatNumber(pair.bias), "+"]);
      if (alpha !== null && alpha !== 2) terms.push(["α − 1", formatNumber(alpha - 1), "×"]);
      terms.push(alpha === null ? [`log-sum-exp of all scores${sink}`, formatNumber(pair.lse), "−"] : ["threshold", formatNumber(pair.lse), "−"]);
      if (pair.windowWeight !== 1) terms.push(["window", formatNumber(pair.windowWeight), "×"]);
      const power = alpha === null ? "exp" : `max(0, ·)${alpha === 2 ? "" : ` to the power ${formatNumber(1 / (alpha - 1))}`}`;
      terms.push(["weight", formatNumber(pair.weight), `${power} =`]);
    }
    this.sums.replaceChildren(...terms.map(([name, value, sign]) =>
      make("div", { class: name === "weight" ? "result" : "" }, make("dt", {}, name), make("dd", {}, ...(sign === "" ? [] : [make("span", { class: "sign", "aria-hidden": "true" }, sign)]), value))));
  }

  draw() {
    if (this.plot.clientWidth === 0) return;
    const picture = this.picture();
    picture.draw(new CanvasPen(prepareCanvas(this.canvas, picture.width, picture.height)));
  }

  /** @returns {Picture} */
  picture() {
    const [width, height] = [this.plot.clientWidth || 800, Math.max(220, this.plot.clientHeight || 320)];
    return { width, height, draw: (pen) => this.drawOn(pen, width, height) };
  }

  /** @param {Pen} pen @param {number} width @param {number} height */
  drawOn(pen, width, height) {
    const { inks } = this.context.colours;
    const pair = this.pair;
    if (pair === null) return;
    const step = (width - NAME_WIDTH - 16) / pair.q.length;
    const gap = step > 6 ? Math.min(3, step / 5) : 0;
    const strip = (/** @type {number} */ y, /** @type {number[]} */ values, /** @type {string} */ name) => {
      const peak = Math.max(1e-9, ...values.map(Math.abs));
      pen.text(NAME_WIDTH - 14, y + STRIP_SIZE / 2, name, { colour: inks.faint, align: "right" });
      values.forEach((value, d) => pen.rect(NAME_WIDTH + d * step, y, step - gap, STRIP_SIZE, blend(value < 0 ? inks.warm : inks.accent, inks.panel, Math.abs(value) / peak)));
    };
    strip(12, pair.q, "q");
    strip(12 + STRIP_SIZE + 8, pair.k, "k");
    const top = 2 * STRIP_SIZE + 44;
    const room = height - top - 16;
    const [high, low] = [Math.max(0, ...pair.terms), Math.min(0, ...pair.terms)];
    const scale = room / Math.max(1e-9, high - low);
    const zero = top + high * scale;
    pen.text(NAME_WIDTH - 14, zero, "0", { colour: inks.faint, align: "right", size: 12 });
    if (high * scale > 24) pen.text(NAME_WIDTH - 14, top + 6, high.toFixed(2), { colour: inks.faint, align: "right", size: 12 });
    if (-low * scale > 24) pen.text(NAME_WIDTH - 14, top + room - 6, low.toFixed(2), { colour: inks.faint, align: "right", size: 12 });
    pair.terms.forEach((part, d) => {
      const tall = Math.abs(part) * scale;
      pen.rect(NAME_WIDTH + d * step, part < 0 ? zero : zero - tall, step - gap, tall, part < 0 ? inks.warm : inks.accent);
    });
    pen.rect(NAME_WIDTH, zero - 0.5, width - NAME_WIDTH - 16, 1, inks.line);
  }

  /** @param {number} x */
  hover(x) {
    const pair = this.pair;
    if (pair === null) return;
    const d = Math.floor((x - NAME_WIDTH) / ((this.plot.clientWidth - NAME_WIDTH - 16) / pair.q.length));
    if (d < 0 || d >= pair.q.length) return this.updateStatus();
    this.context.status(`Dimension ${d}: q ${formatNumber(pair.q[d])}, k ${formatNumber(pair.k[d])}, adds ${formatNumber(pair.terms[d])} to the score.`);
  }

  updateStatus() {
    const { source, state, status } = this.context;
    const name = `${source.info.places[state.shown.place].name}, head ${this.head}`;
    status(this.pair === null ? `${name}. ${source.why(state.shown.place, this.head)}` : `${name}. Positive contributions are blue, negative ones orange; hover over a bar to read its value.`);
  }

  /** @param {KeyboardEvent} event @returns {boolean} */
  key(event) {
    if (document.activeElement !== this.canvas || event.shiftKey) return false;
    const { query, key } = this.context.state.shown;
    const now = Math.max(0, query);
    /** @type {Record<string, Partial<import("./state.js").Shown>>} */
    const moves = { ArrowUp: { query: Math.max(0, now - 1) }, ArrowDown: { query: now + 1 }, ArrowLeft: { query: now, key: key - 1 }, ArrowRight: { query: now, key: key + 1 } };
    if (moves[event.key] === undefined) return false;
    this.context.state.set(moves[event.key]);
    return true;
  }

  numbers() {
    return { query: Math.max(0, this.context.state.shown.query), key: this.context.state.shown.key, head: this.head, pair: this.pair };
  }
}

/** A colour blended over a background with opacity `share`. @param {string} colour @param {string} ground @param {number} share */
function blend(colour, ground, share) {
  const part = (/** @type {string} */ from, /** @type {number} */ at) => parseInt(from.slice(at, at + 2), 16);
  const channels = [1, 3, 5].map((at) => Math.round(part(ground, at) + (part(colour, at) - part(ground, at)) * share));
  return `rgb(${channels.join(",")})`;
}
