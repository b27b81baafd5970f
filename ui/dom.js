// Elements. Every value becomes a text node or an attribute that is set, never HTML: a subject named <img onerror=…> is shown.
import { errorText } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

// Characters that nobody sees, or that turn others around: a subject could look like another one. Joiners are left where scripts need them.
const UNSEEN = /[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e007f}]|(?<![\p{Script=Arabic}\p{M}\p{Extended_Pictographic}\p{Emoji_Modifier}\ufe0f])[\u200c\u200d]/gu;
/** The same text, with unseen characters as ⟨U+202E⟩. */
const visible = (text) => text.replace(UNSEEN, (one) => `⟨U+${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "indeterminate") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  const wanted = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  element.append(...wanted.map((child) => (typeof child === "string" ? visible(child) : child)));
  return element;
}

/** An element: h("a", {href: "#/rules", onclick: f}, "text", other). */
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** The same in SVG. */
export function svg(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** A button that does nothing again before what it does is done. It is not disabled then: it would lose the focus. */
export function button(text, action, properties) {
  const element = h("button", { type: "button", ...properties }, text);
  element.addEventListener("click", async (event) => {
    if (element.hasAttribute("aria-busy")) return;
    element.setAttribute("aria-busy", "true");
    try {
      await action(event);
    } catch (error) {
      note(errorText(error), "bad");
    } finally {
      element.removeAttribute("aria-busy");
    }
  });
  return element;
}

/** A labelled control of a form; `hint` is read with it. The place for its error is the last child. */
let fields = 0;
export function field(label, control, hint) {
  const id = `field-${++fields}`;
  control.id = id;
  const error = h("p", { class: "error", id: `${id}-error` });
  control.setAttribute("aria-describedby", `${hint ? `${id}-hint ` : ""}${id}-error`);
  return h("div", { class: "field" }, h("label", { for: id }, label), control, hint && h("p", { class: "hint", id: `${id}-hint` }, hint), error);
}

/** Says beside a field what is wrong with it; "": nothing. */
export function fieldError(box, text) {
  box.classList.toggle("wrong", text !== "");
  box.querySelector(".error").textContent = visible(text);
  const control = box.querySelector("input, select, textarea");
  if (text) control.setAttribute("aria-invalid", "true");
  else control.removeAttribute("aria-invalid");
}

/** A table; rows are lists of cells. A cell that is an element is used as it is. */
export function table(caption, heads, rows, properties) {
  const cell = (content, i) => h("td", { "data-label": (heads[i]?.text ?? heads[i]) || null, class: heads[i]?.class }, content);
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      properties,
      h("caption", { class: "unseen" }, caption),
      h("thead", null, h("tr", null, heads.map((head) => h("th", { scope: "col", class: head?.class }, (head?.text ?? head) || h("span", { class: "unseen" }, "actions"))))),
      h("tbody", null, rows.map((row) => h("tr", null, row.map(cell)))),
    ),
  );
}

/** A dialog over the page. `build(close)` returns its content; Escape and × close it, unless `guard` says no. `unsaved` says whether
 * something would be lost. */
let dialogs = 0;
const opened = []; // the last is on top: {leave, close, unsaved}
export function dialog(title, build, { guard = () => true, unsaved = () => false, ...properties } = {}) {
  const id = `dialog-${++dialogs}`, heading = h("h2", { id }, title);
  const element = h("dialog", { "aria-labelledby": id, ...properties });
  const before = document.activeElement;
  return new Promise((resolve) => {
    const close = (result) => {
      element.returnValue = "";
      element.close();
      drop(own); // the event comes later
      resolve(result);
    };
    const leave = async () => {
      if (!(await guard())) return false;
      close(undefined);
      return true;
    };
    const own = { leave, close, unsaved };
    opened.push(own);
    // A browser closes a dialog at the second Escape without asking anybody: it gets none.
    element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.defaultPrevented) return;
      event.preventDefault();
      leave();
    });
    element.addEventListener("cancel", (event) => {
      event.preventDefault();
      leave();
    });
    element.addEventListener("close", () => {
      drop(own);
      element.remove();
      before?.focus?.();
      resolve(undefined);
    });
    element.append(
      h("header", null, heading, button("×", leave, { class: "plain", "aria-label": "Close" })),
      h("div", { class: "content" }, build(close)),
    );
    document.body.append(element);
    element.showModal();
    element.querySelector(".content :is(input, select, textarea, button)")?.focus(); // not ×
  });
}

function drop(one) {
  if (opened.includes(one)) opened.splice(opened.indexOf(one), 1);
}

/** Whether a dialog has something that nobody has saved. */
export const isUnsaved = () => opened.some((one) => one.unsaved());

/** Closes all dialogs, from the top; each may say no. Returns whether all are closed. */
export async function leaveDialogs() {
  while (opened.length) if (!(await opened.at(-1).leave())) return false;
  return true;
}

/** Closes all dialogs that have nothing to lose, without asking. */
export function closeDialogs() {
  for (const one of [...opened].reverse()) one.close(undefined);
}

const NOTES_MAX = 3;
const notes = () => [...document.querySelectorAll("#notes .note")];

/** A line at the lower edge. A good one goes away by itself, a bad one when somebody goes on; nothing is said twice. */
export function note(text, kind = "good") {
  const line = h("p", { class: `note ${kind}` }, h("span", null, text), kind === "bad" && h("button", { type: "button", class: "small", onclick: () => line.remove() }, "Close"));
  for (const old of notes()) if (old.firstChild.textContent === line.firstChild.textContent) old.remove();
  document.getElementById("notes").append(line);
  for (const old of notes().slice(0, -NOTES_MAX)) old.remove();
  if (kind === "good") setTimeout(() => line.remove(), 6000);
}

/** Removes the bad notes: the problem is over, or the user has gone to another view. */
export function clearNotes() {
  for (const old of notes()) if (old.classList.contains("bad")) old.remove();
}

/** The text in place of an empty list: it says what to do first. */
export function empty(title, ...children) {
  return h("div", { class: "empty" }, h("h2", null, title), children);
}
