// Every head as a small picture: where the chosen token looks by each of them, of one place or of all layers.

/** @import { OverlayStyle } from "./overlay.js" */
/** @import { Grid, PatchMap } from "./patches.js" */
/** @import { ViewContext } from "./view_context.js" */
import { make } from "./dom.js";
import { CanvasPen, prepareCanvas } from "./draw.js";
import { fitPicture } from "./look_panel.js";
import { drawOverlay, peakOfPatches } from "./overlay.js";
import { shortPlaceNames } from "./record.js";
import { ALL_HEADS } from "./source.js";
import { headLabel } from "./view_context.js";

const SIDE = 92; // pixels of a small picture
const CELL_GAP = 10;
const PLACE_NAME_LENGTH = 22;
const EXPORTED_NAMES = 150;

/** What the small pictures show; `values`: those of a head of a place.
 * @typedef {{title: string, places: number[], picture: HTMLCanvasElement, grids: Grid[], patches: PatchMap, style: OverlayStyle, values: (place: number, head: number) => Promise<Float32Array>}} HeadLook */

export class HeadPictures {
  /** @param {ViewContext} context */
  constructor(context) {
    this.context = context;
    this.heading = make("h2", {});
    this.grid = make("div", { class: "head-pictures-grid", role: "group" });
    this.element = make("section", { class: "head-pictures", hidden: "" }, this.heading, this.grid);
    /** @type {Map<string, HTMLButtonElement>} */
    this.cells = new Map();
    /** @type {HeadLook | null} */
    this.look = null;
    this.version = 0;
    this.built = "";
    /** Cells in view, and the version that each shows. @type {Map<HTMLButtonElement, number>} */
    this.drawn = new Map();
    /** @type {Set<HTMLButtonElement>} */
    this.inView = new Set();
    this.observer = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) this.inView.add(/** @type {HTMLButtonElement} */ (entry.target));
        else this.inView.delete(/** @type {HTMLButtonElement} */ (entry.target));
      }
      this.fill();
    }, { rootMargin: "150px" });
    this.filling = false;
    this.timer = 0;
  }

  /** @param {HeadLook | null} look null: nothing to show @param {number} wait milliseconds, while the pointer moves on */
  show(look, wait) {
    this.element.hidden = look === null;
    this.look = look;
    this.version++;
    if (look === null) return;
    this.heading.textContent = look.title;
    const key = [look.picture.width, look.picture.height, ...look.places].join();
    if (key !== this.built) this.build(look.places);
    this.built = key;
    this.choose();
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.fill(), wait);
  }

  /** @param {number[]} places */
  build(places) {
    const all = this.context.source.info.places;
    const names = shortPlaceNames(all, PLACE_NAME_LENGTH);
    this.observer.disconnect();
    this.inView.clear();
    this.cells.clear();
    this.drawn.clear();
    this.grid.setAttribute("aria-label", "Heads as small pictures");
    this.grid.replaceChildren(...places.map((number) => {
      const heads = [ALL_HEADS, ...Array.from({ length: all[number].heads }, (_, head) => head)];
      const row = make("div", { class: "head-pictures-row" });
      if (places.length > 1) row.append(make("span", { class: "place-name", title: all[number].name }, names[number]));
      row.append(...heads.map((head) => this.cell(number, head)));
      return row;
    }));
  }

  /** @param {number} place @param {number} head */
  cell(place, head) {
    const { source, state } = this.context;
    const pattern = this.context.label("patterns", place, head);
    const label = head === ALL_HEADS ? "mean" : `head ${head}`;
    const name = `${source.info.places[place].name}, ${headLabel(head)}${pattern ? `, ${pattern}` : ""}`;
    const button = make("button", { type: "button", class: "head-picture", "aria-label": name, title: name, "aria-pressed": "false" }, make("canvas", {}), make("span", { "aria-hidden": "true" }, pattern || label));
    if (this.look !== null) {
      const { width, height } = fitPicture(this.look.picture, SIDE, SIDE);
      prepareCanvas(/** @type {HTMLCanvasElement} */ (button.firstChild), width, height); // drawn when it is in view
    }
    button.dataset.place = String(place);
    button.dataset.head = String(head);
    button.addEventListener("click", () => state.set({ place, head }));
    this.cells.set(`${place} ${head}`, button);
    this.observer.observe(button);
    return button;
  }

  choose() {
    const { place, head } = this.context.state.shown;
    for (const [name, button] of this.cells) button.setAttribute("aria-pressed", String(name === `${place} ${head}`));
  }

  /** Draws the cells in view that are out of date, one after the other. */
  async fill() {
    if (this.filling) return;
    this.filling = true;
    try {
      for (let next = this.outdated(); next !== null; next = this.outdated()) {
        const { look, version } = this;
        if (look === null) break;
        const values = await look.values(Number(next.dataset.place), Number(next.dataset.head));
        this.drawn.set(next, version);
        if (this.look === look) this.paint(next, look, values);
      }
    } catch {
      for (const cell of this.inView) this.drawn.set(cell, this.version); // the panel says what is wrong
    }
    this.filling = false;
  }

  /** @returns {HTMLButtonElement | null} */
  outdated() {
    return [...this.cells.values()].find((cell) => this.inView.has(cell) && this.drawn.get(cell) !== this.version) ?? null;
  }

  /** @param {HTMLButtonElement} cell @param {HeadLook} look @param {Float32Array} values */
  paint(cell, look, values) {
    const { width, height } = fitPicture(look.picture, SIDE, SIDE);
    const pen = new CanvasPen(prepareCanvas(/** @type {HTMLCanvasElement} */ (cell.firstChild), width, height));
    drawOverlay(pen, { x: 0, y: 0, w: width, h: height }, look.picture, look.grids, values, peakOfPatches(look.patches, values), { ...look.style, contours: false });
  }

  /** The small pictures in an exported picture: copies of what is drawn. */
  exported() {
    const { look } = this;
    if (look === null) return { width: 0, height: 0, draw: () => {} };
    const names = shortPlaceNames(this.context.source.info.places, PLACE_NAME_LENGTH);
    const left = look.places.length > 1 ? EXPORTED_NAMES : 0;
    const rows = look.places.map((place) => [...this.cells.values()].filter((cell) => Number(cell.dataset.place) === place));
    const { inks } = this.context.colours;
    /** @param {import("./draw.js").Pen} pen @param {number} x @param {number} y */
    const draw = (pen, x, y) => {
      pen.text(x, y + 8, look.title, { colour: inks.ink, size: 14, bold: true });
      rows.forEach((row, n) => {
        const top = y + 28 + n * (SIDE + 26);
        if (left > 0) pen.text(x, top + SIDE / 2, names[look.places[n]], { colour: inks.faint, size: 12 });
        row.forEach((cell, at) => {
          const canvas = /** @type {HTMLCanvasElement} */ (cell.firstChild);
          const x0 = x + left + at * (SIDE + CELL_GAP);
          const { width, height } = fitPicture(look.picture, SIDE, SIDE);
          if (this.drawn.has(cell)) pen.image(x0, top, width, height, canvas, undefined, true);
          pen.text(x0 + width / 2, top + height + 11, cell.lastChild?.textContent ?? "", { colour: inks.faint, size: 11, align: "center" });
        });
      });
    };
    return { width: left + Math.max(...rows.map((row) => row.length)) * (SIDE + CELL_GAP), height: 28 + rows.length * (SIDE + 26), draw };
  }
}
