// The context of a view: the source of weights, the state, the colours, and the status line.

/** @import { Picture } from "./draw.js" */
/** @import { Source, Measure } from "./source.js" */
/** @import { State, ViewName } from "./state.js" */
/** @import { Colours } from "./colours.js" */
import { measureMap } from "./record.js";
import { canRollOut } from "./rollout.js";
import { ALL_HEADS } from "./source.js";

/** The measure of the picture view that goes through all layers. */
export const ROLLOUT = "rollout";

/**
 * @typedef {object} View
 * @property {ViewName} name
 * @property {string} title
 * @property {HTMLElement} element
 * @property {(changed: Set<string> | null) => void} update
 * @property {(event: KeyboardEvent) => boolean} key
 * @property {() => Picture} picture
 * @property {() => object} numbers
 * @property {() => number} [shownQuery] the query whose weights are shown, where it is not the selected one; -1: none
 */

export class ViewContext {
  /** @param {Source} source @param {State} state @param {Colours} colours @param {(text: string) => void} status */
  constructor(source, state, colours, status) {
    this.source = source;
    this.state = state;
    this.colours = colours;
    this.status = status;
  }

  /** The selected measure where a place has it, else the weights. @param {number} place @param {Measure} selected @returns {Measure} */
  measure(place, selected) {
    return this.source.has(place, selected) ? selected : "weights";
  }

  /** The measure that the current view draws: matrix and picture draw any stored map, the other views only those of the place's size. */
  shownMeasure() {
    const { view, place, measure } = this.state.shown;
    if (view === "picture" && measure === ROLLOUT && canRollOut(this.source)) return ROLLOUT;
    return (view === "matrix" || view === "picture") && measureMap(this.source.info, place, measure) !== null ? measure : this.measure(place, measure);
  }

  /** The axes whose tokens label the rows and the columns of the current map. */
  axes() {
    const { info } = this.source;
    const { place, measure } = this.state.shown;
    const { queries, keys } = info.places[place];
    const map = measureMap(info, place, measure);
    return { queries: info.axes[map?.rows ?? queries], keys: info.axes[map?.cols ?? keys] };
  }

  /** The label of a head: its pattern (from an atlas) or its badge (from an audit). @param {"patterns" | "badges"} kind @param {number} place @param {number} head @returns {string} */
  label(kind, place, head) {
    const facts = this.source.info.facts[kind];
    const of = facts?.[this.source.info.places[place].name] ?? facts?.[place];
    const text = of?.[head];
    return text === undefined || text === null ? "" : String(text);
  }
}

/** @param {number} head */
export function headLabel(head) {
  return head === ALL_HEADS ? "all (mean)" : `head ${head}`;
}
