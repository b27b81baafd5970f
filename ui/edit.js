// Writing a rule: a form for what is common, YAML for everything, a review before it is saved.
import { ask, get, path } from "./api.js";
import { button, dialog, field, h, note } from "./dom.js";
import { byText, choice, confirmed, diff, withoutId } from "./parts.js";
import { yaml } from "./text.js";

const ALGORITHMS = ["token_bucket", "fixed_window", "sliding_window", "calendar"];
const isText = (value) => value === undefined || typeof value === "string";
const isTexts = (value) => isText(value) || (Array.isArray(value) && value.every((one) => typeof one === "string"));
const isCalendar = (limit) => limit.calendar !== undefined || limit.tz !== undefined || limit.algorithm === "calendar" || /^(hour|day|week|month|year)$/.test(limit.per);
const words = (value) => [value ?? []].flat().join(", ");
const split = (text) => text.split(",").map((one) => one.trim()).filter(Boolean);
const oneOrMany = (list) => (list.length > 1 ? list : list[0]);

/** The form over a document; it changes only the fields that it shows. */
function form(document, changed) {
  const at = new Map(); // paths of errors: the field
  const input = (label, where, value, set, hint, properties) => {
    const control = h("input", { value: value ?? "", spellcheck: "false", ...properties });
    control.addEventListener("input", () => (set(control.value), changed()));
    const box = field(label, control, hint);
    at.set(where, box);
    return box;
  };
  const match = (document.match ??= {});
  const setMatch = (name, texts) => {
    if (texts === undefined || texts.length === 0) delete match[name];
    else match[name] = texts;
  };
  const condition = (label, name, hint, many) =>
    isTexts(match[name])
      ? input(label, `match.${name}`, words(match[name]), (text) => setMatch(name, many ? oneOrMany(split(text)) : text.trim()), hint)
      : h("p", { class: "hint" }, `${label}: set in YAML (${JSON.stringify(match[name])})`);

  const limits = h("div", { class: "content" });
  const list = () => (Array.isArray(document.limits) ? document.limits : document.limits === undefined ? [] : [document.limits]);
  const drawLimits = () => {
    limits.replaceChildren(...list().map((limit, i) => drawLimit(limit, i)),
      button("Add a limit", () => ((document.limits = [...list(), { max: 100, per: "1h" }]), drawLimits(), changed()), { class: "small" }));
  };
  const drawLimit = (limit, i) => {
    const remove = button("Remove", () => ((document.limits = list().filter((_, k) => k !== i)), drawLimits(), changed()), { class: "small", "aria-label": `Remove limit ${i + 1}` });
    const put = (value) => ((document.limits = list().map((one, k) => (k === i ? value : one))), (limit = value));
    if (typeof limit === "string")
      return h("div", { class: "row" }, input(`Limit ${i + 1}`, `limits[${i}]`, limit, put, "10 per 60s, 100 per day (Asia/Shanghai)"), remove);
    if (limit.concurrent !== undefined)
      return h("div", { class: "row" }, input("At the same time", `limits[${i}].concurrent`, limit.concurrent, (text) => put({ ...limit, concurrent: Number(text) }), null, { type: "number", min: "0" }),
        input("time to live", `limits[${i}].ttl`, limit.ttl, (text) => put({ ...limit, ttl: text })), remove);
    const algorithm = h("select", null, ALGORITHMS.map((one) => h("option", { value: one }, one.replace("_", " "))));
    const length = limit.calendar === undefined ? "per" : "calendar";
    algorithm.value = limit.algorithm ?? (isCalendar(limit) ? "calendar" : "token_bucket");
    algorithm.addEventListener("change", () => (put({ ...limit, algorithm: algorithm.value }), changed()));
    return h("div", { class: "row" },
      input("At most", `limits[${i}].max`, limit.max, (text) => put({ ...limit, max: text === "" ? undefined : Number(text) }), null, { type: "number", min: "0" }),
      input("in", `limits[${i}].${length}`, limit[length], (text) => put({ ...limit, [length]: text }), "60s, 1h, day"),
      field("counted as", algorithm),
      isCalendar(limit) && !/^\d/.test(limit.calendar) ? input("time zone", `limits[${i}].tz`, limit.tz, (text) => put({ ...limit, tz: text || undefined }), "Asia/Shanghai") : null,
      input("name", `limits[${i}].name`, limit.name, (text) => put({ ...limit, name: text || undefined })), remove);
  };

  const mode = h("select", null, [["enforce", "refuse (enforce)"], ["shadow", "only count what it would refuse (shadow)"], ["off", "off"]].map(([value, name]) => h("option", { value }, name)));
  mode.value = document.mode === false ? "off" : document.mode ?? "enforce";
  mode.addEventListener("change", () => ((document.mode = mode.value), changed()));
  const plain = document.limits === undefined || isText(document.limits) || Array.isArray(document.limits) || typeof document.limits === "object";
  drawLimits();
  const known = ["id", "match", "by", "limits", "mode", "expires"];
  const others = Object.keys(document).filter((name) => !known.includes(name));
  const element = h("div", { class: "content" },
    h("fieldset", null, h("legend", null, "Which requests"),
      h("div", { class: "row" }, condition("Event", "event", "for calls that are not HTTP", true), condition("Method", "method", "GET, POST; empty: all", true), condition("Path", "path", "/entity/#, /files/*"))),
    h("fieldset", null, h("legend", null, "How much"),
      isTexts(document.by) ? input("For each", "by", words(document.by), (text) => (document.by = split(text)), "user, ip, key, header:X-Tenant; empty: all together") : null,
      plain ? limits : null),
    h("div", { class: "row" }, field("What it does", mode),
      input("Expires", "expires", document.expires, (text) => (document.expires = text || undefined), "2027-01-01T00:00:00Z; empty: never")),
    others.length ? h("p", { class: "hint" }, `Further fields, which the YAML has: ${others.join(", ")}.`) : null);
  return { element, at };
}

