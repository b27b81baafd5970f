/* The table of cells: the state of each limit for each subject, in a mapping of fixed size that threads and processes
 * change without locks. README.md in this folder explains how and why. */
#ifndef CELLS_CELLS_H
#define CELLS_CELLS_H

#include "base/hash.h"
#include "cells/atomic.h"
#include "limit/limit.h"

struct weir_error;
struct cells;
struct cell;

enum {
    CELL_BYTES = 32,
    CELLS_DEFAULT = 1 << 20,
};

struct cells_size {
    uint64_t keys;  /* that fit at the default fill of 3/4 … */
    uint64_t bytes; /* … or bytes of cells; both 0: CELLS_DEFAULT cells */
};

/* path NULL: memory of this process and its children. A file that exists keeps its size. */
int cells_open(struct cells **ret, const char *path, struct cells_size size, struct weir_error *error);
/* In memory of the caller, which must remain mapped: if all of it is zero, a table is created there, else it must contain a
 * table of this size. */
int cells_open_at(struct cells **ret, void *memory, size_t bytes, struct weir_error *error);
/* Stores how many bytes of memory a table of this size takes. */
int cells_memory_bytes(struct cells_size size, size_t *ret, struct weir_error *error);
void cells_close(struct cells *cells);
/* Whether the table has the size that a new one would have. Otherwise *ret_keys is how many keys fit. */
bool cells_has_size(const struct cells *cells, struct cells_size size, uint64_t *ret_keys);

/* The secret of this table, for the keys of its cells: the same in every process that opens it. */
const struct hash_key *cells_hash_key(const struct cells *cells);

/* Copies of a file have the same secret. This tells them apart: 0 in the file where the table was made, another number in
 * each copy of it. */
uint64_t cells_identity(const struct cells *cells);
/* Names the host whose table this is, among those that share a store. */
uint64_t cells_host(const struct cells *cells);
/* Whether this process has found, when it opened the file, that it is a copy, and has given it an identity of its own. */
bool cells_copied(const struct cells *cells);

/* One question to one cell. A key is a hash. A caller that takes several cells takes them in the order of their keys, so
 * that all callers use the same order. */
struct cells_ask {
    uint64_t key;
    const struct limit *limit;
    const struct window *window; /* the current one of a calendar limit */
    int64_t now_us;
    uint64_t cost;
};

/* The result of cells_look. */
struct cells_look {
    struct limit_state state; /* unused if there is no cell */
    bool fits;
    struct cell *cell; /* or NULL; the rest is for cells_take_looked */
    bool quick;
    struct limit_quick charge;
    word16 seen;
};

/* A charge that was made. */
struct cells_taken {
    struct limit_state state; /* after the charge; or what it was refused on */
    struct cell *cell;        /* the rest is for cells_refund */
    uint64_t head;
    int64_t at_us;
    uint64_t cost, key;
};

/* Writes nothing. */
void cells_look(struct cells *cells, const struct cells_ask *ask, struct cells_look *ret);
/* Charges the cell of ask->key, which is made if there is none. False: the cost does not fit, and nothing was charged. cost
 * > 0. */
bool cells_take(struct cells *cells, const struct cells_ask *ask, struct cells_taken *ret);
/* The same, quicker if the cell is still as it was looked at. */
bool cells_take_looked(struct cells *cells, const struct cells_ask *ask, const struct cells_look *look,
                       struct cells_taken *ret);
/* Gives a charge back. False: its cell has another key now, or its window is over. */
bool cells_refund(struct cells *cells, const struct limit *limit, const struct cells_taken *taken, int64_t now_us);

/* A charge that is held: it counts at once, and is given back after its time to live unless it was settled. */
struct cells_terms {
    uint32_t id; /* not 0: tells the holds of a cell apart */
    uint32_t ttl_ms;
    uint64_t tag;    /* for cells_each_hold: the same in all holds of a cell */
    bool kept;       /* ret: there was no room for a hold. It was charged and stays, or was refused if it was a slot. */
    bool joinable;   /* ret: it may be joined with others. Else the cell knows it until it is settled: see `alone` below. */
    uint64_t origin; /* ret: cells_origin */
};
/* For so long after its end a hold that is not joinable can still be settled. */
#define CELLS_LATE_US (24 * 3600 * US_PER_S)
/* As cells_take; quicker after a look, which may be NULL. A slot (LIMIT_CONCURRENT) belongs to this process: when it dies,
 * the slot is free for whoever needs it. */
bool cells_hold(struct cells *cells, const struct cells_ask *ask, const struct cells_look *look, struct cells_terms *terms,
                struct cells_taken *ret);

/* Slots that this process takes or renews in the table from now on belong to nobody: they outlive it, and last for as long
 * as their time to live. */
void cells_disown(struct cells *cells);

