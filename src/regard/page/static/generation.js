// Generation: the tokens that were written, one after the other, what else could have come, and where each step looked.

/** @import { Picture } from "./draw.js" */
/** @import { ViewContext } from "./view_context.js" */
import { make, spoken } from "./dom.js";
import { headName } from "./view_context.js";
import { visible, written } from "./text.js";
import { largest } from "./weights.js";

const AROUND_STEP = 60; // written tokens before and after the present one that are shown
const MOST_CHIPS = 400; // tokens that were looked at, beyond which only the strongest are shown

export class Generation {
  name = /** @type {const} */ ("generation");
  title = "Generation";

  /** @param {ViewContext} context */
  constructor(context) {
    this.context = context;
    this.text = make("div", { class: "written", role: "group", "aria-label": "Written tokens" });
    this.candidates = make("ol", { class: "candidates" });
    this.where = make("h2", {});
    this.looked = make("div", { class: "looked" });
    this.alert = make("p", { class: "alert", role: "alert" });
    this.element = make("div", { class: "generation" }, make("h2", {}, "Written"), this.text,
      make("div", { class: "halves" },
        make("section", {}, make("h2", {}, "What could have come"), this.candidates, this.alert),
        make("section", {}, this.where, this.looked)));
    this.turn = 0;
    /** @type {Float32Array | null} */
    this.row = null;
    context.colours.listeners.push(() => this.update());
  }

  /** Whether masks were filled, each where it stands, rather than a text written on. */
  get fills() {
    return this.context.source.told.facts.kind === "fills";
  }

  /** The side that was written. */
  get side() {
    return this.fills ? 0 : this.context.source.told.sides.length - 1;
  }

  /** The query that wrote the token of this step: of one text that goes on, the token before it. */
  asks() {
    const { source, state } = this.context;
    const { told } = source;
    const at = told.steps[state.shown.step][0];
    const before = told.sides.length === 1 && !this.fills;
    return Math.min(Math.max(0, before ? at - 1 : at), told.places[state.shown.place].T - 1);
  }

  /** Whether the present place has a query for each written token. */
  fits() {
    const { told } = this.context.source;
    const place = told.places[this.context.state.shown.place];
    // what a decoder reads is one side, what it writes another, but both are one row of queries
    const read = told.sides.length === 3 && place.queries === 1;
    return place.queries === this.side || read;
  }

  /** A written token as it is shown. @param {import("./record.js").Step} step */
  spelled([at, token, , candidates]) {
    return candidates.find(([id]) => id === token)?.[1] ?? this.context.source.told.sides[this.side].tokens[at] ?? "";
  }

  async update() {
    const { source, state } = this.context;
    const turn = ++this.turn;
    this.writeText();
    this.writeCandidates();
    const { place, head, measure } = state.shown;
    const name = source.told.places[place].name;
    this.where.textContent = this.fits() ? `Where this step looked: ${name}, ${headName(head)}` : `${name} has no query for what was written`;
    this.row = this.fits() ? await source.row(place, head, this.asks(), this.context.measure(place, measure)) : null;
    if (turn !== this.turn) return;
    this.writeLooked();
    this.tell();
  }

  writeText() {
    const { source, state } = this.context;
    const { steps } = source.told;
    const now = state.shown.step;
    const [from, to] = [Math.max(0, now - AROUND_STEP), Math.min(steps.length, now + AROUND_STEP)];
    const focused = this.text.contains(document.activeElement);
    this.text.replaceChildren(...steps.slice(from, to).map((step, n) => {
      const button = make("button", { type: "button", class: "chip", "aria-pressed": String(from + n === now) }, spoken(visible(this.spelled(step), 40)));
      button.addEventListener("click", () => state.set({ step: from + n }));
      return button;
    }));
    if (focused) /** @type {HTMLElement | null} */ (this.text.children[now - from])?.focus();
  }

  writeCandidates() {
    const { source, state } = this.context;
    const [, token, , candidates] = source.told.steps[state.shown.step];
    const rewrite = source.rewrite;
    this.candidates.replaceChildren(...candidates.map(([id, shown, log]) => {
      const share = log === null ? 0 : Math.exp(log);
      const bar = make("span", { class: "bar" });
      bar.style.width = `${Math.max(0.5, share * 100)}%`;
      const line = make("li", { class: id === token ? "taken" : "" }, spoken(visible(shown, 40)), make("span", { class: "track" }, bar), make("span", { class: "number" }, `${(share * 100).toFixed(1)} %`));
      if (id === token) line.append(make("span", { class: "note" }, "taken"));
      else if (rewrite !== null) line.append(this.instead(id, rewrite));
      return line;
    }));
  }

