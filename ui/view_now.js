// What happens now, and what happened: passed, refused, health.
import { get } from "./api.js";
import { chart, spark } from "./chart.js";
import { allCounts, RANGES, rates, ruleCounts, startOf, sum } from "./counts.js";
import { empty, h, table } from "./dom.js";
import { ago, instant, number, rate, share } from "./format.js";
import { listen } from "./live.js";
import { choice, throttleButton } from "./parts.js";

const tile = (kind, name) => {
  const figure = h("strong", null, "–"), below = h("small");
  return { element: h("div", { class: `tile ${kind}` }, h("span", null, name), figure, below), kind, figure, below };
};

function tiles() {
  const parts = {
    passed: tile("passed", "Passed"), refused: tile("refused", "Refused"), shadow: tile("shadow", "Would refuse"), errors: tile("errors", "Errors"),
    table: tile("good", "Table"), store: tile("good", "Store"), holds: tile("good", "In flight"),
  };
  const put = (part, figure, below = "", bad = false) => {
    part.figure.textContent = figure;
    part.below.textContent = below;
    part.element.classList.toggle("bad", bad);
  };
  const show = (event) => {
    const n = event.decisions, second = (count) => rate(event.interval_s ? count / event.interval_s : 0);
    put(parts.passed, second(n.allowed), "a second");
    put(parts.refused, second(n.refused), "a second");
    put(parts.shadow, second(n.shadow), "a second, shadow rules");
    put(parts.errors, second(event.errors), "decisions a second without the store", event.errors > 0);
    put(parts.table, share(event.table.fill), "of the cells are in use", event.table.fill > 0.9);
    if (event.store) put(parts.store, event.store.up ? "up" : "down", event.store.up ? `${number(event.store.lease_tokens_held)} tokens leased` : event.store.problem ?? "", !event.store.up);
    else put(parts.store, "none", "all rules count on this host");
    put(parts.holds, number(event.holds), "holds and slots");
  };
  return { element: h("section", { class: "tiles", "aria-label": "Now" }, Object.values(parts).map((one) => one.element)), show };
}

function problems(status) {
  const list = [];
  if (!status.source.reachable) list.push(`The source of the rules (${status.source.address}) is unreachable: ${status.source.problem}. The last good rules are in force.`);
  if (status.rules.problem_count) list.push(`${status.rules.problem_count} rows of the rules have problems; their last good versions are in force.`);
  if (status.store && !status.store.up) list.push(`The store (${status.store.address}) does not answer: ${status.store.problem}. Rules follow their on_store_failure.`);
  if (status.table.drops_at_limit > 0) list.push(`${number(status.table.drops_at_limit)} subjects were forgotten although they were at their limit: the table is too small (option cells-keys).`);
  return list.map((text) => h("p", { class: "banner" }, text));
}

async function drawChart(place, range, current) {
  const data = await allCounts(range);
  if (!current()) return;
  const series = [
    { name: "passed", kind: "passed", values: rates(data, data.all.allowed) },
    { name: "refused", kind: "refused", values: rates(data, data.all.refused) },
    { name: "would be refused", kind: "shadow", values: rates(data, data.all.shadow) },
    { name: "errors", kind: "errors", values: rates(data, data.all.errors) },
  ].filter((one) => one.kind === "passed" || one.kind === "refused" || sum(one.values) > 0);
  const open = place.querySelector("details")?.open, focused = place.contains(document.activeElement);
  place.replaceChildren(chart({ title: `The last ${range.name.toLowerCase()}`, series, start: startOf(data), step: data.step_s }),
    h("p", { class: "quiet" }, `${number(sum(data.all.allowed))} passed, ${number(sum(data.all.refused))} refused. ${data.since ? `Counted since ${instant(data.since)}.` : ""}`));
  if (open) place.querySelector("details").open = true;
  if (focused) place.querySelector("summary")?.focus();
}

/** The sums of the events of the last minute: what is busy does not flicker. */
function recentRules() {
  let events = [];
  return {
    add: (event) => (events = [...events.filter((one) => new Date(event.time) - new Date(one.time) < 60000), event]),
    seconds: () => events.reduce((all, one) => all + one.interval_s, 0) || 1,
    rules: () => {
      const sums = new Map();
      for (const one of events.flatMap((event) => event.busiest)) {
        const own = sums.get(one.rule) ?? { rule: one.rule, passed: 0, refused: 0, would_refuse: 0 };
        for (const name of ["passed", "refused", "would_refuse"]) own[name] += one[name];
        sums.set(one.rule, own);
      }
      return [...sums.values()].sort((a, b) => b.passed + b.refused + b.would_refuse - (a.passed + a.refused + a.would_refuse)).slice(0, 10);
    },
  };
}

async function busiest(place, recent, current) {
  const rules = recent.rules(), seconds = recent.seconds(), second = (count) => rate(count / seconds);
  const counts = await ruleCounts(rules.map((one) => one.rule), RANGES[0], "1m").catch(() => new Map());
  // What somebody is about to use stays where it is.
  if (!current() || place.contains(document.activeElement) || place.querySelector("button:hover, a:hover")) return;
  place.replaceChildren(rules.length
    ? table("Busiest rules", ["rule", { text: "passed a second", class: "figure" }, { text: "refused a second", class: "figure" }, "passed, an hour", "refused, an hour", { text: "", class: "tight" }], rules.map((one) => {
      const own = counts.get(one.rule);
      return [h("a", { href: `#/rule/${encodeURIComponent(one.rule)}` }, one.rule), second(one.passed), h("span", null, second(one.refused), one.would_refuse ? h("small", null, ` + ${second(one.would_refuse)} would be`) : null),
        own ? spark(own.passed, `${number(sum(own.passed))} passed in an hour`) : "", own ? spark(own.refused, `${number(sum(own.refused))} refused in an hour`, "refused") : "",
        throttleButton({ rule: one.rule }) || ""];
    }), { class: "cards" })
    : empty("Nothing is asked at the moment", h("p", null, "As soon as programs ask weir for decisions, the busiest rules of the last minute are here."), h("p", null, h("a", { href: "#/rules" }, "Look at the rules"))));
}

export async function show({ parameters, current, onLeave }) {
  const status = await get("/v1/status");
  const range = RANGES.find((one) => one.key === parameters.get("range")) ?? RANGES[0];
  const now = tiles(), plot = h("div", { class: "plot-place" }), rules = h("div"), recent = recentRules();
  const later = (f) => f.catch((error) => current() && plot.replaceChildren(h("p", { class: "banner" }, error.message)));
  await later(drawChart(plot, range, current));
  const timer = setInterval(() => later(drawChart(plot, range, current)), range.key === "hour" ? 10000 : 60000);
  let drawnAt = 0;
  const end = listen((event) => {
    now.show(event);
    recent.add(event);
    if (Date.now() - drawnAt < 3000) return;
    drawnAt = Date.now();
    busiest(rules, recent, current);
  });
  onLeave(end);
  onLeave(() => clearInterval(timer));
  return [
    h("div", { class: "head" }, h("h1", null, "Now"), h("span", { class: "quiet" }, `weir ${status.version}, started ${ago(status.started)} · ${number(status.rules.count)} rules`)),
    ...problems(status), now.element,
    h("section", { class: "card" }, h("div", { class: "head" }, h("h2", null, "Requests"), choice("Time", RANGES, range.key, (one) => (location.hash = `#/?range=${one.key}`))), plot),
    h("section", { class: "card" }, h("h2", null, "Busiest rules", h("small", null, " of the last minute")), rules),
  ];
}
