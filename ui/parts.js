// Parts that several views share.
import { ask, get, may, mayChange, path, query, session } from "./api.js";
import { button, dialog, field, fieldError, h, note, table } from "./dom.js";
import { ago, brief, errorText, instant, inZone, number, share, span, subject, zoneOf } from "./format.js";
import { difference, yaml } from "./text.js";

/** "GET /a · by user": which requests, and how they are counted. */
export const byText = (row) => `${row.match ?? ""} · ${[row.rule?.by ?? []].flat().length ? `by ${row.by}` : "all together"}`;
export const pill = (state) => h("span", { class: `pill ${state}` }, state);

/** Names under which weir counts what no rule decides: there is nothing to show of them. */
const isNoRule = (id) => id === "(cl.throttle)" || id === "(other)";

/** The difference of two documents, as YAML. */
export function diff(before, after) {
  const lines = difference(before === null ? "" : yaml(before), after === null ? "" : yaml(after));
  const mark = { same: " ", added: "+", removed: "-" };
  if (lines.every((line) => line.kind === "same")) return h("p", { class: "quiet" }, "Nothing changes: both say the same.");
  return h("pre", { class: "diff", tabindex: "0", role: "region", "aria-label": "Difference" },
    lines.map((line) => h("span", { class: line.kind }, `${mark[line.kind]} ${line.text}`)));
}

/** Does it, and complains if it fails. Returns whether it was done. */
export async function attempt(action, done) {
  try {
    await action();
    if (done) note(done);
    return true;
  } catch (error) {
    note(errorText(error), "bad");
    return false;
  }
}

/** A choice of one of some: buttons in a row. */
export function choice(label, options, chosen, choose) {
  return h("div", { class: "choice", role: "group", "aria-label": label },
    options.map((one) => h("button", { type: "button", "aria-pressed": String(one.key === chosen), onclick: () => choose(one) }, one.name)));
}

/** How full a limit is. */
function meter(used, max) {
  const part = max > 0 ? Math.min(1, used / max) : 1;
  const fill = h("span");
  fill.style.width = `${(part * 100).toFixed(1)}%`;
  return h("div", { class: part >= 1 ? "meter full" : "meter", role: "img", "aria-label": `${share(part)} used` }, fill);
}

/** An instant in the viewer's zone, and in that of the rule if it is another one. */
export function when(value, zone) {
  return h("time", { datetime: value, title: value }, instant(value), inZone(value, zone) && h("small", null, ` (${inZone(value, zone)})`));
}

/** The limits of a subject or of an explained rule. */
export function limits(list, rule) {
  const rows = list.map((limit) => [
    h("span", null, limit.text ?? limit.name, limit.name && limit.text ? h("small", null, ` ${limit.name}`) : null),
    limit.known === false ? "unknown: the store does not answer" : h("span", null, meter(limit.used, limit.max),
      `${number(limit.used)} of ${number(limit.max)}${limit.unit ? ` ${limit.unit}` : ""} used`, limit.on_hold ? `, ${number(limit.on_hold)} of it on hold` : "",
      limit.held ? `, ${number(limit.held)} lent to this host` : "", limit.debt ? `, ${number(limit.debt)} owed` : ""),
    number(limit.remaining),
    limit.window_ends ? when(limit.window_ends, zoneOf(limit.text)) : limit.reset_ms > 0 ? `in ${span(limit.reset_ms / 1000)}` : "–",
    limit.retry_after_ms > 0 ? `retry in ${span(limit.retry_after_ms / 1000)}` : limit.lasts_ms > 0 ? `lasts ${span(limit.lasts_ms / 1000)} at this pace` : limit.fits === false ? "full" : "",
  ]);
  return table(`Limits of ${rule}`, ["limit", "used", { text: "left", class: "figure" }, "resets", "pace"], rows, { class: "cards" });
}

