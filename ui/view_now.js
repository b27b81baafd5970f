// The first view: live figures and counts over time of passed and refused requests, and problems.
import { get } from "./api.js";
import { chart, spark } from "./chart.js";
import { allCounts, counted, RANGES, rates, ruleCounts, startOf, sum } from "./counts.js";
import { empty, h, table } from "./dom.js";
import { ago, instant, number, plural, problemRows, rate, share } from "./format.js";
import { listen } from "./live.js";
import { choice, ruleLink, throttleButton } from "./parts.js";

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
  const showRates = (rates) => {
    put(parts.passed, rate(rates.passed), "a second");
    put(parts.refused, rate(rates.refused), "a second");
    put(parts.shadow, rate(rates.shadow), "a second, shadow rules");
    put(parts.errors, rate(rates.errors), "decisions a second without the store", rates.errors > 0);
  };
  const show = (event) => {
    // The first event has counted for no time: what is known of before is left.
    if (event.interval_s > 0) {
      const n = event.decisions, second = (count) => count / event.interval_s;
      showRates({ passed: second(n.allowed), refused: second(n.refused), shadow: second(n.shadow), errors: second(event.errors) });
    }
    put(parts.table, share(event.table.fill), "of the cells are in use", event.table.fill > 0.9);
    if (event.store) put(parts.store, event.store.up ? "up" : "down", event.store.up ? `${number(event.store.lease_tokens_held)} tokens leased` : event.store.problem ?? "", !event.store.up);
    else put(parts.store, "none", "all rules count on this host");
    put(parts.holds, number(event.holds), "requests and reservations that are not over");
  };
  return { element: h("section", { class: "tiles", "aria-label": "Now" }, Object.values(parts).map((one) => one.element)), show, showRates };
}

/** The problems that an event of the live figures reports. `status` has the addresses. */
function problems({ rules, store, table }, status) {
  const bad = rules.problem_count;
  return [
    !rules.source_reachable && [`The source of the rules (${status.source.address}) is unreachable: ${rules.source_problem}. The last good rules are in force.`],
    bad && [`${problemRows(bad)}; the last good versions are in force. `, h("a", { href: "#/rules?state=bad" }, "Show them")],
    store && !store.up && [`The store (${status.store?.address}) does not answer: ${store.problem}. Rules follow their on_store_failure.`],
    table.drops_at_limit && [`${number(table.drops_at_limit)} subjects were forgotten although they were at their limit: the table is too small (option cells-keys).`],
  ].filter(Boolean).map((parts) => h("p", { class: "banner" }, parts));
}

/** The head and the problems, which follow the events. Screen readers hear of a problem once, whatever its figures become. */
function state(status) {
  const line = h("span", { class: "quiet" }), list = h("div", { class: "content" }), aloud = h("div", { class: "unseen", role: "status" });
  let said = "", heard = "";
  let rules = null;
  const tick = () => rules !== null && (line.textContent = `weir ${status.version}, started ${ago(status.started)} · ${plural(rules, "rule", "rules")}`);
  return {
    line, list, aloud, tick,
    setStatus: (next) => (status = next),
    show: (event) => {
      rules = event.rules.count;
      tick();
      const found = problems(event, status), text = found.map((one) => one.textContent).join("\n");
      list.hidden = found.length === 0;
      // Controls that the user is about to use stay where they are.
      if (text !== said && !list.contains(document.activeElement)) list.replaceChildren(...found), (said = text);
      if (text.replace(/\d/g, "") !== heard.replace(/\d/g, "")) aloud.textContent = heard = text;
    },
  };
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
    h("p", { class: "quiet" }, `${sum(data.all.allowed) === null ? "Nothing was counted in this time." : `${number(sum(data.all.allowed))} passed, ${number(sum(data.all.refused))} refused.`} ${data.since ? `Counted since ${instant(data.since)}.` : ""}`));
  if (open) place.querySelector("details").open = true;
  if (focused) place.querySelector("summary")?.focus();
  return data;
}

