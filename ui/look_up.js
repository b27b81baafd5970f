// Finding a subject: by one value over all rules, or by the values that a rule counts by.
import { get, path, query } from "./api.js";
import { field, h, table } from "./dom.js";
import { brief } from "./format.js";
import { pill, ruleLink, subjectAddress, subjectLink, throttleButton } from "./parts.js";

const FOUND = 50;
const byOf = (row) => [row.rule?.by ?? []].flat();

/** The form for a value, whichever rule knows it. */
export function finder(value) {
  const text = h("input", { type: "search", value, required: true, placeholder: "a user, key or address", "aria-label": "Look up a subject", spellcheck: "false" });
  return h("form", { class: "tools", onsubmit: (event) => (event.preventDefault(), (location.hash = `#/refused${query({ find: text.value.trim() })}`)) },
    text, h("button", { type: "submit" }, "Look up in all rules"));
}

/** The rules that know a value, a page of them. */
export async function findings(value, after) {
  const find = (from) => get(`/v1/subjects/find${query({ value, most: FOUND, after: from })}`);
  // The last rule of the page before may be gone meanwhile: begin again.
  const data = await find(after).catch((error) => (error.status === 404 && after ? find() : Promise.reject(error)));
  const state = (one) => [one.used === null ? "counted in the store" : one.used ? "has used something" : "", one.penalised && pill("penalised"), one.overridden && pill("override")];
  return h("section", { class: "card" }, h("h2", null, `Rules that know ${brief(value)}`),
    data.subjects.length ? table("Rules that know it", ["whom", "rule", "state", { text: "", class: "tight" }],
      data.subjects.map((one) => [subjectLink(one.rule, one.by), ruleLink(one.rule), h("span", { class: "tools" }, state(one)), throttleButton({ rule: one.rule, by: one.by[0].name }) || ""]), { class: "cards" })
      : h("p", null, "No rule that counts by one attribute has a count, a penalty or an override of it."),
    h("p", { class: "quiet" }, "Subjects of rules that count by several attributes are looked up in ", h("a", { href: "#/plans" }, "Plans"), "."),
    data.after && h("a", { class: "button", href: `#/refused${query({ find: value, after: data.after })}` }, "More rules"));
}

/** The form for a rule and the values that it counts by, one field for each. */
export function lookUp(rows) {
  const rule = h("input", { list: "counted-rules", required: true, spellcheck: "false", value: rows[0].id }), values = h("div", { class: "row" });
  let inputs = [];
  const draw = () => {
    const names = byOf(rows.find((one) => one.id === rule.value) ?? rows[0]), old = inputs.map((one) => one.value);
    inputs = names.map((_, i) => h("input", { required: true, spellcheck: "false", value: old[i] ?? "" }));
    values.replaceChildren(...inputs.map((one, i) => (names.length > 1 ? field(names[i], one) : field("Subject", one, `Its ${names[0]}, as the rule counts it.`))));
  };
  rule.addEventListener("input", draw);
  // There may be more rules than the list has.
  rule.addEventListener("change", async () => {
    if (!rule.value || rows.some((one) => one.id === rule.value)) return;
    const row = await get(path("rules", rule.value)).catch(() => null);
    if (row && byOf(row).length) rows.push(row), draw();
  });
  draw();
  return h("form", { class: "card", onsubmit: (event) => (event.preventDefault(), (location.hash = subjectAddress(rule.value, inputs.map((one) => one.value.trim())))) },
    h("h2", null, "Look up a subject"), h("datalist", { id: "counted-rules" }, rows.map((row) => h("option", { value: row.id }, `by ${row.by}`))),
    h("div", { class: "row" }, field("Rule", rule)), values,
    h("div", { class: "actions" }, h("button", { type: "submit", class: "main" }, "Show what is used and left")));
}
