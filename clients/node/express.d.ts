import type { IncomingMessage, ServerResponse } from "node:http";
import type { Text, Weir } from "./index";

export interface WeirExpressOptions<Request extends IncomingMessage = IncomingMessage> {
  /** Returns the user's id, for rules by `user`. It runs before the application: it should use only what can be trusted. */
  readonly user?: (request: Request) => Text | null | undefined | Promise<Text | null | undefined>;
  /** The address of a client that has none, because it comes through a unix socket. */
  readonly localPeer?: string;
}

/** Asks weir about each request before the application sees it. For Express, and whatever calls functions (request, response, next). */
export function weirExpress<Request extends IncomingMessage = IncomingMessage>(
  weir: Weir,
  options?: WeirExpressOptions<Request>,
): (request: Request, response: ServerResponse, next: (error?: unknown) => void) => Promise<void>;
