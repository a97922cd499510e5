// The Picture view: attention laid over pictures. Where a patch, a word or the class token looks, and who looks at it.

/** @import { Picture } from "./draw.js" */
/** @import { Grid } from "./patches.js" */
/** @import { MapShape } from "./left_out.js" */
/** @import { HeadLook } from "./head_pictures.js" */
/** @import { Look } from "./look_panel.js" */
/** @import { ViewContext } from "./view_context.js" */
import { PALETTES } from "./colours.js";
import { bidiText, labelledSelect, make, toggleButton } from "./dom.js";
import { CanvasPen, prepareCanvas } from "./draw.js";
import { HeadPictures } from "./head_pictures.js";
import { findSinks, LeftOut, LEFT_OUT_KINDS, specialTokens } from "./left_out.js";
import { fitPicture, LookPanel } from "./look_panel.js";
import { drawOverlay, overlayStyle } from "./overlay.js";
import { decodePicture } from "./patches.js";
import { MAP_PREFIX, measureMap } from "./record.js";
import { computeRollout, rolloutSteps } from "./rollout.js";
import { formatNumber, visibleText } from "./text.js";
import { meanRow } from "./tokens.js";
import { headLabel, ROLLOUT } from "./view_context.js";

const FILM_SIDE = 84; // pixels of a picture in the film strip
const HEADS_WAIT = 140; // milliseconds without a change, before the small pictures follow
const ROLLOUTS_KEPT = 64;
const MARGIN = 24; // of an exported picture

/** The token whose attention is shown: as a query, as a key, or (self-attention) as both. @typedef {{side: "query" | "key" | "both", tokens: number[], pinned: boolean}} Subject */
/** The axes of the map that is shown. @typedef {MapShape & {queries: number, keys: number, isSelf: boolean}} PictureMap */

export class PictureView {
  name = /** @type {const} */ ("picture");
  title = "Picture";

  /** @param {ViewContext} context */
  constructor(context) {
    this.context = context;
    const { state } = context;
    /** Decoded pictures; null: not yet, or damaged. @type {(HTMLCanvasElement | null)[]} */
    this.pictures = (context.source.info.pictures ?? []).map(() => null);
    /** The token under the pointer. @type {{side: "query" | "key", tokens: number[]} | null} */
    this.hovered = null;
    const on = (/** @type {"query" | "key"} */ side) => ({
      hover: (/** @type {number[]} */ tokens) => this.hover(side, tokens),
      pick: (/** @type {number[]} */ tokens) => this.pick(side, tokens),
    });
    this.panels = { key: new LookPanel(context, "key", on("key")), query: new LookPanel(context, "query", on("query")) };
    this.heads = new HeadPictures(context);
    this.film = make("div", { class: "film", role: "group", "aria-label": "Pictures" });
    this.alert = make("p", { class: "alert", role: "alert", hidden: "" });
    this.subjectLine = make("p", { class: "subject" });
    this.looks = make("div", { class: "looks" });
    this.controls = this.makeControls();
    this.element = make("div", { class: "picture-view" }, this.controls.element, this.alert, this.subjectLine, this.film, this.looks);
    this.busy = false;
    this.again = false;
    this.axesKey = "";
    /** @type {{name: string, promise: Promise<number[]>}} */
    this.sinks = { name: "", promise: Promise.resolve([]) };
    /** @type {{name: string, left: LeftOut} | null} */
    this.leftOut = null;
    /** @type {Map<string, Promise<Float32Array>>} */
    this.rollouts = new Map();
    this.filmTitles = this.makeFilm();
    this.ready = this.decode();
    context.colours.listeners.push(() => this.refresh());
  }

  async decode() {
    await Promise.all((this.context.source.info.pictures ?? []).map(async (stored, n) => {
      try {
        this.pictures[n] = await decodePicture(stored);
      } catch (error) {
        this.alert.textContent = /** @type {Error} */ (error).message;
        this.alert.hidden = false;
      }
    }));
    await this.refresh();
  }

