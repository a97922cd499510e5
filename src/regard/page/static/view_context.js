// What every view is given: where numbers come from, what is shown, in which colours, and where to say a word.

/** @import { Picture } from "./draw.js" */
/** @import { Source, Measure } from "./source.js" */
/** @import { State, ViewName } from "./state.js" */
/** @import { Colours } from "./colours.js" */
import { measureMap } from "./record.js";
import { ALL_HEADS } from "./source.js";

/**
 * @typedef {object} View
 * @property {ViewName} name
 * @property {string} title
 * @property {HTMLElement} element
 * @property {(changed: Set<string> | null) => void} update
 * @property {(event: KeyboardEvent) => boolean} key
 * @property {() => Picture} picture
 * @property {() => object} numbers
 */

export class ViewContext {
  /** @param {Source} source @param {State} state @param {Colours} colours @param {(text: string) => void} status */
  constructor(source, state, colours, status) {
    this.source = source;
    this.state = state;
    this.colours = colours;
    this.status = status;
  }

  /** The measure that a place has, wished or not. @param {number} place @param {Measure} wished @returns {Measure} */
  measure(place, wished) {
    return this.source.has(place, wished) ? wished : "weights";
  }

  /** What the view that is shown draws: the matrix any map that was computed beforehand, the others those of the place's own size. */
  shownMeasure() {
    const { view, place, measure } = this.state.shown;
    return view === "matrix" && measureMap(this.source.told, place, measure) !== null ? measure : this.measure(place, measure);
  }

  /** Whose tokens stand at the rows and at the columns of the map that is shown. */
  sides() {
    const { told } = this.source;
    const { place, measure } = this.state.shown;
    const { queries, keys } = told.places[place];
    const map = measureMap(told, place, measure);
    return { queries: told.sides[map?.rows ?? queries], keys: told.sides[map?.cols ?? keys] };
  }

  /** What was found out about a head, such as its pattern. @param {"patterns" | "badges"} kind @param {number} place @param {number} head @returns {string} */
  label(kind, place, head) {
    const facts = this.source.told.facts[kind];
    const of = facts?.[this.source.told.places[place].name] ?? facts?.[place];
    const said = of?.[head];
    return said === undefined || said === null ? "" : String(said);
  }
}

/** @param {number} head */
export function headName(head) {
  return head === ALL_HEADS ? "all (mean)" : `head ${head}`;
}
