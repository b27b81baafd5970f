#include "redis/link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"

enum { READ_BYTES = 16 << 10, RECORD_BYTES = 16 << 10, SLOTS_FIRST = 64, COMPACT_BYTES = 4 << 10 };

#define TIMER_STEP_US US_PER_MS /* deadlines are looked at no more often than this */
#define LOAD_US US_PER_S        /* in which scripts should be loaded */

/* A command that was queued or sent, and has no answer yet. */
struct slot {
    const struct link_kind *kind;
    void *data;
    int64_t deadline_us;
    uint64_t at; /* where its bytes begin, see struct store_link */
    uint32_t bytes;
    unsigned decisions; /* that it is for, at least 1 */
    bool told_late, resent;
};

/* ---- slots ---- */

static struct slot *slot_at(struct store_link *link, uint64_t number)
{
    return &link->slots[number & (link->slot_max - 1)];
}

/* The position after its last byte. */
static uint64_t slot_end(const struct slot *slot)
{
    return slot->at + slot->bytes;
}

static bool grow_slots(struct store_link *link)
{
    size_t max = link->slot_max ? link->slot_max * 2 : SLOTS_FIRST;
    struct slot *slots = calloc(max, sizeof *slots);
    if (!slots)
        return false;
    for (uint64_t i = link->first; i < link->end; i++)
        slots[i & (max - 1)] = *slot_at(link, i);
    free(link->slots);
    link->slots = slots;
    link->slot_max = max;
    return true;
}

/* Bytes before the first slot are not needed any more. They are cut off when there are as many as are left, so that each
 * byte is moved once at most. */
static void compact(struct store_link *link)
{
    size_t gone = link->first == link->end ? link->out.len : (size_t)(slot_at(link, link->first)->at - link->base);
    if (gone < link->out.len && (gone < COMPACT_BYTES || gone < link->out.len / 2))
        return;
    if (gone < link->out.len)
        memmove(link->out.ptr, link->out.ptr + gone, link->out.len - gone);
    link->out.len -= gone;
    link->base += gone;
}

static struct slot pop(struct store_link *link)
{
    struct slot slot = *slot_at(link, link->first++);
    if (link->untold < link->first)
        link->untold = link->first;
    compact(link);
    return slot;
}

/* ---- the timer ---- */

/* Setting it also takes back that it went off. */
static void set_timer(struct store_link *link, int64_t at_us)
{
    struct itimerspec at = { .it_value = { at_us / US_PER_S, at_us % US_PER_S * 1000 } };
    timerfd_settime(link->timer, TFD_TIMER_ABSTIME, &at, NULL);
    link->timer_us = at_us;
}

/* A timer that is set to an earlier time stays: when it expires, the next deadline is looked up. */
void link_wake_by(struct store_link *link, int64_t at_us)
{
    if (link->timer_us == 0 || at_us < link->timer_us)
        set_timer(link, at_us);
}

void store_link_wake_at(struct store_link *link, int64_t steady_us)
{
    link->wake_us = steady_us;
    if (steady_us > 0)
        link_wake_by(link, steady_us);
}

/* ---- commands ---- */

bool link_connected(const struct store_link *link)
{
    return link->socket >= 0 && !link->broken;
}

/* Without a connection calls wait for the one that is being made, unless the last attempt failed. The link does not
 * remember an outage: when the store is back, calls wait again, and are not decided without a store that is up. */
bool link_usable(const struct store_link *link)
{
    const struct store *store = link->store;
    bool hopeless = link->socket < 0 && atomic_load(&store->failing);
    return !link->dropping && !link->shut && !hopeless && !breaker_is_open(&store->breaker);
}

bool link_gathers(const struct store_link *link)
{
    return link->first < link->end && link->untold == link->first && link_connected(link);
}

struct buf *link_begin(struct store_link *link)
{
    link->mark = link->out.len;
    return &link->out;
}

/* Puts what was written since link_begin into a slot. */
static bool add_slot(struct store_link *link, struct slot slot)
{
    bool room = link->end - link->first < STORE_FLIGHT_MAX;
    if (room && link->end - link->first == link->slot_max)
        room = grow_slots(link);
    if (!room || link->out.failed) {
        link->out.len = link->mark;
        link->out.failed = false;
        return false;
    }
    slot.at = link->base + link->mark;
    slot.bytes = (uint32_t)(link->out.len - link->mark);
    *slot_at(link, link->end++) = slot;
    return true;
}

