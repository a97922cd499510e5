// Elements with text; text goes in as text and never as markup.

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag @param {Record<string, string>} [attributes] @param {...(Node | string)} inside
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function make(tag, attributes = {}, ...inside) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inside);
  return element;
}

/** A text of a model, whose direction is its own. @param {string} text @param {string} [kind] */
export function spoken(text, kind = "spoken") {
  return make("bdi", { class: kind, dir: "auto" }, text);
}

/** A labelled choice. @param {string} label @param {[string, string][]} options value and words
 * @param {(value: string) => void} chosen @param {string} name */
export function choice(label, options, chosen, name) {
  const select = make("select", { name, "aria-label": label });
  for (const [value, words] of options) select.append(make("option", { value }, words));
  select.addEventListener("change", () => chosen(select.value));
  return { element: make("label", { class: "choice" }, make("span", {}, label), select), select };
}

/** A button that is pressed or not. @param {string} words @param {string} title @param {() => void} pressed */
export function toggle(words, title, pressed) {
  const button = make("button", { type: "button", class: "toggle", title, "aria-pressed": "false" }, words);
  button.addEventListener("click", pressed);
  return button;
}
