#include "redis/lane.h"

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

struct slot {
    struct command command;
    uint64_t at; /* where its bytes begin, see struct lane */
    uint32_t bytes;
};

/* ---- slots ---- */

static struct slot *slot_at(struct lane *lane, uint64_t number)
{
    return &lane->slots[number & (lane->slot_max - 1)];
}

/* The position after its last byte. */
static uint64_t slot_end(const struct slot *slot)
{
    return slot->at + slot->bytes;
}

static bool grow_slots(struct lane *lane)
{
    size_t max = lane->slot_max ? lane->slot_max * 2 : SLOTS_FIRST;
    struct slot *slots = calloc(max, sizeof *slots);
    if (!slots)
        return false;
    for (uint64_t i = lane->first; i < lane->end; i++)
        slots[i & (max - 1)] = *slot_at(lane, i);
    free(lane->slots);
    lane->slots = slots;
    lane->slot_max = max;
    return true;
}

/* Bytes before the first slot are not needed any more. They are cut off when there are as many as are left, so that each
 * byte is moved once at most. */
static void compact(struct lane *lane)
{
    size_t gone = lane->first == lane->end ? lane->out.len : (size_t)(slot_at(lane, lane->first)->at - lane->base);
    if (gone < lane->out.len && (gone < COMPACT_BYTES || gone < lane->out.len / 2))
        return;
    if (gone < lane->out.len)
        memmove(lane->out.ptr, lane->out.ptr + gone, lane->out.len - gone);
    lane->out.len -= gone;
    lane->base += gone;
}

static struct slot pop(struct lane *lane)
{
    struct slot slot = *slot_at(lane, lane->first++);
    if (lane->untold < lane->first)
        lane->untold = lane->first;
    compact(lane);
    return slot;
}

/* ---- the timer ---- */

/* Setting it also takes back that it went off. */
static void set_timer(struct lane *lane, int64_t at_us)
{
    struct itimerspec at = { .it_value = { at_us / US_PER_S, at_us % US_PER_S * 1000 } };
    timerfd_settime(lane->timer, TFD_TIMER_ABSTIME, &at, NULL);
    lane->timer_us = at_us;
}

/* A timer that is set to an earlier time stays: when it expires, the next deadline is looked up. */
void lane_wake_by(struct lane *lane, int64_t at_us)
{
    if (lane->timer_us == 0 || at_us < lane->timer_us)
        set_timer(lane, at_us);
}

void lane_wake_at(struct lane *lane, int64_t steady_us)
{
    lane->wake_us = steady_us;
    if (steady_us > 0)
        lane_wake_by(lane, steady_us);
}

/* ---- commands ---- */

bool lane_connected(const struct lane *lane)
{
    return lane->socket >= 0 && !lane->broken;
}

/* Without a connection calls wait for the one that is being made, unless the last attempt failed. The lane does not
 * remember an outage: when the store is back, calls wait again, and are not decided without a store that is up. */
bool lane_usable(const struct lane *lane)
{
    const struct node *node = lane->node;
    bool hopeless = lane->socket < 0 && atomic_load(&node->failing);
    return !lane->dropping && !lane->shut && !hopeless && node_takes_calls(node);
}

bool lane_gathers(const struct lane *lane)
{
    return lane->first < lane->end && lane->untold == lane->first && lane_connected(lane);
}

struct buf *lane_begin(struct lane *lane)
{
    lane->mark = lane->out.len;
    return &lane->out;
}

/* Puts what was written since lane_begin into a slot. */
static bool add_slot(struct lane *lane, struct command command)
{
    bool room = lane->end - lane->first < STORE_FLIGHT_MAX;
    if (room && lane->end - lane->first == lane->slot_max)
        room = grow_slots(lane);
    if (!room || lane->out.failed) {
        lane->out.len = lane->mark;
        lane->out.failed = false;
        return false;
    }
    *slot_at(lane, lane->end++) =
        (struct slot){ .command = command, .at = lane->base + lane->mark, .bytes = (uint32_t)(lane->out.len - lane->mark) };
    return true;
}

