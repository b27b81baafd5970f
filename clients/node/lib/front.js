"use strict";
// What both kinds of middleware share.

const { HEADERS_MAX, addressBytes, bytesOf, isAddress, kindOf, prefixed } = require("./request.js");
const { Verdict } = require("./verdict.js");
const { Weir } = require("./weir.js");

const HEADER_BYTES_MAX = 512 * 1024; // the service takes requests of a MiB

const plain = (status, body) => ({ status, headers: [["Content-Type", "text/plain; charset=utf-8"]], body: Buffer.from(body) });

/** Without a header that a rule counts by, a request would pass. So a request with too many of them is refused. */
const TOO_MANY_HEADERS = plain(431, `At most ${HEADERS_MAX} headers and ${HEADER_BYTES_MAX} bytes are allowed\n`);
/** weir resolves them, and Express and Fastify do not: they would see another path than the rules. */
const DOT_SEGMENTS = plain(400, "The path has a segment . or ..\n");

class Front {
  #weir;
  #user;
  #localPeer;
  #hasWarned = false;

  /** @param {Weir} weir */
  constructor(weir, { user = undefined, localPeer = undefined } = {}) {
    if (!(weir instanceof Weir)) throw new TypeError(`weir is ${kindOf(weir)}; make one with Weir.connect`);
    if (user !== undefined && typeof user !== "function") throw new TypeError(`user is ${kindOf(user)}, and must be a function of the request`);
    this.#weir = weir;
    this.#user = user;
    this.#localPeer = localPeer === undefined ? null : addressBytes(localPeer, "localPeer").toString();
  }

  /**
   * Asks about a request. Returns the refusal, or null and what to add to the response.
   *
   * `raw` and `response` are Node's own; `target` is the path that the application uses; `addresses` are those that the client
   * may have, the best first; `scope` is what the function for the user gets.
   */
  async enter({ raw, response, target, addresses, scope }) {
    const pairs = pairsOf(raw.rawHeaders);
    const refused = objection(target, pairs);
    if (refused) return { refusal: refused, headers: [] };
    const verdict = await this.#weir._ask(await this.#words(raw, target, addresses, scope, pairs));
    if (!verdict.allowed) return { refusal: Verdict.refusal(verdict), headers: [] };
    if (verdict.hold) this.#holdUntilClosed(response, verdict);
    return { refusal: null, headers: verdict.headers() };
  }

  async #words(raw, target, addresses, scope, pairs) {
    const host = raw.headers.host ?? raw.headers[":authority"];
    const words = ["WEIR.CHECK", "reply", "long", "answer", "always", "method", raw.method, "path", Buffer.from(target, "latin1")];
    if (host) words.push("host", Buffer.from(host, "latin1"));
    const peer = this.#peer(addresses);
    if (peer) words.push("peer", peer);
    const user = await this.#user?.(scope);
    if (user !== undefined && user !== null && user !== "") words.push("user", bytesOf(user, "the user"));
    return [...words, ...prefixed("header:", pairs)];
  }

  /** A client behind a unix socket has no address, and what a proxy wrote may not be one. */
  #peer(addresses) {
    for (const address of addresses) {
      const text = typeof address === "string" ? address.split("%")[0] : "";
      if (isAddress(text)) return text;
    }
    if (!this.#localPeer && !this.#hasWarned) {
      this.#hasWarned = true;
      this.#weir._log("a request has no client's address, and rules by ip do not apply to it: give localPeer");
    }
    return this.#localPeer;
  }

  /** The response is closed when it was sent, and also when the client is gone, perhaps before weir answered. */
  #holdUntilClosed(response, verdict) {
    const release = () => void this.#weir._leave(verdict, "a request");
    if (response.closed || response.destroyed || response.writableFinished) release();
    else response.once("close", release);
  }
}

/** As they were sent, repeated ones too. Names that begin with a colon are HTTP/2's own. */
function pairsOf(rawHeaders) {
  const pairs = [];
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    if (!rawHeaders[i].startsWith(":")) pairs.push([Buffer.from(rawHeaders[i], "latin1"), Buffer.from(rawHeaders[i + 1], "latin1")]);
  }
  return pairs;
}

/** The answer to requests that weir is not asked about. */
function objection(target, pairs) {
  const size = pairs.reduce((sum, [name, value]) => sum + name.length + value.length, target.length);
  if (pairs.length > HEADERS_MAX || size > HEADER_BYTES_MAX) return TOO_MANY_HEADERS;
  const segments = target.split("?", 1)[0].replace(/%2e/gi, ".").split(/\/|%2f/i);
  return segments.some((segment) => /^\.\.?(?:;|%3b|#|$)/i.test(segment)) ? DOT_SEGMENTS : null;
}

module.exports = { Front };
