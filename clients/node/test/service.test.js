"use strict";
// Outages, tokens, TLS, addresses, ends of all kinds.

const assert = require("node:assert/strict");
const fs = require("node:fs");
const net = require("node:net");
const path = require("node:path");
const { execFileSync, spawn } = require("node:child_process");
const { once } = require("node:events");
const { test } = require("node:test");
const { TooFrequent, Weir, WeirError, detect } = require("weir-client");
const { ALLOWED, Service, freePort, listening, newKey, shared, until } = require("./servers.js");

const ready = shared();
const AMPLE_MS = 10_000; // for what takes 50 ms, on a machine that is busy
const quiet = { log: () => {} };
const asks = async (weir, key) => !(await weir.check({ event: "ocr", key, peek: true })).unavailable;

test("options", () => {
  for (const [url, options, words] of [
    ["redis://h:1", { whenUnreachable: "pass" }, /"allow" or "refuse"/],
    ["redis://h:1", { deadlineMs: 0 }, /deadlineMs/],
    ["redis://h:1", { deadlineMs: NaN }, /deadlineMs/],
    ["redis://h:1", { deadlineMs: Infinity }, /at most 3600000/],
    ["redis://h:1", { deadline: 5 }, /unknown option 'deadline'/],
    ["redis://h:1", { log: 1 }, /log is number/],
    ["redis://h:1?ssl_ca_certs=x", {}, /unknown option/],
    ["rediss://h:1?ssl_verify=x", {}, /allowed are ssl_ca_certs/],
    ["http://127.0.0.1:6380", {}, /redis:\/\/HOST:PORT/],
    ["127.0.0.1:6380", {}, /redis:\/\/HOST:PORT/],
    [undefined, {}, /must be a string/],
  ]) {
    assert.throws(() => Weir.connect(url, options), { message: words });
  }
  for (const url of ["redis://:geh/eim@127.0.0.1:6380", "redis://geheim@h", "http://:geheim@127.0.0.1", "unix://:geheim", "redis://:%zzgeheim@h"]) {
    assert.throws(() => Weir.connect(url), (error) => /redis:\/\/:TOKEN@HOST:PORT/.test(error.message) && !/eim/.test(error.message + error.cause));
  }
});

for (const policy of ["allow", "refuse"]) {
  test(`nobody listens: ${policy}`, async () => {
    const told = [];
    const port = await freePort();
    const weir = Weir.connect(`redis://:secret@127.0.0.1:${port}`, { whenUnreachable: policy, deadlineMs: AMPLE_MS, log: (line) => told.push(line) });
    for (let i = 0; i < 20; i++) {
      const verdict = await weir.check({ event: "ocr", key: "u", refundable: true });
      assert.ok(verdict.allowed === (policy === "allow") && verdict.unavailable && verdict.receipt === null);
      assert.ok(verdict.status === (policy === "allow" ? 0 : 503) && verdict.headers().length === 0);
    }
    assert.equal(weir.unreachable, 20);
    const work = detect(weir, "ocr", { key: () => "u" }, () => "done");
    if (policy === "allow") assert.equal(await work(), "done");
    else await assert.rejects(work(), (error) => error instanceof TooFrequent && /does not answer/.test(error.message) && error.status === 503);
    if (policy === "allow") {
      await weir.reserve({ event: "llm", ttlMs: 5 }, async (hold) => assert.deepEqual([hold.verdict.hold, await hold.settle()], [null, 0]));
    }
    assert.deepEqual([await weir.settle("hold"), await weir.renew("hold", 5), await weir.refund("hold")], [0, 0, 0]);
    await weir.close();
    assert.ok(told.length === 1 && /does not answer, and calls are/.test(told[0]) && !told[0].includes("secret"), told.join());
  });
}

