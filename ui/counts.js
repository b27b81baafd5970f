// Counts over time, as GET /v1/counts has them.
import { get, query } from "./api.js";
import { number } from "./format.js";

export const RANGES = [
  { key: "hour", name: "Hour", last: "1h", step: "10s" },
  { key: "day", name: "Day", last: "1d", step: "5m" },
  { key: "month", name: "Month", last: "31d", step: "2h" },
];
const RULES_MAX = 90; // in one call

/** The sum of the known counts. A count is null if weir did not run, or counted the rule together with others. Returns null if none is known. */
export const sum = (counts) => (counts ?? []).reduce((all, count) => (count === null ? all : (all ?? 0) + count), null);
/** A sum in words: what is not known is not 0. */
export const counted = (total) => (total === null ? "not counted" : number(total));

/** Counts of one column as rates a second. The last point is not complete: it is left out until half of it is there. */
export function rates(data, counts) {
  const last = (new Date(data.now) - new Date(data.start)) / 1000 - (data.points - 1) * data.step_s;
  return counts.map((count, i) => {
    const seconds = i === data.points - 1 ? Math.min(last, data.step_s) : data.step_s;
    return count === null || seconds < data.step_s / 2 ? null : count / seconds;
  });
}

export const startOf = (data) => new Date(data.start).getTime() / 1000;
export const allCounts = (range) => get(`/v1/counts${query({ last: range.last, step: range.step })}`);

/** By rule: each has the members of the answer, too. */
export async function ruleCounts(ids, range, step = range.step) {
  const found = new Map();
  for (let i = 0; i < ids.length; i += RULES_MAX) {
    const { rules, ...data } = await get(`/v1/counts${query({ last: range.last, step, rule: ids.slice(i, i + RULES_MAX) })}`);
    for (const one of rules) found.set(one.rule, { ...data, ...one });
  }
  return found;
}
