// Plans, budgets and overrides: what is sold, and how long it will last.
import { get, query } from "./api.js";
import { empty, field, h, table } from "./dom.js";
import { number, span } from "./format.js";
import { limits, limitWords, pill, throttleButton } from "./parts.js";

const PAGE = 20, BUDGETS = 20, SUBJECTS = 200;
const byOf = (row) => [row.rule?.by ?? []].flat();

function planCard(row) {
  const plans = Object.entries(row.rule.plans ?? {});
  return h("section", { class: "card" },
    h("div", { class: "head" }, h("h2", null, h("a", { href: `#/rule/${encodeURIComponent(row.id)}` }, row.id), " ", pill(row.state)), throttleButton({ rule: row.id })),
    h("p", { class: "quiet" }, `The plan is ${row.rule.plan}; counted ${byOf(row).length ? `by ${row.by}` : "all together"}.`),
    table(`Plans of ${row.id}`, ["plan", "limits"], plans.map(([name, list]) => [name, limitWords(list)])));
}

async function budget(row) {
  const data = await get(`/v1/subjects${query({ rule: row.id })}`).catch(() => null);
  const first = data?.limits.find((limit) => limit.lasts_ms > 0);
  return h("section", { class: "card" }, h("h2", null, h("a", { href: `#/rule/${encodeURIComponent(row.id)}` }, row.id), " ", pill(row.state)),
    data ? limits(data.limits, row.id) : h("p", { class: "quiet" }, row.limits),
    first ? h("p", { class: "banner mild" }, `At this pace it is used up in ${span(first.lasts_ms / 1000)}.`) : null);
}

function lookUp(rows) {
  const rule = h("input", { list: "counted-rules", required: true, spellcheck: "false", value: rows[0].id });
  const subject = h("input", { required: true, spellcheck: "false" });
  return h("form", { class: "card", onsubmit: (event) => {
    event.preventDefault();
    const row = rows.find((one) => one.id === rule.value), values = !row || byOf(row).length > 1 ? subject.value.split(",").map((one) => one.trim()) : [subject.value.trim()];
    location.hash = `#/refused/${[rule.value, ...values].map(encodeURIComponent).join("/")}`;
  } }, h("h2", null, "Look up a subject"), h("datalist", { id: "counted-rules" }, rows.map((row) => h("option", { value: row.id }, `by ${row.by}`))), h("div", { class: "row" }, field("Rule", rule), field("Subject", subject, "A user, key or address; several values with commas between.")),
  h("div", { class: "actions" }, h("button", { type: "submit", class: "main" }, "Show what is used and left")));
}

export async function show({ parameters }) {
  const after = parameters.get("after"), list = (what, most) => get(`/v1/rules${query({ with: what, most, after: what === "plans" ? after : undefined })}`);
  const [plans, budgets, counted] = await Promise.all([list("plans", PAGE + 1), list("budget", BUDGETS + 1), list("by", SUBJECTS)]);
  const parts = [h("h1", null, "Plans and budgets")];
  if (counted.rules.length) parts.push(lookUp(counted.rules));
  parts.push(...(await Promise.all(budgets.rules.slice(0, BUDGETS).map(budget))));
  if (budgets.rules.length > BUDGETS) parts.push(h("p", { class: "quiet" }, `${number(budgets.count - BUDGETS)} more budgets: their rules show them.`));
  parts.push(...plans.rules.slice(0, PAGE).map(planCard));
  if (!plans.rules.length && !budgets.rules.length)
    parts.push(empty("There is no plan and no shared budget yet", h("p", null, "A rule with plans gives each customer the limits of what they have bought; a rule that counts all requests together for a day or a month is a budget.")));
  if (plans.rules.length > PAGE) parts.push(h("a", { class: "button", href: `#/plans${query({ after: plans.rules[PAGE - 1].id })}` }, "Next page"));
  return parts;
}
