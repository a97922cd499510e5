// The same source over HTTP: the server computes what the page asks for.

/** @import { Box, Pair, Tile } from "./weights.js" */
/** @import { Measure } from "./source.js" */
/** @import { Parsed } from "./record.js" */
import { inflated, parsed } from "./record.js";
import { LocalSource, Source } from "./source.js";

/** @typedef {{name: string, kind: "translates" | "continues" | "fills" | "reads", description: string}} Run */
/** @typedef {{run: string, text: string, other: string | null, prefix: number[] | null}} Look */
/** A head other than it is; head null: all of them, query null: all. @typedef {{place: number, head: number | null, weights: "zero" | "uniform" | {key: number, weight: number}[], query: number | null}} Change */
/** @typedef {{text: string, before: number | null, after: number | null}} Share */
/** @typedef {Share & {best: string, share: number}} Word */
/** What a changed model makes of the same words, and what it writes by itself.
 * @typedef {{words: Word[], classes: Share[], next: Share[], estimate: [number, number] | null, written: string[] | null}} Outcome */

const MOST_CELLS = 1024;

/** An answer, or the server's words as an error. @param {string} path @param {RequestInit} [how] @returns {Promise<Response>} */
async function answer(path, how = {}) {
  const response = await fetch(path, { ...how, credentials: "same-origin" });
  if (response.ok) return response;
  const said = await response.json().catch(() => null);
  const error = said?.error;
  const words = error ? `${error.where ? `${error.where}: ` : ""}got ${error.came}, expected ${error.expected}. ${error.advice ?? ""}` : "";
  const wait = response.headers.get("Retry-After");
  throw new Error(words.trim() || `The server answered ${response.status}.${wait ? ` Try again in ${wait} s.` : ""}`);
}

/** @returns {Promise<Run[]>} */
export async function runs() {
  return (await answer("api/runs")).json();
}

/** The records that the server was started with. @returns {Promise<{id: string, text: string}[]>} */
export async function givenRecords() {
  return (await answer("api/records")).json();
}

/** @param {string} path @param {object} body */
async function sent(path, body) {
  const headers = { "Content-Type": "application/json" };
  return (await answer(path, { method: "POST", headers, body: JSON.stringify(body) })).json();
}

/** Puts text to a model; the id of what was seen. @param {Look} look @returns {Promise<string>} */
export async function lookAt(look) {
  return (await sent("api/look", look)).id;
}

/** What the model of a record says when heads are changed. @param {string} id @param {Change[]} changes @returns {Promise<Outcome>} */
export async function changedOutcome(id, changes) {
  return sent(`api/records/${encodeURIComponent(id)}/intervene`, { changes });
}

/** A record of the server; one that is small is wholly in the page. @param {string} id @returns {Promise<Source>} */
export async function remoteSource(id) {
  const path = `api/records/${encodeURIComponent(id)}/`;
  const response = await answer(`${path}payload`);
  const record = parsed(await inflated(new Uint8Array(await response.arrayBuffer())));
  return record.told.remote ? new RemoteSource(record, path) : new LocalSource(record);
}

/** The numbers stay with the server. */
export class RemoteSource extends Source {
  /** @param {Parsed} record @param {string} path */
  constructor(record, path) {
    super(record);
    this.path = path;
  }

  /** The server computes weights alone. @override @param {number} number @param {Measure} measure */
  has(number, measure) {
    return measure === "weights" || this.fits(number, measure);
  }

  /** @param {string} what @param {Record<string, number>} query @param {AbortSignal} [signal] */
  ask(what, query, signal) {
    const words = Object.entries(query).map(([name, value]) => `${name}=${value}`);
    return answer(`${this.path}${what}?${words.join("&")}`, { signal });
  }

  /** @override @param {number} place @param {number} head @param {number} query @returns {Promise<Float32Array>} */
  async weights(place, head, query) {
    const response = await this.ask("row", { place, head, query });
    return new Float32Array(await response.arrayBuffer());
  }

  /** @override @param {number} place @param {number} head @param {Box} box @param {number} rows @param {number} cols
   * @param {Measure} _measure the server knows weights alone @param {AbortSignal} [signal] @returns {Promise<Tile>} */
  async tileOf(place, head, box, rows, cols, _measure, signal) {
    if (rows > MOST_CELLS || cols > MOST_CELLS) return this.joined(place, head, box, rows, cols, signal);
    const response = await this.ask("tile", { place, head, ...box, rows, cols }, signal);
    const values = new Float32Array(await response.arrayBuffer());
    return { values, exact: response.headers.get("X-Exact") !== "0" };
  }

  /** A tile of more cells than the server gives at once, cell by weight. @param {number} place @param {number} head
   * @param {Box} box @param {number} rows @param {number} cols @param {AbortSignal} [signal] @returns {Promise<Tile>} */
  async joined(place, head, box, rows, cols, signal) {
    if (rows !== box.bottom - box.top || cols !== box.right - box.left) throw new Error("A tile of too many cells.");
    const values = new Float32Array(rows * cols);
    for (let top = box.top; top < box.bottom; top += MOST_CELLS) {
      for (let left = box.left; left < box.right; left += MOST_CELLS) {
        const part = { top, bottom: Math.min(box.bottom, top + MOST_CELLS), left, right: Math.min(box.right, left + MOST_CELLS) };
        const wide = part.right - left;
        const one = await this.tileOf(place, head, part, part.bottom - top, wide, "weights", signal);
        for (let i = top; i < part.bottom; i++) {
          values.set(one.values.subarray((i - top) * wide, (i - top + 1) * wide), (i - box.top) * cols + left - box.left);
        }
      }
    }
    return { values, exact: true };
  }

  /** @override @param {number} place @param {number} head @param {number} query @param {number} key @returns {Promise<Pair>} */
  async pair(place, head, query, key) {
    const said = await (await this.ask("pair", { place, head, query, key })).json();
    const { q, k, terms, score, gain, seen, weight } = said;
    return { q, k, parts: terms, score, added: said.added ?? -Infinity, lse: said.lse ?? -Infinity, gain, weight, seen };
  }
}
