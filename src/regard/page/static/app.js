// What surrounds the views: tabs, choices, the status line, and the keys that work everywhere.

/** @import { Source } from "./source.js" */
/** @import { State } from "./state.js" */
/** @import { View } from "./view_context.js" */
/** @import { Colours } from "./colours.js" */
import { choice, make, toggle } from "./dom.js";
import { exported, exportMenu } from "./export.js";
import { Generation } from "./generation.js";
import { Heads } from "./heads.js";
import { Layers } from "./layers.js";
import { Matrix } from "./matrix.js";
import { PairView } from "./pair.js";
import { Sentence } from "./sentence.js";
import { MAP, measureMap } from "./record.js";
import { ALL_HEADS } from "./source.js";
import { headName, ViewContext } from "./view_context.js";
import { VIEWS } from "./state.js";
import { Table } from "./table.js";
import { visible } from "./text.js";
import { WhatIf } from "./intervention.js";

/** The classes of the views. @type {Record<import("./state.js").ViewName, new (context: ViewContext) => View>} */
const CLASSES = { sentence: Sentence, heads: Heads, matrix: Matrix, pair: PairView, layers: Layers, generation: Generation };

const HELP = "left and right the head; up and down the place; j and k the token; [ and ] the key; w words; m measure; t table; d dark mode; Escape clears the selection.";

/** @type {Record<string, string>} */
const MEASURES = { weights: "weights", norms: "weight × length of value", gradient: "weight × gradient" };

export class App {
  /** @param {HTMLElement} root @param {Source} source @param {State} state @param {Colours} colours
   * @param {EventTarget | null} keys where keys are listened for; null: inside alone */
  constructor(root, source, state, colours, keys = null) {
    this.source = source;
    this.state = state;
    this.colours = colours;
    this.said = make("p", { class: "status", role: "status", "aria-live": "polite" });
    this.context = this.contextOf(null);
    const shown = VIEWS.filter((name) => name !== "generation" || source.told.steps.length > 0);
    /** @type {View[]} */
    this.views = shown.map((name) => new CLASSES[name](this.contextOf(name)));
    this.table = new Table(this.context);
    this.whatIf = source.intervene === null ? null : new WhatIf(this.context, source.intervene);
    this.tabs = this.views.map((view, n) => this.tab(view, n));
    this.choices = this.chooser();
    this.panel = make("main", { class: "panel", role: "tabpanel", id: "regard-panel" });
    const tools = [this.choices.table, this.choices.theme, exportMenu((kind) => exported(this.context, this.view, kind))];
    this.element = make("div", { class: "app" },
      make("nav", { class: "tabs", role: "tablist", "aria-label": "Views" }, ...this.tabs),
      make("div", { class: "choices", role: "toolbar", "aria-label": "What is shown" }, ...this.choices.shown, make("span", { class: "space" }), ...tools),
      this.panel, this.table.element, ...(this.whatIf === null ? [] : [this.whatIf.element]), make("footer", {}, this.said, this.help()));
    root.append(this.element);
    state.listen((changed) => this.update(changed));
    colours.listeners.push(() => this.update(new Set()));
    this.closed = new AbortController();
    (keys ?? this.element).addEventListener("keydown", (event) => this.key(/** @type {KeyboardEvent} */ (event)), { signal: this.closed.signal });
    this.update(null);
  }

  /** Only the view that is shown may say a word. @param {import("./state.js").ViewName | null} name */
  contextOf(name) {
    return new ViewContext(this.source, this.state, this.colours, (text) => {
      if (name === this.state.shown.view && this.said.textContent !== text) this.said.textContent = text;
    });
  }

  /** Those that any place knows, then the maps that were computed beforehand, as the view that is shown can draw them: names and titles. */
  get measures() {
    const { source, state } = this;
    const { view, place } = state.shown;
    const known = Object.entries(MEASURES).filter(([name]) => source.told.places.some((_, n) => source.has(n, name)));
    const names = new Set((source.told.measures ?? []).map((one) => MAP + one.name));
    for (const name of names) {
      const map = measureMap(source.told, place, name);
      if (map !== null && (view === "matrix" || source.fits(place, name))) known.push([name, visible(map.title, 60)]);
    }
    return known;
  }

  /** @returns {View} */
  get view() {
    return this.views.find((view) => view.name === this.state.shown.view) ?? this.views[0];
  }

  /** @param {View} view @param {number} n */
  tab(view, n) {
    const button = make("button", { type: "button", role: "tab", "aria-controls": "regard-panel", title: `${view.title} (key ${n + 1})` }, view.title);
    button.addEventListener("click", () => this.state.set({ view: view.name }));
    return button;
  }

  help() {
    return make("details", { class: "help" }, make("summary", {}, "Keys"), make("p", {}, `Keys: 1 to ${this.views.length} views; ${HELP}`));
  }

