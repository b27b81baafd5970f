// Why is a request refused, or not? Each rule says whether it applies, and what is used.
import { get, query } from "./api.js";
import { empty, field, h, table } from "./dom.js";
import { instant, number } from "./format.js";
import { limits, penaltyWords, pill, ruleLink, subjectLink, throttleButton } from "./parts.js";

const ATTRIBUTES = [["method", "GET"], ["path", "/entity/42"], ["host", "api.example.com"], ["ip", "203.0.113.9"], ["user", ""], ["event", "ocr"], ["key", "u1"], ["domain", ""], ["cost", "1"]];

const OTHERS_MAX = 100;

function explained(rule) {
  return h("section", { class: "card" },
    h("div", { class: "head" }, h("h2", null, ruleLink(rule.id), " ", pill(rule.mode)),
      h("span", null, rule.by.length ? subjectLink(rule.id, rule.by, false, rule.plan) : "all together", rule.plan ? ` · plan ${rule.plan}` : "", rule.override ? " · has an override" : ""), throttleButton({ rule: rule.id, by: rule.by[0]?.name })),
    rule.penalty?.penalised ? h("p", { class: "banner" }, penaltyWords(rule.penalty)) : null,
    limits(rule.limits, rule.id));
}

function verdict(data) {
  const v = data.verdict;
  return h("p", { class: v.allowed ? "banner mild" : "banner", role: "status" }, h("strong", null, v.allowed ? "It would pass" : "It would be refused"),
    v.allowed ? "." : `${data.text.startsWith("refused") ? data.text.slice("refused".length) : `: ${data.text}`}.`);
}

/** The rules that do not apply, asked for when somebody wants them. */
function others(request, count) {
  const place = h("div");
  const open = async () => {
    if (place.childElementCount) return;
    const data = await get(`/v1/explain?${request}`);
    const rules = data.rules.filter((rule) => !rule.applies);
    place.append(table("Rules that do not apply", ["rule", "why not", { text: "", class: "tight" }],
      rules.slice(0, OTHERS_MAX).map((rule) => [ruleLink(rule.id), rule.text ?? rule.reason, throttleButton({ rule: rule.id }) || ""])));
    if (rules.length > OTHERS_MAX) place.append(h("p", { class: "quiet" }, `and ${rules.length - OTHERS_MAX} more`));
  };
  return h("details", { class: "card", ontoggle: () => open().catch((error) => place.replaceChildren(h("p", { class: "error" }, error.message))) },
    h("summary", null, `${count} rules do not apply`), place);
}

/** The call of a refusal: the request itself, if it is whole and has one; else that of the rule. */
const callOfRequest = ({ request, request_cut: cut, rule, by }) =>
  ({ ...(request && !cut && (request.event || request.path) ? { event: request.event, method: request.method, path: request.path } : { rule }), by: by[0]?.name });

async function recent(asked) {
  const data = await get("/v1/refusals?most=20&group=1").catch(() => null);
  if (!data) return null;
  return h("section", { class: "card" }, h("h2", null, "Recent refusals"),
    data.refusals.length
      ? table("Recent refusals", ["when", "rule", "whom", "what", { text: "", class: "tight" }], data.refusals.map((one) => [
        h("span", null, instant(one.time), one.count > 1 ? h("small", null, ` ${number(one.count)} since ${instant(one.first)}`) : null), one.rule ? h("span", null, ruleLink(one.rule), one.shadow ? h("small", null, " only counted (shadow)") : null) : one.reason,
        one.rule ? h("span", null, subjectLink(one.rule, one.by, one.cut, one.plan), one.plan ? h("small", null, ` plan ${one.plan}`) : null) : "", [one.request?.event, one.request?.method, one.request?.path].filter(Boolean).join(" "),
        h("span", { class: "tools" }, one.request && h("a", { class: "button small", href: `#/why${query({ ...one.request, refused_by: one.rule })}` }, "Why?"),
          throttleButton(callOfRequest(one))),
      ]), { class: "cards" })
      : h("p", { class: "quiet" }, `No refused request is known. ${asked ? "" : "Type a request above to see how the rules would judge it."}`));
}

export async function show({ parameters }) {
  const controls = Object.fromEntries(ATTRIBUTES.map(([name, example]) => [name, h("input", { placeholder: example, value: parameters.get(name) ?? "", spellcheck: "false" })]));
  const headers = h("textarea", { rows: "2", placeholder: "X-Plan: free", spellcheck: "false", value: parameters.getAll("header").join("\n") });
  const entries = h("textarea", { rows: "2", placeholder: "plan=free", spellcheck: "false", value: parameters.getAll("descriptor").join("\n") });
  const refusedBy = parameters.get("refused_by"), request = new URLSearchParams(parameters);
  request.delete("refused_by");
  const asked = [...request.keys()].length > 0;
  const send = (event) => {
    event.preventDefault();
    const values = Object.fromEntries(Object.entries(controls).map(([name, control]) => [name, control.value.trim()]));
    location.hash = `#/why${query({ ...values, header: headers.value.split("\n").map((one) => one.trim()).filter(Boolean), descriptor: entries.value.split("\n").filter(Boolean) })}`;
  };
  const form = h("form", { class: "card", onsubmit: send }, h("div", { class: "row" }, ATTRIBUTES.map(([name]) => field(name, controls[name]))),
    field("Headers", headers, "One a line."), field("Descriptor", entries, "One entry a line, in order."), h("div", { class: "actions" }, h("button", { type: "submit", class: "main" }, "Explain")));
  const parts = [h("h1", null, "Why"), form];
  if (asked) {
    const data = await get(`/v1/explain?${request}&applies=1`).catch((error) => error);
    if (!data.rules) parts.push(h("p", { class: "banner" }, data.message, data.hint ? `: ${data.hint}` : ""));
    else {
      const applied = data.rules;
      if (refusedBy && !applied.some((rule) => rule.id === refusedBy))
        parts.push(h("p", { class: "banner" }, `${refusedBy} refused the request, and does not apply to what weir has kept of it: add the headers that the rule uses. weir keeps no headers.`));
      parts.push(verdict(data), ...applied.map(explained));
      if (!applied.length) parts.push(empty("No rule applies to this request", h("p", null, "So weir lets it pass and counts nothing.")));
      if (data.not_applied) parts.push(others(request, data.not_applied));
    }
  }
  parts.push(await recent(asked));
  return parts.filter(Boolean);
}
