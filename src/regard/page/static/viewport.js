// The visible part of a map: conversion between tokens and pixels, zooming and panning.

import { clamp } from "./state.js";

/** Pixels for labels around the cells. */
export const LABELS = { left: 130, top: 104, right: 24, bottom: 12 };
const MAX_SCALE = 96; // pixels a weight, at most
const MAX_FIT_SCALE = 40; // pixels a weight when the whole map is shown, at most

export class Viewport {
  constructor() {
    /** Queries and keys of the map. */
    this.T = 1;
    this.S = 1;
    this.width = 0;
    this.height = 0;
    /** The query and key at the top left corner, and pixels a token. */
    this.top = 0;
    this.left = 0;
    this.scale = 1;
  }

  /** The size of the area for cells. */
  get plot() {
    return { width: Math.max(1, this.width - LABELS.left - LABELS.right), height: Math.max(1, this.height - LABELS.top - LABELS.bottom) };
  }

  /** The scale at which the whole map fits. */
  get fit() {
    return Math.min(this.plot.width / Math.max(1, this.S), this.plot.height / Math.max(1, this.T), MAX_FIT_SCALE);
  }

  get isWhole() {
    return this.scale <= this.fit * 1.0001;
  }

  /** The rectangle of the visible cells, in pixels. */
  get cells() {
    const [from, to] = [this.pixel(0, 0), this.pixel(this.T, this.S)];
    const [x, y] = [Math.max(LABELS.left, from.x), Math.max(LABELS.top, from.y)];
    const [right, bottom] = [Math.min(LABELS.left + this.plot.width, to.x), Math.min(LABELS.top + this.plot.height, to.y)];
    return { x, y, width: Math.max(0, right - x), height: Math.max(0, bottom - y) };
  }

  /** How many tokens a cell is along a side, as a power of two. */
  get level() {
    return Math.max(0, Math.ceil(Math.log2(1 / this.scale) - 1e-9));
  }

  /** The queries and the keys in view. @returns {number[]} top, bottom, left, right */
  get box() {
    const { x, y, width, height } = this.cells;
    const [from, to] = [this.under(x, y), this.under(x + width, y + height)];
    return [from.query, to.query, from.key, to.key];
  }

  /** Move to this corner and scale; the centre of the view stays on the map. @param {number} top @param {number} left @param {number} scale */
  move(top, left, scale) {
    this.scale = clamp(scale, this.fit, Math.max(this.fit, MAX_SCALE));
    const [height, width] = [this.plot.height / this.scale, this.plot.width / this.scale];
    this.top = clamp(top, Math.min(0, -height / 2), Math.max(0, this.T - height / 2));
    this.left = clamp(left, Math.min(0, -width / 2), Math.max(0, this.S - width / 2));
  }

  /** Shows a part of the map, or all of it; a narrow part is centred. @param {number[] | null} box */
  show(box) {
    const [top, bottom, left, right] = box ?? [0, this.T, 0, this.S];
    const fitting = Math.min(this.plot.width / Math.max(0.1, right - left), this.plot.height / Math.max(0.1, bottom - top));
    const scale = box === null ? this.fit : fitting;
    const free = Math.max(0, this.plot.width / scale - (right - left) - LABELS.left / 2 / scale);
    this.move(top, left - free / 2, scale);
  }

  /** Zoom; the token under the point stays there. @param {number} factor @param {number} x @param {number} y */
  zoom(factor, x, y) {
    const { query, key } = this.under(x, y);
    const scale = clamp(this.scale * factor, this.fit, Math.max(this.fit, MAX_SCALE));
    if (scale <= this.fit * 1.0001) this.show(null);
    else this.move(query - (y - LABELS.top) / scale, key - (x - LABELS.left) / scale, scale);
  }

  /** The tokens, with fractions, under a pixel. @param {number} x @param {number} y */
  under(x, y) {
    return { query: this.top + (y - LABELS.top) / this.scale, key: this.left + (x - LABELS.left) / this.scale };
  }

  /** The pixel at a token, with fractions. @param {number} query @param {number} key */
  pixel(query, key) {
    return { x: LABELS.left + (key - this.left) * this.scale, y: LABELS.top + (query - this.top) * this.scale };
  }

  /** The pair under a pixel; null outside the map. @param {number} x @param {number} y */
  pair(x, y) {
    const { query, key } = this.under(x, y);
    const cells = this.cells;
    const inside = x >= cells.x && y >= cells.y && x < cells.x + cells.width && y < cells.y + cells.height;
    return inside ? { query: clamp(Math.floor(query), 0, this.T - 1), key: clamp(Math.floor(key), 0, this.S - 1) } : null;
  }
}
