// Writing a rule: a form for what is common, YAML for everything, a review before it is saved.
import { ask, get, path } from "./api.js";
import { button, dialog, field, fieldError, h, note } from "./dom.js";
import { errorText, instantOf, localInput } from "./format.js";
import { asking, byText, choice, diff, PATH_HINT, withoutId } from "./parts.js";
import { yaml } from "./text.js";

const ALGORITHMS = [["token_bucket", "refills evenly"], ["fixed_window", "fixed window"], ["sliding_window", "sliding window"], ["calendar", "calendar"]];
// A period that begins at midnight or a full hour, and one of the same length that begins at any time.
const CALENDAR = { minute: "1m", hour: "1h", day: "1d", week: "7d", month: "30d", year: "365d" };
const isText = (value) => value === undefined || typeof value === "string";
const isTexts = (value) => isText(value) || (Array.isArray(value) && value.every((one) => typeof one === "string"));
const isCalendar = (limit) => [limit.calendar, limit.tz].some((one) => one != null) || limit.algorithm === "calendar" || Object.hasOwn(CALENDAR, limit.per ?? "");
const unitOf = (length) => Object.keys(CALENDAR).find((unit) => CALENDAR[unit] === length) ?? length;
const words = (value) => [value ?? []].flat().join(", ");
const split = (text) => text.split(",").map((one) => one.trim()).filter(Boolean);
const oneOrMany = (list) => (list.length > 1 ? list : list[0]);

/** Whether the form can show the value as a list. It would take a value with a comma or with spaces around it apart. */
const isList = (value) => isTexts(value) && [value ?? []].flat().every((one) => one !== "" && one === one.trim() && !one.includes(","));
const inYaml = (label, value) => h("p", { class: "hint" }, `${label}: set in YAML (${JSON.stringify(value)})`);
const left = (value, known) => Object.keys(value).filter((name) => !known.includes(name) && value[name] != null);

