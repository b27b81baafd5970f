/* The store's own thread: calls of threads that block, slices, probes, and the beat, once a second. */
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
#define STATUS_US (200 * US_PER_MS)
#define CLOSE_US (200 * US_PER_MS)
#define PROBE_MIN_US (50 * US_PER_MS)
#define PROBE_MAX_US US_PER_S
#define STEADY_US US_PER_S /* a breaker that opens again sooner than this is probed less often */

enum { ID_MAX = 17, BORN_MAX = 64, KEY_MAX = SCRIPT_PREFIX_MAX + 16 };

struct store_thread {
    struct store *store;
    struct store_link *link;
    char hosts_key[KEY_MAX], born_key[KEY_MAX];
    char id[ID_MAX];                                /* of this host, among those that count */
    char born[BORN_MAX + 1];                        /* the mark of its data that was seen last; "": none */
    bool up;                                        /* as it was when last looked at */
    int64_t up_us;                                  /* since when it is */
    uint64_t server;                                /* that hosts were last counted in */
    unsigned known_hosts;                           /* fewer are not believed … */
    int64_t gathering_us;                           /* … until then */
    int64_t beat_us, sweep_us, status_us, probe_us; /* when each is due */
    int64_t backoff_us;
    int64_t asked_us, asked_now_us; /* when TIME was sent: steady, and this host's clock */
    int64_t probed_us;
    uint64_t paid;                             /* tokens that the lender had paid when it was last looked at */
    bool beating, probing;                     /* its answer is awaited */
    struct store_call *waiting, **waiting_end; /* settlements, for a connection */
    size_t waiting_count;
};

static int64_t deadline_us(const struct store_thread *t)
{
    return clock_steady_us() + t->store->options.deadline_ms * US_PER_MS;
}

/* ---- names in the store ---- */

static void make_names(struct store_thread *t)
{
    struct store *store = t->store;
    snprintf(t->hosts_key, KEY_MAX, "%.*s:%d:hosts", SV_FMT(store->prefix), SCRIPT_LAYOUT);
    snprintf(t->born_key, KEY_MAX, "%.*s:%d:born", SV_FMT(store->prefix), SCRIPT_LAYOUT);
}

/* ---- the beat ---- */

static void ignore(struct store_link *link, void *data, enum store_result how, const struct reply *reply)
{
    (void)link, (void)data, (void)how, (void)reply;
}

static const struct link_kind ignored = { .done = ignore };

#define SEND(t, kind, until_us, ...) \
    (COMMAND_WRITE(link_begin((t)->link), __VA_ARGS__), link_end((t)->link, kind, t, until_us))

static void time_done(struct store_link *link, void *data, enum store_result how, const struct reply *reply)
{
    struct store_thread *t = data;
    int64_t took_us = clock_steady_us() - t->asked_us, server_us;
    t->beating = false;
    /* An answer that was long on its way tells less than the one before. */
    if (how == STORE_DECIDED && took_us <= t->store->options.deadline_ms * US_PER_MS && reply_time(*reply, &server_us))
        atomic_store(&link->store->offset_us, server_us - (t->asked_now_us + took_us / 2));
}

static const struct link_kind time_kind = { .done = time_done };

/* The mark identifies the store's data: a different mark means different data. Each call makes a new one: a host that wrote
 * the same mark twice would not notice that it was gone in between. */
static bool send_mark(struct store_thread *t, const struct link_kind *kind, int64_t until_us)
{
    char mark[BORN_MAX + 1];
    uint64_t random[2] = { 0 };
    if (getrandom(random, sizeof random, GRND_NONBLOCK) < 0)
        random[0] = (uint64_t)clock_now_us();
    snprintf(mark, sizeof mark, "%016llx%016llx", (unsigned long long)random[0], (unsigned long long)random[1]);
    return SEND(t, kind, until_us, SV("SET"), weir_str(t->born_key), weir_str(mark), SV("NX"));
}

static void set_secret(struct store *store, sv mark)
{
    static const struct hash_key none = { 0, 0 };
    for (uint64_t i = 2; i-- > 0;) {
        struct hash h;
        hash_init(&h, &none);
        hash_word(&h, i);
        hash_text(&h, mark.ptr, mark.len);
        uint64_t word = hash_final(&h);
        atomic_store(&store->secret[i], word ? word : 1);
    }
}

/* After an outage, and in a store that was restarted or has lost its data, the other hosts have yet to come back: one that
 * took itself for the only one would let through all of each limit in the next outage. */
static void gather_hosts(struct store_thread *t)
{
    t->known_hosts = store_hosts(t->store);
    t->gathering_us = clock_steady_us() + HOST_GONE_S * US_PER_S;
}

