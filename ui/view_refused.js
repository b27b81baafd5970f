// The subjects that are refused most; and one subject: used, left, holds, penalties, overrides, and the actions on it.
import { ask, get, may, mayChange, path, query } from "./api.js";
import { button, dialog, empty, field, h, table } from "./dom.js";
import { sum } from "./counts.js";
import { brief, instant, number, plural, span, subject } from "./format.js";
import { finder, findings } from "./look_up.js";
import { override, overrideWords, removeOverride } from "./overrides.js";
import { asking, attempt, changes, choice, limits, penaltyWords, readOnlyNote, reasoned, ruleLink, subjectAddress, subjectLink, throttleButton, when, whyInput } from "./parts.js";

const TIMES = [
  { key: "", name: "Now" }, { key: "1h", name: "Hour" }, { key: "1d", name: "Day" }, { key: "7d", name: "Week" }, { key: "31d", name: "Month" },
];

const MOST = 1000; // that the API lists

/** Nobody is listed: what the counts say, which know more than the lists of names. */
async function nobody(last, rule, more) {
  const range = last || "1h", step = ["31d", "7d"].includes(range) ? "2h" : "5m";
  const data = await get(`/v1/counts${query({ last: range, step, rule: rule ? [rule] : undefined })}`).catch(() => null);
  const counted = sum(rule ? data?.rules?.[0]?.refused : data?.all?.refused), time = TIMES.find((one) => one.key === range)?.name.toLowerCase() ?? range;
  const found = plural(counted, "refusal was", "refusals were");
  if (last === "")
    return empty("Nobody was refused in the last minute", h("p", null, counted ? `${found} counted in the last hour. ` : "", h("a", { href: more({ last: "1h" }) }, "Show the last hour")));
  if (counted)
    return empty("No names are known", h("p", null, `${found} counted in the last ${time}, but weir does not know whom any more: the lists of names were not kept over a restart (option keep-subjects), or lack the last seconds before a crash.`));
  if (data && counted === null)
    return empty("Nobody is listed", h("p", null, `Whether anybody was refused in the last ${time} is not known: ${rule ? `${rule} was not counted alone` : "nothing was counted"}.`));
  return empty("Nobody was refused", h("p", null, data ? `No refusal was counted in the last ${time}.` : "The counts cannot be read at the moment."));
}

/** Penalties that run, and since when names are known. `more`: the address of a longer list, if the API has one. */
function penalised({ penalties, running, left_out: leftOut, since }, more) {
  const rows = penalties.map((one) => [subjectLink(one.rule, one.by, one.cut), ruleLink(one.rule), when(one.until), number(one.level), throttleButton({ rule: one.rule, by: one.by[0]?.name }) || ""]);
  return h("section", { class: "card" }, h("h2", null, "Penalised"),
    rows.length ? table("Penalised", ["whom", "rule", "until", { text: "in a row", class: "figure" }, { text: "", class: "tight" }], rows, { class: "cards" }) : h("p", null, "No penalty is known to run."),
    running > rows.length && h("p", { class: "quiet" }, `${plural(running - rows.length, "more is", "more are")} not shown.${more ? "" : " Those of one rule are listed if you name it above."}`),
    running > rows.length && more && h("a", { class: "button", href: more }, "Show more penalties"),
    leftOut > 0 && h("p", { class: "quiet" }, `${plural(leftOut, "name", "names")} made room for others.`),
    h("p", { class: "quiet" }, `Names are known since ${instant(since)}. A penalty that began before refuses all the same, and is listed when its subject is refused again.`));
}

async function list({ parameters }) {
  const last = parameters.get("last") ?? "", rule = parameters.get("rule") ?? "", most = Number(parameters.get("most") ?? 50), some = Number(parameters.get("penalised") ?? 50), wanted = parameters.get("find") ?? "";
  const [data, penalties, found] = await Promise.all([get(`/v1/top${query({ most, rule, last })}`), get(`/v1/penalties${query({ most: some, rule })}`).catch(() => null), wanted && findings(wanted, parameters.get("after"))]);
  const search = h("input", { type: "search", value: rule, placeholder: "rule", "aria-label": "Only of this rule", spellcheck: "false" });
  const address = (more) => `#/refused${query({ last, rule, ...more })}`, go = (more) => (location.hash = address(more));
  const head = h("div", { class: "head" }, h("h1", null, "Refused"),
    h("form", { class: "tools", role: "search", onsubmit: (event) => (event.preventDefault(), go({ rule: search.value.trim() })) }, search),
    choice("Time", TIMES, last, (one) => go({ last: one.key })));
  const rows = data.subjects.map((one) => [
    subjectLink(one.rule, one.by, one.cut), ruleLink(one.rule),
    one.error ? `${number(one.refused - one.error)} to ${number(one.refused)}` : number(one.refused), throttleButton({ rule: one.rule, by: one.by[0]?.name }) || "",
  ]);
  return [head, finder(wanted), found || null, rows.length
    ? h("section", { class: "card" }, h("p", { class: "quiet" }, `${plural(data.refused, "refusal", "refusals")} in ${span(data.window_s)}.${data.unlisted_at_most ? ` A subject that is not listed was refused at most ${number(data.unlisted_at_most)} times.` : ""}`),
      table("The most refused", ["whom", "rule", { text: "refused", class: "figure" }, { text: "", class: "tight" }], rows, { class: "cards" }),
      data.subjects.length === most && most < MOST && h("a", { class: "button", href: address({ penalised: parameters.get("penalised") ?? undefined, most: Math.min(MOST, most * 4) }) }, "Show more"))
    : await nobody(last, rule, address),
  penalties && penalised(penalties, some < MOST && address({ most: parameters.get("most") ?? undefined, penalised: Math.min(MOST, some * 4) }))].filter(Boolean);
}

