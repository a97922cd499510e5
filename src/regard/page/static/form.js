// The form of the served page: choose a run, type a text, and look.

/** @import { Look, Run } from "./remote.js" */
import { make, spoken } from "./dom.js";
import { visible } from "./text.js";

/** What the second field is for, by what a run does; none for those that take one text. @type {Record<Run["kind"], string>} */
const SECOND = { translates: "a translation to look at (else the model writes one)", continues: "", fills: "", reads: "a second text, if there is one" };

/**
 * @param {Run[]} all @param {(look: Look) => Promise<void>} look
 */
export function lookForm(all, look) {
  const run = make("select", { name: "run" }, ...all.map((one) => make("option", { value: one.name }, one.name)));
  const about = make("p", { class: "note" });
  const text = make("textarea", { name: "text", rows: "2", required: "", dir: "auto" });
  const other = make("textarea", { name: "other", rows: "2", dir: "auto" });
  const second = make("span", {});
  const secondLabel = make("label", { class: "field" }, second, other);
  const button = make("button", { type: "submit", class: "act" }, "Look");
  const alert = make("p", { class: "alert", role: "alert" });
  const form = make("form", { class: "look", "aria-label": "Look at a text" },
    make("label", { class: "field" }, make("span", {}, "model"), run), about,
    make("label", { class: "field" }, make("span", {}, "text"), text), secondLabel, make("div", {}, button), alert);
  const changed = () => {
    const chosen = all.find((one) => one.name === run.value);
    about.textContent = chosen?.description ?? "";
    second.textContent = chosen === undefined ? "" : SECOND[chosen.kind];
    secondLabel.hidden = second.textContent === "";
  };
  run.addEventListener("change", changed);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    alert.textContent = "";
    try {
      await look({ run: run.value, text: text.value, other: secondLabel.hidden || other.value === "" ? null : other.value, prefix: null });
    } catch (error) {
      alert.textContent = /** @type {Error} */ (error).message;
    }
    button.disabled = false;
  });
  changed();
  return form;
}

/** Records that are there already. @param {{id: string, text: string}[]} given @param {(id: string) => void} chosen */
export function shelf(given, chosen) {
  const list = make("nav", { class: "shelf", "aria-label": "Records" });
  for (const { id, text } of given) {
    const button = make("button", { type: "button", class: "chip" }, spoken(visible(text.replace(/\s+/g, " "), 48)));
    button.addEventListener("click", () => chosen(id));
    list.append(button);
  }
  return list;
}