static void born_done(struct store_link *link, void *data, enum store_result how, const struct reply *reply)
{
    struct store_thread *t = data;
    struct store *store = link->store;
    if (how != STORE_DECIDED || reply->kind != REPLY_BULK || reply->text.len > BORN_MAX)
        return;
    bool known = t->born[0] != '\0', same = sv_eq(reply->text, weir_str(t->born));
    snprintf(t->born, sizeof t->born, "%.*s", SV_FMT(reply->text));
    set_secret(store, reply->text);
    if (!known || same)
        return;
    gather_hosts(t);
    store_count(&store->counts.emptied, 1);
    breaker_tell(&store->breaker, WEIR_STORE_EMPTIED, "the store %s has lost its data: all counts in it begin anew",
                 store->address.shown);
}

static const struct link_kind born_kind = { .done = born_done };

static void hosts_done(struct store_link *link, void *data, enum store_result how, const struct reply *reply)
{
    struct store_thread *t = data;
    struct store *store = link->store;
    if (how != STORE_DECIDED || reply->kind != REPLY_INTEGER || reply->integer < 1 || reply->integer > UINT32_MAX ||
        store->options.hosts > 0)
        return;
    if (t->server != link->server)
        gather_hosts(t);
    t->server = link->server;
    unsigned hosts = (unsigned)reply->integer;
    bool gathering = clock_steady_us() < t->gathering_us;
    atomic_store(&store->hosts, gathering && hosts < t->known_hosts ? t->known_hosts : hosts);
}

static const struct link_kind hosts_kind = { .done = hosts_done };

static void leave_hosts(struct store_thread *t, int64_t until_us)
{
    SEND(t, &ignored, until_us, SV("ZREM"), weir_str(t->hosts_key), weir_str(t->id));
}

/* Processes that share a table of cells are one host, since they share its counts while the store is unreachable; that
 * includes containers, whose host names differ. Each beat reads the name again, so that the processes agree when the table
 * gets another identity. */
static void name_host(struct store_thread *t, int64_t until_us)
{
    char id[ID_MAX];
    snprintf(id, sizeof id, "%016llx", (unsigned long long)cells_host(t->store->cells));
    if (t->id[0] && strcmp(t->id, id) != 0)
        leave_hosts(t, until_us);
    memcpy(t->id, id, sizeof id);
}

static void beat(struct store_thread *t)
{
    int64_t until_us = deadline_us(t), least_us = clock_steady_us() + BEAT_ANSWER_US;
    if (until_us < least_us)
        until_us = least_us;
    char now[24], gone[24];
    t->asked_us = clock_steady_us();
    t->asked_now_us = clock_now_us();
    int64_t server_s = (t->asked_now_us + store_offset_us(t->store)) / US_PER_S;
    snprintf(now, sizeof now, "%lld", (long long)server_s);
    snprintf(gone, sizeof gone, "(%lld", (long long)server_s - HOST_GONE_S);
    sv hosts = weir_str(t->hosts_key);
    t->beating = SEND(t, &time_kind, until_us, SV("TIME"));
    if (!t->store->options.visits) {
        send_mark(t, &ignored, until_us);
        name_host(t, until_us);
        SEND(t, &ignored, until_us, SV("ZADD"), hosts, weir_str(now), weir_str(t->id));
        SEND(t, &ignored, until_us, SV("ZREMRANGEBYSCORE"), hosts, SV("-inf"), weir_str(gone));
        SEND(t, &ignored, until_us, SV("PEXPIRE"), hosts, SV(HOSTS_TTL_MS));
    }
    SEND(t, &born_kind, until_us, SV("GET"), weir_str(t->born_key));
    SEND(t, &hosts_kind, until_us, SV("ZCARD"), hosts);
}

/* ---- probes ---- */

static int64_t longer_backoff(int64_t backoff_us)
{
    return backoff_us * 2 < PROBE_MAX_US ? backoff_us * 2 : PROBE_MAX_US;
}

/* Only an answer that a decision could have waited for closes the breaker; after one that was late the next is sent at
 * once, since a server that was stopped goes on. */
static void probe_done(struct store_link *link, void *data, enum store_result how, const struct reply *reply)
{
    (void)reply;
    struct store_thread *t = data;
    int64_t now_us = clock_steady_us();
    t->probing = false;
    t->probe_us = now_us;
    if (how == STORE_DECIDED && now_us - t->probed_us <= t->store->options.deadline_ms * US_PER_MS)
        store_answers(link->store);
    else if (how != STORE_DECIDED) {
        t->backoff_us = longer_backoff(t->backoff_us);
        t->probe_us += t->backoff_us;
    }
}

static const struct link_kind probe_kind = { .done = probe_done };

