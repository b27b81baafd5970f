/* Links: the lanes to all nodes, and commands that a node of a cluster sends elsewhere. */
#include "redis/link.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/err.h"

#define PARK_MIN_US US_PER_MS /* doubled up to WAITS_MAX times */

/* A command follows so many MOVED and ASK at once, and then waits: nodes that do not agree may send it round and round. */
enum { MOVES_MAX = 5, WAITS_MAX = 5, EVENTS_MAX = 16, LANES_FIRST = 8 };

/* A command that no server has carried out, to be sent once more. */
struct parked {
    struct parked *next;
    struct command command;
    struct node *node; /* that had it last … */
    bool ill;          /* … and cannot do its work */
    int64_t at_us;     /* when it is sent */
    size_t len;
    char bytes[];
};

/* ---- lanes ---- */

static bool grow(struct store_link *link, unsigned number)
{
    unsigned max = link->lane_max ? link->lane_max : LANES_FIRST;
    while (max <= number)
        max *= 2;
    struct lane **lanes = calloc(max, sizeof(struct lane *));
    if (!lanes)
        return false;
    for (unsigned i = 0; i < link->lane_max; i++)
        lanes[i] = link->lanes[i];
    free(link->lanes);
    link->lanes = lanes;
    link->lane_max = max;
    return true;
}

static bool redirect(struct lane *lane, const struct command *command, sv bytes, sv error);

static struct lane *add_lane(struct store_link *link, struct node *node)
{
    struct lane *lane;
    if (link->shut || (node->number >= link->lane_max && !grow(link, node->number)) || lane_new(&lane, node, link) < 0)
        return NULL;
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = lane };
    if (link->store->map) {
        lane->redirect = redirect;
        epoll_ctl(link->epoll, EPOLL_CTL_ADD, lane->epoll, &event);
    }
    link->lanes[node->number] = lane;
    return lane;
}

struct lane *link_lane(struct store_link *link, struct node *node)
{
    struct lane *lane = node->number < link->lane_max ? link->lanes[node->number] : NULL;
    return lane ? lane : add_lane(link, node);
}

struct lane *link_lane_for(struct store_link *link, sv key, uint16_t *ret_place)
{
    struct store *store = link->store;
    *ret_place = store->map ? hash_slot(key) : PLACE_NONE;
    struct node *node = store->map ? map_node(store, *ret_place) : store->nodes[0];
    return node ? link_lane(link, node) : NULL;
}

bool link_is_busy(const struct store_link *link)
{
    bool busy = link->parked_count > 0;
    for (unsigned i = 0; i < link->lane_max && !busy; i++)
        busy = link->lanes[i] && link->lanes[i]->first != link->lanes[i]->end;
    return busy;
}

/* ---- commands that a node sends elsewhere ---- */

static bool is_one_of(sv code, const sv *codes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (sv_eq(code, codes[i]))
            return true;
    return false;
}

static int64_t until_us(const struct command *command)
{
    return command->until_us ? command->until_us : command->deadline_us + command->kind->patience_us;
}

/* The command, to be sent to another server or later. A new deadline if it is patient: the server that it goes to is not
 * the one that it has waited for. */
static struct command once_more(const struct store *store, const struct command *command)
{
    struct command again = *command;
    again.until_us = until_us(command);
    again.moves++;
    if (command->kind->patience_us > 0) {
        again.deadline_us = clock_steady_us() + store->options.deadline_ms * US_PER_MS;
        again.told_late = false;
    }
    return again;
}

