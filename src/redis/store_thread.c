/* The store's own thread: calls of threads that block, slices, probes, and once a second a word with the store. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/hash.h"
#include "redis/link.h"

#define BEAT_US US_PER_S
#define BEAT_ANSWER_US US_PER_S /* at least: no decision waits for it */
#define HOST_GONE_S 10
#define HOSTS_TTL_MS "60000"
#define SWEEP_US (50 * US_PER_MS)
#define NEWS_US (200 * US_PER_MS)
#define CLOSE_US (200 * US_PER_MS)
#define PROBE_MIN_US (50 * US_PER_MS)
#define PROBE_MAX_US US_PER_S
#define STEADY_US US_PER_S /* a breaker that opens again sooner is probed less often */

enum { ID_MAX = 17, BORN_MAX = 64, KEY_MAX = SCRIPT_PREFIX_MAX + 16 };

struct keeper {
    struct store *store;
    struct store_link *link;
    char hosts_key[KEY_MAX], born_key[KEY_MAX];
    char id[ID_MAX];                              /* of this host, among those that count */
    char born[BORN_MAX + 1];                      /* the mark of its data that was seen last; "": none */
    bool up;                                      /* as it was when last looked at */
    int64_t up_us, down_us;                       /* since when it is, and since when it was not */
    int64_t gathering_us;                         /* until then hosts are still coming back */
    int64_t beat_us, sweep_us, news_us, probe_us; /* when each is due */
    int64_t backoff_us;
    int64_t asked_us, asked_now_us; /* when TIME was sent: steady, and this host's clock */
    int64_t probed_us;
    uint64_t paid;         /* tokens that the lender had paid when it was last looked at */
    bool beating, probing; /* its answer is awaited */
};

static int64_t deadline_us(const struct keeper *k)
{
    return clock_steady_us() + k->store->options.deadline_ms * US_PER_MS;
}

/* ---- who counts here ---- */

static void make_names(struct keeper *k)
{
    struct store *store = k->store;
    snprintf(k->hosts_key, KEY_MAX, "%.*s:%d:hosts", SV_FMT(store->prefix), SCRIPT_LAYOUT);
    snprintf(k->born_key, KEY_MAX, "%.*s:%d:born", SV_FMT(store->prefix), SCRIPT_LAYOUT);
}

/* ---- the beat ---- */

static void ignore(struct store_link *link, void *data, enum store_result how, const struct reply *reply)
{
    (void)link, (void)data, (void)how, (void)reply;
}

static const struct link_kind ignored = { .done = ignore };

static void time_done(struct store_link *link, void *data, enum store_result how, const struct reply *reply)
{
    struct keeper *k = data;
    struct reply array, seconds, micros;
    uint64_t s, us;
    k->beating = false;
    if (how != STORE_DECIDED)
        return;
    array = *reply;
    if (!reply_next(&array, &seconds) || !reply_next(&array, &micros) ||
        !sv_u64(seconds.text, CLOCK_END_US / US_PER_S, &s) || !sv_u64(micros.text, US_PER_S - 1, &us))
        return;
    int64_t took_us = clock_steady_us() - k->asked_us, server_us = (int64_t)s * US_PER_S + (int64_t)us;
    /* An answer that was long on its way tells less than the one before. */
    if (took_us <= k->store->options.deadline_ms * US_PER_MS)
        atomic_store(&link_store(link)->offset_us, server_us - (k->asked_now_us + took_us / 2));
}

static const struct link_kind time_kind = { .done = time_done };

/* The mark of the store's data: another one, and they are others. It is made anew each time: one who wrote it twice would
 * not notice that it was gone in between. */
static void write_mark(struct keeper *k)
{
    char mark[BORN_MAX + 1];
    uint64_t random[2] = { 0 };
    if (getrandom(random, sizeof random, GRND_NONBLOCK) < 0)
        random[0] = (uint64_t)clock_now_us();
    snprintf(mark, sizeof mark, "%016llx%016llx", (unsigned long long)random[0], (unsigned long long)random[1]);
    LINK_WRITE(link_begin(k->link), SV("SET"), weir_str(k->born_key), weir_str(mark), SV("NX"));
}

