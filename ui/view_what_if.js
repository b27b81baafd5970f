// Would it have…? A candidate rule against the recent past, beside the rules as they are.
import { ask, get, mayChange, path } from "./api.js";
import { edit, resume, unfinished } from "./edit.js";
import { button, field, h, table } from "./dom.js";
import { brief, errorText, instant, number, span } from "./format.js";
import { callOf, ruleLink, throttleButton } from "./parts.js";
import { chart } from "./chart.js";

const LOG_MAX = 24 << 20; // as JSON it is longer
const TOO_LONG = "The log is longer than 24 MB: use weir simulate for it.";
const FIRST = "id: candidate\nmatch: { path: /api/* }\nby: [ip]\nlimits: [10 per 1s]\n";

const whom = (by) => Object.entries(by).map(([name, value]) => `${name}=${value}`).join(", ") || "everybody";

/** The call of a rule: of the candidate, whatever it says, or of the rule in force. */
const callOfRule = (id, candidates) => {
  const found = candidates.find((one) => one.id === id);
  return found ? callOf(found) : { rule: id };
};

function side(name, replay, candidates) {
  const rules = replay.rules.filter((one) => one.requests > 0);
  const subjects = rules.flatMap((one) => one.subjects.map((subject) => ({ ...subject, rule: one.id }))).sort((a, b) => b.refused - a.refused);
  const link = (id) => (candidates.some((one) => one.id === id) ? id : ruleLink(id));
  const throttle = (id) => throttleButton(callOfRule(id, candidates), "small", id) || "";
  return h("section", { class: "card" }, h("h2", null, name),
    h("p", null, h("strong", null, `${number(replay.refused)} refused`), ` of ${number(replay.requests)}`),
    table(`${name}: by rule`, ["rule", { text: "applied", class: "figure" }, { text: "refused", class: "figure" }, { text: "would refuse", class: "figure" }, { text: "", class: "tight" }],
      rules.slice(0, 30).map((one) => [link(one.id), number(one.requests), number(one.refused), number(one.would_refuse), throttle(one.id)]), { class: "cards" }),
    subjects.length ? table(`${name}: most refused`, ["most refused", "rule", { text: "refused", class: "figure" }, { text: "", class: "tight" }],
      subjects.slice(0, 10).map((one) => [brief(whom(one.by)), link(one.rule), number(one.refused), throttle(one.rule)]), { class: "cards" }) : null);
}

const ATTRIBUTES = ["event", "method", "path", "host", "user", "key", "ip", "client"];
const said = (verdict) => (verdict.allowed ? "passes" : `refused by ${verdict.rule ?? "no rule"}${verdict.limit ? `, ${verdict.limit}` : ""}`);

/** Notes on what the answer does not know exactly. */
function notes(input) {
  const list = [];
  if (!input.complete) list.push(`It stopped after ${number(input.replayed)} requests: ${input.stopped}.`);
  for (const one of input.not_judged ?? []) list.push(`${one.rule} is left out: ${one.why}.`);
  for (const one of input.missing_headers ?? []) list.push(`${number(one.requests)} requests were sampled before the header ${one.header} was.`);
  if (input.bad_lines) list.push(`${number(input.bad_lines)} lines of the log were skipped: ${input.bad.map((one) => `line ${one.line}: ${one.why}`).join("; ")}${input.bad_lines > input.bad.length ? "; …" : ""}`);
  if (input.cut) list.push(`${number(input.cut)} requests had values that were too long to be kept whole.`);
  return list.map((text) => h("p", { class: "banner mild" }, text));
}

