// The numbers of the current view as an accessible table.

/** @import { ViewContext } from "./view_context.js" */
import { make, bidiText } from "./dom.js";
import { headLabel } from "./view_context.js";
import { visibleText, formatNumber } from "./text.js";
import { topIndices } from "./weights.js";

const ROWS_SHOWN = 8;

export class Table {
  /** @param {ViewContext} context */
  constructor(context) {
    this.context = context;
    this.element = make("section", { class: "table", "aria-label": "Numbers", hidden: "" });
    this.version = 0;
  }

  /** @param {number} query */
  async update(query) {
    const { source, state } = this.context;
    const { place: number, head, measure, table } = state.shown;
    const version = ++this.version;
    this.element.hidden = !table;
    if (!table) return;
    const place = source.info.places[number];
    const row = await source.row(number, head, query, this.context.measure(number, measure));
    if (version !== this.version) return;
    const [queryTokens, keyTokens] = [source.info.axes[place.queries].tokens, source.info.axes[place.keys].tokens];
    const kind = this.context.measure(number, measure) === "weights" ? "weight" : "share";
    const caption = make("caption", {}, `The ${ROWS_SHOWN} largest weights of query ${query}, `, bidiText(visibleText(queryTokens[query] ?? "", 60)), ` (${place.name}, ${headLabel(head)})`);
    const head_ = make("tr", {}, ...["rank", "key", "token", kind].map((name) => make("th", { scope: "col" }, name)));
    const lines = topIndices(row, ROWS_SHOWN).map((at, n) =>
      make("tr", {}, make("td", {}, String(n + 1)), make("td", {}, String(at)),
        make("td", { title: visibleText(keyTokens[at] ?? "", 200) }, bidiText(visibleText(keyTokens[at] ?? "", 60))), make("td", { class: "number" }, formatNumber(row[at]))));
    const notes = source.readable(number, head) ? [] : [make("p", { class: "note" }, source.why(number, head))];
    this.element.replaceChildren(make("table", {}, caption, make("thead", {}, head_), make("tbody", {}, ...lines)), ...notes);
  }
}
