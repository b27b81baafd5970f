/* The map of a Redis Cluster: which node has which hash slot, and which slots are being moved.
 *
 * All threads read it. The store's thread replaces it by what a node answers to CLUSTER SLOTS: every second, and as soon as
 * a node has sent a command elsewhere (MOVED). */
#ifndef REDIS_SLOT_MAP_H
#define REDIS_SLOT_MAP_H

#include "redis/reply.h"
#include "redis/store_state.h"

enum { HASH_SLOTS = 16384, MAP_NO_NODE = UINT16_MAX };

struct slot_map {
    _Atomic uint16_t node_of[HASH_SLOTS]; /* MAP_NO_NODE: not known */
    atomic_uint_fast64_t moving[HASH_SLOTS / 64];
    _Atomic int64_t moved_us;       /* when a slot was last found to be moving */
    atomic_bool outdated;           /* a node has sent a command elsewhere: the store's thread asks for the map */
    bool wanted;                    /* with store->lock held: a slot is being moved to a node that is not known … */
    struct redis_endpoint newcomer; /* … since it has no slots yet: this one */
    /* the store's thread's */
    uint64_t epoch; /* of the map */
    int64_t read_us, asked_us;
    bool asking;
    unsigned asked;               /* number of the node that was asked last */
    uint16_t lost_by[HASH_SLOTS]; /* of a slot without a node: the one that had it and was down; else MAP_NO_NODE */
};

/* The hash slot of a key: of what is between its first braces, unless that is nothing. Keys of rules and subjects always
 * have braces with something in them, and prefixes have none: so a key has the same slot with its prefix and without. */
uint16_t hash_slot(sv key);
/* Writes a word that has this hash slot. */
void hash_slot_word(uint16_t slot, char ret[8]);

int map_new(struct slot_map **ret);

/* The node that has the slot; NULL: not known. */
struct node *map_node(const struct store *store, uint16_t slot);
/* The lowest slot of each node; HASH_SLOTS: it has none. */
void map_first_slots(const struct store *store, uint16_t ret[NODES_MAX]);

/* "1234 127.0.0.1:6379", as `asked` has answered after MOVED or ASK. Returns the node, or NULL if it is not known yet. The
 * map does not mention a node that is to get its first slot: ASK does, and the store's thread takes it from there. */
struct node *map_read_target(struct node *asked, sv text, bool is_ask);
/* The slot is now at another node. */
void map_set(struct store *store, uint16_t slot, const struct node *node);
/* The store's thread is to ask for the map. */
void map_outdated(struct store *store);

/* A slot that is being moved has keys at two nodes: commands for it have to name one key. That is believed for some
 * seconds, since nobody tells when it is over. */
void map_set_moving(struct store *store, uint16_t slot);
bool map_is_moving(const struct store *store, uint16_t slot);

/* ---- the store's thread ---- */

/* Replaces the map by the answers to CLUSTER INFO and CLUSTER SLOTS. Returns false if they are not valid, or older than
 * the map. */
bool map_read(struct node *asked, uint64_t epoch, struct reply slots);
/* Returns the epoch in the answer to CLUSTER INFO; 0 if the answer has none. */
uint64_t map_epoch(sv info);
/* Adds the node that ASK has named. Returns it, or NULL if it has added none. */
struct node *map_add_newcomer(struct store *store, int64_t now_us);
/* Forgets moves that were noticed long ago. */
void map_sweep(struct store *store, int64_t now_us);

#endif
