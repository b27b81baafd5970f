// All rules: what each says, what it does, and who changed it last.
import { get, mayChange, query } from "./api.js";
import { counted, RANGES, ruleCounts, sum } from "./counts.js";
import { button, empty, h, table } from "./dom.js";
import { ago, number, problemRows } from "./format.js";
import { edit } from "./edit.js";
import { byText, callOf, pill, readOnlyNote, ruleLink, throttle, throttleButton } from "./parts.js";
import { spark } from "./chart.js";

const PAGE = 50, DAY = { ...RANGES[1], step: "30m" };
const STATES = ["", "enforce", "shadow", "disabled", "off", "expired", "bad"];

function line(row, counts, overridden) {
  const own = counts?.get(row.id), passed = sum(own?.passed), refused = sum(own?.refused), would = sum(own?.would_refuse);
  return [
    h("span", null, ruleLink(row.id), h("br"), pill(row.state), overridden.has(row.id) && [" ", h("span", { class: "pill", title: "Some subjects have limits of their own." }, "overrides")], row.problems.length ? h("p", { class: "error" }, row.problems[0]) : null),
    h("span", null, row.limits ?? "", h("br"), h("small", null, byText(row))),
    own ? h("span", null, spark(own.passed, `passed in a day: ${counted(passed)}`), h("small", null, counted(passed))) : "",
    own ? h("span", null, spark(would ? own.would_refuse : own.refused, would ? `would have been refused in a day: ${counted(would)}` : `refused in a day: ${counted(refused)}`, would ? "shadow" : "refused"),
      h("small", null, would ? `${number(would)} would be` : counted(refused))) : "",
    row.updated_at ? h("span", null, ago(row.updated_at), h("br"), h("small", null, row.updated_by)) : "",
    throttleButton(callOf(row.rule), "small", row.id) || "",
  ];
}

/** The problems of rows of the source: rules, overrides and settings. */
async function problems(open) {
  const { problem_count: count, problems: list } = (await get("/v1/status")).rules;
  return count > 0 && h("details", { class: "banner", open },
    h("summary", null, `${problemRows(count)}; the last good versions are in force.`),
    h("ul", null, list.slice(0, PAGE).map((one) => h("li", null, [one.table, one.row, one.text].filter(Boolean).join(": ")))),
    count > Math.min(PAGE, list.length) && h("p", null, `and ${number(count - Math.min(PAGE, list.length))} more`));
}

export async function show({ parameters, again }) {
  const q = parameters.get("q") ?? "", state = parameters.get("state") ?? "", after = parameters.get("after") ?? "";
  const ask = () => get(`/v1/rules${query({ most: PAGE + 1, after, q, state })}`);
  // The last rule of the page before may be gone meanwhile: begin again.
  const data = await ask().catch((error) => (error.status === 404 && after ? (location.replace(`#/rules${query({ q, state })}`), { rules: [], count: 0 }) : Promise.reject(error)));
  const more = data.rules.length > PAGE;
  data.rules = data.rules.slice(0, PAGE);
  const counts = await ruleCounts(data.rules.map((row) => row.id), DAY).catch(() => null);
  // The first thousand overrides are enough here: the view of a rule lists all of its own.
  const overridden = new Set((await get("/v1/overrides?most=1000").catch(() => ({ overrides: [] }))).overrides.map((one) => one.rule));
  const go = (more) => (location.hash = `#/rules${query({ q, state, ...more })}`);
  const search = h("input", { type: "search", value: q, "aria-label": "Search rules", placeholder: "id, path, event, limit" });
  const filter = h("select", { "aria-label": "State", onchange: () => go({ state: filter.value }) },
    STATES.map((one) => h("option", { value: one }, one || "every state")));
  filter.value = state;
  const head = h("div", { class: "head" },
    h("h1", null, "Rules", h("small", null, ` ${number(data.count)}`)),
    h("form", { class: "tools", role: "search", onsubmit: (event) => (event.preventDefault(), go({ q: search.value })) }, search, filter),
    h("div", { class: "tools" },
      mayChange() && button("Throttle a call…", async () => (await throttle()) && again(), { class: "main" }),
      mayChange() && button("New rule…", async () => (await edit(null)) && again())));
  const notes = [];
  if (data.read_only) notes.push(readOnlyNote());
  if (data.problem_count) notes.push(await problems(state === "bad"));
  if (!data.rules.length)
    return [head, ...notes.filter(Boolean), q || state
      ? empty("No rule matches", h("p", null, h("a", { href: "#/rules" }, "Show all rules")))
      : empty("There is no rule yet", h("p", null, "A rule limits some requests: by user, by address, or all together. Begin with a call that you want to slow down."),
        mayChange() && h("div", { class: "tools" }, button("Throttle a call…", async () => (await throttle()) && again(), { class: "main" }), button("New rule…", async () => (await edit(null)) && again())))];
  const last = data.rules.at(-1).id;
  return [head, ...notes.filter(Boolean),
    h("div", { class: "card" }, table("Rules", ["rule", "limits", "passed, a day", "refused, a day", "changed", { text: "", class: "tight" }], data.rules.map((row) => line(row, counts, overridden)), { class: "cards" })),
    h("nav", { class: "tools", "aria-label": "Pages" },
      after && h("a", { class: "button", href: `#/rules${query({ q, state })}` }, "First page"),
      more && h("a", { class: "button", href: `#/rules${query({ q, state, after: last })}` }, "Next page"))];
}
