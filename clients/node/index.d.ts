/** Says for whom, or what, a call counts. Any text works; bytes count, not characters. */
export type Text = string | Uint8Array | number | bigint;

export type Pairs = Iterable<readonly [string | Uint8Array, Text]>;

/** Amounts by unit, such as { requests: 1, tokens: 1200 }. A unit that is not there costs 0, also `requests`. */
export type Costs = Readonly<Record<string, number>>;

export interface ConnectOptions {
  /** How long a call waits for the answer. Default: 50 */
  readonly deadlineMs?: number;
  /** The result without an answer. Default: "allow" */
  readonly whenUnreachable?: "allow" | "refuse";
  /** Gets a line when an outage begins and one when it ends. Default: console.warn */
  readonly log?: (line: string) => void;
}

/** What weir is asked about. All fields are optional. */
export interface Question {
  readonly event?: Text | null;
  readonly key?: Text | null;
  readonly user?: Text | null;
  /** The client's address, if it is known. */
  readonly ip?: string | null;
  /** Otherwise the address of the connection: weir finds the client with X-Forwarded-For. */
  readonly peer?: string | null;
  readonly method?: string | null;
  /** As the client sent it. */
  readonly path?: string | Uint8Array | null;
  readonly host?: string | null;
  readonly domain?: Text | null;
  /** At most 100. */
  readonly headers?: Readonly<Record<string, string | readonly string[] | undefined>> | Pairs | null;
  /** The entries in their order, at most 256. */
  readonly descriptor?: Readonly<Record<string, Text>> | Pairs | null;
  /** In requests. Default: 1; 0 looks without charging */
  readonly cost?: number;
  /** In place of `cost`: the costs of all units. */
  readonly costs?: Costs;
  /** Answers for the cost, but charges nothing. */
  readonly peek?: boolean;
  /** The verdict gets a receipt, for `refund`. */
  readonly refundable?: boolean;
  /** The charge is held for this time: the verdict has a `hold`. */
  readonly ttlMs?: number;
  /** What becomes of a hold whose time is over. Default: "release" */
  readonly onExpiry?: "release" | "keep";
  /** Ends the wait. What the answer holds is given back when it arrives. */
  readonly signal?: AbortSignal;
}

/** A verdict, what is left of it after JSON, or the text of its hold or receipt. */
export type Held = string | { readonly hold?: string | null; readonly receipt?: string | null };

/** The true costs of what was held: a unit that is not named keeps what was held. */
export interface TrueCosts {
  readonly cost?: number;
  readonly costs?: Costs;
}

export class Verdict {
  private constructor();
  readonly allowed: boolean;
  /** The limit that refused, or the one that is nearest to its end; null if no rule applied. */
  readonly rule: string | null;
  readonly limit: string | null;
  readonly max: number | null;
  readonly remaining: number | null;
  /** The time until the limit is as if unused. */
  readonly resetMs: number | null;
  /** 0 when allowed; -1: waiting does not help. */
  readonly retryAfterMs: number;
  readonly windowMs: number | null;
  /** HTTP status for the refusal, 0 when allowed. */
  readonly status: number;
  /** Nobody could decide: weir, or the store of its counters, does not answer. */
  readonly unavailable: boolean;
  /** What `refund` needs, if it was asked for. */
  readonly receipt: string | null;
  /** What `max` and `remaining` count. */
  readonly unit: string | null;
  /** What the request holds until it is settled or released. */
  readonly hold: string | null;
  /** Refused because the rule has refused too often before. */
  readonly penalty: boolean;
  /** The headers for an answer, as weir wrote them. */
  headers(): [name: string, value: string][];
}

/** A protected call was refused. */
export class TooFrequent extends Error {
  constructor(verdict: Verdict);
  readonly verdict: Verdict;
  readonly retryAfterMs: number;
  readonly status: number;
  readonly statusCode: number;
  readonly headers: Record<string, string | string[]>;
}

/** weir cannot be used: it is closed, what answers is not weir, or weir finds a mistake in the call. */
export class WeirError extends Error {}

/** What `reserve` gives to its body. The first of settle and cancel ends it; later ones return 0. */
export class Hold {
  private constructor();
  readonly verdict: Verdict;
  /** Less than was held is given back, more is charged. Returns the number of limits settled. */
  settle(costs?: TrueCosts): Promise<number>;
  /** Gives back everything. */
  cancel(): Promise<number>;
  /** The hold lasts for this time from now on. Returns 0 if it is over. */
  renew(ttlMs: number): Promise<number>;
}

export class Weir {
  private constructor();
  /** The service at redis://HOST:PORT, redis://:TOKEN@HOST:PORT, rediss://HOST:PORT (TLS) or unix:///PATH. It need not run yet. */
  static connect(url: string, options?: ConnectOptions): Weir;
  /** How many calls were decided without weir. */
  readonly unreachable: number;
  /** Decides, and charges what passes. A refusal is a verdict. */
  check(question: Question): Promise<Verdict>;
  /**
   * Holds the costs while `body` runs, or rejects with TooFrequent. A body that fails gives everything back; one that ends without
   * settling leaves what was held as a charge.
   */
  reserve<R>(question: Question & { readonly ttlMs: number }, body: (hold: Hold) => R): Promise<Awaited<R>>;
  /** Returns the number of limits settled: 0 if that was done before. */
  settle(held: Held, costs?: TrueCosts): Promise<number>;
  /** The hold lasts for this time from now on. Returns 0 if it is over. */
  renew(held: Held, ttlMs: number): Promise<number>;
  /** Frees slots of limits with `concurrent`; everything else stays charged. */
  release(held: Held): Promise<number>;
  /** Gives back a charge, or cancels a hold. Returns the number of limits refunded. */
  refund(charged: Held): Promise<number>;
  /** Calls in progress are still decided; later ones are rejected with a WeirError. */
  close(): Promise<void>;
}

export interface DetectOptions<This, Args extends unknown[]> {
  /** For whom the call counts: a function that is called with the same arguments. */
  readonly key: (this: This, ...args: Args) => Text;
  /** In requests: a number, or a function that is called with the same arguments. Default: 1 */
  readonly cost?: number | ((this: This, ...args: Args) => number);
  /** In place of `cost`: the costs of all units. */
  readonly costs?: Costs | ((this: This, ...args: Args) => Costs);
  /** Gives the cost back, in all units, when the call fails. Default: false */
  readonly refundOnError?: boolean;
}

/** Returns a function that charges each call, or rejects with TooFrequent instead of calling `call`. */
export function detect<This, Args extends unknown[], Item, Result, Next>(
  weir: Weir,
  event: string,
  options: DetectOptions<This, Args>,
  call: (this: This, ...args: Args) => AsyncGenerator<Item, Result, Next>,
): (this: This, ...args: Args) => AsyncGenerator<Item, Result, Next>;
export function detect<This, Args extends unknown[], Result>(
  weir: Weir,
  event: string,
  options: DetectOptions<This, Args>,
  call: (this: This, ...args: Args) => Result,
): (this: This, ...args: Args) => Promise<Awaited<Result>>;
