// Pointer gestures on a map: dragging pans, the wheel or pinching zooms, a click selects.

/**
 * @typedef {object} PointerTarget
 * @property {(factor: number, x: number, y: number) => void} zoom
 * @property {(dx: number, dy: number) => void} pan
 * @property {(x: number, y: number) => void} hover
 * @property {(x: number, y: number) => void} pick
 * @property {() => void} leave
 */

const CLICK_TOLERANCE = 4; // pixels that the pointer may move during a click

export class Pointer {
  /** @param {HTMLCanvasElement} canvas @param {PointerTarget} target */
  constructor(canvas, target) {
    this.target = target;
    /** @type {Map<number, {x: number, y: number}>} */
    this.down = new Map();
    this.moved = 0;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 18 : 1;
      target.zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.002)), event.offsetX, event.offsetY);
      target.hover(event.offsetX, event.offsetY);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.down.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
      if (this.down.size === 1) this.moved = 0;
    });
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.up(event));
    canvas.addEventListener("pointercancel", (event) => this.down.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => target.leave());
  }

  /** @param {PointerEvent} event */
  move(event) {
    const now = { x: event.offsetX, y: event.offsetY };
    const before = this.down.get(event.pointerId);
    if (before === undefined) return this.target.hover(now.x, now.y);
    const other = [...this.down].find(([id]) => id !== event.pointerId)?.[1];
    const [dx, dy] = [now.x - before.x, now.y - before.y];
    this.moved += Math.abs(dx) + Math.abs(dy);
    this.down.set(event.pointerId, now);
    if (other === undefined) {
      if (this.moved > CLICK_TOLERANCE) this.target.pan(dx, dy);
      return undefined;
    }
    const apart = (/** @type {{x: number, y: number}} */ one) => Math.hypot(one.x - other.x, one.y - other.y);
    return this.target.zoom(apart(now) / Math.max(1, apart(before)), (now.x + other.x) / 2, (now.y + other.y) / 2);
  }

  /** @param {PointerEvent} event */
  up(event) {
    const clicked = this.down.size === 1 && this.moved <= CLICK_TOLERANCE;
    this.down.delete(event.pointerId);
    if (clicked) this.target.pick(event.offsetX, event.offsetY);
  }
}