test("a killed service comes back, and an idle restart goes unnoticed", async () => {
  const told = [];
  const key = newKey();
  const service = await Service.start();
  const weir = Weir.connect(service.url, { deadlineMs: AMPLE_MS, log: (line) => told.push(line) });
  assert.equal((await weir.check({ event: "ocr", key })).remaining, 1);
  await service.end();
  await service.begin();
  assert.equal((await weir.check({ event: "ocr", key })).remaining, 0);
  assert.equal(weir.unreachable, 0);
  await service.end("SIGKILL");
  for (let i = 0; i < 10; i++) assert.ok((await weir.check({ event: "ocr", key })).unavailable);
  await service.begin();
  await until(() => asks(weir, key), "it is asked again");
  assert.ok(!(await weir.check({ event: "ocr", key })).allowed); // the counts are still there
  assert.ok(told.length === 2 && /answers again; \d+ calls/.test(told[1]), told.join());
  await weir.close();
  await service.finish();
});

test("a service that is killed amid calls", async () => {
  const service = await Service.start();
  const weir = Weir.connect(service.url, { deadlineMs: AMPLE_MS, ...quiet });
  assert.ok(await asks(weir, "u"));
  await service.stop();
  const calls = Array.from({ length: 1000 }, (_, i) => weir.check({ event: "ocr", key: `${i}` }));
  await new Promise((resolve) => setTimeout(resolve, 20));
  await service.end("SIGKILL");
  assert.ok((await Promise.all(calls)).every((verdict) => verdict.allowed && verdict.unavailable));
  assert.equal(weir.unreachable, 1000);
  await weir.close();
  await service.finish();
});

test("a service that stands still: few calls wait, and late answers are nobody's", async () => {
  const key = newKey();
  const service = await Service.start();
  const weir = Weir.connect(service.url, { deadlineMs: 50, ...quiet });
  await until(() => asks(weir, key), "it is asked");
  await service.stop();
  const begin = Date.now();
  for (let i = 0; i < 1000; i++) assert.ok((await weir.check({ event: "ocr", key })).unavailable); // 50 s if each waited
  assert.ok(Date.now() - begin < 25_000);
  service.go();
  await until(() => asks(weir, key), "it is asked again");
  await until(async () => {
    const verdict = await weir.check({ event: "wide", key });
    assert.ok(verdict.unavailable || verdict.rule === "wide");
    return !verdict.unavailable;
  }, "it has its own answer");
  await weir.close();
  await service.finish();
});

test("what accepts and never answers", async (t) => {
  const port = await listening(t, (socket) => socket.resume());
  const weir = Weir.connect(`redis://127.0.0.1:${port}`, { deadlineMs: 20, whenUnreachable: "refuse", ...quiet });
  let turns = 0;
  const ticking = setInterval(() => turns++, 1);
  const verdicts = await Promise.all(Array.from({ length: 2000 }, () => weir.check({ event: "ocr", key: "u" })));
  clearInterval(ticking);
  assert.ok(verdicts.every((verdict) => verdict.unavailable && verdict.status === 503) && turns > 0 && weir.unreachable === 2000);
  await weir.close();
});

test("answers that come byte by byte, and many in one piece", async (t) => {
  const port = await listening(t, (socket) => {
    socket.on("data", async (asked) => {
      const answers = Buffer.concat(Array(asked.toString("latin1").split("WEIR.CHECK").length - 1).fill(ALLOWED));
      socket.setNoDelay(true);
      for (const byte of answers.subarray(0, 200)) {
        socket.write(Buffer.from([byte]));
        await new Promise((resolve) => setImmediate(resolve));
      }
      socket.write(answers.subarray(200));
    });
  });
  const weir = Weir.connect(`redis://127.0.0.1:${port}`, { deadlineMs: AMPLE_MS, whenUnreachable: "refuse" });
  const verdicts = await Promise.all(Array.from({ length: 100 }, () => weir.check({ event: "ocr", key: "u" })));
  assert.ok(verdicts.every((verdict) => verdict.allowed && !verdict.unavailable));
  await weir.close();
});

