// What if: switch a head off, flatten it, or edit a row of its map, and see what the model says then.

/** @import { Change, Outcome, Share } from "./remote.js" */
/** @import { ViewContext } from "./view_context.js" */
import { make, spoken } from "./dom.js";
import { ALL_HEADS } from "./source.js";
import { headName } from "./view_context.js";
import { visible } from "./text.js";
import { largest } from "./weights.js";

const KEYS = 12; // of a row that are offered for editing
const MOST_WORDS = 200; // whose probabilities are shown

export class WhatIf {
  /** @param {ViewContext} context @param {(changes: Change[]) => Promise<Outcome>} intervene */
  constructor(context, intervene) {
    this.context = context;
    this.intervene = intervene;
    /** @type {Change[]} */
    this.changes = [];
    /** The place and the head, and the token, that the buttons speak of. */
    this.of = "";
    this.query = -1;
    this.turn = 0;
    this.off = this.button("Switch it off", () => this.add("zero", null));
    this.flat = this.button("Flatten it", () => this.add("uniform", null));
    this.edit = this.button("Edit a row", () => this.offer());
    this.about = make("span", { class: "about" });
    this.row = make("form", { class: "row-edit", "aria-label": "Weights of one token", hidden: "" });
    this.row.addEventListener("submit", (event) => this.submit(event));
    this.list = make("ul", { class: "changes", "aria-label": "Changes" });
    this.alert = make("p", { class: "alert", role: "alert" });
    this.said = make("p", { class: "now", role: "status", "aria-live": "polite" }); // in short, for those who listen
    this.results = make("div", { class: "results" });
    this.element = make("details", { class: "what-if" }, make("summary", {}, "What if"),
      make("div", { class: "inside" },
        make("div", { class: "acts" }, this.about, this.off, this.flat, this.edit), this.row, this.list, this.alert, this.said, this.results));
  }

  /** @param {string} words @param {() => void} pressed */
  button(words, pressed) {
    const button = make("button", { type: "button", class: "act" }, words);
    button.addEventListener("click", pressed);
    return button;
  }

  /** What the buttons speak of: the head, and the token, that are shown. @param {number} query -1 for none */
  update(query) {
    const { source, state } = this.context;
    const { place: number, head } = state.shown;
    const place = source.told.places[number];
    if (this.query !== query || this.of !== `${number} ${head}`) this.row.hidden = true;
    this.query = query;
    this.of = `${number} ${head}`;
    this.about.textContent = `${place.name}, ${headName(head)}`;
    this.edit.disabled = query < 0;
    this.edit.title = query < 0 ? "Choose a token first" : "";
    this.edit.replaceChildren(...(query < 0 ? ["Edit a row"] : ["Edit the row of ", spoken(visible(this.token(number, query), 24))]));
  }

  /** @param {number} place @param {number} query */
  token(place, query) {
    const { told } = this.context.source;
    return told.sides[told.places[place].queries].tokens[query] ?? "";
  }

  /** @param {Change["weights"]} weights @param {number | null} query */
  add(weights, query) {
    const { place, head } = this.context.state.shown;
    const change = { place, head: head === ALL_HEADS ? null : head, weights, query };
    const same = (/** @type {Change} */ one) => one.place === change.place && one.head === change.head && one.query === change.query;
    return this.try([...this.changes.filter((one) => !same(one)), change]);
  }

  /** The largest weights of the row of the chosen token, each in a field. */
  async offer() {
    const { source, state } = this.context;
    const { place: number, head, key } = state.shown;
    const query = this.query;
    const row = await source.row(number, head, query);
    if (query !== this.query) return;
    const tokens = source.told.sides[source.told.places[number].keys].tokens;
    const keys = [...new Set([...largest(row, KEYS), ...(row[key] > 0 ? [key] : [])])].sort((a, b) => a - b);
    const fields = keys.map((at) => {
      const was = (row[at] * 100).toFixed(1);
      const input = make("input", { type: "number", min: "0", max: "100", step: "any", value: was, "data-key": String(at), "data-was": was });
      return make("label", { class: "weight" }, spoken(visible(tokens[at] ?? "", 20)), input, "%");
    });
    const close = this.button("Leave it", () => {
      this.row.hidden = true;
      this.edit.focus();
    });
    this.row.replaceChildren(make("p", { class: "note" }, "Weights that are changed stay as they are written; the others share what is left."),
      make("div", { class: "weights" }, ...fields), make("div", { class: "acts" }, make("button", { type: "submit", class: "act" }, "Try this row"), close));
    this.row.hidden = false;
    this.row.querySelector("input")?.focus();
  }

