// DOM helpers. Text is always inserted as text, never as markup.

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

/** Text from a model in a <bdi> element, whose direction is isolated from its surroundings. @param {string} text @param {string} [kind] */
export function bidiText(text, kind = "bidi") {
  return make("bdi", { class: kind, dir: "auto" }, text);
}

/** A <select> with a label. @param {string} label @param {[string, string][]} options value and text
 * @param {(value: string) => void} onChange @param {string} name */
export function labelledSelect(label, options, onChange, name) {
  const select = make("select", { name, "aria-label": label });
  for (const [value, text] of options) select.append(make("option", { value }, text));
  select.addEventListener("change", () => onChange(select.value));
  return { element: make("label", { class: "choice" }, make("span", {}, label), select), select };
}

/** A toggle button (aria-pressed). @param {string} text @param {string} title @param {() => void} onClick */
export function toggleButton(text, title, onClick) {
  const button = make("button", { type: "button", class: "toggle", title, "aria-pressed": "false" }, text);
  button.addEventListener("click", onClick);
  return button;
}
