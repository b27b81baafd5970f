// Overrides: other limits for one subject of a rule.
import { ask, get, mayChange, path } from "./api.js";
import { button, dialog, field, fieldError, h, note, table } from "./dom.js";
import { ago, brief, errorText, instantOf, localInput } from "./format.js";
import { asking, attempt, changes, limitWords, pill, reasoned, ruleLink, subjectLink, throttleButton, when } from "./parts.js";
import { flow } from "./text.js";

/** The effect of an override, in words. */
export const overrideWords = (row) => {
  const override = row.override ?? {};
  return override.limits ? limitWords(override.limits) : override.deny ? "refuse everything" : override.unlimited ? "no limit" : row.state;
};

export async function removeOverride(rule, row) {
  const reason = await reasoned(`Remove the override of ${brief(row.subject)}?`, "The limits of the rule hold for it again. Changes takes it back.", "Remove");
  return reason && attempt(() => ask("DELETE", path("rules", rule, "overrides", row.subject), { ...reason, match: row.version }), "removed");
}

/** Rows of the API, of one rule or of all; `again` shows the view again. */
export function overridesTable(rows, again, ofAll) {
  const heads = [ofAll && "rule", "subject", "gets", "until", "why", "who", { text: "", class: "tight" }].filter(Boolean);
  return table("Overrides", heads, rows.map((one) => [
    ofAll && ruleLink(one.rule),
    one.by.length ? subjectLink(one.rule, one.by) : brief(one.subject),
    h("span", null, overrideWords(one), ["expired", "unused", "bad"].includes(one.state) && [" ", pill(one.state)], one.problems.map((text) => h("p", { class: "error" }, text))),
    one.override?.expires ? when(one.override.expires) : "until it is removed", one.override?.why ?? "",
    h("span", null, one.updated_by, one.updated_at && h("small", null, ` ${ago(one.updated_at)}`)),
    h("span", { class: "tools" },
      mayChange("operate") && [
        button("Change…", async () => (await override(one.rule, one.subject, one)) && again(), { class: "small", "aria-label": `Change the override of ${one.subject}` }),
        button("Remove", async () => (await removeOverride(one.rule, one)) && again(), { class: "small danger", "aria-label": `Remove the override of ${one.subject}` })],
      throttleButton({ rule: one.rule })),
  ].filter((cell, i) => i > 0 || cell)), { class: "cards" });
}

// ---- limits, one a line ----

/** A limit as a line: in words if words say all of it, else as YAML. */
const lineOf = (limit) => (typeof limit === "string" ? limit
  : Object.keys(limit).every((name) => ["max", "per", "tz", "unit"].includes(name)) && typeof limit.per === "string"
    ? `${limit.max}${limit.unit ? ` ${limit.unit}` : ""} per ${limit.per}${limit.tz ? ` (${limit.tz})` : ""}` : flow(limit));
const WORDS = /^([\d,]+)(?: +(\S+))? +per +(\S+?)(?: +(token_bucket|fixed_window|sliding_window))?(?: *\(([^()]+)\))?$/;

/** Reads a limit as the page shows it: "3,000 per day (Asia/Shanghai)", "3 per 1h fixed_window". */
function limitOf(line) {
  const [, max, unit, per, algorithm, tz] = WORDS.exec(line) ?? [];
  if (!per || !(algorithm || tz || max.includes(","))) return line;
  return JSON.parse(JSON.stringify({ max: Number(max.replaceAll(",", "")), per, unit, algorithm, tz }));
}

const linesOf = (text) => text.split("\n").map((line) => line.trim().replace(/^- +/, "")).filter(Boolean);

/** The limits of such lines; the service reads what is YAML. */
async function limitsOf(text) {
  const lines = linesOf(text);
  if (!lines.some((line) => line.startsWith("{"))) return lines.map(limitOf);
  const source = `id: new\nlimits:\n${lines.map((line) => `- ${line.startsWith("{") ? line : JSON.stringify(limitOf(line))}`).join("\n")}\n`;
  const { data } = await ask("POST", "/v1/lint", { body: source, type: "application/yaml" });
  if (!data.document?.limits) throw new Error(`limits: ${data.errors[0]?.text ?? "not understood"}`);
  return data.document.limits;
}