/** Errors beside their fields, the rest below. */
function place(errors, at, rest) {
  for (const box of at.values()) {
    box.classList.remove("wrong");
    box.querySelector(".error").textContent = "";
  }
  const left = [];
  for (const error of errors) {
    const where = error.text.split(":", 1)[0];
    let box = at.get(where);
    for (let key = where; !box && key.includes("."); ) {
      key = key.slice(0, key.lastIndexOf("."));
      box = at.get(key);
    }
    if (!box) left.push(error);
    else {
      box.classList.add("wrong");
      box.querySelector(".error").textContent = error.text.slice(where.length + 1).trim();
    }
  }
  rest.replaceChildren(...left.map((error) => h("p", { class: "error" }, error.line ? `line ${error.line}: ${error.text}` : error.text)));
}

const clean = (document) => {
  const copy = JSON.parse(JSON.stringify(document));
  if (copy.match && Object.keys(copy.match).length === 0) delete copy.match;
  if (Array.isArray(copy.by) && copy.by.length === 0) delete copy.by;
  return copy;
};

/** row: as GET /v1/rules/{id} answers; null: a new rule. candidate: what the editor begins with instead. Resolves to the id
 * once it is saved. */
export function edit(row, candidate) {
  // A row that is not a document is shown as it is.
  const unreadable = typeof row?.rule === "string" ? row.rule : null;
  let document = structuredClone(candidate ?? (unreadable ? {} : row?.rule) ?? { match: {}, by: ["user"], limits: [{ max: 100, per: "1h" }] });
  const named = row?.id ?? document.id ?? "";
  delete document.id;
  const start = unreadable ? {} : clean(row ? withoutId(row.rule) : {}), first = JSON.stringify(clean(document));
  let version = row?.version, tab = unreadable !== null ? "yaml" : "form", linted = 0, timer = null, valid = true, boxes = new Map();
  const id = h("input", { value: named, required: true, spellcheck: "false", pattern: "[^\\s].*" });
  const text = h("textarea", { class: "code", spellcheck: "false", "aria-label": "The rule as YAML" });
  const body = h("div"), problems = h("div", { role: "alert" }), advice = h("div"), tabs = h("div");

  const lint = async () => {
    const source = tab === "yaml" ? text.value : yaml({ id: id.value || "new", ...clean(document) });
    const number = ++linted;
    const { data } = await ask("POST", "/v1/lint", { body: source, type: "application/yaml" });
    if (number !== linted) return data; // a newer text is being checked
    valid = data.valid;
    const found = Array.isArray(data.document) && data.document.length === 1 ? data.document[0] : data.document;
    if (tab === "yaml" && (Array.isArray(found) || typeof found !== "object" || found?.rules || found?.settings)) {
      if (valid) data.errors.unshift({ line: 0, text: "write one rule here, not a list and not a whole file" });
      valid = false;
    } else if (tab === "yaml" && found) {
      const { id: named, ...rest } = found;
      document = rest;
      if (!row && named !== undefined) id.value = named;
      if (row && named !== row.id) data.errors.unshift({ line: 0, text: `id: must stay ${row.id}: a rule with another id is another rule` }), (valid = false);
    }
    place(data.errors, tab === "yaml" ? new Map() : boxes, problems);
    advice.replaceChildren(...data.advice.map((one) => h("p", { class: "hint" }, `Advice: ${one.text}`)));
    return data;
  };
  const changed = () => {
    clearTimeout(timer);
    timer = setTimeout(() => lint().catch((error) => problems.replaceChildren(h("p", { class: "error" }, error.message))), 300);
  };
  let touched = false;
  text.addEventListener("input", () => ((touched = true), changed()));
  const draw = () => {
    tabs.replaceChildren(choice("Edit as", [{ key: "form", name: "Form" }, { key: "yaml", name: "YAML" }], tab, async (one) => {
      if (tab === "yaml") {
        const data = await lint();
        if (!data.document) return note("the YAML has an error: repair it first", "bad");
      }
      tab = one.key;
      draw();
    }));
    if (tab === "yaml") {
      text.value = unreadable !== null && !touched ? unreadable : yaml({ id: id.value || "new-rule", ...clean(document) });
      body.replaceChildren(text);
    } else {
      const built = form(document, changed);
      boxes = built.at;
      body.replaceChildren(built.element);
    }
    changed();
  };

  return dialog(row ? `Edit ${row.id}` : "New rule", (close) => {
    const why = h("input", { maxlength: "500", placeholder: "for the history" });
    const error = h("p", { class: "error", role: "alert" });
    const review = h("div", { class: "content" });
    const editor = h("div", { class: "content" }, row ? null : field("Id", id), tabs, body, problems, advice,
      h("div", { class: "actions" }, button("Review…", async () => {
        error.textContent = "";
        await lint();
        if (!id.value.trim()) return id.focus();
        if (!valid) return problems.scrollIntoView();
        await tryIt();
      }, { class: "main" })));
    const say = (e) => (error.textContent = e.hint ? `${e.message}: ${e.hint}` : e.message);

    /** Two people, one rule: neither loses anything. */
    const conflict = async () => {
      const theirs = await get(path("rules", id.value)).catch(() => null);
      review.replaceChildren(
        h("p", { class: "banner" }, theirs ? `${theirs.updated_by || "Somebody"} has changed ${id.value} since you opened it. Nothing of yours is lost.` : `${id.value} was removed meanwhile.`),
        h("h3", null, "What you would change of theirs"), diff(theirs ? withoutId(theirs.rule) : null, clean(document)), error,
        h("div", { class: "actions" },
          button("Back to my text", () => ((version = theirs?.version), show(editor))),
          button(theirs ? "Save mine over theirs" : "Save mine again", () => save(theirs?.version), { class: "danger" })));
    };
    const save = async (tag) => {
      error.textContent = "";
      try {
        await ask("PUT", path("rules", id.value.trim()), { body: clean(document), match: tag, absent: !tag, note: why.value });
        note(`${id.value.trim()} is in force`);
        close(id.value.trim());
      } catch (e) {
        if (e.status === 412) await conflict();
        else say(e);
      }
    };
    const tryIt = async () => {
      try {
        const { data } = await ask("PUT", `${path("rules", id.value.trim())}?dry_run=1`, { body: clean(document), match: version, absent: !version });
        review.replaceChildren(...[
          unreadable !== null && h("p", { class: "banner mild" }, "The row could not be read before: all of it is replaced."),
          h("p", null, h("strong", null, data.state), ` · ${data.limits ?? ""} · ${byText(data)}`),
          diff(row ? start : null, clean(document)), field("Why", why), error,
          h("div", { class: "actions" }, button("Back", () => show(editor)),
            button("What would it have done?", () => {
              sessionStorage.setItem("candidate", yaml({ id: id.value.trim(), ...clean(document) }));
              close(undefined);
              location.hash = "#/what-if";
            }),
            button("Save", () => save(version), { class: "main" }))].filter(Boolean));
        show(review);
      } catch (e) {
        if (e.status === 412) {
          show(review);
          await conflict();
        } else {
          problems.replaceChildren(h("p", { class: "error" }, e.hint ? `${e.message}: ${e.hint}` : e.message));
        }
      }
    };
    const room = h("div", null, editor);
    const show = (part) => room.replaceChildren(part);
    draw();
    return room;
  }, { class: "wide", guard: () => (JSON.stringify(clean(document)) === first && !(touched && !valid)) || confirmed("Drop your changes?", "What you have typed is not saved.", "Drop them") });
}
