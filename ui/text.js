// Documents as YAML, and the difference of two texts.

const PLAIN = /^(?:[A-Za-z/][A-Za-z0-9_/.-]*|\d+(?:ms|s|m|h|d))$/; // also lengths
const RESERVED = /^(true|false|yes|no|on|off|null|y|n)$/i;

// Letters of any script are shown as they are; what nobody sees (marks of direction, joiners, spaces without width) is escaped.
const escapeUnseen = (text) => text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (one) => `\\U${one.codePointAt(0).toString(16).padStart(8, "0")}`);
const scalar = (value) => (typeof value === "string" && PLAIN.test(value) && !RESERVED.test(value) ? value : escapeUnseen(JSON.stringify(value)));
const isFlat = (value) => value === null || typeof value !== "object";

/** In one line, if it is short: [GET, POST], { max: 5, per: 1m }. */
export function flow(value) {
  if (isFlat(value)) return scalar(value);
  if (Array.isArray(value)) return `[${value.map(flow).join(", ")}]`;
  const members = Object.entries(value).map(([name, one]) => `${scalar(name)}: ${flow(one)}`);
  return members.length ? `{ ${members.join(", ")} }` : "{}";
}

function add(lines, value, indent, prefix) {
  const line = flow(value);
  if (isFlat(value) || (line.length + prefix.length <= 100 && indent > 0) || Object.keys(value).length === 0) {
    lines.push(prefix + line);
  } else if (Array.isArray(value)) {
    if (prefix.trim()) lines.push(prefix.trimEnd());
    for (const one of value) add(lines, one, indent + 2, " ".repeat(indent) + "- ");
  } else {
    let first = prefix.endsWith("- ") ? prefix : null;
    if (!first && prefix.trim()) lines.push(prefix.trimEnd());
    for (const [name, one] of Object.entries(value)) {
      add(lines, one, indent + 2, (first ?? " ".repeat(indent)) + `${scalar(name)}: `);
      first = null;
    }
  }
}

/** A document of JSON as YAML that people like to read. */
export function yaml(document) {
  const lines = [];
  add(lines, document, 0, "");
  return lines.join("\n") + "\n";
}

/** The lines of both: [{kind: "same" | "added" | "removed", text}]. */
export function difference(before, after) {
  const a = before.split("\n"), b = after.split("\n");
  const length = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--)
    for (let k = b.length - 1; k >= 0; k--)
      length[i][k] = a[i] === b[k] ? length[i + 1][k + 1] + 1 : Math.max(length[i + 1][k], length[i][k + 1]);
  const result = [];
  let i = 0, k = 0;
  while (i < a.length || k < b.length) {
    if (i < a.length && k < b.length && a[i] === b[k]) result.push({ kind: "same", text: a[i++] }), k++;
    else if (k < b.length && (i === a.length || length[i][k + 1] > length[i + 1][k])) result.push({ kind: "added", text: b[k++] });
    else result.push({ kind: "removed", text: a[i++] });
  }
  return result.filter((line) => line.text !== "" || line.kind !== "same");
}