/** The form over a document; it changes only the fields that it shows. */
function form(document, changed) {
  const at = new Map(); // paths of errors: the field
  const input = (label, where, value, set, hint, properties) => {
    const control = h("input", { value: value ?? "", spellcheck: "false", ...properties });
    control.addEventListener("input", () => (set(control.value), changed()));
    return at.set(where, field(label, control, hint)).get(where);
  };
  const select = (label, where, options, value, set) => {
    const control = h("select", null, options.map(([key, name]) => h("option", { value: key }, name)));
    control.value = value;
    control.addEventListener("change", () => (set(control.value), changed()));
    return at.set(where, field(label, control)).get(where);
  };
  const match = (document.match ??= {});
  const setMatch = (name, texts) => {
    if (texts === undefined || texts.length === 0) delete match[name];
    else match[name] = texts;
  };
  const condition = (label, name, hint, many = Array.isArray(match[name])) =>
    (many ? isList : isText)(match[name])
      ? input(label, `match.${name}`, words(match[name]), (text) => setMatch(name, many ? oneOrMany(split(text)) : text.trim()), hint)
      : inYaml(label, match[name]);

  const limits = h("div", { class: "content" });
  const list = () => [document.limits ?? []].flat();
  const drawLimits = () => {
    if (["given", "none"].includes(document.limits)) return limits.replaceChildren(inYaml("Limits", document.limits));
    limits.replaceChildren(...list().map((limit, i) => drawLimit(limit, i)),
      button("Add a limit", () => ((document.limits = [...list(), { max: 100, per: "1h" }]), drawLimits(), changed(), focusLimit(list().length - 1)), { class: "small" }));
  };
  /** The rows are new: the focus goes to this one, or to the button below them. */
  const focusLimit = (i) => limits.children[i].matches("button") ? limits.children[i].focus() : limits.children[i].querySelector("input, button").focus();
  const drawLimit = (limit, i) => {
    const remove = button("Remove", () => ((document.limits = list().filter((_, k) => k !== i)), drawLimits(), changed(), focusLimit(i)), { class: "small", "aria-label": `Remove limit ${i + 1}` });
    const put = (value) => ((document.limits = list().map((one, k) => (k === i ? value : one))), (limit = value));
    const where = `limits[${i}]`, set = (name, value) => put({ ...limit, [name]: value });
    const text = (label, name, hint) => input(label, `${where}.${name}`, limit[name], (typed) => set(name, typed || undefined), hint);
    const count = (label, name) => input(label, `${where}.${name}`, limit[name], (typed) => set(name, typed === "" ? undefined : Number(typed)), null, { type: "number", min: "0" });
    if (typeof limit === "string")
      return h("div", { class: "row" }, input(`Limit ${i + 1}`, where, limit, put, "10 per 60s, 100 per day"), remove);
    if (typeof limit !== "object" || limit === null) return h("div", { class: "row" }, inYaml(`Limit ${i + 1}`, limit), remove);
    const slots = limit.concurrent != null, length = limit.calendar != null ? "calendar" : "per";
    const further = left(limit, slots ? ["concurrent", "ttl", "name"] : ["max", length, "algorithm", "tz", "name"]);
    const counted = () => limit.algorithm ?? (isCalendar(limit) ? "calendar" : "token_bucket");
    // A period of the calendar and a way to count that has none do not go together: the last that was chosen wins.
    const periodTyped = (typed) => {
      set(length, typed || undefined);
      if (length === "per" && Object.hasOwn(CALENDAR, typed) !== isUnit) {
        // A period is typed key by key: what does not go with "mont" is there again at "month".
        const { algorithm, tz, ...rest } = limit, zoneTyped = zone.querySelector("input").value.trim();
        const before = waiting;
        waiting = algorithm;
        isUnit = !isUnit;
        put({ ...rest, ...(before ? { algorithm: before } : {}), ...(isUnit && zoneTyped ? { tz: zoneTyped } : {}) });
      }
      sync();
    };
    const countedAs = (one) => {
      const { algorithm, calendar, tz, ...rest } = limit, period = calendar ?? limit.per ?? "";
      const unit = unitOf(period);
      put(one === "calendar" ? { ...limit, algorithm: Object.hasOwn(CALENDAR, unit) ? undefined : one, [length]: unit } : { ...rest, per: CALENDAR[period] ?? period, algorithm: one });
      const next = drawLimit(limit, i);
      row.replaceWith(next);
      next.querySelector("select").focus();
    };
    let isUnit = isCalendar(limit), waiting; // the algorithm of the other kind of period
    const way = !slots && select("counted as", `${where}.algorithm`, ALGORITHMS, counted(), countedAs);
    const zone = !slots && text("time zone", "tz", "Asia/Shanghai; empty: UTC");
    const period = !slots && input("in", `${where}.${length}`, limit[length], periodTyped, "60s or 1d: any time of this length; day or month: of the calendar");
    const sync = () => ((way.querySelector("select").value = counted()), (zone.hidden = !isCalendar(limit) || /^\d/.test(limit.calendar ?? "")));
    if (!slots) sync();
    const row = h("div", { class: "row" }, slots ? [count("At the same time", "concurrent"), text("time to live", "ttl", "60s")] : [count("At most", "max"), period, way, zone],
      text("name", "name"), further.length > 0 && h("p", { class: "hint" }, `also, in YAML: ${further.join(", ")}`), remove);
    return row;
  };

  drawLimits();
  const others = [...left(match, ["event", "method", "path"]).map((name) => `match.${name}`), ...left(document, ["id", "match", "by", "limits", "mode", "expires"])];
  const expires = document.expires == null || localInput(document.expires)
    ? input("Expires", "expires", localInput(document.expires), (text) => (document.expires = instantOf(text)), "In your time zone; empty: never.", { type: "datetime-local" })
    : input("Expires", "expires", document.expires, (text) => (document.expires = text || undefined), "2027-01-01T00:00:00Z; empty: never");
  const element = h("div", { class: "content" },
    h("fieldset", null, h("legend", null, "Which requests"),
      h("div", { class: "row" }, condition("Event", "event", "for calls that are not HTTP", true), condition("Method", "method", "GET, POST; empty: all", true), condition("Path", "path", "/entity/#, /files/*")), h("p", { class: "hint" }, PATH_HINT)),
    h("fieldset", null, h("legend", null, "How much"),
      document.by == null || isList(document.by) ? input("For each", "by", words(document.by), (text) => (document.by = split(text)), "user, ip, key, header:X-Tenant; empty: all together") : inYaml("For each", document.by),
      limits),
    h("div", { class: "row" },
      select("What it does", "mode", [["enforce", "refuse (enforce)"], ["shadow", "only count what it would refuse (shadow)"], ["off", "off"]],
        document.mode === false ? "off" : document.mode ?? "enforce", (one) => (document.mode = one)),
      expires),
    others.length > 0 && h("p", { class: "hint" }, `Further fields, which the YAML has and the form keeps: ${others.join(", ")}.`));
  return { element, at };
}

