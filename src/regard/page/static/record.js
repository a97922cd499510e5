// A record as the page has it: the head of the container, and its numbers as typed arrays.

/** @typedef {{name: string, text: string, tokens: string[], spans: [number, number][], words: number[], segments: number[] | null}} Side */
/** @typedef {{heads: number[], key_heads: number[], score: "dot" | "additive", added: "distance" | "key" | "pair" | null, half_width: number | null}} Kept */
/** @typedef {{name: string, layer: number, kind: "self" | "cross", queries: number, keys: number, heads: number, T: number, S: number, why: string, kept: Kept | null, slopes: number[] | null}} Place */
/** @typedef {[number, number, number | null, [number, string, number | null][]]} Step */
/** A map of another measure than attention weights, computed beforehand, such as value zeroing: of one place, or (null) of the whole
 * model. `rows`, `cols`: numbers of sides; `values`: base64 of float32, little-endian.
 * @typedef {{name: string, title: string, place: string | null, rows: number, cols: number, shape: [number, number], values: string}} MeasureMap */
/** @typedef {{facts: Record<string, any>, sides: Side[], places: Place[], steps: Step[], remote?: boolean, measures?: MeasureMap[]}} Told */
/** @typedef {Float32Array | Int16Array | Int32Array | Uint8Array} Numbers */
/** @typedef {{readonly numbers: Numbers, shape: number[]}} Tensor */
/** @typedef {{told: Told, tensors: Map<string, Tensor>}} Parsed */
/** @typedef {{dtype: "float32" | "int16" | "int32" | "uint8", shape: number[], offset: number, planes: boolean}} Stored */

const MAGIC = "regard\u0001\u0000";
const KINDS = { float32: Float32Array, int16: Int16Array, int32: Int32Array, uint8: Uint8Array };

/** The bytes of base64, a piece at a time, so that no second text of their size is made. @param {string} text */
export function fromBase64(text) {
  const clean = text.trim();
  const native = /** @type {{fromBase64?: (text: string) => Uint8Array<ArrayBuffer>}} */ (/** @type {unknown} */ (Uint8Array));
  if (native.fromBase64 !== undefined) return native.fromBase64(clean);
  const padding = clean.endsWith("==") ? 2 : clean.endsWith("=") ? 1 : 0;
  const bytes = new Uint8Array((clean.length / 4) * 3 - padding);
  const piece = 1 << 18;
  for (let start = 0, at = 0; start < clean.length; start += piece) {
    const some = atob(clean.slice(start, start + piece));
    for (let i = 0; i < some.length; i++) bytes[at++] = some.charCodeAt(i);
  }
  return bytes;
}

/** Before the name of a map that was computed beforehand, so that it is never taken for a measure that the page computes. */
export const MAP = "map:";

/** The map of a measure at a place, its own or the whole model's; null where there is none.
 * @param {Told} told @param {number} number of the place @param {string} measure @returns {MeasureMap | null} */
export function measureMap(told, number, measure) {
  const all = (told.measures ?? []).filter((one) => MAP + one.name === measure);
  return all.find((one) => one.place === told.places[number].name) ?? all.find((one) => one.place === null) ?? null;
}

/** Deflated bytes as they were. They go in as one piece, which takes half the time of a stream of small ones.
 * @param {Uint8Array<ArrayBuffer>} bytes @returns {Promise<ArrayBuffer>} */
export async function inflated(bytes) {
  const { writable, readable } = new DecompressionStream("deflate");
  const writer = writable.getWriter();
  const [parts] = await Promise.all([partsOf(readable), writer.write(bytes), writer.close()]);
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole.buffer;
}

/** @param {ReadableStream<Uint8Array>} stream */
async function partsOf(stream) {
  const reader = stream.getReader();
  const parts = [];
  for (let next = await reader.read(); !next.done; next = await reader.read()) parts.push(next.value);
  return parts;
}

/** The container, read. @param {ArrayBuffer} buffer @returns {Parsed} */
export function parsed(buffer) {
  const bytes = new Uint8Array(buffer);
  const magic = String.fromCharCode(...bytes.subarray(0, MAGIC.length));
  if (magic !== MAGIC) throw new Error("This is no record that this page can read.");
  const size = new DataView(buffer).getUint32(MAGIC.length, true);
  const start = MAGIC.length + 4;
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(start, start + size)));
  /** @type {Map<string, Tensor>} */
  const tensors = new Map();
  for (const [name, how] of Object.entries(/** @type {Record<string, Stored>} */ (head.tensors))) {
    tensors.set(name, lazily(how.shape, () => numbersOf(buffer, start + size, how)));
  }
  return { told: head.told, tensors };
}

/** Numbers that are put together when somebody first asks for them. @param {number[]} shape @param {() => Numbers} join @returns {Tensor} */
function lazily(shape, join) {
  /** @type {Numbers | null} */
  let numbers = null;
  return {
    shape,
    get numbers() {
      return (numbers ??= join());
    },
  };
}

/** @param {ArrayBuffer} buffer @param {number} start @param {Stored} how @returns {Numbers} */
function numbersOf(buffer, start, how) {
  const count = how.shape.reduce((product, size) => product * size, 1);
  const at = start + how.offset;
  if (!how.planes) return new KINDS[how.dtype](buffer, at, count);
  const low = new Uint8Array(buffer, at, count);
  const high = new Int8Array(buffer, at + count, count);
  const joined = new Int16Array(count);
  for (let i = 0; i < count; i++) joined[i] = (high[i] << 8) | low[i];
  return joined;
}
