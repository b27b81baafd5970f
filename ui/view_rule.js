// One rule: what it says, what it does, its overrides and its history.
import { ask, get, mayChange, path, query } from "./api.js";
import { RANGES, rates, ruleCounts, startOf, sum } from "./counts.js";
import { button, h, table } from "./dom.js";
import { ago, number } from "./format.js";
import { edit } from "./edit.js";
import { override, overridesTable } from "./overrides.js";
import { attempt, byText, callOf, changesTable, choice, pill, readOnlyNote, reasoned, throttleButton, undo, when } from "./parts.js";
import { chart } from "./chart.js";
import { yaml } from "./text.js";

const OVERRIDES = 50;
const CHANGES = 20;

function buttons(row, { again, current }) {
  if (!mayChange()) return [];
  const enabled = row.enabled && row.state !== "off";
  return [
    button("Edit…", async () => (await edit(row)) && again(), { class: "main" }),
    row.state === "enforce" && button("Only count (shadow)…", () => change("shadow", "What it would refuse passes, and is counted.", "Only count")),
    row.state === "shadow" && button("Enforce…", () => change("enforce", "What it would refuse is refused from now on.", "Enforce")),
    enabled ? button("Disable…", () => flip("disable", "Its requests are not limited by it until it is enabled again. It is kept, with its mode."))
      : button("Enable…", () => flip("enable", "Its requests are limited by it again.")),
    button("Remove…", async () => {
      const reason = await reasoned(`Remove ${row.id}?`, "Its requests are not limited by it any more. The history keeps it, and Undo brings it back.", "Remove");
      if (reason && (await attempt(() => ask("DELETE", path("rules", row.id), { ...reason, match: row.version }), `${row.id} is removed`)) && current()) location.hash = "#/rules";
    }, { class: "danger" }),
    throttleButton(callOf(row.rule), "", row.id),
  ];
  async function flip(how, text) {
    const name = how[0].toUpperCase() + how.slice(1), reason = await reasoned(`${name} ${row.id}?`, text, name, how === "disable");
    if (!reason) return;
    await attempt(() => ask("POST", path("rules", row.id, how), { ...reason, match: row.version }), `${row.id} is ${how}d`);
    again();
  }
  async function change(mode, text, action) {
    const reason = await reasoned(`${action}: ${row.id}?`, text, action, mode === "shadow");
    if (!reason) return;
    await attempt(() => ask("PATCH", path("rules", row.id), { body: { mode }, ...reason, match: row.version }), "in force");
    again();
  }
}

async function overrides(id, after, again) {
  const data = await get(path("rules", id, "overrides") + query({ most: OVERRIDES + 1, after }));
  const list = data.overrides.slice(0, OVERRIDES);
  const add = mayChange("operate") && button("Add an override…", async () => {
    if (await override(id)) again();
  }, { class: "small" });
  return h("section", { class: "card" }, h("div", { class: "head" }, h("h2", null, "Overrides"), add),
    list.length ? overridesTable(list, again)
      : h("p", { class: "quiet" }, "Every subject has the limits of the rule. An override gives one subject other limits, or none."),
    data.overrides.length > OVERRIDES && h("a", { class: "button", href: `#/rule/${encodeURIComponent(id)}${query({ after: list.at(-1).subject })}` }, "Next page"));
}

function totals({ passed, refused, would_refuse: would }) {
  if (sum(passed) === null) return "It was not counted in this time: weir did not run, or counted it together with other rules.";
  return `${number(sum(passed))} passed, ${number(sum(refused))} refused, ${number(sum(would))} would have been refused`;
}

/** The YAML has it as it is written; people have a time zone. */
function expires({ expires: at }) {
  const instant = typeof at === "number" ? new Date(at * 1000).toISOString() : at;
  return instant && h("p", null, new Date(instant) < new Date() ? "Has expired: " : "Expires: ", when(instant));
}

export async function show(context) {
  const { words: [id], parameters, again } = context;
  const row = await get(path("rules", id));
  const range = RANGES.find((one) => one.key === parameters.get("range")) ?? RANGES[1];
  const counts = (await ruleCounts([id], range).catch(() => new Map())).get(id);
  const before = parameters.get("before") ?? undefined;
  const history = await get(path("rules", id, "history") + query({ most: CHANGES + 1, before })).catch(() => null);
  const events = history?.events.slice(0, CHANGES);
  const plot = counts && chart({
    title: `The last ${range.name.toLowerCase()}`, start: startOf(counts), step: counts.step_s,
    series: [
      { name: "passed", kind: "passed", values: rates(counts, counts.passed) },
      { name: "refused", kind: "refused", values: rates(counts, counts.refused) },
      ...(sum(counts.would_refuse) ? [{ name: "would be refused", kind: "shadow", values: rates(counts, counts.would_refuse) }] : []),
    ],
  });
  return [
    h("div", { class: "head" }, h("h1", null, id, " ", pill(row.state)), h("div", { class: "tools" }, buttons(row, context))),
    readOnlyNote(row.table),
    row.problems.length ? h("div", { class: "banner" }, row.problems.map((one) => h("p", null, one))) : null,
    h("div", { class: "columns" },
      h("section", { class: "card" }, h("h2", null, "What it says"),
        h("p", null, row.limits ?? ""), h("p", { class: "quiet" }, byText(row)),
        h("pre", { class: "diff", tabindex: "0", role: "region", "aria-label": "The rule as YAML" }, h("span", null, typeof row.rule === "string" ? row.rule : yaml(row.rule))),
        expires(row.rule),
        row.updated_at ? h("p", { class: "quiet" }, `${row.updated_by || "somebody"}, ${ago(row.updated_at)}${row.note ? `: ${row.note}` : ""}`) : null),
      h("section", { class: "card" }, h("div", { class: "head" }, h("h2", null, "What it does"),
        choice("Time", RANGES, range.key, (one) => (location.hash = `#/rule/${encodeURIComponent(id)}${query({ range: one.key })}`))),
        plot ?? h("p", { class: "quiet" }, "Nothing was counted yet."),
        counts && h("p", { class: "quiet" }, totals(counts)))),
    await overrides(id, parameters.get("after"), again).catch((error) => h("p", { class: "banner mild" }, error.message)),
    events && h("section", { class: "card" }, h("h2", null, "History"), changesTable(events, async (event) => (await undo(event)) && again(), !before),
      history.events.length > CHANGES && h("nav", { class: "tools", "aria-label": "Pages of the history" },
        h("a", { class: "button", href: `#/rule/${encodeURIComponent(id)}${query({ range: range.key, before: events.at(-1).number })}` }, "Earlier changes"))),
  ].filter(Boolean);
}
