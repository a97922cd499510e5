// Pens, the drawing primitives of all views: rectangle, curve, text, image; on a canvas, or as SVG for files.

import { isolateBidi } from "./text.js";

/** @typedef {{colour: string, size?: number, align?: "left" | "right" | "center", rotated?: boolean, bold?: boolean}} TextStyle */
/**
 * @typedef {object} Pen
 * @property {(x: number, y: number, w: number, h: number, colour: string) => void} rect
 * @property {(x1: number, y1: number, x2: number, y2: number, colour: string, width: number, opacity: number) => void} curve
 * @property {(x: number, y: number, text: string, style: TextStyle) => void} text
 * @property {(x: number, y: number, w: number, h: number, image: HTMLCanvasElement, part?: number[], smooth?: boolean) => void} image
 * @property {(lines: number[][], colour: string, width: number) => void} segments lines as [x1, y1, x2, y2]
 * @property {(x: number, y: number, w: number, h: number, draw: () => void) => void} clipped
 */
/** @typedef {{width: number, height: number, draw: (pen: Pen) => void}} Picture */

const MAX_TEXT = 200; // characters of a text in a picture: longer ones stop browsers, and their data are whole elsewhere

/** A text as it is drawn. @param {string} text */
function drawnText(text) {
  return isolateBidi(text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT - 1)}…` : text);
}

export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';

/** Resize and clear a canvas of this many CSS pixels, at the resolution of this screen. @param {HTMLCanvasElement} canvas @param {number} width
 * @param {number} height @param {number} [ratio] @returns {CanvasRenderingContext2D} */
export function prepareCanvas(canvas, width, height, ratio = window.devicePixelRatio || 1) {
  const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** A new canvas with these RGBA pixels. @param {Uint8ClampedArray<ArrayBuffer>} pixels @param {number} rows @param {number} cols */
export function canvasOfPixels(pixels, rows, cols) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [cols, rows];
  canvas.getContext("2d")?.putImageData(new ImageData(pixels, cols, rows), 0, 0);
  return canvas;
}

/** @implements {Pen} */
export class CanvasPen {
  /** @param {CanvasRenderingContext2D} context */
  constructor(context) {
    this.context = context;
    context.imageSmoothingEnabled = false;
  }

  /** @param {number} x @param {number} y @param {number} w @param {number} h @param {string} colour */
  rect(x, y, w, h, colour) {
    this.context.fillStyle = colour;
    this.context.fillRect(x, y, w, h);
  }

  /** @param {number} x1 @param {number} y1 @param {number} x2 @param {number} y2 @param {string} colour
   * @param {number} width @param {number} opacity */
  curve(x1, y1, x2, y2, colour, width, opacity) {
    const c = this.context;
    c.globalAlpha = opacity;
    c.strokeStyle = colour;
    c.lineWidth = width;
    c.lineCap = "round";
    c.beginPath();
    c.moveTo(x1, y1);
    const bend = (x2 - x1) * 0.45;
    c.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
    c.stroke();
    c.globalAlpha = 1;
  }

  /** @param {number} x @param {number} y @param {string} text @param {TextStyle} style */
  text(x, y, text, style) {
    const c = this.context;
    c.save();
    c.font = `${style.bold ? "600 " : ""}${style.size ?? 13}px ${FONT}`;
    c.fillStyle = style.colour;
    c.textAlign = style.align ?? "left";
    c.textBaseline = "middle";
    c.translate(x, y);
    if (style.rotated) c.rotate(-Math.PI / 2);
    c.fillText(drawnText(text), 0, 0);
    c.restore();
  }

  /** @param {number} x @param {number} y @param {number} w @param {number} h @param {HTMLCanvasElement} image @param {number[]} [part] @param {boolean} [smooth] */
  image(x, y, w, h, image, part, smooth = false) {
    const [sx, sy, sw, sh] = part ?? [0, 0, image.width, image.height];
    this.context.imageSmoothingEnabled = smooth;
    this.context.imageSmoothingQuality = "high";
    if (sw > 0 && sh > 0) this.context.drawImage(image, sx, sy, sw, sh, x, y, w, h);
    this.context.imageSmoothingEnabled = false;
  }

  /** @param {number[][]} lines @param {string} colour @param {number} width */
  segments(lines, colour, width) {
    const c = this.context;
    c.strokeStyle = colour;
    c.lineWidth = width;
    c.lineCap = "round";
    c.beginPath();
    for (const [x1, y1, x2, y2] of lines) {
      c.moveTo(x1, y1);
      c.lineTo(x2, y2);
    }
    c.stroke();
  }

  /** @param {number} x @param {number} y @param {number} w @param {number} h @param {() => void} draw */
  clipped(x, y, w, h, draw) {
    this.context.save();
    this.context.beginPath();
    this.context.rect(x, y, w, h);
    this.context.clip();
    draw();
    this.context.restore();
  }
}

/** @implements {Pen} */
export class SvgPen {
  /** @param {number} width @param {number} height @param {string} [description] written into the file beside the picture */
  constructor(width, height, description = "") {
    const about = description === "" ? "" : `<desc>${escapeXml(description)}</desc>`;
    this.head = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="${escapeXml(FONT)}">${about}`;
    /** @type {string[]} */
    this.parts = [];
    this.clips = 0;
  }

  toString() {
    return `${this.head}${this.parts.join("\n")}</svg>`;
  }

  /** @param {number} x @param {number} y @param {number} w @param {number} h @param {string} colour */
  rect(x, y, w, h, colour) {
    this.parts.push(`<rect x="${rounded(x)}" y="${rounded(y)}" width="${rounded(w)}" height="${rounded(h)}" fill="${colour}"/>`);
  }

  /** @param {number} x1 @param {number} y1 @param {number} x2 @param {number} y2 @param {string} colour
   * @param {number} width @param {number} opacity */
  curve(x1, y1, x2, y2, colour, width, opacity) {
    const bend = (x2 - x1) * 0.45;
    const path = [`M${rounded(x1)} ${rounded(y1)}C${rounded(x1 + bend)}`, y1, rounded(x2 - bend), y2, rounded(x2), y2].join(" ");
    this.parts.push(`<path d="${path}" fill="none" stroke="${colour}" stroke-width="${rounded(width)}" stroke-opacity="${rounded(opacity)}" stroke-linecap="round"/>`);
  }

  /** @param {number} x @param {number} y @param {string} text @param {TextStyle} style */
  text(x, y, text, style) {
    const anchor = { left: "start", right: "end", center: "middle" }[style.align ?? "left"];
    const rotation = style.rotated ? ` transform="rotate(-90 ${rounded(x)} ${rounded(y)})"` : "";
    const weight = style.bold ? ' font-weight="600"' : "";
    this.parts.push(`<text x="${rounded(x)}" y="${rounded(y)}" dominant-baseline="central" text-anchor="${anchor}" font-size="${style.size ?? 13}" fill="${style.colour}"${weight}${rotation}>${escapeXml(drawnText(text))}</text>`);
  }

  /** @param {number[][]} lines @param {string} colour @param {number} width */
  segments(lines, colour, width) {
    const path = lines.map(([x1, y1, x2, y2]) => `M${rounded(x1)} ${rounded(y1)}L${rounded(x2)} ${rounded(y2)}`).join("");
    if (path !== "") this.parts.push(`<path d="${path}" fill="none" stroke="${colour}" stroke-width="${rounded(width)}" stroke-linecap="round"/>`);
  }

  /** @param {number} x @param {number} y @param {number} w @param {number} h @param {HTMLCanvasElement} image @param {number[]} [part] @param {boolean} [smooth] */
  image(x, y, w, h, image, part, smooth = false) {
    const cut = document.createElement("canvas");
    const [sx, sy, sw, sh] = part ?? [0, 0, image.width, image.height];
    if (!(sw > 0 && sh > 0)) return;
    [cut.width, cut.height] = [Math.max(1, Math.round(sw)), Math.max(1, Math.round(sh))];
    const context = /** @type {CanvasRenderingContext2D} */ (cut.getContext("2d"));
    context.imageSmoothingEnabled = false;
    context.drawImage(image, sx, sy, sw, sh, 0, 0, cut.width, cut.height);
    this.parts.push(`<image x="${rounded(x)}" y="${rounded(y)}" width="${rounded(w)}" height="${rounded(h)}" preserveAspectRatio="none"${smooth ? "" : ' image-rendering="pixelated"'} href="${cut.toDataURL()}"/>`);
  }

  /** @param {number} x @param {number} y @param {number} w @param {number} h @param {() => void} draw */
  clipped(x, y, w, h, draw) {
    const id = `clip${this.clips++}`;
    this.parts.push(`<clipPath id="${id}"><rect x="${rounded(x)}" y="${rounded(y)}" width="${rounded(w)}" height="${rounded(h)}"/></clipPath><g clip-path="url(#${id})">`);
    draw();
    this.parts.push("</g>");
  }
}

/** The four sides of a rectangle, as segments. @param {number} x @param {number} y @param {number} w @param {number} h @returns {number[][]} */
export function sides(x, y, w, h) {
  return [[x, y, x + w, y], [x + w, y, x + w, y + h], [x + w, y + h, x, y + h], [x, y + h, x, y]];
}

/** @param {number} value */
function rounded(value) {
  return Number(value.toFixed(2));
}

/** Escape text for XML. @param {string} text */
function escapeXml(text) {
  // characters that XML cannot represent
  const allowed = text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd");
  return allowed.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
}