static void born_done(struct store_link *link, void *data, enum store_result how, const struct reply *reply)
{
    struct keeper *k = data;
    struct store *store = link_store(link);
    if (how != STORE_DECIDED || reply->kind != REPLY_BULK || reply->text.len > BORN_MAX)
        return;
    bool known = k->born[0] != '\0', same = sv_eq(reply->text, weir_str(k->born));
    snprintf(k->born, sizeof k->born, "%.*s", SV_FMT(reply->text));
    if (!known || same)
        return;
    store_count(&store->counts.emptied, 1);
    breaker_tell(&store->breaker, WEIR_STORE_EMPTIED, "the store %s has lost its data: all counts in it begin anew",
                 store->address.shown);
}

static const struct link_kind born_kind = { .done = born_done };

static void hosts_done(struct store_link *link, void *data, enum store_result how, const struct reply *reply)
{
    const struct keeper *k = data;
    struct store *store = link_store(link);
    if (how != STORE_DECIDED || reply->kind != REPLY_INTEGER || reply->integer < 1 || reply->integer > UINT32_MAX ||
        store->options.hosts > 0)
        return;
    unsigned hosts = (unsigned)reply->integer;
    if (hosts >= atomic_load(&store->hosts) || clock_steady_us() >= k->gathering_us)
        atomic_store(&store->hosts, hosts);
}

static const struct link_kind hosts_kind = { .done = hosts_done };

static void leave_hosts(struct keeper *k, int64_t until_us)
{
    LINK_WRITE(link_begin(k->link), SV("ZREM"), weir_str(k->hosts_key), weir_str(k->id));
    link_end(k->link, &ignored, k, until_us);
}

/* Processes that share a table of cells are one host, since they share what is counted while the store is away: also in
 * containers, whose host names differ. Looked up with each beat, so that they agree when the table gets another identity.
 */
static void name_host(struct keeper *k, int64_t until_us)
{
    char id[ID_MAX];
    snprintf(id, sizeof id, "%016llx", (unsigned long long)cells_host(k->store->cells));
    if (k->id[0] && strcmp(k->id, id) != 0)
        leave_hosts(k, until_us);
    memcpy(k->id, id, sizeof id);
}

static void beat(struct keeper *k)
{
    struct store_link *link = k->link;
    int64_t until_us = deadline_us(k), least_us = clock_steady_us() + BEAT_ANSWER_US;
    if (until_us < least_us)
        until_us = least_us;
    char now[24], gone[24];
    k->asked_us = clock_steady_us();
    k->asked_now_us = clock_now_us();
    int64_t server_s = (k->asked_now_us + store_offset_us(k->store)) / US_PER_S;
    snprintf(now, sizeof now, "%lld", (long long)server_s);
    snprintf(gone, sizeof gone, "(%lld", (long long)server_s - HOST_GONE_S);
    sv hosts = weir_str(k->hosts_key);
    LINK_WRITE(link_begin(link), SV("TIME"));
    k->beating = link_end(link, &time_kind, k, until_us);
    if (!k->store->options.visits) {
        write_mark(k);
        link_end(link, &ignored, k, until_us);
        LINK_WRITE(link_begin(link), SV("GET"), weir_str(k->born_key));
        link_end(link, &born_kind, k, until_us);
        name_host(k, until_us);
        LINK_WRITE(link_begin(link), SV("ZADD"), hosts, weir_str(now), weir_str(k->id));
        link_end(link, &ignored, k, until_us);
        LINK_WRITE(link_begin(link), SV("ZREMRANGEBYSCORE"), hosts, SV("-inf"), weir_str(gone));
        link_end(link, &ignored, k, until_us);
        LINK_WRITE(link_begin(link), SV("PEXPIRE"), hosts, SV(HOSTS_TTL_MS));
        link_end(link, &ignored, k, until_us);
    }
    LINK_WRITE(link_begin(link), SV("ZCARD"), hosts);
    link_end(link, &hosts_kind, k, until_us);
}

/* ---- probes ---- */

/* Only an answer that a decision could have waited for closes the breaker; after one that was late the next is sent at
 * once, since a server that was stopped goes on. */
static void probe_done(struct store_link *link, void *data, enum store_result how, const struct reply *reply)
{
    (void)reply;
    struct keeper *k = data;
    int64_t now_us = clock_steady_us();
    k->probing = false;
    k->probe_us = now_us;
    if (how == STORE_DECIDED && now_us - k->probed_us <= k->store->options.deadline_ms * US_PER_MS)
        store_works(link_store(link));
    else if (how != STORE_DECIDED) {
        k->backoff_us = k->backoff_us * 2 < PROBE_MAX_US ? k->backoff_us * 2 : PROBE_MAX_US;
        k->probe_us += k->backoff_us;
    }
}

