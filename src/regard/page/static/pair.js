// Query-key: how each dimension of a pair of tokens adds to its score, and how the score becomes a weight.

/** @import { Pen, Picture } from "./draw.js" */
/** @import { ViewContext } from "./view_context.js" */
/** @import { Pair } from "./weights.js" */
import { make, spoken } from "./dom.js";
import { CanvasPen, prepared } from "./draw.js";
import { ALL_HEADS } from "./source.js";
import { visible, written } from "./text.js";

const MARGIN = 64; // left of the drawing, for its names
const STRIP = 26;

export class PairView {
  name = /** @type {const} */ ("pair");
  title = "Query-key";

  /** @param {ViewContext} context */
  constructor(context) {
    this.context = context;
    /** @type {Pair | null} */
    this.pair = null;
    this.turn = 0;
    this.query = make("div", { class: "end" });
    this.end = make("div", { class: "end" });
    this.sums = make("dl", { class: "sums" });
    this.canvas = make("canvas", { tabindex: "0", role: "application", "aria-label": "Contributions of each dimension. Up and down choose the query, left and right the key." });
    this.plot = make("div", { class: "plot" }, this.canvas);
    this.note = make("p", { class: "note" });
    const arrow = make("span", { class: "arrow", "aria-hidden": "true" }, "→");
    this.element = make("div", { class: "pair" }, make("div", { class: "ends" }, this.query, arrow, this.end), this.sums, this.plot, this.note);
    this.canvas.addEventListener("pointermove", (event) => this.hover(event.offsetX));
    this.canvas.addEventListener("pointerleave", () => this.tell());
    new ResizeObserver(() => this.draw()).observe(this.plot);
    context.colours.listeners.push(() => this.draw());
  }

  /** The head itself; where the mean over heads is chosen, the first, since a mean has no query. */
  get head() {
    const { source, state } = this.context;
    const { place, head } = state.shown;
    return head === ALL_HEADS ? (source.heads(place)[0] ?? 0) : head;
  }

  async update() {
    const { source, state } = this.context;
    const { place, key } = state.shown;
    const query = Math.max(0, state.shown.query);
    const turn = ++this.turn;
    const { queries, keys, T, S } = source.told.places[place];
    this.name_(this.query, "query", source.told.sides[queries].tokens[query] ?? "", query, T);
    this.name_(this.end, "key", source.told.sides[keys].tokens[key] ?? "", key, S);
    const readable = source.readable(place, this.head);
    const pair = readable ? await source.pair(place, this.head, query, key) : null;
    if (turn !== this.turn) return;
    this.pair = pair;
    this.note.textContent = readable ? this.remark() : source.why(place, this.head);
    this.sum();
    this.draw();
    this.tell();
  }

  /** @param {HTMLElement} at @param {"query" | "key"} what @param {string} token @param {number} index @param {number} count */
  name_(at, what, token, index, count) {
    const step = (/** @type {number} */ by, /** @type {string} */ sign) => {
      const button = make("button", { type: "button", class: "step", "aria-label": `${by < 0 ? "previous" : "next"} ${what}` }, sign);
      button.disabled = index + by < 0 || index + by >= count;
      button.addEventListener("click", () => this.context.state.set({ [what]: index + by, ...(what === "key" ? { query: Math.max(0, this.context.state.shown.query) } : {}) }));
      return button;
    };
    const focused = [...at.querySelectorAll("button")].indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
    at.replaceChildren(make("span", { class: "what" }, `${what} ${index}`), make("div", { class: "chosen" }, step(-1, "‹"), spoken(visible(token, 60), "spoken large"), step(1, "›")));
    if (focused >= 0) at.querySelectorAll("button")[focused].focus();
  }

  remark() {
    const { source, state } = this.context;
    const kept = source.told.places[state.shown.place].kept;
    const mean = state.shown.head === ALL_HEADS ? `A mean over heads has no query of its own: this is head ${this.head}. ` : "";
    const how = kept?.score === "additive" ? "Each bar is v tanh(q + k) of one dimension" : "Each bar is q times k of one dimension, the scale of the score within q";
    const hidden = this.pair !== null && !this.pair.seen ? " This query may not look at this key, so the weight is 0." : "";
    return `${mean}${how}; together they are the score.${hidden}`;
  }

