/* Not built yet: a store that cannot be opened. */
#include "engine/store.h"

#include "base/err.h"

int store_open(struct store **ret, const struct store_options *options, struct cells *cells, struct weir_error *error)
{
    (void)ret, (void)options, (void)cells;
    return err_set(error, WEIR_E_INVALID, "there is no store yet");
}
void store_close(struct store *store) { (void)store; }
bool store_up(const struct store *store) { (void)store; return false; }
uint32_t store_hosts(const struct store *store) { (void)store; return 1; }
int64_t store_offset_us(const struct store *store) { (void)store; return 0; }
int64_t store_away_us(const struct store *store, int64_t now_us) { (void)store; return now_us; }
void store_status(struct store *store, struct weir_store_status *ret) { (void)store; *ret = (struct weir_store_status){ 0 }; }
void store_post(struct store *store, struct store_call *call) { (void)store; call->result = STORE_UNSENT; call->done(call); }
int store_forget(struct store *store, const struct weir_str *keys, size_t count, struct weir_error *error)
{ (void)store, (void)keys, (void)count, (void)error; return 0; }
bool store_want(struct store *store, const struct lease_ask *ask) { (void)store, (void)ask; return false; }
void store_recall(struct store *store) { (void)store; }
int store_link_new(struct store_link **ret, struct store *store, void (*nudged)(void *data), void *data)
{ (void)ret, (void)store, (void)nudged, (void)data; return WEIR_E_INVALID; }
void store_link_free(struct store_link *link) { (void)link; }
int store_link_fd(const struct store_link *link) { (void)link; return -1; }
void store_link_run(struct store_link *link) { (void)link; }
void store_send(struct store_link *link, struct store_call *call) { (void)link; call->result = STORE_UNSENT; call->done(call); }
void store_link_flush(struct store_link *link) { (void)link; }
void store_refund(struct store_link *link, const struct store_call *call) { (void)link, (void)call; }
__attribute__((weak)) void store_link_wake_at(struct store_link *link, int64_t steady_us) { (void)link, (void)steady_us; }
__attribute__((weak)) void store_count_reconciled(struct store *store, uint64_t tokens) { (void)store, (void)tokens; }
__attribute__((weak)) void store_count_refunded(struct store *store) { (void)store; }