/* A charge as it can be remembered. */
struct cells_charged {
    uint64_t key;
    uint64_t origin; /* cells_origin */
    uint64_t amount;
    int64_t until_us; /* of a hold */
    uint32_t id;      /* of a hold; 0: it is a charge that stays */
    uint32_t gen;     /* cells_generation */
    /* It is settled if the cell knows the hold by its id. So the caller need not remember whether it was settled before.
     * Holds that are joinable need a caller who does: the others with which one was joined cannot tell. */
    bool alone;
    bool stays; /* less than the amount is not given back: nobody knows how much has come back by itself */
};
/* Returns the origin of a charge: its window (limit_origin), or this process if the charge is a slot. */
uint64_t cells_origin(const struct cells *cells, const struct limit *limit, const struct cells_taken *taken);
/* Tells a key's cell from later ones: one that was dropped or reset has none of its charges. */
uint32_t cells_generation(const struct cells_taken *taken);
/* The charge was `to` in truth: the rest is given back, or what lacks is charged, whether or not there is room. A hold
 * ends. One that is over has been given back, so all of `to` is charged. Nothing is done for a window that is over. Nothing
 * is given back to a cell that was dropped or reset. Returns whether anything has changed. */
bool cells_settle(struct cells *cells, const struct limit *limit, const struct window *window,
                  const struct cells_charged *charged, uint64_t to, int64_t now_us);
/* The hold lasts for ttl_ms from now on. False: it is over. A slot that another process took belongs to nobody then. */
bool cells_renew(struct cells *cells, const struct limit *limit, const struct cells_charged *charged, uint32_t ttl_ms,
                 int64_t now_us);

/* The holds of one cell. */
struct cells_held {
    uint64_t tag;    /* as in cells_terms */
    uint64_t holds;  /* that are not over; those that a full block has joined are one */
    uint64_t amount; /* of all of them */
};
/* Returns what is held of one cell, without holds of earlier windows. Writes nothing. */
struct cells_held cells_holds(struct cells *cells, uint64_t key, const struct limit *limit, int64_t now_us);
typedef void cells_hold_sink(const struct cells_held *held, void *data);
/* Tells of each cell with holds. Looks at `most` blocks of a kind; if a table has more, each stands for several. What
 * changes meanwhile may be told of twice or not at all. */
void cells_each_hold(struct cells *cells, int64_t now_us, uint64_t most, cells_hold_sink *each, void *data);

/* The change of a state that does not belong to a limit. */
struct cells_change {
    bool writes;  /* the rest is put in its place … */
    bool forgets; /* … or the cell is given up */
    struct limit_state next;
    struct limit_outlook outlook;
};
typedef struct cells_change cells_judge(struct limit_state state, void *data);
/* Changes the cell of a key, which is made if there is none, as `judge` says of its state (unused if there is none). If
 * another caller is quicker, `judge` is called again; its last answer is what was done. Returns false if nothing was done:
 * a cell with LIMIT_SHARE_NONE is not made if it could only take the place of a count. */
bool cells_update(struct cells *cells, uint64_t key, int64_t now_us, cells_judge *judge, void *data);

/* Charges the cell of ask->key, which is made if there is none, whether or not there is room: see limit_charge. `rank` is
 * the limit whose share of the table's room the cell has, mostly ask->limit. Returns the state after it. */
struct limit_state cells_charge(struct cells *cells, const struct cells_ask *ask, const struct limit *rank);

/* Gives back ask->cost of what the cell of ask->key has used, whoever was charged for it: see limit_give_back. Returns the
 * state after it; unused if there is no cell. */
struct limit_state cells_give_back(struct cells *cells, const struct cells_ask *ask);

/* Returns the state of a cell that does not belong to a limit; unused if there is none. Writes nothing. */
struct limit_state cells_read(const struct cells *cells, uint64_t key);
/* Forgets a cell. False: there is none. */
bool cells_forget(struct cells *cells, uint64_t key);
/* Starts loading what cells_look or cells_take will want. */
void cells_prefetch(const struct cells *cells, uint64_t key);
/* Some time after it: returns whether the cell seems to be where most are. */
bool cells_at_home(const struct cells *cells, uint64_t key);
/* Does the same for a cell that is not: starts loading the places where nearly all of these are, or all where it could be.
 */
void cells_prefetch_away(const struct cells *cells, uint64_t key, bool all);
/* As cells_prefetch, for one of many keys. `is_new`: it probably has no cell, and all places where it could be are loaded.
 */
void cells_prefetch_among(const struct cells *cells, uint64_t key, bool is_new);
/* The same for what cells_hold and cells_settle want besides. */
void cells_prefetch_hold(const struct cells *cells, uint64_t key);

enum { CELLS_BATCH = 16 };
/* cells_take for each of up to CELLS_BATCH asks; ret[i] is its result. Cells that have to be loaded from memory are loaded
 * at the same time, and cells that are in the cache are taken first; of equal keys the first is taken first. */
void cells_take_batch(struct cells *cells, const struct cells_ask *asks, unsigned count, struct cells_taken *ret_taken,
                      bool *ret);

struct cells_stats {
    uint64_t cells, bytes;          /* of the table; bytes without its header */
    uint64_t drops, drops_at_limit; /* since it was made */
};
struct cells_stats cells_stats(const struct cells *cells);
/* Cells that are in use and not decayed. Reads the whole table. */
uint64_t cells_count_live(struct cells *cells, int64_t now_us);
/* The same, from a sample of about `most` cells; exact where there are no more. */
uint64_t cells_estimate_live(struct cells *cells, int64_t now_us, uint64_t most);

#endif