test("a call whose answer is lost is not charged twice", async (t) => {
  const { service, weir: direct } = await ready;
  const key = newKey();
  let broken = 0;
  const port = await listening(t, (socket) => {
    const beyond = net.connect(service.port, "127.0.0.1");
    socket.pipe(beyond);
    socket.on("close", () => beyond.destroy());
    beyond.on("error", () => {});
    beyond.on("data", (answer) => (broken-- > 0 ? socket.destroy() : socket.write(answer)));
  });
  const weir = Weir.connect(`redis://127.0.0.1:${port}`, { deadlineMs: AMPLE_MS, ...quiet });
  assert.equal((await weir.check({ event: "ocr", key, cost: 0 })).remaining, 2);
  broken = 1;
  assert.ok((await weir.check({ event: "ocr", key })).unavailable);
  broken = 0;
  assert.equal((await weir.check({ event: "ocr", key, cost: 0 })).remaining, 1);
  assert.equal((await direct.check({ event: "ocr", key, cost: 0 })).remaining, 1);
  await weir.close();
});

for (const answer of ["HTTP/1.1 400 Bad Request\r\n\r\n", "*1\r\n:1\r\n", "+OK\r\n", ":x\r\n", "-ERR unknown command 'WEIR.CHECK'\r\n"]) {
  test(`what answers is not weir: ${JSON.stringify(answer).replace(/\W+/g, " ").trim()}`, async (t) => {
    const port = await listening(t, (socket) => socket.on("data", () => socket.write(answer)));
    const weir = Weir.connect(`redis://127.0.0.1:${port}`, { deadlineMs: AMPLE_MS });
    await assert.rejects(weir.check({ event: "ocr", key: "u" }), (error) => error instanceof WeirError && error.message.includes(`127.0.0.1:${port}`));
    await weir.close();
  });
}

test("a loop that is blocked sees answers that have come", async () => {
  const { service } = await ready;
  const weir = Weir.connect(service.url, { deadlineMs: 200, ...quiet });
  await until(async () => {
    await until(() => asks(weir, "blocked"), "it is connected");
    const call = weir.check({ event: "wide", key: "blocked" });
    const end = Date.now() + 300;
    while (Date.now() < end); // something else takes longer than the deadline
    return !(await call).unavailable;
  }, "the answer is read");
  await weir.close();
});

test("a token", async () => {
  const service = await Service.start();
  const file = path.join(service.folder, "token");
  fs.writeFileSync(file, "a-token/of@some+length\n");
  service.flags = ["--token-file", file];
  await service.end();
  await service.begin();
  const token = encodeURIComponent("a-token/of@some+length");
  const weir = Weir.connect(`redis://:${token}@localhost:${service.port}`, { deadlineMs: AMPLE_MS, whenUnreachable: "refuse" });
  assert.equal((await weir.check({ event: "ocr", key: newKey() })).remaining, 1);
  await weir.close();
  for (const [url, words] of [[service.url, /it wants a token/], [`redis://:wrong@127.0.0.1:${service.port}`, /its token is not the one in the url/]]) {
    const told = [];
    const other = Weir.connect(url, { deadlineMs: AMPLE_MS, whenUnreachable: "refuse", log: (line) => told.push(line) });
    assert.ok((await other.check({ event: "ocr", key: "u" })).unavailable);
    assert.match(told.join(), words);
    await other.close();
  }
  await service.finish();
});

test("a unix socket", async () => {
  const service = await Service.start({ unix: true });
  const weir = Weir.connect(service.url, { deadlineMs: AMPLE_MS, whenUnreachable: "refuse", ...quiet });
  assert.equal((await weir.check({ event: "ocr", key: "u" })).remaining, 1);
  await service.end();
  assert.ok((await weir.check({ event: "ocr", key: "u" })).unavailable);
  await weir.close();
  await service.finish();
});

