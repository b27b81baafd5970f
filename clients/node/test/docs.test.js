"use strict";
// The programs of docs/node.md print what the page shows, and its other code is correct.

const assert = require("node:assert/strict");
const fs = require("node:fs");
const http = require("node:http");
const path = require("node:path");
const { execFile } = require("node:child_process");
const { promisify } = require("node:util");
const { test } = require("node:test");
const vm = require("node:vm");
const weirClient = require("weir-client");
const { Service } = require("./servers.js");

const page = fs.readFileSync(path.join(__dirname, "../../node.md"), "utf8");

// As the first rules of the service, but for the end of an hour, which may come at any time.
const TOUR = `
rules:
  - id: ocr
    match: { event: ocr }
    by: [key]
    limits: [ { name: hour, algorithm: fixed_window, max: 20, per: 1h } ]
  - id: items
    match: { path: /items }
    by: [user]
    limits: [ { name: hour, algorithm: fixed_window, max: 1, per: 1h } ]
`;

const blocks = (language) => Array.from(page.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, "gms")), (found) => found[1]);

/** The deadline is for users; a busy machine is not what is tested here. */
function program(name, service) {
  const code = blocks("js").find((block) => block.startsWith(`// ${name}\n`));
  return code.replace('"redis://127.0.0.1:6380"', `${JSON.stringify(service.url)}, { deadlineMs: 30000, whenUnreachable: "refuse" }`);
}

const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

test("the tour of the page", async () => {
  const service = await Service.start({ rules: TOUR });
  const { stdout } = await promisify(execFile)(process.execPath, ["-e", program("ocr.js", service)], { cwd: __dirname });
  assert.match(stdout, new RegExp(`^${blocks("text")[0].split("…").map(escaped).join(".*")}$`, "s"));
  await service.finish();
});

for (const name of ["express.js", "fastify.js"]) {
  test(`the middleware of the page: ${name}`, async () => {
    const service = await Service.start({ rules: TOUR });
    const app = new Function("require", `${program(name, service)}; return app;`)(require);
    const listen = name === "express.js" ? (done) => Object.assign(http.createServer(app)).listen(0, "127.0.0.1", done) : null;
    let port;
    let close;
    if (listen) {
      const server = await new Promise((resolve) => { const made = listen(() => resolve(made)); });
      port = server.address().port;
      close = () => server.close();
    } else {
      port = new URL(await app.listen({ port: 0, host: "127.0.0.1" })).port;
      close = () => app.close();
    }
    const found = [];
    for (let i = 0; i < 2; i++) {
      const response = await fetch(`http://127.0.0.1:${port}/items`, { headers: { "X-User": "ann", Connection: "close" } });
      found.push([response.status, await response.text()]);
    }
    assert.deepEqual(found, [[200, "some\n"], [429, "Too many requests\n"]]);
    await close();
    await service.finish();
  });
}

test("the other code of the page runs", async () => {
  const service = await Service.start({ rules: TOUR });
  const weir = weirClient.Weir.connect(service.url, { deadlineMs: 30_000 });
  const handlers = [];
  const context = vm.createContext({
    ...weirClient,
    weir,
    userId: "u7",
    prompt: "Why?",
    askTheModel: async () => ({ usage: { totalTokens: 5 } }),
    app: { use: (handler) => handlers.push(handler) },
  });
  for (const block of blocks("js").filter((text) => !/^\/\/ \w+\.js\n/.test(text))) {
    await vm.runInContext(`(async () => {${block}})()`, context);
  }
  assert.equal(handlers.length, 1);
  await weir.close();
  await service.finish();
});

test("the page lists every option", () => {
  const declared = fs.readFileSync(path.join(path.dirname(require.resolve("weir-client")), "index.d.ts"), "utf8");
  for (const [, name] of declared.matchAll(/^ +(?:static |readonly )?(\w+)[?(:]/gm)) {
    if (!["constructor", "This", "call", "weir", "event"].includes(name)) assert.match(page, new RegExp(`\\b${name}\\b`), name);
  }
  const classes = Array.from(declared.matchAll(/^export (?:class|function) (\w+)/gm), (found) => found[1]);
  assert.deepEqual([...new Set(classes)].sort(), Object.keys(weirClient).sort());
});
