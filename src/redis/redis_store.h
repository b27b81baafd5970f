/* The store in Redis or Valkey: what struct store_ops promises, by name. */
#ifndef REDIS_REDIS_STORE_H
#define REDIS_REDIS_STORE_H

#include "engine/store.h"

extern const struct store_ops redis_store;

int store_open(struct store **ret, const struct store_options *options, struct cells *cells, struct weir_error *error);
void store_close(struct store *store);
bool store_up(const struct store *store);
bool store_up_for(const struct store *store, struct weir_str key);
uint32_t store_hosts(const struct store *store);
int64_t store_offset_us(const struct store *store);
bool store_secret(const struct store *store, struct hash_key *ret);
void store_status(struct store *store, struct weir_store_status *ret);
void store_count_event(struct store *store, enum store_event event, uint64_t n);
void store_post(struct store *store, struct store_call *call);
int store_forget(struct store *store, const struct weir_str *keys, size_t count, struct weir_error *error);
bool store_want(struct store *store, const struct slice_ask *ask);
void store_recall(struct store *store);

int store_link_new(struct store_link **ret, struct store *store, void (*nudged)(void *data), void *data);
void store_link_free(struct store_link *link);
int store_link_fd(const struct store_link *link);
void store_link_run(struct store_link *link);
void store_link_wake_at(struct store_link *link, int64_t steady_us);
void store_send(struct store_link *link, struct store_call *call);
void store_link_flush(struct store_link *link);
void store_settle(struct store_link *link, const struct store_call *call);

#endif
