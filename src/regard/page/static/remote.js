// A source over HTTP: the server computes tiles, rows and pairs, looks at texts, and runs interventions.

/** @import { Box, Pair, Tile } from "./weights.js" */
/** @import { Measure } from "./source.js" */
/** @import { Parsed } from "./record.js" */
import { inflate, parseRecord } from "./record.js";
import { LocalSource, Source } from "./source.js";

/** @typedef {{name: string, kind: "translates" | "continues" | "fills" | "reads", description: string}} RunInfo */
/** @typedef {{run: string, text: string, other: string | null, prefix: number[] | null}} LookRequest */
/** A change of a head's weights; head null: all heads, query null: all queries. @typedef {{place: number, head: number | null, weights: "zero" | "uniform" | {key: number, weight: number}[], query: number | null}} HeadChange */
/** @typedef {{text: string, before: number | null, after: number | null}} ProbabilityChange */
/** @typedef {ProbabilityChange & {best: string, best_probability: number}} TokenChange */
/** The output of the changed model for the same tokens, and the text that it generates by itself.
 * @typedef {{tokens: TokenChange[], classes: ProbabilityChange[], next_tokens: ProbabilityChange[], estimate: [number, number] | null, generated: string[] | null}} InterventionResult */

const MAX_CELLS = 1024;

/** Fetch a path; an error carries the server's message. @param {string} path @param {RequestInit} [options] @returns {Promise<Response>} */
async function request(path, options = {}) {
  const response = await fetch(path, { ...options, credentials: "same-origin" });
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  const wait = response.headers.get("Retry-After");
  throw new Error(body?.error?.message || `The server answered with status ${response.status}.${wait ? ` Try again in ${wait} s.` : ""}`);
}

/** @returns {Promise<RunInfo[]>} */
export async function fetchRuns() {
  return (await request("api/runs")).json();
}

/** The records that the server was started with; `problem`: why one cannot be read. @returns {Promise<{id: string, text: string, problem: string}[]>} */
export async function fetchRecords() {
  return (await request("api/records")).json();
}

/** @param {string} path @param {object} body */
async function postJson(path, body) {
  const headers = { "Content-Type": "application/json" };
  return (await request(path, { method: "POST", headers, body: JSON.stringify(body) })).json();
}

/** Run a model on a text; the id of the new record. @param {LookRequest} look @returns {Promise<string>} */
export async function postLook(look) {
  return (await postJson("api/look", look)).id;
}

/** Run the model of a record with changed heads. @param {string} id @param {HeadChange[]} changes @returns {Promise<InterventionResult>} */
export async function postIntervention(id, changes) {
  return postJson(`api/records/${encodeURIComponent(id)}/intervene`, { changes });
}

/** Load a record of the server; the maps of a small one are computed in the page. @param {string} id @returns {Promise<Source>} */
export async function fetchSource(id) {
  const path = `api/records/${encodeURIComponent(id)}/`;
  const response = await request(`${path}payload`);
  const record = parseRecord(await inflate(new Uint8Array(await response.arrayBuffer())));
  return record.info.remote ? new RemoteSource(record, path) : new LocalSource(record);
}

/** The source of a record whose queries and keys stay on the server. */
export class RemoteSource extends Source {
  /** @param {Parsed} record @param {string} path */
  constructor(record, path) {
    super(record);
    this.path = path;
  }

  /** The server computes attention weights only. @override @param {number} number @param {Measure} measure */
  has(number, measure) {
    return measure === "weights" || this.fits(number, measure);
  }

  /** @param {string} what @param {Record<string, number>} query @param {AbortSignal} [signal] */
  get(what, query, signal) {
    const fields = Object.entries(query).map(([name, value]) => `${name}=${value}`);
    return request(`${this.path}${what}?${fields.join("&")}`, { signal });
  }

  /** @override @param {number} place @param {number} head @param {number} query @returns {Promise<Float32Array>} */
  async weights(place, head, query) {
    const response = await this.get("row", { place, head, query });
    return new Float32Array(await response.arrayBuffer());
  }

  /** @override @param {number} place @param {number} head @param {Box} box @param {number} rows @param {number} cols
   * @param {Measure} _measure the server computes weights only @param {AbortSignal} [signal] @returns {Promise<Tile>} */
  async tileOf(place, head, box, rows, cols, _measure, signal) {
    if (rows > MAX_CELLS || cols > MAX_CELLS) return this.assembleTile(place, head, box, rows, cols, signal);
    const response = await this.get("tile", { place, head, ...box, rows, cols }, signal);
    const values = new Float32Array(await response.arrayBuffer());
    return { values, exact: response.headers.get("X-Exact") !== "0" };
  }

  /** A tile with more cells than one request returns, one weight a cell. @param {number} place @param {number} head
   * @param {Box} box @param {number} rows @param {number} cols @param {AbortSignal} [signal] @returns {Promise<Tile>} */
  async assembleTile(place, head, box, rows, cols, signal) {
    if (rows !== box.bottom - box.top || cols !== box.right - box.left) throw new Error("A tile of too many cells.");
    const values = new Float32Array(rows * cols);
    for (let top = box.top; top < box.bottom; top += MAX_CELLS) {
      for (let left = box.left; left < box.right; left += MAX_CELLS) {
        const part = { top, bottom: Math.min(box.bottom, top + MAX_CELLS), left, right: Math.min(box.right, left + MAX_CELLS) };
        const width = part.right - left;
        const one = await this.tileOf(place, head, part, part.bottom - top, width, "weights", signal);
        for (let i = top; i < part.bottom; i++) {
          values.set(one.values.subarray((i - top) * width, (i - top + 1) * width), (i - box.top) * cols + left - box.left);
        }
      }
    }
    return { values, exact: true };
  }

  /** @override @param {number} place @param {number} head @param {number} query @param {number} key @returns {Promise<Pair>} */
  async pair(place, head, query, key) {
    const pair = await (await this.get("pair", { place, head, query, key })).json();
    const { q, k, terms, score, capped, visible, weight } = pair;
    return { q, k, terms, score, capped, bias: pair.bias ?? -Infinity, lse: pair.lse ?? -Infinity, windowWeight: pair.window_weight, weight, visible };
  }
}
