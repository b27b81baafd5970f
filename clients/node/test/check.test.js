"use strict";
// The call, and the receipts and holds that it may bring.

const assert = require("node:assert/strict");
const { test } = require("node:test");
const { TooFrequent, Verdict, Weir, WeirError } = require("weir-client");
const { newAddress, newKey, shared, until } = require("./servers.js");

const ready = shared();
const HOUR_MS = 3600 * 1000;
const TOKENS = 5_000_000_000; // the limit of the rule llm
const HELD = { requests: 1, tokens: 60_000_000 };

test("allowed, then refused", async () => {
  const { weir } = await ready;
  const key = newKey();
  const first = await weir.check({ event: "ocr", key });
  assert.ok(first instanceof Verdict && first.allowed && first.status === 0 && first.retryAfterMs === 0 && !first.penalty);
  assert.deepEqual([first.rule, first.limit, first.max, first.remaining, first.unit], ["ocr", "hour", 2, 1, "requests"]);
  assert.ok(first.windowMs === HOUR_MS && first.resetMs > 0 && first.resetMs <= HOUR_MS && first.receipt === null && first.hold === null);
  assert.deepEqual(first.headers(), [
    ["RateLimit-Policy", '"ocr/day";q=5;w=86400, "ocr/hour";q=2;w=3600'],
    ["RateLimit", '"ocr/hour";r=1;t=3600, "ocr/day";r=4;t=86400'],
  ]);
  assert.ok((await weir.check({ event: "ocr", key })).allowed);
  const refused = await weir.check({ event: "ocr", key });
  assert.ok(!refused.allowed && refused.status === 429 && !refused.unavailable && refused.remaining === 0);
  assert.ok(refused.retryAfterMs > 0 && refused.retryAfterMs <= HOUR_MS);
  const error = new TooFrequent(refused);
  assert.match(error.message, /^too frequent: rule ocr, limit hour \(at most 2\); try again in 3\d\d\d s$/);
  assert.equal(error.retryAfterMs, refused.retryAfterMs);
  assert.ok(Number(error.headers["Retry-After"]) > 0 && error.status === 429 && error.statusCode === 429 && error instanceof Error);
  const never = await weir.check({ event: "ocr", key, cost: 3 });
  assert.ok(never.retryAfterMs === -1 && !new Map(never.headers()).has("Retry-After"));
});

test("no rule, a penalty, a header twice", async () => {
  const { weir } = await ready;
  const key = newKey();
  const none = await weir.check({ event: "nobody-limits-this", key });
  assert.ok(none.allowed && none.rule === null && none.max === null && none.unit === null && none.headers().length === 0);
  const found = [];
  for (let i = 0; i < 4; i++) found.push(await weir.check({ event: "strict", key }));
  assert.deepEqual(found.map((verdict) => verdict.penalty), [false, false, true, true]);
  const twice = await weir.check({ method: "POST", host: "api.example.com", headers: { "X-Tenant": [key, "junk"] } });
  assert.ok(!twice.allowed && twice.status === 400 && /repeats a header/.test(new TooFrequent(twice).message));
});

test("peek and cost", async () => {
  const { weir } = await ready;
  const key = newKey();
  assert.ok((await weir.check({ event: "ocr", key, cost: 2, peek: true })).allowed);
  assert.equal((await weir.check({ event: "ocr", key, cost: 2 })).remaining, 0);
  assert.ok(!(await weir.check({ event: "ocr", key, peek: true })).allowed);
  assert.ok((await weir.check({ event: "ocr", key, cost: 0 })).allowed);
});

test("any text is a subject of its own", async () => {
  const { weir } = await ready;
  const key = newKey();
  const long = "é".repeat(250_000);
  const others = ["\0b", "\0", "\ud800", "\ud801", "\udcff", "é", "e\u0301", "\u{1f600}", " ", "\r\n", "\r\n$3\r\nfoo\r\n", "*1\r\n", long, `${long}x`];
  assert.ok((await weir.check({ event: "ocr", key, cost: 2 })).allowed);
  for (const other of others) {
    assert.ok((await weir.check({ event: "ocr", key: key + other, cost: 2 })).allowed, JSON.stringify(other.slice(0, 9)));
    assert.ok(!(await weir.check({ event: "ocr", key: key + other })).allowed, JSON.stringify(other.slice(0, 9)));
  }
  // Bytes count, not characters.
  assert.ok(!(await weir.check({ event: "ocr", key: Buffer.from(`${key}é`) })).allowed);
  assert.ok(!(await weir.check({ event: "ocr", key: Buffer.concat([Buffer.from(key), Buffer.from([0xed, 0xa0, 0x80])]) })).allowed);
  assert.ok((await weir.check({ event: "ocr", key: Buffer.from(`${key}é`, "latin1") })).allowed);
  assert.ok((await weir.check({ event: "ocr", key: 2 ** 40 + process.pid, cost: 2 })).allowed);
  assert.ok(!(await weir.check({ event: "ocr", key: BigInt(2 ** 40 + process.pid) })).allowed);
  assert.equal((await weir.check({ event: "ocr", key: "" })).rule, null); // nobody
});

