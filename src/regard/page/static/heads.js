// All heads: a thumbnail of every attention map, one row per place, one column per head.

/** @import { Picture } from "./draw.js" */
/** @import { ViewContext } from "./view_context.js" */
import { make } from "./dom.js";
import { canvasOfPixels } from "./draw.js";
import { shortPlaceNames } from "./record.js";
import { maxOf } from "./tiles.js";

const EXPORTED_CELL = 76; // pixels of a thumbnail in an exported picture
const EXPORTED_GAP = 12;
const NAME_LENGTH = 21; // characters that fit beside a row
/** Pixels of a thumbnail on the screen, and of all of them side by side. */
const MIN_CELL = 60;
const MAX_CELL = 132;
const GRID_WIDTH = 1020;

export class Heads {
  name = /** @type {const} */ ("heads");
  title = "All heads";

  /** @param {ViewContext} context */
  constructor(context) {
    this.context = context;
    this.element = make("div", { class: "heads" });
    /** @type {Map<string, HTMLButtonElement>} */
    this.cells = new Map();
    /** Thumbnails are drawn when they scroll into view. */
    this.observer = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) this.draw(/** @type {HTMLButtonElement} */ (entry.target));
    }, { rootMargin: "200px" });
    this.build();
    context.colours.listeners.push(() => this.redraw());
  }

  build() {
    const { places } = this.context.source.info;
    const columns = Math.max(0, ...places.map((place) => place.heads));
    const grid = make("div", { class: "grid", role: "grid", "aria-label": "Thumbnails of all attention heads" });
    grid.style.setProperty("--heads", String(columns));
    grid.style.setProperty("--cell", `${Math.min(MAX_CELL, Math.max(MIN_CELL, Math.floor(GRID_WIDTH / Math.max(1, columns)) - 10))}px`);
    const top = make("div", { role: "row", class: "row" }, make("span", { role: "columnheader" }, "place"));
    for (let head = 0; head < columns; head++) top.append(make("span", { role: "columnheader", class: "number" }, String(head)));
    grid.append(top);
    const names = shortPlaceNames(places, NAME_LENGTH);
    places.forEach((place, number) => {
      const row = make("div", { role: "row", class: "row" }, make("span", { role: "rowheader", title: place.name }, names[number]));
      for (let head = 0; head < place.heads; head++) row.append(this.cell(number, head));
      grid.append(row);
    });
    this.element.append(grid);
  }

  /** @param {number} place @param {number} head */
  cell(place, head) {
    const { source, state } = this.context;
    const pattern = this.context.label("patterns", place, head);
    const badge = this.context.label("badges", place, head);
    const name = `${source.info.places[place].name}, head ${head}${pattern ? `, ${pattern}` : ""}${badge ? `, ${badge}` : ""}`;
    const button = make("button", { type: "button", class: "head-map", "aria-label": name, title: name }, make("canvas", { width: "1", height: "1" }));
    if (pattern) button.append(make("span", { class: "pattern" }, pattern));
    if (badge) button.append(make("span", { class: "badge" }, badge));
    button.dataset.place = String(place);
    button.dataset.head = String(head);
    button.addEventListener("click", () => state.set({ view: "matrix", place, head, box: null }));
    button.addEventListener("focus", () => state.set({ place, head }));
    this.cells.set(`${place} ${head}`, button);
    this.observer.observe(button);
    return make("div", { role: "gridcell" }, button);
  }

  /** @param {number} place @param {number} head @returns {HTMLCanvasElement | null} */
  image(place, head) {
    const { source, colours } = this.context;
    const small = source.thumbnail(place, head);
    if (small === null) return null;
    return canvasOfPixels(colours.pixels(small.values, maxOf(small.values)), small.rows, small.cols);
  }

  /** @param {HTMLButtonElement} button */
  draw(button) {
    this.observer.unobserve(button);
    const found = this.image(Number(button.dataset.place), Number(button.dataset.head));
    if (found === null) button.classList.add("no-map");
    else button.firstElementChild?.replaceWith(found);
  }

  redraw() {
    for (const button of this.cells.values()) this.observer.observe(button);
  }

  /** @param {Set<string> | null} changed */
  update(changed) {
    const { state, source, status } = this.context;
    const { place, head } = state.shown;
    for (const [name, button] of this.cells) button.classList.toggle("chosen", name === `${place} ${head}`);
    const chosen = this.cells.get(`${place} ${Math.max(0, head)}`);
    if (changed !== null && (changed.has("place") || changed.has("head")) && chosen !== document.activeElement) chosen?.focus();
    const about = [this.context.label("patterns", place, head), this.context.label("badges", place, head)].filter(Boolean).join(", ");
    const name = source.info.places[place].name;
    status(`${name}, head ${Math.max(0, head)}${about ? `: ${about}` : ""}. Enter opens it. The colours of each map are scaled to its own maximum.`);
  }

  key() {
    return false;
  }

  /** @returns {Picture} */
  picture() {
    const { source, colours } = this.context;
    const { places } = source.info;
    const columns = Math.max(1, ...places.map((place) => place.heads));
    const left = 170;
    const names = shortPlaceNames(places, NAME_LENGTH);
    return {
      width: left + columns * (EXPORTED_CELL + EXPORTED_GAP) + 16, height: 40 + places.length * (EXPORTED_CELL + EXPORTED_GAP),
      draw: (pen) => {
        for (let head = 0; head < columns; head++) pen.text(left + head * (EXPORTED_CELL + EXPORTED_GAP) + EXPORTED_CELL / 2, 20, String(head), { colour: colours.inks.faint, size: 12, align: "center" });
        places.forEach((place, number) => {
          const y = 36 + number * (EXPORTED_CELL + EXPORTED_GAP);
          pen.text(left - 14, y + EXPORTED_CELL / 2, names[number], { colour: colours.inks.ink, size: 12, align: "right" });
          for (let head = 0; head < place.heads; head++) {
            const found = this.image(number, head);
            if (found !== null) pen.image(left + head * (EXPORTED_CELL + EXPORTED_GAP), y, EXPORTED_CELL, EXPORTED_CELL, found);
          }
        });
      },
    };
  }

  numbers() {
    const { source } = this.context;
    const maps = source.info.places.flatMap((place, number) =>
      Array.from({ length: place.heads }, (_, head) => ({ place: place.name, head, map: mapNumbers(source.thumbnail(number, head)) })));
    return { maps };
  }
}

/** @param {import("./source.js").Small | null} small */
function mapNumbers(small) {
  return small === null ? null : { rows: small.rows, cols: small.cols, means: [...small.values] };
}
