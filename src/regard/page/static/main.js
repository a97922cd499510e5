// Where the page begins: a record that is in the file, or one of the server.

/** @import { Source } from "./source.js" */
/** @import { Look } from "./remote.js" */
import { Colours } from "./colours.js";
import { make, spoken } from "./dom.js";
import { lookForm, shelf } from "./form.js";
import { fromBase64, inflated, parsed } from "./record.js";
import { changedOutcome, givenRecords, lookAt, remoteSource, runs } from "./remote.js";
import { App } from "./app.js";
import { LocalSource } from "./source.js";
import { addressOfPage, State } from "./state.js";
import { visible } from "./text.js";

/** @typedef {{ready: Promise<void>, state: State, source: Source | null, views: Record<string, any>, app: App | null}} Opened */

const page = /** @type {HTMLElement} */ (document.getElementById("regard-root"));
const place = make("div", { class: "place" });
const state = new State(addressOfPage());
const colours = new Colours(page);

/** @type {Opened} */
const opened = { ready: Promise.resolve(), state, source: null, views: {}, app: null };
/** What was last put to a model, so that a reader can go on from another token. @type {Look | null} */
let last = null;

/** @param {Source} source */
function open(source) {
  const told = source.told;
  place.replaceChildren(title(source));
  if (told.places.length === 0) {
    place.append(make("p", { class: "note" }, "This record has no places: the model attended nowhere, or nothing was listened to."));
    return;
  }
  state.listeners = [reload];
  colours.listeners = [];
  state.within(told);
  opened.app?.closed.abort();
  const app = new App(place, source, state, colours, document);
  opened.source = source;
  opened.app = app;
  opened.views = Object.fromEntries(app.views.map((view) => [view.name, view]));
}

/** @param {Source} source */
function title(source) {
  const { facts, sides } = source.told;
  const begins = visible(sides[0]?.text.trim().slice(0, 160).replace(/\s+/g, " ") ?? "", 80);
  return make("header", { class: "title" }, make("h1", {}, visible(String(facts.model ?? "regard"), 60)), make("p", {}, spoken(begins)));
}

/** A record of the server, and how to write it differently. @param {string} id */
async function openRemote(id) {
  const source = await remoteSource(id);
  const asked = last ?? source.told.facts.look ?? null;
  const writes = ["translates", "continues"].includes(source.told.facts.kind ?? "translates");
  if (asked !== null && writes) source.rewrite = (prefix) => look({ ...asked, other: null, prefix });
  if (asked !== null) source.intervene = (changes) => changedOutcome(id, changes);
  open(source);
}

/** @param {Look} asked */
async function look(asked) {
  const id = await lookAt(asked);
  last = asked;
  state.set({ record: id, query: -1, key: 0, box: null, step: 0 });
  await opened.ready;
}

/** The server has another record to show. @param {Set<string>} changed */
function reload(changed) {
  if (changed.has("record") && state.shown.record !== "") opened.ready = openRemote(state.shown.record).catch(failed);
}

/** @param {Error} error */
function failed(error) {
  place.replaceChildren(make("p", { class: "alert", role: "alert" }, error.message));
}

async function served() {
  state.listeners = [reload];
  const [all, given] = await Promise.all([runs(), givenRecords()]);
  const choose = (/** @type {string} */ id) => {
    last = null;
    state.set({ record: id, query: -1, key: 0, box: null, step: 0 });
  };
  if (given.length > 0) page.prepend(shelf(given, choose));
  if (all.length > 0) {
    const form = make("details", { class: "asking", open: "" }, make("summary", {}, "Look at a text"));
    form.append(lookForm(all, async (asked) => {
      await look(asked);
      form.open = false; // what was found needs the room
    }));
    page.prepend(form);
  }
  const first = state.shown.record || (all.length === 0 ? given[0]?.id : "");
  if (first) await openRemote(first);
}

async function begin() {
  page.replaceChildren(place);
  const packed = document.getElementById("regard-payload");
  if (packed === null) return served();
  const bytes = fromBase64(packed.textContent ?? "");
  packed.remove(); // its text is not needed twice
  return open(new LocalSource(parsed(await inflated(bytes))));
}

opened.ready = begin().catch(failed);
Object.assign(window, { regard: opened });