/** Errors speak of the fields of a rules file; the form has other names for some. */
const inForm = (text) => text.replace(/; leave `algorithm` out/, "; choose “calendar” in counted as").replace(/`algorithm`/g, "“counted as”").replace(/`(per|calendar)`/g, "“in”").replace(/`tz`/g, "“time zone”").replace(/`max`/g, "“At most”").replace(/`by`/g, "“For each”");

/** Errors beside their fields, the rest below. Lines are those of the YAML, if that is what is shown. */
function place(errors, at, rest, lines) {
  for (const box of at.values()) fieldError(box, "");
  const others = [], placed = new Map();
  for (const error of errors) {
    const where = error.text.split(":", 1)[0];
    let key = where;
    while (key && !at.has(key)) key = key.slice(0, Math.max(key.lastIndexOf("."), key.lastIndexOf("["), 0));
    if (!key) others.push(error);
    else placed.set(key, [...(placed.get(key) ?? []), error.text.slice((key === where ? where.length + 1 : 0)).trim()]);
  }
  for (const [key, texts] of placed) fieldError(at.get(key), inForm(texts.join("; ")));
  rest.replaceChildren(...others.map((error) => h("p", { class: "error" }, error.line && lines ? `line ${error.line}: ${error.text}` : error.text)));
}

const clean = (document) => {
  const copy = JSON.parse(JSON.stringify(document));
  if (copy.match && Object.keys(copy.match).length === 0) delete copy.match;
  if (Array.isArray(copy.by) && copy.by.length === 0) delete copy.by;
  return copy;
};

/** An edit that somebody left to see what it would have done: nothing of it is lost. */
export const unfinished = {
  get: () => JSON.parse(sessionStorage.getItem("unfinished") ?? "null"),
  set: (state) => sessionStorage.setItem("unfinished", JSON.stringify(state)),
  drop: () => sessionStorage.removeItem("unfinished"),
};

/** Opens it again, based on the version that it was based on. Resolves as edit() does. */
export async function resume({ id, version, rule, text }) {
  const row = version && (await get(path("rules", id)).catch((error) => (error.status === 404 ? { id, rule: {} } : Promise.reject(error))));
  return edit(row ? { ...row, version } : null, { id, ...rule }, text);
}

/** row: as GET /v1/rules/{id} answers; null: a new rule. candidate: what the editor begins with instead; written: as YAML, if it was
 * written as that. Resolves to the id once it is saved. */