/** An authority, and certificates for localhost that it has signed. */
function certificates(folder) {
  const openssl = (...words) => execFileSync("openssl", words, { cwd: folder, stdio: "ignore" });
  const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  for (const name of ["ca", "other"]) openssl("req", "-x509", ...key, "-keyout", `${name}.key`, "-out", `${name}.pem`, "-days", "2", "-subj", `/CN=${name}`);
  fs.writeFileSync(path.join(folder, "names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n");
  for (const name of ["server", "client"]) {
    openssl("req", "-new", ...key, "-keyout", `${name}.key`, "-out", `${name}.csr`, "-subj", `/CN=${name}`);
    openssl("x509", "-req", "-in", `${name}.csr`, "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", `${name}.pem`, "-days", "2", "-extfile", "names");
  }
  return (name) => path.join(folder, name);
}

test("TLS", async () => {
  const service = await Service.start();
  const file = certificates(service.folder);
  await service.end();
  service.flags = ["--certificate", file("server.pem"), "--certificate-key", file("server.key"), "--resp-tls", "clients", "--client-authorities", file("ca.pem")];
  await service.begin();
  const own = `ssl_certfile=${file("client.pem")}&ssl_keyfile=${file("client.key")}`;
  for (const host of ["localhost", "127.0.0.1"]) {
    const weir = Weir.connect(`rediss://${host}:${service.port}?ssl_ca_certs=${file("ca.pem")}&${own}`, { deadlineMs: AMPLE_MS, whenUnreachable: "refuse" });
    assert.equal((await weir.check({ event: "ocr", key: host })).remaining, 1);
    assert.equal((await weir.check({ event: "ocr", key: host })).remaining, 0);
    await weir.close();
  }
  // Without the right certificates nobody decides.
  for (const options of [`ssl_ca_certs=${file("other.pem")}&${own}`, `ssl_ca_certs=${file("ca.pem")}`, own, `ssl_ca_certs=${file("missing.pem")}`]) {
    const weir = Weir.connect(`rediss://localhost:${service.port}?${options}`, { deadlineMs: AMPLE_MS, whenUnreachable: "refuse", ...quiet });
    assert.ok((await weir.check({ event: "ocr", key: "u" })).unavailable, options);
    await weir.close();
  }
  const plain = Weir.connect(service.url, { deadlineMs: 1000, ...quiet });
  assert.ok((await plain.check({ event: "ocr", key: "u" })).unavailable);
  await plain.close();
  await service.finish();
});

test("close amid calls", async () => {
  const { service } = await ready;
  const weir = Weir.connect(service.url, { deadlineMs: AMPLE_MS, whenUnreachable: "refuse" });
  const calls = Array.from({ length: 600 }, (_, i) => weir.check({ event: "wide", key: `${i}` }));
  const closed = [weir.close(), weir.close()];
  await assert.rejects(weir.check({ event: "ocr", key: "u" }), (error) => error instanceof WeirError && /this Weir is closed/.test(error.message));
  assert.ok((await Promise.all(calls)).every((verdict) => verdict.rule === "wide"));
  await Promise.all(closed);
  await assert.rejects(weir.settle("hold"), WeirError);
});

/** Runs a program, and returns what it printed. */
async function run(code, kind = "commonjs") {
  const child = spawn(process.execPath, [`--input-type=${kind}`, "-e", code], { cwd: __dirname, stdio: ["ignore", "pipe", "inherit"] });
  let printed = "";
  child.stdout.on("data", (piece) => (printed += piece));
  const [status] = await once(child, "close");
  assert.equal(status, 0);
  return printed;
}

test("a process ends although its Weir is idle", async () => {
  const { service } = await ready;
  const ask = `Weir.connect(${JSON.stringify(service.url)}, { deadlineMs: 30000 }).check({ event: "wide", key: "end" })`;
  assert.equal(await run(`const { Weir } = require("weir-client"); ${ask}.then((verdict) => console.log(verdict.rule));`), "wide\n");
  assert.equal(await run(`import { Weir } from "weir-client"; console.log((await ${ask}).rule);`, "module"), "wide\n");
});

test("a throwing log does no harm", async () => {
  const weir = Weir.connect(`redis://127.0.0.1:${await freePort()}`, { deadlineMs: AMPLE_MS, log: () => { throw new Error("log"); } });
  assert.ok((await weir.check({ event: "ocr", key: "u" })).allowed);
  await weir.close();
});