/** Limits as a rule has them, in words: "100 per day, 20 tokens per 1h". */
export const limitWords = (list) =>
  [list ?? []].flat().map((limit) =>
    typeof limit === "string" ? limit
      : limit.concurrent !== undefined ? `${limit.concurrent} at the same time`
        : `${number(limit.max)}${limit.unit ? ` ${limit.unit}` : ""} per ${limit.per ?? limit.calendar ?? ""}${/^\d/.test(limit.calendar) ? " calendar" : ""}${limit.tz ? ` (${limit.tz})` : ""}`).join(", ");

// ---- throttling a call ----

const LENGTHS = [["1s", "second"], ["1m", "minute"], ["1h", "hour"], ["1d", "day (24 hours)"]];
const SECONDS = { "1s": 1, "1m": 60, "1h": 3600, "1d": 86400 };
/** The placeholders of a path. */
export const PATH_HINT = "# is one id: digits, or a UUID (unless the setting ids says otherwise). {name} is any one segment; * at the end is the rest, of any length.";
/** How a limit that refills counts. */
const refills = (max, per) => !(max >= 0) ? "" : max === 0 ? "0 refuses everything." : `A token bucket: ${number(max)} at once, then one more every ${span(SECONDS[per] / max)}. It does not begin anew at midnight.`;

/** Conditions of a rule, in words: "GET, POST /a, host a.example". */
function matchWords(match) {
  const one = (value) => (typeof value === "string" ? value : Array.isArray(value) ? value.map(one).join(", ")
    : value?.not !== undefined ? `not ${one(value.not)}` : value?.regex !== undefined ? `regex ${value.regex}` : JSON.stringify(value));
  const { method, path, event, ...rest } = match ?? {}, call = [method, path].filter((part) => part != null).map(one).join(" ");
  const words = [event != null && `event ${one(event)}`, call, ...Object.entries(rest).filter(([, value]) => value != null).map(([name, value]) =>
    name === "header" && typeof value === "object" ? Object.entries(value).map(([header, wanted]) => `header ${header}: ${one(wanted)}`).join(", ") : `${name} ${one(value)}`)];
  return words.filter(Boolean).join("; ") || "anything";
}

/** The call that a rule is for. */
export const callOf = (rule) => ({ match: typeof rule === "object" ? rule?.match : undefined, by: [rule?.by ?? []].flat()[0] });

/** Whether the form can show it: an event, or a method and a path. */
const isSimple = (match) => {
  const names = Object.keys(match ?? {});
  return names.every((name) => ["event", "method", "path"].includes(name) && typeof match[name] === "string") && !(match?.event && names.length > 1);
};
const WHOM = [["user", "each user"], ["ip", "each address"], ["key", "each key"], ["", "everybody together"]];

/** A short name of what the throttle is for: another call, or another way to count it, has another one. */
function throttleId(rule) {
  let hash = 2166136261;
  for (const byte of new TextEncoder().encode(JSON.stringify([rule.match, rule.by ?? []]))) hash = Math.imul(hash ^ byte, 16777619) >>> 0;
  const words = [rule.match.event ?? [rule.match.method ?? [], rule.match.path ?? []].flat(2).join("-")].map((one) => (typeof one === "string" ? one : "")).join("-");
  const slug = words.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 40);
  return `throttle-${slug || "call"}-${hash.toString(36)}`;
}

