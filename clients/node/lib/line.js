"use strict";
// The one connection of a Weir, and who waits for what.

const { Connection } = require("./connection.js");
const { ProtocolError } = require("./resp.js");

const BATCH_MAX = 256;
const BATCH_BYTES_MAX = 1024 * 1024;
const CONNECTING = 3; // deadlines for an exchange that connects: with TLS and a token it takes several round trips
const TURNS = 5; // of the event loop, in which what has arrived is read and handed on

/** What a call gets instead of a reply. */
const UNREACHABLE = Symbol("unreachable");

const turn = () => new Promise((resolve) => setImmediate(resolve));

/**
 * Waits for something that comes, or is UNREACHABLE when the time is over. A loop that was blocked may not have read a reply
 * that is there: it gets the time for that, and if it was blocked for long, all of the time once more.
 */
class Waiting {
  #deadlineMs;
  #timer;
  #begin = 0;
  #resolve;
  done = false;
  wasBlocked = false;

  constructor(deadlineMs) {
    this.#deadlineMs = deadlineMs;
    this.came = new Promise((resolve) => (this.#resolve = resolve));
    this.#start();
  }

  #start() {
    this.#begin = performance.now();
    this.#timer = setTimeout(() => this.#late(TURNS), this.#deadlineMs);
  }

  #late(turns) {
    if (this.done) return;
    if (turns) {
      setImmediate(() => this.#late(turns - 1));
    } else if (!this.wasBlocked && performance.now() - this.#begin >= 1.2 * this.#deadlineMs) {
      this.wasBlocked = true;
      this.#start();
    } else {
      this.settle(UNREACHABLE);
    }
  }

  /** The first result counts. */
  settle(result) {
    if (this.done) return;
    this.done = true;
    clearTimeout(this.#timer);
    this.#resolve(result);
  }
}

/**
 * Questions that come while replies are on their way go together in the next exchange, so that many at once take a few round
 * trips. No question is sent twice: it might be charged twice.
 */
class Line {
  #address;
  #deadlineMs;
  #heard;
  #undo;
  #asked = [];
  #connection = null;
  #running = null;

  /**
   * `heard` is told of each reply or failure, and returns what the caller gets for it; `undo` returns the command to send when
   * nobody waits for a reply any more, or null.
   */
  constructor(address, deadlineMs, heard, undo) {
    this.#address = address;
    this.#deadlineMs = deadlineMs;
    this.#heard = heard;
    this.#undo = undo;
  }

  /** Resolves with what `heard` made of the reply, or with UNREACHABLE. Rejects only if the signal is aborted. */
  async ask(command, signal) {
    signal?.throwIfAborted();
    const waiting = this.#add(command);
    if (!signal) return waiting.came;
    const abort = () => waiting.settle(signal); // what has not been sent yet need not be
    signal.addEventListener("abort", abort, { once: true });
    const result = await waiting.came;
    signal.removeEventListener("abort", abort);
    if (result === signal) throw signal.reason;
    return result;
  }

  /** Resolves when all that was asked is answered; then the connection is closed. */
  async rest() {
    while (this.#running) await this.#running;
    this.#cut(new Error("closed"));
  }

  #add(command) {
    const waiting = new Waiting(this.#deadlineMs);
    this.#asked.push({ command, waiting });
    this.#running ??= this.#run();
    return waiting;
  }

  async #run() {
    // In which the loop sees whether the service has closed the connection: the first turn may end before it has looked.
    await turn();
    await turn();
    for (let batch = this.#batch(); batch.length; batch = this.#batch()) await this.#exchange(batch);
    this.#running = null;
  }

  #batch() {
    this.#asked = stillAsked(this.#asked);
    let count = 0;
    for (let bytes = 0; count < this.#asked.length && count < BATCH_MAX && bytes < BATCH_BYTES_MAX; count++) {
      bytes += this.#asked[count].command.length;
    }
    return this.#asked.splice(0, count);
  }

  async #exchange(batch) {
    const isOpen = this.#connection !== null && !this.#connection.broken;
    // The caller does not wait longer. But a connection that takes longer to be made is there for the next one.
    const patienceMs = isOpen ? this.#deadlineMs : CONNECTING * this.#deadlineMs;
    const waiting = new Waiting(patienceMs);
    if (!isOpen) this.#connection = new Connection(this.#address, this.#deadlineMs);
    const connection = this.#connection;
    connection?.idle(false);
    this.#converse(connection, isOpen, batch).then(() => waiting.settle(null), waiting.settle.bind(waiting));
    const failure = await waiting.came;
    connection?.idle(true);
    if (failure === null) return;
    const late = failure === UNREACHABLE;
    const error = late ? new Error(`no answer within ${patienceMs} ms`) : failure;
    this.#cut(error);
    // Whose loop was blocked knows nothing about the service.
    const result = late && waiting.wasBlocked ? UNREACHABLE : this.#heard(error);
    for (const asked of batch) asked.waiting.settle(result);
  }

  async #converse(connection, isOpen, batch) {
    if (!isOpen) await connection.open();
    const sent = stillAsked(batch);
    if (!sent.length) return;
    await connection.exchange(
      sent.map((asked) => asked.command),
      (number, reply) => this.#arrived(sent[number].waiting, reply),
    );
  }

  #arrived(waiting, reply) {
    const result = this.#heard(reply);
    const undoing = waiting.done ? this.#undo(reply) : null;
    waiting.settle(result);
    if (undoing) this.#add(undoing); // it would be held until its time to live is over
  }

  #cut(why) {
    this.#connection?.cut(why);
    this.#connection = null;
  }
}

const stillAsked = (list) => list.filter((asked) => !asked.waiting.done);

module.exports = { Line, ProtocolError, UNREACHABLE };
