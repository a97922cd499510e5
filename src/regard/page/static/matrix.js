// Matrix: the attention map of a head, zoomable down to single weights.

/** @import { Pen, Picture } from "./draw.js" */
/** @import { ViewContext } from "./view_context.js" */
/** @import { MapId, LoadedTile } from "./tiles.js" */
import { make, bidiText } from "./dom.js";
import { Viewport } from "./viewport.js";
import { Pointer } from "./pointer.js";
import { drawCross, drawLabels, drawScale } from "./axes.js";
import { CanvasPen, canvasOfPixels, prepareCanvas } from "./draw.js";
import { measureMap } from "./record.js";
import { headLabel } from "./view_context.js";
import { formatCount, isolateBidi, visibleText, formatNumber } from "./text.js";
import { maxOf, peakWithin, Tiles } from "./tiles.js";

export class Matrix {
  name = /** @type {const} */ ("matrix");
  title = "Matrix";

  /** @param {ViewContext} context */
  constructor(context) {
    this.context = context;
    this.canvas = make("canvas", { tabindex: "0", role: "application", "aria-label": "Attention matrix. Arrow keys pan; with Shift they choose head and place; plus and minus zoom; 0 shows the whole map; j and k choose the query; brackets choose the key; Enter shows the query-key pair." });
    this.tip = make("div", { class: "tip", hidden: "" });
    this.element = make("div", { class: "matrix" }, this.canvas, this.tip);
    this.tiles = new Tiles(context.source, context.colours, () => this.paint());
    this.viewport = new Viewport();
    /** @type {{name: string, image: HTMLCanvasElement | null, peak: number}} */
    this.thumbnail = { name: "", image: null, peak: 0 };
    this.frame = 0; // the requested animation frame, 0 for none
    this.hoverVersion = 0;
    this.statusVersion = 0;
    this.movingItself = false;
    this.pointer = new Pointer(this.canvas, this);
    new ResizeObserver(() => this.resized()).observe(this.element);
    context.colours.listeners.push(() => this.paint());
  }

  /** @returns {MapId} */
  get map() {
    const { state, source } = this.context;
    const { place, head } = state.shown;
    const [T, S] = this.stored?.shape ?? [source.info.places[place].T, source.info.places[place].S];
    return { place, head, measure: this.context.shownMeasure(), T, S };
  }

  /** The stored attribution map, where one is shown. */
  get stored() {
    const { place, measure } = this.context.state.shown;
    return measureMap(this.context.source.info, place, measure);
  }

  resized() {
    if (this.element.clientWidth === 0) return;
    this.restore();
    this.paint();
  }

  /** @param {Set<string> | null} changed */
  update(changed) {
    if (changed === null || (changed.has("box") && !this.movingItself) || changed.has("place") || changed.has("measure")) this.restore();
    this.leave();
    this.paint();
  }

  /** Shows the part of the map that the state names. */
  restore() {
    const { T, S } = this.map;
    Object.assign(this.viewport, { T, S, width: this.element.clientWidth, height: this.element.clientHeight });
    this.viewport.show(this.context.state.shown.box);
  }

  /** Writes the visible part of the map to the state. */
  viewportMoved() {
    this.movingItself = true;
    this.context.state.set({ box: this.viewport.isWhole ? null : this.viewport.box });
    this.movingItself = false;
    this.paint();
  }

  /** @param {number} factor @param {number} x @param {number} y */
  zoom(factor, x, y) {
    this.viewport.zoom(factor, x, y);
    this.viewportMoved();
  }

  /** @param {number} dx @param {number} dy pixels */
  pan(dx, dy) {
    const { top, left, scale } = this.viewport;
    this.viewport.move(top - dy / scale, left - dx / scale, scale);
    this.viewportMoved();
  }

  /** The centre of zooming by keys: the selected pair, or the middle. */
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
    if (this.frame !== 0) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  draw() {
    if (this.element.clientWidth === 0) return;
    const map = this.map;
    const readable = this.stored !== null || this.context.source.readable(map.place, map.head);
    const [top, bottom, left, right] = this.viewport.box;
    const areas = readable ? Tiles.areas(map, this.viewport.level, this.viewport.box) : [];
    const far = (/** @type {import("./tiles.js").TileArea} */ s) => Math.abs(s.top + s.bottom - top - bottom) + Math.abs(s.left + s.right - left - right);
    this.tiles.request(map, areas.sort((a, b) => far(a) - far(b)));
    const loaded = areas.flatMap((area) => this.tiles.get(map, area) ?? []);
    const picture = this.picture();
    picture.draw(new CanvasPen(prepareCanvas(this.canvas, picture.width, picture.height)));
    this.updateStatus(loaded, areas.length);
  }

  /** @returns {Picture} */
  picture() {
    return { width: this.viewport.width, height: this.viewport.height, draw: (pen) => this.drawOn(pen) };
  }