function outcome({ input, now, then, changed }, candidates) {
  const drawn = now.over_time && then.over_time && now.over_time.refused.length > 1;
  const series = (one, kind, name) => ({ name, kind, values: one.over_time.refused.map((count) => (1000 * count) / one.over_time.step_ms) });
  return [
    h("p", { class: "banner mild", role: "status" }, h("strong", null, `${number(changed.to_refused)} more requests would be refused, ${number(changed.to_passed)} more would pass.`),
      ` ${number(now.requests)} requests${now.from ? ` from ${instant(now.from)} to ${instant(now.to)}` : ""}; the counters of both begin empty.`),
    ...notes(input),
    drawn && h("section", { class: "card" }, chart({ title: "Refused", start: new Date(now.over_time.start).getTime() / 1000, step: now.over_time.step_ms / 1000,
      series: [series(now, "passed", "as it is"), series(then, "refused", "as it would be")] })),
    h("div", { class: "columns" }, side("As it is", now, []), side("As it would be", then, candidates)),
    changed.requests.length > 0 && h("section", { class: "card" }, h("h2", null, "The first requests that change"), table("Requests that change", ["when", "request", "as it is", "as it would be", { text: "", class: "tight" }],
      changed.requests.map((one) => [instant(one.t), brief(ATTRIBUTES.map((name) => one[name]).filter(Boolean).join(" ")), said(one.now), said(one.then),
        throttleButton(input.values === "hashed" ? callOfRule(one.then.rule ?? one.now.rule, candidates) : { event: one.event, method: one.method, path: one.path }) || ""]), { class: "cards" })),
  ].filter(Boolean);
}

async function logText(file) {
  if (file.size > LOG_MAX) throw new Error(TOO_LONG);
  const stream = file.name.endsWith(".gz") ? file.stream().pipeThrough(new DecompressionStream("gzip")) : file.stream();
  const text = await new Response(stream).text();
  if (text.length > LOG_MAX) throw new Error(TOO_LONG);
  return text;
}

function sampleText(sample) {
  if (!sample?.size) return "weir keeps no sample of requests: start it with the option --sample 100000 (values are hashed), or choose an access log below.";
  const time = sample.from ? `, of the last ${span((Date.now() - new Date(sample.from)) / 1000)}` : "";
  return `The sample has ${number(sample.requests)} requests${time}; it has room for ${number(sample.size)}, in memory only. Its values are ${sample.values === "plain" ? "kept as they were" : "hashed"}.`;
}

export async function show() {
  const sample = await get("/v1/sample");
  const rule = h("textarea", { class: "code short", spellcheck: "false" });
  rule.value = sessionStorage.getItem("candidate") ?? FIRST;
  const file = h("input", { type: "file" });
  const result = h("div", { class: "content", "aria-live": "polite" }), error = h("p", { class: "error", role: "alert" });
  const run = async () => {
    error.textContent = "";
    result.replaceChildren(h("p", null, "Running…"));
    try {
      const { data: checked } = await ask("POST", "/v1/lint", { body: rule.value, type: "application/yaml" });
      if (!checked.valid) throw new Error(checked.errors.map((one) => (one.line ? `line ${one.line}: ${one.text}` : one.text)).join("\n"));
      sessionStorage.setItem("candidate", rule.value);
      const body = { rules: checked.document.rules ?? [checked.document].flat(), top: 10 };
      if (file.files[0]) {
        body.log = await logText(file.files[0]);
        body.input = body.log.trimStart().startsWith("{") ? "json" : "combined";
      } else body.input = "sample";
      const { data } = await ask("POST", "/v1/simulate", { body });
      result.replaceChildren(...outcome(data, body.rules), mayChange() ? h("div", { class: "actions" }, button("Edit and save this rule…", () => save(body.rules[0]), { class: "main" })) : "");
    } catch (e) {
      result.replaceChildren();
      error.textContent = errorText(e);
    }
  };
  // The rule is shown once it is saved; until then the way back stays.
  const back = async () => {
    const id = await resume(unfinished.get());
    if (id) location.hash = `#/rule/${encodeURIComponent(id)}`;
  };
  const drop = () => (unfinished.drop(), left.remove());
  const waiting = unfinished.get();
  const left = waiting && mayChange() && h("div", { class: "banner mild head" }, h("span", null, `Your edit of ${waiting.id} is not saved.`),
    h("span", { class: "tools" }, button("Back to my edit", back, { class: "main" }), button("Drop it", drop)));
  const save = async (candidate) => {
    const row = await get(path("rules", candidate.id)).catch((e) => (e.status === 404 ? null : Promise.reject(e)));
    const id = await edit(row, candidate);
    if (id) location.hash = `#/rule/${encodeURIComponent(id)}`;
  };
  return [
    h("h1", null, "What if"), left || "",
    h("section", { class: "card" }, h("p", null, sampleText(sample)), field("The rule as it would be", rule, "A rule with an id that exists replaces that rule; another one is added."),
      field("Access log or JSON Lines", file, "Optional: instead of the sample. A .gz file is unpacked here."), error, h("div", { class: "actions" }, button("Run", run, { class: "main" }))),
    result,
  ];
}
