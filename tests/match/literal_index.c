/* The index finds exactly the literals that occur in a text, each once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "../limit/random.h"
#include "match/literal_index.h"

enum { LITERALS = 60, LONGEST = 6, TEXT = 80 };

static bool occurs(const char *literal, const char *text, size_t len)
{
    size_t n = strlen(literal);
    for (size_t i = 0; i + n <= len; i++)
        if (sv_eq_lower(sv_of(text + i, n), weir_str(literal)))
            return true;
    return false;
}

/* Few letters, so that literals overlap, begin and end each other. */
static void random_text(struct random *r, char *out, size_t len, bool upper)
{
    for (size_t i = 0; i < len; i++) {
        out[i] = "abc/"[random_in(r, 0, 3)];
        if (upper && random_one_in(r, 3) && out[i] != '/')
            out[i] = (char)(out[i] - 'a' + 'A');
    }
    out[len] = '\0';
}

static void check_round(struct random *r)
{
    struct literal_index index = { 0 };
    char literals[LITERALS][LONGEST + 1];
    int64_t count = random_in(r, 0, LITERALS);
    for (int64_t i = 0; i < count; i++) {
        random_text(r, literals[i], (size_t)random_in(r, 1, LONGEST), false);
        uint32_t *list = literal_index_add(&index, weir_str(literals[i]));
        assert_non_null(list);
        *list = (uint32_t)i + 1; /* the last one of those that are equal */
    }
    assert_true(literal_index_finish(&index));
    for (int ask = 0; ask < 20 && count > 0; ask++) {
        char text[TEXT + 1];
        size_t len = (size_t)random_in(r, 0, TEXT);
        random_text(r, text, len, true);
        struct literals_seen seen;
        literals_seen_init(&seen, &index);
        uint32_t found[LITERALS];
        bool is_found[LITERALS] = { false };
        size_t n = literal_index_find(&index, sv_of(text, len), &seen, found, LITERALS);
        assert_true(n <= LITERALS);
        for (size_t i = 0; i < n; i++) {
            assert_false(is_found[found[i] - 1]);
            is_found[found[i] - 1] = true;
        }
        for (int64_t i = 0; i < count; i++) {
            bool last = true;
            for (int64_t k = i + 1; k < count; k++)
                last = last && strcmp(literals[i], literals[k]) != 0;
            if (is_found[i] != (last && occurs(literals[i], text, len)))
                fail_msg("seed %llu: \"%s\" in \"%s\"", (unsigned long long)random_seed(), literals[i], text);
        }
        if (n > 1) {
            literals_seen_init(&seen, &index);
            assert_int_equal(literal_index_find(&index, sv_of(text, len), &seen, found, n - 1), n);
        }
        assert_int_equal(literal_index_find(&index, sv_of(text, 0), &seen, found, 0), 0);
    }
    literal_index_done(&index);
}

static void test_random(void **state)
{
    (void)state;
    struct random r = { random_seed() };
    for (int round = 0; round < 2000; round++)
        check_round(&r);
}

static void test_full(void **state)
{
    (void)state;
    struct literal_index index = { 0 };
    static uint32_t found[LITERALS_MAX];
    struct literals_seen seen;
    char literal[20];
    for (uint32_t i = 1; i < LITERALS_MAX; i++) {
        snprintf(literal, sizeof literal, "/item%u/", i);
        *literal_index_add(&index, weir_str(literal)) = i;
    }
    assert_true(literal_index_finish(&index));
    for (uint32_t i = 1; i < LITERALS_MAX; i += 101) {
        snprintf(literal, sizeof literal, "/x/ITEM%u/y", i);
        literals_seen_init(&seen, &index);
        assert_int_equal(literal_index_find(&index, weir_str(literal), &seen, found, LITERALS_MAX), 1);
        assert_int_equal(found[0], i);
    }
    literal_index_done(&index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_full),
    };
    return cmocka_run_group_tests_name("literal_index", tests, NULL, NULL);
}
