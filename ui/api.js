// The documented admin API, and nothing else.

class ApiError extends Error {
  constructor(status, text, hint) {
    super(text);
    this.status = status;
    this.hint = hint;
  }
}

/** The session of the signed-in user. source: where the rules are; readOnly: that is a file. onEnd: called when the session is over. */
export const session = { role: null, token: "", source: "", readOnly: false, onEnd: () => {} };

/** The name under which changes are in the history; this browser remembers it. Empty: the role. */
export const author = {
  get: () => localStorage.getItem("author") ?? "",
  set: (name) => localStorage.setItem("author", name),
};

const RANKS = { read: 1, operate: 2, admin: 3 };
export const may = (role) => RANKS[session.role] >= RANKS[role];
/** Rules and overrides of a file are not changed here. */
export const mayChange = (role = "admin") => may(role) && !session.readOnly;

/** {a: 1, b: [2, "", 3], c: undefined, d: ""} as ?a=1&b=2&b=&b=3 */
export function query(parameters) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters ?? {}))
    for (const one of [value].flat()) if (one !== undefined && one !== null && (one !== "" || Array.isArray(value))) words.append(name, one);
  const text = words.toString();
  return text ? `?${text}` : "";
}

/** Segments of a path, each encoded. */
export const path = (...segments) => "/v1/" + segments.map((one) => encodeURIComponent(one)).join("/");

async function read(response) {
  const text = await response.text();
  const type = response.headers.get("content-type") ?? "";
  return type.startsWith("application/json") && text ? JSON.parse(text) : text;
}

/** Told of each answer, and of each call that gets none. */
export const service = { onAnswer: () => {}, onSilence: () => {} };

/** Calls that change nothing, whatever their method. */
const isHarmless = (method, where) => method === "GET" || /[?&]dry_run=1|^\/v1\/(lint|simulate|session)\b/.test(where);

/** Asks; returns {status, data, tag}. Throws an ApiError unless the status is 2xx. `by`: in place of the name that is remembered. */
export async function ask(method, where, { body, type, match, absent, note, signal, by = author.get() } = {}) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = type ?? "application/json";
  if (match) headers["If-Match"] = `"${match}"`;
  if (absent) headers["If-None-Match"] = "*";
  if (note) headers["X-Weir-Note"] = encodeHeader(note);
  if (method !== "GET" && by) headers["X-Weir-Author"] = encodeHeader(by);
  let response;
  try {
    response = await fetch(where, {
      method,
      headers,
      body: body === undefined || typeof body === "string" ? body : JSON.stringify(body),
      signal,
      credentials: "same-origin",
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    service.onSilence();
    throw new ApiError(0, "weir does not answer", isHarmless(method, where) ? "it may be restarting; nothing was changed" : "look whether the change was made before you try again");
  }
  service.onAnswer();
  const data = await read(response);
  if (response.ok) return { status: response.status, data, tag: response.headers.get("etag")?.replaceAll('"', "") };
  if (response.status === 401 && session.role) session.onEnd();
  throw new ApiError(response.status, data.error ?? `the service answered ${response.status}`, data.hint);
}

// Headers are bytes: letters outside of Latin-1 would be an error of fetch.
const encodeHeader = (text) =>
  [...new TextEncoder().encode(text.replace(/[\r\n\0]+/g, " "))].map((byte) => String.fromCharCode(byte)).join("");

export const get = async (where, options) => (await ask("GET", where, options)).data;