  /** @param {Pen} pen */
  drawOn(pen) {
    const map = this.map;
    const { cells, scale, level } = this.viewport;
    const thumbnail = this.thumbnailImage(map);
    const inSight = this.tiles.of(map, level).filter((tile) => this.inView(tile));
    /** @param {number} at */
    const peakAt = (at) => Math.max(0, ...inSight.filter((tile) => tile.area.level === at).map((tile) => peakWithin(tile, this.viewport.box)));
    pen.rect(cells.x, cells.y, cells.width, cells.height, this.context.colours.css(0));
    pen.clipped(cells.x, cells.y, cells.width, cells.height, () => {
      /** @param {HTMLCanvasElement} image @param {{top: number, bottom: number, left: number, right: number}} area */
      const drawImage = (image, area) => {
        const { x, y } = this.viewport.pixel(area.top, area.left);
        pen.image(x, y, (area.right - area.left) * scale, (area.bottom - area.top) * scale, image);
      };
      if (thumbnail.image !== null) drawImage(thumbnail.image, { top: 0, bottom: map.T, left: 0, right: map.S });
      for (const tile of inSight) drawImage(this.tiles.imageFor(tile, peakAt(tile.area.level)), tile.area);
      drawCross(pen, this.context, this.viewport);
    });
    drawLabels(pen, this.context, this.viewport);
    drawScale(pen, this.context, this.viewport, inSight.some((tile) => tile.area.level === level) ? peakAt(level) : thumbnail.peak);
  }

  /** The thumbnail, which is available before any tile. @param {MapId} map */
  thumbnailImage(map) {
    const { source, colours } = this.context;
    const name = `${Tiles.mapKey(map)} ${colours.theme}`;
    if (this.thumbnail.name !== name) {
      const thumbnail = this.stored === null ? source.thumbnail(map.place, map.head) : null;
      const peak = thumbnail === null ? 0 : maxOf(thumbnail.values);
      this.thumbnail = { name, peak, image: thumbnail === null ? null : canvasOfPixels(colours.pixels(thumbnail.values, peak), thumbnail.rows, thumbnail.cols) };
    }
    return this.thumbnail;
  }

  /** @param {LoadedTile} tile */
  inView({ area }) {
    const [top, bottom, left, right] = this.viewport.box;
    return area.top < bottom && area.bottom > top && area.left < right && area.right > left;
  }

  /** @param {LoadedTile[]} loaded @param {number} wanted */
  updateStatus(loaded, wanted) {
    const { source, state, status } = this.context;
    const map = this.map;
    const where = this.stored?.title ?? `${source.info.places[map.place].name}, ${headLabel(map.head)}`;
    if (this.stored === null && !source.readable(map.place, map.head)) return status(`${where}. ${source.why(map.place, map.head)} The map shows mean weights.`);
    for (const failure of this.tiles.failures.values()) return status(failure.message);
    const cell = 2 ** this.viewport.level;
    const noun = this.stored === null ? "weight" : "value";
    const detail = cell === 1 ? `each cell is one ${noun}` : `each cell is the mean of ${formatCount(cell)} × ${formatCount(cell)} ${noun}s`;
    const progress = loaded.filter((tile) => tile.final).length < wanted ? ", computing" : loaded.every((tile) => tile.exact) ? ", exact" : ", estimate";
    const text = `${where}: ${formatCount(map.T)} × ${formatCount(map.S)}, ${detail}${progress}.`;
    const { query, key } = state.shown;
    const version = ++this.statusVersion;
    if (query < 0) return status(text);
    source.row(map.place, map.head, query, map.measure).then((row) => {
      if (version === this.statusVersion) status(`${text} ${this.tokenPair(query, key).map(isolateBidi).join(" → ")}: ${formatNumber(row[key])}.`);
    }, (error) => status(error.message));
  }

  /** The tokens of a pair, as text. @param {number} query @param {number} key */
  tokenPair(query, key) {
    const { queries, keys } = this.context.axes();
    return [visibleText(queries.tokens[query] ?? "", 40), visibleText(keys.tokens[key] ?? "", 40)];
  }

  /** Shows the weight under the pointer. @param {number} x @param {number} y */
  async hover(x, y) {
    const version = ++this.hoverVersion;
    const pair = this.viewport.pair(x, y);
    this.tip.hidden = pair === null;
    if (pair === null) return;
    const map = this.map;
    const row = await this.context.source.row(map.place, map.head, pair.query, map.measure);
    if (version !== this.hoverVersion) return;
    const [from, to] = this.tokenPair(pair.query, pair.key);
    this.tip.replaceChildren(
      make("strong", { class: "value" }, formatNumber(row[pair.key])), " ",
      make("span", { class: "of" }, bidiText(from), " → ", bidiText(to)), make("span", { class: "where" }, `${pair.query}, ${pair.key}`));
    this.tip.style.left = `${Math.max(4, Math.min(x + 14, this.viewport.width - this.tip.offsetWidth - 4))}px`;
    const below = y + this.tip.offsetHeight + 26 <= this.viewport.height;
    this.tip.style.top = `${below ? y + 18 : y - this.tip.offsetHeight - 10}px`;
  }

  leave() {
    this.hoverVersion++;
    this.tip.hidden = true;
  }

  /** @param {number} x @param {number} y */
  pick(x, y) {
    const pair = this.viewport.pair(x, y);
    if (pair !== null) this.context.state.set(pair);
  }

  numbers() {
    const tiles = this.tiles.of(this.map, this.viewport.level).filter((tile) => tile.area.level === this.viewport.level && this.inView(tile));
    return { box: this.viewport.box, tiles: tiles.map(({ area, rows, cols, exact, values }) => ({ ...area, rows, cols, exact, means: [...values] })) };
  }
}