  makeControls() {
    const { state } = this.context;
    const opacity = make("input", { type: "range", min: "0", max: "100", step: "5", name: "opacity", "aria-label": "Opacity of the overlay" });
    opacity.addEventListener("input", () => state.set({ opacity: Number(opacity.value) }));
    const palette = labelledSelect("colours", Object.entries(PALETTES), (value) => state.set({ palette: value }), "palette");
    const grid = labelledSelect("patches", [], (value) => state.set({ grid: Number(value) }), "grid");
    const smooth = toggleButton("Smooth", "Smooth between the middles of patches, or one colour for each patch", () => state.set({ blocks: !state.shown.blocks }));
    const contours = toggleButton("Contours", "Lines at a quarter, a half and three quarters of the largest weight", () => state.set({ contours: !state.shown.contours }));
    const layers = toggleButton("All layers", "The small pictures of every layer, below", () => state.set({ layers: !state.shown.layers }));
    /** @type {Record<string, HTMLButtonElement>} */
    const without = {};
    for (const [kind, title] of Object.entries(LEFT_OUT_KINDS)) {
      without[kind] = toggleButton(title[0].toUpperCase() + title.slice(1), `Leave out keys: ${title}; the rest of the weight is renormalised`, () => this.toggleLeftOut(kind));
    }
    const leave = make("span", { class: "choice leave-out", role: "group", "aria-label": "Leave out" }, make("span", {}, "leave out"), ...Object.values(without));
    const element = make("details", { class: "overlay-options" }, make("summary", {}, "Overlay options"),
      make("div", { class: "bar picture-controls", role: "toolbar", "aria-label": "Overlay" },
        make("label", { class: "choice" }, make("span", {}, "opacity"), opacity), palette.element, smooth, contours, grid.element, leave, layers));
    const wide = matchMedia("(min-width: 641px)"); // narrow ones have no room for it
    const fold = () => (element.open = wide.matches);
    wide.addEventListener("change", fold);
    fold();
    return { element, opacity, palette, grid, smooth, contours, layers, without, leave };
  }

  /** @param {string} kind */
  toggleLeftOut(kind) {
    const { state } = this.context;
    const now = this.leftOutKinds();
    state.set({ without: (now.includes(kind) ? now.filter((one) => one !== kind) : [...now, kind]).join() });
  }

  leftOutKinds() {
    return this.context.state.shown.without.split(",").filter((kind) => kind in LEFT_OUT_KINDS);
  }

  /** The map that is shown, and the axes of its rows and columns. @returns {PictureMap} */
  get map() {
    const { source, state } = this.context;
    const { info } = source;
    const { place, head } = state.shown;
    const measure = this.context.shownMeasure();
    if (measure === ROLLOUT) {
      const steps = rolloutSteps(info, -1);
      const last = info.places[steps[0].place];
      const ends = steps.map((step) => step.keys);
      const keys = ends.find((axis) => (info.axes[axis].grids ?? []).length > 0) ?? ends[ends.length - 1];
      const S = info.places[steps.find((step) => step.keys === keys)?.place ?? 0].S;
      return { place, head, measure, T: last.T, S, queries: last.queries, keys, isSelf: steps[0].queries === keys && last.T === S };
    }
    const stored = measureMap(info, place, measure);
    const of = info.places[place];
    const [T, S] = stored?.shape ?? [of.T, of.S];
    const [queries, keys] = [stored?.rows ?? of.queries, stored?.cols ?? of.keys];
    return { place, head, measure, T, S, queries, keys, isSelf: queries === keys && T === S };
  }

  /** The axis that a token of a side is on. @param {"query" | "key"} side */
  axisOf(side) {
    const { queries, keys } = this.map;
    return this.context.source.info.axes[side === "query" ? queries : keys];
  }

