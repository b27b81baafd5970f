// The history of everything, and taking a change back.
import { get, query } from "./api.js";
import { empty, h } from "./dom.js";
import { changesTable, readOnlyNote, undo } from "./parts.js";

const PAGE = 50;

export async function show({ parameters, again }) {
  const before = parameters.get("before") ?? undefined;
  const data = await get(`/v1/history${query({ most: PAGE + 1, before })}`).catch((error) => (error.status === 409 ? error : Promise.reject(error)));
  if (!data.events) return [h("h1", null, "Changes"), empty("A file has no history here", h("p", null, "Keep the file under version control. With rules in a database, weir lists here who changed what, when and why, and undoes it.")), readOnlyNote()].filter(Boolean);
  if (!data.events.length) return [h("h1", null, "Changes"), empty("Nothing was changed yet", h("p", null, "Each change of a rule, a setting or an override is listed here, with who made it and why, and can be undone."))];
  const events = data.events.slice(0, PAGE);
  return [
    h("h1", null, "Changes"),
    h("div", { class: "card" }, changesTable(events, async (event) => (await undo(event)) && again(), !before)),
    data.events.length > PAGE && h("nav", { class: "tools", "aria-label": "Pages" }, h("a", { class: "button", href: `#/changes${query({ before: events.at(-1).number })}` }, "Earlier changes")),
  ].filter(Boolean);
}
