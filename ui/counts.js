// Counts over time, as GET /v1/counts has them.
import { get, query } from "./api.js";

export const RANGES = [
  { key: "hour", name: "Hour", seconds: 3600, step: 10 },
  { key: "day", name: "Day", seconds: 86400, step: 300 },
  { key: "month", name: "Month", seconds: 31 * 86400, step: 7200 },
];

/** Rates a second of one column. */
export const rates = (counts, step) => counts.map((count) => (count === null ? null : count / step));
export const sum = (counts) => (counts ?? []).reduce((all, count) => all + (count ?? 0), 0);

export const allCounts = (range) => get(`/v1/counts${query({ last: range.seconds, step: range.step })}`);
/** By rule: {id: {passed, refused, would_refuse}}. */
export async function ruleCounts(ids, range, step = range.step) {
  const found = new Map();
  for (let i = 0; i < ids.length; i += 50) {
    const answer = await get(`/v1/counts${query({ last: range.seconds, step, rule: ids.slice(i, i + 50) })}`);
    for (const one of answer.rules) found.set(one.rule, one);
  }
  return found;
}