  chooser() {
    const { state, source } = this;
    const { told } = source;
    const place = choice("place", told.places.map((one, n) => [String(n), one.name]), (value) => state.set({ place: Number(value) }), "place");
    const head = choice("head", [], (value) => state.set({ head: Number(value) }), "head");
    const measure = choice("measure", [], (value) => state.set({ measure: value }), "measure");
    const part = choice("texts", [["all", "both"], ["ab", "A → B"], ["ba", "B → A"], ["aa", "A → A"], ["bb", "B → B"]], (value) => state.set({ part: /** @type {import("./state.js").Part} */ (value) }), "part");
    const words = toggle("Words", "Whole words: sums to, means from their pieces (key w)", () => state.set({ words: !state.shown.words }));
    const table = toggle("Table", "The numbers as a table (key t)", () => state.set({ table: !state.shown.table }));
    const theme = toggle("Dark", "Dark or light (key d)", () => this.colours.turn());
    const badge = make("span", { class: "badges" });
    return { place, head, measure, part, words, table, theme, badge, shown: [place.element, head.element, measure.element, part.element, words, badge] };
  }

  /** @param {Set<string> | null} changed */
  update(changed) {
    const { shown } = this.state;
    const view = this.view;
    if (this.panel.firstChild !== view.element) {
      this.panel.replaceChildren(view.element);
      changed = null;
    }
    this.tabs.forEach((tab, n) => tab.setAttribute("aria-selected", String(this.views[n] === view)));
    this.panel.setAttribute("aria-label", view.title);
    this.choose();
    view.update(changed);
    const generation = view instanceof Generation ? view : null;
    const query = Math.min(shown.query, this.source.told.places[shown.place].T - 1); // a map may have other rows
    this.table.update(generation?.asks() ?? Math.max(0, query));
    this.whatIf?.update(generation === null ? query : generation.fits() ? generation.asks() : -1);
  }

  choose() {
    const { shown } = this.state;
    const { places, sides } = this.source.told;
    const { place, head, measure, part, words, table, theme, badge } = this.choices;
    place.select.value = String(shown.place);
    const count = places[shown.place].heads;
    if (head.select.options.length !== count + 1) {
      head.select.replaceChildren(make("option", { value: String(ALL_HEADS) }, headName(ALL_HEADS)), ...Array.from({ length: count }, (_, n) => make("option", { value: String(n) }, String(n))));
    }
    head.select.value = String(shown.head);
    const known = this.measures;
    measure.element.hidden = !["sentence", "matrix", "generation"].includes(this.view.name) || known.length === 1;
    if ([...measure.select.options].map((one) => one.value).join() !== known.map(([name]) => name).join()) {
      measure.select.replaceChildren(...known.map(([name, title]) => make("option", { value: name }, title)));
    }
    measure.select.value = this.context.shownMeasure();
    const sentence = this.view.name === "sentence";
    place.element.hidden = head.element.hidden = this.view.name === "layers"; // which goes through all of them
    const { queries, keys } = places[shown.place];
    part.element.hidden = !sentence || sides[queries].segments === null || sides[keys].segments === null || !sides[keys].segments.includes(1);
    part.select.value = shown.part;
    words.hidden = !sentence;
    words.setAttribute("aria-pressed", String(shown.words));
    table.setAttribute("aria-pressed", String(shown.table));
    theme.setAttribute("aria-pressed", String(this.colours.theme === "dark"));
    badge.replaceChildren(...[this.context.label("patterns", shown.place, shown.head), this.context.label("badges", shown.place, shown.head)].filter(Boolean).map((one) => make("span", { class: "badge" }, one)));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, select, textarea, form")) return;
    if (this.view.key(event) || this.common(event.key)) event.preventDefault();
  }

  /** Keys that mean the same in every view. @param {string} key @returns {boolean} */
  common(key) {
    const { state } = this;
    const { place, head, query, key: at, words, table } = state.shown;
    const measures = this.measures.map(([name]) => name);
    const chosen = Math.max(0, query);
    /** @type {Record<string, () => void>} */
    const acts = {
      ArrowLeft: () => state.set({ head: head - 1 }), ArrowRight: () => state.set({ head: head + 1 }),
      ArrowUp: () => state.set({ place: Math.max(0, place - 1) }), ArrowDown: () => state.set({ place: place + 1 }),
      j: () => state.set({ query: query + 1 }), k: () => state.set({ query: Math.max(0, query - 1) }),
      "]": () => state.set({ query: chosen, key: at + 1 }), "[": () => state.set({ query: chosen, key: at - 1 }),
      w: () => state.set({ words: !words }), m: () => state.set({ measure: measures[(measures.indexOf(this.context.shownMeasure()) + 1) % measures.length] }),
      t: () => state.set({ table: !table }), d: () => this.colours.turn(), Escape: () => state.set({ query: -1 }),
    };
    const view = this.views[Number(key) - 1];
    const act = acts[key] ?? (view === undefined ? undefined : () => state.set({ view: view.name }));
    act?.();
    return act !== undefined;
  }
}