bool link_end(struct store_link *link, const struct link_kind *kind, void *data, int64_t deadline_us)
{
    if (!add_slot(link, (struct slot){ .kind = kind, .data = data, .deadline_us = deadline_us, .decisions = 1 }))
        return false;
    link_wake_by(link, deadline_us);
    return true;
}

void link_set_decisions(struct store_link *link, unsigned decisions)
{
    slot_at(link, link->end - 1)->decisions = decisions;
}

/* ---- scripts that the store has forgotten ---- */

static void load_done(struct store_link *link, void *data, enum store_result how, const struct reply *reply)
{
    (void)data, (void)how, (void)reply;
    link->loading = false;
}

static const struct link_kind load = { .done = load_done };

static bool load_scripts(struct store_link *link)
{
    int64_t deadline_us = clock_steady_us() + LOAD_US;
    for (size_t i = 0; i < SCRIPTS; i++) {
        COMMAND_WRITE(link_begin(link), SV("SCRIPT"), SV("LOAD"), scripts[i].text);
        if (!link_end(link, &load, NULL, deadline_us))
            return false;
    }
    link->loading = true;
    return true;
}

/* At the end of the queue, after the scripts. */
static bool send_again(struct store_link *link, struct slot slot, sv bytes)
{
    char *copy = malloc(bytes.len);
    if (!copy)
        return false;
    memcpy(copy, bytes.ptr, bytes.len);
    bool sent = link->loading || load_scripts(link);
    if (sent) {
        buf_add(link_begin(link), sv_of(copy, bytes.len));
        slot.resent = true;
        sent = add_slot(link, slot);
    }
    free(copy);
    return sent;
}

/* ---- answers ---- */

static void break_off(struct store_link *link, const char *why)
{
    link->broken = true;
    snprintf(link->why, sizeof link->why, "%s", why);
}

/* Errors that are about the store and not about this call. */
static const struct {
    sv code;
    bool reconnect; /* another server, or another connection, may do better */
} failures[] = {
    { SV("READONLY"), true },    { SV("MASTERDOWN"), true },   { SV("NOAUTH"), true },    { SV("LOADING"), false },
    { SV("NOPERM"), false },     { SV("BUSY"), false },        { SV("OOM"), false },      { SV("MISCONF"), false },
    { SV("NOREPLICAS"), false }, { SV("CLUSTERDOWN"), false }, { SV("TRYAGAIN"), false }, { SV("NOSCRIPT"), false },
    { SV("MOVED"), false },
};

/* Redis 6 wraps what a command in a script says: "ERR Error running script (…): @user_script:1: -OOM …". */
static sv unwrap(sv text)
{
    if (!sv_starts(text, SV("ERR Error running script")))
        return text;
    for (size_t i = 0; i + 3 < text.len; i++)
        if (memcmp(text.ptr + i, ": -", 3) == 0)
            return sv_from(text, i + 3);
    return text;
}

static void judge_error(struct store_link *link, const struct slot *slot, sv text)
{
    char why[128];
    sv rest = unwrap(text), code = sv_cut(&rest, ' ');
    store_count(&link->store->counts.failed, slot->decisions);
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        if (!sv_eq(code, failures[i].code))
            continue;
        snprintf(why, sizeof why, "%.*s", SV_FMT(text));
        if (failures[i].reconnect)
            break_off(link, why);
        store_failed(link->store, why, slot->decisions);
        return;
    }
    if (!slot->told_late)
        breaker_worked(&link->store->breaker);
    breaker_report_key(&link->store->breaker, text);
}

static void answer(struct store_link *link, const struct reply *reply)
{
    const struct slot *oldest = slot_at(link, link->first);
    sv bytes = sv_of(link->out.ptr + (oldest->at - link->base), oldest->bytes);
    bool error = reply->kind == REPLY_ERROR;
    if (error && oldest->kind->script && !oldest->resent && sv_starts(reply->text, SV("NOSCRIPT"))) {
        struct slot slot = *oldest;
        if (send_again(link, slot, bytes)) {
            pop(link);
            return;
        }
    }
    struct slot slot = pop(link);
    if (error)
        judge_error(link, &slot, reply->text);
    else if (!slot.told_late)
        breaker_worked(&link->store->breaker);
    slot.kind->done(link, slot.data, error ? STORE_FAILED : STORE_DECIDED, reply);
}

static void take_answers(struct store_link *link)
{
    sv rest = sv_of(link->in, link->in_len);
    struct reply reply;
    while (rest.len > 0) {
        ssize_t n = reply_parse(rest, &reply);
        if (n == 0)
            break;
        if (n < 0 || link->first == link->end || slot_end(slot_at(link, link->first)) > link->sent)
            return break_off(link, "the server sent something that is not a reply of Redis, or that nobody asked for");
        rest = sv_from(rest, (size_t)n);
        answer(link, &reply);
    }
    memmove(link->in, rest.ptr, rest.len);
    link->in_len = rest.len;
}