/** The rates of the newest step that is complete enough. */
function newest(data) {
  const last = (counts) => rates(data, counts).filter((one) => one !== null).at(-1) ?? 0;
  return { passed: last(data.all.allowed), refused: last(data.all.refused), shadow: last(data.all.shadow), errors: last(data.all.errors) };
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

/** A decision to try, as the start prints it. */
function tryIt({ listeners: { http } }) {
  if (!http || http === "off") return null;
  const isFile = http.startsWith("unix:"), address = isFile ? "http://localhost" : `http://${http.replace(/^(\[::\]|0\.0\.0\.0):/, "127.0.0.1:")}`;
  return [h("p", null, "To try one, on the host of weir:"),
    h("pre", { class: "scroll", tabindex: "0", role: "region", "aria-label": "A command to try" }, `curl -i ${isFile ? `--unix-socket ${http.slice(5)} ` : ""}${address}/v1/check -H 'Content-Type: application/json' -d '{"event": "ocr", "key": "u1"}'`)];
}

async function busiest(place, recent, current, status) {
  const rules = recent.rules(), seconds = recent.seconds(), second = (count) => rate(count / seconds);
  const counts = await ruleCounts(rules.map((one) => one.rule), RANGES[0], "1m").catch(() => new Map());
  // Controls that the user is about to use stay where they are.
  if (!current() || place.contains(document.activeElement) || place.querySelector("button:hover, a:hover")) return;
  place.replaceChildren(rules.length
    ? table("Busiest rules", ["rule", { text: "passed a second", class: "figure" }, { text: "refused a second", class: "figure" }, "passed, an hour", "refused, an hour", { text: "", class: "tight" }], rules.map((one) => {
      const own = counts.get(one.rule);
      return [ruleLink(one.rule), second(one.passed), h("span", null, second(one.refused), one.would_refuse ? h("small", null, ` + ${second(one.would_refuse)} would be`) : null),
        own ? spark(own.passed, `passed in an hour: ${counted(sum(own.passed))}`) : "", own ? spark(own.refused, `refused in an hour: ${counted(sum(own.refused))}`, "refused") : "",
        throttleButton({ rule: one.rule }) || ""];
    }), { class: "cards" })
    : empty("Nothing is asked at the moment", h("p", null, "As soon as programs ask weir for decisions, the busiest rules of the last minute are here."), tryIt(status), h("p", null, h("a", { href: "#/rules" }, "Look at the rules"))));
}

export async function show({ parameters, current, onLeave }) {
  const status = await get("/v1/status");
  const range = RANGES.find((one) => one.key === parameters.get("range")) ?? RANGES[0];
  const now = tiles(), plot = h("div", { class: "plot-place" }), rules = h("div"), recent = recentRules();
  const later = (f) => f.catch((error) => current() && plot.replaceChildren(h("p", { class: "banner" }, error.message)));
  const drawn = await later(drawChart(plot, range, current)), about = state(status);
  if (drawn?.all) now.showRates(newest(drawn));
  const timer = setInterval(() => later(drawChart(plot, range, current)), range.key === "hour" ? 10000 : 60000);
  let drawnAt = 0;
  const end = listen((event, isFirst) => {
    // After a restart it may be another weir.
    if (isFirst) get("/v1/status").then(about.setStatus, () => {});
    about.show(event);
    now.show(event);
    recent.add(event);
    if (Date.now() - drawnAt < 3000) return;
    drawnAt = Date.now();
    busiest(rules, recent, current, status);
  });
  onLeave(end);
  const ticking = setInterval(about.tick, 1000);
  onLeave(() => (clearInterval(timer), clearInterval(ticking)));
  return [
    h("div", { class: "head" }, h("h1", null, "Now"), about.line),
    about.list, about.aloud, now.element,
    h("section", { class: "card" }, h("div", { class: "head" }, h("h2", null, "Requests"), choice("Time", RANGES, range.key, (one) => (location.hash = `#/?range=${one.key}`))), plot),
    h("section", { class: "card" }, h("h2", null, "Busiest rules", h("small", null, " of the last minute")), rules),
  ];
}
