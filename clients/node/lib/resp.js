"use strict";
// RESP2, as much of it as weir speaks: commands are arrays of strings, replies are flat.

const LINE_MAX = 64 * 1024;
const BULK_MAX = 16 * 1024 * 1024;
const ITEMS_MAX = 64 * 1024;
const CRLF = Buffer.from("\r\n");

/** What answers does not speak RESP, or not as weir does. */
class ProtocolError extends Error {}

/** An error that the service sent as its reply. */
class ReplyError extends Error {}

const LONE_SURROGATE = /\p{Surrogate}/u;

/**
 * The bytes of a text: UTF-8, and three bytes for a lone surrogate. Node would turn each lone surrogate into U+FFFD, so that
 * two different keys would be counted as one.
 */
function octets(text) {
  if (!LONE_SURROGATE.test(text)) return Buffer.from(text, "utf8");
  const parts = Array.from(text, (character) => {
    const code = character.codePointAt(0) ?? 0;
    if (code < 0xd800 || code > 0xdfff) return Buffer.from(character, "utf8");
    return Buffer.from([0xe0 | (code >> 12), 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f)]);
  });
  return Buffer.concat(parts);
}

/** Returns one command as bytes. A word is a string or a Uint8Array. */
function encode(words) {
  const parts = [Buffer.from(`*${words.length}\r\n`, "latin1")];
  for (const word of words) {
    const bytes = typeof word === "string" ? octets(word) : word;
    parts.push(Buffer.from(`$${bytes.length}\r\n`, "latin1"), bytes, CRLF);
  }
  return Buffer.concat(parts);
}

/** Takes bytes as they arrive, in pieces of any size, and returns whole replies. */
class Reader {
  #bytes = Buffer.alloc(0);
  #at = 0;

  push(piece) {
    const rest = this.#bytes.subarray(this.#at);
    this.#bytes = rest.length ? Buffer.concat([rest, piece]) : piece;
    this.#at = 0;
  }

  /**
   * Returns the next whole reply: a number, a string (a status), a Buffer, null, an array of these, or a ReplyError;
   * undefined if it has not arrived yet. Throws a ProtocolError.
   */
  next() {
    const start = this.#at;
    const reply = this.#reply(true);
    if (reply === undefined) this.#at = start;
    return reply;
  }

  #line() {
    const end = this.#bytes.indexOf(CRLF, this.#at);
    if (end < 0) {
      if (this.#bytes.length - this.#at > LINE_MAX) throw new ProtocolError("a line that does not end");
      return undefined;
    }
    const line = this.#bytes.toString("utf8", this.#at, end);
    this.#at = end + CRLF.length;
    return line;
  }

  #reply(outermost) {
    if (this.#at >= this.#bytes.length) return undefined;
    const kind = this.#bytes[this.#at];
    if (!"+-:$*".includes(String.fromCharCode(kind))) throw new ProtocolError(`a reply that begins with ${shown(this.#bytes, this.#at)}`);
    const line = this.#line();
    if (line === undefined) return undefined;
    const rest = line.slice(1);
    switch (line[0]) {
      case "+":
        return rest;
      case "-":
        return new ReplyError(rest);
      case ":":
        return number(rest, -Infinity, Infinity);
      case "$":
        return this.#bulk(number(rest, -1, BULK_MAX));
      default:
        if (!outermost) throw new ProtocolError("an array in an array");
        return this.#items(number(rest, -1, ITEMS_MAX));
    }
  }

  #bulk(length) {
    if (length < 0) return null;
    const start = this.#at;
    const end = start + length;
    if (this.#bytes.length < end + CRLF.length) return undefined;
    if (this.#bytes[end] !== CRLF[0] || this.#bytes[end + 1] !== CRLF[1]) throw new ProtocolError("a string without its end");
    this.#at = end + CRLF.length;
    return this.#bytes.subarray(start, end);
  }

  #items(count) {
    if (count < 0) return null;
    const items = [];
    while (items.length < count) {
      const item = this.#reply(false);
      if (item === undefined) return undefined;
      items.push(item);
    }
    return items;
  }
}

function number(text, least, most) {
  const value = Number(text);
  if (!/^-?\d{1,19}$/.test(text) || value < least || value > most) throw new ProtocolError(`an invalid number: ${JSON.stringify(text.slice(0, 30))}`);
  return value;
}

function shown(bytes, at) {
  return JSON.stringify(bytes.toString("latin1", at, at + 20));
}

module.exports = { ProtocolError, Reader, ReplyError, encode, octets };
