// Through the layers: where an output token comes from, followed back layer by layer.

/** @import { Pen, Picture } from "./draw.js" */
/** @import { ViewContext } from "./view_context.js" */
/** @import { RolloutStep } from "./rollout.js" */
import { make, spoken } from "./dom.js";
import { CanvasPen, imageOf, prepared } from "./draw.js";
import { rolledOut, stepsBack } from "./rollout.js";
import { isolated, visible, written } from "./text.js";
import { largest } from "./weights.js";

const SIDE = 150;
const TALL = 30;
const BETWEEN = 8;
const NAME = 26; // for the name of a stream
const TOKENS = 92; // for its tokens
const READABLE = 15; // pixels between the tokens that are written below the strips
const MOST_TOKENS = 4096;

export class Layers {
  name = /** @type {const} */ ("layers");
  title = "Through the layers";

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
    this.slided = make("output", {});
    this.from = make("div", { class: "from" });
    this.ask = make("div", { class: "ask", hidden: "" });
    this.canvas = make("canvas", { role: "img" });
    this.plot = make("div", { class: "plot" }, this.canvas);
    const bar = make("div", { class: "bar" }, this.from, make("label", { class: "choice" }, make("span", {}, "down to layer"), this.slider, this.slided));
    this.element = make("div", { class: "layers" }, bar, this.ask, this.plot);
    this.canvas.addEventListener("pointermove", (event) => this.hover(event.offsetX, event.offsetY));
    this.canvas.addEventListener("pointerleave", () => this.tell());
    this.canvas.addEventListener("click", (event) => this.pick(event.offsetX, event.offsetY));
    new ResizeObserver(() => this.draw()).observe(this.plot);
    context.colours.listeners.push(() => this.draw());
  }

  /** The token that is followed: of the place that speaks last. */
  get token() {
    const { source, state } = this.context;
    const [last] = stepsBack(source.told, state.shown.first);
    return Math.min(Math.max(0, state.shown.query), source.told.places[last.place].T - 1);
  }

  async update() {
    const { source, state } = this.context;
    const { first } = state.shown;
    const steps = stepsBack(source.told, first);
    const layers = Math.max(...source.told.places.map((place) => place.layer));
    this.slider.max = String(layers);
    this.slider.value = String(first);
    this.slided.textContent = String(first);
    const dumb = steps.find((step) => source.heads(step.place).length === 0);
    const longest = Math.max(...steps.map((step) => Math.max(source.told.places[step.place].T, source.told.places[step.place].S)));
    const side = source.told.sides[source.told.places[steps[0].place].queries];
    this.from.replaceChildren("What is in ", spoken(visible(side.tokens[this.token] ?? "", 40), "spoken large"), ` (token ${this.token}) at the end, and where it came from`);
    this.ask.hidden = dumb === undefined && (longest <= MOST_TOKENS || this.allowed);
    if (dumb !== undefined) return this.refuse(source.why(dumb.place, 0));
    if (!this.ask.hidden) return this.offer(longest);
    const wanted = `${this.token} ${first}`;
    if (this.done !== wanted) await this.roll(wanted, first);
    else this.tell();
    return undefined;
  }

  /** @param {string} wanted @param {number} first */
  async roll(wanted, first) {
    const { source, status } = this.context;
    this.stop.abort();
    const stop = (this.stop = new AbortController());
    this.done = wanted;
    try {
      const stages = await rolledOut(source, this.token, first, stop.signal, (at, all) => status(`Going back, place ${at + 1} of ${all}.`));
      if (stop.signal.aborted) return;
      this.stages = stages;
      this.draw();
      this.tell();
    } catch (error) {
      if (stop.signal.aborted) return;
      this.done = "";
      this.refuse(/** @type {Error} */ (error).message);
    }
  }

  /** @param {string} why */
  refuse(why) {
    this.stages = [];
    this.ask.hidden = false;
    this.ask.replaceChildren(make("p", {}, why));
    this.draw();
    this.context.status(why);
  }

  /** @param {number} longest */
  offer(longest) {
    const button = make("button", { type: "button", class: "act" }, "Compute it all the same");
    button.addEventListener("click", () => {
      this.allowed = true;
      this.update();
    });
    this.ask.replaceChildren(make("p", {}, `Every weight of every layer takes part, and ${longest} tokens have many: this may take minutes.`), button);
    this.context.status("Waiting for your word.");
  }

  /** The strips from the output down, stream by stream: which one each shows, and its masses. */
  strips() {
    const { source } = this.context;
    const all = this.stages.map(({ back, masses }) => ({
      name: source.told.places[back.place].name, side: back.keys, masses: /** @type {Float64Array} */ (masses.get(back.keys)),
    }));
    const streams = new Set([this.stages[0]?.back.queries, ...all.map((strip) => strip.side)]);
    return [...streams].flatMap((side) => all.filter((strip) => strip.side === side));
  }

  draw() {
    if (this.plot.clientWidth === 0) return;
    const picture = this.picture();
    picture.draw(new CanvasPen(prepared(this.canvas, picture.width, picture.height)));
    this.canvas.setAttribute("aria-label", this.told());
  }

  /** @returns {Picture} */
  picture() {
    const width = this.plot.clientWidth || 900;
    return { width, height: this.heights().height, draw: (pen) => this.strokes(pen, width) };
  }

  /** Where each strip begins; above the first of each stream stands its name, below the last its tokens. */
  heights() {
    let y = 0;
    const strips = this.strips();
    const several = new Set(strips.map((strip) => strip.side)).size > 1;
    const tops = strips.map((strip, n) => {
      if (several && strips[n - 1]?.side !== strip.side) y += NAME;
      const top = y;
      y += TALL + BETWEEN + (strips[n + 1]?.side === strip.side ? 0 : TOKENS);
      return top;
    });
    return { tops, height: y + 8, several };
  }

  /** @param {Pen} pen @param {number} width */
  strokes(pen, width) {
    const { source, colours } = this.context;
    const { tops, several } = this.heights();
    const strips = this.strips();
    strips.forEach((strip, n) => {
      const cell = cellOf(width, strip.masses.length);
      const wide = cell * strip.masses.length;
      const columns = pooled(strip.masses, Math.ceil(wide));
      const peak = columns.reduce((most, one) => Math.max(most, one), 0);
      pen.text(SIDE - 14, tops[n] + TALL / 2, strip.name, { colour: colours.inks.ink, size: 12, align: "right" });
      pen.image(SIDE, tops[n], wide, TALL, imageOf(colours.pixels(columns, peak), 1, columns.length));
      if (several && strips[n - 1]?.side !== strip.side) pen.text(SIDE, tops[n] - NAME / 2, source.told.sides[strip.side].name, { colour: colours.inks.faint, size: 12 });
      if (strips[n + 1]?.side === strip.side) return;
      const tokens = source.told.sides[strip.side].tokens;
      const step = Math.ceil(READABLE / cell);
      for (let at = 0; at < strip.masses.length; at += step) {
        pen.text(SIDE + (at + 0.5) * cell, tops[n] + TALL + 8, visible(tokens[at] ?? "", 12), { colour: colours.inks.faint, size: 12, align: "right", turned: true });
      }
    });
  }

  /** @param {number} x @param {number} y @returns {{name: string, side: number, masses: Float64Array, at: number} | null} */
  under(x, y) {
    const width = this.plot.clientWidth;
    const { tops } = this.heights();
    const n = tops.findIndex((top) => y >= top && y < top + TALL);
    if (n < 0) return null;
    const strip = this.strips()[n];
    const at = Math.floor((x - SIDE) / cellOf(width, strip.masses.length));
    return at >= 0 && at < strip.masses.length ? { ...strip, at } : null;
  }

  /** @param {number} x @param {number} y */
  hover(x, y) {
    const found = this.under(x, y);
    if (found === null) return this.tell();
    const token = isolated(visible(this.context.source.told.sides[found.side].tokens[found.at] ?? "", 40));
    this.context.status(`Below ${found.name}: ${token} (token ${found.at}) holds ${written(found.masses[found.at])} of it.`);
  }

  /** @param {number} x @param {number} y */
  pick(x, y) {
    const found = this.under(x, y);
    if (found !== null && found.side === this.stages[0].back.queries) this.context.state.set({ query: found.at });
  }

  told() {
    const last = this.stages.at(-1);
    if (last === undefined) return "Nothing to show.";
    const { sides } = this.context.source.told;
    const ends = [...last.masses].flatMap(([side, masses]) => largest(masses, 3).map((at) => ({ token: sides[side].tokens[at] ?? "", mass: masses[at] })));
    const most = ends.sort((a, b) => b.mass - a.mass).slice(0, 3).map(({ token, mass }) => `${isolated(visible(token, 30))} ${written(mass)}`);
    return `Rollout of token ${this.token}: at the bottom it is mostly ${most.join(", ")}.`;
  }

  tell() {
    this.context.status(this.told());
  }

  key() {
    return false;
  }

  numbers() {
    const stages = this.stages.map(({ back, masses }) => ({ place: this.context.source.told.places[back.place].name, masses: Object.fromEntries([...masses].map(([side, mass]) => [side, [...mass]])) }));
    return { token: this.token, stages };
  }
}

/** At most so many numbers, each the largest of its share. @param {Float64Array} masses @param {number} most */
function pooled(masses, most) {
  if (masses.length <= most) return masses;
  const found = new Float64Array(most);
  masses.forEach((one, at) => {
    const cell = Math.floor((at * most) / masses.length);
    if (one > found[cell]) found[cell] = one;
  });
  return found;
}

/** Pixels of a token. @param {number} width @param {number} count */
function cellOf(width, count) {
  return Math.min(44, (width - SIDE - 16) / Math.max(1, count));
}
