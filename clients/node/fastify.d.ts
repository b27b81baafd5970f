import type { FastifyPluginAsync, FastifyRequest } from "fastify";
import type { Text, Weir } from "./index";

export interface WeirFastifyOptions {
  readonly weir: Weir;
  /** Returns the user's id, for rules by `user`. It runs before the application: it should use only what can be trusted. */
  readonly user?: (request: FastifyRequest) => Text | null | undefined | Promise<Text | null | undefined>;
  /** The address of a client that has none, because it comes through a unix socket. */
  readonly localPeer?: string;
}

/** A plugin that asks weir about each request before the application sees it. */
export const weirFastify: FastifyPluginAsync<WeirFastifyOptions>;