  /** @param {SubmitEvent} event */
  submit(event) {
    event.preventDefault();
    const inputs = [...this.row.querySelectorAll("input")].filter((input) => input.value !== input.dataset.was);
    const edits = inputs.map((input) => ({ key: Number(input.dataset.key), weight: Number(input.value) / 100 }));
    if (edits.length === 0) {
      this.alert.textContent = "No weight of this row was changed.";
      return;
    }
    this.row.hidden = true;
    this.add(edits, this.query);
  }

  /** Ask for what the model says with these changes. @param {Change[]} changes */
  async try(changes) {
    const turn = ++this.turn;
    this.alert.textContent = "";
    this.element.setAttribute("aria-busy", "true");
    try {
      const outcome = changes.length === 0 ? null : await this.intervene(changes);
      if (turn !== this.turn) return;
      this.changes = changes;
      this.writeChanges();
      this.said.replaceChildren(...(outcome === null ? [] : inShort(outcome)));
      this.results.replaceChildren(...(outcome === null ? [] : this.tables(outcome)));
    } catch (error) {
      if (turn === this.turn) this.alert.textContent = /** @type {Error} */ (error).message;
    }
    if (turn === this.turn) this.element.removeAttribute("aria-busy");
  }

  writeChanges() {
    const { places } = this.context.source.told;
    this.list.replaceChildren(...this.changes.map((change) => {
      const head = change.head === null ? "all heads" : `head ${change.head}`;
      const what = change.weights === "zero" ? "off" : change.weights === "uniform" ? "flat" : "edited row of ";
      const item = make("li", { class: "chip" }, `${places[change.place].name}, ${head}: ${what}`);
      if (change.query !== null) item.append(spoken(visible(this.token(change.place, change.query), 24)));
      const undo = this.button("Undo", () => this.try(this.changes.filter((one) => one !== change)));
      undo.setAttribute("aria-label", `Undo ${item.textContent}`);
      item.append(undo);
      return item;
    }));
  }

  /** @param {Outcome} outcome */
  tables({ words, classes, next }) {
    const found = [];
    if (classes.length > 0) found.push(this.table("Classes", "class", classes));
    if (next.length > 0) found.push(this.table("What could come next", "token", next));
    if (words.length > 0) found.push(this.table("The words that were written, before and now", "word", words.slice(0, MOST_WORDS)));
    return found;
  }

  /** @param {string} title @param {string} kind @param {(Share & {best?: string, share?: number})[]} shares */
  table(title, kind, shares) {
    const best = shares.some((one) => one.best !== undefined);
    const names = [kind, "before", "now", "change", ...(best ? ["likeliest now"] : [])];
    const head = make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name)));
    const lines = shares.map((one) => {
      const line = make("tr", {}, make("th", { scope: "row" }, spoken(visible(one.text, 40))), cell(percent(one.before)), cell(percent(one.after)), difference(one));
      if (one.best !== undefined) line.append(one.best === one.text ? make("td", {}) : make("td", {}, spoken(visible(one.best, 40)), ` ${percent(one.share ?? null)}`));
      return line;
    });
    return make("table", {}, make("caption", {}, title), make("thead", {}, head), make("tbody", {}, ...lines));
  }
}

/** @param {Outcome} outcome @returns {(string | Node)[]} */
function inShort({ words, classes, next, estimate, written }) {
  if (written !== null) {
    const same = written.length === words.length && written.every((word, n) => word === words[n].text);
    return same ? ["It still writes the same."] : ["Now it writes: ", ...written.map((word) => make("span", { class: "chip" }, spoken(visible(word, 40))))];
  }
  if (estimate !== null) return [`It estimated ${estimate[0].toPrecision(4)}, and estimates ${estimate[1].toPrecision(4)} now.`];
  const shares = classes.length > 0 ? classes : next;
  const best = [...shares].sort((one, other) => (other.after ?? 0) - (one.after ?? 0))[0];
  if (best !== undefined) return ["Likeliest now: ", spoken(visible(best.text, 40)), ` ${percent(best.after)}, before ${percent(best.before)}.`];
  return [words.length > 0 ? "The words, before and now:" : "This model says nothing that could change: it only reads."];
}

/** @param {string} text */
function cell(text) {
  return make("td", { class: "number" }, text);
}

/** @param {number | null} share */
function percent(share) {
  return share === null ? "not told" : `${(share * 100).toFixed(1)} %`;
}

/** The change of a probability in points, and as a bar to the left or to the right. @param {Share} share */
function difference({ before, after }) {
  if (before === null || after === null) return make("td", {});
  const moved = after - before;
  const bar = make("span", { class: moved < 0 ? "moved less" : "moved more", "aria-hidden": "true" });
  bar.style.width = `${Math.abs(moved) * 40}px`;
  const sign = moved > 0 ? "+" : moved < 0 ? "−" : "";
  return make("td", { class: "number change" }, `${sign}${(Math.abs(moved) * 100).toFixed(1)}`, make("span", { class: "moves" }, bar));
}