/** A rule for one call, from what is known of it: {match, by}, {event, method, path, by}, or {rule}: the call of that rule. */
export async function throttle(known = {}) {
  if (known.rule) known = { not_only: known.not_only, ...callOf((await get(path("rules", known.rule)).catch(() => null))?.rule), ...(known.by ? { by: known.by } : {}) };
  const given = known.match ?? (known.event ? { event: known.event } : { method: known.method, path: known.path });
  const simple = isSimple(JSON.parse(JSON.stringify(given ?? {})));
  const max = h("input", { type: "number", min: "0", max: "9007199254740991", value: "10", required: true });
  const per = h("select", null, LENGTHS.map(([value, name]) => h("option", { value }, name)));
  per.value = "1m";
  const whoms = WHOM.some(([value]) => value === (known.by ?? "")) ? WHOM : [[known.by, `each ${known.by}`], ...WHOM];
  const whom = h("select", null, whoms.map(([value, name]) => h("option", { value }, name)));
  whom.value = known.by ?? "";
  const what = h("input", { value: given.event ?? [given.method, given.path].filter(Boolean).join(" "), required: true, spellcheck: "false" });
  const kind = h("select", null, h("option", { value: "path" }, "a call: METHOD /path"), h("option", { value: "event" }, "an event"));
  kind.value = given.event ? "event" : "path";
  const until = h("select", null, [["", "until it is removed"], ["3600", "for an hour"], ["7200", "for two hours"], ["86400", "for a day"], ["604800", "for a week"]]
    .map(([value, name]) => h("option", { value }, name)));
  const shadow = h("input", { type: "checkbox" });
  const why = h("input", { maxlength: "500", placeholder: "for the history" });

  const which = field("Which", what, PATH_HINT), most = field("At most", max);
  const length = field("in a", per), kindOfLimit = h("p", { class: "hint" });
  const sayKind = () => (kindOfLimit.textContent = refills(max.value === "" ? NaN : Number(max.value), per.value));
  for (const control of [max, per]) control.addEventListener("input", sayKind);
  sayKind();
  const sayPath = () => (which.querySelector(".hint").hidden = kind.value === "event");
  kind.addEventListener("input", sayPath);
  sayPath();

  const typed = () => {
    const [first, ...rest] = what.value.trim().split(/\s+/);
    return kind.value === "event" ? { event: what.value.trim() } : rest.length ? { method: first.toUpperCase(), path: rest.join(" ") } : { path: first };
  };
  const document = () => {
    const rule = { match: simple ? typed() : given, by: whom.value ? [whom.value] : undefined, limits: [{ max: Number(max.value), per: per.value }], mode: shadow.checked ? "shadow" : undefined };
    if (until.value) rule.expires = new Date(Date.now() + 1000 * until.value).toISOString().replace(/\.\d+/, "");
    return JSON.parse(JSON.stringify(rule));
  };

  return dialog(known.not_only ? "Throttle a call, for everybody" : "Throttle a call", (close) => {
    const error = h("p", { class: "error", role: "alert" });
    const put = async (rule, id, taken) => {
      await ask("PUT", path("rules", id), { body: rule, match: taken?.version, absent: !taken, note: why.value });
      note(`${id} is in force`);
      close(id);
    };
    const replace = (rule, id, taken) =>
      room.replaceChildren(h("p", { class: "banner mild" }, `${id} limits this call already. It would become:`), diff(withoutId(taken.rule), rule), error,
        h("div", { class: "actions" }, button("Back", () => room.replaceChildren(form)), button("Replace", () => put(rule, id, taken), { class: "main" })));
    const save = async (event) => {
      event.preventDefault();
      error.textContent = "";
      for (const box of [which, most]) fieldError(box, "");
      try {
        const rule = document(), id = throttleId(rule);
        const taken = await get(path("rules", id)).catch((e) => (e.status === 404 ? null : Promise.reject(e)));
        if (taken) replace(rule, id, taken);
        else await put(rule, id, null);
      } catch (e) {
        const box = / match\b/.test(e.message) && simple ? which : / limits\b/.test(e.message) ? most : null;
        if (box) fieldError(box, errorText(e)), box.querySelector("input").focus();
        else error.textContent = errorText(e);
      }
    };
    const form = h("form", { onsubmit: save },
      simple ? h("div", { class: "row" }, field("What", kind), which)
        : h("p", null, "Requests that match ", h("code", null, matchWords(given))),
      known.not_only && h("p", { class: "banner mild" }, `This is a rule for everybody who makes this call, not for ${brief(known.not_only)} alone. For one subject: Override…`),
      h("div", { class: "row" }, most, length, field("for", whom), field("How long", until)), kindOfLimit,
      h("label", null, shadow, " only count what it would refuse (shadow)"),
      field("Why", why), error,
      h("div", { class: "actions" }, h("button", { type: "submit", class: "main" }, "Throttle")));
    const room = h("div", null, form);
    return room;
  }, asking(changes(max, per, whom, what, kind, until, shadow, why)));
}