  /** @param {Set<string> | null} _changed */
  update(_changed) {
    const { state } = this.context;
    const map = this.map;
    const key = [map.queries, map.keys, map.T, map.S, state.shown.words].join();
    if (key !== this.axesKey) {
      this.axesKey = key;
      this.hovered = null;
      this.panels.query.setAxis(this.axisOf("query"), map.T, state.shown.words);
      this.panels.key.setAxis(this.axisOf("key"), map.S, state.shown.words);
      const order = map.isSelf || this.panels.query.patches.grids.length > 0 ? ["key", "query"] : ["query", "key"];
      this.looks.replaceChildren(...order.map((side) => this.panels[/** @type {"key" | "query"} */ (side)].element), this.heads.element);
    }
    this.heads.element.classList.toggle("every-layer", state.shown.layers);
    this.updateControls();
    this.refresh();
  }

  updateControls() {
    const { shown } = this.context.state;
    const { opacity, palette, grid, smooth, contours, layers, without, leave } = this.controls;
    opacity.value = String(shown.opacity);
    palette.select.value = overlayStyle(shown).palette;
    smooth.setAttribute("aria-pressed", String(!shown.blocks));
    contours.setAttribute("aria-pressed", String(shown.contours));
    layers.setAttribute("aria-pressed", String(shown.layers));
    const known = this.gridLayers(this.panels[this.picturedSide()]);
    grid.element.hidden = known.length < 2;
    grid.select.replaceChildren(...known.map((grids, n) => make("option", { value: String(n) }, gridLabel(grids))));
    grid.select.value = String(Math.min(shown.grid, known.length - 1));
    const special = specialTokens(this.axisOf("key"), this.panels.key.patches);
    const has = { class: special.class.length > 0, registers: special.registers.length > 0, sinks: this.context.shownMeasure() !== ROLLOUT };
    for (const kind of /** @type {const} */ (["class", "registers", "sinks"])) {
      without[kind].hidden = !has[kind];
      without[kind].setAttribute("aria-pressed", String(this.leftOutKinds().includes(kind)));
    }
    leave.hidden = !Object.values(has).includes(true);
    layers.hidden = this.heads.element.hidden;
  }

  /** The side whose tokens are patches. @returns {"query" | "key"} */
  picturedSide() {
    return this.panels.key.patches.grids.length > 0 ? "key" : "query";
  }

  /** @param {LookPanel} panel @returns {Grid[][]} */
  gridLayers(panel) {
    return panel.patches.layers(this.context.state.shown.picture);
  }

  /** The grids that a panel draws. @param {LookPanel} panel @returns {Grid[]} */
  gridsOf(panel) {
    const known = this.gridLayers(panel);
    return known[Math.min(this.context.state.shown.grid, known.length - 1)] ?? [];
  }

  /** @param {"query" | "key"} side @param {number[]} tokens none: the pointer has left */
  hover(side, tokens) {
    if (tokens.length === 0 && this.hovered?.side !== side) return;
    this.hovered = tokens.length === 0 ? null : { side, tokens };
    if (this.pinned() === null && this.context.shownMeasure() !== ROLLOUT) this.refresh();
  }

  /** Pins a token, or releases the pinned one. @param {"query" | "key"} side @param {number[]} tokens */
  pick(side, tokens) {
    const { state } = this.context;
    const at = tokens[0];
    const now = this.pinned();
    if (now !== null && now.tokens.includes(at) && (now.side === "both" || now.side === side)) return state.set({ query: -1, side: "query" });
    if (this.map.isSelf) return state.set({ query: at, key: at, side: "query" });
    return state.set(side === "query" ? { query: at, side } : { key: at, side });
  }

  /** @returns {Subject | null} */
  pinned() {
    const { query, key, side } = this.context.state.shown;
    const { isSelf, T, S } = this.map;
    if (side === "key" && !isSelf) return { side, tokens: this.whole("key", Math.min(key, S - 1)), pinned: true };
    if (query < 0) return null;
    return { side: isSelf ? "both" : "query", tokens: this.whole("query", Math.min(query, T - 1)), pinned: true };
  }

