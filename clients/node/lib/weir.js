"use strict";
// The client of `weir serve`.

const { addressOf } = require("./address.js");
const { Line, UNREACHABLE } = require("./line.js");
const { Reach } = require("./reach.js");
const { encode } = require("./resp.js");
const { COSTS, checkNames, kindOf, questionWords, trueCostWords, ttlWord } = require("./request.js");
const { TooFrequent, Verdict, WeirError, receiptIn, verdictOf } = require("./verdict.js");

const OPTIONS = ["deadlineMs", "whenUnreachable", "log"];
const DEADLINE_MAX_MS = 3600 * 1000;
const COMMAND_MAX = 1024 * 1024; // the service closes the connection after a larger one, unless it is told otherwise

class Weir {
  #address;
  #allow;
  #reach;
  #line;
  #closed = false;

  /** The service at redis://HOST:PORT, unix:///PATH or redis://:TOKEN@HOST:PORT; rediss:// is over TLS. It need not run yet. */
  static connect(url, options = {}) {
    return new Weir(url, options);
  }

  /** @param {string} url @param {import("../index").ConnectOptions} options */
  constructor(url, options = {}) {
    checkNames(options, OPTIONS, "Weir.connect");
    const { deadlineMs = 50, whenUnreachable = "allow", log = console.warn } = options;
    if (whenUnreachable !== "allow" && whenUnreachable !== "refuse") {
      throw new RangeError(`whenUnreachable is "allow" or "refuse", not ${JSON.stringify(whenUnreachable)}`);
    }
    if (typeof deadlineMs !== "number" || !(deadlineMs > 0 && deadlineMs <= DEADLINE_MAX_MS)) {
      throw new RangeError(`deadlineMs is a number of milliseconds above 0, and at most ${DEADLINE_MAX_MS}, not ${deadlineMs}`);
    }
    if (typeof log !== "function") throw new TypeError(`log is ${kindOf(log)}, and must be a function`);
    this.#address = addressOf(url);
    this.#allow = whenUnreachable === "allow";
    /** @internal */
    this._log = (line) => {
      try {
        log(line);
      } catch {
        // a call is not to fail because of the log
      }
    };
    this.#reach = new Reach(this.#address.name, this.#allow ? "let through" : "refused", this._log);
    this.#line = new Line(this.#address, deadlineMs, (result) => this.#reach.heard(result), undoing);
  }

  get unreachable() {
    return this.#reach.undecided;
  }

  async check(question) {
    return this._ask(questionWords(question), { isRefundable: Boolean(question.refundable), signal: question.signal });
  }

  async reserve(question, body) {
    if (typeof body !== "function") throw new TypeError(`reserve: the body is ${kindOf(body)}, and must be a function of the hold`);
    if (question?.ttlMs === undefined) throw new TypeError("reserve: ttlMs is missing: after how many milliseconds the hold ends by itself");
    const hold = new Hold(this, passed(await this.check(question)));
    try {
      const result = await body(hold);
      await this.#ended(hold.settle());
      return result;
    } catch (error) {
      await this.#ended(hold.cancel());
      throw error;
    }
  }

  /** The work is done, or the caller is to see why it is not. */
  async #ended(settled) {
    await settled.catch((error) => this._log(`a hold could not be settled; it ends after its time to live: ${error.message}`));
  }

  async settle(held, costs = {}) {
    checkNames(costs, COSTS, "settle");
    return this.#end(held, ["WEIR.SETTLE"], trueCostWords(costs));
  }

  async renew(held, ttlMs) {
    return this.#end(held, ["WEIR.RENEW"], ["ttl", ttlWord(ttlMs)]);
  }

  async release(held) {
    return this.#end(held, ["WEIR.SETTLE"], []);
  }

  async refund(charged) {
    return this.#end(charged, ["WEIR.REFUND"], []);
  }

  /** Calls in progress are still decided; later ones are rejected with a WeirError. */
  async close() {
    this.#closed = true;
    await this.#line.rest();
  }

  // ---- for detect and the middleware ----

  /** @internal */
  async _ask(words, { isRefundable = false, signal = undefined } = {}) {
    const reply = await this.#call(words, signal);
    if (reply !== UNREACHABLE) return verdictOf(reply, isRefundable, this.#address.name);
    this.#reach.undecided++;
    return new Verdict({ allowed: this.#allow, status: this.#allow ? 0 : 503, unavailable: true });
  }

  /**
   * Frees slots, or gives back everything. The caller is to see how the call ended, so that nothing is thrown.
   * @internal
   */
  async _leave(verdict, what, refund = false) {
    if (!verdict.hold && !(refund && verdict.receipt)) return;
    try {
      await (refund ? this.refund(verdict) : this.release(verdict));
    } catch (error) {
      const failed = refund ? `a charge for ${what} could not be given back` : `a hold for ${what} could not be released`;
      this._log(`${failed}: ${error.message}`);
    }
  }

  /** What cannot be sent ends after its time to live. */
  async #end(held, [command], words) {
    const text = typeof held === "string" ? held : (held.hold ?? held.receipt);
    if (!text) return 0;
    const reply = await this.#call([command, text, ...words]);
    if (reply === UNREACHABLE) return 0;
    if (typeof reply !== "number") throw new WeirError(`what answers at ${this.#address.name} is not weir: ${String(reply).slice(0, 80)}`);
    return reply;
  }

  async #call(words, signal) {
    if (this.#closed) throw new WeirError("this Weir is closed");
    const command = encode(words);
    if (command.length > COMMAND_MAX) throw new RangeError(`the request has ${command.length} bytes: at most ${COMMAND_MAX} are allowed`);
    if (!this.#reach.mayAsk()) {
      signal?.throwIfAborted();
      return UNREACHABLE;
    }
    const result = await this.#line.ask(command, signal);
    if (result instanceof Error) throw result;
    return result;
  }
}

/** What `reserve` gives to its body. The first of settle and cancel ends it; later ones return 0. */
class Hold {
  #weir;
  #open = true;

  constructor(weir, verdict) {
    this.#weir = weir;
    this.verdict = verdict;
  }

  async settle(costs = {}) {
    checkNames(costs, COSTS, "settle");
    trueCostWords(costs); // a mistake does not end it
    return this.#first() ? this.#weir.settle(this.verdict, costs) : 0;
  }

  async cancel() {
    return this.#first() ? this.#weir.refund(this.verdict) : 0;
  }

  async renew(ttlMs) {
    return this.#open ? this.#weir.renew(this.verdict, ttlMs) : 0;
  }

  #first() {
    const was = this.#open;
    this.#open = false;
    return was;
  }
}

function passed(verdict) {
  if (!verdict.allowed) throw new TooFrequent(verdict);
  return verdict;
}

/** The command that gives back a charge whose caller has gone, or null if the reply has no receipt. */
function undoing(reply) {
  const receipt = receiptIn(reply);
  return receipt ? encode(["WEIR.REFUND", receipt]) : null;
}

module.exports = { Hold, Weir, passed };
