/* The plans of the newest refused requests: a ring of fixed size for each thread. The list of recent refusals keeps no
 * headers, and a header often chooses the plan; without it nobody could say which limit refused. */
#ifndef SERVE_PLAN_NOTES_H
#define SERVE_PLAN_NOTES_H

#include "engine/handle.h"
#include "refused/recent.h"

struct plan_note {
    uint64_t number; /* of the refusal: see struct recent_refusal */
    uint64_t key;    /* of its subject */
    struct request_plan plan;
};

/* Used by one thread at a time. At most one note for each refusal, so that none is lost before its refusal is. */
struct plan_notes {
    uint64_t added;
    struct plan_note notes[RECENT_SLOTS];
};
void plan_notes_add(struct plan_notes *notes, struct weir *weir, const struct weir_request *request,
                    const struct recent_refusal *refusal);

/* The notes of some threads. */
struct plan_list {
    struct plan_note *notes; /* after plan_list_sort: by number */
    size_t count, cap;
};
int plan_list_reserve(struct plan_list *list); /* room for the notes of one more thread */
void plan_notes_collect(const struct plan_notes *notes, struct plan_list *list);
void plan_list_sort(struct plan_list *list);
void plan_list_done(struct plan_list *list);
/* Both return NULL if there is none. The list is sorted. */
const struct request_plan *plan_list_find(const struct plan_list *list, uint64_t number);
const struct request_plan *plan_list_newest(const struct plan_list *list, uint64_t key);

#endif