  /** All tokens of the word of a token, where whole words are shown. @param {"query" | "key"} side @param {number} token */
  whole(side, token) {
    return this.panels[side].items.find((item) => item.tokens.includes(token))?.tokens ?? [token];
  }

  /** @returns {Subject} */
  subject() {
    const pinned = this.pinned();
    if (pinned !== null) return pinned;
    const { isSelf } = this.map;
    if (this.hovered !== null && this.context.shownMeasure() !== ROLLOUT) return { side: isSelf ? "both" : this.hovered.side, tokens: this.hovered.tokens, pinned: false };
    return { side: isSelf ? "both" : "query", tokens: this.whole("query", this.defaultQuery()), pinned: false };
  }

  /** The query shown until one is chosen: the class token, else the first word of another axis, else the last word, else the middle patch. */
  defaultQuery() {
    const { patches, axis } = this.panels.query;
    const { isSelf, T } = this.map;
    if (axis === null) return 0;
    const special = specialTokens(axis, patches);
    if (special.class.length > 0) return special.class[0];
    const words = patches.others.filter((at) => axis.words[at] >= 0 && !special.registers.includes(at));
    if (words.length > 0) return isSelf ? words[words.length - 1] : words[0];
    if (patches.others.length > 0 && !isSelf) return patches.others[0];
    const grid = this.gridsOf(this.panels.query)[0];
    return grid?.tokens[Math.floor(grid.rows / 2) * grid.cols + Math.floor(grid.cols / 2)] ?? T - 1;
  }

  /** The query whose weights the table shows. */
  shownQuery() {
    const pinned = this.pinned();
    return pinned !== null && pinned.side === "key" ? -1 : pinned?.tokens[0] ?? this.defaultQuery();
  }

  /** Draws the present state; while one is computed, the last of those that come meanwhile follows. */
  async refresh() {
    if (this.busy) {
      this.again = true;
      return;
    }
    this.busy = true;
    try {
      do {
        this.again = false;
        await this.compute();
      } while (this.again);
    } catch (error) {
      this.context.status(/** @type {Error} */ (error).message);
    }
    this.busy = false;
  }

  async compute() {
    if (this.axesKey === "") return;
    const { shown } = this.context.state;
    const map = this.map;
    const subject = this.subject();
    const left = await this.makeLeftOut(map);
    const looksUp = subject.side !== "key";
    const isKey = subject.side !== "query";
    const rows = looksUp ? await this.rowsOf(map, subject.tokens, left) : null;
    const columns = isKey && map.measure !== ROLLOUT ? await Promise.all(subject.tokens.map((key) => left.column(key))) : null;
    if (map.place !== this.map.place || map.head !== this.map.head || map.measure !== this.map.measure) return void (this.again = true);
    const name = this.panels[looksUp ? "query" : "key"].name(subject.tokens);
    const picture = this.pictures[shown.picture] ?? null;
    const style = overlayStyle(shown);
    const base = { pinned: subject.pinned, picture, style, without: /** @type {Set<number>} */ (new Set()), chosen: /** @type {number[]} */ ([]), why: "", legend: "" };
    const keyGrids = this.gridsOf(this.panels.key);
    const queryGrids = this.gridsOf(this.panels.query);
    /** @type {Look} */
    const keyLook = { ...base, grids: keyGrids, values: rows?.values ?? null, without: left.keys, chosen: isKey ? subject.tokens : [], heading: looksUp ? `Where ${name} looks` : `Keys: ${this.axisName("key")}` };
    /** @type {Look} */
    const queryLook = { ...base, grids: queryGrids, values: columns === null ? null : sumOf(columns), chosen: looksUp ? subject.tokens : [], heading: isKey ? `Who looks at ${name}` : `Queries: ${this.axisName("query")}` };
    if (rows !== null) keyLook.legend = this.rowLegend(rows, left);
    if (isKey && map.measure === ROLLOUT) queryLook.why = "Rollout is followed from a query back to its sources; the other direction is not computed.";
    if (isKey && left.keys.has(subject.tokens[0])) queryLook.why = `${name} is left out.`;
    else if (columns !== null) queryLook.legend = "The weight that each query gives to it.";
    if (!looksUp) keyLook.legend = "Pick a word to see where it looks.";
    this.panels.key.show(keyLook);
    this.panels.query.show(queryLook);
    this.updateSubject(subject, name);
    this.drawFilm(rows?.values ?? null, columns === null ? null : sumOf(columns), style);
    this.showHeads(map, subject, style);
    this.updateStatus(map, subject);
  }

