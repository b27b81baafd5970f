/* Memory that is freed all at once: pieces do not overlap, and some are given back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../limit/random.h"
#include "base/arena.h"

enum { PIECES = 3000 };

struct piece {
    unsigned char *at;
    size_t size;
};

static void fill(const struct piece *piece, size_t number)
{
    memset(piece->at, (int)(number * 7 % 251), piece->size);
}

static void expect_filled(const struct piece *piece, size_t number)
{
    for (size_t i = 0; i < piece->size; i++)
        assert_int_equal(piece->at[i], number * 7 % 251);
}

static struct piece any_piece(struct arena *a, struct random *random)
{
    struct piece piece = { .size = (size_t)random_in(random, 0, random_one_in(random, 50) ? 40000 : 200) };
    if (random_one_in(random, 2)) {
        piece.at = (unsigned char *)arena_text(a, piece.size);
    } else {
        piece.at = arena_alloc(a, piece.size);
        assert_int_equal((uintptr_t)piece.at % 8, 0);
        for (size_t i = 0; piece.at && i < piece.size; i++)
            assert_int_equal(piece.at[i], 0);
    }
    assert_non_null(piece.at);
    return piece;
}

static void pieces_are_apart(void **state)
{
    (void)state;
    struct random random = { random_seed() };
    struct arena a = { 0 };
    static struct piece pieces[PIECES];
    for (size_t i = 0; i < PIECES; i++) {
        pieces[i] = any_piece(&a, &random);
        fill(&pieces[i], i);
    }
    for (size_t i = 0; i < PIECES; i++)
        expect_filled(&pieces[i], i);
    arena_done(&a);
    arena_done(&a);
    arena_done(NULL);
}

/* What came before a mark stays, and the place after it is used again. */
static void what_came_after_a_mark_is_given_back(void **state)
{
    (void)state;
    struct random random = { random_seed() };
    struct arena a = { 0 };
    static struct piece pieces[PIECES];
    size_t count = 0;
    struct arena_mark none = arena_mark(&a);
    for (size_t round = 0; round < 500; round++) {
        size_t kept = count + (size_t)random_in(&random, 0, 4);
        for (; count < kept; count++) {
            pieces[count] = any_piece(&a, &random);
            fill(&pieces[count], count);
        }
        struct arena_mark mark = arena_mark(&a);
        size_t after = (size_t)random_in(&random, 0, random_one_in(&random, 10) ? 200 : 4);
        for (size_t i = 0; i < after; i++) {
            struct piece piece = any_piece(&a, &random);
            fill(&piece, i);
        }
        arena_back(&a, &mark);
        struct arena_mark again = arena_mark(&a);
        assert_true(again.block == mark.block && again.used == mark.used && again.texts == mark.texts);
    }
    for (size_t i = 0; i < count; i++)
        expect_filled(&pieces[i], i);
    arena_back(&a, &none);
    assert_null(a.blocks);
}

static void texts_take_no_room_for_alignment(void **state)
{
    (void)state;
    struct arena a = { 0 };
    char *first = arena_text(&a, 3);
    char *one = arena_alloc(&a, 8), *text = arena_text(&a, 5), *two = arena_alloc(&a, 16), *three = arena_alloc(&a, 1);
    assert_ptr_equal(text + 5, first);
    assert_ptr_equal(two, one + 8);
    assert_ptr_equal(three, two + 16);
    assert_int_equal(arena_copy(&a, SV("abc")).len, 3);
    assert_string_equal(arena_copy(&a, SV("abc")).ptr, "abc");
    arena_done(&a);
}

static void too_much_is_no_memory(void **state)
{
    (void)state;
    struct arena a = { 0 };
    assert_null(arena_room(&a, SIZE_MAX));
    assert_null(arena_room(&a, SIZE_MAX - 8));
    assert_null(arena_text(&a, SIZE_MAX));
    assert_null(arena_array(&a, 16, SIZE_MAX / 8));
    assert_non_null(arena_alloc(&a, 0));
    arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_apart),
        cmocka_unit_test(what_came_after_a_mark_is_given_back),
        cmocka_unit_test(texts_take_no_room_for_alignment),
        cmocka_unit_test(too_much_is_no_memory),
    };
    return cmocka_run_group_tests_name("base/arena", tests, NULL, NULL);
}
