// Interventions: set the weights of a head to zero or to uniform, or edit a row, and compare the model's output.

/** @import { HeadChange, InterventionResult, ProbabilityChange } from "./remote.js" */
/** @import { ViewContext } from "./view_context.js" */
import { make, bidiText } from "./dom.js";
import { ALL_HEADS } from "./source.js";
import { headLabel } from "./view_context.js";
import { visibleText } from "./text.js";
import { topIndices } from "./weights.js";

const MAX_EDITED_KEYS = 12; // of a row, in the editing form
const MAX_TOKENS = 200; // in the table of generated tokens

export class InterventionPanel {
  /** @param {ViewContext} context @param {(changes: HeadChange[]) => Promise<InterventionResult>} intervene */
  constructor(context, intervene) {
    this.context = context;
    this.intervene = intervene;
    /** @type {HeadChange[]} */
    this.changes = [];
    /** The place and head that the buttons apply to, and the token. */
    this.target = "";
    this.query = -1;
    this.version = 0;
    this.zeroButton = this.button("Zero the weights", () => this.add("zero", null));
    this.uniformButton = this.button("Make uniform", () => this.add("uniform", null));
    this.editButton = this.button("Edit a row", () => this.showRowForm());
    this.about = make("span", { class: "about" });
    this.rowForm = make("form", { class: "row-form", "aria-label": "Weights of one token", hidden: "" });
    this.rowForm.addEventListener("submit", (event) => this.submit(event));
    this.list = make("ul", { class: "changes", "aria-label": "Changes" });
    this.alert = make("p", { class: "alert", role: "alert" });
    this.summaryLine = make("p", { class: "result-summary", role: "status", "aria-live": "polite" }); // for screen readers too
    this.results = make("div", { class: "results" });
    this.element = make("details", { class: "intervention" }, make("summary", {}, "Intervene"),
      make("div", { class: "inside" },
        make("div", { class: "actions" }, this.about, this.zeroButton, this.uniformButton, this.editButton), this.rowForm, this.list, this.alert, this.summaryLine, this.results));
  }

  /** @param {string} text @param {() => void} onClick */
  button(text, onClick) {
    const button = make("button", { type: "button", class: "action" }, text);
    button.addEventListener("click", onClick);
    return button;
  }

  /** The buttons apply to the head and the token that are shown. @param {number} query -1 for none */
  update(query) {
    const { source, state } = this.context;
    const { place: number, head } = state.shown;
    const place = source.info.places[number];
    if (this.query !== query || this.target !== `${number} ${head}`) this.rowForm.hidden = true;
    this.query = query;
    this.target = `${number} ${head}`;
    this.about.textContent = `${place.name}, ${headLabel(head)}`;
    this.editButton.disabled = query < 0;
    this.editButton.title = query < 0 ? "Select a query token first" : "";
    this.editButton.replaceChildren(...(query < 0 ? ["Edit a row"] : ["Edit the row of ", bidiText(visibleText(this.token(number, query), 24))]));
  }

  /** @param {number} place @param {number} query */
  token(place, query) {
    const { info } = this.context.source;
    return info.axes[info.places[place].queries].tokens[query] ?? "";
  }

  /** @param {HeadChange["weights"]} weights @param {number | null} query */
  add(weights, query) {
    const { place, head } = this.context.state.shown;
    const change = { place, head: head === ALL_HEADS ? null : head, weights, query };
    const same = (/** @type {HeadChange} */ one) => one.place === change.place && one.head === change.head && one.query === change.query;
    return this.apply([...this.changes.filter((one) => !same(one)), change]);
  }

  /** A form with the largest weights of the selected query. */
  async showRowForm() {
    const { source, state } = this.context;
    const { place: number, head, key } = state.shown;
    const query = this.query;
    const row = await source.row(number, head, query);
    if (query !== this.query) return;
    const tokens = source.info.axes[source.info.places[number].keys].tokens;
    const keys = [...new Set([...topIndices(row, MAX_EDITED_KEYS), ...(row[key] > 0 ? [key] : [])])].sort((a, b) => a - b);
    const fields = keys.map((at) => {
      const was = (row[at] * 100).toFixed(1);
      const input = make("input", { type: "number", min: "0", max: "100", step: "any", value: was, "data-key": String(at), "data-was": was });
      return make("label", { class: "weight" }, bidiText(visibleText(tokens[at] ?? "", 20)), input, "%");
    });
    const close = this.button("Cancel", () => {
      this.rowForm.hidden = true;
      this.editButton.focus();
    });
    this.rowForm.replaceChildren(make("p", { class: "note" }, "Weights that you edit are used as given; the others are rescaled so that the row sums to 1."),
      make("div", { class: "weights" }, ...fields), make("div", { class: "actions" }, make("button", { type: "submit", class: "action" }, "Apply"), close));
    this.rowForm.hidden = false;
    this.rowForm.querySelector("input")?.focus();
  }

