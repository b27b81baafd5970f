"use strict";
// The url: where the service is, its token, and the files for TLS.

const PORT = 6380;
const UNIX = /^unix:\/\/(?:([^@/]*)@)?(\/[^?#]*)(?:\?([^#]*))?$/;
const FILES = { ssl_ca_certs: "ca", ssl_certfile: "cert", ssl_keyfile: "key" };

/** Without the url: it may have a token, also one that is not where it should be. */
function mistake() {
  return new RangeError(
    "the url must look like redis://HOST:PORT, redis://:TOKEN@HOST:PORT, rediss://HOST:PORT or unix:///PATH, with special characters of the token as %2F",
  );
}

/**
 * Returns { path } or { host, port }, with `auth` (the words of AUTH), `files` (for TLS, else null) and `name`, which has
 * no token in it.
 */
function addressOf(url) {
  if (typeof url !== "string") throw new TypeError(`the url is ${typeof url}, and must be a string`);
  try {
    return url.startsWith("unix:") ? unixAddress(url) : tcpAddress(url);
  } catch (error) {
    if (error instanceof RangeError) throw error;
    throw mistake(); // what URL or decodeURIComponent say has the url in it
  }
}

function unixAddress(url) {
  const found = UNIX.exec(url);
  if (!found || found[3]) throw mistake();
  const path = decodeURIComponent(found[2]);
  const [user, ...token] = (found[1] ?? "").split(":");
  return { path, name: `unix://${path}`, auth: found[1] === undefined ? null : authOf(user, token.join(":")), files: null };
}

function tcpAddress(url) {
  const parts = new URL(url);
  const withTls = parts.protocol === "rediss:";
  if ((!withTls && parts.protocol !== "redis:") || !parts.hostname || !/^\/?\d*$/.test(parts.pathname) || parts.hash) throw mistake();
  const host = decodeURIComponent(parts.hostname.replace(/^\[(.*)\]$/, "$1"));
  const port = parts.port ? Number(parts.port) : PORT;
  const auth = parts.username || parts.password ? authOf(parts.username, parts.password) : null;
  return { host, port, name: `${parts.protocol}//${parts.hostname}:${port}`, auth, files: filesOf(parts.searchParams, withTls) };
}

function authOf(user, token) {
  if (!token) throw mistake();
  return ["AUTH", ...(user ? [decodeURIComponent(user)] : []), decodeURIComponent(token)];
}

function filesOf(options, withTls) {
  const files = {};
  for (const [name, path] of options) {
    if (!withTls || !Object.hasOwn(FILES, name)) {
      const allowed = withTls ? `allowed are ${Object.keys(FILES).join(", ")}` : "only rediss:// has options";
      throw new RangeError(`the url has an unknown option after its ?: ${allowed}`);
    }
    files[FILES[name]] = path;
  }
  return withTls ? files : null;
}

module.exports = { addressOf };
