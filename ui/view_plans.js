// Plans, budgets and overrides: what is sold, and how long it will last.
import { get, query } from "./api.js";
import { empty, field, h, table } from "./dom.js";
import { span } from "./format.js";
import { limits, limitWords, pill, throttleButton } from "./parts.js";

const PAGE = 200;
const byOf = (row) => [row.rule?.by ?? []].flat();
/** A limit for a day or longer is a budget. */
const isBudget = (text) => /per (day|week|month|year|\d+d|\d+ days)|24h/.test(text);

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
  const rule = h("select", null, rows.map((row) => h("option", { value: row.id }, `${row.id} (by ${row.by})`)));
  const subject = h("input", { required: true, spellcheck: "false" });
  return h("form", { class: "card", onsubmit: (event) => {
    event.preventDefault();
    const row = rows.find((one) => one.id === rule.value), values = byOf(row).length > 1 ? subject.value.split(",").map((one) => one.trim()) : [subject.value.trim()];
    location.hash = `#/refused/${[rule.value, ...values].map(encodeURIComponent).join("/")}`;
  } }, h("h2", null, "Look up a subject"), h("div", { class: "row" }, field("Rule", rule), field("Subject", subject, "A user, key or address; several values with commas between.")),
  h("div", { class: "actions" }, h("button", { type: "submit", class: "main" }, "Show what is used and left")));
}

export async function show({ parameters }) {
  const data = await get(`/v1/rules${query({ most: PAGE, after: parameters.get("after") })}`);
  const good = data.rules.filter((row) => row.limits !== undefined || row.rule?.plans);
  const plans = good.filter((row) => row.rule?.plans), shared = good.filter((row) => !byOf(row).length && !row.rule?.plans && isBudget(row.limits ?? ""));
  const counted = good.filter((row) => byOf(row).length);
  const parts = [h("h1", null, "Plans and budgets")];
  if (counted.length) parts.push(lookUp(counted));
  for (const row of shared.slice(0, 20)) parts.push(await budget(row));
  parts.push(...plans.map(planCard));
  if (!plans.length && !shared.length)
    parts.push(empty("There is no plan and no shared budget yet", h("p", null, "A rule with plans gives each customer the limits of what they have bought; a rule that counts all requests together for a day or a month is a budget.")));
  if (data.rules.length === PAGE) parts.push(h("a", { class: "button", href: `#/plans${query({ after: data.rules.at(-1).id })}` }, "Next page"));
  return parts;
}
