"use strict";
// One connection to the service. It is used for one exchange at a time: some commands, and as many replies.

const net = require("node:net");
const tls = require("node:tls");
const { once } = require("node:events");
const { readFile } = require("node:fs/promises");
const { ProtocolError, Reader, ReplyError, encode } = require("./resp.js");

/** The service does not take the token. */
class AuthError extends Error {}

class Connection {
  #address;
  #attemptMs;
  #socket = null;
  #reader = new Reader();
  #exchange = null;
  #onCut = null; // while it connects

  /** Why it cannot be used any more. */
  broken = null;

  /** `attemptMs` is the time for each address of the host. */
  constructor(address, attemptMs) {
    this.#address = address;
    this.#attemptMs = Math.max(10, Math.ceil(attemptMs)); // Node allows no less than 10
  }

  /** Connects, and sends the token. Rejects if that fails, or if it is cut. */
  async open() {
    const { path, host, port, auth, files } = this.#address;
    const secrets = files && (await read(files));
    if (this.broken) throw this.broken;
    await this.#begin(
      net.connect(path ? { path } : { host, port, autoSelectFamily: true, autoSelectFamilyAttemptTimeout: this.#attemptMs }),
      "connect",
    );
    if (secrets) {
      const name = net.isIP(host) ? {} : { servername: host };
      await this.#begin(tls.connect({ ...secrets, ...name, host, socket: this.#socket, rejectUnauthorized: true }), "secureConnect");
    }
    this.#socket.setNoDelay?.(true);
    this.#socket.on("data", (piece) => this.#arrived(piece));
    if (auth) {
      await this.exchange([encode(auth)], (_, reply) => {
        if (reply instanceof ReplyError) throw new AuthError(reply.message);
      });
    }
  }

  async #begin(socket, event) {
    this.#socket = socket;
    const lost = (error) => this.cut(error ?? new Error("the connection was closed by the service"));
    const ready = once(socket, event); // rejects on "error"
    socket.on("error", lost);
    socket.once("end", () => lost());
    socket.once("close", () => lost());
    const cut = new Promise((_, reject) => (this.#onCut = reject));
    await Promise.race([ready, cut]);
    this.#onCut = null;
  }

  /**
   * Sends commands, and calls `onReply` with the number of each and its reply. Resolves when all have been answered; rejects
   * when the connection breaks before that.
   */
  exchange(commands, onReply) {
    return new Promise((resolve, reject) => {
      if (this.broken) throw this.broken;
      this.#exchange = { next: 0, count: commands.length, onReply, resolve, reject };
      this.#socket.write(commands.length === 1 ? commands[0] : Buffer.concat(commands));
    });
  }

  #arrived(piece) {
    this.#reader.push(piece);
    try {
      for (let reply = this.#reader.next(); reply !== undefined; reply = this.#reader.next()) {
        const current = this.#exchange;
        if (!current) throw new ProtocolError("a reply that nobody asked for");
        current.onReply(current.next++, reply);
        if (current.next === current.count) {
          this.#exchange = null;
          current.resolve();
        }
      }
    } catch (error) {
      this.cut(error);
    }
  }

  /** An idle connection does not keep the process running. */
  idle(isIdle) {
    if (isIdle) this.#socket?.unref();
    else this.#socket?.ref();
  }

  /** Closes it at once. What arrives later is nobody's. */
  cut(why) {
    if (this.broken) return;
    this.broken = why;
    const current = this.#exchange;
    this.#exchange = null;
    this.#socket?.destroy();
    current?.reject(why);
    this.#onCut?.(why);
  }
}

/** They are read for each connection: certificates are renewed. */
async function read(files) {
  const contents = Object.entries(files).map(async ([name, path]) => [name, await readFile(path)]);
  return Object.fromEntries(await Promise.all(contents));
}

module.exports = { AuthError, Connection };
