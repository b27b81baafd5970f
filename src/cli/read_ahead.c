#include "cli/read_ahead.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/thread.h"

enum { BLOCKS = 4 };

struct read_ahead {
    pthread_t thread;
    struct input *input;
    const struct bound *bound;
    struct facts facts;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Blocks are used in turn. Of these numbers each thread changes one: block `n % BLOCKS` is the caller's while
     * taken_back
     * <= n < filled, else the reader's. */
    uint64_t filled, taken_back;
    bool stopping;

    uint64_t next; /* the caller: the block that it gets next … */
    bool ended;    /* … and whether it has had the last one */
    struct read_block blocks[BLOCKS];
};

/* ---- the reader ---- */

/* Waits until at most `most` blocks are the caller's. Returns false if nobody wants any more. */
static bool wait_for_caller(struct read_ahead *ahead, uint64_t most)
{
    pthread_mutex_lock(&ahead->lock);
    while (!ahead->stopping && ahead->filled - ahead->taken_back > most)
        pthread_cond_wait(&ahead->changed, &ahead->lock);
    bool wanted = !ahead->stopping;
    pthread_mutex_unlock(&ahead->lock);
    return wanted;
}

static void hand_over(struct read_ahead *ahead)
{
    pthread_mutex_lock(&ahead->lock);
    ahead->filled++;
    pthread_cond_signal(&ahead->changed);
    pthread_mutex_unlock(&ahead->lock);
}

/* Only here the thread may be cancelled: a read from a pipe may take any time, and nothing else is held meanwhile. */
static int next_line(struct input *input, char **ret_line, size_t *ret_len)
{
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    int more = input_next(input, ret_line, ret_len);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    return more;
}

/* Lines up to the end of the buffer, of the block's room or of the input. */
static void fill(struct read_ahead *ahead, struct read_block *block)
{
    struct input *input = ahead->input;
    char *line;
    size_t len;
    log_block_clear(&block->log);
    block->line = input->line;
    int more = next_line(input, &line, &len);
    while (more > 0) {
        block->line = input->line;
        if (!sv_blank(sv_of(line, len)))
            log_block_add(&block->log, ahead->bound, &ahead->facts, line, len, input->line);
        if (log_block_full(&block->log, ahead->bound) || !input_next_in_buffer(input, &line, &len))
            break;
    }
    block->ended = more <= 0;
    block->why = more < 0 ? input->why : NULL;
    block->failed_line = input->line;
    block->part = input_progress(input);
    /* Only the first line is read, so an end or an error leaves a block without lines. */
    if (!block->ended)
        input_exchange(input, &block->text);
}

/* While a block with a very long line is the caller's, nothing else is read: there is at most one of them. */
static void end_large(struct read_ahead *ahead, struct read_block *block)
{
    if (input_buffer_is_large(&block->text) && wait_for_caller(ahead, 0))
        input_buffer_shrink(&block->text);
}

static void *read_blocks(void *data)
{
    struct read_ahead *ahead = data;
    bool more = true;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    while (more && wait_for_caller(ahead, BLOCKS - 1)) {
        struct read_block *block = &ahead->blocks[ahead->filled % BLOCKS];
        fill(ahead, block);
        more = !block->ended;
        hand_over(ahead);
        if (more)
            end_large(ahead, block);
    }
    return NULL;
}

/* ---- the caller ---- */

static void ahead_free(struct read_ahead *ahead)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        input_buffer_done(&ahead->blocks[i].text);
        log_block_done(&ahead->blocks[i].log);
    }
    pthread_cond_destroy(&ahead->changed);
    pthread_mutex_destroy(&ahead->lock);
    free(ahead);
}

struct read_ahead *read_ahead_start(struct input *input, const struct bound *bound)
{
    struct read_ahead *ahead = calloc(1, sizeof *ahead);
    if (!ahead)
        return NULL;
    ahead->input = input;
    ahead->bound = bound;
    pthread_mutex_init(&ahead->lock, NULL);
    pthread_cond_init(&ahead->changed, NULL);
    bool good = true;
    for (size_t i = 0; good && i < BLOCKS; i++)
        good = input_buffer_init(&ahead->blocks[i].text) && log_block_init(&ahead->blocks[i].log, bound);
    if (good && thread_start(&ahead->thread, read_blocks, ahead) == 0)
        return ahead;
    ahead_free(ahead);
    return NULL;
}

struct read_block *read_ahead_next(struct read_ahead *ahead)
{
    pthread_mutex_lock(&ahead->lock);
    if (ahead->taken_back < ahead->next) {
        ahead->taken_back++;
        pthread_cond_signal(&ahead->changed);
    }
    while (ahead->filled == ahead->next)
        pthread_cond_wait(&ahead->changed, &ahead->lock);
    pthread_mutex_unlock(&ahead->lock);
    struct read_block *block = &ahead->blocks[ahead->next++ % BLOCKS];
    ahead->ended = block->ended;
    return block;
}

void read_ahead_stop(struct read_ahead *ahead)
{
    if (!ahead)
        return;
    pthread_mutex_lock(&ahead->lock);
    ahead->stopping = true;
    pthread_cond_signal(&ahead->changed);
    pthread_mutex_unlock(&ahead->lock);
    if (!ahead->ended)
        pthread_cancel(ahead->thread);
    pthread_join(ahead->thread, NULL);
    ahead_free(ahead);
}
