// The numbers of what is shown as a table that every reader, also one who listens, can go through.

/** @import { ViewContext } from "./view_context.js" */
import { make, spoken } from "./dom.js";
import { headName } from "./view_context.js";
import { visible, written } from "./text.js";
import { largest } from "./weights.js";

const LINES = 8;

export class Table {
  /** @param {ViewContext} context */
  constructor(context) {
    this.context = context;
    this.element = make("section", { class: "table", "aria-label": "Numbers", hidden: "" });
    this.turn = 0;
  }

  /** @param {number} query */
  async update(query) {
    const { source, state } = this.context;
    const { place: number, head, measure, table } = state.shown;
    const turn = ++this.turn;
    this.element.hidden = !table;
    if (!table) return;
    const place = source.told.places[number];
    const row = await source.row(number, head, query, this.context.measure(number, measure));
    if (turn !== this.turn) return;
    const [asking, asked] = [source.told.sides[place.queries].tokens, source.told.sides[place.keys].tokens];
    const kind = this.context.measure(number, measure) === "weights" ? "weight" : "share";
    const caption = make("caption", {}, `The ${LINES} largest of token ${query}, `, spoken(visible(asking[query] ?? "", 60)), ` (${place.name}, ${headName(head)})`);
    const head_ = make("tr", {}, ...["rank", "key", "token", kind].map((name) => make("th", { scope: "col" }, name)));
    const lines = largest(row, LINES).map((at, n) =>
      make("tr", {}, make("td", {}, String(n + 1)), make("td", {}, String(at)),
        make("td", { title: visible(asked[at] ?? "", 200) }, spoken(visible(asked[at] ?? "", 60))), make("td", { class: "number" }, written(row[at]))));
    const said = source.readable(number, head) ? [] : [make("p", { class: "note" }, source.why(number, head))];
    this.element.replaceChildren(make("table", {}, caption, make("thead", {}, head_), make("tbody", {}, ...lines)), ...said);
  }
}
