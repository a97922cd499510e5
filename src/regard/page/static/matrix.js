// Matrix: the whole map of a head, from all of it down to single weights.

/** @import { Pen, Picture } from "./draw.js" */
/** @import { ViewContext } from "./view_context.js" */
/** @import { Map_, Ready } from "./tiles.js" */
import { make, spoken } from "./dom.js";
import { Viewport } from "./viewport.js";
import { Pointer } from "./pointer.js";
import { drawCross, drawLabels, drawScale } from "./axes.js";
import { CanvasPen, imageOf, prepared } from "./draw.js";
import { measureMap } from "./record.js";
import { headName } from "./view_context.js";
import { counted, isolated, visible, written } from "./text.js";
import { largestOf, peakWithin, Tiles } from "./tiles.js";

export class Matrix {
  name = /** @type {const} */ ("matrix");
  title = "Matrix";

  /** @param {ViewContext} context */
  constructor(context) {
    this.context = context;
    this.canvas = make("canvas", { tabindex: "0", role: "application", "aria-label": "Matrix of weights. Arrows pan, with shift they choose head and place; plus and minus zoom, 0 shows all of it, j and k choose the query, brackets the key, Enter opens the pair." });
    this.tip = make("div", { class: "tip", hidden: "" });
    this.element = make("div", { class: "matrix" }, this.canvas, this.tip);
    this.tiles = new Tiles(context.source, context.colours, () => this.paint());
    this.viewport = new Viewport();
    /** @type {{name: string, image: HTMLCanvasElement | null, peak: number}} */
    this.small = { name: "", image: null, peak: 0 };
    this.waiting = 0; // the number of the next drawing, 0 for none
    this.hovering = 0;
    this.telling = 0;
    this.settling = false;
    this.pointer = new Pointer(this.canvas, this);
    new ResizeObserver(() => this.resized()).observe(this.element);
    context.colours.listeners.push(() => this.paint());
  }

  /** @returns {Map_} */
  get map() {
    const { state, source } = this.context;
    const { place, head } = state.shown;
    const [T, S] = this.stored?.shape ?? [source.told.places[place].T, source.told.places[place].S];
    return { place, head, measure: this.context.shownMeasure(), T, S };
  }

  /** The map that was computed beforehand, where such a one is shown. */
  get stored() {
    const { place, measure } = this.context.state.shown;
    return measureMap(this.context.source.told, place, measure);
  }

  resized() {
    if (this.element.clientWidth === 0) return;
    this.restore();
    this.paint();
  }

  /** @param {Set<string> | null} changed */
  update(changed) {
    if (changed === null || (changed.has("box") && !this.settling) || changed.has("place") || changed.has("measure")) this.restore();
    this.leave();
    this.paint();
  }

  /** Takes the part of the map that the state names. */
  restore() {
    const { T, S } = this.map;
    Object.assign(this.viewport, { T, S, width: this.element.clientWidth, height: this.element.clientHeight });
    this.viewport.show(this.context.state.shown.box);
  }

  /** Tells the state where the reader is. */
  settled() {
    this.settling = true;
    this.context.state.set({ box: this.viewport.whole ? null : this.viewport.box });
    this.settling = false;
    this.paint();
  }

  /** @param {number} factor @param {number} x @param {number} y */
  zoom(factor, x, y) {
    this.viewport.zoom(factor, x, y);
    this.settled();
  }

  /** @param {number} dx @param {number} dy pixels */
  pan(dx, dy) {
    const { top, left, scale } = this.viewport;
    this.viewport.move(top - dy / scale, left - dx / scale, scale);
    this.settled();
  }

  /** Where zooming by keys aims: the chosen pair, or the middle. */
  aim() {
    const { query, key } = this.context.state.shown;
    const at = this.viewport.pixel(query + 0.5, key + 0.5);
    if (query >= 0 && this.viewport.pair(at.x, at.y) !== null) return at;
    const { x, y, width, height } = this.viewport.cells;
    return { x: x + width / 2, y: y + height / 2 };
  }

  /** @param {KeyboardEvent} event @returns {boolean} */
  key(event) {
    const aim = this.aim();
    const step = 80;
    const focused = document.activeElement === this.canvas && !event.shiftKey;
    /** @type {Record<string, () => void>} */
    const pans = {
      ArrowLeft: () => this.pan(step, 0), ArrowRight: () => this.pan(-step, 0), ArrowUp: () => this.pan(0, step),
      ArrowDown: () => this.pan(0, -step), Enter: () => this.context.state.set({ view: "pair" }),
    };
    /** @type {Record<string, () => void>} */
    const zooms = {
      "+": () => this.zoom(1.5, aim.x, aim.y), "=": () => this.zoom(1.5, aim.x, aim.y),
      "-": () => this.zoom(1 / 1.5, aim.x, aim.y), 0: () => this.context.state.set({ box: null }),
    };
    const act = zooms[event.key] ?? (focused ? pans[event.key] : undefined);
    act?.();
    return act !== undefined;
  }

