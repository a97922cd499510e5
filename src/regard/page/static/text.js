// Text formatting: tokens with control characters made visible, numbers, counts.

/** Invisible characters that change the direction or the breaks of a line. @type {Record<number, string>} */
const INVISIBLE = {
  0x61c: "ALM", 0x200b: "ZWSP", 0x200e: "LRM", 0x200f: "RLM", 0x2028: "LS", 0x2029: "PS", 0x202a: "LRE",
  0x202b: "RLE", 0x202c: "PDF", 0x202d: "LRO", 0x202e: "RLO", 0x2060: "WJ", 0x2066: "LRI", 0x2067: "RLI",
  0x2068: "FSI", 0x2069: "PDI", 0xfeff: "BOM",
};
const SYMBOLS = new Map([[9, "→"], [10, "⏎"], [127, "␡"]]);

/** A character, with control characters replaced by visible symbols. @param {string} character @returns {string} */
function visibleCharacter(character) {
  const code = character.codePointAt(0) ?? 0;
  const named = SYMBOLS.get(code);
  if (named !== undefined) return named;
  if (code < 32) return String.fromCharCode(0x2400 + code);
  if (code in INVISIBLE) return `[${INVISIBLE[code]}]`;
  if (code >= 0x80 && code < 0xa0) return `[U+00${code.toString(16).toUpperCase()}]`;
  if (code >= 0xd800 && code < 0xe000) return "\ufffd";
  return character;
}

/**
 * A token for display: control characters visible, at most `maxLength` characters.
 * @param {string} token @param {number} [maxLength] @returns {string}
 */
export function visibleText(token, maxLength = 200) {
  if (token === "") return "(empty)";
  const characters = [...token.slice(0, 2 * maxLength + 2)];
  const cut = characters.length > maxLength || token.length > 2 * maxLength + 2;
  const text = characters.slice(0, maxLength).map(visibleCharacter).join("");
  return (text.trim() === "" ? text.replace(/\s/gu, "␣") : text) + (cut ? "…" : "");
}

/** Text for a canvas or an SVG, with its direction isolated. @param {string} text @returns {string} */
export function isolateBidi(text) {
  return `\u2068${text}\u2069`;
}

/** A number with four decimals. @param {number} value @returns {string} */
export function formatNumber(value) {
  if (Number.isNaN(value)) return "not stored";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 0.00005) return value.toExponential(1);
  return size < 100 ? value.toFixed(4) : value.toFixed(1);
}

/** A whole number with its digits grouped. @param {number} value @returns {string} */
export function formatCount(value) {
  return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
}
