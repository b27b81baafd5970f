"use strict";
// The wire: replies in pieces of any size.

const assert = require("node:assert/strict");
const path = require("node:path");
const { test } = require("node:test");

const { ProtocolError, Reader, ReplyError, encode, octets } = require(path.join(path.dirname(require.resolve("weir-client")), "lib/resp.js"));

const REPLIES = "*5\r\n:1\r\n$-1\r\n$0\r\n\r\n$5\r\na\r\nb\r\r\n:-12\r\n+OK\r\n-ERR no\r\n:7\r\n*0\r\n*-1\r\n$-1\r\n";

function readAll(pieces) {
  const reader = new Reader();
  const found = [];
  for (const piece of pieces) {
    reader.push(Buffer.from(piece));
    for (let reply = reader.next(); reply !== undefined; reply = reader.next()) found.push(reply);
  }
  return found;
}

test("replies cut in pieces at each byte", () => {
  const whole = readAll([REPLIES]);
  assert.deepEqual(whole[0], [1, null, Buffer.alloc(0), Buffer.from("a\r\nb\r"), -12]);
  assert.ok(whole[2] instanceof ReplyError && whole[2].message === "ERR no");
  assert.deepEqual(whole.slice(3), [7, [], null, null]);
  assert.deepEqual(readAll(REPLIES.split("")), whole);
  for (let i = 0; i <= REPLIES.length; i++) {
    for (let j = i; j <= REPLIES.length; j += 7) assert.deepEqual(readAll([REPLIES.slice(0, i), REPLIES.slice(i, j), REPLIES.slice(j)]), whole);
  }
});

test("what is not RESP", () => {
  const wrong = ["HTTP/1.1 400\r\n", ":x\r\n", ":\r\n", ":1.5\r\n", "$-2\r\n", "$99999999999\r\n", "$1\r\nabc", "*1\r\n*0\r\n", "*65537\r\n", "%1\r\n", "\r\n", ":" + "1".repeat(70000)];
  for (const text of wrong) assert.throws(() => readAll([text]), ProtocolError, JSON.stringify(text.slice(0, 20)));
  for (const text of wrong) assert.throws(() => readAll(text.split("")), ProtocolError, JSON.stringify(text.slice(0, 20)));
});

test("commands are bytes", () => {
  assert.equal(encode(["A", "é\0\r\n", Buffer.from([255])]).toString("latin1"), "*3\r\n$1\r\nA\r\n$5\r\nÃ©\0\r\n\r\n$1\r\n\xff\r\n");
  assert.deepEqual(octets("\ud800a\u{1f600}"), Buffer.from("eda08061f09f9880", "hex"));
  assert.deepEqual(octets("\udfff"), Buffer.from("edbfbf", "hex"));
});
