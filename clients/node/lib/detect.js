"use strict";
// The wrapper of a function.

const { bytesOf, checkNames, costWords, kindOf } = require("./request.js");
const { Weir, passed } = require("./weir.js");

const OPTIONS = ["key", "cost", "costs", "refundOnError"];
const AsyncGeneratorFunction = Object.getPrototypeOf(async function* () {}).constructor;
const GeneratorFunction = Object.getPrototypeOf(function* () {}).constructor;
const BLANK = /^[\t-\r ]*$/;

/** Returns a function that charges each call, or throws TooFrequent instead of calling `call`. */
function detect(weir, event, options, call) {
  if (!(weir instanceof Weir)) throw new TypeError(`detect: weir is ${kindOf(weir)}; make one with Weir.connect`);
  if (typeof event !== "string") throw new TypeError(`detect: the event is ${kindOf(event)}, and must be a string`);
  if (BLANK.test(event)) throw new RangeError("detect: the event is blank; name the one that the rules match");
  if (event.includes("\0")) throw new RangeError("detect: an event has no NUL");
  checkNames(options, OPTIONS, "detect");
  if (typeof options.key !== "function") throw new TypeError(`detect: key is ${kindOf(options.key)}, and must be a function of the arguments`);
  if (typeof call !== "function") throw new TypeError(`detect: ${kindOf(call)} is not a function`);
  if (call instanceof GeneratorFunction) throw new TypeError("detect: a generator cannot wait for weir; make it an async function*");
  const guard = new Guard(weir, event, options);
  const guarded = call instanceof AsyncGeneratorFunction ? guardedItems(guard, call) : guardedCall(guard, call);
  Object.defineProperty(guarded, "name", { value: call.name, configurable: true });
  return Object.defineProperty(guarded, "length", { value: call.length, configurable: true });
}

class Guard {
  constructor(weir, event, { key, cost, costs, refundOnError = false }) {
    this.weir = weir;
    this.event = event;
    this.key = key;
    this.isRefundable = Boolean(refundOnError);
    // What is not a function is read now: a mistake is one of the program, and what was given stays as it is.
    const fixed = costWords({ cost: typeof cost === "function" ? undefined : cost, costs: typeof costs === "function" ? undefined : costs });
    if (typeof cost === "function" && costs !== undefined) costWords({ cost: 1, costs: {} });
    if (typeof costs === "function" && cost !== undefined) costWords({ cost: 1, costs: {} });
    this.costs = (self, args) => {
      if (typeof cost === "function") return costWords({ cost: wanted(cost.apply(self, args), "cost") });
      if (typeof costs === "function") return costWords({ costs: wanted(costs.apply(self, args), "costs") });
      return fixed;
    };
  }

  #keyBytes(self, args) {
    const key = this.key.apply(self, args);
    if (key === undefined || key === null) throw new RangeError(`detect: the key for ${this.event} is ${key}; it says for whom the call counts`);
    const bytes = bytesOf(key, `the key for ${this.event}`);
    if (bytes.every((byte) => byte === 0x20 || (byte >= 0x09 && byte <= 0x0d))) {
      throw new RangeError(`detect: the key for ${this.event} is blank; it says for whom the call counts`);
    }
    return bytes;
  }

  /** Nobody looks at the headers of a call that passes: weir sends them only with a refusal. */
  async enter(self, args) {
    const reply = this.isRefundable ? "receipt" : "long";
    const words = ["WEIR.CHECK", "reply", reply, "answer", "refused", "event", this.event, "key", this.#keyBytes(self, args)];
    return passed(await this.weir._ask([...words, ...this.costs(self, args)], { isRefundable: this.isRefundable }));
  }

  /** When the call is over: what it holds is released, or everything is given back. */
  leave(verdict, failed) {
    return this.weir._leave(verdict, this.event, failed && this.isRefundable);
  }
}

/** What a function forgot to return must not mean the usual cost. */
function wanted(value, what) {
  if (value === undefined) throw new TypeError(`detect: the function for ${what} returned undefined`);
  return value;
}

function guardedCall(guard, call) {
  return async function (...args) {
    const verdict = await guard.enter(this, args);
    let result;
    try {
      result = await call.apply(this, args);
    } catch (error) {
      await guard.leave(verdict, true);
      throw error;
    }
    await guard.leave(verdict, false);
    return result;
  };
}

/** As with any generator nothing happens before its first item is wanted: then it is charged, or too frequent. */
function guardedItems(guard, call) {
  return async function* (...args) {
    const verdict = await guard.enter(this, args);
    let failed = false;
    try {
      return yield* call.apply(this, args);
    } catch (error) {
      failed = true;
      throw error;
    } finally {
      await guard.leave(verdict, failed);
    }
  };
}

module.exports = { detect };