static bool make_room(struct store_link *link, size_t room)
{
    size_t max = link->in_max ? link->in_max : READ_BYTES;
    while (max - link->in_len < room)
        max *= 2;
    if (max == link->in_max)
        return true;
    char *in = max <= STORE_ANSWER_MAX ? realloc(link->in, max) : NULL;
    if (!in)
        return false;
    link->in = in;
    link->in_max = max;
    return true;
}

static void read_failed(struct store_link *link, ssize_t n)
{
    if (n == 0)
        break_off(link, "the server closed the connection");
    else if (errno != EAGAIN && errno != EINTR)
        break_off(link, strerror(errno));
}

/* Returns whether there may be more: a read that does not fill the buffer has got all that there is. */
static bool read_plain(struct store_link *link)
{
    if (!make_room(link, 1)) {
        break_off(link, "an answer is too long");
        return false;
    }
    size_t room = link->in_max - link->in_len;
    ssize_t n = recv(link->socket, link->in + link->in_len, room, 0);
    if (n <= 0) {
        read_failed(link, n);
        return false;
    }
    link->in_len += (size_t)n;
    take_answers(link);
    return (size_t)n == room;
}

/* The same with TLS. Answers that came before the end of the connection count. */
static bool read_encrypted(struct store_link *link)
{
    char bytes[READ_BYTES];
    if (!make_room(link, sizeof bytes + TLS_RECORD_MAX)) {
        break_off(link, "an answer is too long");
        return false;
    }
    ssize_t n = recv(link->socket, bytes, sizeof bytes, 0);
    if (n <= 0) {
        read_failed(link, n);
        return false;
    }
    ptrdiff_t len = tls_decrypt(link->tls, sv_of(bytes, (size_t)n), link->in + link->in_len, link->in_max - link->in_len);
    if (len < 0) {
        break_off(link, tls_error(link->tls));
        return false;
    }
    link->in_len += (size_t)len;
    take_answers(link);
    if (!link->broken && tls_has_ended(link->tls))
        break_off(link, "the server closed the connection");
    return (size_t)n == sizeof bytes;
}

static void read_answers(struct store_link *link)
{
    bool more = true;
    while (more && !link->broken)
        more = link->tls ? read_encrypted(link) : read_plain(link);
    if (link->tls && tls_output(link->tls).len > 0)
        link_flush(link); /* TLS itself has something to say */
}

/* ---- connections ---- */

static void watch_socket(struct store_link *link, int how)
{
    struct epoll_event event = { .events = EPOLLIN | (link->blocked ? EPOLLOUT : 0) };
    epoll_ctl(link->epoll, how, link->socket, &event);
}

/* Returns how much of it the system took; less than all: it takes no more for now. Negative: the connection is broken. */
static ssize_t send_some(struct store_link *link, sv bytes)
{
    ssize_t n = send(link->socket, bytes.ptr, bytes.len, MSG_NOSIGNAL);
    if (n >= 0 || errno == EAGAIN || errno == EINTR)
        return n > 0 ? n : 0;
    /* Calls are answered in store_link_run only. */
    break_off(link, strerror(errno));
    link_signal(&link->inbox, LINK_UNREACHABLE);
    return -1;
}

/* The peer cannot use a part of a record: its commands are sent when all of it is, and not before. So a record is made when
 * the one before has left, and what TLS itself sends meanwhile comes after it. Returns whether nothing is left. */
static bool send_encrypted(struct store_link *link, sv rest)
{
    for (;;) {
        sv output = tls_output(link->tls);
        if (link->record == 0 && rest.len > 0) {
            link->sealed = rest.len < RECORD_BYTES ? rest.len : RECORD_BYTES;
            if (!tls_encrypt(link->tls, sv_of(rest.ptr, link->sealed))) {
                break_off(link, "out of memory for TLS");
                link_signal(&link->inbox, LINK_UNREACHABLE);
                return true;
            }
            output = tls_output(link->tls);
            link->record = output.len;
        }
        if (output.len == 0)
            return true;
        ssize_t n = send_some(link, output);
        if (n < 0)
            return true;
        tls_sent(link->tls, (size_t)n);
        link->record -= (size_t)n < link->record ? (size_t)n : link->record;
        if (link->record == 0) {
            rest = sv_from(rest, link->sealed);
            link->sent += link->sealed;
            link->sealed = 0;
        }
        if ((size_t)n < output.len)
            return false;
    }
}