  /** @param {SubmitEvent} event */
  submit(event) {
    event.preventDefault();
    const inputs = [...this.rowForm.querySelectorAll("input")].filter((input) => input.value !== input.dataset.was);
    const edits = inputs.map((input) => ({ key: Number(input.dataset.key), weight: Number(input.value) / 100 }));
    if (edits.length === 0) {
      this.alert.textContent = "No weight of this row was changed.";
      return;
    }
    this.rowForm.hidden = true;
    this.add(edits, this.query);
  }

  /** Run the model with these changes. @param {HeadChange[]} changes */
  async apply(changes) {
    const version = ++this.version;
    this.alert.textContent = "";
    this.element.setAttribute("aria-busy", "true");
    try {
      const outcome = changes.length === 0 ? null : await this.intervene(changes);
      if (version !== this.version) return;
      this.changes = changes;
      this.renderChanges();
      this.summaryLine.replaceChildren(...(outcome === null ? [] : summaryOf(outcome)));
      this.results.replaceChildren(...(outcome === null ? [] : this.tables(outcome)));
    } catch (error) {
      if (version === this.version) this.alert.textContent = /** @type {Error} */ (error).message;
    }
    if (version === this.version) this.element.removeAttribute("aria-busy");
  }

  renderChanges() {
    const { places } = this.context.source.info;
    this.list.replaceChildren(...this.changes.map((change) => {
      const head = change.head === null ? "all heads" : `head ${change.head}`;
      const what = change.weights === "zero" ? "zero" : change.weights === "uniform" ? "uniform" : "edited row of ";
      const item = make("li", { class: "chip" }, `${places[change.place].name}, ${head}: ${what}`);
      if (change.query !== null) item.append(bidiText(visibleText(this.token(change.place, change.query), 24)));
      const undo = this.button("Undo", () => this.apply(this.changes.filter((one) => one !== change)));
      undo.setAttribute("aria-label", `Undo ${item.textContent}`);
      item.append(undo);
      return item;
    }));
  }

  /** @param {InterventionResult} outcome */
  tables({ tokens, classes, next_tokens }) {
    const found = [];
    if (classes.length > 0) found.push(this.table("Classes", "class", classes));
    if (next_tokens.length > 0) found.push(this.table("Next token", "token", next_tokens));
    if (tokens.length > 0) found.push(this.table("Generated tokens", "token", tokens.slice(0, MAX_TOKENS)));
    return found;
  }

  /** @param {string} title @param {string} kind @param {(ProbabilityChange & {best?: string, best_probability?: number})[]} shares */
  table(title, kind, shares) {
    const best = shares.some((one) => one.best !== undefined);
    const names = [kind, "before", "after", "change", ...(best ? ["most likely after"] : [])];
    const head = make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name)));
    const lines = shares.map((one) => {
      const line = make("tr", {}, make("th", { scope: "row" }, bidiText(visibleText(one.text, 40))), cell(percent(one.before)), cell(percent(one.after)), changeCell(one));
      if (one.best !== undefined) line.append(one.best === one.text ? make("td", {}) : make("td", {}, bidiText(visibleText(one.best, 40)), ` ${percent(one.best_probability ?? null)}`));
      return line;
    });
    return make("table", {}, make("caption", {}, title), make("thead", {}, head), make("tbody", {}, ...lines));
  }
}

/** @param {InterventionResult} outcome @returns {(string | Node)[]} */
function summaryOf({ tokens, classes, next_tokens, estimate, generated }) {
  if (generated !== null) {
    const same = generated.length === tokens.length && generated.every((token, n) => token === tokens[n].text);
    return same ? ["The generated text is unchanged."] : ["Generated text: ", ...generated.map((token) => make("span", { class: "chip" }, bidiText(visibleText(token, 40))))];
  }
  if (estimate !== null) return [`Estimate: ${estimate[0].toPrecision(4)} before, ${estimate[1].toPrecision(4)} after.`];
  const shares = classes.length > 0 ? classes : next_tokens;
  const best = [...shares].sort((one, other) => (other.after ?? 0) - (one.after ?? 0))[0];
  if (best !== undefined) return ["Most likely after: ", bidiText(visibleText(best.text, 40)), ` ${percent(best.after)} (before: ${percent(best.before)}).`];
  return [tokens.length > 0 ? "Probabilities of the tokens, before and after:" : "This model has no output to compare: it is an encoder."];
}

/** @param {string} text */
function cell(text) {
  return make("td", { class: "number" }, text);
}

/** @param {number | null} share */
function percent(share) {
  return share === null ? "not in the top candidates" : `${(share * 100).toFixed(1)} %`;
}

/** The change of a probability in percentage points, and as a bar to the left or to the right. @param {ProbabilityChange} share */
function changeCell({ before, after }) {
  if (before === null || after === null) return make("td", {});
  const change = after - before;
  const bar = make("span", { class: change < 0 ? "delta down" : "delta up", "aria-hidden": "true" });
  bar.style.width = `${Math.abs(change) * 40}px`;
  const sign = change > 0 ? "+" : change < 0 ? "−" : "";
  return make("td", { class: "number change" }, `${sign}${(Math.abs(change) * 100).toFixed(1)}`, make("span", { class: "delta-bar" }, bar));
}