/* A write, since a server that is full, or that cannot save, still answers to reads. */
static void probe(struct store_thread *t, int64_t now_us)
{
    t->probing = send_mark(t, &probe_kind, deadline_us(t));
    t->probed_us = now_us;
}

static void tell_status(struct store_thread *t, int64_t now_us)
{
    struct store *store = t->store;
    struct lender_status status = {
        .counters = true, .up = store_up(store), .hosts = store_hosts(store), .offset_us = store_offset_us(store)
    };
    if (!store->options.visits)
        lender_status_write(store->cells, &status, now_us);
    t->status_us = now_us + STATUS_US;
}

/* The breaker has opened or was closed since the last turn. */
static void notice_change(struct store_thread *t, int64_t now_us)
{
    bool up = store_up(t->store);
    if (up == t->up)
        return;
    t->up = up;
    if (up) {
        t->beat_us = now_us;
        t->up_us = now_us;
        gather_hosts(t);
    } else {
        bool again = t->backoff_us > 0 && now_us - t->up_us < STEADY_US;
        t->backoff_us = again ? longer_backoff(t->backoff_us) : PROBE_MIN_US;
        t->probe_us = now_us + t->backoff_us;
    }
    tell_status(t, now_us);
    answers_came(t->store->cells); /* threads that wait for slices can stop waiting, or ask */
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
    struct store *store = link->store;
    struct lend_call *call = data;
    struct lent lent = { 0 };
    enum lend_result result = results[how];
    if (how == STORE_LOST)
        store_count(&store->counts.lost, 1);
    if (result == LEND_ANSWERED && call->kind == LEND_TAKE &&
        (reply->kind != REPLY_BULK || !script_read_lend(reply->text, &lent)))
        result = LEND_LOST;
    if (result == LEND_ANSWERED && lent.stale) /* the next ask has to be for the right window */
        atomic_store(&store->offset_us, lent.server_us - clock_now_us());
    if (lender_answer(store->lender, call, result, &lent, clock_now_us()))
        store->slices_came = true;
}

static const struct link_kind lend_kind = { .script = true, .done = lend_done };

static void send_lend(struct store_thread *t, struct lend_call *call)
{
    struct store *store = t->store;
    struct buf *out = link_begin(t->link);
    if (call->kind == LEND_TAKE)
        script_write_lend(out, store->prefix, &call->ask, call->lacks, call->debt, store_hosts(store), 0);
    else
        script_write_return(out, store->prefix, &call->ask, call->end_us, call->tokens);
    if (link_end(t->link, &lend_kind, call, deadline_us(t)))
        store_count(&store->counts.calls, 1);
    else
        lender_answer(store->lender, call, LEND_UNSENT, NULL, clock_now_us());
}

static void run_lender(struct store_thread *t)
{
    struct store *store = t->store;
    struct lender *lender = store->lender;
    struct slice_ask ask;
    int64_t now_us = clock_now_us();
    while (!store->options.visits && ask_next(store->cells, &ask, clock_steady_us()))
        lender_ask(lender, &ask);
    for (struct lend_call *call; (call = lender_next(lender, now_us));)
        if (link_usable(t->link))
            send_lend(t, call);
        else
            lender_answer(lender, call, LEND_UNSENT, NULL, now_us);
    if (lender_dropped(lender))
        store_signal_all(store, LINK_SLICES);
    struct lender_counts counts = lender_counts(lender);
    atomic_store(&store->counts.slices, counts.slices);
    atomic_store(&store->counts.lent, counts.lent);
    atomic_store(&store->counts.returned, counts.returned);
    atomic_store(&store->counts.held, counts.held);
    store_count(&store->counts.reconciled, counts.paid - t->paid);
    t->paid = counts.paid;
}

/* ---- what others have left here ---- */

/* A settlement was accepted because the store is up: other links may have their connections, while this one has yet to get
 * or take its own. It waits for that until its deadline, in its order: nobody would send it again. */
static bool wait_for_connection(struct store_thread *t, struct store_call *call)
{
    if (!call->settle || link_connected(t->link) || t->waiting_count == STORE_POSTED_MAX)
        return false;
    call->next = NULL;
    *t->waiting_end = call;
    t->waiting_end = &call->next;
    t->waiting_count++;
    return true;
}

static struct store_call *take_waiting(struct store_thread *t)
{
    struct store_call *first = t->waiting;
    t->waiting = NULL;
    t->waiting_end = &t->waiting;
    t->waiting_count = 0;
    return first;
}

static void send_calls(struct store_thread *t, struct store_call *first)
{
    int64_t now_us = clock_steady_us();
    for (struct store_call *call = first, *next; call; call = next) {
        next = call->next;
        if (call->deadline_us <= now_us)
            store_refuse(t->store, call);
        else if (!wait_for_connection(t, call))
            store_send(t->link, call);
    }
}

