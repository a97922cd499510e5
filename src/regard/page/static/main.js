// The entry point of the page: shows the record inside the file, or a record of the server.

/** @import { Source } from "./source.js" */
/** @import { LookRequest } from "./remote.js" */
import { Colours } from "./colours.js";
import { make, bidiText } from "./dom.js";
import { lookForm, recordList } from "./form.js";
import { fromBase64, inflate, parseRecord } from "./record.js";
import { postIntervention, fetchRecords, postLook, fetchSource, fetchRuns } from "./remote.js";
import { App } from "./app.js";
import { LocalSource } from "./source.js";
import { pageAddress, State } from "./state.js";
import { visibleText } from "./text.js";

/** @typedef {{ready: Promise<void>, state: State, source: Source | null, views: Record<string, any>, app: App | null}} PageHandle */

const root = /** @type {HTMLElement} */ (document.getElementById("regard-root"));
const container = make("div", { class: "record-view" });
const state = new State(pageAddress());
const colours = new Colours(root);

/** @type {PageHandle} */
const handle = { ready: Promise.resolve(), state, source: null, views: {}, app: null };
/** The last request, so that a reader can continue from another token. @type {LookRequest | null} */
let lastLook = null;

/** @param {Source} source */
function open(source) {
  const info = source.info;
  container.replaceChildren(title(source));
  if (info.places.length === 0) {
    container.append(make("p", { class: "note" }, "This record has no places: no attention was captured."));
    return;
  }
  state.listeners = [reload];
  colours.listeners = [];
  state.fitTo(info);
  handle.app?.closed.abort();
  const app = new App(container, source, state, colours, document);
  handle.source = source;
  handle.app = app;
  handle.views = Object.fromEntries(app.views.map((view) => [view.name, view]));
}

/** @param {Source} source */
function title(source) {
  const { facts, axes, pictures } = source.info;
  const written = axes.find((axis) => axis.text.trim() !== "")?.text;
  const text = String(facts.inputs ?? written ?? (pictures ?? []).map((one) => one.title).filter(Boolean).join(", "));
  const begins = visibleText(text.trim().slice(0, 160).replace(/\s+/g, " "), 80);
  return make("header", { class: "title" }, make("h1", {}, visibleText(String(facts.model ?? "regard"), 60)), make("p", {}, bidiText(begins)));
}

/** Open a record of the server, with regeneration and interventions where its model is available. @param {string} id */
async function openRemote(id) {
  const source = await fetchSource(id);
  const request = lastLook ?? source.info.facts.look ?? null;
  const writes = ["translates", "continues"].includes(source.info.facts.kind ?? "translates");
  if (request !== null && writes) source.rewrite = (prefix) => look({ ...request, other: null, prefix });
  if (request !== null) source.intervene = (changes) => postIntervention(id, changes);
  open(source);
}

/** @param {LookRequest} request */
async function look(request) {
  const id = await postLook(request);
  lastLook = request;
  state.set({ record: id, query: -1, key: 0, side: "query", picture: 0, box: null, step: 0 });
  await handle.ready;
}

/** Another record of the server is to be shown. @param {Set<string>} changed */
function reload(changed) {
  if (changed.has("record") && state.shown.record !== "") handle.ready = openRemote(state.shown.record).catch(failed);
}

/** @param {Error} error */
function failed(error) {
  container.replaceChildren(make("p", { class: "alert", role: "alert" }, error.message));
}

async function startServed() {
  state.listeners = [reload];
  const [all, records] = await Promise.all([fetchRuns(), fetchRecords()]);
  const choose = (/** @type {string} */ id) => {
    lastLook = null;
    state.set({ record: id, query: -1, key: 0, side: "query", picture: 0, box: null, step: 0 });
  };
  if (records.length > 0) root.prepend(recordList(records, choose));
  if (all.length > 0) {
    const form = make("details", { class: "request-form", open: "" }, make("summary", {}, "Look at a text"));
    form.append(lookForm(all, async (request) => {
      await look(request);
      form.open = false; // leaves room for the result
    }));
    root.prepend(form);
  }
  const first = state.shown.record || (all.length === 0 ? records.find((one) => !one.problem)?.id : "");
  if (first) await openRemote(first);
}

async function start() {
  root.replaceChildren(container);
  const payload = document.getElementById("regard-payload");
  if (payload === null) return startServed();
  const bytes = fromBase64(payload.textContent ?? "");
  payload.remove(); // frees the memory of its text
  return open(new LocalSource(parseRecord(await inflate(bytes))));
}

handle.ready = start().catch(failed);
Object.assign(window, { regard: handle });