  /** @param {number} id @param {(prefix: number[]) => Promise<void>} rewrite */
  instead(id, rewrite) {
    const { source, state } = this.context;
    const button = make("button", { type: "button", class: "act" }, "Try this one instead");
    button.addEventListener("click", async () => {
      const prefix = source.told.steps.slice(0, state.shown.step).map((step) => step[1]);
      button.disabled = true;
      this.alert.textContent = "";
      try {
        await rewrite([...prefix, id]);
      } catch (error) {
        this.alert.textContent = /** @type {Error} */ (error).message;
        button.disabled = false;
      }
    });
    return button;
  }

  writeLooked() {
    const { source, state, colours } = this.context;
    const row = this.row;
    if (row === null) return this.looked.replaceChildren(make("p", { class: "note" }, "Choose another place, one of the decoder, to see where this step looked."));
    const tokens = source.told.sides[source.told.places[state.shown.place].keys].tokens;
    const peak = row.reduce((most, one) => (one > most ? one : most), 0);
    const shown = row.length <= MOST_CHIPS ? row.map((_, at) => at) : largest(row, 24).sort((a, b) => a - b);
    return this.looked.replaceChildren(...Array.from(shown, (at) => {
      const share = peak > 0 && row[at] > 0 ? row[at] / peak : 0;
      const chip = make("span", { class: "chip", title: `${visible(tokens[at] ?? "")}: ${written(row[at])}` }, spoken(visible(tokens[at] ?? "", 40)));
      chip.style.backgroundColor = colours.css(share);
      chip.style.color = colours.inkOn(share);
      return chip;
    }));
  }

  tell() {
    const { source, state, status } = this.context;
    const { step, place, head } = state.shown;
    const [, , log] = source.told.steps[step];
    const said = `Step ${step + 1} of ${source.told.steps.length}${log === null ? "" : `, written with probability ${(Math.exp(log) * 100).toFixed(1)} %`}.`;
    status(source.readable(place, head) ? said : `${said} ${source.why(place, head)}`);
  }

  /** @param {KeyboardEvent} event @returns {boolean} */
  key(event) {
    if (event.key !== "j" && event.key !== "k") return false;
    this.context.state.set({ step: this.context.state.shown.step + (event.key === "j" ? 1 : -1) });
    return true;
  }

  /** @returns {Picture} */
  picture() {
    const { source, state, colours } = this.context;
    const { inks } = colours;
    const [, token, , candidates] = source.told.steps[state.shown.step];
    const best = this.row === null ? [] : largest(this.row, 8);
    const tokens = source.told.sides[source.told.places[state.shown.place].keys].tokens;
    return {
      width: 720, height: 64 + Math.max(candidates.length, best.length) * 28,
      draw: (pen) => {
        pen.text(16, 24, "What could have come", { colour: inks.faint, size: 12 });
        pen.text(400, 24, "Where this step looked", { colour: inks.faint, size: 12 });
        candidates.forEach(([id, shown, log], n) => {
          const share = log === null ? 0 : Math.exp(log);
          pen.text(126, 58 + n * 28, visible(shown, 14), { colour: inks.ink, align: "right", bold: id === token });
          pen.rect(138, 50 + n * 28, 140 * share, 16, inks.accent);
          pen.text(146 + 140 * share, 58 + n * 28, `${(share * 100).toFixed(1)} %`, { colour: inks.faint, size: 11 });
        });
        best.forEach((at, n) => {
          const weight = /** @type {Float32Array} */ (this.row)[at];
          pen.text(510, 58 + n * 28, visible(tokens[at] ?? "", 14), { colour: inks.ink, align: "right" });
          pen.rect(522, 50 + n * 28, 120 * Math.min(1, weight), 16, inks.accent);
          pen.text(530 + 120 * Math.min(1, weight), 58 + n * 28, written(weight), { colour: inks.faint, size: 11 });
        });
      },
    };
  }

  numbers() {
    const { source, state } = this.context;
    return { step: source.told.steps[state.shown.step], query: this.asks(), weights: this.row === null ? null : [...this.row] };
  }
}