  /** @param {"query" | "key"} side */
  axisName(side) {
    return visibleText(this.axisOf(side).name, 60);
  }

  /** The mean of the rows of a word's pieces, and what was left out of them. @param {PictureMap} map @param {number[]} tokens @param {LeftOut} left */
  async rowsOf(map, tokens, left) {
    if (map.measure === ROLLOUT) return this.rolloutRow(map, tokens[0], left);
    const rows = await Promise.all(tokens.map((query) => left.row(query)));
    return { values: meanRow(rows.map((row) => row.values)), removed: rows.reduce((sum, row) => sum + row.removed / rows.length, 0) };
  }

  /** The row of a query through all layers. @param {PictureMap} map @param {number} query @param {LeftOut} left */
  async rolloutRow(map, query, left) {
    const { source, status } = this.context;
    const name = `${query} ${map.keys}`;
    const known = this.rollouts.get(name);
    const pending = known ?? computeRollout(source, query, -1, new AbortController().signal, (at, all) => status(`Attention rollout: place ${at + 1} of ${all}.`))
      .then((steps) => Float32Array.from(steps[steps.length - 1].masses.get(map.keys) ?? new Float64Array(map.S)));
    this.rollouts.set(name, pending);
    pending.catch(() => this.rollouts.delete(name));
    if (this.rollouts.size > ROLLOUTS_KEPT) this.rollouts.delete(/** @type {string} */ (this.rollouts.keys().next().value));
    const whole = await pending;
    let [removed, total] = [0, 0];
    whole.forEach((value, key) => {
      total += value;
      if (left.keys.has(key)) removed += value;
    });
    const factor = total - removed > 1e-6 ? total / (total - removed) : 0;
    return { values: left.keys.size === 0 ? whole : whole.map((value, key) => (left.keys.has(key) ? 0 : value * factor)), removed };
  }

  /** The keys that are left out of a map. @param {PictureMap} map @returns {Promise<LeftOut>} */
  async makeLeftOut(map) {
    const kinds = this.leftOutKinds();
    const name = [map.place, map.head, map.measure, map.keys, ...kinds].join();
    if (this.leftOut?.name === name) return this.leftOut.left;
    const special = specialTokens(this.axisOf("key"), this.panels.key.patches);
    const keys = [...(kinds.includes("class") ? special.class : []), ...(kinds.includes("registers") ? special.registers : [])];
    const sinks = kinds.includes("sinks") && map.measure !== ROLLOUT ? await this.sinksOf(map) : [];
    const left = new LeftOut(this.context.source, map, new Set([...keys, ...sinks]), kinds.includes("sinks"));
    this.leftOut = { name, left };
    return left;
  }

  /** @param {PictureMap} map */
  sinksOf(map) {
    const name = [map.place, map.head, map.measure].join();
    if (this.sinks.name !== name) this.sinks = { name, promise: findSinks(this.context.source, map) };
    return this.sinks.promise;
  }

