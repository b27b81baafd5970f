#include "refused/top_history.h"

#include <stdlib.h>

static const int64_t step_us[TOP_STEPS] = { TOP_FINE_US, TOP_COARSE_US };
static const int64_t kept_us[TOP_STEPS] = { TOP_FINE_KEPT_US, TOP_COARSE_KEPT_US };

/* The list of a step that goes on. */
struct top_sum {
    int64_t start_us;
    struct top_list list; /* sorted, at most TOP_HISTORY_SUMMED */
};

struct top_history {
    int64_t next; /* number of the first window that was not added */
    struct top_sum sums[TOP_STEPS];
    struct top_store *stores[TOP_STEPS];
};

void top_history_free(struct top_history *history)
{
    if (!history)
        return;
    for (int i = 0; i < TOP_STEPS; i++) {
        top_list_done(&history->sums[i].list);
        top_store_free(history->stores[i]);
    }
    free(history);
}

int top_history_new(struct top_history **ret)
{
    struct top_history *h = calloc(1, sizeof *h);
    for (int i = 0; h && i < TOP_STEPS; i++)
        if (top_store_new(&h->stores[i], (size_t)(kept_us[i] / step_us[i]) + 1) < 0) {
            top_history_free(h);
            h = NULL;
        }
    *ret = h;
    return h ? 0 : WEIR_E_NO_MEMORY;
}

int top_history_put(struct top_history *history, enum top_step step, int64_t start_us, const struct top_list *list)
{
    return top_list_as_span(list, start_us, start_us + step_us[step], top_store_append, history->stores[step]);
}

int top_history_take_over(struct top_history *history, struct top_history *earlier)
{
    int result = 0;
    for (int i = 0; i < TOP_STEPS; i++) {
        int r = top_store_read(history->stores[i], 0, INT64_MAX, top_store_append, earlier->stores[i]);
        struct top_store *own = history->stores[i];
        history->stores[i] = earlier->stores[i];
        earlier->stores[i] = own;
        result = r < 0 ? r : result;
    }
    top_history_free(earlier);
    return result;
}

/* ---- adding ---- */

static int add_to_list(const struct top_span *span, void *list)
{
    return top_list_add_span(list, span);
}

bool top_history_due(const struct top_history *history, int64_t now_us, int64_t *ret)
{
    int64_t over = now_us / TOP_WINDOW_US - 1;
    *ret = over;
    /* A clock that was set back by more than a window starts again. */
    return over >= history->next || over < history->next - 2;
}

/* Ends the sum of a step if `start_us` belongs to another one. */
static int finish(struct top_history *h, enum top_step step, int64_t start_us)
{
    struct top_sum *sum = &h->sums[step];
    int r = 0;
    if (sum->start_us == start_us)
        return 0;
    if (sum->list.total > 0) {
        top_list_cut(&sum->list, TOP_HISTORY_LISTED);
        r = top_history_put(h, step, sum->start_us, &sum->list);
    }
    top_list_done(&sum->list);
    *sum = (struct top_sum){ .start_us = start_us };
    return r;
}

static int add_to_sum(struct top_sum *sum, const struct top_list *list)
{
    struct top_list both = { 0 };
    int r = top_list_as_span(&sum->list, 0, 0, add_to_list, &both);
    if (r == 0)
        r = top_list_as_span(list, 0, 0, add_to_list, &both);
    if (r < 0) {
        top_list_done(&both);
        return r;
    }
    top_list_sort(&both);
    top_list_cut(&both, TOP_HISTORY_SUMMED);
    top_list_done(&sum->list);
    sum->list = both;
    return 0;
}

int top_history_add(struct top_history *history, int64_t number, const struct top_list *list)
{
    int64_t start_us = number * TOP_WINDOW_US;
    int result = 0;
    history->next = number + 1;
    for (enum top_step i = 0; i < TOP_STEPS; i++) {
        int r = finish(history, i, start_us / step_us[i] * step_us[i]);
        if (r == 0 && list->total > 0)
            r = add_to_sum(&history->sums[i], list);
        result = r < 0 ? r : result;
    }
    return result;
}

/* ---- reading ---- */

static enum top_step step_for(int64_t from_us, int64_t now_us)
{
    return now_us - from_us <= TOP_FINE_KEPT_US ? TOP_FINE : TOP_COARSE;
}

int64_t top_history_start(int64_t from_us, int64_t now_us)
{
    int64_t length_us = step_us[step_for(from_us, now_us)];
    return from_us > 0 ? from_us / length_us * length_us : 0;
}

int top_history_read(struct top_history *history, int64_t from_us, int64_t now_us, struct top_list *list)
{
    enum top_step step = step_for(from_us, now_us);
    int64_t start_us = top_history_start(from_us, now_us);
    const struct top_sum *sum = &history->sums[step];
    int r = top_store_read(history->stores[step], start_us, now_us, add_to_list, list);
    if (r == 0 && sum->start_us >= start_us && sum->start_us <= now_us)
        r = top_list_as_span(&sum->list, sum->start_us, now_us, add_to_list, list);
    return r;
}
