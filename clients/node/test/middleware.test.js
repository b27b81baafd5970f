"use strict";
// Both kinds of middleware in real servers.

const assert = require("node:assert/strict");
const fs = require("node:fs");
const http = require("node:http");
const http2 = require("node:http2");
const net = require("node:net");
const os = require("node:os");
const path = require("node:path");
const { after, test } = require("node:test");
const { Weir, detect } = require("weir-client");
const { weirExpress } = require("weir-client/express");
const { weirFastify } = require("weir-client/fastify");
const { freePort, newAddress, newKey, shared, until } = require("./servers.js");

const ready = shared();
const OWN = '"own";q=1;w=1'; // of an application that sets the header itself
const userOf = (request) => request.headers["x-user"];
const ends = [];
after(async () => {
  for (const end of ends) await end();
});

/** Applications that answer with the path, protect a call of their own under /ocr/, and take their time under /slow. */
class App {
  seen = [];
  waiting = [];

  constructor(weir) {
    this.submit = detect(weir, "ocr", { key: (user) => user }, () => {});
  }

  async answer(url, setHeader) {
    this.seen.push(url);
    if (url.startsWith("/ocr/")) await this.submit(url);
    if (url.startsWith("/slow")) await new Promise((resolve) => this.waiting.push(resolve));
    if (url.endsWith("?own")) setHeader("RateLimit", OWN);
    return url;
  }
}

async function onExpress(express, weir, options) {
  const app = new App(weir);
  const server = express();
  server.set("env", "production");
  server.set("trust proxy", options.trustProxy ?? false);
  delete options.trustProxy;
  server.use(weirExpress(weir, options));
  server.use((request, response, next) => {
    app.answer(request.url, (name, value) => response.set(name, value)).then((text) => response.send(text), next);
  });
  return { app, server: http.createServer({ maxHeaderSize: 1024 * 1024 }, server) };
}

async function onFastify(weir, { trustProxy = false, ...options }) {
  const app = new App(weir);
  const server = require("fastify")({ trustProxy, exposeHeadRoutes: false, http: { maxHeaderSize: 1024 * 1024 } });
  server.register(weirFastify, { weir, ...options });
  server.all("*", (request, reply) => app.answer(request.url, (name, value) => reply.header(name, value)));
  await server.ready();
  ends.push(() => server.close());
  return { app, server: server.server };
}

/** Without a framework. */
async function onNode(weir, { trustProxy, ...options }) {
  const app = new App(weir);
  const middleware = weirExpress(weir, options);
  const server = http.createServer((request, response) =>
    middleware(request, response, () =>
      app.answer(request.url, (name, value) => response.setHeader(name, value)).then(
        (text) => response.end(text),
        (error) => response.writeHead(error.status, error.headers).end(),
      ),
    ),
  );
  return { app, server };
}

const KINDS = {
  "express 5": (...args) => onExpress(require("express"), ...args),
  "express 4": (...args) => onExpress(require("express4"), ...args),
  fastify: onFastify,
  node: onNode,
};

async function serving(kind, weir, options = { user: userOf }, where = 0) {
  const { app, server } = await KINDS[kind](weir, { ...options });
  await new Promise((resolve) => server.listen(...(where ? [where] : [0, "127.0.0.1"]), resolve));
  ends.push(() => new Promise((resolve) => {
    server.close(resolve);
    server.closeAllConnections();
  }));
  return new Client(app, where ? { socketPath: where } : { host: "127.0.0.1", port: server.address().port });
}

class Client {
  constructor(app, where) {
    this.app = app;
    this.where = where;
  }

  ask(target, headers = {}, method = "GET") {
    return new Promise((resolve, reject) => {
      const request = http.request({ ...this.where, path: target, method, headers: { Connection: "close", ...headers } }, (response) => {
        let body = "";
        response.on("data", (piece) => (body += piece));
        response.on("end", () => resolve({ status: response.statusCode, words: response.statusMessage, headers: response.headers, body }));
      });
      request.on("error", reject).end();
    });
  }

  async statuses(count, ...args) {
    const found = [];
    for (let i = 0; i < count; i++) found.push((await this.ask(...args)).status);
    return found;
  }
}