  /** What a reader must know of the numbers. @param {{values: Float32Array, removed: number}} row @param {LeftOut} left */
  rowLegend({ values, removed }, left) {
    const { patches } = this.panels.key;
    const { shown } = this.context.state;
    const map = this.map;
    const noun = map.measure === "weights" ? "weight" : "value";
    let [inside, here, all, negative] = [0, 0, 0, false];
    values.forEach((value, key) => {
      if (Number.isNaN(value)) return;
      all += value;
      negative ||= value < 0;
      const spots = patches.spots.get(key);
      if (spots !== undefined) inside += value;
      if (spots?.some(({ grid }) => grid.picture === shown.picture)) here += value;
    });
    const parts = [];
    const several = this.pictures.length > 1;
    const whole = map.measure.startsWith(MAP_PREFIX) ? all : 1;
    if (!negative && patches.grids.length > 0 && whole > 0) {
      const others = this.panels.key.items.length > 0 ? `, ${percentOf((all - inside) / whole)} on other tokens` : "";
      parts.push(`${percentOf(inside / whole)} of the ${noun} is on ${several ? `the pictures (${percentOf(here / whole)} on this one)` : "the picture"}${others}.`);
    }
    const sink = map.measure === "weights" && !left.sink ? this.context.source.sinkShare(map.place, map.head, this.subject().tokens[0]) : null;
    if (sink !== null) parts.push(`The sink took ${percentOf(sink)}.`);
    const kinds = this.leftOutKinds().filter((kind) => !this.controls.without[kind].hidden).map((kind) => LEFT_OUT_KINDS[/** @type {keyof typeof LEFT_OUT_KINDS} */ (kind)]);
    if (kinds.length > 0) {
      const none = left.isEmpty ? " (none found)" : ` (${left.keys.size} ${left.keys.size === 1 ? "key" : "keys"}, ${formatNumber(removed)} of the ${noun})`;
      parts.push(`Left out: ${kinds.join(", ")}${none}; ${negative ? "values as they are." : "the rest is renormalised."}`);
    }
    parts.push("Colours on a square-root scale.");
    if (values.some(Number.isNaN)) parts.push("Only the largest weights are stored.");
    return parts.join(" ");
  }

  /** @param {Subject} subject @param {string} name */
  updateSubject(subject, name) {
    const pin = subject.pinned ? "Pinned: " : this.hovered === null ? "Shown: " : "Under the pointer: ";
    const rollout = this.context.shownMeasure() === ROLLOUT;
    const how = subject.pinned ? " Click it again, or press Escape, to release it." : rollout ? " Click a patch or a word." : " Point at a patch or a word; click pins it.";
    this.subjectLine.replaceChildren(make("span", { class: "note" }, pin), bidiText(name, "bidi large"), make("span", { class: "note" }, how));
  }

  makeFilm() {
    const { info } = this.context.source;
    const pictures = info.pictures ?? [];
    this.film.hidden = pictures.length < 2;
    const buttons = pictures.length < 2 ? [] : pictures.map(({ title }, n) => {
      const name = title === "" ? `picture ${n + 1}` : visibleText(title, 40);
      const button = make("button", { type: "button", class: "film-picture", "aria-label": `Picture ${n + 1} of ${pictures.length}: ${name}`, "aria-pressed": "false" }, make("canvas", {}), bidiText(name));
      button.addEventListener("click", () => this.context.state.set({ picture: n, grid: 0 }));
      return button;
    });
    this.film.replaceChildren(...buttons);
    return buttons;
  }

  /** The pictures beside one another, with one scale of colours for all. @param {Float32Array | null} row @param {Float32Array | null} column @param {import("./overlay.js").OverlayStyle} style */
  drawFilm(row, column, style) {
    const side = this.picturedSide();
    const values = side === "key" ? row : column;
    const panel = this.panels[side];
    this.filmTitles.forEach((button, n) => {
      button.setAttribute("aria-pressed", String(n === this.context.state.shown.picture));
      const picture = this.pictures[n];
      if (picture === null) return;
      const { width, height } = fitPicture(picture, FILM_SIDE, FILM_SIDE);
      const pen = new CanvasPen(prepareCanvas(/** @type {HTMLCanvasElement} */ (button.firstChild), width, height));
      drawOverlay(pen, { x: 0, y: 0, w: width, h: height }, picture, panel.patches.layers(n)[0] ?? [], values, panel.peak, { ...style, contours: false });
    });
  }

