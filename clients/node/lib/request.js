"use strict";
// What weir is asked about: checked, and turned into the words of a command.

const net = require("node:net");
const { octets } = require("./resp.js");
const { REQUESTS } = require("./verdict.js");

const HEADERS_MAX = 100;
const ENTRIES_MAX = 256;
const COSTS_MAX = 16; // in other units than requests
const TTL_MAX_MS = 24 * 3600 * 1000;
const UNIT = /^[A-Za-z0-9_.-]{1,50}$/;
const TEXTS = ["event", "key", "user", "method", "path", "host", "domain"];
const ADDRESSES = ["ip", "peer"];
const COSTS = ["cost", "costs"];
const HELD = ["ttlMs", "onExpiry", "signal"];
const FIELDS = [...TEXTS, ...ADDRESSES, "headers", "descriptor", ...COSTS, "peek", "refundable", ...HELD];

function kindOf(value) {
  if (value === null) return "null";
  return typeof value === "object" ? (value.constructor?.name ?? "object") : typeof value;
}

/** A name that is misspelt must not be ignored: weir would decide about something else. */
function checkNames(options, names, what) {
  if (typeof options !== "object" || options === null) throw new TypeError(`${what}: the options are ${kindOf(options)}, and must be an object`);
  for (const name of Object.keys(options)) {
    if (!names.includes(name)) throw new TypeError(`${what}: unknown option '${name}'; allowed are ${names.join(", ")}`);
  }
}

/** Any text has bytes of its own. Other objects are not subjects: many of them would print the same. */
function bytesOf(value, what) {
  if (typeof value === "string") return octets(value);
  if (value instanceof Uint8Array) return value;
  if (typeof value === "bigint" || Number.isSafeInteger(value)) return Buffer.from(String(value), "latin1");
  const kind = typeof value === "number" ? `the number ${value}` : kindOf(value);
  throw new TypeError(`${what} is ${kind}, and must be a string, a Uint8Array, a safe integer or a bigint`);
}

const isAddress = (text) => net.isIP(text) !== 0 && !text.includes("%");

function addressBytes(value, what) {
  if (typeof value !== "string") throw new TypeError(`${what} is ${kindOf(value)}, and must be a string`);
  if (!isAddress(value)) {
    throw new RangeError(
      `${what} '${value}' is not one IPv4 or IPv6 address; put a whole X-Forwarded-For into headers, and into peer the address that sent it`,
    );
  }
  return Buffer.from(value, "latin1");
}

function wholeCost(cost, what = "cost") {
  if (typeof cost !== "number" || (Number.isFinite(cost) && !Number.isInteger(cost))) {
    throw new TypeError(`${what} is ${typeof cost === "number" ? cost : kindOf(cost)}, and must be an integer`);
  }
  if (!(cost >= 0 && cost <= Number.MAX_SAFE_INTEGER)) throw new RangeError(`${what} ${cost} is not between 0 and ${Number.MAX_SAFE_INTEGER}`);
  return String(cost);
}

function ttlWord(ttlMs) {
  if (typeof ttlMs !== "number") throw new TypeError(`ttlMs is ${kindOf(ttlMs)}, and must be a number of milliseconds`);
  if (!(ttlMs >= 1 && ttlMs <= TTL_MAX_MS)) throw new RangeError(`ttlMs ${ttlMs} is not a number of milliseconds from 1 to ${TTL_MAX_MS}`);
  return String(Math.round(ttlMs));
}

/** The words for `costs`, without one for requests. */
function otherCosts(costs) {
  if (typeof costs !== "object" || costs === null || Array.isArray(costs)) {
    throw new TypeError(`costs is ${kindOf(costs)}, and must map units to amounts, such as { tokens: 1200 }`);
  }
  const words = [];
  for (const [unit, amount] of Object.entries(costs)) {
    if (!UNIT.test(unit)) throw new RangeError(`the unit '${unit}' is not a name of letters, digits, _, - and ., 1 to 50 bytes`);
    const word = wholeCost(amount, `the cost in ${unit}`);
    if (unit !== REQUESTS) words.push(`cost:${unit}`, word);
  }
  if (words.length > 2 * COSTS_MAX) throw new RangeError(`costs in ${words.length / 2} units besides ${REQUESTS}: at most ${COSTS_MAX} are allowed`);
  return words;
}

