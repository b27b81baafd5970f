"use strict";

const { STATUS_CODES } = require("node:http");
const { Front } = require("./lib/front.js");
const { grouped } = require("./lib/verdict.js");

/** A plugin for Fastify. */
async function weirFastify(fastify, { weir, user, localPeer }) {
  const front = new Front(weir, { user, localPeer });
  fastify.addHook("onRequest", async (request, reply) => {
    const { refusal, headers } = await front.enter({
      raw: request.raw,
      response: reply.raw,
      target: request.raw.url,
      addresses: [request.ip, request.raw.socket?.remoteAddress],
      scope: request,
    });
    if (refusal) {
      if (!STATUS_CODES[refusal.status] && request.raw.httpVersionMajor < 2) reply.raw.statusMessage = "Refused";
      return reply.code(refusal.status).headers(grouped(refusal.headers)).send(refusal.body);
    }
    for (const [name, value] of Object.entries(grouped(headers))) if (!reply.hasHeader(name)) reply.header(name, value);
  });
}

// As fastify-plugin does: the hook is for the routes around the plugin, too, not only for those inside.
weirFastify[Symbol.for("skip-override")] = true;
weirFastify[Symbol.for("fastify.display-name")] = "weir";

module.exports = { weirFastify };
