/* Words of a shell, compared with what a shell makes of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/program.h"

static void test_plain_words(void **state)
{
    char room[PROGRAM_WORD_BYTES];
    static const char *const words[] = { "weir", "sqlite:./weir-data/rules.db", "mysql://u@h:3306/d_1", "/a-b/c,d=1%+@" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        assert_ptr_equal(program_word(words[i], room), words[i]);
    (void)state;
}

static void test_a_shell_reads_the_same(void **state)
{
    static const char *const words[] = { "",      "da ta/cells", "it's", "''",    "$(false)`false`",
                                         "~root", "a;b&c|d>e<f", "a\nb", "*?[x]", "\\",
                                         "\"",    "!!" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char room[PROGRAM_WORD_BYTES], command[200], shown[100];
        assert_in_range(snprintf(command, sizeof command, "printf '<%%s>' %s", program_word(words[i], room)), 1,
                        sizeof command - 1);
        FILE *out = popen(command, "r"); /* NOLINT(cert-env33-c): it is a shell that is asked */
        assert_non_null(out);
        shown[fread(shown, 1, sizeof shown - 1, out)] = '\0';
        assert_int_equal(pclose(out), 0);
        assert_int_equal(strlen(shown), strlen(words[i]) + 2);
        assert_memory_equal(shown + 1, words[i], strlen(words[i]));
    }
    (void)state;
}

static void test_too_long(void **state)
{
    char room[PROGRAM_WORD_BYTES], text[2 * PROGRAM_WORD_BYTES];
    memset(text, '\'', sizeof text);
    for (size_t length = PROGRAM_WORD_BYTES / 4 - 10; length < sizeof text; length++) {
        text[length] = '\0';
        const char *word = program_word(text, room);
        if (word == room)
            assert_int_equal(strlen(word), 4 * length + 2);
        else
            assert_ptr_equal(word, text);
        text[length] = '\'';
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_words),
        cmocka_unit_test(test_a_shell_reads_the_same),
        cmocka_unit_test(test_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
