// Export of the current view: PNG, SVG, or its numbers as JSON.

/** @import { ViewContext, View } from "./view_context.js" */
import { make } from "./dom.js";
import { CanvasPen, prepareCanvas, SvgPen } from "./draw.js";

/** @param {string} name @param {Blob} blob */
function download(name, blob) {
  const link = make("a", { download: name, href: URL.createObjectURL(blob) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** What a reader must know of the record and of the place that is shown. @param {ViewContext} context @returns {string[]} */
function notesOf(context) {
  const { info } = context.source;
  return [...(info.notes ?? []), info.places[context.state.shown.place].note ?? ""].filter(Boolean);
}

/** @param {ViewContext} context @param {View} view @param {"png" | "svg" | "json"} kind @returns {Promise<void>} */
export async function exportView(context, view, kind) {
  const name = `regard-${view.name}.${kind}`;
  const shown = context.state.shown;
  const place = context.source.info.places[shown.place];
  if (kind === "json") {
    const facts = { view: view.name, place: place.name, head: shown.head, measure: context.shownMeasure(), notes: notesOf(context), ...view.numbers() };
    return download(name, new Blob([JSON.stringify(facts)], { type: "application/json" }));
  }
  const picture = view.picture();
  const ground = context.colours.inks.ground;
  if (kind === "svg") {
    const pen = new SvgPen(picture.width, picture.height, notesOf(context).join(". "));
    pen.rect(0, 0, picture.width, picture.height, ground);
    picture.draw(pen);
    return download(name, new Blob([pen.toString()], { type: "image/svg+xml" }));
  }
  const canvas = make("canvas");
  const pen = new CanvasPen(prepareCanvas(canvas, picture.width, picture.height, 2));
  pen.rect(0, 0, picture.width, picture.height, ground);
  picture.draw(pen);
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  return download(name, /** @type {Blob} */ (blob));
}

/** @param {(kind: "png" | "svg" | "json") => void} onChoose */
export function exportMenu(onChoose) {
  const menu = make("details", { class: "menu" }, make("summary", {}, "Export"));
  const list = make("div", { class: "list" });
  for (const kind of /** @type {const} */ (["png", "svg", "json"])) {
    const button = make("button", { type: "button" }, kind.toUpperCase());
    button.addEventListener("click", () => {
      menu.open = false;
      onChoose(kind);
    });
    list.append(button);
  }
  menu.append(list);
  menu.addEventListener("focusout", (event) => {
    if (!menu.contains(/** @type {Node | null} */ (event.relatedTarget))) menu.open = false;
  });
  menu.addEventListener("keydown", (event) => {
    if (event.key === "Escape") menu.open = false;
  });
  return menu;
}