static const struct link_kind probe_kind = { .done = probe_done };

/* A write, since a server that is full, or that cannot save, still answers to reads. */
static void probe(struct keeper *k, int64_t now_us)
{
    write_mark(k);
    k->probing = link_end(k->link, &probe_kind, k, deadline_us(k));
    k->probed_us = now_us;
}

static void tell_news(struct keeper *k, int64_t now_us)
{
    struct store *store = k->store;
    struct lease_news news = {
        .counters = true, .up = store_up(store), .hosts = store_hosts(store), .offset_us = store_offset_us(store)
    };
    if (!store->options.visits)
        lease_tell_news(store->cells, &news, now_us);
    k->news_us = now_us + NEWS_US;
}

/* The breaker has opened or was closed since the last turn. */
static void notice_change(struct keeper *k, int64_t now_us)
{
    bool up = store_up(k->store);
    if (up == k->up)
        return;
    k->up = up;
    if (up) {
        k->beat_us = now_us;
        k->up_us = now_us;
        if (now_us - k->down_us > HOST_GONE_S * US_PER_S / 2) /* all were forgotten, or nearly so */
            k->gathering_us = now_us + HOST_GONE_S * US_PER_S;
    } else {
        k->down_us = now_us;
        bool again = k->backoff_us > 0 && now_us - k->up_us < STEADY_US;
        k->backoff_us = again ? k->backoff_us * 2 : PROBE_MIN_US;
        if (k->backoff_us > PROBE_MAX_US)
            k->backoff_us = PROBE_MAX_US;
        k->probe_us = now_us + k->backoff_us;
    }
    tell_news(k, now_us);
}

/* ---- slices ---- */

static void lend_done(struct store_link *link, void *data, enum store_result how, const struct reply *reply)
{
    static const enum lend_result results[] = {
        [STORE_DECIDED] = LEND_ANSWERED,
        [STORE_FAILED] = LEND_FAILED,
        [STORE_LOST] = LEND_LOST,
        [STORE_UNSENT] = LEND_UNSENT,
    };
    struct store *store = link_store(link);
    struct lend_call *call = data;
    struct lent lent = { 0 };
    enum lend_result result = results[how];
    if (how == STORE_LOST)
        store_count(&store->counts.lost, 1);
    if (result == LEND_ANSWERED && call->kind == LEND_TAKE &&
        (reply->kind != REPLY_BULK || !script_read_lend(reply->text, &lent)))
        result = LEND_LOST;
    if (result == LEND_ANSWERED && lent.stale) /* whoever asks again is to ask for the right window */
        atomic_store(&store->offset_us, lent.server_us - clock_now_us());
    if (lender_answer(store->lender, call, result, &lent, clock_now_us()))
        store->nudge = true;
}

static const struct link_kind lend_kind = { .script = true, .done = lend_done };

static void send_lend(struct keeper *k, struct lend_call *call)
{
    struct store *store = k->store;
    struct buf *out = link_begin(k->link);
    if (call->kind == LEND_TAKE)
        script_write_lend(out, store->prefix, &call->ask, call->lacks, call->debt, store_hosts(store), 0);
    else
        script_write_return(out, store->prefix, &call->ask, call->end_us, call->tokens);
    if (link_end(k->link, &lend_kind, call, deadline_us(k)))
        store_count(&store->counts.calls, 1);
    else
        lender_answer(store->lender, call, LEND_UNSENT, NULL, clock_now_us());
}

static void run_lender(struct keeper *k)
{
    struct store *store = k->store;
    struct lender *lender = store->lender;
    struct lease_ask ask;
    int64_t now_us = clock_now_us();
    for (struct wanted *w = store_take_wanted(store), *next; w; w = next) {
        next = w->next;
        lender_ask(lender, &w->ask);
        free(w);
    }
    while (!store->options.visits && lease_next_ask(store->cells, &ask, clock_steady_us()))
        lender_ask(lender, &ask);
    for (struct lend_call *call; (call = lender_next(lender, now_us));)
        if (link_usable(k->link))
            send_lend(k, call);
        else
            lender_answer(lender, call, LEND_UNSENT, NULL, now_us);
    if (lender_dropped(lender))
        store_poke_all(store, LINK_NUDGE);
    struct lender_counts counts = lender_counts(lender);
    atomic_store(&store->counts.slices, counts.slices);
    atomic_store(&store->counts.lent, counts.lent);
    atomic_store(&store->counts.returned, counts.returned);
    atomic_store(&store->counts.held, counts.held);
    store_count(&store->counts.reconciled, counts.paid - k->paid);
    k->paid = counts.paid;
}