function notBoth(cost, costs) {
  if (cost !== undefined && costs !== undefined) throw new RangeError(`cost and costs cannot be combined; name the cost in '${REQUESTS}' in costs, too`);
}

/** The words of the cost of a request. `costs` names all units: one that is not there costs 0, also requests. */
function costWords({ cost, costs }) {
  notBoth(cost, costs);
  if (costs === undefined) return cost === undefined || cost === 1 ? [] : ["cost", wholeCost(cost)];
  return ["cost", wholeCost(costs?.[REQUESTS] ?? 0), ...otherCosts(costs)];
}

/** The words of the true cost of what was held: a unit that is not named keeps what was held. */
function trueCostWords({ cost, costs }) {
  notBoth(cost, costs);
  if (costs === undefined) return cost === undefined ? [] : ["cost", wholeCost(cost)];
  const others = otherCosts(costs);
  return Object.hasOwn(costs, REQUESTS) ? ["cost", wholeCost(costs[REQUESTS]), ...others] : others;
}

/** Pairs of bytes, of an object, a Map, Headers or a list of pairs; the value of an object may be a list. */
function pairsOf(given, most, part, whole) {
  if (given === undefined || given === null) return [];
  if (typeof given !== "object") throw new TypeError(`${whole} is ${kindOf(given)}, and must be an object or a list of pairs`);
  const pairs = [];
  for (const [name, values] of given[Symbol.iterator] ? given : Object.entries(given)) {
    for (const value of Array.isArray(values) ? values : [values]) pairs.push([bytesOf(name, `the name of ${part}`), bytesOf(value, `the value of ${part}`)]);
  }
  if (pairs.length > most) throw new RangeError(`${whole}: ${pairs.length} are too many, at most ${most} are allowed`);
  if (pairs.some(([name]) => name.length === 0)) throw new RangeError(`${part} without a name`);
  return pairs;
}

/** The words for headers or entries, whose names are bytes. */
function prefixed(prefix, pairs) {
  return pairs.flatMap(([name, value]) => [Buffer.concat([Buffer.from(prefix), name]), value]);
}

function attributeWords(question) {
  const words = [];
  for (const name of TEXTS) if (question[name] !== undefined && question[name] !== null) words.push(name, bytesOf(question[name], name));
  for (const name of ADDRESSES) if (question[name]) words.push(name, addressBytes(question[name], name));
  words.push(...prefixed("header:", pairsOf(question.headers, HEADERS_MAX, "a header", "headers")));
  words.push(...prefixed("descriptor:", pairsOf(question.descriptor, ENTRIES_MAX, "an entry", "descriptor")));
  return words;
}

function holdWords({ ttlMs, onExpiry = "release", peek }) {
  if (onExpiry !== "release" && onExpiry !== "keep") throw new RangeError(`onExpiry is "release" or "keep", not ${JSON.stringify(onExpiry)}`);
  if (ttlMs === undefined) return [];
  if (peek) throw new RangeError("peek charges nothing, so that there is nothing to hold: leave ttlMs out");
  return ["ttl", ttlWord(ttlMs), "on_expiry", onExpiry];
}

/** The command for a question. */
function questionWords(question) {
  checkNames(question, FIELDS, "check");
  const held = holdWords(question);
  const command = question.peek ? "WEIR.PEEK" : held.length ? "WEIR.RESERVE" : "WEIR.CHECK";
  const reply = question.refundable ? "receipt" : "long";
  return [command, "reply", reply, "answer", "always", ...attributeWords(question), ...held, ...costWords(question)];
}

module.exports = {
  COSTS, HEADERS_MAX, addressBytes, bytesOf, checkNames, costWords, isAddress, kindOf, prefixed, questionWords, trueCostWords, ttlWord,
};
