// Generation: the generated tokens one by one, the candidates of each step, and its attention.

/** @import { Picture } from "./draw.js" */
/** @import { ViewContext } from "./view_context.js" */
import { make, bidiText } from "./dom.js";
import { countTexts } from "./record.js";
import { headLabel } from "./view_context.js";
import { visibleText, formatNumber } from "./text.js";
import { topIndices } from "./weights.js";

const STEPS_AROUND = 60; // generated tokens shown before and after the current one
const MAX_CHIPS = 400; // attended tokens, beyond which only those with the largest weights are shown

export class Generation {
  name = /** @type {const} */ ("generation");
  title = "Generation";

  /** @param {ViewContext} context */
  constructor(context) {
    this.context = context;
    this.text = make("div", { class: "written", role: "group", "aria-label": "Generated tokens" });
    this.candidates = make("ol", { class: "candidates" });
    this.attendedTitle = make("h2", {});
    this.attended = make("div", { class: "attended" });
    this.alert = make("p", { class: "alert", role: "alert" });
    this.element = make("div", { class: "generation" }, make("h2", {}, "Generated text"), this.text,
      make("div", { class: "two-columns" },
        make("section", {}, make("h2", {}, "Candidates"), this.candidates, this.alert),
        make("section", {}, this.attendedTitle, this.attended)));
    this.version = 0;
    /** @type {Float32Array | null} */
    this.row = null;
    context.colours.listeners.push(() => this.update());
  }

  /** Whether masked tokens were filled in place, rather than text generated after the prompt. */
  get fillsMasks() {
    return this.context.source.info.facts.kind === "fills";
  }

  /** The index of the generated axis. */
  get generatedAxis() {
    return this.fillsMasks ? 0 : countTexts(this.context.source.info) - 1;
  }

  /** The query that predicted the token of this step; in a causal language model, the token before it. */
  queryOfStep() {
    const { source, state } = this.context;
    const { info } = source;
    const at = info.steps[state.shown.step][0];
    const before = countTexts(info) === 1 && !this.fillsMasks;
    return Math.min(Math.max(0, before ? at - 1 : at), info.places[state.shown.place].T - 1);
  }

  /** Whether the current place has a query for each generated token. */
  hasQueries() {
    const { info } = this.context.source;
    const place = info.places[this.context.state.shown.place];
    // a decoder's input and output are two axes, but one row of queries
    const read = countTexts(info) === 3 && place.queries === 1;
    return place.queries === this.generatedAxis || read;
  }

  /** The text of a generated token. @param {import("./record.js").Step} step */
  tokenText([at, token, , candidates]) {
    return candidates.find(([id]) => id === token)?.[1] ?? this.context.source.info.axes[this.generatedAxis].tokens[at] ?? "";
  }

  async update() {
    const { source, state } = this.context;
    const version = ++this.version;
    this.renderText();
    this.renderCandidates();
    const { place, head, measure } = state.shown;
    const name = source.info.places[place].name;
    this.attendedTitle.textContent = this.hasQueries() ? `Attention of this step: ${name}, ${headLabel(head)}` : `${name} has no queries for the generated tokens`;
    this.row = this.hasQueries() ? await source.row(place, head, this.queryOfStep(), this.context.measure(place, measure)) : null;
    if (version !== this.version) return;
    this.renderAttended();
    this.updateStatus();
  }

  renderText() {
    const { source, state } = this.context;
    const { steps } = source.info;
    const now = state.shown.step;
    const [from, to] = [Math.max(0, now - STEPS_AROUND), Math.min(steps.length, now + STEPS_AROUND)];
    const focused = this.text.contains(document.activeElement);
    this.text.replaceChildren(...steps.slice(from, to).map((step, n) => {
      const button = make("button", { type: "button", class: "chip", "aria-pressed": String(from + n === now) }, bidiText(visibleText(this.tokenText(step), 40)));
      button.addEventListener("click", () => state.set({ step: from + n }));
      return button;
    }));
    if (focused) /** @type {HTMLElement | null} */ (this.text.children[now - from])?.focus();
  }