function penalise(rule, by, again) {
  const length = h("select", null, [["1m", "a minute"], ["15m", "15 minutes"], ["1h", "an hour"], ["1d", "a day"], ["7d", "a week"]].map(([value, name]) => h("option", { value }, name)));
  length.value = "15m";
  const why = whyInput();
  return dialog("Penalise", (close) => h("form", { onsubmit: async (event) => {
    event.preventDefault();
    if (await attempt(() => ask("PUT", `/v1/penalties${query({ rule, by })}`, { body: { for: length.value }, note: why.value.trim() }), "penalised")) close(true), again();
  } }, h("p", null, "Every request of this subject that the rule applies to is refused until then."), field("For", length), field("Why", why), h("div", { class: "actions" }, h("button", { type: "submit", class: "danger" }, "Penalise"))), asking(changes(length, why)));
}

/** The buttons for actions on a subject. */
function tools(data, row, by, again) {
  const { rule, subject: text } = data, hasOverride = by.length > 0 && mayChange("operate");
  const remove = async (what, reason, done) => reason && (await attempt(() => ask("DELETE", `/v1/${what}${query({ rule, by })}`, reason), done)) && again();
  const lift = async () => remove("penalties", await reasoned("Lift the penalty?", "The limits alone decide again from now on.", "Lift", false), "lifted");
  const free = async () => remove("subjects", await reasoned("Set free?", "What this subject has used is forgotten, on this host and in the store. It cannot be undone.", "Set free", false), "set free");
  return [
    button("Set free…", free),
    hasOverride && button(data.override ? "Change the override…" : "Override…", async () => (await override(rule, text, row, data.plan)) && again(), { class: "main" }),
    row && mayChange("operate") && button("Remove the override…", async () => (await removeOverride(rule, row)) && again()),
    data.penalty?.penalised ? button("Lift the penalty…", lift)
      : button("Penalise…", () => penalise(rule, by, again), { class: "danger", disabled: !data.penalty, "aria-describedby": data.penalty ? null : "no-penalty" }),
    throttleButton({ rule, by: data.by[0]?.name, not_only: subject(data.by) }, ""),
  ];
}

/** Whose limits are shown. */
function planText(data, asked) {
  if (!data.plans.length) return "";
  if (data.override) return " · the override counts in every plan";
  return data.plan ? ` · plan ${data.plan}${!asked && data.last_plan === data.plan ? ", as of its newest refusal" : ""}` : " · the rule's own limits, in no plan";
}

async function one({ words: [rule, ...by], parameters, again }) {
  const asked = parameters.has("plan");
  const data = await get(`/v1/subjects${query({ rule, by, plan: asked ? [parameters.get("plan")] : undefined })}`);
  const row = data.override && (await get(path("rules", rule, "overrides", data.subject)).catch(() => null));
  return [
    h("div", { class: "head" }, h("h1", null, brief(subject(data.by))), h("div", { class: "tools" }, may("operate") ? tools(data, row, by, again) : [])),
    h("p", null, "Rule ", ruleLink(rule), planText(data, asked), " · ", h("a", { href: `#/refused${query({ rule })}` }, "others of this rule")),
    may("operate") && !data.penalty && h("p", { class: "hint", id: "no-penalty" }, `Penalise needs a rule with penalty, and ${rule} has none. To refuse everything for a time: Override…, “refuse everything”, until a date.`),
    data.penalty?.penalised && h("p", { class: "banner" }, penaltyWords(data.penalty)),
    data.override && h("p", { class: "banner mild" }, `Has an override: ${row ? overrideWords(row) : data.override.kind}${data.override.expires ? `, until ${instant(data.override.expires)}` : ""}${data.override.why ? ` (${data.override.why})` : ""}.`),
    h("section", { class: "card" }, h("h2", null, "Limits"), data.limits.length ? limits(data.limits, rule) : h("p", null, "No limit holds for this subject.")),
    data.plans.length ? h("p", { class: "tools" }, "As in plan ", data.plans.map((name) => h("a", { class: "button small", href: subjectAddress(rule, by, name) }, name)),
      h("a", { class: "button small", href: subjectAddress(rule, by, "") }, "no plan")) : null,
    may("operate") && readOnlyNote(),
  ].filter(Boolean);
}

export const show = (context) => (context.words.length ? one(context) : list(context));