const isNothing = (text) => linesOf(text).some((line) => /^0+ |\bmax: *0\b/.test(line));

/** The limits that count now for whoever has no override. */
async function limitsNow(rule, plan) {
  const row = await get(path("rules", rule)).catch(() => null);
  // Words in place of limits are of a rule; an override has numbers.
  return [(plan && row?.rule?.plans?.[plan]) ?? row?.rule?.limits ?? []].flat().filter((one) => !["given", "none"].includes(one));
}

/** Asks for an override. `text`: the subject as the API spells it; if it is not given, it is asked for. `plan`: that the subject has. */
export async function override(rule, text, row, plan) {
  const old = row?.override ?? {}, list = old.limits ? [old.limits].flat() : await limitsNow(rule, plan);
  const kind = h("select", null, [["limits", "other limits"], ["deny", "refuse everything"], ["unlimited", "no limit"]].map(([value, name]) => h("option", { value }, name)));
  const limit = h("textarea", { class: "mono", rows: String(Math.max(2, list.length + 1)), placeholder: "100 per minute", spellcheck: "false" });
  const until = h("input", { type: "datetime-local" });
  const why = h("input", { maxlength: "500" });
  const whom = h("input", { value: text ?? "", required: true, spellcheck: "false" });
  kind.value = old.deny ? "deny" : old.unlimited ? "unlimited" : "limits";
  limit.value = list.map(lineOf).join("\n");
  until.value = localInput(old.expires);
  why.value = old.why ?? "";
  const limitField = field("Limits", limit, "One a line: 100 per 1h, 100 per day (Asia/Shanghai), { max: 5, per: 1h, name: hour }.");
  const nothing = h("p", { class: "error", role: "status" });
  const untilField = field("Until", until, "In your time zone; empty: until it is removed."), was = until.value;
  const show = () => {
    limitField.hidden = kind.value !== "limits";
    nothing.textContent = kind.value === "limits" && isNothing(limit.value) ? "A limit of 0: this refuses everything." : "";
  };
  for (const control of [kind, limit]) control.addEventListener("input", show);
  show();
  return dialog(text ? `Override for ${brief(text)}` : "Override", (close) => {
    const error = h("p", { class: "error", role: "alert" });
    const document = async () => {
      const body = kind.value === "limits" ? { limits: await limitsOf(limit.value) } : { [kind.value]: true };
      // An instant that is not touched keeps its seconds.
      if (until.value) body.expires = until.value === was ? old.expires : instantOf(until.value);
      if (why.value) body.why = why.value;
      return body;
    };
    const save = async (event) => {
      event.preventDefault();
      for (const box of [limitField, untilField]) fieldError(box, "");
      error.textContent = "";
      try {
        await ask("PUT", path("rules", rule, "overrides", whom.value), { body: await document(), note: why.value, match: row?.version, absent: !row });
        note("the override is in force");
        close(true);
      } catch (e) {
        const box = /(^|: )limits\b/.test(e.message) ? limitField : /: expires\b/.test(e.message) ? untilField : null;
        if (box) fieldError(box, errorText(e));
        else error.textContent = errorText(e);
      }
    };
    return h("form", { onsubmit: save }, h("p", null, "Rule ", h("strong", null, rule), ". It replaces all limits of this rule for this subject, in every plan."),
      text ? null : field("Subject", whom, "The value that the rule counts by; several with commas between."), field("It gets", kind), limitField, nothing,
      untilField, field("Why", why), error,
      h("div", { class: "actions" }, h("button", { type: "submit", class: "main" }, "Save")));
  }, asking(changes(kind, limit, until, why, whom)));
}
