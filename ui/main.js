// The frame of the page: signing in, the bar, and which view is shown.
import { ask, author, get, service, session } from "./api.js";
import { button, clearNotes, closeDialogs, dialog, field, fieldError, h, isUnsaved, leaveDialogs } from "./dom.js";
import { unfinished } from "./edit.js";
import { errorText, instant } from "./format.js";
import { stop, watch } from "./live.js";
import * as changes from "./view_changes.js";
import * as now from "./view_now.js";
import * as plans from "./view_plans.js";
import * as refused from "./view_refused.js";
import * as rule from "./view_rule.js";
import * as rules from "./view_rules.js";
import * as whatIf from "./view_what_if.js";
import * as why from "./view_why.js";

// By the first part of the address after #/.
const views = {
  "": { view: now, name: "Now" },
  refused: { view: refused, name: "Refused" },
  rules: { view: rules, name: "Rules" },
  rule: { view: rule, under: "rules" },
  "what-if": { view: whatIf, name: "What if" },
  why: { view: why, name: "Why" },
  plans: { view: plans, name: "Plans" },
  changes: { view: changes, name: "Changes" },
};

const main = document.getElementById("main"), bar = document.getElementById("bar");
let leave = [], shown = 0, failed = false, typed = false;
main.addEventListener("input", () => (typed = true));

function decode(word) {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}

/** "#/rule/a%20b?tab=history" as {name, words, parameters}. */
function place() {
  const [route, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...words] = route.split("/").map(decode);
  return { name: views[name] ? name : "", words, parameters: new URLSearchParams(query) };
}

function leaveView() {
  for (const one of leave.splice(0)) one();
}

/** The name of a control. The same control has the same name after the view is drawn again. */
const nameOf = (control) => control.getAttribute("aria-label") ?? control.textContent;
function focused() {
  const active = document.activeElement;
  return main.contains(active) && active.matches("a, button, summary") ? nameOf(active) : null;
}

async function show({ focus = true } = {}) {
  if (!session.role) return;
  const { name, words, parameters } = place(), { hash } = location, number = ++shown, before = focus ? null : focused();
  leaveView();
  failed = typed = false;
  drawBar();
  const body = h("div", { class: "unseen" }, "Loading");
  main.replaceChildren(body);
  const context = {
    words,
    parameters,
    current: () => number === shown,
    onLeave: (f) => (number === shown ? leave.push(f) : f()),
    // An answer may come when somebody is elsewhere already.
    again: () => location.hash === hash && show({ focus: false }),
  };
  try {
    const content = await views[name].view.show(context);
    if (number !== shown) return;
    main.replaceChildren(...[content].flat());
  } catch (error) {
    if (number !== shown) return;
    failed = true;
    main.replaceChildren(
      h("h1", { tabindex: "-1" }, "This cannot be shown"),
      h("p", { class: "banner" }, errorText(error)),
      h("p", null, button("Try again", () => show())),
    );
    if (error.status === 0) retry(number);
  }
  const heading = main.querySelector("h1");
  document.title = `${heading?.textContent ?? "weir"} · weir`;
  if (focus) {
    heading?.setAttribute("tabindex", "-1");
    heading?.focus();
    window.scrollTo(0, 0);
  } else if (before !== null && document.activeElement === document.body)
    ([...main.querySelectorAll("a, button, summary")].find((one) => nameOf(one) === before) ?? heading)?.focus();
}

/** weir restarts under the open page: what was to be shown comes when it is back. */
function retry(number) {
  const timer = setTimeout(() => number === shown && show({ focus: false }), 2000);
  leave.push(() => clearTimeout(timer));
}

/** A token of the host has its role as its name. */
function whoIsIn() {
  const names = [author.get(), session.token === session.role ? "" : session.token].filter(Boolean);
  return names.length ? `${names.join(", ")} (${session.role})` : session.role;
}

function drawBar() {
  const { name: open } = place(), current = views[open].under ?? open;
  const links = Object.entries(views)
    .filter(([, { name }]) => name)
    .map(([key, { name }]) => h("a", { href: `#/${key}`, "aria-current": key === current ? "page" : null }, name));
  bar.replaceChildren(
    h("div", { class: "inner" },
      h("a", { class: "name", href: "#/" }, h("img", { src: "/ui/icon.svg", alt: "" }), "weir"),
      h("nav", { "aria-label": "Views" }, links),
      h("div", { class: "state" }, h("span", null, whoIsIn()),
        button("Sign out", signOut, { class: "small" }))),
  );
  // A phone shows only some of them.
  const nav = bar.querySelector("nav"), active = nav.querySelector("[aria-current]");
  if (active) nav.scrollLeft = active.offsetLeft - nav.offsetLeft - (nav.clientWidth - active.offsetWidth) / 2;
}