bool lane_end(struct lane *lane, const struct lane_kind *kind, void *data, int64_t deadline_us)
{
    struct command command = {
        .kind = kind, .data = data, .deadline_us = deadline_us, .decisions = 1, .place = PLACE_NONE
    };
    if (!add_slot(lane, command))
        return false;
    lane_wake_by(lane, deadline_us);
    return true;
}

struct command *lane_last(struct lane *lane)
{
    return &slot_at(lane, lane->end - 1)->command;
}

bool lane_resend(struct lane *lane, const struct command *command, sv bytes)
{
    buf_add(lane_begin(lane), bytes);
    if (!add_slot(lane, *command))
        return false;
    lane_wake_by(lane, command->deadline_us);
    return true;
}

void lane_take_back(struct lane *lane)
{
    lane->out.len = (size_t)(slot_at(lane, --lane->end)->at - lane->base);
}

/* ---- scripts that the store has forgotten ---- */

static void load_done(struct lane *lane, void *data, enum store_result how, const struct reply *reply)
{
    (void)data, (void)how, (void)reply;
    lane->loading = false;
}

static const struct lane_kind load = { .done = load_done };

static bool load_scripts(struct lane *lane)
{
    int64_t deadline_us = clock_steady_us() + LOAD_US;
    for (size_t i = 0; i < SCRIPTS; i++) {
        COMMAND_WRITE(lane_begin(lane), SV("SCRIPT"), SV("LOAD"), scripts[i].text);
        if (!lane_end(lane, &load, NULL, deadline_us))
            return false;
    }
    lane->loading = true;
    return true;
}

/* At the end of the queue, after the scripts. */
static bool send_again(struct lane *lane, struct command command, sv bytes)
{
    char *copy = malloc(bytes.len);
    if (!copy)
        return false;
    memcpy(copy, bytes.ptr, bytes.len);
    command.resent = true;
    bool sent = (lane->loading || load_scripts(lane)) && lane_resend(lane, &command, sv_of(copy, bytes.len));
    free(copy);
    return sent;
}

/* ---- answers ---- */

static void break_off(struct lane *lane, const char *why)
{
    lane->broken = true;
    snprintf(lane->why, sizeof lane->why, "%s", why);
}

