"use strict";
// Whether there is any use in asking, and what the log says about it.

const { AuthError } = require("./connection.js");
const { ProtocolError, ReplyError } = require("./resp.js");
const { WeirError } = require("./verdict.js");
const { UNREACHABLE } = require("./line.js");

const FAILURES_MAX = 5;
const PAUSE_MS = 500;
const PASSING = /^NOAUTH|^WRONGPASS|^LOADING|try again later|max number of clients/; // another try may have another reply

class Reach {
  #where;
  #then;
  #log;
  #failures = 0;
  #nextTry = 0;

  /** Calls that were decided without the service. */
  undecided = 0;

  constructor(where, then, log) {
    this.#where = where;
    this.#then = then;
    this.#log = log;
  }

  /** After some failures in a row one call in PAUSE_MS tries, and the others do not wait. */
  mayAsk() {
    if (this.#failures < FAILURES_MAX) return true;
    const now = performance.now();
    if (now < this.#nextTry) return false;
    this.#nextTry = now + PAUSE_MS;
    return true;
  }

  /** Takes a reply, or why there is none, and returns what the caller gets for it: the reply, a WeirError or UNREACHABLE. */
  heard(result) {
    if (!(result instanceof Error)) {
      this.#worked();
      return result;
    }
    const isAnswer = result instanceof ProtocolError || (result instanceof ReplyError && !PASSING.test(result.message));
    if (!isAnswer) {
      this.#failed(reason(result));
      return UNREACHABLE;
    }
    this.#worked();
    return new WeirError(`weir at ${this.#where} answers: ${result.message}`);
  }

  #worked() {
    if (this.#failures) this.#log(`weir at ${this.#where} answers again; ${this.undecided} calls were decided without it so far`);
    this.#failures = 0;
  }

  #failed(why) {
    this.#nextTry = performance.now() + PAUSE_MS;
    if (this.#failures++ === 0) this.#log(`weir at ${this.#where} does not answer, and calls are ${this.#then} until it does: ${why}`);
  }
}

function reason(error) {
  const text = error.message || error.errors?.map((each) => each.message).join("; ") || error.code || "it does not say why";
  if (/^WRONGPASS/.test(text)) return "its token is not the one in the url";
  if (/^NOAUTH/.test(text)) return "it wants a token: redis://:TOKEN@HOST:PORT";
  if (error instanceof AuthError) return `it does not take the token: ${text}`;
  if (/closed by the service/.test(text)) return `${text}; is this its port for Redis clients, 6380?`;
  return text;
}

module.exports = { Reach };
