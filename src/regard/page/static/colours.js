// Colours: one perceptually uniform sequential colour map, light and dark, safe for colour-blind readers.

/** Anchors from 0 to 1 as [lightness, green-red, blue-yellow] of OKLab: lightness changes evenly, and the hue
 * goes from yellow to blue, which colour-blind readers can tell apart. @type {Record<"light" | "dark", number[][]>} */
const ANCHORS = {
  light: [[0.985, -0.004, 0.012], [0.9, -0.045, 0.075], [0.76, -0.085, 0.035], [0.6, -0.062, -0.045], [0.42, -0.02, -0.105], [0.25, 0.02, -0.1]],
  dark: [[0.215, 0.0, -0.022], [0.34, -0.008, -0.085], [0.48, -0.045, -0.075], [0.64, -0.085, -0.01], [0.8, -0.085, 0.085], [0.96, -0.025, 0.115]],
};
/** Colour maps to lay over pictures, whose lightness has nothing to do with the theme: dark red to yellow, and those of the page. */
const HEAT = [[0.22, 0.03, -0.07], [0.38, 0.13, -0.06], [0.56, 0.18, 0.06], [0.73, 0.11, 0.13], [0.88, 0.0, 0.16], [0.97, -0.03, 0.09]];
const LEVELS = 256;

/** @param {number[]} lab @returns {number[]} sRGB, 0 to 255 */
function screenColour([lightness, a, b]) {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return linear.map((one) => {
    const clipped = Math.min(1, Math.max(0, one));
    return 255 * (clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055);
  });
}

/** @param {number[][]} anchors @returns {Uint8ClampedArray} LEVELS x 3 */
function scaleOf(anchors) {
  const scale = new Uint8ClampedArray(LEVELS * 3);
  for (let level = 0; level < LEVELS; level++) {
    const at = (level / (LEVELS - 1)) * (anchors.length - 1);
    const n = Math.min(anchors.length - 2, Math.floor(at));
    scale.set(screenColour(anchors[n].map((one, c) => one + (anchors[n + 1][c] - one) * (at - n))), level * 3);
  }
  return scale;
}

const SCALES = { light: scaleOf(ANCHORS.light), dark: scaleOf(ANCHORS.dark) };

/** The colour maps of overlays, by name, and their titles. "spotlight": what gets nothing is darkened. */
export const PALETTES = { heat: "heat", blue: "blue to yellow", yellow: "yellow to blue", spotlight: "spotlight" };

/** @typedef {keyof typeof PALETTES} Palette */
/** @type {Record<Palette, Uint8ClampedArray>} */
const OVERLAY_SCALES = { heat: scaleOf(HEAT), blue: SCALES.dark, yellow: SCALES.light, spotlight: new Uint8ClampedArray(LEVELS * 3).fill(8) };
/** The colour of negative values, which some measures have. @type {Record<Palette, number[]>} */
const NEGATIVE = { heat: [0, 178, 255], blue: [222, 60, 160], yellow: [222, 60, 160], spotlight: [0, 178, 255] };

/** Numbers as pixels to lay over a picture, on a square-root scale: the larger, the more opaque. @param {ArrayLike<number>} values @param {number} peak
 * @param {Palette} palette @param {number} opacity 0 to 1 */
export function overlayPixels(values, peak, palette, opacity) {
  const pixels = new Uint8ClampedArray(values.length * 4);
  const scale = OVERLAY_SCALES[palette];
  const factor = peak > 0 ? 1 / peak : 0;
  const spotlight = palette === "spotlight";
  for (let at = 0, to = 0; at < values.length; at++, to += 4) {
    const value = values[at];
    if (Number.isNaN(value)) continue;
    const share = Math.sqrt(Math.min(1, Math.abs(value) * factor));
    const level = Math.round(share * (LEVELS - 1)) * 3;
    const negative = value < 0;
    pixels[to] = negative ? NEGATIVE[palette][0] : scale[level];
    pixels[to + 1] = negative ? NEGATIVE[palette][1] : scale[level + 1];
    pixels[to + 2] = negative ? NEGATIVE[palette][2] : scale[level + 2];
    pixels[to + 3] = 255 * opacity * (spotlight && !negative ? 0.9 * (1 - share) : Math.min(1, 1.1 * share ** 1.4));
  }
  return pixels;
}

/** @typedef {{ink: string, faint: string, line: string, ground: string, panel: string, accent: string, warm: string}} Inks */
/** The same values as in page.css, for canvases. @type {Record<"light" | "dark", Inks>} */
const INKS = {
  light: { ink: "#1d2330", faint: "#596273", line: "#dfe2e8", ground: "#fbfbfa", panel: "#ffffff", accent: "#2b5fc2", warm: "#a8541a" },
  dark: { ink: "#e7e9ee", faint: "#a3acbb", line: "#323845", ground: "#14171d", panel: "#1a1e26", accent: "#8db4ff", warm: "#f0a868" },
};

export class Colours {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.preferred = matchMedia("(prefers-color-scheme: dark)");
    /** @type {"light" | "dark" | null} what the reader chose on this page */
    this.chosen = null;
    /** @type {(() => void)[]} */
    this.listeners = [];
    this.preferred.addEventListener("change", () => this.apply());
    this.apply();
  }

  /** @returns {"light" | "dark"} */
  get theme() {
    return this.chosen ?? (this.preferred.matches ? "dark" : "light");
  }

  /** @returns {Inks} */
  get inks() {
    return INKS[this.theme];
  }

  toggleTheme() {
    this.chosen = this.theme === "dark" ? "light" : "dark";
    this.apply();
  }

  apply() {
    this.root.dataset.theme = this.theme;
    for (const listener of this.listeners) listener();
  }

  /** Red, green and blue of a share from 0 to 1, on a square-root scale, so that small weights are visible. @param {number} share */
  rgb(share) {
    const level = Math.round(Math.sqrt(Math.min(1, Math.max(0, share))) * (LEVELS - 1)) * 3;
    return SCALES[this.theme].subarray(level, level + 3);
  }

  /** @param {number} share @returns {string} */
  css(share) {
    const [r, g, b] = this.rgb(share);
    return `rgb(${r},${g},${b})`;
  }

  /** Black or white, whichever reads better on the colour of this share. @param {number} share @returns {string} */
  inkOn(share) {
    const [r, g, b] = [...this.rgb(share)].map((one) => (one / 255 <= 0.04045 ? one / 3294.6 : ((one / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#0c0f14" : "#ffffff";
  }

  /** Numbers as RGBA pixels; NaN stays transparent. @param {ArrayLike<number>} values @param {number} peak */
  pixels(values, peak) {
    const pixels = new Uint8ClampedArray(values.length * 4);
    const scale = SCALES[this.theme];
    const factor = peak > 0 ? 1 / peak : 0;
    for (let at = 0; at < values.length; at++) {
      if (Number.isNaN(values[at])) continue;
      const level = Math.round(Math.sqrt(Math.min(1, Math.max(0, values[at] * factor))) * (LEVELS - 1)) * 3;
      pixels[at * 4] = scale[level];
      pixels[at * 4 + 1] = scale[level + 1];
      pixels[at * 4 + 2] = scale[level + 2];
      pixels[at * 4 + 3] = 255;
    }
    return pixels;
  }
}