test("a request that is too large harms nobody else", async () => {
  const { weir } = await ready;
  const key = newKey();
  const large = weir.check({ event: "ocr", key: "x".repeat(1024 * 1024) });
  const others = [weir.check({ event: "ocr", key }), weir.check({ event: "ocr", key })];
  await assert.rejects(large, { name: "RangeError", message: /at most 1048576 are allowed/ });
  assert.deepEqual((await Promise.all(others)).map((verdict) => verdict.allowed), [true, true]);
  // The largest that is sent passes, and one byte more is not sent.
  const room = 1024 * 1024 - 111;
  for (let size = room - 200; ; size++) {
    const found = await weir.check({ event: "ocr", key: "y".repeat(size), peek: true }).then(() => true, (error) => error);
    if (found === true) continue;
    assert.equal(found.name, "RangeError");
    break;
  }
});

test("attributes of http", async () => {
  const { weir } = await ready;
  const key = newKey();
  const ip = newAddress();
  for (const question of [
    { path: "/%70age?x=1", ip, cost: 2 },
    { path: Buffer.from("/mine"), user: key },
    { method: "POST", host: "api.example.com", headers: [[Buffer.from("x-tenant"), Buffer.from(`${key}-b`)]] },
    { method: "POST", host: "API.example.com:80", headers: { "x-tenant": key } },
    { method: "POST", host: "api.example.com", headers: new Map([["X-Tenant", `${key}-map`]]) },
    { method: "POST", host: "api.example.com", headers: new Headers({ "X-Tenant": `${key}-headers` }) },
    { path: "/page", peer: "127.0.0.1", headers: { "X-Forwarded-For": newAddress() }, cost: 2 },
    { path: "/page", peer: "::ffff:127.0.0.1", headers: { "X-Forwarded-For": newAddress() }, cost: 2 },
    { domain: "edge", descriptor: { plan: "free", user: key } },
    { domain: "edge", descriptor: [["plan", "free"], ["user", `${key}-2`]] },
  ]) {
    assert.ok((await weir.check(question)).allowed, JSON.stringify(question));
    const refused = await weir.check(question);
    assert.ok(!refused.allowed && ["page", "by-user", "by-tenant", "descriptors"].includes(refused.rule), JSON.stringify(question));
  }
  assert.equal((await weir.check({ domain: "edge", descriptor: [["user", key], ["plan", "free"]] })).rule, null);
});

test("costs by unit", async () => {
  const { weir } = await ready;
  const key = newKey();
  assert.equal((await weir.check({ event: "llm", key, costs: { requests: 1, tokens: TOKENS - 2 } })).remaining, 2);
  const refused = await weir.check({ event: "llm", key, costs: { requests: 1, tokens: 3 } });
  assert.deepEqual([refused.allowed, refused.limit, refused.max, refused.remaining, refused.unit], [false, "tokens", TOKENS, 2, "tokens"]);
  assert.match(new TooFrequent(refused).message, /\(at most 5000000000 tokens\); try/);
  assert.ok((await weir.check({ event: "llm", key, costs: { tokens: 2 } })).allowed);
  assert.ok((await weir.check({ event: "llm", key, cost: 99 })).allowed);
  assert.equal((await weir.check({ event: "llm", key })).unit, "requests");
  assert.ok((await weir.check({ event: "llm", key, costs: {} })).allowed);
});