/* Errors that are about the store and not about this call. */
static const struct {
    sv code;
    bool reconnect; /* another server, or another connection, may do better */
    bool moved;     /* in a cluster: the server does its work, but the slot is elsewhere */
} failures[] = {
    { SV("READONLY"), .reconnect = true },
    { SV("MASTERDOWN"), .reconnect = true },
    { SV("NOAUTH"), .reconnect = true },
    { SV("LOADING") },
    { SV("NOPERM") },
    { SV("BUSY") },
    { SV("OOM") },
    { SV("MISCONF") },
    { SV("NOREPLICAS") },
    { SV("CLUSTERDOWN") },
    { SV("NOSCRIPT") },
    { SV("TRYAGAIN"), .moved = true },
    { SV("MOVED"), .moved = true },
    { SV("ASK"), .moved = true },
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

/* A slot that is elsewhere is not a failure of commands without a slot, such as the beat, which is sent again later.
 * Decisions are asked for once more, and counted if that does not help: see decision_calls.c. */
static void judge_moved(struct lane *lane, const struct command *command)
{
    if (command->place != PLACE_NONE && !command->kind->late)
        store_count(&lane->store->counts.failed, command->decisions);
}

static void judge_error(struct lane *lane, const struct command *command, sv text)
{
    char why[128];
    sv rest = unwrap(text), code = sv_cut(&rest, ' ');
    size_t i = 0, count = sizeof failures / sizeof *failures;
    while (i < count && !sv_eq(code, failures[i].code))
        i++;
    if (i < count && failures[i].moved && lane->redirect) {
        judge_moved(lane, command);
        return;
    }
    store_count(&lane->store->counts.failed, command->decisions);
    if (i < count) {
        snprintf(why, sizeof why, "%.*s", SV_FMT(text));
        if (failures[i].reconnect)
            break_off(lane, why);
        node_failed(lane->node, why, command->decisions);
        return;
    }
    if (!command->told_late)
        breaker_worked(&lane->node->breaker);
    breaker_report_key(&lane->node->breaker, text);
}

/* Returns whether the command is sent once more, here or to another server: after an error, or since it was not sent (no
 * text). */
static bool goes_on(struct lane *lane, const struct slot *slot, sv error)
{
    sv bytes = sv_of(lane->out.ptr + (slot->at - lane->base), slot->bytes);
    if (slot->command.kind->script && !slot->command.resent && sv_starts(error, SV("NOSCRIPT")))
        return send_again(lane, slot->command, bytes);
    return lane->redirect && lane->redirect(lane, &slot->command, bytes, unwrap(error));
}

static void answer(struct lane *lane, const struct reply *reply)
{
    bool error = reply->kind == REPLY_ERROR;
    struct slot oldest = *slot_at(lane, lane->first);
    if (error && goes_on(lane, &oldest, reply->text)) {
        pop(lane);
        return;
    }
    struct command command = pop(lane).command;
    if (error)
        judge_error(lane, &command, reply->text);
    else if (!command.told_late)
        breaker_worked(&lane->node->breaker);
    command.kind->done(lane, command.data, error ? STORE_FAILED : STORE_DECIDED, reply);
}

static void take_answers(struct lane *lane)
{
    sv rest = sv_of(lane->in, lane->in_len);
    struct reply reply;
    while (rest.len > 0) {
        ssize_t n = reply_parse(rest, &reply);
        if (n == 0)
            break;
        if (n < 0 || lane->first == lane->end || slot_end(slot_at(lane, lane->first)) > lane->sent)
            return break_off(lane, "the server sent something that is not a reply of Redis, or that nobody asked for");
        rest = sv_from(rest, (size_t)n);
        answer(lane, &reply);
    }
    memmove(lane->in, rest.ptr, rest.len);
    lane->in_len = rest.len;
}

static bool make_room(struct lane *lane, size_t room)
{
    size_t max = lane->in_max ? lane->in_max : READ_BYTES;
    while (max - lane->in_len < room)
        max *= 2;
    if (max == lane->in_max)
        return true;
    char *in = max <= STORE_ANSWER_MAX ? realloc(lane->in, max) : NULL;
    if (!in)
        return false;
    lane->in = in;
    lane->in_max = max;
    return true;
}

static void read_failed(struct lane *lane, ssize_t n)
{
    if (n == 0)
        break_off(lane, "the server closed the connection");
    else if (errno != EAGAIN && errno != EINTR)
        break_off(lane, strerror(errno));
}

/* Returns whether there may be more: a read that does not fill the buffer has got all that there is. */
static bool read_plain(struct lane *lane)
{
    if (!make_room(lane, 1)) {
        break_off(lane, "an answer is too long");
        return false;
    }
    size_t room = lane->in_max - lane->in_len;
    ssize_t n = recv(lane->socket, lane->in + lane->in_len, room, 0);
    if (n <= 0) {
        read_failed(lane, n);
        return false;
    }
    lane->in_len += (size_t)n;
    take_answers(lane);
    return (size_t)n == room;
}

/* The same with TLS. Answers that came before the end of the connection count. */
static bool read_encrypted(struct lane *lane)
{
    char bytes[READ_BYTES];
    if (!make_room(lane, sizeof bytes + TLS_RECORD_MAX)) {
        break_off(lane, "an answer is too long");
        return false;
    }
    ssize_t n = recv(lane->socket, bytes, sizeof bytes, 0);
    if (n <= 0) {
        read_failed(lane, n);
        return false;
    }
    ptrdiff_t len = tls_decrypt(lane->tls, sv_of(bytes, (size_t)n), lane->in + lane->in_len, lane->in_max - lane->in_len);
    if (len < 0) {
        break_off(lane, tls_error(lane->tls));
        return false;
    }
    lane->in_len += (size_t)len;
    take_answers(lane);
    if (!lane->broken && tls_has_ended(lane->tls))
        break_off(lane, "the server closed the connection");
    return (size_t)n == sizeof bytes;
}

static void read_answers(struct lane *lane)
{
    bool more = true;
    while (more && !lane->broken)
        more = lane->tls ? read_encrypted(lane) : read_plain(lane);
    if (lane->tls && tls_output(lane->tls).len > 0)
        lane_flush(lane); /* TLS itself has something to say */
}

/* ---- connections ---- */

static void watch_socket(struct lane *lane, int how)
{
    struct epoll_event event = { .events = EPOLLIN | (lane->blocked ? EPOLLOUT : 0) };
    epoll_ctl(lane->epoll, how, lane->socket, &event);
}

/* Returns the number of bytes that the kernel accepted. Fewer than all: its buffer is full. Negative: the connection is
 * broken. */
static ssize_t send_some(struct lane *lane, sv bytes)
{
    ssize_t n = send(lane->socket, bytes.ptr, bytes.len, MSG_NOSIGNAL);
    if (n >= 0 || errno == EAGAIN || errno == EINTR)
        return n > 0 ? n : 0;
    /* Calls are answered in lane_run only. */
    break_off(lane, strerror(errno));
    lane_signal(&lane->inbox, LANE_UNREACHABLE);
    return -1;
}

/* The peer cannot use a part of a record: its commands are sent when all of it is, and not before. So a record is made when
 * the one before has left, and what TLS itself sends meanwhile comes after it. Returns whether nothing is left. */
static bool send_encrypted(struct lane *lane, sv rest)
{
    for (;;) {
        sv output = tls_output(lane->tls);
        if (lane->record == 0 && rest.len > 0) {
            lane->sealed = rest.len < RECORD_BYTES ? rest.len : RECORD_BYTES;
            if (!tls_encrypt(lane->tls, sv_of(rest.ptr, lane->sealed))) {
                break_off(lane, "out of memory for TLS");
                lane_signal(&lane->inbox, LANE_UNREACHABLE);
                return true;
            }
            output = tls_output(lane->tls);
            lane->record = output.len;
        }
        if (output.len == 0)
            return true;
        ssize_t n = send_some(lane, output);
        if (n < 0)
            return true;
        tls_sent(lane->tls, (size_t)n);
        lane->record -= (size_t)n < lane->record ? (size_t)n : lane->record;
        if (lane->record == 0) {
            rest = sv_from(rest, lane->sealed);
            lane->sent += lane->sealed;
            lane->sealed = 0;
        }
        if ((size_t)n < output.len)
            return false;
    }
}

static bool send_plain(struct lane *lane, sv rest)
{
    ssize_t n = rest.len > 0 ? send_some(lane, rest) : 0;
    lane->sent += n > 0 ? (uint64_t)n : 0;
    return n < 0 || (size_t)n == rest.len;
}

void lane_flush(struct lane *lane)
{
    sv rest = sv_from(buf_sv(&lane->out), (size_t)(lane->sent - lane->base));
    if (!lane_connected(lane) || (rest.len == 0 && !lane->tls))
        return;
    bool blocked = lane->tls ? !send_encrypted(lane, rest) : !send_plain(lane, rest);
    if (blocked != lane->blocked && !lane->broken) {
        lane->blocked = blocked;
        watch_socket(lane, EPOLL_CTL_MOD);
    }
}

/* Is it connected to another server than the one that answers now? */
static bool is_replaced(const struct lane *lane)
{
    HOLD_LOCK(&lane->store->lock);
    return lane->server != lane->node->server;
}

/* A node that has no slots any more still answers what it was sent. */
static bool is_over(const struct lane *lane)
{
    return lane_connected(lane) && lane->first == lane->end && !atomic_load(&lane->node->used);
}

/* Answers all commands that wait. One that was not sent completely cannot have been carried out. One that was lost is a
 * failure of the store, unless it was counted as one when it was late, or another server has taken its place meanwhile. */
static void refuse_all(struct lane *lane)
{
    bool current = !is_replaced(lane);
    lane->dropping = true;
    while (lane->first < lane->end) {
        struct slot slot = *slot_at(lane, lane->first);
        const struct command *command = &slot.command;
        bool lost = slot_end(&slot) <= lane->sent, goes = !lost && goes_on(lane, &slot, (sv){ 0 });
        bool untold = lost && !command->told_late;
        pop(lane);
        if (goes)
            continue;
        if (untold && current)
            node_failed(lane->node, "connections break", command->decisions);
        if (untold && command->kind->late)
            command->kind->late(command->data);
        command->kind->done(lane, command->data, lost ? STORE_LOST : STORE_UNSENT, NULL);
    }
    lane->sent = lane->base;
    lane->dropping = false;
}

static void ask_for_connection(struct lane *lane)
{
    HOLD_LOCK(&lane->store->lock);
    lane->inbox.wants_connection = true;
    pthread_cond_signal(&lane->store->connect);
}

static void disconnect(struct lane *lane)
{
    if (lane->socket >= 0) {
        epoll_ctl(lane->epoll, EPOLL_CTL_DEL, lane->socket, NULL);
        close(lane->socket);
        tls_free(STEAL(lane->tls));
        lane->socket = -1;
        if (atomic_fetch_sub(&lane->node->connected, 1) == 1)
            node_unreachable(lane->node, lane->why);
    }
    lane->in_len = lane->record = lane->sealed = 0;
    lane->broken = lane->blocked = lane->loading = false;
    refuse_all(lane);
}

static void take_connection(struct lane *lane)
{
    {
        HOLD_LOCK(&lane->store->lock);
        if (lane->inbox.fd < 0)
            return;
        lane->socket = lane->inbox.fd;
        lane->tls = STEAL(lane->inbox.tls);
        lane->server = lane->inbox.server;
        lane->inbox.fd = -1;
    }
    lane->sent = lane->base;
    watch_socket(lane, EPOLL_CTL_ADD);
}

/* ---- signals from other threads ---- */

/* The event is read before the signals, so that one that comes in between is noticed in the next turn. */
static unsigned take_signals(struct lane *lane)
{
    uint64_t count;
    if (atomic_load(&lane->inbox.signals) == 0 || read(lane->inbox.event, &count, sizeof count) < 0)
        return 0;
    return atomic_exchange(&lane->inbox.signals, 0);
}

static void handle_signals(struct lane *lane)
{
    unsigned signals = take_signals(lane);
    if (signals & LANE_CONNECTION)
        take_connection(lane);
    if ((signals & LANE_REPLACED) && lane_connected(lane) && is_replaced(lane))
        break_off(lane, "another server has taken its place");
    if ((signals & LANE_UNREACHABLE) && lane->socket < 0 && !lane_usable(lane))
        refuse_all(lane);
    if ((signals & LANE_SLICES) && lane->nudged)
        lane->nudged(lane->nudged_data);
}

/* ---- deadlines ---- */

static void tell_late(struct lane *lane, uint64_t number)
{
    struct command *command = &slot_at(lane, number)->command;
    const struct lane_kind *kind = command->kind;
    void *data = command->data;
    command->told_late = true;
    node_failed(lane->node, "the server does not answer in time", command->decisions);
    if (kind->late)
        kind->late(data);
}

/* Callbacks may add slots, and take none away. Returns when to look again. */
static int64_t check_deadlines(struct lane *lane, int64_t now_us)
{
    int64_t next_us = INT64_MAX;
    for (uint64_t i = lane->untold; i < lane->end; i++) {
        const struct command *command = &slot_at(lane, i)->command;
        if (command->told_late)
            continue;
        if (command->deadline_us <= now_us)
            tell_late(lane, i);
        else if (command->deadline_us < next_us)
            next_us = command->deadline_us;
    }
    while (lane->untold < lane->end && slot_at(lane, lane->untold)->command.told_late)
        lane->untold++;
    if (lane->first == lane->end)
        return next_us;
    int64_t overdue_us = slot_at(lane, lane->first)->command.deadline_us + lane->overdue_us;
    if (overdue_us <= now_us)
        break_off(lane, "an answer is overdue");
    return overdue_us < next_us ? overdue_us : next_us;
}

/* Without a connection: refuses all when the oldest has timed out. Returns when to look again. */
static int64_t check_queue(struct lane *lane, int64_t now_us)
{
    if (lane->first == lane->end)
        return INT64_MAX;
    int64_t deadline_us = slot_at(lane, lane->first)->command.deadline_us;
    if (deadline_us > now_us)
        return deadline_us;
    refuse_all(lane);
    return INT64_MAX;
}

/* It counts as not set meanwhile, so that callbacks set it for what they add. */
static void run_timer(struct lane *lane, int64_t now_us)
{
    lane->timer_us = 0;
    int64_t next_us = lane->socket < 0 ? check_queue(lane, now_us) : check_deadlines(lane, now_us);
    if (lane->wake_us > 0 && lane->wake_us <= now_us) {
        lane->wake_us = 0;
        if (lane->nudged)
            lane->nudged(lane->nudged_data);
    }
    if (lane->wake_us > 0 && lane->wake_us < next_us)
        next_us = lane->wake_us;
    if (next_us < now_us + TIMER_STEP_US)
        next_us = now_us + TIMER_STEP_US;
    if (next_us < INT64_MAX)
        lane_wake_by(lane, next_us);
    else if (lane->timer_us == 0)
        set_timer(lane, 0);
}

bool lane_run(struct lane *lane)
{
    handle_signals(lane);
    if (lane_connected(lane))
        read_answers(lane);
    int64_t now_us = lane->timer_us ? clock_steady_us() : 0;
    bool due = !lane->broken && lane->timer_us && lane->timer_us <= now_us;
    if (due)
        run_timer(lane, now_us);
    if (is_over(lane))
        break_off(lane, "the node has no slots any more");
    if (lane->broken) {
        disconnect(lane);
        ask_for_connection(lane);
    }
    return due;
}

/* ---- lanes ---- */

static int open_descriptors(struct lane *lane)
{
    struct epoll_event event = { .events = EPOLLIN };
    lane->epoll = epoll_create1(EPOLL_CLOEXEC);
    lane->inbox.event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    lane->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (lane->epoll < 0 || lane->inbox.event < 0 || lane->timer < 0 ||
        epoll_ctl(lane->epoll, EPOLL_CTL_ADD, lane->inbox.event, &event) < 0 ||
        epoll_ctl(lane->epoll, EPOLL_CTL_ADD, lane->timer, &event) < 0)
        return WEIR_E_SYSTEM;
    return 0;
}

void lane_free(struct lane *lane)
{
    int fds[] = { lane->epoll, lane->inbox.event, lane->timer };
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    buf_done(&lane->out);
    free(lane->slots);
    free(lane->in);
    free(lane);
}

static void join_list(struct lane *lane)
{
    struct store *store = lane->store;
    HOLD_LOCK(&store->lock);
    struct lane_inbox **at = &store->lanes; /* at the end: the first is connected first */
    while (*at)
        at = &(*at)->next;
    *at = &lane->inbox;
    lane->inbox.wants_connection = true;
    pthread_cond_signal(&store->connect);
}

int lane_new(struct lane **ret, struct node *node, struct store_link *link)
{
    struct lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return WEIR_E_NO_MEMORY;
    lane->store = node->store;
    lane->node = lane->inbox.node = node;
    lane->link = link;
    lane->socket = lane->inbox.fd = -1;
    lane->overdue_us = lane->store->address.kind >= REDIS_SENTINEL ? STORE_OVERDUE_MOVES_US : STORE_OVERDUE_US;
    buf_init(&lane->out, STORE_QUEUE_MAX);
    int r = open_descriptors(lane);
    if (r < 0) {
        lane_free(lane);
        return r;
    }
    join_list(lane);
    *ret = lane;
    return 0;
}

static void leave_list(struct lane *lane)
{
    HOLD_LOCK(&lane->store->lock);
    struct lane_inbox **at = &lane->store->lanes;
    while (*at != &lane->inbox)
        at = &(*at)->next;
    *at = lane->inbox.next;
}

void lane_shut(struct lane *lane)
{
    leave_list(lane);
    take_connection(lane);
    break_off(lane, "the link is closed");
    disconnect(lane);
    lane->shut = true;
}