export function edit(row, candidate, written) {
  // A row that is not a document is shown as it is.
  const unreadable = typeof row?.rule === "string" ? row.rule : null;
  let document = structuredClone(candidate ?? (unreadable !== null ? {} : row?.rule) ?? { match: {}, by: ["user"], limits: [{ max: 100, per: "1h" }] });
  const named = row?.id ?? String(document.id ?? "");
  delete document.id;
  const start = unreadable !== null ? {} : clean(row ? withoutId(row.rule) : {}), first = JSON.stringify(clean(document));
  let version = row?.version, tab = unreadable !== null || written ? "yaml" : "form", linted = 0, timer = null, boxes = new Map(), drawn = null;
  const id = h("input", { value: named, required: true, spellcheck: "false", maxlength: "100" }), idBox = row ? null : field("Id", id);
  const text = h("textarea", { class: "code", spellcheck: "false", "aria-label": "The rule as YAML" });
  const body = h("div"), problems = h("div", { role: "alert" }), advice = h("div"), tabs = h("div");

  /** Checks the text as it is now. Returns {valid, document, id, rule}: the rule that was checked, or null if a newer text is being checked. */
  const lint = async () => {
    clearTimeout(timer);
    const number = ++linted, shown = tab, checked = { id: id.value.trim(), rule: clean(document) };
    const source = shown === "yaml" ? text.value : yaml({ id: checked.id || "new", ...checked.rule });
    const { data } = await ask("POST", "/v1/lint", { body: source, type: "application/yaml" });
    if (number !== linted) return null;
    const found = Array.isArray(data.document) && data.document.length === 1 ? data.document[0] : data.document;
    if (shown === "yaml" && (Array.isArray(found) || typeof found !== "object" || found?.rules || found?.settings)) {
      if (data.valid) data.errors.unshift({ line: 0, text: "write one rule here, not a list and not a whole file" });
    } else if (shown === "yaml" && found) {
      const { id: given, ...rest } = found;
      document = rest;
      checked.rule = clean(rest);
      if (!row && given !== undefined) checked.id = id.value = String(given);
      if (row && String(given) !== row.id) data.errors.unshift({ line: 0, text: `id: must stay ${row.id}: a rule with another id is another rule` });
    }
    place(data.errors, shown === "yaml" ? new Map() : boxes, problems, shown === "yaml");
    advice.replaceChildren(...data.advice.map((one) => h("p", { class: "hint" }, `Advice: ${one.text}`)));
    return { ...checked, valid: data.errors.length === 0, document: data.document };
  };
  const changed = () => {
    linted++; // a check that is under way is of an older text
    clearTimeout(timer);
    timer = setTimeout(() => lint().catch((error) => problems.replaceChildren(h("p", { class: "error" }, errorText(error)))), 300);
  };
  /** Somebody may type on while it is checked: what counts is the last. */
  const lintLast = async () => {
    for (;;) {
      const checked = await lint();
      if (checked) return checked;
    }
  };
  text.addEventListener("input", changed);
  id.addEventListener("input", changed);
  const draw = () => {
    tabs.replaceChildren(choice("Edit as", [{ key: "form", name: "Form" }, { key: "yaml", name: "YAML" }], tab, async (one) => {
      if (one.key === tab) return;
      if (tab === "yaml") {
        const checked = await lintLast();
        if (!checked.document || typeof checked.document !== "object") return note("the YAML has an error: repair it first", "bad");
      }
      tab = one.key;
      draw();
      tabs.querySelector("[aria-pressed=true]").focus();
    }));
    // The YAML has the id.
    if (idBox) idBox.hidden = tab === "yaml";
    if (tab === "yaml") {
      drawn = text.value = drawn === null && (written ?? unreadable) != null ? written ?? unreadable : yaml({ id: id.value.trim() || "new-rule", ...clean(document) });
      body.replaceChildren(text);
    } else {
      const built = form(document, changed);
      boxes = built.at;
      if (idBox) boxes.set("id", idBox);
      body.replaceChildren(built.element);
    }
    changed();
  };
  const isTouched = () => candidate !== undefined || JSON.stringify(clean(document)) !== first || (tab === "yaml" && text.value !== drawn) || (!row && id.value !== named);

  return dialog(row ? `Edit ${row.id}` : "New rule", (close) => {
    const why = h("input", { maxlength: "500", placeholder: "for the history" });
    const error = h("p", { class: "error", role: "alert" });
    const review = h("div", { class: "content" });
    const editor = h("div", { class: "content" }, idBox, tabs, body, problems, advice,
      h("div", { class: "actions" }, button("Review…", async () => {
        error.textContent = "";
        const checked = await lintLast();
        if (!checked.id) {
          if (idBox) fieldError(idBox, "a rule needs an id: a short name such as login or upload-per-user");
          return id.focus();
        }
        if (!checked.valid) return (room.querySelector(".field.wrong input, .field.wrong select") ?? text).focus();
        await tryIt(checked);
      }, { class: "main" })));
    const say = (e) => (error.textContent = errorText(e));

    /** Two people, one rule: neither loses anything. */
    const conflict = async (checked) => {
      const theirs = await get(path("rules", checked.id)).catch(() => null);
      review.replaceChildren(
        h("p", { class: "banner" }, !theirs ? `${checked.id} was removed meanwhile.`
          : version ? `${theirs.updated_by || "Somebody"} has changed ${checked.id} since you opened it. Nothing of yours is lost.`
            : `There is a rule ${checked.id} already. Nothing of yours is lost: go back for another id.`),
        h("h3", null, "What you would change of theirs"), diff(theirs ? withoutId(theirs.rule) : null, checked.rule), error,
        h("div", { class: "actions" },
          button("Back to my text", () => (row && (version = theirs?.version), show(editor))),
          button(theirs ? "Save mine over theirs" : "Save mine again", () => save(checked, theirs?.version), { class: "danger" })));
    };
    /** Saves the text that was reviewed. */
    const save = async (checked, tag) => {
      error.textContent = "";
      try {
        await ask("PUT", path("rules", checked.id), { body: checked.rule, match: tag, absent: !tag, note: why.value });
        note(`${checked.id} is in force`);
        if (unfinished.get()?.id === checked.id) unfinished.drop();
        close(checked.id);
      } catch (e) {
        if (e.status === 412) await conflict(checked);
        else say(e);
      }
    };
    const tryIt = async (checked) => {
      try {
        const sample = await get("/v1/sample").catch(() => null);
        const { data } = await ask("PUT", `${path("rules", checked.id)}?dry_run=1`, { body: checked.rule, match: version, absent: !version });
        review.replaceChildren(...[
          unreadable !== null && h("p", { class: "banner mild" }, "The row could not be read before: all of it is replaced."),
          h("p", null, h("strong", null, data.state), ` · ${data.limits ?? ""} · ${byText(data)}`),
          diff(row ? start : null, checked.rule), field("Why", why), error,
          !sample?.size && h("p", { class: "hint" }, "weir keeps no sample of requests (option --sample): What would it have done? needs an access log from you."),
          h("div", { class: "actions" }, button("Back", () => show(editor)),
            button("What would it have done?", () => {
              unfinished.set({ id: checked.id, version, rule: checked.rule, text: tab === "yaml" ? text.value : undefined });
              sessionStorage.setItem("candidate", yaml({ id: checked.id, ...checked.rule }));
              close(undefined);
              location.hash = "#/what-if";
            }),
            button("Save", () => save(checked, version), { class: "main" }))].filter(Boolean));
        show(review);
        why.focus();
      } catch (e) {
        if (e.status === 412) {
          show(review);
          await conflict(checked);
        } else {
          problems.replaceChildren(h("p", { class: "error" }, errorText(e)));
        }
      }
    };
    const room = h("div", null, editor);
    const show = (part) => room.replaceChildren(part);
    draw();
    return room;
  }, { class: "wide", ...asking(isTouched) });
}