for (const kind of Object.keys(KINDS)) {
  test(`${kind}: a page`, async () => {
    const { weir } = await ready;
    const client = await serving(kind, weir);
    const from = { "X-Forwarded-For": newAddress() };
    const first = await client.ask("/page", from);
    assert.deepEqual([first.status, first.body], [200, "/page"]);
    assert.equal(first.headers["ratelimit-policy"], '"page/hour";q=2;w=3600');
    assert.equal(first.headers.ratelimit, '"page/hour";r=1;t=3600');
    assert.equal((await client.ask("/%70age//?x=1", from)).status, 200); // by another spelling
    const count = client.app.seen.length;
    const refused = await client.ask("/page", from);
    assert.deepEqual([refused.status, refused.words, refused.body], [420, "Refused", '{"error":"calm"}']);
    assert.ok(refused.headers["content-type"] === "application/json" && refused.headers["x-why"] === "page" && refused.headers["content-length"] === "16");
    assert.ok(Number(refused.headers["retry-after"]) > 0 && refused.headers.ratelimit.startsWith('"page/hour";r=0;t='));
    const head = await client.ask("/page", from, "HEAD");
    assert.deepEqual([head.status, head.body, client.app.seen.length], [420, "", count]);
    assert.equal((await client.ask("http://any.example/page", from)).status, 420);
  });

  test(`${kind}: headers, problems, the user`, async () => {
    const { weir } = await ready;
    const client = await serving(kind, weir);
    const own = await client.ask("/page?own", { "X-Forwarded-For": newAddress() });
    assert.deepEqual([own.headers.ratelimit, own.headers["ratelimit-policy"]], [OWN, '"page/hour";q=2;w=3600']);
    assert.equal((await client.ask("/free%20%C3%A9")).headers["ratelimit-policy"], undefined);
    const user = { "X-User": newKey() };
    assert.deepEqual(await client.statuses(2, "/mine", user), [200, 429]);
    const problem = await client.ask("/mine", { ...user, Accept: "application/json" });
    assert.equal(problem.headers["content-type"], "application/problem+json");
    assert.deepEqual(JSON.parse(problem.body)["violated-policies"], ["by-user/hour"]);
    assert.equal((await client.ask("/mine", { ...user, Accept: "*/*" })).body, "Too many requests\n");
    assert.deepEqual(await client.statuses(2, "/mine"), [200, 200]); // nobody's
    const tenant = { Host: "api.example.com:80", "X-Tenant": newKey(), "Content-Length": "0" };
    assert.deepEqual(await client.statuses(2, "/any", tenant, "POST"), [200, 429]);
  });

  test(`${kind}: requests that weir is not asked about`, async () => {
    const { weir } = await ready;
    const client = await serving(kind, weir);
    const many = Object.fromEntries(Array.from({ length: 101 }, (_, i) => [`X-Many-${i}`, "y"]));
    assert.equal((await client.ask("/page", many)).status, 431);
    for (const target of ["/page/..", "/page/%2e%2E/x", "/./page", "/page%2f../x", "/page/..;x/y", "/page/..%3bx", "/..#x"]) {
      assert.equal((await client.ask(target)).status, 400, target);
    }
    assert.equal(client.app.seen.length, 0);
    assert.equal((await client.ask("/..page/..x/.y?a=/../b")).status, 200);
    const from = { "X-Forwarded-For": newAddress() };
    const found = [];
    for (const target of ["/under%2Fpage?q=1", "/under/p%61ge", "/under%2fpage"]) found.push((await client.ask(target, from)).status);
    assert.deepEqual(found, [200, 200, 429]); // a %2F does not hide it
  });

  test(`${kind}: a protected call behind it`, async () => {
    const { weir } = await ready;
    const client = await serving(kind, weir);
    const target = `/ocr/${newKey()}`;
    assert.deepEqual(await client.statuses(3, target), [200, 200, 429]);
    const refused = await client.ask(target);
    assert.ok(Number(refused.headers["retry-after"]) > 0 && refused.headers.ratelimit.startsWith('"ocr/hour";r=0'));
  });

  test(`${kind}: a request holds its slot until its response is sent, or the client is gone`, async () => {
    const { weir } = await ready;
    const client = await serving(kind, weir);
    const user = newKey();
    const isFree = async () => (await weir.check({ path: "/slow", user, peek: true })).allowed;
    const first = client.ask("/slow", { "X-User": user });
    await until(() => client.app.waiting.length === 1, "it runs");
    assert.equal((await client.ask("/slow", { "X-User": user })).status, 429);
    client.app.waiting.pop()();
    assert.equal((await first).status, 200);
    await until(isFree, "the slot is free");
    const socket = net.connect(client.where.port, client.where.host);
    socket.write(`GET /slow HTTP/1.1\r\nHost: h\r\nX-User: ${user}\r\n\r\n`);
    await until(() => client.app.waiting.length === 1, "it runs");
    assert.ok(!(await isFree()));
    socket.destroy();
    await until(isFree, "the slot is free");
    client.app.waiting.pop()();
  });

  test(`${kind}: the service is away`, async () => {
    for (const [whenUnreachable, status, body] of [["allow", 200, "/page"], ["refuse", 503, "Could not be judged; try again later\n"]]) {
      const weir = Weir.connect(`redis://127.0.0.1:${await freePort()}`, { whenUnreachable, deadlineMs: 10_000, log: () => {} });
      const answer = await (await serving(kind, weir)).ask("/page");
      assert.deepEqual([answer.status, answer.body], [status, body]);
      await weir.close();
    }
  });

  test(`${kind}: a peer behind a unix socket`, async () => {
    const { service } = await ready;
    const told = [];
    const weir = Weir.connect(service.url, { deadlineMs: 30_000, whenUnreachable: "refuse", log: (line) => told.push(line) });
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "weir-node-"));
    ends.push(() => fs.rmSync(folder, { recursive: true }));
    const from = { "X-Forwarded-For": newAddress() };
    const known = await serving(kind, weir, { localPeer: "127.0.0.1" }, path.join(folder, "known"));
    assert.deepEqual(await known.statuses(3, "/page", from), [200, 200, 420]);
    assert.equal(told.length, 0);
    const unknown = await serving(kind, weir, {}, path.join(folder, "unknown"));
    assert.deepEqual(await unknown.statuses(3, "/page", from), [200, 200, 200]);
    assert.ok(told.length === 1 && /rules by ip do not apply to it: give localPeer/.test(told[0]));
    await weir.close();
  });

  test(`${kind}: a function for the user that fails`, async () => {
    const { weir } = await ready;
    if (kind === "node") return; // it has no handler for errors
    const client = await serving(kind, weir, { user: async () => { throw new Error("no user"); } });
    const silent = console.error;
    console.error = () => {};
    assert.equal((await client.ask("/mine")).status, 500);
    console.error = silent;
    assert.equal(client.app.seen.length, 0);
  });
}

