/* The scripts that run in the store, what is sent to them, and what they say. Pure: no I/O.
 *
 * Every script is called as EVALSHA sha n KEYS… ARGV… . SCRIPT_DECIDE and SCRIPT_LEND answer with one bulk string: doubles
 * (little-endian, whole numbers below 2^53) and flags; the others with an integer. Any of them may answer with an error:
 * "TRYAGAIN …" if a key is on another node of a cluster, and then nothing is changed. */
#ifndef REDIS_SCRIPT_H
#define REDIS_SCRIPT_H

#include "base/buf.h"
#include "engine/store.h"
#include "slices/lender.h"

enum script_name {
    SCRIPT_DECIDE, /* look at all cells of a plan, then take all */
    SCRIPT_SETTLE, /* let what a decision has charged become another amount */
    SCRIPT_LEND,   /* take a slice out of a window */
    SCRIPT_RETURN, /* give back what is left of one */
    SCRIPT_FORGET, /* forget subjects */
    SCRIPTS
};

struct script {
    const char *name;
    sv text;
    char sha[41]; /* SHA-1 of the text in hexadecimal, worked out when weir is built */
};
extern const struct script scripts[SCRIPTS];

/* "weir:1:" unless the address says otherwise: `prefix` is "weir", the number is that of the layout. */
enum { SCRIPT_PREFIX_MAX = 64, SCRIPT_LAYOUT = 1 };

/* Each writes a whole command in RESP; buf.failed says that it did not fit. */
/* For this call and those that follow it (`next`), which are decided one after another by the clock of the first. */
void script_write_decide(struct buf *out, sv prefix, const struct store_call *first);
/* The same script for plans in any slots of one node of a cluster: keys are not declared, so the node never answers with
 * MOVED or ASK. A plan with a key that is not on this node is STORE_FAILED, and `why` begins with "TRYAGAIN "; ask for it
 * alone with script_write_decide() to learn where it is. Never send this after ASKING. */
void script_write_decide_many(struct buf *out, sv prefix, const struct store_call *first);
/* Replaces the charge of the call by the `to` of each cell, or renews or enters its holds. */
void script_write_settle(struct buf *out, sv prefix, const struct store_call *call);
void script_write_lend(struct buf *out, sv prefix, const struct slice_ask *ask, uint32_t lacks, uint64_t debt,
                       uint32_t hosts, int64_t now_us);
/* Gives back `tokens` of a slice of the window that ends at end_us, by the store's clock. */
void script_write_return(struct buf *out, sv prefix, const struct slice_ask *ask, int64_t end_us, uint32_t tokens);

void script_write_forget(struct buf *out, sv prefix, const struct weir_str *keys, size_t count);

/* Reads the answer of SCRIPT_DECIDE into the calls: result (STORE_FAILED with `why` for those that the script cannot decide
 * on: "TRYAGAIN …" while a key is on another node, "CLUSTERDOWN …", else "BADSTATE …" about a key), allowed, server_us, and
 * each rule's and cell's. Returns false if it is not a valid answer. */
bool script_read_decide(struct store_call *first, sv answer);

bool script_read_lend(sv answer, struct lent *ret);

#endif