  /** @param {PictureMap} map @param {Subject} subject @param {import("./overlay.js").OverlayStyle} style */
  showHeads(map, subject, style) {
    const { source, state } = this.context;
    const { info } = source;
    const side = this.picturedSide();
    const panel = this.panels[side];
    const grids = this.gridsOf(panel);
    const picture = this.pictures[state.shown.picture] ?? null;
    const own = map.measure === ROLLOUT || measureMap(info, map.place, map.measure) !== null; // one map of all heads
    const visible = !own && picture !== null && grids.length > 0;
    this.controls.layers.hidden = !visible || info.places.length < 2;
    if (!visible || picture === null) return this.heads.show(null, 0);
    // where no query is shown, that of the pinned or first word
    const tokens = side === "key" && subject.side === "key" ? this.whole("query", Math.max(0, state.shown.query < 0 ? this.defaultQuery() : state.shown.query)) : subject.tokens;
    const noQuery = side === "query" && subject.side === "query";
    if (noQuery) return this.heads.show(null, 0);
    const same = info.places.flatMap((place, number) => (place.queries === map.queries && place.keys === map.keys && place.T === map.T && place.S === map.S ? [number] : []));
    const name = this.panels[side === "key" ? "query" : "key"].name(tokens);
    /** @type {HeadLook} */
    const look = {
      title: `${side === "key" ? `Where ${name} looks` : `Who looks at ${name}`}, head by head`, places: state.shown.layers ? same : [map.place], picture, grids, patches: panel.patches, style,
      values: async (place, head) => {
        const of = { ...map, place, head, measure: this.context.measure(place, map.measure) };
        const left = place === map.place && head === map.head ? await this.makeLeftOut(of) : await this.leftOutOf(of);
        if (side === "key") return (await this.rowsOf(of, tokens, left)).values;
        return sumOf(await Promise.all(tokens.map((key) => left.column(key))));
      },
    };
    return this.heads.show(look, subject.pinned || this.hovered === null ? 0 : HEADS_WAIT);
  }

  /** As makeLeftOut, of another head. @param {PictureMap} map */
  async leftOutOf(map) {
    const kinds = this.leftOutKinds();
    const special = specialTokens(this.axisOf("key"), this.panels.key.patches);
    const keys = [...(kinds.includes("class") ? special.class : []), ...(kinds.includes("registers") ? special.registers : [])];
    const sinks = kinds.includes("sinks") ? await findSinks(this.context.source, map) : [];
    return new LeftOut(this.context.source, map, new Set([...keys, ...sinks]), kinds.includes("sinks"));
  }

  /** @param {PictureMap} map @param {Subject} subject */
  updateStatus(map, subject) {
    const { source, status } = this.context;
    const stored = measureMap(source.info, map.place, map.measure);
    const where = map.measure === ROLLOUT ? "attention rollout" : stored !== null ? visibleText(stored.title, 60) : `${source.info.places[map.place].name}, ${headLabel(map.head)}`;
    if (this.panels.key.patches.grids.length + this.panels.query.patches.grids.length === 0) {
      return status(`${where}: neither its queries nor its keys are patches of a picture. Choose another place.`);
    }
    const readable = stored !== null || map.measure === ROLLOUT || source.readable(map.place, map.head);
    if (!readable) return status(`${where}. ${source.why(map.place, map.head)} Only the largest weights of each query are known.`);
    const say = (/** @type {LookPanel} */ panel) => panel.largest(2).map(({ name, value }) => `${name} ${formatNumber(value)}`).join(", ");
    const name = this.panels[subject.side === "key" ? "key" : "query"].name(subject.tokens);
    const parts = [];
    if (subject.side !== "key") parts.push(`${name} looks at ${say(this.panels.key) || "nothing"}`);
    if (subject.side !== "query" && map.measure !== ROLLOUT) parts.push(`${parts.length > 0 ? "it" : name} is looked at by ${say(this.panels.query) || "nothing"}`);
    return status(`${where}. ${parts.join("; ")}.`);
  }