  renderCandidates() {
    const { source, state } = this.context;
    const [, token, , candidates] = source.info.steps[state.shown.step];
    const rewrite = source.rewrite;
    this.candidates.replaceChildren(...candidates.map(([id, shown, log]) => {
      const share = log === null ? 0 : Math.exp(log);
      const bar = make("span", { class: "bar" });
      bar.style.width = `${Math.max(0.5, share * 100)}%`;
      const line = make("li", { class: id === token ? "chosen" : "" }, bidiText(visibleText(shown, 40)), make("span", { class: "track" }, bar), make("span", { class: "number" }, `${(share * 100).toFixed(1)} %`));
      if (id === token) line.append(make("span", { class: "note" }, "chosen"));
      else if (rewrite !== null) line.append(this.alternativeButton(id, rewrite));
      return line;
    }));
  }

  /** @param {number} id @param {(prefix: number[]) => Promise<void>} rewrite */
  alternativeButton(id, rewrite) {
    const { source, state } = this.context;
    const button = make("button", { type: "button", class: "action" }, "Continue with this token");
    button.addEventListener("click", async () => {
      const prefix = source.info.steps.slice(0, state.shown.step).map((step) => step[1]);
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

  renderAttended() {
    const { source, state, colours } = this.context;
    const row = this.row;
    if (row === null) return this.attended.replaceChildren(make("p", { class: "note" }, "Choose a place of the decoder to see the attention of this step."));
    const tokens = source.info.axes[source.info.places[state.shown.place].keys].tokens;
    const peak = row.reduce((most, one) => (one > most ? one : most), 0);
    const shown = row.length <= MAX_CHIPS ? row.map((_, at) => at) : topIndices(row, 24).sort((a, b) => a - b);
    return this.attended.replaceChildren(...Array.from(shown, (at) => {
      const share = peak > 0 && row[at] > 0 ? row[at] / peak : 0;
      const chip = make("span", { class: "chip", title: `${visibleText(tokens[at] ?? "")}: ${formatNumber(row[at])}` }, bidiText(visibleText(tokens[at] ?? "", 40)));
      chip.style.backgroundColor = colours.css(share);
      chip.style.color = colours.inkOn(share);
      return chip;
    }));
  }

  updateStatus() {
    const { source, state, status } = this.context;
    const { step, place, head } = state.shown;
    const [, , log] = source.info.steps[step];
    const text = `Step ${step + 1} of ${source.info.steps.length}${log === null ? "" : `, probability ${(Math.exp(log) * 100).toFixed(1)} %`}.`;
    status(source.readable(place, head) ? text : `${text} ${source.why(place, head)}`);
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
    const [, token, , candidates] = source.info.steps[state.shown.step];
    const best = this.row === null ? [] : topIndices(this.row, 8);
    const tokens = source.info.axes[source.info.places[state.shown.place].keys].tokens;
    return {
      width: 720, height: 64 + Math.max(candidates.length, best.length) * 28,
      draw: (pen) => {
        pen.text(16, 24, "Candidates", { colour: inks.faint, size: 12 });
        pen.text(400, 24, "Attention of this step", { colour: inks.faint, size: 12 });
        candidates.forEach(([id, shown, log], n) => {
          const share = log === null ? 0 : Math.exp(log);
          pen.text(126, 58 + n * 28, visibleText(shown, 14), { colour: inks.ink, align: "right", bold: id === token });
          pen.rect(138, 50 + n * 28, 140 * share, 16, inks.accent);
          pen.text(146 + 140 * share, 58 + n * 28, `${(share * 100).toFixed(1)} %`, { colour: inks.faint, size: 11 });
        });
        best.forEach((at, n) => {
          const weight = /** @type {Float32Array} */ (this.row)[at];
          pen.text(510, 58 + n * 28, visibleText(tokens[at] ?? "", 14), { colour: inks.ink, align: "right" });
          pen.rect(522, 50 + n * 28, 120 * Math.min(1, weight), 16, inks.accent);
          pen.text(530 + 120 * Math.min(1, weight), 58 + n * 28, formatNumber(weight), { colour: inks.faint, size: 11 });
        });
      },
    };
  }

  numbers() {
    const { source, state } = this.context;
    return { step: source.info.steps[state.shown.step], query: this.queryOfStep(), weights: this.row === null ? null : [...this.row] };
  }
}