static void forget_answered(struct store_link *link, void *data, enum store_result how, const struct reply *reply)
{
    bool good = how == STORE_DECIDED && reply->kind == REPLY_INTEGER && reply->integer >= 0;
    forget_done(link->store, data, good ? reply->integer : -1);
}

static const struct link_kind forget_kind = { .script = true, .done = forget_answered };

static void send_forgets(struct store_thread *t, struct forget *first)
{
    for (struct forget *f = first, *next; f; f = next) {
        next = f->next;
        if (link_usable(t->link)) {
            buf_add(link_begin(t->link), buf_sv(&f->command));
            if (link_end(t->link, &forget_kind, f, deadline_us(t)))
                continue;
        }
        forget_done(t->store, f, -1);
    }
}

/* Asks are sent before calls: a receipt of an overdrawn slice must not be settled before the ask that takes its debt along,
 * or the count would have nothing to give back from. */
static void empty_inbox(struct store_thread *t)
{
    struct store_inbox inbox = store_take_inbox(t->store);
    for (struct wanted *w = inbox.wanted, *next; w; w = next) {
        next = w->next;
        lender_ask(t->store->lender, &w->ask);
        free(w);
    }
    if (inbox.wanted_count > 0)
        run_lender(t);
    send_calls(t, take_waiting(t));
    send_calls(t, inbox.posted);
    send_forgets(t, inbox.forgets);
    if (inbox.recall)
        lender_recall(t->store->lender, clock_now_us());
}

/* ---- turns ---- */

static void run_due_work(struct store_thread *t)
{
    int64_t now_us = clock_steady_us();
    notice_change(t, now_us);
    if (!t->up && !t->probing && link_connected(t->link) && t->probe_us <= now_us)
        probe(t, now_us);
    if (t->up && !t->beating && link_connected(t->link) && t->beat_us <= now_us) {
        beat(t);
        t->beat_us = now_us + BEAT_US;
    }
    if (t->sweep_us <= now_us) {
        lender_sweep(t->store->lender, store_up(t->store), clock_now_us());
        t->sweep_us = now_us + SWEEP_US;
    }
    if (t->status_us <= now_us)
        tell_status(t, now_us);
}

static void wait_for_work(struct store_thread *t, int64_t most_us)
{
    uint64_t count;
    struct pollfd fds[] = { { .fd = t->store->wake_fd, .events = POLLIN },
                            { .fd = store_link_fd(t->link), .events = POLLIN } };
    int n = poll(fds, 2, most_us > 0 ? (int)((most_us + US_PER_MS - 1) / US_PER_MS) : 0);
    if (n > 0 && fds[0].revents && read(t->store->wake_fd, &count, sizeof count) < 0 && errno != EAGAIN)
        return;
    if (n > 0 && fds[1].revents)
        store_link_run(t->link);
    if (t->store->slices_came)
        store_signal_all(t->store, LINK_SLICES);
    t->store->slices_came = false;
}

static int64_t until_due(const struct store_thread *t)
{
    int64_t first_us = t->sweep_us < t->status_us ? t->sweep_us : t->status_us;
    if (!t->up && !t->probing && link_connected(t->link) && t->probe_us < first_us)
        first_us = t->probe_us;
    return first_us - clock_steady_us();
}

/* Slices are given back, as far as the store answers in time, and this host is no longer counted. */
static void take_leave(struct store_thread *t)
{
    int64_t until_us = clock_steady_us() + CLOSE_US;
    lender_recall(t->store->lender, clock_now_us());
    if (t->id[0] && store_up(t->store) && link_connected(t->link))
        leave_hosts(t, until_us);
    do {
        empty_inbox(t);
        run_lender(t);
        store_link_flush(t->link);
        if (t->link->first == t->link->end)
            break;
        wait_for_work(t, until_us - clock_steady_us());
    } while (clock_steady_us() < until_us);
}

void *store_thread_run(void *ptr)
{
    struct store *store = ptr;
    struct store_thread t = { .store = store, .link = store->own };
    make_names(&t);
    take_waiting(&t);
    while (!atomic_load(&store->stopping)) {
        empty_inbox(&t);
        run_due_work(&t);
        run_lender(&t);
        store_link_flush(t.link);
        wait_for_work(&t, until_due(&t));
    }
    take_leave(&t);
    empty_inbox(&t);
    for (struct store_call *call = take_waiting(&t), *next; call; call = next) {
        next = call->next;
        store_refuse(store, call);
    }
    store_link_free(store->own); /* it may still call back with t */
    store->own = NULL;
    return NULL;
}
