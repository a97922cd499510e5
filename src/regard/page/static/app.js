// The application around the views: tabs, controls, the status line, and the keyboard shortcuts of every view.

/** @import { Source } from "./source.js" */
/** @import { State } from "./state.js" */
/** @import { View } from "./view_context.js" */
/** @import { Colours } from "./colours.js" */
import { labelledSelect, make, toggleButton } from "./dom.js";
import { exportView, exportMenu } from "./export.js";
import { Generation } from "./generation.js";
import { Heads } from "./heads.js";
import { Layers } from "./rollout_view.js";
import { Matrix } from "./matrix.js";
import { PairView } from "./pair.js";
import { PictureView } from "./picture_view.js";
import { Sentence } from "./sentence.js";
import { hasPictures, MAP_PREFIX, measureMap, shortPlaceNames } from "./record.js";
import { canRollOut } from "./rollout.js";
import { ALL_HEADS } from "./source.js";
import { headLabel, ROLLOUT, ViewContext } from "./view_context.js";
import { VIEWS } from "./state.js";
import { Table } from "./table.js";
import { visibleText } from "./text.js";
import { InterventionPanel } from "./intervention.js";

/** The classes of the views. @type {Record<import("./state.js").ViewName, new (context: ViewContext) => View>} */
const VIEW_CLASSES = { picture: PictureView, sentence: Sentence, heads: Heads, matrix: Matrix, pair: PairView, layers: Layers, generation: Generation };

const HELP = "←/→ previous or next head; ↑/↓ previous or next place; j/k next or previous query token; [/] previous or next key token; w whole words; m next measure; t table of numbers; d toggles dark mode; Escape clears the selection.";

/** @type {Record<string, string>} */
const MEASURE_TITLES = { weights: "weights", norms: "weight × length of value", gradient: "weight × gradient" };

export class App {
  /** @param {HTMLElement} root @param {Source} source @param {State} state @param {Colours} colours
   * @param {EventTarget | null} keys where keyboard events are listened for; null: on this element only */
  constructor(root, source, state, colours, keys = null) {
    this.source = source;
    this.state = state;
    this.colours = colours;
    this.statusLine = make("p", { class: "status", role: "status", "aria-live": "polite" });
    this.context = this.makeContext(null);
    const shown = VIEWS.filter((name) => (name !== "generation" || source.info.steps.length > 0) && (name !== "picture" || hasPictures(source.info)));
    /** @type {View[]} */
    this.views = shown.map((name) => new VIEW_CLASSES[name](this.makeContext(name)));
    this.table = new Table(this.context);
    this.interventions = source.intervene === null ? null : new InterventionPanel(this.context, source.intervene);
    this.tabs = this.views.map((view, n) => this.tab(view, n));
    this.controls = this.makeControls();
    this.notes = make("div", { class: "notes", role: "note", "aria-label": "About this record" });
    this.panel = make("main", { class: "panel", role: "tabpanel", id: "regard-panel" });
    const tools = [this.controls.table, this.controls.theme, exportMenu((kind) => exportView(this.context, this.view, kind))];
    this.element = make("div", { class: "app" },
      make("nav", { class: "tabs", role: "tablist", "aria-label": "Views" }, ...this.tabs),
      make("div", { class: "choices", role: "toolbar", "aria-label": "Display options" }, ...this.controls.shown, make("span", { class: "space" }), ...tools),
      this.notes, this.panel, this.table.element, ...(this.interventions === null ? [] : [this.interventions.element]), make("footer", {}, this.statusLine, this.help()));
    root.append(this.element);
    state.listen((changed) => this.update(changed));
    colours.listeners.push(() => this.update(new Set()));
    this.closed = new AbortController();
    (keys ?? this.element).addEventListener("keydown", (event) => this.key(/** @type {KeyboardEvent} */ (event)), { signal: this.closed.signal });
    this.update(null);
  }

  /** Only the visible view may write to the status line. @param {import("./state.js").ViewName | null} name */
  makeContext(name) {
    return new ViewContext(this.source, this.state, this.colours, (text) => {
      if (name === this.state.shown.view && this.statusLine.textContent !== text) this.statusLine.textContent = text;
    });
  }

  /** Names and titles of the measures to choose from: those that the page computes, then stored attribution maps that this view can draw. */
  get measures() {
    const { source, state } = this;
    const { view, place } = state.shown;
    const known = Object.entries(MEASURE_TITLES).filter(([name]) => source.info.places.some((_, n) => source.has(n, name)));
    const names = new Set((source.info.measures ?? []).map((one) => MAP_PREFIX + one.name));
    for (const name of names) {
      const map = measureMap(source.info, place, name);
      if (map !== null && (view === "matrix" || view === "picture" || source.fits(place, name))) known.push([name, visibleText(map.title, 60)]);
    }
    if (view === "picture" && canRollOut(source)) known.push([ROLLOUT, "attention rollout"]);
    return known;
  }

  /** @returns {View} */
  get view() {
    return this.views.find((view) => view.name === this.state.shown.view) ?? this.views[0];
  }

  /** @param {View} view @param {number} n */
  tab(view, n) {
    const button = make("button", { type: "button", role: "tab", "aria-controls": "regard-panel", title: `${view.title} (shortcut ${n + 1})` }, view.title);
    button.addEventListener("click", () => this.state.set({ view: view.name }));
    return button;
  }

  help() {
    return make("details", { class: "help" }, make("summary", {}, "Keyboard shortcuts"), make("p", {}, `1–${this.views.length} choose a view; ${HELP}`));
  }

