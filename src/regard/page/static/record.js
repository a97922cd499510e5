// Parsing of the payload: a JSON header, and tensors as typed arrays.

/** @typedef {{name: string, text: string, tokens: string[], spans: [number, number][], words: number[], segments: number[] | null, numbered?: boolean, grids?: StoredGrid[]}} TokenAxis */
/** The patches of a picture: a raster from token `first`, or the token of every patch (-1: none). `box`: left, top, right, bottom as shares of its sides.
 * @typedef {{picture: number, rows: number, cols: number, box: [number, number, number, number], first?: number, tokens?: number[]}} StoredGrid */
/** A picture that the model looked at; `content`: base64. @typedef {{title: string, width: number, height: number, type: string, content: string}} StoredPicture */
/** @typedef {{heads: number[], key_heads: number[], score: "dot" | "additive", bias: "distance" | "key" | "pair" | "block" | null, half_width: number | null, cap: number | null, alpha: number | null}} StoredQK */
/** @typedef {{name: string, layer: number, kind: "self" | "cross", queries: number, keys: number, heads: number, T: number, S: number, why: string, stored: StoredQK | null, value_heads: number[] | null,
 *   joined?: "windows" | "chunks", note?: string}} Place */
/** @typedef {[number, number, number | null, [number, string, number | null][]]} Step */
/** An attribution map computed in advance, such as value zeroing: of one place, or (null) of the whole
 * model. `rows`, `cols`: indices of axes; `values`: base64 of float32, little-endian.
 * @typedef {{name: string, title: string, place: string | null, rows: number, cols: number, shape: [number, number], values: string}} MeasureMap */
/** @typedef {{facts: Record<string, any>, axes: TokenAxis[], places: Place[], steps: Step[], remote?: boolean, measures?: MeasureMap[], notes?: string[], pictures?: StoredPicture[]}} RecordInfo */
/** @typedef {Float32Array | Int16Array | Int32Array | Uint8Array} Numbers */
/** @typedef {{readonly numbers: Numbers, shape: number[]}} Tensor */
/** @typedef {{info: RecordInfo, tensors: Map<string, Tensor>}} Parsed */
/** @typedef {{dtype: "float32" | "int16" | "int32" | "uint8", shape: number[], offset: number, planes: boolean}} TensorHeader */

const MAGIC = "regard\u0001\u0000";
const ARRAY_TYPES = { float32: Float32Array, int16: Int16Array, int32: Int32Array, uint8: Uint8Array };

/** Decode base64 piece by piece, so that no second copy of the text is needed. @param {string} text */
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

/** The prefix of the names of stored attribution maps, which sets them apart from the measures that the page computes. */
export const MAP_PREFIX = "map:";

/** The stored map of a measure at a place, or of the whole model; null where there is none.
 * @param {RecordInfo} info @param {number} number of the place @param {string} measure @returns {MeasureMap | null} */
export function measureMap(info, number, measure) {
  const all = (info.measures ?? []).filter((one) => MAP_PREFIX + one.name === measure);
  return all.find((one) => one.place === info.places[number].name) ?? all.find((one) => one.place === null) ?? null;
}

/** Whether the record has pictures and says which tokens are patches of them. @param {RecordInfo} info */
export function hasPictures(info) {
  return (info.pictures ?? []).length > 0 && info.axes.some((axis) => (axis.grids ?? []).length > 0);
}

/** The place that is shown first: the last one that attends across, in a record of pictures the last one with patches. @param {RecordInfo} info */
export function defaultPlace(info) {
  const patched = (/** @type {number} */ axis) => (info.axes[axis].grids ?? []).length > 0;
  const ofPatches = info.places.map((place) => hasPictures(info) && (patched(place.keys) || patched(place.queries)));
  const cross = info.places.map((place, n) => place.kind === "cross" && (ofPatches[n] || !ofPatches.includes(true))).lastIndexOf(true);
  return Math.max(0, cross >= 0 ? cross : ofPatches.lastIndexOf(true));
}

/** How many axes are texts; positions without tokens come after them. @param {RecordInfo} info */
export function countTexts(info) {
  return info.axes.filter((axis) => axis.numbered !== true).length;
}

/** The names of places in at most `most` characters, where they are told apart: long names lose the beginning that they
 * all share, then their middle. @param {Place[]} places @param {number} most @returns {string[]} */
export function shortPlaceNames(places, most) {
  const parts = places.map((place) => place.name.split(/(?<=\.|, )/));
  const fits = places.every((place) => place.name.length <= most);
  let shared = 0;
  while (!fits && places.length > 1 && parts.every((one) => one.length > shared + 1 && one[shared] === parts[0][shared])) shared++;
  return parts.map((one) => {
    const rest = (shared > 0 ? "…" : "") + one.slice(shared).join("");
    const first = Math.floor(most / 3);
    return rest.length <= most ? rest : `${rest.slice(0, first)}…${rest.slice(rest.length - (most - first - 1))}`;
  });
}

/** Decompress deflated bytes. They are written as one piece, which takes half the time of a stream of small ones.
 * @param {Uint8Array<ArrayBuffer>} bytes @returns {Promise<ArrayBuffer>} */
export async function inflate(bytes) {
  const { writable, readable } = new DecompressionStream("deflate");
  const writer = writable.getWriter();
  const [parts] = await Promise.all([readAll(readable), writer.write(bytes), writer.close()]);
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole.buffer;
}

/** @param {ReadableStream<Uint8Array>} stream */
async function readAll(stream) {
  const reader = stream.getReader();
  const parts = [];
  for (let next = await reader.read(); !next.done; next = await reader.read()) parts.push(next.value);
  return parts;
}

/** Parse the payload. @param {ArrayBuffer} buffer @returns {Parsed} */
export function parseRecord(buffer) {
  const bytes = new Uint8Array(buffer);
  const magic = String.fromCharCode(...bytes.subarray(0, MAGIC.length));
  if (magic !== MAGIC) throw new Error("This page cannot read the record: it has another format or version.");
  const size = new DataView(buffer).getUint32(MAGIC.length, true);
  const start = MAGIC.length + 4;
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(start, start + size)));
  /** @type {Map<string, Tensor>} */
  const tensors = new Map();
  for (const [name, header] of Object.entries(/** @type {Record<string, TensorHeader>} */ (head.tensors))) {
    tensors.set(name, lazyTensor(header.shape, () => readNumbers(buffer, start + size, header)));
  }
  return { info: head.record, tensors };
}

/** A tensor whose numbers are decoded on first use. @param {number[]} shape @param {() => Numbers} decode @returns {Tensor} */
function lazyTensor(shape, decode) {
  /** @type {Numbers | null} */
  let numbers = null;
  return {
    shape,
    get numbers() {
      return (numbers ??= decode());
    },
  };
}

/** @param {ArrayBuffer} buffer @param {number} start @param {TensorHeader} header @returns {Numbers} */
function readNumbers(buffer, start, header) {
  const count = header.shape.reduce((product, size) => product * size, 1);
  const at = start + header.offset;
  if (!header.planes) return new ARRAY_TYPES[header.dtype](buffer, at, count);
  const low = new Uint8Array(buffer, at, count);
  const high = new Int8Array(buffer, at + count, count);
  const joined = new Int16Array(count);
  for (let i = 0; i < count; i++) joined[i] = (high[i] << 8) | low[i];
  return joined;
}
