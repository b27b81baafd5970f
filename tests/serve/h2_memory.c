/* The memory of sessions: random pieces that are taken, resized and given back. What is in a piece stays there until its
 * owner gives it back. */
#include "serve/h2_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PIECES = 500, STEPS = 100000, BYTES_MAX = 3000 };

struct owned {
    unsigned char *ptr;
    size_t bytes;
    unsigned char mark;
};

static void expect_all(const unsigned char *bytes, size_t count, unsigned char mark)
{
    for (size_t i = 0; i < count; i++)
        assert_int_equal(bytes[i], mark);
}

static void fill(struct owned *piece, unsigned char mark)
{
    piece->mark = mark;
    memset(piece->ptr, mark, piece->bytes);
}

static void give_back(nghttp2_mem *calls, struct owned *piece)
{
    expect_all(piece->ptr, piece->bytes, piece->mark);
    calls->free(piece->ptr, calls->mem_user_data);
    *piece = (struct owned){ 0 };
}

static void take(nghttp2_mem *calls, struct owned *piece, size_t bytes, unsigned short state[3])
{
    bool zeros = nrand48(state) % 2;
    piece->bytes = bytes;
    piece->ptr = zeros ? calls->calloc(1, bytes, calls->mem_user_data) : calls->malloc(bytes, calls->mem_user_data);
    assert_non_null(piece->ptr);
    assert_int_equal((uintptr_t)piece->ptr % _Alignof(max_align_t), 0);
    if (zeros)
        expect_all(piece->ptr, bytes, 0);
}

static void resize(nghttp2_mem *calls, struct owned *piece, size_t bytes)
{
    size_t kept = bytes < piece->bytes ? bytes : piece->bytes;
    piece->ptr = calls->realloc(piece->ptr, bytes, calls->mem_user_data);
    assert_non_null(piece->ptr);
    expect_all(piece->ptr, kept, piece->mark);
    piece->bytes = bytes;
}

static void test_random_pieces(void **state)
{
    (void)state;
    struct h2_memory memory;
    h2_memory_init(&memory);
    nghttp2_mem *calls = &memory.calls; /* under a sanitizer, too */
    struct owned pieces[PIECES] = { 0 };
    unsigned short random[3] = { 1, 2, 3 };
    for (int i = 0; i < STEPS; i++) {
        struct owned *piece = &pieces[nrand48(random) % PIECES];
        size_t bytes = (size_t)nrand48(random) % (nrand48(random) % 4 ? 200 : BYTES_MAX);
        if (piece->ptr && nrand48(random) % 2) {
            give_back(calls, piece);
            continue;
        }
        if (piece->ptr)
            resize(calls, piece, bytes);
        else
            take(calls, piece, bytes, random);
        fill(piece, (unsigned char)(1 + i % 255));
        assert_true(memory.kept_bytes <= H2_MEMORY_KEPT);
    }
    for (int i = 0; i < PIECES; i++)
        if (pieces[i].ptr)
            give_back(calls, &pieces[i]);
    h2_memory_done(&memory);
    assert_int_equal(memory.kept_bytes, 0);
}

/* A flood leaves no more behind than the bound. */
static void test_bound(void **state)
{
    (void)state;
    enum { MANY = 4 * H2_MEMORY_KEPT / 1000 };
    struct h2_memory memory;
    h2_memory_init(&memory);
    nghttp2_mem *calls = &memory.calls;
    void **all = calloc(MANY, sizeof *all);
    assert_non_null(all);
    for (int i = 0; i < MANY; i++)
        assert_non_null(all[i] = calls->malloc(1000, calls->mem_user_data));
    for (int i = 0; i < MANY; i++)
        calls->free(all[i], calls->mem_user_data);
    assert_in_range(memory.kept_bytes, H2_MEMORY_KEPT / 2, H2_MEMORY_KEPT);
    free(all);
    h2_memory_done(&memory);
}

static void test_edges(void **state)
{
    (void)state;
    struct h2_memory memory;
    h2_memory_init(&memory);
    nghttp2_mem *calls = &memory.calls;
    assert_null(calls->malloc(SIZE_MAX, calls->mem_user_data));
    assert_null(calls->malloc(SIZE_MAX - 8, calls->mem_user_data));
    assert_null(calls->calloc(SIZE_MAX / 2, 3, calls->mem_user_data));
    calls->free(NULL, calls->mem_user_data);
    struct owned piece = { calls->realloc(NULL, 10, calls->mem_user_data), 10, 0 };
    assert_non_null(piece.ptr);
    fill(&piece, 7);
    assert_null(calls->realloc(piece.ptr, SIZE_MAX, calls->mem_user_data)); /* and it is still there */
    give_back(calls, &piece);
    h2_memory_done(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_pieces),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