  /** @param {KeyboardEvent} event @returns {boolean} */
  key(event) {
    if (this.panels.key.key(event) || this.panels.query.key(event)) return true;
    const { state } = this.context;
    const { isSelf, T, S } = this.map;
    const { query, key, side } = state.shown;
    if (event.key === "j" || event.key === "k") {
      const next = Math.min(T - 1, Math.max(0, query + (event.key === "j" ? 1 : -1)));
      state.set(isSelf ? { query: next, key: next, side: "query" } : { query: next, side: "query" });
      return true;
    }
    if (event.key === "]" || event.key === "[") {
      const start = isSelf ? query : side === "key" ? key : -1;
      const next = Math.min(S - 1, Math.max(0, start + (event.key === "]" ? 1 : -1)));
      state.set(isSelf ? { query: next, key: next, side: "query" } : { key: next, side: "key" });
      return true;
    }
    return false;
  }

  /** @returns {Picture} */
  picture() {
    const { source, colours } = this.context;
    const map = this.map;
    const title = [visibleText(String(source.info.facts.model ?? "regard"), 60), this.measureTitle(map)].join(": ");
    const panels = this.looks.firstChild === this.panels.key.element ? [this.panels.key, this.panels.query] : [this.panels.query, this.panels.key];
    const parts = panels.map((panel) => panel.exported());
    const heads = this.heads.exported();
    const high = Math.max(...parts.map((part) => part.height));
    const width = Math.max(parts.reduce((sum, part) => sum + part.width + MARGIN, MARGIN), heads.width + 2 * MARGIN);
    return {
      width, height: 56 + high + (heads.height > 0 ? heads.height + MARGIN : 0) + MARGIN,
      draw: (pen) => {
        pen.text(MARGIN, 24, title, { colour: colours.inks.ink, size: 16, bold: true });
        let x = MARGIN;
        for (const part of parts) {
          part.draw(pen, x, 48);
          x += part.width + MARGIN;
        }
        heads.draw(pen, MARGIN, 56 + high);
      },
    };
  }

  /** @param {PictureMap} map */
  measureTitle(map) {
    const { info } = this.context.source;
    if (map.measure === ROLLOUT) return "attention rollout";
    const stored = measureMap(info, map.place, map.measure);
    if (stored !== null) return `${visibleText(stored.title, 60)}${stored.place === null ? "" : `, ${visibleText(stored.place, 60)}`}`;
    const measure = { weights: "", norms: ", weight × length of value", gradient: ", weight × gradient" }[map.measure] ?? "";
    return `${visibleText(info.places[map.place].name, 60)}, ${headLabel(map.head)}${measure}`;
  }

  /** The visible numbers, for export. */
  numbers() {
    const subject = this.subject();
    return { subject: { side: subject.side, tokens: subject.tokens }, looks_at: this.panels.key.numbers(), looked_at_by: this.panels.query.numbers() };
  }
}

/** @param {Grid[]} grids */
function gridLabel(grids) {
  const [one] = grids;
  return grids.length > 1 ? `${grids.length} parts` : `${one.rows} × ${one.cols}`;
}

/** @param {number} share */
function percentOf(share) {
  return `${(100 * share).toFixed((share > 0 && share < 0.0995) || (share > 0.9905 && share < 0.9995) ? 1 : 0)} %`;
}

/** The sum of columns. @param {Float32Array[]} columns */
function sumOf(columns) {
  return columns.length === 1 ? columns[0] : columns[0].map((_, at) => columns.reduce((sum, one) => sum + one[at], 0));
}
