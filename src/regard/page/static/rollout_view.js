// Attention rollout: which input tokens the final state of a token comes from, layer by layer.

/** @import { Pen, Picture } from "./draw.js" */
/** @import { ViewContext } from "./view_context.js" */
/** @import { RolloutStep } from "./rollout.js" */
import { make, bidiText } from "./dom.js";
import { CanvasPen, canvasOfPixels, prepareCanvas } from "./draw.js";
import { shortPlaceNames } from "./record.js";
import { computeRollout, rolloutProblem, rolloutSteps } from "./rollout.js";
import { isolateBidi, visibleText, formatNumber } from "./text.js";
import { topIndices } from "./weights.js";

const LABEL_WIDTH = 150;
const STRIP_HEIGHT = 30;
const STRIP_GAP = 8;
const STREAM_NAME_HEIGHT = 26; // pixels
const TOKEN_LABELS_HEIGHT = 92; // pixels
const MIN_LABEL_STEP = 15; // pixels between token labels
const MAX_TOKENS_AT_ONCE = 4096;

export class Layers {
  name = /** @type {const} */ ("layers");
  title = "Attention rollout";

  /** @param {ViewContext} context */
  constructor(context) {
    this.context = context;
    /** @type {RolloutStep[]} */
    this.stages = [];
    this.done = "";
    this.allowed = false;
    this.stop = new AbortController();
    this.slider = make("input", { type: "range", min: "0", step: "1", "aria-label": "First layer" });
    this.slider.addEventListener("input", () => context.state.set({ first: Number(this.slider.value) }));
    this.firstLayer = make("output", {});
    this.titleLine = make("div", { class: "rollout-title" });
    this.notice = make("div", { class: "notice", hidden: "" });
    this.canvas = make("canvas", { role: "img" });
    this.plot = make("div", { class: "plot" }, this.canvas);
    const bar = make("div", { class: "bar" }, this.titleLine, make("label", { class: "choice" }, make("span", {}, "back to layer"), this.slider, this.firstLayer));
    this.element = make("div", { class: "layers" }, bar, this.notice, this.plot);
    this.canvas.addEventListener("pointermove", (event) => this.hover(event.offsetX, event.offsetY));
    this.canvas.addEventListener("pointerleave", () => this.updateStatus());
    this.canvas.addEventListener("click", (event) => this.pick(event.offsetX, event.offsetY));
    new ResizeObserver(() => this.draw()).observe(this.plot);
    context.colours.listeners.push(() => this.draw());
  }

  /** The token whose rollout is shown, among the queries of the last place. */
  get token() {
    const { source, state } = this.context;
    const [last] = rolloutSteps(source.info, state.shown.first);
    return Math.min(Math.max(0, state.shown.query), source.info.places[last.place].T - 1);
  }

  async update() {
    const { source, state } = this.context;
    const { first } = state.shown;
    const steps = rolloutSteps(source.info, first);
    const layers = Math.max(...source.info.places.map((place) => place.layer));
    this.slider.max = String(layers);
    this.slider.value = String(first);
    this.firstLayer.textContent = String(first);
    const unreadable = steps.find((step) => source.heads(step.place).length === 0);
    const longest = Math.max(...steps.map((step) => Math.max(source.info.places[step.place].T, source.info.places[step.place].S)));
    const axis = source.info.axes[source.info.places[steps[0].place].queries];
    this.titleLine.replaceChildren("Sources of the final state of ", bidiText(visibleText(axis.tokens[this.token] ?? "", 40), "bidi large"), ` (token ${this.token})`);
    const problem = rolloutProblem(source.info, steps);
    if (problem !== "") return this.refuse(problem);
    this.notice.hidden = unreadable === undefined && (longest <= MAX_TOKENS_AT_ONCE || this.allowed);
    if (unreadable !== undefined) return this.refuse(source.why(unreadable.place, 0));
    if (!this.notice.hidden) return this.askToCompute(longest);
    const wanted = `${this.token} ${first}`;
    if (this.done !== wanted) await this.roll(wanted, first);
    else this.updateStatus();
    return undefined;
  }

  /** @param {string} wanted @param {number} first */
  async roll(wanted, first) {
    const { source, status } = this.context;
    this.stop.abort();
    const stop = (this.stop = new AbortController());
    this.done = wanted;
    try {
      const stages = await computeRollout(source, this.token, first, stop.signal, (at, all) => status(`Computing place ${at + 1} of ${all}.`));
      if (stop.signal.aborted) return;
      this.stages = stages;
      this.draw();
      this.updateStatus();
    } catch (error) {
      if (stop.signal.aborted) return;
      this.done = "";
      this.refuse(/** @type {Error} */ (error).message);
    }
  }

  /** @param {string} why */
  refuse(why) {
    this.stages = [];
    this.notice.hidden = false;
    this.notice.replaceChildren(make("p", {}, why));
    this.draw();
    this.context.status(why);
  }

  /** @param {number} longest */
  askToCompute(longest) {
    const button = make("button", { type: "button", class: "action" }, "Compute anyway");
    button.addEventListener("click", () => {
      this.allowed = true;
      this.update();
    });
    this.notice.replaceChildren(make("p", {}, `Rollout needs every attention weight of every layer. With ${longest} tokens this may take minutes.`), button);
    this.context.status("Not computed yet: press “Compute anyway”.");
  }

  /** One strip for each place, from the output to the input, stream by stream: its axis and its masses. */
  strips() {
    const { source } = this.context;
    const names = shortPlaceNames(source.info.places, 20);
    const all = this.stages.map(({ step, masses }) => ({
      name: names[step.place], axis: step.keys, masses: /** @type {Float64Array} */ (masses.get(step.keys)),
    }));
    const streams = new Set([this.stages[0]?.step.queries, ...all.map((strip) => strip.axis)]);
    return [...streams].flatMap((axis) => all.filter((strip) => strip.axis === axis));
  }

