// The frame of the page: signing in, the bar, and which view is shown.
import { ask, author, get, session } from "./api.js";
import { button, field, h, note } from "./dom.js";
import { ago } from "./format.js";
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
let leave = [], shown = 0;

/** "#/rule/a%20b?tab=history" as {name, words, parameters}. */
function place() {
  const [route, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...words] = route.split("/").map((word) => decodeURIComponent(word));
  return { name: views[name] ? name : "", words, parameters: new URLSearchParams(query) };
}

function leaveView() {
  for (const one of leave.splice(0)) one();
}

async function show({ focus = true } = {}) {
  if (!session.role) return;
  const { name, words, parameters } = place(), number = ++shown;
  leaveView();
  drawBar(views[name].under ?? name);
  const body = h("div", { class: "unseen" }, "Loading");
  main.replaceChildren(body);
  const context = {
    words,
    parameters,
    main,
    current: () => number === shown,
    onLeave: (f) => (number === shown ? leave.push(f) : f()),
    again: () => show({ focus: false }),
  };
  try {
    const content = await views[name].view.show(context);
    if (number !== shown) return;
    main.replaceChildren(...[content].flat());
  } catch (error) {
    if (number !== shown) return;
    main.replaceChildren(
      h("h1", { tabindex: "-1" }, "This cannot be shown"),
      h("p", { class: "banner" }, error.message, error.hint ? `: ${error.hint}` : ""),
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
  }
}

/** weir restarts under the open page: what was to be shown comes when it is back. */
function retry(number) {
  const timer = setTimeout(() => number === shown && show({ focus: false }), 2000);
  leave.push(() => clearTimeout(timer));
}

function drawBar(current) {
  const links = Object.entries(views)
    .filter(([, { name }]) => name)
    .map(([key, { name }]) => h("a", { href: `#/${key}`, "aria-current": key === current ? "page" : null }, name));
  bar.replaceChildren(
    h("div", { class: "inner" },
      h("a", { class: "name", href: "#/" }, h("img", { src: "/ui/icon.svg", alt: "" }), "weir"),
      h("nav", { "aria-label": "Views" }, links),
      h("div", { class: "state" }, h("span", { id: "connection", role: "status" }), h("span", null, author.get() ? `${author.get()} (${session.role})` : session.role),
        button("Sign out", signOut, { class: "small" }))),
  );
}

let lostAt = null;
watch.onState = (state) => {
  const place = document.getElementById("connection");
  if (state === "lost") lostAt ??= Date.now();
  if (state !== "lost" && lostAt) {
    if (Date.now() - lostAt > 5000) note("weir is back");
    lostAt = null;
  }
  if (place) place.textContent = state === "lost" ? `weir does not answer (since ${ago(lostAt)})` : "";
};

// ---- signing in ----

function signInForm(reason) {
  const token = h("input", { type: "password", autocomplete: "current-password", required: true, spellcheck: "false" });
  const box = field("Token", token, "The file admin-token in weir's data folder has it; operate-token and read-token allow less.");
  const name = h("input", { value: author.get(), autocomplete: "name", maxlength: "100" });
  const signIn = h("button", { type: "submit", class: "main" }, "Sign in");
  const send = async (event) => {
    event.preventDefault();
    signIn.disabled = true;
    box.classList.remove("wrong");
    try {
      const { data } = await ask("POST", "/v1/session", { body: { token: token.value.trim() } });
      Object.assign(session, data);
      author.set(name.value.trim());
      token.value = "";
      show();
    } catch (error) {
      box.classList.add("wrong");
      box.querySelector(".error").textContent = error.status === 401 ? "This token is not valid." : error.message;
      token.focus();
    } finally {
      signIn.disabled = false;
    }
  };
  leaveView();
  shown++;
  stop();
  bar.replaceChildren();
  main.replaceChildren(
    h("form", { class: "card signin", onsubmit: send }, h("h1", null, "Sign in to weir"), reason && h("p", { class: "banner mild" }, reason), box, field("Your name", name, "Optional: the history shows it with your changes."), h("div", { class: "actions" }, signIn)),
  );
  document.title = "Sign in · weir";
  token.focus();
}

async function signOut() {
  await ask("DELETE", "/v1/session").catch(() => {});
  session.role = null;
  signInForm("You are signed out.");
}

session.onEnd = () => signInForm("Your session is over: sign in again. What you had typed elsewhere on the page is lost.");

async function begin() {
  try {
    Object.assign(session, await get("/v1/session"));
    show();
  } catch (error) {
    if (error.status === 401) signInForm();
    else {
      main.replaceChildren(h("p", { class: "banner" }, error.message));
      setTimeout(begin, 2000);
    }
  }
}

window.addEventListener("hashchange", () => show());
begin();