export const withoutId = (rule) => {
  const { id, ...rest } = typeof rule === "object" ? rule : { text: rule };
  return rest;
};

/** "Throttle…" for a row or a card: what a role may not do is not shown. `name`: what it is for, unless that is known. */
export const throttleButton = (known, size = "small", name = known.rule ?? known.event ?? [known.method, known.path].filter(Boolean).join(" ")) =>
  mayChange() && !isNoRule(known.rule) && button("Throttle…", async () => ((await throttle(known)) ? window.dispatchEvent(new Event("again")) : null),
    { class: size || null, "aria-label": `Throttle… ${name}`.trim(), title: known.not_only ? "for everybody, not for this subject alone" : null });

/** Why nothing can be changed here, and what to do instead. */
export function readOnlyNote(file = session.source) {
  const commands = [`weir rules init --from sqlite:rules.db`, `weir rules import ${file} --from sqlite:rules.db`, "weir serve --rules sqlite:rules.db …"];
  return session.readOnly && h("div", { class: "banner mild" },
    h("p", null, "These rules are in ", h("code", null, file), ", a file that weir only reads. Edit the file: weir follows at once, and keeps the last good rules if the new ones have an error."),
    h("details", null, h("summary", null, "To change rules on this page"), h("p", null, "Keep them in a database:"), h("pre", { class: "scroll" }, commands.join("\n"))));
}


/** The address of what one subject of a rule has used. `plan`: with the limits of that plan; "": with the rule's own. */
export const subjectAddress = (rule, values, plan) =>
  `#/refused/${[rule, ...values].map(encodeURIComponent).join("/")}${query({ plan: plan == null ? undefined : [plan] })}`;
export const subjectLink = (rule, by, cut, plan) => isNoRule(rule) ? h("span", null, brief(subject(by), cut)) : cut ? h("span", null, brief(subject(by), true), h("small", null, " (only the beginning is kept)"))
  : h("a", { href: subjectAddress(rule, by.map((one) => one.value), plan) }, brief(subject(by)));

/** A running penalty, in words. */
export const penaltyWords = ({ until, by_hand: byHand, after, within_ms: within, level }) =>
  `Penalised until ${instant(until)}, ${byHand ? "by hand" : `after ${number(after)} refusals within ${span(within / 1000)}`}, ${number(level)} in a row: every request is refused, whatever the limits have left.`;
export const ruleLink = (id) => (isNoRule(id) ? h("span", null, id) : h("a", { href: `#/rule/${encodeURIComponent(id)}` }, id));

/** Asks before something that cannot be undone from here. */
const confirmed = (title, text, action, danger = true) =>
  dialog(title, (close) => h("div", null, h("p", null, text),
    h("div", { class: "actions" }, button("Cancel", () => close(false)), button(action, () => close(true), { class: danger ? "danger" : "main" }))));

/** Returns a function that says whether one of these controls has another value than now. */
export function changes(...controls) {
  const values = () => JSON.stringify(controls.map((one) => (one.type === "checkbox" ? one.checked : one.value))), before = values();
  return () => values() !== before;
}

/** Properties of a dialog that asks before typed text is lost. `isTouched` says whether there is some. */
export const asking = (isTouched) => ({ unsaved: isTouched, guard: () => !isTouched() || confirmed("Drop your changes?", "What you have typed is not saved.", "Drop them") });

/** Where a change asks why, for the history. */
export const whyInput = () => h("input", { maxlength: "500", placeholder: "optional, for the history" });

