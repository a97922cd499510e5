// The form of the served page: choose a model, type a text, and look at its attention.

/** @import { LookRequest, RunInfo } from "./remote.js" */
import { make, bidiText } from "./dom.js";
import { visibleText } from "./text.js";

/** The label of the second text field for each kind of model; empty where a model takes one text. @type {Record<RunInfo["kind"], string>} */
const SECOND_FIELD = { translates: "translation (optional; without it the model generates one)", continues: "", fills: "", reads: "second text (optional)" };

/**
 * @param {RunInfo[]} all @param {(request: LookRequest) => Promise<void>} look
 */
export function lookForm(all, look) {
  const run = make("select", { name: "run" }, ...all.map((one) => make("option", { value: one.name }, one.name)));
  const about = make("p", { class: "note" });
  const text = make("textarea", { name: "text", rows: "2", required: "", dir: "auto" });
  const other = make("textarea", { name: "other", rows: "2", dir: "auto" });
  const second = make("span", {});
  const secondLabel = make("label", { class: "field" }, second, other);
  const button = make("button", { type: "submit", class: "action" }, "Look");
  const alert = make("p", { class: "alert", role: "alert" });
  const form = make("form", { class: "look", "aria-label": "Look at a text" },
    make("label", { class: "field" }, make("span", {}, "model"), run), about,
    make("label", { class: "field" }, make("span", {}, "text"), text), secondLabel, make("div", {}, button), alert);
  const runChanged = () => {
    const chosen = all.find((one) => one.name === run.value);
    about.textContent = chosen?.description ?? "";
    second.textContent = chosen === undefined ? "" : SECOND_FIELD[chosen.kind];
    secondLabel.hidden = second.textContent === "";
  };
  run.addEventListener("change", runChanged);
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
  runChanged();
  return form;
}

/** Buttons of the records that the server was started with. @param {{id: string, text: string, problem: string}[]} records @param {(id: string) => void} onChoose */
export function recordList(records, onChoose) {
  const list = make("nav", { class: "record-list", "aria-label": "Records" });
  for (const { id, text, problem } of records) {
    if (problem) {
      list.append(make("p", { class: "alert" }, visibleText(problem, 400)));
      continue;
    }
    const button = make("button", { type: "button", class: "chip" }, bidiText(visibleText(text.replace(/\s+/g, " "), 48)));
    button.addEventListener("click", () => onChoose(id));
    list.append(button);
  }
  return list;
}
