// Would it have…? A candidate rule against the recent past, beside the rules as they are.
import { ask, get } from "./api.js";
import { button, field, h, note, table } from "./dom.js";
import { instant, number, span, subject } from "./format.js";
import { chart } from "./chart.js";

const LOG_MAX = 32 << 20;

function side(name, result) {
  return h("section", { class: "card" }, h("h2", null, name),
    h("p", null, h("strong", null, `${number(result.refused)} refused`), ` of ${number(result.requests)}${result.would_refuse ? `, ${number(result.would_refuse)} would be by shadow rules` : ""}`),
    table(`${name}: by rule`, ["rule", { text: "applied", class: "figure" }, { text: "refused", class: "figure" }, { text: "would refuse", class: "figure" }],
      result.rules.slice(0, 30).map((one) => [one.rule, number(one.applied), number(one.refused), number(one.would_refuse)])),
    result.subjects?.length ? table(`${name}: most refused`, ["whom", "rule", { text: "refused", class: "figure" }], result.subjects.slice(0, 20).map((one) => [subject(one.by), one.rule, number(one.refused)])) : null);
}

function outcome(data) {
  const series = (one, kind, name) => ({ name, kind, values: one.series.refused.map((count) => count / one.series.step_s) });
  return [
    h("p", { class: "banner mild", role: "status" }, h("strong", null, `${number(data.changed.newly_refused)} requests more would be refused, ${number(data.changed.newly_passed)} fewer.`),
      ` ${number(data.now.requests)} requests from ${instant(data.from)} to ${instant(data.to)}; counters begin empty.`),
    data.notes?.map((text) => h("p", { class: "banner mild" }, text)),
    data.now.series?.refused.length > 1 ? h("section", { class: "card" }, chart({ title: "Refused", start: data.now.series.start_s, step: data.now.series.step_s, series: [series(data.now, "passed", "as it is"), series(data.then, "refused", "as it would be")] })) : null,
    h("div", { class: "columns" }, side("As it is", data.now), side("As it would be", data.then)),
    data.changed.examples?.length ? h("section", { class: "card" }, h("h2", null, "The first requests that change"), table("Requests that change", ["when", "request", "now", "then"],
      data.changed.examples.map((one) => [instant(one.at), one.text, one.now, one.then]))) : null,
  ];
}

export async function show() {
  const sample = await get("/v1/sample").catch(() => null);
  const rule = h("textarea", { class: "code", spellcheck: "false", value: sessionStorage.getItem("candidate") ?? "id: candidate\nmatch: { path: /api/* }\nby: [ip]\nlimits: [10 per 1s]\n" });
  const file = h("input", { type: "file" });
  const result = h("div", { class: "content", "aria-live": "polite" }), error = h("p", { class: "error", role: "alert" });
  const known = sample?.requests > 0;
  const state = !sample || !sample.size
    ? "weir keeps no sample of requests: start it with --sample 100000 (values are hashed), or choose an access log."
    : `The sample has ${number(sample.requests)} of the last ${number(sample.seen)} requests${known ? `, of ${span((new Date(sample.to) - new Date(sample.from)) / 1000)}` : ""}; values are ${sample.values === "plain" ? "kept as they were" : "hashed"}.`;
  const run = async () => {
    error.textContent = "";
    result.replaceChildren(h("p", null, "Running…"));
    try {
      const { data: checked } = await ask("POST", "/v1/lint", { body: rule.value, type: "application/yaml" });
      if (!checked.valid) throw new Error(checked.errors.map((one) => `line ${one.line}: ${one.text}`).join("\n"));
      sessionStorage.setItem("candidate", rule.value);
      const body = { rules: [checked.document].flat() };
      if (file.files[0]) {
        if (file.files[0].size > LOG_MAX) throw new Error("The file is larger than 32 MB: use weir simulate for it.");
        body.log = await file.files[0].text();
      }
      const { data } = await ask("POST", "/v1/simulate", { body });
      result.replaceChildren(...outcome(data).flat().filter(Boolean));
    } catch (e) {
      result.replaceChildren();
      error.textContent = e.hint ? `${e.message}: ${e.hint}` : e.message;
    }
  };
  return [
    h("h1", null, "What if"),
    h("section", { class: "card" }, h("p", null, state), field("The rule as it would be", rule, "A rule with an id that exists replaces that rule; another one is added."),
      field("Access log or JSON Lines", file, "Optional: instead of the sample."), error, h("div", { class: "actions" }, button("Run", run, { class: "main" }))),
    result,
  ];
}
