// The state of the page, mirrored in the URL fragment, so that links and the back button restore it.

/** @import { RecordInfo } from "./record.js" */
/** @import { Measure } from "./source.js" */
import { defaultPlace, hasPictures, measureMap } from "./record.js";

/** @typedef {typeof VIEWS[number]} ViewName */
/** @typedef {"all" | "ab" | "ba" | "aa" | "bb"} Part */
/** place -1: the default place of the record; head -1: the mean over heads; query -1: none selected; box: the visible part of the matrix, null for all.
 * Of pictures: `side`: whether the pinned token is a query or a key; `picture`, `grid`: what is shown of several; `opacity` in percent; `without`: the
 * kinds of keys that are left out, joined by commas. `view` "": the first view of the record.
 * @typedef {{view: ViewName | "", place: number, head: number, query: number, key: number, measure: Measure, words: boolean,
 *   part: Part, box: number[] | null, first: number, step: number, table: boolean, record: string,
 *   side: "query" | "key", picture: number, grid: number, opacity: number, palette: string, blocks: boolean, contours: boolean, without: string, layers: boolean}} Shown */
/** Where the state is stored: the URL of the page, or a trait of the widget.
 * @typedef {{read: () => string, write: (text: string, push: boolean) => void, onChange: (listener: () => void) => void}} Address */

/** In the order of the tabs, and of the shortcuts 1, 2, 3 ... */
export const VIEWS = /** @type {const} */ (["picture", "sentence", "heads", "matrix", "pair", "layers", "generation"]);
const SEGMENT_PAIRS = ["all", "ab", "ba", "aa", "bb"];
/** A change of one of these makes an entry in the browser's history. @type {(keyof Shown)[]} */
const HISTORY_KEYS = ["view", "place", "head", "record"];

/** @type {Shown} */
const DEFAULTS = {
  view: "", place: -1, head: 0, query: -1, key: 0, measure: "weights", words: false, part: "all", box: null,
  first: 0, step: 0, table: false, record: "",
  side: "query", picture: 0, grid: 0, opacity: 80, palette: "heat", blocks: false, contours: false, without: "", layers: false,
};