static bool send_plain(struct store_link *link, sv rest)
{
    ssize_t n = rest.len > 0 ? send_some(link, rest) : 0;
    link->sent += n > 0 ? (uint64_t)n : 0;
    return n < 0 || (size_t)n == rest.len;
}

void link_flush(struct store_link *link)
{
    sv rest = sv_from(buf_sv(&link->out), (size_t)(link->sent - link->base));
    if (!link_connected(link) || (rest.len == 0 && !link->tls))
        return;
    bool blocked = link->tls ? !send_encrypted(link, rest) : !send_plain(link, rest);
    if (blocked != link->blocked && !link->broken) {
        link->blocked = blocked;
        watch_socket(link, EPOLL_CTL_MOD);
    }
}

/* Is it connected to the server that answers now? */
static bool is_current(const struct store_link *link)
{
    HOLD_LOCK(&link->store->lock);
    return link->server == link->store->server;
}

/* Answers all commands that wait. One that was not sent completely cannot have been carried out. One that was lost is a
 * failure of the store, unless it was counted as one when it was late, or another server has taken its place meanwhile. */
static void refuse_all(struct store_link *link)
{
    bool current = is_current(link);
    link->dropping = true;
    while (link->first < link->end) {
        struct slot slot = pop(link);
        bool lost = slot_end(&slot) <= link->sent;
        bool untold = lost && !slot.told_late;
        if (untold && current)
            store_failed(link->store, "connections break", slot.decisions);
        if (untold && slot.kind->late)
            slot.kind->late(slot.data);
        slot.kind->done(link, slot.data, lost ? STORE_LOST : STORE_UNSENT, NULL);
    }
    link->sent = link->base;
    link->dropping = false;
}

static void ask_for_connection(struct store_link *link)
{
    HOLD_LOCK(&link->store->lock);
    link->inbox.wants_connection = true;
    pthread_cond_signal(&link->store->connect);
}

static void disconnect(struct store_link *link)
{
    struct store *store = link->store;
    if (link->socket >= 0) {
        epoll_ctl(link->epoll, EPOLL_CTL_DEL, link->socket, NULL);
        close(link->socket);
        tls_free(STEAL(link->tls));
        link->socket = -1;
        if (atomic_fetch_sub(&store->connected, 1) == 1)
            store_unreachable(store, link->why);
    }
    link->in_len = link->record = link->sealed = 0;
    link->broken = link->blocked = link->loading = false;
    refuse_all(link);
}

static void take_connection(struct store_link *link)
{
    {
        HOLD_LOCK(&link->store->lock);
        if (link->inbox.fd < 0)
            return;
        link->socket = link->inbox.fd;
        link->tls = STEAL(link->inbox.tls);
        link->server = link->inbox.server;
        link->inbox.fd = -1;
    }
    link->sent = link->base;
    watch_socket(link, EPOLL_CTL_ADD);
}

/* ---- signals from other threads ---- */

/* The event is read before the signals, so that one that comes in between is noticed in the next turn. */
static unsigned take_signals(struct store_link *link)
{
    uint64_t count;
    if (atomic_load(&link->inbox.signals) == 0 || read(link->inbox.event, &count, sizeof count) < 0)
        return 0;
    return atomic_exchange(&link->inbox.signals, 0);
}

static void handle_signals(struct store_link *link)
{
    unsigned signals = take_signals(link);
    if (signals & LINK_CONNECTION)
        take_connection(link);
    if ((signals & LINK_REPLACED) && link_connected(link) && !is_current(link))
        break_off(link, "another server has taken its place");
    if ((signals & LINK_UNREACHABLE) && link->socket < 0 && !link_usable(link))
        refuse_all(link);
    if ((signals & LINK_SLICES) && link->nudged)
        link->nudged(link->nudged_data);
}

/* ---- deadlines ---- */

static void tell_late(struct store_link *link, uint64_t number)
{
    struct slot *slot = slot_at(link, number);
    const struct link_kind *kind = slot->kind;
    void *data = slot->data;
    slot->told_late = true;
    store_failed(link->store, "the server does not answer in time", slot->decisions);
    if (kind->late)
        kind->late(data);
}