  draw() {
    if (this.plot.clientWidth === 0) return;
    const picture = this.picture();
    picture.draw(new CanvasPen(prepareCanvas(this.canvas, picture.width, picture.height)));
    this.canvas.setAttribute("aria-label", this.summary());
  }

  /** @returns {Picture} */
  picture() {
    const width = this.plot.clientWidth || 900;
    return { width, height: this.layout().height, draw: (pen) => this.drawOn(pen, width) };
  }

  /** Where each strip begins; above the first strip of a stream is its name, below the last its tokens. */
  layout() {
    let y = 0;
    const strips = this.strips();
    const several = new Set(strips.map((strip) => strip.axis)).size > 1;
    const tops = strips.map((strip, n) => {
      if (several && strips[n - 1]?.axis !== strip.axis) y += STREAM_NAME_HEIGHT;
      const top = y;
      y += STRIP_HEIGHT + STRIP_GAP + (strips[n + 1]?.axis === strip.axis ? 0 : TOKEN_LABELS_HEIGHT);
      return top;
    });
    return { tops, height: y + 8, several };
  }

  /** @param {Pen} pen @param {number} width */
  drawOn(pen, width) {
    const { source, colours } = this.context;
    const { tops, several } = this.layout();
    const strips = this.strips();
    strips.forEach((strip, n) => {
      const cell = cellWidth(width, strip.masses.length);
      const stripWidth = cell * strip.masses.length;
      const columns = maxPool(strip.masses, Math.ceil(stripWidth));
      const peak = columns.reduce((most, one) => Math.max(most, one), 0);
      pen.text(LABEL_WIDTH - 14, tops[n] + STRIP_HEIGHT / 2, strip.name, { colour: colours.inks.ink, size: 12, align: "right" });
      pen.image(LABEL_WIDTH, tops[n], stripWidth, STRIP_HEIGHT, canvasOfPixels(colours.pixels(columns, peak), 1, columns.length));
      if (several && strips[n - 1]?.axis !== strip.axis) pen.text(LABEL_WIDTH, tops[n] - STREAM_NAME_HEIGHT / 2, source.info.axes[strip.axis].name, { colour: colours.inks.faint, size: 12 });
      if (strips[n + 1]?.axis === strip.axis) return;
      const tokens = source.info.axes[strip.axis].tokens;
      const step = Math.ceil(MIN_LABEL_STEP / cell);
      for (let at = 0; at < strip.masses.length; at += step) {
        pen.text(LABEL_WIDTH + (at + 0.5) * cell, tops[n] + STRIP_HEIGHT + 8, visibleText(tokens[at] ?? "", 12), { colour: colours.inks.faint, size: 12, align: "right", rotated: true });
      }
    });
  }

  /** @param {number} x @param {number} y @returns {{name: string, axis: number, masses: Float64Array, at: number} | null} */
  stripAt(x, y) {
    const width = this.plot.clientWidth;
    const { tops } = this.layout();
    const n = tops.findIndex((top) => y >= top && y < top + STRIP_HEIGHT);
    if (n < 0) return null;
    const strip = this.strips()[n];
    const at = Math.floor((x - LABEL_WIDTH) / cellWidth(width, strip.masses.length));
    return at >= 0 && at < strip.masses.length ? { ...strip, at } : null;
  }

  /** @param {number} x @param {number} y */
  hover(x, y) {
    const found = this.stripAt(x, y);
    if (found === null) return this.updateStatus();
    const token = isolateBidi(visibleText(this.context.source.info.axes[found.axis].tokens[found.at] ?? "", 40));
    this.context.status(`Input of ${found.name}: ${token} (token ${found.at}) contributes ${formatNumber(found.masses[found.at])}.`);
  }

  /** @param {number} x @param {number} y */
  pick(x, y) {
    const found = this.stripAt(x, y);
    if (found !== null && found.axis === this.stages[0].step.queries) this.context.state.set({ query: found.at });
  }

  summary() {
    const last = this.stages.at(-1);
    if (last === undefined) return "No rollout.";
    const { axes } = this.context.source.info;
    const ends = [...last.masses].flatMap(([axis, masses]) => topIndices(masses, 3).map((at) => ({ token: axes[axis].tokens[at] ?? "", mass: masses[at] })));
    const sources = ends.sort((a, b) => b.mass - a.mass).slice(0, 3).map(({ token, mass }) => `${isolateBidi(visibleText(token, 30))} ${formatNumber(mass)}`);
    return `Rollout of token ${this.token}: largest sources: ${sources.join(", ")}.`;
  }

  updateStatus() {
    this.context.status(this.summary());
  }

  key() {
    return false;
  }

  numbers() {
    const stages = this.stages.map(({ step, masses }) => ({ place: this.context.source.info.places[step.place].name, masses: Object.fromEntries([...masses].map(([axis, mass]) => [axis, [...mass]])) }));
    return { token: this.token, stages };
  }
}

/** At most `count` numbers, each the maximum of its cell. @param {Float64Array} masses @param {number} count */
function maxPool(masses, count) {
  if (masses.length <= count) return masses;
  const found = new Float64Array(count);
  masses.forEach((one, at) => {
    const cell = Math.floor((at * count) / masses.length);
    if (one > found[cell]) found[cell] = one;
  });
  return found;
}

/** Pixels of a token. @param {number} width @param {number} count */
function cellWidth(width, count) {
  return Math.min(44, (width - LABEL_WIDTH - 16) / Math.max(1, count));
}