/* It will be sent once more a little later: longer each time. */
static bool park(struct lane *lane, const struct command *command, sv bytes, bool ill)
{
    struct store_link *link = lane->link;
    if (link->parked_count == STORE_FLIGHT_MAX || link->parked_bytes + bytes.len > STORE_QUEUE_MAX || link->shut)
        return false;
    struct parked *p = malloc(sizeof *p + bytes.len);
    if (!p)
        return false;
    int64_t at_us = clock_steady_us() + (PARK_MIN_US << (command->waits < WAITS_MAX ? command->waits : WAITS_MAX));
    *p = (struct parked){ .command = *command,
                          .node = lane->node,
                          .ill = ill,
                          .at_us = at_us < until_us(command) ? at_us : until_us(command),
                          .len = bytes.len };
    p->command.until_us = until_us(command);
    p->command.waits += command->waits < UINT8_MAX;
    p->command.moves = 0;
    memcpy(p->bytes, bytes.ptr, bytes.len);
    *link->parked_end = p;
    link->parked_end = &p->next;
    link->parked_count++;
    link->parked_bytes += bytes.len;
    lane_wake_by(link->lanes[0], p->at_us);
    return true;
}

static void ignore(struct lane *lane, void *data, enum store_result how, const struct reply *reply)
{
    (void)lane, (void)data, (void)how, (void)reply;
}

static const struct lane_kind asking = { .done = ignore };

/* The key has left for `to`, which has yet to get all of its slot, and serves it to those who ask for it so. */
static bool follow_ask(struct node *to, struct lane *from, const struct command *command, sv bytes)
{
    struct lane *lane = to && to != from->node ? link_lane(from->link, to) : NULL;
    if (!lane || !lane_connected(lane) || !lane_usable(lane))
        return false;
    COMMAND_WRITE(lane_begin(lane), SV("ASKING"));
    if (!lane_end(lane, &asking, NULL, command->deadline_us))
        return false;
    if (lane_resend(lane, command, bytes))
        return true;
    lane_take_back(lane); /* it would be about the next command, whatever that is */
    return false;
}

/* Decisions about several keys are asked for again key by key: see decision_calls.c. */
static bool may_park(const struct command *command)
{
    return command->one_key || !command->kind->late;
}

/* Its slot is at another node, or some of its keys are. */
static bool go_elsewhere(struct lane *lane, const struct command *command, sv bytes, sv code, sv target)
{
    struct store *store = lane->store;
    struct command again = once_more(store, command);
    bool is_ask = sv_eq(code, SV("ASK")), at_once = command->moves < MOVES_MAX;
    struct node *to = map_read_target(lane->node, target, is_ask);
    if (is_ask) {
        map_set_moving(store, command->place);
        return (at_once && command->one_key && follow_ask(to, lane, &again, bytes)) ||
               (may_park(command) && park(lane, command, bytes, false));
    }
    map_outdated(store);
    if (to && to != lane->node) {
        map_set(store, command->place, to);
        struct lane *other = link_lane(lane->link, to);
        if (at_once && other && lane_usable(other) && lane_resend(other, &again, bytes))
            return true;
    }
    return park(lane, command, bytes, false);
}

/* Called for each error that a node answers, and for what was not sent. After an error that is handled here, nothing has
 * changed at the node. A decision whose caller was told that it is late is not sent again. */
static bool redirect(struct lane *lane, const struct command *command, sv bytes, sv error)
{
    static const sv ill[] = { SV("CLUSTERDOWN"), SV("READONLY"), SV("MASTERDOWN"), SV("LOADING") };
    sv rest = error, code = sv_cut(&rest, ' ');
    bool over = command->told_late && command->kind->late;
    if (command->place == PLACE_NONE || over || clock_steady_us() >= until_us(command))
        return false;
    if (error.len == 0)
        return command->kind->patience_us > 0 && park(lane, command, bytes, false);
    if (sv_eq(code, SV("MOVED")) || sv_eq(code, SV("ASK")))
        return go_elsewhere(lane, command, bytes, code, rest);
    if (sv_eq(code, SV("TRYAGAIN"))) {
        map_set_moving(lane->store, command->place);
        return may_park(command) && park(lane, command, bytes, false);
    }
    if (!is_one_of(code, ill, sizeof ill / sizeof *ill))
        return false;
    map_outdated(lane->store);
    return park(lane, command, bytes, true);
}