for (const kind of ["express 5", "express 4", "fastify"]) {
  test(`${kind}: the address that the framework finds`, async () => {
    const { weir } = await ready;
    const client = await serving(kind, weir, { trustProxy: true });
    const from = { "X-Forwarded-For": newAddress() };
    assert.deepEqual(await client.statuses(3, "/page", from), [200, 200, 420]);
    // What is not an address counts for the connection, and does not pass for free.
    assert.ok((await client.statuses(3, "/page", { "X-Forwarded-For": `unknown-${newKey()}` })).includes(420));
  });
}

test("fastify: HTTP/2", async () => {
  const { weir } = await ready;
  const server = require("fastify")({ http2: true });
  server.register(weirFastify, { weir, user: userOf });
  server.all("*", async (request) => request.url);
  const client = http2.connect(await server.listen({ port: 0, host: "127.0.0.1" }));
  const ask = (headers) =>
    new Promise((resolve, reject) => {
      const request = client.request(headers).on("error", reject);
      request.once("response", (answer) => resolve(answer[":status"])).resume().end();
    });
  const tenant = { ":method": "POST", ":path": "/any", ":authority": "api.example.com", "x-tenant": newKey() };
  assert.deepEqual([await ask(tenant), await ask(tenant)], [200, 429]);
  const from = { ":path": "/page", "x-forwarded-for": newAddress() };
  assert.deepEqual([await ask(from), await ask(from), await ask(from)], [200, 200, 420]);
  const user = newKey();
  assert.equal(await ask({ ":path": "/slow", "x-user": user }), 200);
  await until(async () => (await weir.check({ path: "/slow", user, peek: true })).allowed, "the slot is free");
  client.close();
  await server.close();
});

test("mistakes", async () => {
  const { weir } = await ready;
  assert.throws(() => weirExpress({}), /make one with Weir.connect/);
  assert.throws(() => weirExpress(weir, { localPeer: "unix" }), /localPeer 'unix' is not one IPv4 or IPv6 address/);
  assert.throws(() => weirExpress(weir, { key: () => "u" }), /unknown option 'key'/);
  assert.throws(() => weirExpress(weir, { user: "u" }), /must be a function of the request/);
  await assert.rejects(async () => require("fastify")().register(weirFastify, {}).ready(), /make one with Weir.connect/);
});
