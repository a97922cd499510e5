// All heads: every map of the record, small, places down and heads across.

/** @import { Picture } from "./draw.js" */
/** @import { ViewContext } from "./view_context.js" */
import { make } from "./dom.js";
import { imageOf } from "./draw.js";
import { largestOf } from "./tiles.js";

const CELL = 76; // of a small map in an exported picture
const SPACE = 12;
/** Pixels of a small map on the screen, and of all of them side by side. */
const SMALL = 60;
const LARGE = 132;
const ROOM = 1020;

export class Heads {
  name = /** @type {const} */ ("heads");
  title = "All heads";

  /** @param {ViewContext} context */
  constructor(context) {
    this.context = context;
    this.element = make("div", { class: "heads" });
    /** @type {Map<string, HTMLButtonElement>} */
    this.cells = new Map();
    /** Maps are drawn when they come into view. */
    this.watch = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) this.draw(/** @type {HTMLButtonElement} */ (entry.target));
    }, { rootMargin: "200px" });
    this.build();
    context.colours.listeners.push(() => this.redraw());
  }

  build() {
    const { places } = this.context.source.told;
    const most = Math.max(0, ...places.map((place) => place.heads));
    const grid = make("div", { class: "grid", role: "grid", "aria-label": "A small map of every head" });
    grid.style.setProperty("--heads", String(most));
    grid.style.setProperty("--cell", `${Math.min(LARGE, Math.max(SMALL, Math.floor(ROOM / Math.max(1, most)) - 10))}px`);
    const top = make("div", { role: "row", class: "row" }, make("span", { role: "columnheader" }, "place"));
    for (let head = 0; head < most; head++) top.append(make("span", { role: "columnheader", class: "number" }, String(head)));
    grid.append(top);
    places.forEach((place, number) => {
      const row = make("div", { role: "row", class: "row" }, make("span", { role: "rowheader", title: place.name }, place.name));
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
    const name = `${source.told.places[place].name}, head ${head}${pattern ? `, ${pattern}` : ""}${badge ? `, ${badge}` : ""}`;
    const button = make("button", { type: "button", class: "small", "aria-label": name, title: name }, make("canvas", { width: "1", height: "1" }));
    if (pattern) button.append(make("span", { class: "pattern" }, pattern));
    if (badge) button.append(make("span", { class: "badge" }, badge));
    button.dataset.place = String(place);
    button.dataset.head = String(head);
    button.addEventListener("click", () => state.set({ view: "matrix", place, head, box: null }));
    button.addEventListener("focus", () => state.set({ place, head }));
    this.cells.set(`${place} ${head}`, button);
    this.watch.observe(button);
    return make("div", { role: "gridcell" }, button);
  }

  /** @param {number} place @param {number} head @returns {HTMLCanvasElement | null} */
  image(place, head) {
    const { source, colours } = this.context;
    const small = source.thumbnail(place, head);
    if (small === null) return null;
    return imageOf(colours.pixels(small.values, largestOf(small.values)), small.rows, small.cols);
  }

  /** @param {HTMLButtonElement} button */
  draw(button) {
    this.watch.unobserve(button);
    const found = this.image(Number(button.dataset.place), Number(button.dataset.head));
    if (found === null) button.classList.add("none");
    else button.firstElementChild?.replaceWith(found);
  }

  redraw() {
    for (const button of this.cells.values()) this.watch.observe(button);
  }

  /** @param {Set<string> | null} changed */
  update(changed) {
    const { state, source, status } = this.context;
    const { place, head } = state.shown;
    for (const [name, button] of this.cells) button.classList.toggle("chosen", name === `${place} ${head}`);
    const chosen = this.cells.get(`${place} ${Math.max(0, head)}`);
    if (changed !== null && (changed.has("place") || changed.has("head")) && chosen !== document.activeElement) chosen?.focus();
    const about = [this.context.label("patterns", place, head), this.context.label("badges", place, head)].filter(Boolean).join(", ");
    const name = source.told.places[place].name;
    status(`${name}, head ${Math.max(0, head)}${about ? `: ${about}` : ""}. Enter opens it. Each map is shaded by its own largest mean.`);
  }

  key() {
    return false;
  }

  /** @returns {Picture} */
  picture() {
    const { source, colours } = this.context;
    const { places } = source.told;
    const most = Math.max(1, ...places.map((place) => place.heads));
    const left = 170;
    return {
      width: left + most * (CELL + SPACE) + 16, height: 40 + places.length * (CELL + SPACE),
      draw: (pen) => {
        for (let head = 0; head < most; head++) pen.text(left + head * (CELL + SPACE) + CELL / 2, 20, String(head), { colour: colours.inks.faint, size: 12, align: "center" });
        places.forEach((place, number) => {
          const y = 36 + number * (CELL + SPACE);
          pen.text(left - 14, y + CELL / 2, place.name, { colour: colours.inks.ink, size: 12, align: "right" });
          for (let head = 0; head < place.heads; head++) {
            const found = this.image(number, head);
            if (found !== null) pen.image(left + head * (CELL + SPACE), y, CELL, CELL, found);
          }
        });
      },
    };
  }

  numbers() {
    const { source } = this.context;
    const maps = source.told.places.flatMap((place, number) =>
      Array.from({ length: place.heads }, (_, head) => ({ place: place.name, head, map: smallMap(source.thumbnail(number, head)) })));
    return { maps };
  }
}

/** @param {import("./source.js").Small | null} small */
function smallMap(small) {
  return small === null ? null : { rows: small.rows, cols: small.cols, means: [...small.values] };
}
