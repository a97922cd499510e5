// How tokens and numbers are written for a reader: nothing hidden, nothing endless.

/** Marks of direction and breaks that would change a line without being seen. @type {Record<number, string>} */
const UNSEEN = {
  0x61c: "ALM", 0x200b: "ZWSP", 0x200e: "LRM", 0x200f: "RLM", 0x2028: "LS", 0x2029: "PS", 0x202a: "LRE",
  0x202b: "RLE", 0x202c: "PDF", 0x202d: "LRO", 0x202e: "RLO", 0x2060: "WJ", 0x2066: "LRI", 0x2067: "RLI",
  0x2068: "FSI", 0x2069: "PDI", 0xfeff: "BOM",
};
const SIGNS = new Map([[9, "→"], [10, "⏎"], [127, "␡"]]);

/** One character as it can be seen. @param {string} sign @returns {string} */
function seen(sign) {
  const code = sign.codePointAt(0) ?? 0;
  const named = SIGNS.get(code);
  if (named !== undefined) return named;
  if (code < 32) return String.fromCharCode(0x2400 + code);
  if (code in UNSEEN) return `[${UNSEEN[code]}]`;
  if (code >= 0x80 && code < 0xa0) return `[U+00${code.toString(16).toUpperCase()}]`;
  if (code >= 0xd800 && code < 0xe000) return "\ufffd";
  return sign;
}

/**
 * A token as it can be shown: control characters visible, at most `most` characters of it.
 * @param {string} token @param {number} [most] @returns {string}
 */
export function visible(token, most = 200) {
  if (token === "") return "(empty)";
  const signs = [...token.slice(0, 2 * most + 2)];
  const cut = signs.length > most || token.length > 2 * most + 2;
  const text = signs.slice(0, most).map(seen).join("");
  return (text.trim() === "" ? text.replace(/\s/gu, "␣") : text) + (cut ? "…" : "");
}

/** Text for a canvas or an SVG whose direction touches nothing beside it. @param {string} text @returns {string} */
export function isolated(text) {
  return `\u2068${text}\u2069`;
}

/** A weight for a reader. @param {number} value @returns {string} */
export function written(value) {
  if (Number.isNaN(value)) return "not kept";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 0.00005) return value.toExponential(1);
  return size < 100 ? value.toFixed(4) : value.toFixed(1);
}

/** A whole number with thin groups. @param {number} value @returns {string} */
export function counted(value) {
  return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
}