/* Callbacks may add slots, and take none away. Returns when to look again. */
static int64_t check_deadlines(struct store_link *link, int64_t now_us)
{
    int64_t next_us = INT64_MAX;
    for (uint64_t i = link->untold; i < link->end; i++) {
        struct slot *slot = slot_at(link, i);
        if (slot->told_late)
            continue;
        if (slot->deadline_us <= now_us)
            tell_late(link, i);
        else if (slot->deadline_us < next_us)
            next_us = slot->deadline_us;
    }
    while (link->untold < link->end && slot_at(link, link->untold)->told_late)
        link->untold++;
    if (link->first == link->end)
        return next_us;
    int64_t overdue_us = slot_at(link, link->first)->deadline_us + link->overdue_us;
    if (overdue_us <= now_us)
        break_off(link, "an answer is overdue");
    return overdue_us < next_us ? overdue_us : next_us;
}

/* Without a connection: refuses all when the oldest has timed out. Returns when to look again. */
static int64_t check_queue(struct store_link *link, int64_t now_us)
{
    if (link->first == link->end)
        return INT64_MAX;
    int64_t deadline_us = slot_at(link, link->first)->deadline_us;
    if (deadline_us > now_us)
        return deadline_us;
    refuse_all(link);
    return INT64_MAX;
}

/* It counts as not set meanwhile, so that callbacks set it for what they add. */
static void run_timer(struct store_link *link, int64_t now_us)
{
    link->timer_us = 0;
    int64_t next_us = link->socket < 0 ? check_queue(link, now_us) : check_deadlines(link, now_us);
    if (link->wake_us > 0 && link->wake_us <= now_us) {
        link->wake_us = 0;
        if (link->nudged)
            link->nudged(link->nudged_data);
    }
    if (link->wake_us > 0 && link->wake_us < next_us)
        next_us = link->wake_us;
    if (next_us < now_us + TIMER_STEP_US)
        next_us = now_us + TIMER_STEP_US;
    if (next_us < INT64_MAX)
        link_wake_by(link, next_us);
    else if (link->timer_us == 0)
        set_timer(link, 0);
}

bool link_run(struct store_link *link)
{
    handle_signals(link);
    if (link_connected(link))
        read_answers(link);
    int64_t now_us = link->timer_us ? clock_steady_us() : 0;
    bool due = !link->broken && link->timer_us && link->timer_us <= now_us;
    if (due)
        run_timer(link, now_us);
    if (link->broken) {
        disconnect(link);
        ask_for_connection(link);
    }
    return due;
}

/* ---- links ---- */

static int open_descriptors(struct store_link *link)
{
    struct epoll_event event = { .events = EPOLLIN };
    link->epoll = epoll_create1(EPOLL_CLOEXEC);
    link->inbox.event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    link->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (link->epoll < 0 || link->inbox.event < 0 || link->timer < 0 ||
        epoll_ctl(link->epoll, EPOLL_CTL_ADD, link->inbox.event, &event) < 0 ||
        epoll_ctl(link->epoll, EPOLL_CTL_ADD, link->timer, &event) < 0)
        return WEIR_E_SYSTEM;
    return 0;
}

void link_free(struct store_link *link)
{
    int fds[] = { link->epoll, link->inbox.event, link->timer };
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    buf_done(&link->out);
    free(link->slots);
    free(link->in);
    free(link);
}

int store_link_new(struct store_link **ret, struct store *store, void (*nudged)(void *data), void *data)
{
    struct store_link *link = calloc(1, sizeof *link);
    if (!link)
        return WEIR_E_NO_MEMORY;
    link->store = store;
    link->nudged = nudged;
    link->nudged_data = data;
    link->socket = link->inbox.fd = -1;
    link->overdue_us = store->address.kind == REDIS_SENTINEL ? STORE_OVERDUE_SENTINEL_US : STORE_OVERDUE_US;
    buf_init(&link->out, STORE_QUEUE_MAX);
    int r = open_descriptors(link);
    if (r < 0) {
        link_free(link);
        return r;
    }
    HOLD_LOCK(&store->lock);
    struct link_inbox **at = &store->links; /* at the end: the first is connected first */
    while (*at)
        at = &(*at)->next;
    *at = &link->inbox;
    link->inbox.wants_connection = true;
    pthread_cond_signal(&store->connect);
    *ret = link;
    return 0;
}

static void leave_list(struct store_link *link)
{
    HOLD_LOCK(&link->store->lock);
    struct link_inbox **at = &link->store->links;
    while (*at != &link->inbox)
        at = &(*at)->next;
    *at = link->inbox.next;
}

void link_shut(struct store_link *link)
{
    leave_list(link);
    take_connection(link);
    break_off(link, "the link is closed");
    disconnect(link);
    link->shut = true;
}

int store_link_fd(const struct store_link *link)
{
    return link->epoll;
}
