"use strict";

const { STATUS_CODES } = require("node:http");
const { Front } = require("./lib/front.js");
const { checkNames } = require("./lib/request.js");
const { grouped } = require("./lib/verdict.js");

/** Middleware for Express, and for everything else that calls functions (request, response, next). */
function weirExpress(weir, options = {}) {
  checkNames(options, ["user", "localPeer"], "weirExpress");
  const front = new Front(weir, options);
  return async function weirMiddleware(request, response, next) {
    let entered;
    try {
      entered = await front.enter({
        raw: request,
        response,
        target: (request.baseUrl ?? "") + request.url,
        addresses: [request.ip, request.socket?.remoteAddress],
        scope: request,
      });
    } catch (error) {
      return next(error);
    }
    if (entered.refusal) return refuse(request, response, entered.refusal);
    for (const [name, value] of Object.entries(grouped(entered.headers))) {
      if (!response.headersSent && !response.hasHeader(name)) response.setHeader(name, value);
    }
    next();
  };
}

function refuse(request, response, { status, headers, body }) {
  response.statusCode = status;
  if (!STATUS_CODES[status] && request.httpVersionMajor < 2) response.statusMessage = "Refused";
  for (const [name, value] of Object.entries(grouped(headers))) response.setHeader(name, value);
  response.setHeader("Content-Length", body.length);
  response.end(request.method === "HEAD" ? undefined : body);
}

module.exports = { weirExpress };
