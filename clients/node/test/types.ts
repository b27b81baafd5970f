// Not run: tsc checks it, with the packed package. Each @ts-expect-error must be an error.
import express from "express";
import fastify from "fastify";
import { TooFrequent, type Verdict, Weir, detect } from "weir-client";
import { weirExpress } from "weir-client/express";
import { weirFastify } from "weir-client/fastify";

export const weir: Weir = Weir.connect("redis://127.0.0.1:6380", { deadlineMs: 50, whenUnreachable: "refuse" });
// @ts-expect-error: not a choice
Weir.connect("redis://127.0.0.1:6380", { whenUnreachable: "pass" });
// @ts-expect-error: misspelt
Weir.connect("redis://127.0.0.1:6380", { deadline: 50 });

export const read = detect(weir, "ocr", { key: (user) => user, cost: (_, pages) => pages.length }, (user: string, pages: string[]) => pages.length);
export const pages: Promise<number> = read("u7", ["a"]);
// @ts-expect-error: a number is not a list of pages
void read("u7", 1);
// @ts-expect-error: an object is not a key
detect(weir, "ocr", { key: () => ({}) }, () => 1);

export const items: (user: string) => AsyncGenerator<number, void, unknown> = detect(weir, "ocr", { key: (user) => user }, async function* (user: string) {
  yield user.length;
});

export async function hold(): Promise<number> {
  const verdict: Verdict = await weir.check({ event: "llm", key: 7n, costs: { tokens: 5 }, headers: { "X-Plan": ["a", "b"] } });
  // @ts-expect-error: a verdict does not change
  verdict.allowed = true;
  // @ts-expect-error: a reservation has a time to live
  await weir.reserve({ event: "llm" }, () => 1);
  try {
    return await weir.reserve({ event: "llm", key: "u", ttlMs: 1000 }, async (held) => held.settle({ costs: { tokens: 2 } }));
  } catch (error) {
    return error instanceof TooFrequent ? error.retryAfterMs : weir.settle(JSON.parse(JSON.stringify(verdict)) as Verdict);
  }
}

express().use(weirExpress(weir, { user: (request: express.Request) => request.get("x-user") }));
void fastify().register(weirFastify, { weir, user: async (request) => request.headers["x-user"]?.toString() });
// @ts-expect-error: it needs a Weir
void fastify().register(weirFastify, {});
