// What is shown, in one place; the address says it too, so that a link or the back button brings it back.

/** @import { Told } from "./record.js" */
/** @import { Measure } from "./source.js" */
import { measureMap } from "./record.js";

/** @typedef {typeof VIEWS[number]} ViewName */
/** @typedef {"all" | "ab" | "ba" | "aa" | "bb"} Part */
/** place -1: wherever this record begins; head -1: the mean over heads; query -1: none chosen; box: what the matrix shows, null for all of it.
 * @typedef {{view: ViewName, place: number, head: number, query: number, key: number, measure: Measure, words: boolean,
 *   part: Part, box: number[] | null, first: number, step: number, table: boolean, record: string}} Shown */
/** Where the state is written: the address of a page, or a trait of a widget.
 * @typedef {{read: () => string, write: (text: string, push: boolean) => void, heard: (listener: () => void) => void}} Address */

/** In the order of the tabs, and of the keys 1, 2, 3 ... */
export const VIEWS = /** @type {const} */ (["sentence", "heads", "matrix", "pair", "layers", "generation"]);
const PARTS = ["all", "ab", "ba", "aa", "bb"];
/** Changes of these are steps that the back button goes back. @type {(keyof Shown)[]} */
const PLACES_TO_GO_BACK_TO = ["view", "place", "head", "record"];

/** @type {Shown} */
const AT_FIRST = {
  view: "sentence", place: -1, head: 0, query: -1, key: 0, measure: "weights", words: false, part: "all", box: null,
  first: 0, step: 0, table: false, record: "",
};

/** What an address says. @param {string} text @returns {Shown} */
export function readShown(text) {
  const said = new URLSearchParams(text.replace(/^#/, ""));
  /** @param {keyof Shown} name @param {number} usual */
  const whole = (name, usual) => {
    const number = Number(said.get(name) ?? usual);
    return Number.isInteger(number) ? number : usual;
  };
  const view = /** @type {ViewName} */ (said.get("view"));
  const part = /** @type {Part} */ (said.get("part"));
  const box = (said.get("box") ?? "").split(",").map(Number);
  return {
    view: VIEWS.includes(view) ? view : AT_FIRST.view,
    place: whole("place", AT_FIRST.place), head: whole("head", AT_FIRST.head),
    query: whole("query", AT_FIRST.query), key: whole("key", AT_FIRST.key),
    measure: said.get("measure") ?? "weights", words: said.get("words") === "1",
    part: PARTS.includes(part) ? part : "all",
    box: box.length === 4 && box.every(Number.isFinite) ? box : null,
    first: whole("first", 0), step: whole("step", 0), table: said.get("table") === "1",
    record: said.get("record") ?? "",
  };
}

/** The address of a state: what differs from the beginning. @param {Shown} shown @returns {string} */
export function writeShown(shown) {
  const words = Object.entries(shown).flatMap(([name, value]) => {
    const usual = AT_FIRST[/** @type {keyof Shown} */ (name)];
    if (value === usual || value === null) return name === "view" ? [`view=${value}`] : [];
    if (Array.isArray(value)) return [`${name}=${value.map((one) => Number(one.toFixed(2))).join(",")}`];
    return [`${name}=${typeof value === "boolean" ? Number(value) : encodeURIComponent(String(value))}`];
  });
  return `#${words.join("&")}`;
}

export class State {
  /** @param {Address} address */
  constructor(address) {
    this.address = address;
    /** @type {Shown} */
    this.shown = readShown(address.read());
    /** @type {Told | null} */
    this.told = null;
    /** @type {((changed: Set<string>) => void)[]} */
    this.listeners = [];
    address.heard(() => this.take(readShown(address.read())));
  }

  /** @param {(changed: Set<string>) => void} listener */
  listen(listener) {
    this.listeners.push(listener);
  }

  /** From now on the state keeps within this record. @param {Told} told */
  within(told) {
    this.told = told;
    this.shown = this.fitted(this.shown);
  }

  /** @param {Partial<Shown>} changes */
  set(changes) {
    const next = this.fitted({ ...this.shown, ...changes });
    const push = PLACES_TO_GO_BACK_TO.some((name) => next[name] !== this.shown[name]);
    if (this.take(next)) this.address.write(writeShown(this.shown), push);
  }

  /** @param {Shown} shown @returns {boolean} whether anything changed */
  take(shown) {
    const next = this.fitted(shown);
    const names = /** @type {(keyof Shown)[]} */ (Object.keys(next));
    const changed = new Set(names.filter((name) => String(next[name]) !== String(this.shown[name])));
    this.shown = next;
    if (changed.size > 0) for (const listener of this.listeners) listener(changed);
    return changed.size > 0;
  }

  /** The nearest state that this record has. @param {Shown} shown @returns {Shown} */
  fitted(shown) {
    if (this.told === null || this.told.places.length === 0) return shown;
    const { places, steps } = this.told;
    const across = places.map((one) => one.kind).lastIndexOf("cross"); // what a translation is about
    const place = shown.place < 0 ? Math.max(0, across) : within(shown.place, 0, places.length - 1);
    const map = shown.view === "matrix" ? measureMap(this.told, place, shown.measure) : null;
    const { heads } = places[place];
    const [T, S] = map?.shape ?? [places[place].T, places[place].S];
    const last = Math.max(0, ...places.map((one) => one.layer));
    return {
      ...shown, place,
      view: shown.view === "generation" && steps.length === 0 ? "sentence" : shown.view,
      head: within(shown.head, -1, heads - 1), query: within(shown.query, -1, T - 1),
      key: within(shown.key, 0, Math.max(0, S - 1)), first: within(shown.first, 0, last),
      step: within(shown.step, 0, Math.max(0, steps.length - 1)),
    };
  }
}

/** @param {number} value @param {number} least @param {number} most */
export function within(value, least, most) {
  return Math.min(most, Math.max(least, value));
}

/** The address of this document. @returns {Address} */
export function addressOfPage() {
  if (location.protocol === "about:") return { read: () => "", write: () => {}, heard: () => {} }; // a frame has none
  let timer = 0;
  return {
    read: () => location.hash,
    write: (text, push) => {
      clearTimeout(timer);
      if (push) history.pushState(null, "", text);
      else timer = window.setTimeout(() => history.replaceState(null, "", text), 120); // browsers throttle many
    },
    heard: (listener) => window.addEventListener("popstate", listener),
  };
}