  paint() {
    if (this.waiting !== 0) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.draw();
    });
  }

  draw() {
    if (this.element.clientWidth === 0) return;
    const map = this.map;
    const readable = this.stored !== null || this.context.source.readable(map.place, map.head);
    const [top, bottom, left, right] = this.viewport.box;
    const spots = readable ? Tiles.spots(map, this.viewport.level, this.viewport.box) : [];
    const far = (/** @type {import("./tiles.js").Spot} */ s) => Math.abs(s.top + s.bottom - top - bottom) + Math.abs(s.left + s.right - left - right);
    this.tiles.want(map, spots.sort((a, b) => far(a) - far(b)));
    const here = spots.flatMap((spot) => this.tiles.get(map, spot) ?? []);
    const picture = this.picture();
    picture.draw(new CanvasPen(prepared(this.canvas, picture.width, picture.height)));
    this.tell(here, spots.length);
  }

  /** @returns {Picture} */
  picture() {
    return { width: this.viewport.width, height: this.viewport.height, draw: (pen) => this.strokes(pen) };
  }

  /** @param {Pen} pen */
  strokes(pen) {
    const map = this.map;
    const { cells, scale, level } = this.viewport;
    const small = this.whole(map);
    const there = this.tiles.of(map, level).filter((tile) => this.inView(tile));
    /** @param {number} at */
    const peakAt = (at) => Math.max(0, ...there.filter((tile) => tile.spot.level === at).map((tile) => peakWithin(tile, this.viewport.box)));
    pen.rect(cells.x, cells.y, cells.width, cells.height, this.context.colours.css(0));
    pen.clipped(cells.x, cells.y, cells.width, cells.height, () => {
      /** @param {HTMLCanvasElement} image @param {{top: number, bottom: number, left: number, right: number}} spot */
      const lay = (image, spot) => {
        const { x, y } = this.viewport.pixel(spot.top, spot.left);
        pen.image(x, y, (spot.right - spot.left) * scale, (spot.bottom - spot.top) * scale, image);
      };
      if (small.image !== null) lay(small.image, { top: 0, bottom: map.T, left: 0, right: map.S });
      for (const tile of there) lay(this.tiles.painted(tile, peakAt(tile.spot.level)), tile.spot);
      drawCross(pen, this.context, this.viewport);
    });
    drawLabels(pen, this.context, this.viewport);
    drawScale(pen, this.context, this.viewport, there.some((tile) => tile.spot.level === level) ? peakAt(level) : small.peak);
  }

  /** The thumbnail, which is there before any tile. @param {Map_} map */
  whole(map) {
    const { source, colours } = this.context;
    const name = `${Tiles.named(map)} ${colours.theme}`;
    if (this.small.name !== name) {
      const small = this.stored === null ? source.thumbnail(map.place, map.head) : null;
      const peak = small === null ? 0 : largestOf(small.values);
      this.small = { name, peak, image: small === null ? null : imageOf(colours.pixels(small.values, peak), small.rows, small.cols) };
    }
    return this.small;
  }

  /** @param {Ready} tile */
  inView({ spot }) {
    const [top, bottom, left, right] = this.viewport.box;
    return spot.top < bottom && spot.bottom > top && spot.left < right && spot.right > left;
  }

  /** @param {Ready[]} here @param {number} wanted */
  tell(here, wanted) {
    const { source, state, status } = this.context;
    const map = this.map;
    const where = this.stored?.title ?? `${source.told.places[map.place].name}, ${headName(map.head)}`;
    if (this.stored === null && !source.readable(map.place, map.head)) return status(`${where}. ${source.why(map.place, map.head)} The map is a picture of means.`);
    for (const failure of this.tiles.failures.values()) return status(failure.message);
    const cell = 2 ** this.viewport.level;
    const noun = this.stored === null ? "weight" : "value";
    const detail = cell === 1 ? `each cell is one ${noun}` : `mean of ${counted(cell)} × ${counted(cell)} ${noun}s a cell`;
    const how = here.filter((tile) => tile.done).length < wanted ? ", computing" : here.every((tile) => tile.exact) ? ", exact" : ", estimate";
    const said = `${where}: ${counted(map.T)} × ${counted(map.S)}, ${detail}${how}.`;
    const { query, key } = state.shown;
    const turn = ++this.telling;
    if (query < 0) return status(said);
    source.row(map.place, map.head, query, map.measure).then((row) => {
      if (turn === this.telling) status(`${said} ${this.named(query, key).map(isolated).join(" → ")}: ${written(row[key])}.`);
    }, (error) => status(error.message));
  }

  /** The tokens of a pair, as one shows them. @param {number} query @param {number} key */
  named(query, key) {
    const { queries, keys } = this.context.sides();
    return [visible(queries.tokens[query] ?? "", 40), visible(keys.tokens[key] ?? "", 40)];
  }

  /** Shows what is under the pointer. @param {number} x @param {number} y */
  async hover(x, y) {
    const turn = ++this.hovering;
    const pair = this.viewport.pair(x, y);
    this.tip.hidden = pair === null;
    if (pair === null) return;
    const map = this.map;
    const row = await this.context.source.row(map.place, map.head, pair.query, map.measure);
    if (turn !== this.hovering) return;
    const [from, to] = this.named(pair.query, pair.key);
    this.tip.replaceChildren(
      make("strong", { class: "value" }, written(row[pair.key])), " ",
      make("span", { class: "of" }, spoken(from), " → ", spoken(to)), make("span", { class: "where" }, `${pair.query}, ${pair.key}`));
    this.tip.style.left = `${Math.max(4, Math.min(x + 14, this.viewport.width - this.tip.offsetWidth - 4))}px`;
    const below = y + this.tip.offsetHeight + 26 <= this.viewport.height;
    this.tip.style.top = `${below ? y + 18 : y - this.tip.offsetHeight - 10}px`;
  }

  leave() {
    this.hovering++;
    this.tip.hidden = true;
  }

  /** @param {number} x @param {number} y */
  pick(x, y) {
    const pair = this.viewport.pair(x, y);
    if (pair !== null) this.context.state.set(pair);
  }

  numbers() {
    const tiles = this.tiles.of(this.map, this.viewport.level).filter((tile) => tile.spot.level === this.viewport.level && this.inView(tile));
    return { box: this.viewport.box, tiles: tiles.map(({ spot, rows, cols, exact, values }) => ({ ...spot, rows, cols, exact, means: [...values] })) };
  }
}
