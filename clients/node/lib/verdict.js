"use strict";
// What weir answers.

const { ReplyError } = require("./resp.js");

const REQUESTS = "requests";
const ITEMS = 11; // of a long reply; unit, penalty and the answer for an HTTP client may follow
const RECEIPT = 10;
const PLAIN = ["Content-Type", "text/plain; charset=utf-8"];

/** weir cannot be used: it is closed, what answers is not weir, or weir finds a mistake in the call. */
class WeirError extends Error {
  name = "WeirError";
}

class Verdict {
  #headers;
  #refusal;

  /** @param {object} fields @param {[string, string][]} headers */
  constructor(fields, headers = [], refusal = null) {
    this.allowed = fields.allowed;
    this.rule = fields.rule ?? null;
    this.limit = fields.limit ?? null;
    this.max = fields.max ?? null;
    this.remaining = fields.remaining ?? null;
    this.resetMs = fields.resetMs ?? null;
    this.retryAfterMs = fields.retryAfterMs ?? 0;
    this.windowMs = fields.windowMs ?? null;
    this.status = fields.status ?? 0;
    this.unavailable = fields.unavailable ?? false;
    this.receipt = fields.receipt ?? null;
    this.unit = fields.unit ?? null;
    this.hold = fields.hold ?? null;
    this.penalty = fields.penalty ?? false;
    this.#headers = headers;
    this.#refusal = refusal;
    Object.freeze(this);
  }

  /** The headers for the answer as weir wrote them. */
  headers() {
    return this.#headers.map(([name, value]) => [name, value]);
  }

  /** The refusal for an HTTP client: the one that weir wrote; else plain words, for when nobody could ask weir. */
  static refusal(verdict) {
    if (verdict.#refusal) return verdict.#refusal;
    const judged = verdict.rule !== null && !verdict.unavailable;
    let body = judged ? "Too many requests\n" : "Could not be judged; try again later\n";
    if (verdict.rule === null && verdict.status === 400) body = "Bad request: a header is repeated with different values\n";
    return { status: verdict.status || 429, headers: [PLAIN, ...verdict.headers()], body: Buffer.from(body) };
  }
}

/** A protected call was refused; `verdict` says by which rule, and when to come back. */
class TooFrequent extends Error {
  name = "TooFrequent";

  constructor(verdict) {
    super(refusedBecause(verdict));
    this.verdict = verdict;
    // Express and Fastify answer with these if nobody handles the error.
    this.status = this.statusCode = verdict.status || 429;
    this.headers = grouped(verdict.headers());
  }

  get retryAfterMs() {
    return this.verdict.retryAfterMs;
  }
}

function refusedBecause(verdict) {
  if (verdict.unavailable) return "refused, since weir or the store of its counters does not answer";
  if (verdict.rule === null && verdict.status === 400) return "refused, since the request repeats a header with different values";
  if (verdict.rule === null) return "refused, since it could not be judged";
  const unit = verdict.unit === null || verdict.unit === REQUESTS ? "" : ` ${verdict.unit}`;
  const text = `too frequent: rule ${verdict.rule}, limit ${verdict.limit} (at most ${verdict.max}${unit})`;
  return verdict.retryAfterMs > 0 ? `${text}; try again in ${Math.ceil(verdict.retryAfterMs / 1000)} s` : text;
}

/** Headers by name; one that is repeated has an array. */
function grouped(pairs) {
  /** @type {Record<string, string | string[]>} */
  const found = {};
  for (const [name, value] of pairs) found[name] = name in found ? [found[name], value].flat() : value;
  return found;
}

const isWhole = (reply) => Array.isArray(reply) && reply.length >= ITEMS && !reply.some((item) => item instanceof ReplyError);
const text = (item) => (item === null ? null : item.toString());

/** Returns the verdict of a long reply. Throws a WeirError if the reply is something else. */
function verdictOf(reply, isRefundable, where) {
  if (!isWhole(reply)) {
    throw new WeirError(`what answers at ${where} is not weir, or of another time: ${String(reply).slice(0, 80)}`);
  }
  const [allowed, rule, limit, max, remaining, resetMs, retryAfterMs, windowMs, status, unavailable, signed] = reply;
  const receipt = text(signed);
  const fields = {
    allowed: allowed === 1,
    rule: text(rule),
    limit: text(limit),
    ...{ max, remaining, resetMs, retryAfterMs, windowMs, status },
    unavailable: unavailable === 1,
    receipt: isRefundable ? receipt : null,
    unit: reply.length > ITEMS ? text(reply[ITEMS]) : rule === null ? null : REQUESTS,
    hold: receipt !== null && (!isRefundable || mayHold(receipt)) ? receipt : null,
    penalty: reply.length > ITEMS + 1 && reply[ITEMS + 1] === 1,
  };
  return new Verdict(fields, ...answerOf(fields, reply.slice(ITEMS + 2)));
}

/** What weir would tell an HTTP client: a content type, a body, names and values of headers. */
function answerOf(fields, [kind = null, body = null, ...items]) {
  const headers = [];
  for (let i = 0; i + 1 < items.length; i += 2) headers.push([items[i].toString("latin1"), items[i + 1].toString("latin1")]);
  if (fields.allowed || kind === null) return [headers];
  return [headers, { status: fields.status, headers: [["Content-Type", kind.toString("latin1")], ...headers], body: body ?? Buffer.alloc(0) }];
}

/** The receipt, or the hold, in a reply that nobody waits for any more. */
const receiptIn = (reply) => (isWhole(reply) && reply[RECEIPT] !== null ? reply[RECEIPT].toString() : null);

/**
 * Whether a receipt that was asked for has slots to release, which the reply does not say. Where the text has another form
 * than the one that is known here, it may.
 */
function mayHold(receipt) {
  const known = receipt.startsWith("03") && receipt.length > 64;
  return !known || /[^0]/.test(receipt.slice(8, 16) + receipt.slice(48, 64));
}

module.exports = { REQUESTS, TooFrequent, Verdict, WeirError, grouped, receiptIn, verdictOf };
