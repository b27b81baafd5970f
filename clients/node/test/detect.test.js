"use strict";
// The wrapper of a function.

const assert = require("node:assert/strict");
const { test } = require("node:test");
const { TooFrequent, Weir, detect } = require("weir-client");
const { Service, newKey, shared, until } = require("./servers.js");

const ready = shared();
const isFree = async (weir, key) => (await weir.check({ event: "job", key, peek: true })).allowed;

test("functions, plain or not, and their names", async () => {
  const { weir } = await ready;
  const key = newKey();
  const submit = detect(weir, "ocr", { key: (user) => user }, function submit(user, image) { return `${user} ${image}`; });
  assert.deepEqual([submit.name, submit.length], ["submit", 2]);
  assert.equal(await submit(key, "a.png"), `${key} a.png`);
  const later = detect(weir, "ocr", { key: ({ id }) => id }, async (user) => user.id);
  assert.equal(await later({ id: key }), key);
  await assert.rejects(submit(key, "b.png"), (error) => error instanceof TooFrequent && error.verdict.rule === "ocr" && error.verdict.headers().length > 0);
  class Ocr {
    key = newKey();
    read = detect(weir, "ocr", { key() { return this.key; } }, function () { return this; });
  }
  const ocr = new Ocr();
  assert.equal(await ocr.read(), ocr);
});

test("keys that are nobody's", async () => {
  const { weir } = await ready;
  let calls = 0;
  const submit = detect(weir, "ocr", { key: (user) => user }, () => calls++);
  for (const [key, words] of [[undefined, /is undefined/], [null, /is null/], ["", /is blank/], [" \t\r\n\v", /is blank/], [{}, /is Object/], [NaN, /NaN/]]) {
    await assert.rejects(submit(key), { message: words });
  }
  assert.equal(calls, 0);
});

test("costs, and what is given back", async () => {
  const { weir } = await ready;
  const key = newKey();
  const options = { key: (user) => user, costs: { requests: 1, tokens: 10 } };
  const read = detect(weir, "llm", options, () => 1);
  options.costs.tokens = -1; // what was given stays as it is
  assert.equal(await read(key), 1);
  assert.equal((await weir.check({ event: "llm", key, costs: { tokens: 0 }, peek: true })).remaining, 99);
  const pages = detect(weir, "ocr", { key: (user) => user, cost: (_, list) => list.length, refundOnError: true }, (_, list) => {
    if (list.length === 2) throw new Error("unreadable");
    return list.length;
  });
  await assert.rejects(pages(key, ["a", "b"]), /unreadable/);
  assert.equal((await weir.check({ event: "ocr", key, peek: true, cost: 0 })).remaining, 2);
  assert.equal(await pages(key, ["a"]), 1);
  await assert.rejects(pages(key, ["a", "b"]), TooFrequent);
  const wrong = detect(weir, "ocr", { key: () => key, cost: () => undefined }, () => assert.fail("must not run"));
  await assert.rejects(wrong(), /returned undefined/);
  assert.equal((await weir.check({ event: "ocr", key, peek: true, cost: 0 })).remaining, 1);
});

test("mistakes", async () => {
  const { weir } = await ready;
  const key = () => "u";
  const call = () => {};
  for (const [words, ...args] of [
    [/make one with Weir.connect/, {}, "ocr", { key }, call],
    [/must be a string/, weir, 7, { key }, call],
    [/event is blank/, weir, " ", { key }, call],
    [/no NUL/, weir, "a\0", { key }, call],
    [/must be a function of the arguments/, weir, "ocr", { key: "user" }, call],
    [/unknown option 'costt'/, weir, "ocr", { key, costt: 1 }, call],
    [/is not between/, weir, "ocr", { key, cost: -1 }, call],
    [/cannot be combined/, weir, "ocr", { key, cost: 1, costs: {} }, call],
    [/cannot be combined/, weir, "ocr", { key, cost: () => 1, costs: {} }, call],
    [/not a function/, weir, "ocr", { key }, undefined],
    [/make it an async function/, weir, "ocr", { key }, function* () {}],
  ]) {
    assert.throws(() => detect(...args), { message: words });
  }
});

test("a call holds its slot for as long as it runs", async () => {
  const { weir } = await ready;
  const key = newKey();
  const work = detect(weir, "job", { key: (user) => user }, async (user, error) => {
    assert.ok(!(await isFree(weir, user)));
    await assert.rejects(work(user), TooFrequent);
    if (error) throw error;
    return true;
  });
  for (const error of [null, new Error("failed"), null]) {
    if (error) await assert.rejects(work(key, error), error);
    else assert.ok(await work(key));
    assert.ok(await isFree(weir, key));
  }
});

test("a generator holds its slot until it is exhausted or closed", async () => {
  const { weir } = await ready;
  const key = newKey();
  const work = detect(weir, "job", { key: (user) => user }, async function* () {
    const got = yield 1;
    yield got ?? 2;
    yield 3;
  });
  const items = [];
  for await (const item of work(key)) items.push(item);
  assert.ok(items.join() === "1,2,3" && (await isFree(weir, key)));
  const closed = work(key);
  assert.ok(await isFree(weir, key)); // nobody wants an item yet
  assert.equal((await closed.next()).value, 1);
  assert.ok(!(await isFree(weir, key)));
  await assert.rejects(work(key).next(), TooFrequent);
  assert.equal((await closed.next(7)).value, 7);
  await closed.return();
  assert.ok(await isFree(weir, key));
  const thrown = work(key);
  await thrown.next();
  await assert.rejects(thrown.throw(new Error("thrown")), /thrown/);
  assert.ok(await isFree(weir, key));
});

test("many at once never run more than allowed", async () => {
  const { weir } = await ready;
  const key = newKey();
  let running = 0;
  let most = 0;
  const work = detect(weir, "job", { key: (user) => user }, async () => {
    most = Math.max(most, ++running);
    await new Promise((resolve) => setImmediate(resolve));
    running--;
  });
  const results = await Promise.allSettled(Array.from({ length: 300 }, () => work(key)));
  assert.ok(most === 1 && results.some((result) => result.status === "fulfilled") && (await isFree(weir, key)));
});

test("a service that is gone when the call ends", async () => {
  const service = await Service.start();
  const weir = Weir.connect(service.url, { deadlineMs: 10_000, log: () => {} });
  const key = newKey();
  const work = detect(weir, "job", { key: (user) => user }, async () => {
    await service.end();
    return "done";
  });
  assert.equal(await work(key), "done");
  await service.begin();
  await until(async () => !(await weir.check({ event: "job", key, peek: true })).unavailable, "the service is there again");
  assert.ok(!(await isFree(weir, key))); // until its time to live is over
  await weir.close();
  await service.finish();
});
