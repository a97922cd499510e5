// A virtual list of tokens: only those in view are DOM elements.

/** @import { Item } from "./tokens.js" */
import { make, bidiText } from "./dom.js";

export const ROW = 30;
const AROUND = 4; // tokens rendered above and below the view, so that Tab reaches the next one

/** @typedef {{colour: string, ink: string, number: string} | null} Shade */

export class TokenList {
  /** @param {string} label @param {"left" | "right"} side @param {{pick: (at: number) => void, hover: (at: number) => void, scroll: () => void}} on */
  constructor(label, side, on) {
    this.on = on;
    this.inner = make("div", { class: "inner" });
    this.element = make("div", { class: `tokens ${side}`, role: "group", "aria-label": label }, this.inner);
    /** @type {Item[]} */
    this.items = [];
    /** @type {Map<number, HTMLButtonElement>} */
    this.shown = new Map();
    /** @type {(at: number) => Shade} */
    this.shade = () => null;
    this.chosen = -1;
    this.element.addEventListener("scroll", () => {
      this.render();
      on.scroll();
    });
    this.inner.addEventListener("pointerleave", () => on.hover(-1));
  }

  /** @param {Item[]} items */
  setItems(items) {
    this.items = items;
    for (const button of this.shown.values()) button.remove();
    this.shown.clear();
    this.inner.style.height = `${items.length * ROW}px`;
    this.render();
  }

  /** Indices from the first to one past the last in view. @returns {[number, number]} */
  range() {
    const top = this.element.scrollTop;
    const from = Math.max(0, Math.floor(top / ROW));
    return [from, Math.min(this.items.length, Math.ceil((top + this.element.clientHeight) / ROW))];
  }

  /** Where the middle of an item is, from the top of the list. @param {number} at */
  middle(at) {
    return (at + 0.5) * ROW - this.element.scrollTop;
  }

  render() {
    const [from, to] = this.range();
    const [first, last] = [Math.max(0, from - AROUND), Math.min(this.items.length, to + AROUND)];
    for (const [at, button] of this.shown) {
      if ((at < first || at >= last) && button !== document.activeElement) {
        button.remove();
        this.shown.delete(at);
      }
    }
    /** @type {HTMLElement | null} */
    let before = null;
    for (let at = first; at < last; at++) {
      const button = this.shown.get(at) ?? this.added(at);
      if (before !== null && before.nextSibling !== button) before.after(button);
      else if (before === null && this.inner.firstChild !== button && !this.inner.contains(button)) this.inner.prepend(button);
      before = button;
      this.paint(at, button);
    }
  }

  /** @param {number} at */
  added(at) {
    const button = make("button", { type: "button", class: "token", "data-at": String(at) });
    button.append(bidiText(this.items[at].label, "word"), make("span", { class: "number", "aria-hidden": "true" }));
    button.style.top = `${at * ROW}px`;
    button.addEventListener("click", () => this.on.pick(at));
    button.addEventListener("pointerenter", () => this.on.hover(at));
    button.addEventListener("focus", () => this.on.hover(at));
    button.addEventListener("blur", () => this.on.hover(-1));
    this.shown.set(at, button);
    return button;
  }

  /** @param {number} at @param {HTMLButtonElement} button */
  paint(at, button) {
    const shade = this.shade(at);
    const word = /** @type {HTMLElement} */ (button.firstChild);
    word.style.backgroundColor = shade?.colour ?? "";
    word.style.color = shade?.ink ?? "";
    /** @type {HTMLElement} */ (button.lastChild).textContent = shade?.number ?? "";
    button.setAttribute("aria-pressed", String(at === this.chosen));
    button.setAttribute("aria-label", `${this.items[at].label}${shade?.number ? `, weight ${shade.number}` : ""}`);
  }

  /** @param {(at: number) => Shade} shade */
  setShade(shade) {
    this.shade = shade;
    for (const [at, button] of this.shown) if (at < this.items.length) this.paint(at, button);
  }

  /** Brings an item into view, if it is not. @param {number} at */
  reveal(at) {
    const [from, to] = this.range();
    if (at >= from + 1 && at < to - 1) return;
    this.element.scrollTop = (at + 0.5) * ROW - this.element.clientHeight / 2;
    this.render();
  }

  /** @param {number} at */
  focus(at) {
    this.reveal(at);
    this.shown.get(at)?.focus({ preventScroll: true });
  }
}