  makeControls() {
    const { state, source } = this;
    const { info } = source;
    const names = shortPlaceNames(info.places, 32);
    const place = labelledSelect("place", names.map((name, n) => [String(n), name]), (value) => state.set({ place: Number(value) }), "place");
    const head = labelledSelect("head", [], (value) => state.set({ head: Number(value) }), "head");
    const measure = labelledSelect("measure", [], (value) => state.set({ measure: value }), "measure");
    const part = labelledSelect("segments", [["all", "both"], ["ab", "A → B"], ["ba", "B → A"], ["aa", "A → A"], ["bb", "B → B"]], (value) => state.set({ part: /** @type {import("./state.js").Part} */ (value) }), "part");
    const words = toggleButton("Words", "Whole words: weights to the pieces of a word are summed, weights from them averaged (shortcut w)", () => state.set({ words: !state.shown.words }));
    const table = toggleButton("Table", "The numbers as a table (shortcut t)", () => state.set({ table: !state.shown.table }));
    const theme = toggleButton("Dark", "Toggle dark mode (shortcut d)", () => this.colours.toggleTheme());
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
    this.updateControls();
    this.updateNotes();
    view.update(changed);
    const generation = view instanceof Generation ? view : null;
    const query = Math.min(shown.query, this.source.info.places[shown.place].T - 1); // a stored map may have other rows
    const chosen = view.shownQuery?.() ?? query;
    this.table.update(generation?.queryOfStep() ?? Math.max(0, chosen));
    this.interventions?.update(generation === null ? chosen : generation.hasQueries() ? generation.queryOfStep() : -1);
  }

  updateControls() {
    const { shown } = this.state;
    const { places, axes } = this.source.info;
    const { place, head, measure, part, words, table, theme, badge } = this.controls;
    place.select.value = String(shown.place);
    place.select.title = places[shown.place].name;
    const count = places[shown.place].heads;
    if (head.select.options.length !== count + 1) {
      head.select.replaceChildren(make("option", { value: String(ALL_HEADS) }, headLabel(ALL_HEADS)), ...Array.from({ length: count }, (_, n) => make("option", { value: String(n) }, String(n))));
    }
    head.select.value = String(shown.head);
    const known = this.measures;
    measure.element.hidden = !["picture", "sentence", "matrix", "generation"].includes(this.view.name) || known.length === 1;
    if ([...measure.select.options].map((one) => one.value).join() !== known.map(([name]) => name).join()) {
      measure.select.replaceChildren(...known.map(([name, title]) => make("option", { value: name }, title)));
    }
    measure.select.value = this.context.shownMeasure();
    const sentence = this.view.name === "sentence";
    place.element.hidden = head.element.hidden = this.view.name === "layers" || this.context.shownMeasure() === ROLLOUT; // it uses every layer
    const { queries, keys } = places[shown.place];
    part.element.hidden = !sentence || axes[queries].segments === null || axes[keys].segments === null || !axes[keys].segments.includes(1);
    part.select.value = shown.part;
    words.hidden = !sentence && !(this.view.name === "picture" && [queries, keys].some((axis) => axes[axis].words.some((word, n) => word >= 0 && word === axes[axis].words[n - 1])));
    words.setAttribute("aria-pressed", String(shown.words));
    table.setAttribute("aria-pressed", String(shown.table));
    theme.setAttribute("aria-pressed", String(this.colours.theme === "dark"));
    badge.replaceChildren(...[this.context.label("patterns", shown.place, shown.head), this.context.label("badges", shown.place, shown.head)].filter(Boolean).map((one) => make("span", { class: "badge" }, one)));
  }

  /** What a reader must know: of the record, such as attention that could not be heard, and of the map shown. */
  updateNotes() {
    const { info } = this.source;
    const { view, place } = this.state.shown;
    const ofPlace = view === "heads" || view === "layers" ? "" : info.places[place].note ?? "";
    const lines = [...(info.notes ?? []).map((text) => ({ text, kind: "warning" })), ...(ofPlace === "" ? [] : [{ text: ofPlace, kind: "faint" }])];
    this.notes.hidden = lines.length === 0;
    this.notes.replaceChildren(...lines.map(({ text, kind }) => make("p", { class: kind }, `${visibleText(text.slice(0, 1).toUpperCase() + text.slice(1), 2000)}.`)));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, select, textarea, form")) return;
    if (this.view.key(event) || this.commonKey(event.key)) event.preventDefault();
  }

  /** Shortcuts that every view shares. @param {string} key @returns {boolean} */
  commonKey(key) {
    const { state } = this;
    const { place, head, query, key: at, words, table } = state.shown;
    const measures = this.measures.map(([name]) => name);
    const chosen = Math.max(0, query);
    /** @type {Record<string, () => void>} */
    const actions = {
      ArrowLeft: () => state.set({ head: head - 1 }), ArrowRight: () => state.set({ head: head + 1 }),
      ArrowUp: () => state.set({ place: Math.max(0, place - 1) }), ArrowDown: () => state.set({ place: place + 1 }),
      j: () => state.set({ query: query + 1 }), k: () => state.set({ query: Math.max(0, query - 1) }),
      "]": () => state.set({ query: chosen, key: at + 1 }), "[": () => state.set({ query: chosen, key: at - 1 }),
      w: () => state.set({ words: !words }), m: () => state.set({ measure: measures[(measures.indexOf(this.context.shownMeasure()) + 1) % measures.length] }),
      t: () => state.set({ table: !table }), d: () => this.colours.toggleTheme(), Escape: () => state.set({ query: -1, side: "query" }),
    };
    const view = this.views[Number(key) - 1];
    const action = actions[key] ?? (view === undefined ? undefined : () => state.set({ view: view.name }));
    action?.();
    return action !== undefined;
  }
}