/** Parse a URL fragment. @param {string} text @returns {Shown} */
export function readShown(text) {
  const params = new URLSearchParams(text.replace(/^#/, ""));
  /** @param {keyof Shown} name @param {number} fallback */
  const integer = (name, fallback) => {
    const number = Number(params.get(name) ?? fallback);
    return Number.isInteger(number) ? number : fallback;
  };
  const view = /** @type {ViewName} */ (params.get("view"));
  const part = /** @type {Part} */ (params.get("part"));
  const box = (params.get("box") ?? "").split(",").map(Number);
  return {
    view: VIEWS.includes(view) ? view : DEFAULTS.view,
    place: integer("place", DEFAULTS.place), head: integer("head", DEFAULTS.head),
    query: integer("query", DEFAULTS.query), key: integer("key", DEFAULTS.key),
    measure: params.get("measure") ?? "weights", words: params.get("words") === "1",
    part: SEGMENT_PAIRS.includes(part) ? part : "all",
    box: box.length === 4 && box.every(Number.isFinite) ? box : null,
    first: integer("first", 0), step: integer("step", 0), table: params.get("table") === "1",
    record: params.get("record") ?? "",
    side: params.get("side") === "key" ? "key" : "query", picture: integer("picture", 0), grid: integer("grid", 0),
    opacity: integer("opacity", DEFAULTS.opacity), palette: params.get("palette") ?? DEFAULTS.palette,
    blocks: params.get("blocks") === "1", contours: params.get("contours") === "1", without: params.get("without") ?? "", layers: params.get("layers") === "1",
  };
}

/** The URL fragment of a state: the settings that differ from the defaults. @param {Shown} shown @returns {string} */
export function writeShown(shown) {
  const fields = Object.entries(shown).flatMap(([name, value]) => {
    const fallback = DEFAULTS[/** @type {keyof Shown} */ (name)];
    if (value === fallback || value === null) return name === "view" ? [`view=${value}`] : [];
    if (Array.isArray(value)) return [`${name}=${value.map((one) => Number(one.toFixed(2))).join(",")}`];
    return [`${name}=${typeof value === "boolean" ? Number(value) : encodeURIComponent(String(value))}`];
  });
  return `#${fields.join("&")}`;
}

export class State {
  /** @param {Address} address */
  constructor(address) {
    this.address = address;
    /** @type {Shown} */
    this.shown = readShown(address.read());
    /** @type {RecordInfo | null} */
    this.info = null;
    /** @type {((changed: Set<string>) => void)[]} */
    this.listeners = [];
    address.onChange(() => this.apply(readShown(address.read())));
  }

  /** @param {(changed: Set<string>) => void} listener */
  listen(listener) {
    this.listeners.push(listener);
  }

  /** Restrict the state to the places, heads and tokens of this record. @param {RecordInfo} info */
  fitTo(info) {
    this.info = info;
    this.shown = this.clamped(this.shown);
  }

  /** @param {Partial<Shown>} changes */
  set(changes) {
    const next = this.clamped({ ...this.shown, ...changes });
    const push = HISTORY_KEYS.some((name) => next[name] !== this.shown[name]);
    if (this.apply(next)) this.address.write(writeShown(this.shown), push);
  }

  /** @param {Shown} shown @returns {boolean} whether anything changed */
  apply(shown) {
    const next = this.clamped(shown);
    const names = /** @type {(keyof Shown)[]} */ (Object.keys(next));
    const changed = new Set(names.filter((name) => String(next[name]) !== String(this.shown[name])));
    this.shown = next;
    if (changed.size > 0) for (const listener of this.listeners) listener(changed);
    return changed.size > 0;
  }

  /** The nearest state that this record has. @param {Shown} shown @returns {Shown} */
  clamped(shown) {
    if (this.info === null || this.info.places.length === 0) return shown;
    const { places, steps } = this.info;
    const place = shown.place < 0 ? defaultPlace(this.info) : clamp(shown.place, 0, places.length - 1);
    const view = this.availableView(shown.view);
    const map = view === "matrix" || view === "picture" ? measureMap(this.info, place, shown.measure) : null;
    const { heads } = places[place];
    const [T, S] = map?.shape ?? [places[place].T, places[place].S];
    const last = Math.max(0, ...places.map((one) => one.layer));
    return {
      ...shown, place, view,
      head: clamp(shown.head, -1, heads - 1), query: clamp(shown.query, -1, T - 1),
      key: clamp(shown.key, 0, Math.max(0, S - 1)), first: clamp(shown.first, 0, last),
      step: clamp(shown.step, 0, Math.max(0, steps.length - 1)),
      picture: clamp(shown.picture, 0, Math.max(0, (this.info.pictures ?? []).length - 1)), opacity: clamp(shown.opacity, 0, 100),
    };
  }

  /** A view that this record has: this one, else its first. @param {ViewName | ""} view @returns {ViewName} */
  availableView(view) {
    const info = /** @type {RecordInfo} */ (this.info);
    const missing = view === "" || (view === "generation" && info.steps.length === 0) || (view === "picture" && !hasPictures(info));
    if (!missing) return view;
    return view !== "generation" && hasPictures(info) ? "picture" : "sentence";
  }
}

/** @param {number} value @param {number} low @param {number} high */
export function clamp(value, low, high) {
  return Math.min(high, Math.max(low, value));
}

/** The URL fragment of this document. @returns {Address} */
export function pageAddress() {
  if (location.protocol === "about:") return { read: () => "", write: () => {}, onChange: () => {} }; // a sandboxed frame has no URL of its own
  let timer = 0;
  return {
    read: () => location.hash,
    write: (text, push) => {
      clearTimeout(timer);
      if (push) history.pushState(null, "", text);
      else timer = window.setTimeout(() => history.replaceState(null, "", text), 120); // browsers throttle frequent changes
    },
    onChange: (listener) => window.addEventListener("popstate", listener),
  };
}
