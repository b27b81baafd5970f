// Overrides: other limits for one subject of a rule.
import { ask, mayChange, path } from "./api.js";
import { button, dialog, field, fieldError, h, note, table } from "./dom.js";
import { ago, brief, errorText, instantOf, localInput } from "./format.js";
import { attempt, confirmed, limitWords, pill, ruleLink, subjectLink, throttleButton, when } from "./parts.js";

/** What an override gives, in words. */
export const overrideWords = (row) => {
  const override = row.override ?? {};
  return override.limits ? limitWords(override.limits) : override.deny ? "refuse everything" : override.unlimited ? "no limit" : row.state;
};

export async function removeOverride(rule, row) {
  if (!(await confirmed(`Remove the override of ${brief(row.subject)}?`, "The limits of the rule hold for it again. Changes takes it back.", "Remove"))) return false;
  return attempt(() => ask("DELETE", path("rules", rule, "overrides", row.subject), { match: row.version }), "removed");
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

/** Asks for an override. `text`: the subject as the API spells it; if it is not given, it is asked for. */
export function override(rule, text, row) {
  const kind = h("select", null, [["limits", "other limits"], ["deny", "refuse everything"], ["unlimited", "no limit"]].map(([value, name]) => h("option", { value }, name)));
  const limit = h("input", { placeholder: "100 per minute", spellcheck: "false" });
  const until = h("input", { type: "datetime-local" });
  const why = h("input", { maxlength: "500" });
  const whom = h("input", { value: text ?? "", required: true, spellcheck: "false" });
  const old = row?.override ?? {}, list = [old.limits ?? []].flat();
  // A limit with fields of its own is written as JSON.
  const asJson = list.some((one) => typeof one !== "string");
  kind.value = old.deny ? "deny" : old.unlimited ? "unlimited" : "limits";
  limit.value = asJson ? JSON.stringify(list) : list.join(", ");
  until.value = localInput(old.expires);
  why.value = old.why ?? "";
  const limitField = field("Limits", limit, asJson ? "A list in JSON, as in a rule." : "Such as 100 per minute; several with commas between.");
  const untilField = field("Until", until, "In your time zone; empty: until it is removed."), was = until.value;
  const show = () => (limitField.hidden = kind.value !== "limits");
  kind.addEventListener("change", show);
  show();
  return dialog(text ? `Override for ${brief(text)}` : "Override", (close) => {
    const error = h("p", { class: "error", role: "alert" });
    const document = () => {
      const limits = () => (asJson ? JSON.parse(limit.value) : limit.value.split(",").map((one) => one.trim()).filter(Boolean));
      const body = kind.value === "limits" ? { limits: limits() } : { [kind.value]: true };
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
        await ask("PUT", path("rules", rule, "overrides", whom.value), { body: document(), note: why.value, match: row?.version, absent: !row });
        note("the override is in force");
        close(true);
      } catch (e) {
        const box = /: limits\b/.test(e.message) || e instanceof SyntaxError ? limitField : /: expires\b/.test(e.message) ? untilField : null;
        if (box) fieldError(box, errorText(e));
        else error.textContent = errorText(e);
      }
    };
    return h("form", { onsubmit: save }, h("p", null, "Rule ", h("strong", null, rule)),
      text ? null : field("Subject", whom, "The value that the rule counts by; several with commas between."), field("It gets", kind), limitField,
      untilField, field("Why", why), error,
      h("div", { class: "actions" }, h("button", { type: "submit", class: "main" }, "Save")));
  });
}