// ---- whether weir answers ----

const down = document.getElementById("down"), ASK_MS = 5000, LOST_MS = 4000;
let lost = null, answered = Date.now();

function isBack() {
  clearTimeout(lost);
  lost = null;
  answered = Date.now();
  if (down.hidden) return;
  down.hidden = true;
  clearNotes();
}

/** A stream that ends after its time is open again before anybody has to know. */
function isLost() {
  lost ??= setTimeout(() => {
    down.textContent = `weir does not answer: it may be restarting. What is here is of ${instant(answered)}; the page goes on by itself.`;
    down.hidden = !session.role;
  }, LOST_MS);
}

service.onAnswer = isBack;
service.onSilence = isLost;
watch.onState = (state) => (state === "lost" ? isLost() : state === "open" && isBack());
// Views that are not live notice it, too.
setInterval(() => {
  if (session.role && !document.hidden && Date.now() - answered >= ASK_MS) fetch("/v1/session", { cache: "no-store" }).then(isBack, isLost);
}, ASK_MS);

// ---- signing in ----

/** Where the rules are is asked once for a session. */
async function enter(data) {
  session.role = data.role;
  session.token = data.token;
  const { source } = await get("/v1/status");
  session.source = source.address;
  session.readOnly = source.read_only;
}

/** The form; `done` is called when somebody is signed in. */
function signInForm(reason, done) {
  const token = h("input", { type: "password", autocomplete: "current-password", required: true, spellcheck: "false" });
  const box = field("Token", token, "The one that you were given; or the one in the file admin-token in weir's data folder (operate-token and read-token allow less).");
  const name = h("input", { value: author.get(), autocomplete: "name", maxlength: "100" });
  const signIn = h("button", { type: "submit", class: "main" }, "Sign in");
  const send = async (event) => {
    event.preventDefault();
    signIn.disabled = true;
    fieldError(box, "");
    try {
      const { data } = await ask("POST", "/v1/session", { body: { token: token.value.trim() }, by: name.value.trim() });
      author.set(name.value.trim());
      token.value = "";
      await enter(data);
      done();
    } catch (error) {
      fieldError(box, error.status === 401 ? "This token is not valid." : errorText(error));
      token.focus();
    } finally {
      signIn.disabled = false;
    }
  };
  return h("form", { onsubmit: send }, reason && h("p", { class: "banner mild" }, reason), box, field("Your name", name, "Optional: the history shows it with your changes."),
    h("div", { class: "actions" }, signIn));
}

/** Instead of everything else. */
function showSignIn(reason) {
  leaveView();
  clearNotes();
  down.hidden = true;
  shown++;
  stop();
  bar.replaceChildren();
  main.replaceChildren(h("div", { class: "card signin" }, h("h1", null, "Sign in to weir"), signInForm(reason, () => show())));
  document.title = "Sign in · weir";
  main.querySelector("input").focus();
}

async function signOut() {
  await ask("DELETE", "/v1/session").catch(() => {});
  session.role = null;
  unfinished.drop(); // whoever is next at this browser
  sessionStorage.removeItem("candidate");
  showSignIn("You are signed out.");
}

/** Over everything else, so that nothing that was typed is lost. */
let signingIn = false;
session.onEnd = async () => {
  if (signingIn || !session.role) return;
  signingIn = true;
  const done = await dialog("Sign in again", (close) => signInForm("Your session is over. What you were doing is still here: do it again when you are signed in.", () => close(true)));
  signingIn = false;
  if (!done) {
    session.role = null;
    showSignIn();
  } else if (document.querySelector("dialog[open]") || (typed && !failed)) drawBar();
  else show({ focus: false });
};

async function begin() {
  try {
    await enter(await get("/v1/session"));
    show();
  } catch (error) {
    if (error.status === 401) showSignIn();
    else {
      main.replaceChildren(h("p", { class: "banner" }, error.message));
      setTimeout(begin, 2000);
    }
  }
}

window.addEventListener("hashchange", async ({ oldURL, newURL }) => {
  // Back goes without asking: the address stays until somebody says that what was typed may go.
  if (isUnsaved()) {
    history.replaceState(null, "", oldURL);
    if (await leaveDialogs()) location.replace(newURL);
    return;
  }
  closeDialogs();
  clearNotes();
  show();
});
window.addEventListener("beforeunload", (event) => isUnsaved() && event.preventDefault());
window.addEventListener("again", () => show({ focus: false }));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  (main.querySelector("h1") ?? main).focus();
});
begin();
