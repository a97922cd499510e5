// The page as a notebook widget: its payload and its URL fragment are traits.

/** @import { Address } from "./state.js" */
import { Colours } from "./colours.js";
import { make } from "./dom.js";
import { inflate, parseRecord } from "./record.js";
import { App } from "./app.js";
import { LocalSource } from "./source.js";
import { State } from "./state.js";

/** @typedef {{get: (name: string) => any, set: (name: string, value: any) => void, save_changes: () => void, on: (event: string, onChange: () => void) => void}} Model */

/** @param {Model} model @returns {Address} */
function modelAddress(model) {
  return {
    read: () => model.get("hash"),
    write: (text) => {
      model.set("hash", text);
      model.save_changes();
    },
    onChange: (listener) => model.on("change:hash", listener),
  };
}

/** @param {{model: Model, el: HTMLElement}} context */
async function render({ model, el }) {
  const root = make("div", { class: "regard inside" });
  el.append(root);
  /** @type {DataView} */
  const view = model.get("payload");
  const bytes = new Uint8Array(view.byteLength);
  bytes.set(new Uint8Array(view.buffer, view.byteOffset, view.byteLength));
  const source = new LocalSource(parseRecord(await inflate(bytes)));
  const state = new State(modelAddress(model));
  state.fitTo(source.info);
  new App(root, source, state, new Colours(root));
}

export default { render };