/* Sends it, or gives it up. */
static void unpark(struct store_link *link, struct parked *p, int64_t now_us)
{
    const struct command *command = &p->command;
    sv bytes = sv_of(p->bytes, p->len);
    struct node *node = map_node(link->store, command->place);
    struct lane *lane = node ? link_lane(link, node) : NULL, *last = link->lanes[p->node->number];
    bool over = link->shut || now_us >= until_us(command);
    struct command again = once_more(link->store, command);
    if (!over && lane && lane_usable(lane) && lane_resend(lane, &again, bytes))
        return;
    if (!over && command->kind->patience_us > 0 && park(last, command, bytes, p->ill))
        return;
    if (p->ill && !link->shut)
        node_failed(p->node, "it cannot do its work, or the cluster is down", command->decisions);
    command->kind->done(last, command->data, STORE_UNSENT, NULL);
}

/* Those that are due. Callbacks may park others. */
static void run_parked(struct store_link *link)
{
    int64_t now_us = link->parked ? clock_steady_us() : 0;
    struct parked *first = link->parked;
    link->parked = NULL;
    link->parked_end = &link->parked;
    for (struct parked *p = first, *next; p; p = next) {
        next = p->next;
        p->next = NULL;
        if (p->at_us > now_us && !link->shut) {
            *link->parked_end = p;
            link->parked_end = &p->next;
            continue;
        }
        link->parked_count--;
        link->parked_bytes -= p->len;
        unpark(link, p, now_us);
        free(p);
    }
    for (const struct parked *p = link->parked; p; p = p->next)
        lane_wake_by(link->lanes[0], p->at_us);
}

/* ---- turns ---- */

void link_run(struct store_link *link, void (*after)(struct lane *lane, bool due))
{
    struct epoll_event events[EVENTS_MAX];
    if (!link->store->map) {
        after(link->lanes[0], lane_run(link->lanes[0]));
        return;
    }
    int count = epoll_wait(link->epoll, events, EVENTS_MAX, 0);
    for (int i = 0; i < count; i++) {
        struct lane *lane = events[i].data.ptr;
        after(lane, lane_run(lane));
    }
    run_parked(link);
}

int store_link_fd(const struct store_link *link)
{
    return link->epoll;
}

void store_link_wake_at(struct store_link *link, int64_t steady_us)
{
    lane_wake_at(link->lanes[0], steady_us);
}

/* ---- making and freeing ---- */

void link_free(struct store_link *link)
{
    if (link->store->map && link->epoll >= 0)
        close(link->epoll);
    for (unsigned i = 0; i < link->lane_max; i++)
        if (link->lanes[i])
            lane_free(link->lanes[i]);
    free(link->lanes);
    free(link);
}

void link_shut(struct store_link *link)
{
    link->shut = true;
    for (unsigned i = 0; i < link->lane_max; i++)
        if (link->lanes[i])
            lane_shut(link->lanes[i]);
    run_parked(link);
}

/* The lane to the first node carries what concerns the link as a whole: `nudged`, and the timer. */
int store_link_new(struct store_link **ret, struct store *store, void (*nudged)(void *data), void *data)
{
    struct store_link *link = calloc(1, sizeof *link);
    if (!link)
        return WEIR_E_NO_MEMORY;
    link->store = store;
    link->parked_end = &link->parked;
    link->epoll = store->map ? epoll_create1(EPOLL_CLOEXEC) : -1;
    struct lane *first = store->map && link->epoll < 0 ? NULL : link_lane(link, store->nodes[0]);
    if (!first) {
        link_free(link);
        return WEIR_E_SYSTEM;
    }
    first->nudged = nudged;
    first->nudged_data = data;
    if (!store->map)
        link->epoll = first->epoll;
    *ret = link;
    return 0;
}