/** Asks before a change, and why. Resolves to {note}, or to nothing. */
export function reasoned(title, text, action, danger = true) {
  const why = whyInput();
  return dialog(title, (close) =>
    h("div", { class: "content" }, [text].flat().map((one) => (typeof one === "string" ? h("p", null, one) : one)), field("Why", why),
      h("div", { class: "actions" }, button("Cancel", () => close(undefined)), button(action, () => close({ note: why.value.trim() }), { class: danger ? "danger" : "main" }))),
  asking(changes(why)));
}

/** The object of a change, in words. */
const ofWhat = (event) => event.table === "WEIR_OVERRIDES" ? `override of ${event.rule} for ${brief(event.row)}`
  : event.table === "subject" ? `${brief(event.row)} of ${event.rule}` : event.rule || `setting ${event.row}`;
const versionOf = (row) => row && (row.rule ?? row.override ?? row);
const DONE = { reset: "set free", penalise: "penalise", lift: "lift the penalty of" };

/** To the subject that it was about, if its values are known whole. */
function changeLink(event) {
  if (!event.rule) return null;
  const by = event.table === "subject" && !event.after?.cut && Array.isArray(event.after?.by) ? event.after.by : null;
  return h("p", { class: "links" }, h("small", null, ruleLink(event.rule), by?.length ? [" · ", subjectLink(event.rule, by)] : null));
}

/** For each row its newest version, as the history has it: only what is still so can be undone. `events`: from the newest on. */
function newestVersions(events) {
  const newest = new Map();
  for (const event of events) if (event.undoable && !newest.has(`${event.table} ${event.rule} ${event.row}`)) newest.set(`${event.table} ${event.rule} ${event.row}`, event);
  return (event) => newest.get(`${event.table} ${event.rule} ${event.row}`);
}

/** Lines of a history, newest first. `complete`: nothing is newer than the first of them. */
export function changesTable(events, undo, complete = true) {
  const newest = newestVersions(events);
  const undoButton = (event) => {
    if (!may("operate")) return null;
    if (!event.undoable) return h("small", null, "cannot be undone");
    const later = complete && newest(event), isOld = later && JSON.stringify(later.after) !== JSON.stringify(event.after);
    return isOld ? h("span", null, h("button", { type: "button", class: "small", disabled: true, "aria-label": `Undo change ${event.number}` }, "Undo"), h("br"), h("small", null, `changed again by #${later.number}`))
      : button("Undo", () => undo(event), { class: "small", "aria-label": `Undo change ${event.number}` });
  };
  return table("Changes", [{ text: "number", class: "tight" }, "when", "what", "who", "why", { text: "", class: "tight" }], events.map((event) => [
    `#${event.number}`,
    h("time", { datetime: event.at, title: event.at }, ago(event.at), h("br"), h("small", null, instant(event.at))),
    h("div", null, event.table === "subject"
      ? `${DONE[event.what] ?? event.what} ${ofWhat(event)}${event.after?.for_ms ? ` for ${span(event.after.for_ms / 1000)}` : ""}`
      : h("details", null, h("summary", null, `${event.what} ${ofWhat(event)}`), diff(versionOf(event.before), versionOf(event.after))),
    changeLink(event)),
    event.who, event.note,
    h("span", { class: "tools" }, event.rule && throttleButton({ rule: event.rule }), undoButton(event)),
  ]), { class: "cards" });
}

/** Shows what it would change, and asks. Returns whether it was done. */
export async function undo(event) {
  const reason = await reasoned(`Undo change #${event.number}?`, [`${event.what} ${ofWhat(event)}, by ${event.who || "somebody"}. This would change:`,
    diff(versionOf(event.after), versionOf(event.before)), h("p", { class: "quiet" }, "The undo is a change itself, and can be undone.")], "Undo", false);
  return reason && attempt(async () => {
    const { data } = await ask("POST", `/v1/undo${query({ number: event.number })}`, reason);
    note(data.text ?? `change ${event.number} is undone`);
  });
}
