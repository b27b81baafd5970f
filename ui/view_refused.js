// Who is refused most; and one subject: used, left, holds, penalties, overrides, and what can be done.
import { ask, get, may, mayChange, path, query } from "./api.js";
import { button, dialog, empty, field, h, table } from "./dom.js";
import { brief, instant, number, span, subject } from "./format.js";
import { override, overrideWords, removeOverride } from "./overrides.js";
import { attempt, choice, confirmed, limits, readOnlyNote, ruleLink, subjectLink, throttleButton, when } from "./parts.js";

const TIMES = [
  { key: "", name: "Now" }, { key: "1h", name: "Hour" }, { key: "1d", name: "Day" }, { key: "7d", name: "Week" }, { key: "31d", name: "Month" },
];

async function list({ parameters }) {
  const last = parameters.get("last") ?? "", rule = parameters.get("rule") ?? "", most = Number(parameters.get("most") ?? 50);
  const data = await get(`/v1/top${query({ most, rule, last })}`);
  const penalties = await get("/v1/penalties?most=50").catch(() => ({ penalties: [] }));
  const search = h("input", { type: "search", value: rule, placeholder: "rule", "aria-label": "Only of this rule", spellcheck: "false" });
  const go = (more) => (location.hash = `#/refused${query({ last, rule, ...more })}`);
  const head = h("div", { class: "head" }, h("h1", null, "Refused"),
    h("form", { class: "tools", role: "search", onsubmit: (event) => (event.preventDefault(), go({ rule: search.value.trim() })) }, search),
    choice("Time", TIMES, last, (one) => go({ last: one.key })));
  const rows = data.subjects.map((one) => [
    subjectLink(one.rule, one.by, one.cut), ruleLink(one.rule),
    one.error ? `${number(one.refused - one.error)} to ${number(one.refused)}` : number(one.refused), throttleButton({ rule: one.rule, by: one.by[0]?.name }) || "",
  ]);
  const parts = [head];
  parts.push(rows.length
    ? h("section", { class: "card" }, h("p", { class: "quiet" }, `${number(data.refused)} refusals in ${span(data.window_s)}. A subject that is not listed was refused at most ${number(data.unlisted_at_most)} times.`),
      table("The most refused", ["whom", "rule", { text: "refused", class: "figure" }, { text: "", class: "tight" }], rows, { class: "cards" }),
      data.subjects.length === most && h("a", { class: "button", href: `#/refused${query({ last, rule, most: Math.min(1000, most * 4) })}` }, "Show more"))
    : empty("Nobody was refused", h("p", null, last === "" ? "That is of the last minute: choose a longer time above." : "In this time every request passed.")));
  if (penalties.penalties.length)
    parts.push(h("section", { class: "card" }, h("h2", null, "Penalised"), table("Penalised", ["whom", "rule", "until", { text: "in a row", class: "figure" }, { text: "", class: "tight" }], penalties.penalties.map((one) =>
      [subjectLink(one.rule, one.by, one.cut), ruleLink(one.rule), when(one.until), number(one.level), throttleButton({ rule: one.rule, by: one.by[0]?.name }) || ""]), { class: "cards" })));
  return parts;
}

function penalise(rule, by, again) {
  const length = h("select", null, [["1m", "a minute"], ["15m", "15 minutes"], ["1h", "an hour"], ["1d", "a day"], ["7d", "a week"]].map(([value, name]) => h("option", { value }, name)));
  length.value = "15m";
  return dialog("Penalise", (close) => h("form", { onsubmit: async (event) => {
    event.preventDefault();
    if (await attempt(() => ask("PUT", `/v1/penalties${query({ rule, by })}`, { body: { for: length.value } }), "penalised")) close(true), again();
  } }, h("p", null, "Every request of this subject that the rule applies to is refused until then."), field("For", length), h("div", { class: "actions" }, h("button", { type: "submit", class: "danger" }, "Penalise"))));
}

async function one({ words: [rule, ...by], parameters, again }) {
  const data = await get(`/v1/subjects${query({ rule, by, plan: parameters.get("plan") })}`);
  const text = data.subject, penalised = data.penalty?.penalised;
  const row = data.override && (await get(path("rules", rule, "overrides", text)).catch(() => null));
  const tools = may("operate") ? [
    button("Set free", async () => (await confirmed("Set free?", "What this subject has used is forgotten, on this host and in the store.", "Set free", false)) &&
      (await attempt(() => ask("DELETE", `/v1/subjects${query({ rule, by })}`), "set free")) && again()),
    by.length > 0 && mayChange("operate") && button(data.override ? "Change the override…" : "Override…", async () => (await override(rule, text, row)) && again(), { class: "main" }),
    row && mayChange("operate") && button("Remove the override", async () => (await removeOverride(rule, row)) && again()),
    penalised ? button("Lift the penalty", async () => (await attempt(() => ask("DELETE", `/v1/penalties${query({ rule, by })}`), "lifted")) && again())
      : data.penalty && button("Penalise…", () => penalise(rule, by, again), { class: "danger" }),
    throttleButton({ rule, by: data.by[0]?.name }, ""),
  ] : [];
  return [
    h("div", { class: "head" }, h("h1", null, brief(subject(data.by))), h("div", { class: "tools" }, tools)),
    h("p", null, "Rule ", ruleLink(rule), data.plan ? ` · plan ${data.plan}` : "", " · ", h("a", { href: `#/refused${query({ rule })}` }, "others of this rule")),
    penalised && h("p", { class: "banner" }, `Penalised until ${instant(data.penalty.until)}, ${number(data.penalty.level)} in a row.`),
    data.override && h("p", { class: "banner mild" }, `Has an override: ${row ? overrideWords(row) : data.override.kind}${data.override.expires ? `, until ${instant(data.override.expires)}` : ""}${data.override.why ? ` (${data.override.why})` : ""}.`),
    h("section", { class: "card" }, h("h2", null, "Limits"), data.limits.length ? limits(data.limits, rule) : h("p", null, "No limit holds for this subject.")),
    data.plans?.length ? h("p", { class: "tools" }, "As in plan ", data.plans.map((name) => h("a", { class: "button small", href: `#/refused/${[rule, ...by].map(encodeURIComponent).join("/")}${query({ plan: name })}` }, name))) : null,
    may("operate") && readOnlyNote(),
  ].filter(Boolean);
}

export const show = (context) => (context.words.length ? one(context) : list(context));
