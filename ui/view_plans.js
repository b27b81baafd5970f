// Plans, budgets and overrides: what is sold, and how long it will last.
import { get, query } from "./api.js";
import { empty, h, table } from "./dom.js";
import { span } from "./format.js";
import { lookUp } from "./look_up.js";
import { overridesTable } from "./overrides.js";
import { limits, limitWords, pill, ruleLink, throttleButton } from "./parts.js";

const PAGE = 20, BUDGETS = 20, SUBJECTS = 200, OVERRIDES = 50;
const byOf = (row) => [row.rule?.by ?? []].flat();

function planCard(row) {
  const plans = Object.entries(row.rule.plans ?? {});
  return h("section", { class: "card" },
    h("div", { class: "head" }, h("h2", null, ruleLink(row.id), " ", pill(row.state)), throttleButton({ rule: row.id })),
    h("p", { class: "quiet" }, `The plan is ${row.rule.plan}; counted ${byOf(row).length ? `by ${row.by}` : "all together"}.`),
    table(`Plans of ${row.id}`, ["plan", "limits"], [...plans.map(([name, list]) => [name, limitWords(list)]), [h("span", { class: "quiet" }, "others"), row.rule.limits ? `${limitWords(row.rule.limits)} (the rule's own limits)` : "no limit of this rule"]]),
    h("p", { class: "quiet" }, "What is counted, such as tokens, is the unit of a limit: “Units” in docs/rules.md."));
}

async function budget(row) {
  const data = await get(`/v1/subjects${query({ rule: row.id })}`).catch(() => null);
  const first = data?.limits.find((limit) => limit.lasts_ms > 0);
  return h("section", { class: "card" }, h("div", { class: "head" }, h("h2", null, ruleLink(row.id), " ", pill(row.state)), throttleButton({ rule: row.id })),
    data ? limits(data.limits, row.id) : h("p", { class: "quiet" }, row.limits),
    data && (first ? h("p", { class: "banner mild" }, `At this pace it is used up in ${span(first.lasts_ms / 1000)}.`)
      : h("p", { class: "quiet" }, data.limits.some((limit) => limit.used > 0) ? "At this pace it outlasts its window." : "Not enough data yet for a pace: nothing is used.")));
}

/** To the first page of a list, unless this is it, and to the next one. */
const pages = (what, after, next) => (after || next) && h("nav", { class: "tools", "aria-label": `Pages of ${what}` },
  after && h("a", { class: "button", href: "#/plans" }, `First page of ${what}`), next && h("a", { class: "button", href: `#/plans${query(next)}` }, `More ${what}`));

/** A page of the overrides of all rules. */
async function overrides(parameters, again) {
  const [rule, subject] = [parameters.get("after_rule"), parameters.get("after_subject")];
  const data = await get(`/v1/overrides${query({ most: OVERRIDES + 1, after_rule: rule, after: subject })}`);
  const list = data.overrides.slice(0, OVERRIDES), last = list.at(-1);
  return h("section", { class: "card" }, h("h2", null, "Overrides"),
    list.length ? overridesTable(list, again, true)
      : h("p", { class: "quiet" }, rule ? "There are no more." : "No subject has limits of its own. To give one some, look it up here or click on it in Refused; then Override…"),
    pages("overrides", rule, data.overrides.length > OVERRIDES && { after_rule: last.rule, after_subject: last.subject }));
}

export async function show({ parameters, again }) {
  const after = parameters.get("after"), afterBudget = parameters.get("after_budget");
  // The last rule of the page before may be gone meanwhile: begin again.
  const list = (what, most, from) => get(`/v1/rules${query({ with: what, most, after: from })}`).catch((error) => (error.status === 404 && from ? list(what, most) : Promise.reject(error)));
  const [plans, budgets, counted, given] = await Promise.all([list("plans", PAGE + 1, after), list("budget", BUDGETS + 1, afterBudget), list("by", SUBJECTS), overrides(parameters, again)]);
  const parts = [h("h1", null, "Plans, budgets and overrides")];
  if (counted.rules.length) parts.push(lookUp(counted.rules));
  // A page of one list has nothing of the others above it.
  if (parameters.get("after_rule")) return [...parts, given];
  if (!after) {
    parts.push(...(await Promise.all(budgets.rules.slice(0, BUDGETS).map(budget))));
    parts.push(pages("budgets", afterBudget, budgets.rules.length > BUDGETS && { after_budget: budgets.rules[BUDGETS - 1].id }));
  }
  if (afterBudget) return parts.filter(Boolean);
  parts.push(...plans.rules.slice(0, PAGE).map(planCard));
  if (!plans.rules.length && !budgets.rules.length)
    parts.push(empty("There is no plan and no shared budget yet", h("p", null, "A rule with plans gives each customer the limits of what they have bought; a rule that counts all requests together for a day or a month is a budget."),
      h("p", null, h("a", { href: "#/rules" }, "Write one in Rules"))));
  parts.push(pages("plans", after, plans.rules.length > PAGE && { after: plans.rules[PAGE - 1].id }));
  return [...parts, given].filter(Boolean);
}