  sum() {
    const pair = this.pair;
    /** @type {[string, string, string][]} */
    const parts = pair === null ? [] : [["score", written(pair.score), ""], ["bias", written(pair.added), "+"], ["ln Σ exp of all scores", written(pair.lse), "−"]];
    if (pair !== null && pair.gain !== 1) parts.push(["window", written(pair.gain), "×"]);
    if (pair !== null) parts.push(["weight", written(pair.weight), "exp ="]);
    this.sums.replaceChildren(...parts.map(([name, value, sign]) =>
      make("div", { class: name === "weight" ? "result" : "" }, make("dt", {}, name), make("dd", {}, ...(sign === "" ? [] : [make("span", { class: "sign", "aria-hidden": "true" }, sign)]), value))));
  }

  draw() {
    if (this.plot.clientWidth === 0) return;
    const picture = this.picture();
    picture.draw(new CanvasPen(prepared(this.canvas, picture.width, picture.height)));
  }

  /** @returns {Picture} */
  picture() {
    const [width, height] = [this.plot.clientWidth || 800, Math.max(220, this.plot.clientHeight || 320)];
    return { width, height, draw: (pen) => this.strokes(pen, width, height) };
  }

  /** @param {Pen} pen @param {number} width @param {number} height */
  strokes(pen, width, height) {
    const { inks } = this.context.colours;
    const pair = this.pair;
    if (pair === null) return;
    const step = (width - MARGIN - 16) / pair.q.length;
    const gap = step > 6 ? Math.min(3, step / 5) : 0;
    const strip = (/** @type {number} */ y, /** @type {number[]} */ values, /** @type {string} */ name) => {
      const most = Math.max(1e-9, ...values.map(Math.abs));
      pen.text(MARGIN - 14, y + STRIP / 2, name, { colour: inks.faint, align: "right" });
      values.forEach((value, d) => pen.rect(MARGIN + d * step, y, step - gap, STRIP, mixed(value < 0 ? inks.warm : inks.accent, inks.panel, Math.abs(value) / most)));
    };
    strip(12, pair.q, "q");
    strip(12 + STRIP + 8, pair.k, "k");
    const top = 2 * STRIP + 44;
    const room = height - top - 16;
    const [high, low] = [Math.max(0, ...pair.parts), Math.min(0, ...pair.parts)];
    const scale = room / Math.max(1e-9, high - low);
    const zero = top + high * scale;
    pen.text(MARGIN - 14, zero, "0", { colour: inks.faint, align: "right", size: 12 });
    if (high * scale > 24) pen.text(MARGIN - 14, top + 6, high.toFixed(2), { colour: inks.faint, align: "right", size: 12 });
    if (-low * scale > 24) pen.text(MARGIN - 14, top + room - 6, low.toFixed(2), { colour: inks.faint, align: "right", size: 12 });
    pair.parts.forEach((part, d) => {
      const tall = Math.abs(part) * scale;
      pen.rect(MARGIN + d * step, part < 0 ? zero : zero - tall, step - gap, tall, part < 0 ? inks.warm : inks.accent);
    });
    pen.rect(MARGIN, zero - 0.5, width - MARGIN - 16, 1, inks.line);
  }

  /** @param {number} x */
  hover(x) {
    const pair = this.pair;
    if (pair === null) return;
    const d = Math.floor((x - MARGIN) / ((this.plot.clientWidth - MARGIN - 16) / pair.q.length));
    if (d < 0 || d >= pair.q.length) return this.tell();
    this.context.status(`Dimension ${d}: q ${written(pair.q[d])}, k ${written(pair.k[d])}, adds ${written(pair.parts[d])} to the score.`);
  }

  tell() {
    const { source, state, status } = this.context;
    const name = `${source.told.places[state.shown.place].name}, head ${this.head}`;
    status(this.pair === null ? `${name}. ${source.why(state.shown.place, this.head)}` : `${name}. Positive contributions blue, negative orange; point at a bar to read it.`);
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

/** A colour, as much of it as `share` says, on a ground. @param {string} colour @param {string} ground @param {number} share */
function mixed(colour, ground, share) {
  const part = (/** @type {string} */ from, /** @type {number} */ at) => parseInt(from.slice(at, at + 2), 16);
  const channels = [1, 3, 5].map((at) => Math.round(part(ground, at) + (part(colour, at) - part(ground, at)) * share));
  return `rgb(${channels.join(",")})`;
}
