// Numbers, lengths of time and instants, for people.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const small = new Intl.NumberFormat("en", { maximumSignificantDigits: 2 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const percent = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 1 });

export const number = (n) => (n === null || n === undefined ? "–" : Math.abs(n) < 1e6 ? whole.format(n) : short.format(n));
/** 0.4, 12, 3.2k: a rate a second. */
export const rate = (n) => (n === null || n === undefined ? "–" : n > 0 && n < 10 ? small.format(n) : n < 1e4 ? whole.format(n) : short.format(n));
export const share = (n) => percent.format(n);

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
/** 93784 as "1 d 2 h", 75 as "1 min 15 s", 0.3 as "0.3 s". */
export function span(seconds) {
  if (seconds < 1) return `${Math.max(seconds, 0).toFixed(1)} s`;
  let rest = Math.round(seconds);
  const words = [];
  for (const [name, length] of UNITS) {
    const count = Math.floor(rest / length);
    if (count > 0) words.push(`${count} ${name}`);
    else if (words.length) break;
    rest -= count * length;
    if (words.length === 2) break;
  }
  return words.join(" ");
}

const day = new Intl.DateTimeFormat("en-CA", { year: "numeric", month: "2-digit", day: "2-digit" });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const minutes = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const ownZone = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** In the viewer's zone: "14:03:20" today, else "2026-11-17 14:03". */
export function instant(value) {
  const date = new Date(value);
  if (Number.isNaN(date.getTime())) return String(value);
  return day.format(date) === day.format(new Date()) ? clock.format(date) : `${day.format(date)} ${minutes.format(date)}`;
}

/** An instant for an input of the type datetime-local, which has no zone. Seconds and texts are instants; else "". */
export function localInput(value) {
  const date = new Date(typeof value === "number" ? value * 1000 : value ?? NaN);
  return Number.isNaN(date.getTime()) ? "" : new Date(date.getTime() - date.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
}
/** The value of such an input, for the API. */
export const instantOf = (local) => (local ? new Date(local).toISOString().replace(/\.\d+/, "") : undefined);

/** "16:00 Asia/Shanghai": an instant in the zone of a rule. */
export function inZone(value, zone) {
  if (!zone || zone === ownZone) return "";
  const date = new Date(value);
  const format = { timeZone: zone, year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit" };
  try {
    return `${new Intl.DateTimeFormat("en-CA", { ...format, hourCycle: "h23" }).format(date).replace(",", "")} ${zone}`;
  } catch {
    return "";
  }
}

/** The zone that a limit's sentence names: "20 per hour (Asia/Shanghai)". */
export const zoneOf = (text) => /\(([A-Za-z_]+(?:\/[A-Za-z0-9_+-]+)*)\)$/.exec(text ?? "")?.[1];

export function ago(value) {
  const seconds = (Date.now() - new Date(value).getTime()) / 1000;
  return seconds < 5 ? "just now" : `${span(seconds)} ago`;
}

/** A subject as one text: "user=u1, ip=10.0.0.0/8". */
export const subject = (by) => (by?.length ? by.map((one) => `${one.name}=${one.value}`).join(", ") : "everybody");

/** A text that is long enough to recognise it. Unless it is `cut` already, the rest is counted. */
export const brief = (text, cut = false) => (text.length <= 120 ? text : `${text.slice(0, 100)}…${cut ? "" : ` (${number(text.length)} characters)`}`);

export const plural = (count, one, many) => `${number(count)} ${count === 1 ? one : many}`;
export const problemRows = (count) => plural(count, "row of the rules has a problem", "rows of the rules have problems");

/** The text of an error, with its hint. */
export const errorText = (error) => (error.hint ? `${error.message}: ${error.hint}` : error.message);

/** Ticks of a time axis: at most `most`, at instants that people use. */
export function ticks(start, end, most) {
  const widths = [10, 30, 60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000, 604800];
  const width = widths.find((one) => (end - start) / one <= most) ?? 604800;
  const found = [];
  // Midnights and hours of the viewer's zone, also after its clocks have changed.
  const at0 = new Date(start * 1000);
  at0.setHours(0, 0, 0, 0);
  for (let i = 0; ; i++) {
    const date = new Date(at0);
    if (width >= 86400) date.setDate(date.getDate() + (i * width) / 86400);
    else date.setSeconds(i * width);
    const at = date.getTime() / 1000;
    if (at > end) break;
    if (at < start) continue;
    const text = width >= 86400 ? date.toLocaleDateString("en-GB", { day: "numeric", month: "short" }) : width < 60 ? clock.format(date) : minutes.format(date);
    found.push({ at, text });
  }
  return found;
}