/* ---- what others have left here ---- */

static void send_posted(struct keeper *k)
{
    int64_t now_us = clock_steady_us();
    for (struct store_call *call = store_take_posted(k->store), *next; call; call = next) {
        next = call->next;
        if (call->deadline_us <= now_us)
            store_refuse(k->store, call);
        else
            store_send(k->link, call);
    }
}

static void forget_answered(struct store_link *link, void *data, enum store_result how, const struct reply *reply)
{
    bool good = how == STORE_DECIDED && reply->kind == REPLY_INTEGER && reply->integer >= 0;
    forget_done(link_store(link), data, good ? reply->integer : -1);
}

static const struct link_kind forget_kind = { .script = true, .done = forget_answered };

static void send_forgets(struct keeper *k)
{
    for (struct forget *f = store_take_forgets(k->store), *next; f; f = next) {
        next = f->next;
        if (link_usable(k->link)) {
            buf_add(link_begin(k->link), buf_sv(&f->command));
            if (link_end(k->link, &forget_kind, f, deadline_us(k)))
                continue;
        }
        forget_done(k->store, f, -1);
    }
}

/* ---- turns ---- */

static void do_what_is_due(struct keeper *k)
{
    int64_t now_us = clock_steady_us();
    notice_change(k, now_us);
    if (!k->up && !k->probing && link_connected(k->link) && k->probe_us <= now_us)
        probe(k, now_us);
    if (k->up && !k->beating && link_connected(k->link) && k->beat_us <= now_us) {
        beat(k);
        k->beat_us = now_us + BEAT_US;
    }
    if (k->sweep_us <= now_us) {
        lender_sweep(k->store->lender, store_up(k->store), clock_now_us());
        k->sweep_us = now_us + SWEEP_US;
    }
    if (k->news_us <= now_us)
        tell_news(k, now_us);
}

static void wait_for_work(struct keeper *k, int64_t most_us)
{
    uint64_t count;
    struct pollfd fds[] = { { .fd = k->store->wake_fd, .events = POLLIN },
                            { .fd = store_link_fd(k->link), .events = POLLIN } };
    int n = poll(fds, 2, most_us > 0 ? (int)((most_us + US_PER_MS - 1) / US_PER_MS) : 0);
    if (n > 0 && fds[0].revents && read(k->store->wake_fd, &count, sizeof count) < 0 && errno != EAGAIN)
        return;
    if (n > 0 && fds[1].revents)
        store_link_run(k->link);
    if (k->store->nudge)
        store_poke_all(k->store, LINK_NUDGE);
    k->store->nudge = false;
}

static int64_t until_due(const struct keeper *k)
{
    int64_t first_us = k->sweep_us < k->news_us ? k->sweep_us : k->news_us;
    if (!k->up && !k->probing && link_connected(k->link) && k->probe_us < first_us)
        first_us = k->probe_us;
    return first_us - clock_steady_us();
}

/* Slices are given back, as far as the store answers in time, and this host is no longer counted. */
static void take_leave(struct keeper *k)
{
    int64_t until_us = clock_steady_us() + CLOSE_US;
    lender_recall(k->store->lender, clock_now_us());
    if (k->id[0] && store_up(k->store) && link_connected(k->link))
        leave_hosts(k, until_us);
    do {
        run_lender(k);
        store_link_flush(k->link);
        if (link_in_flight(k->link) == 0)
            break;
        wait_for_work(k, until_us - clock_steady_us());
    } while (clock_steady_us() < until_us);
}

void *store_keeper_run(void *ptr)
{
    struct store *store = ptr;
    struct keeper k = { .store = store, .link = store->own };
    make_names(&k);
    k.down_us = clock_steady_us();
    while (!atomic_load(&store->stopping)) {
        send_posted(&k);
        send_forgets(&k);
        if (store_take_recall(store))
            lender_recall(store->lender, clock_now_us());
        do_what_is_due(&k);
        run_lender(&k);
        store_link_flush(k.link);
        wait_for_work(&k, until_due(&k));
    }
    take_leave(&k);
    send_posted(&k);
    send_forgets(&k);
    store_link_free(store->own); /* what it has not told yet is about k */
    store->own = NULL;
    return NULL;
}