test("mistakes", async () => {
  const { weir } = await ready;
  const many = Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`u${i}`, 1]));
  for (const [question, name, words] of [
    [{ ip: "10.0.0.1, 10.0.0.2" }, "RangeError", /X-Forwarded-For/],
    [{ peer: "fe80::1%eth0" }, "RangeError", /peer 'fe80::1%eth0' is not one IPv4 or IPv6 address/],
    [{ ip: 7 }, "TypeError", /ip is number/],
    [{ key: {} }, "TypeError", /key is Object, and must be a string/],
    [{ key: true }, "TypeError", /key is boolean/],
    [{ key: 1.5 }, "TypeError", /key is the number 1.5/],
    [{ key: 2 ** 53 }, "TypeError", /safe integer/],
    [{ cost: -1 }, "RangeError", /cost -1 is not between 0 and 9007199254740991/],
    [{ cost: 2 ** 53 }, "RangeError", /not between/],
    [{ cost: NaN }, "RangeError", /not between/],
    [{ cost: 1.5 }, "TypeError", /cost is 1.5/],
    [{ cost: "1" }, "TypeError", /cost is string/],
    [{ cost: 2, costs: { tokens: 1 } }, "RangeError", /cannot be combined/],
    [{ costs: [1] }, "TypeError", /costs is Array, and must map units/],
    [{ costs: { "a b": 1 } }, "RangeError", /the unit 'a b'/],
    [{ costs: { tokens: 1.5 } }, "TypeError", /the cost in tokens is 1.5/],
    [{ costs: many }, "RangeError", /17 units/],
    [{ headers: Array(101).fill(["X", "y"]) }, "RangeError", /101 are too many/],
    [{ headers: { "": "y" } }, "RangeError", /a header without a name/],
    [{ descriptor: Array(257).fill(["k", "v"]) }, "RangeError", /257 are too many/],
    [{ descriptor: { k: null } }, "TypeError", /the value of an entry is null/],
    [{ keys: "u" }, "TypeError", /unknown option 'keys'/],
    [{ ttlMs: 0 }, "RangeError", /ttlMs 0 is not/],
    [{ ttlMs: 86_400_001 }, "RangeError", /ttlMs 86400001/],
    [{ ttlMs: "5" }, "TypeError", /ttlMs is string/],
    [{ ttlMs: 5, onExpiry: "kept" }, "RangeError", /onExpiry is "release" or "keep"/],
    [{ ttlMs: 5, peek: true }, "RangeError", /peek charges nothing/],
    [undefined, "TypeError", /must be an object/],
  ]) {
    await assert.rejects(weir.check(question), { name, message: words }, JSON.stringify(question));
  }
  for (const call of [(held) => weir.settle(held), (held) => weir.refund(held), (held) => weir.release(held), (held) => weir.renew(held, 5)]) {
    await assert.rejects(call("rubbish"), (error) => error instanceof WeirError && /not a.* receipt/.test(error.message));
  }
});

test("refund", async () => {
  const { weir } = await ready;
  const key = newKey();
  const charged = await weir.check({ event: "ocr", key, cost: 2, refundable: true });
  assert.ok(/^[0-9a-f]+$/.test(charged.receipt) && charged.hold === null);
  const refused = await weir.check({ event: "ocr", key, refundable: true });
  assert.ok(!refused.allowed && refused.receipt === null && (await weir.refund(refused)) === 0);
  assert.equal(await weir.refund(JSON.parse(JSON.stringify(charged))), 2);
  assert.equal(await weir.refund(charged.receipt), 0); // used before
  assert.ok((await weir.check({ event: "ocr", key })).allowed);
});

/** In millions of tokens. */
async function used(weir, key) {
  let asked = TOKENS;
  for (let step = asked; step; ) {
    const { allowed } = await weir.check({ event: "llm", key, costs: { tokens: asked }, peek: true });
    step = Math.floor(step / 2);
    asked += allowed ? step : -step;
  }
  return Math.round((TOKENS - asked) / 1_000_000) || 0;
}

