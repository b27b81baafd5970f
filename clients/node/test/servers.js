"use strict";
// Real servers for the tests: on free ports of loopback, in folders of their own, gone at the end.

const fs = require("node:fs");
const net = require("node:net");
const os = require("node:os");
const path = require("node:path");
const { once } = require("node:events");
const { spawn } = require("node:child_process");
const { after } = require("node:test");
const { Weir } = require("weir-client");

const DEADLINE_MS = 60_000;

const RULES = `
settings: { trusted_proxies: [127.0.0.0/8] }
rules:
  - id: ocr
    match: { event: ocr }
    by: [key]
    limits:
      - { name: day, algorithm: fixed_window, max: 5, per: 24h }
      - { name: hour, algorithm: fixed_window, max: 2, per: 1h }
  - id: strict
    match: { event: strict }
    by: [key]
    limits: [ { name: one, algorithm: fixed_window, max: 1, per: 1m } ]
    penalty: { after: 2, within: 1m, for: 1h }
  - id: llm
    match: { event: llm }
    by: [key]
    limits:
      - { name: calls, algorithm: fixed_window, max: 100, per: 1h }
      - { name: tokens, unit: tokens, algorithm: fixed_window, max: 5000000000, per: 1h }
  - id: wide
    match: { event: wide }
    by: [key]
    limits: [ { name: hour, algorithm: fixed_window, max: 1000000, per: 1h } ]
  - id: job
    match: { event: job }
    by: [key]
    limits:
      - { name: running, concurrent: 1, ttl: 1h }
      - { name: day, algorithm: fixed_window, max: 1000, per: 24h }
  - id: page
    match: { path: /page }
    by: [ip]
    limits: [ { name: hour, algorithm: fixed_window, max: 2, per: 1h } ]
    reject: { status: 420, body: '{"error":"calm"}', content_type: application/json, headers: { X-Why: page } }
  - id: under
    match: { path: /under/page }
    by: [ip]
    limits: [ { name: hour, algorithm: fixed_window, max: 2, per: 1h } ]
  - id: by-user
    match: { path: /mine }
    by: [user]
    limits: [ { name: hour, algorithm: fixed_window, max: 1, per: 1h } ]
  - id: slow
    match: { path: /slow }
    by: [user]
    limits: [ { name: running, concurrent: 1, ttl: 1h } ]
  - id: by-tenant
    match: { method: POST, host: api.example.com }
    by: ["header:X-Tenant"]
    limits: [ { name: hour, algorithm: fixed_window, max: 1, per: 1h } ]
  - id: descriptors
    match: { domain: edge, descriptor_keys: "plan,user", descriptor: { plan: free } }
    by: ["descriptor:user"]
    limits: [ { name: hour, algorithm: fixed_window, max: 1, per: 1h } ]
`;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function until(condition, what) {
  const end = Date.now() + DEADLINE_MS;
  for (;;) {
    const found = await condition();
    if (found) return found;
    if (Date.now() > end) throw new Error(`${what}: not within ${DEADLINE_MS} ms`);
    await sleep(10);
  }
}

/** One that nobody gets by chance before it is used: systems give connections ports above these. */
async function freePort() {
  for (;;) {
    const port = 20000 + Math.floor(Math.random() * 12768);
    const server = net.createServer();
    const isFree = await new Promise((resolve) => server.once("error", () => resolve(false)).listen(port, "127.0.0.1", () => resolve(true)));
    if (isFree) {
      await new Promise((resolve) => server.close(resolve));
      return port;
    }
  }
}

const running = new Set();
process.on("exit", () => {
  for (const service of running) service.remove();
});

/** `weir serve`. It keeps its port when it is started again. */
class Service {
  static async start({ rules = RULES, flags = [], unix = false } = {}) {
    const service = new Service();
    service.folder = fs.mkdtempSync(path.join(os.tmpdir(), "weir-node-"));
    running.add(service);
    service.flags = flags;
    service.port = await freePort();
    service.socket = unix ? path.join(service.folder, "socket") : null;
    service.url = unix ? `unix://${service.socket}` : `redis://127.0.0.1:${service.port}`;
    fs.writeFileSync(path.join(service.folder, "rules.yaml"), rules);
    await service.begin();
    return service;
  }

  async begin() {
    const resp = this.socket ? `unix:${this.socket}` : `127.0.0.1:${this.port}`;
    const log = path.join(this.folder, "log");
    const file = fs.openSync(log, "w");
    const words = ["--data", path.join(this.folder, "data"), "--rules", path.join(this.folder, "rules.yaml"), "--cells-memory", "none"];
    words.push("--cells-keys", "10000", "--resp", resp, "--http", "off", "--admin", "off", ...this.flags);
    this.process = spawn(process.env.WEIR_BINARY, ["serve", ...words], { stdio: ["ignore", file, file] });
    this.process.unref();
    fs.closeSync(file);
    await until(() => {
      if (this.process.exitCode !== null) throw new Error(`weir ended: ${fs.readFileSync(log, "utf8")}`);
      return fs.readFileSync(log, "utf8").includes(" listen: resp on ");
    }, "weir listens");
  }

  async end(signal = "SIGTERM") {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    this.process.ref();
    this.process.kill(signal);
    await once(this.process, "exit");
  }

  /** A signal takes its time. */
  async stop() {
    this.process.kill("SIGSTOP");
    await until(() => /^State:\s+T/m.test(fs.readFileSync(`/proc/${this.process.pid}/status`, "utf8")), "it stands still");
  }

  go() {
    this.process.kill("SIGCONT");
  }

  remove() {
    running.delete(this);
    this.process?.kill("SIGKILL");
    fs.rmSync(this.folder, { recursive: true, force: true });
  }

  async finish() {
    await this.end("SIGKILL");
    this.remove();
  }
}

/** A service for all tests of a file, and a Weir. Nothing here passes or fails because the machine is busy. */
function shared() {
  const found = {};
  const ready = (async () => {
    found.service = await Service.start();
    found.weir = Weir.connect(found.service.url, { deadlineMs: 30_000, whenUnreachable: "refuse" });
    return found;
  })();
  after(async () => {
    await ready; // also if -k leaves out all tests of the file
    await found.weir.close();
    await found.service.finish();
  });
  return ready;
}

/** Something else than weir: `attend` gets each connection. Returns its port. */
async function listening(t, attend) {
  const sockets = new Set();
  const server = net.createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    attend(socket);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
  return server.address().port;
}

const ALLOWED = Buffer.from(`*11\r\n:1\r\n${"$-1\r\n".repeat(5)}:0\r\n$-1\r\n:0\r\n:0\r\n$-1\r\n`);

let number = 0;
/** One that nobody has used. */
const newKey = () => `subject-${process.pid}-${++number}`;
const newAddress = () => `10.1.${Math.floor(++number / 250)}.${(number % 250) + 1}`;

module.exports = { ALLOWED, RULES, Service, freePort, listening, newAddress, newKey, shared, sleep, until };