test("reserve: settled, kept, cancelled", async () => {
  const { weir } = await ready;
  const key = newKey();
  const question = { event: "llm", key, costs: HELD, ttlMs: 600_000 };
  const result = await weir.reserve(question, async (hold) => {
    assert.ok(hold.verdict.hold && hold.verdict.receipt === null && (await used(weir, key)) === 60);
    assert.equal(await hold.renew(60_000), 2);
    await assert.rejects(hold.settle({ cost: 1, costs: {} }), /cannot be combined/);
    await assert.rejects(hold.settle({ tokens: 1 }), /unknown option 'tokens'/); // a mistake does not end it
    assert.equal(await hold.settle({ costs: { tokens: 25_000_000 } }), 2);
    assert.deepEqual([await hold.settle(), await hold.cancel(), await hold.renew(5)], [0, 0, 0]);
    return "done";
  });
  assert.ok(result === "done" && (await used(weir, key)) === 25);
  assert.ok(!(await weir.check({ event: "llm", key, cost: 100, peek: true })).allowed); // requests keep what was held
  await weir.reserve(question, () => {});
  assert.equal(await used(weir, key), 85);
  const failing = [() => { throw new Error("sync"); }, async () => { throw new Error("async"); }, () => Promise.reject(undefined)];
  for (const body of failing) await assert.rejects(weir.reserve(question, body), (error) => error === undefined || /sync/.test(error.message));
  assert.equal(await used(weir, key), 85);
  await assert.rejects(weir.reserve({ ...question, costs: { tokens: TOKENS } }, () => assert.fail("must not run")), TooFrequent);
  await assert.rejects(weir.reserve({ event: "llm", key }, () => {}), /ttlMs is missing/);
  await assert.rejects(weir.reserve(question), /the body is undefined/);
  await weir.reserve({ event: "nobody counts this", key, ttlMs: 5 }, async (hold) => {
    assert.deepEqual([hold.verdict.hold, await hold.renew(5), await hold.settle({ cost: 5 })], [null, 0, 0]);
  });
});

test("a hold ends by itself, and is settled by its text", async () => {
  const { weir } = await ready;
  const key = newKey();
  const held = await weir.check({ event: "llm", key, costs: HELD, ttlMs: 1 });
  await until(async () => (await used(weir, key)) === 0, "the hold is over");
  assert.equal(await weir.renew(held, 5), 0);
  assert.equal(await weir.settle(held, { costs: { tokens: 9_000_000 } }), 2);
  assert.equal(await used(weir, key), 9);
  const kept = await weir.check({ event: "llm", key: `${key}-kept`, costs: HELD, ttlMs: 1, onExpiry: "keep" });
  assert.equal(await weir.settle(kept.hold, { cost: 0 }), 2);
  assert.equal(await used(weir, `${key}-kept`), 0);
});

test("a slot is held until it is released", async () => {
  const { weir } = await ready;
  const key = newKey();
  const first = await weir.check({ event: "job", key });
  assert.ok(first.allowed && first.hold && first.receipt === null && !(await weir.check({ event: "job", key })).allowed);
  assert.deepEqual([await weir.release(first), await weir.release(first)], [2, 0]);
  const second = await weir.check({ event: "job", key, refundable: true });
  assert.ok(second.hold && second.hold === second.receipt && (await weir.refund(second)) === 2);
  assert.ok((await weir.check({ event: "job", key, peek: true })).allowed);
});

test("a signal ends the wait, and what was held is given back", async () => {
  const { weir } = await ready;
  const key = newKey();
  const reason = new Error("enough");
  await assert.rejects(weir.check({ event: "ocr", key, signal: AbortSignal.abort(reason) }), reason);
  assert.equal((await weir.check({ event: "ocr", key, peek: true, signal: new AbortController().signal })).remaining, 2);
  for (let turns = 0; turns < 20; turns++) {
    const controller = new AbortController();
    const call = weir
      .check({ event: "llm", key, costs: HELD, ttlMs: 600_000, signal: controller.signal })
      .then((verdict) => weir.refund(verdict), (error) => assert.equal(error.name, "AbortError"));
    for (let i = 0; i < turns; i++) await new Promise((resolve) => setImmediate(resolve));
    controller.abort();
    // The next one has its own answer.
    assert.equal((await weir.check({ event: "wide", key: `${key}-${turns}` })).rule, "wide");
    await call;
  }
  await until(async () => (await used(weir, key)) === 0, "nothing is held");
});

test("thousands at once get their own answers, in a few round trips", async () => {
  const { weir, service } = await ready;
  const key = newKey();
  const many = Weir.connect(service.url, { deadlineMs: 30_000, whenUnreachable: "refuse" });
  const found = await Promise.all(Array.from({ length: 5000 }, (_, i) => many.check({ event: "wide", key: `${key}-${i % 1000}`, cost: i % 7 })));
  const most = new Map();
  for (let i = 0; i < 5000; i++) most.set(i % 1000, (most.get(i % 1000) ?? 1_000_000) - (i % 7));
  for (const [i, left] of most) assert.equal(found[4000 + i].remaining, left);
  const passed = await Promise.all(Array.from({ length: 3000 }, () => many.check({ event: "ocr", key })));
  assert.equal(passed.filter((verdict) => verdict.allowed).length, 2);
  assert.equal(many.unreachable + weir.unreachable, 0);
  await many.close();
});
