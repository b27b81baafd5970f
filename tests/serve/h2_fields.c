/* What HTTP demands of the fields of a request: each byte of names and values, and which fields may be together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "serve/h2_fields.h"

enum { LENGTHS = 20 };

static unsigned kind_of(sv name, sv value)
{
    return h2_field_judge(name, value).kind;
}

/* As RFC 9110 has them, byte by byte. */
static bool in_name(int c)
{
    return c && strchr("abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~", c);
}

static bool in_value(int c, bool at_an_end)
{
    return at_an_end ? c > ' ' && c != 0x7f : c == '\t' || (c >= ' ' && c != 0x7f);
}

static void names_have_bytes_of_tokens(void **state)
{
    char name[LENGTHS + 1];
    (void)state;
    for (size_t len = 1; len <= LENGTHS; len++)
        for (size_t at = 0; at < len; at++)
            for (int c = 0; c < 256; c++) {
                memset(name, len % 2 ? 'x' : '-', len);
                name[at] = (char)c;
                bool upper = c >= 'A' && c <= 'Z';
                bool pseudo = at == 0 && c == ':'; /* none that is known */
                unsigned wanted = in_name(c) ? H2_FIELD_REGULAR : upper || pseudo ? H2_FIELD_MALFORMED : H2_FIELD_IGNORED;
                assert_int_equal(kind_of(sv_of(name, len), SV("v")), wanted);
            }
    assert_int_equal(kind_of(SV(""), SV("v")), H2_FIELD_IGNORED);
    assert_int_equal(kind_of(SV(":"), SV("v")), H2_FIELD_MALFORMED);
}

static void values_have_no_controls(void **state)
{
    char value[LENGTHS + 1];
    (void)state;
    for (size_t len = 1; len <= LENGTHS; len++)
        for (size_t at = 0; at < len; at++)
            for (int c = 0; c < 256; c++) {
                memset(value, len % 2 ? 'x' : '\xff', len);
                value[at] = (char)c;
                bool good = in_value(c, at == 0 || at == len - 1);
                assert_int_equal(kind_of(SV("name"), sv_of(value, len)), good ? H2_FIELD_REGULAR : H2_FIELD_IGNORED);
                assert_int_equal(kind_of(SV(":path"), sv_of(value, len)), good ? H2_FIELD_PSEUDO : H2_FIELD_MALFORMED);
            }
    assert_int_equal(kind_of(SV("name"), SV("")), H2_FIELD_REGULAR);
}

static void some_names_mean_something(void **state)
{
    (void)state;
    assert_int_equal(kind_of(SV("connection"), SV("x")), H2_FIELD_MALFORMED);
    assert_int_equal(kind_of(SV("keep-alive"), SV("x")), H2_FIELD_MALFORMED);
    assert_int_equal(kind_of(SV("proxy-connection"), SV("x")), H2_FIELD_MALFORMED);
    assert_int_equal(kind_of(SV("transfer-encoding"), SV("x")), H2_FIELD_MALFORMED);
    assert_int_equal(kind_of(SV("upgrade"), SV("x")), H2_FIELD_MALFORMED);
    assert_int_equal(kind_of(SV("te"), SV("gzip")), H2_FIELD_MALFORMED);
    assert_int_equal(kind_of(SV("te"), SV("Trailers")), H2_FIELD_REGULAR);
    assert_int_equal(kind_of(SV("host"), SV("h")), H2_FIELD_HOST);
    assert_int_equal(kind_of(SV("host"), SV("")), H2_FIELD_MALFORMED);
    assert_int_equal(kind_of(SV("content-length"), SV("12")), H2_FIELD_LENGTH);
    assert_int_equal(kind_of(SV("content-length"), SV("")), H2_FIELD_MALFORMED);
    assert_int_equal(kind_of(SV("content-length"), SV("-1")), H2_FIELD_MALFORMED);
    assert_int_equal(kind_of(SV("content-length"), SV("9223372036854775808")), H2_FIELD_MALFORMED);
    assert_int_equal(kind_of(SV(":status"), SV("200")), H2_FIELD_MALFORMED);
    assert_int_equal(kind_of(SV(":protocol"), SV("websocket")), H2_FIELD_MALFORMED);
    assert_int_equal(kind_of(SV(":path"), SV("")), H2_FIELD_MALFORMED);
}

/* "name value", each; NULL ends the list. Returns 'm' malformed, 'i' incomplete, 'g' good. */
static char request(const char *const *fields)
{
    struct h2_fields all = { 0 };
    for (; *fields; fields++) {
        sv value = weir_str(*fields), name = sv_cut(&value, ' ');
        if (!h2_fields_add(&all, h2_field_judge(name, value), value, false))
            return 'm';
    }
    return h2_fields_complete(&all) ? 'g' : 'i';
}

#define REQUEST(...) request((const char *const[]){ __VA_ARGS__, NULL })

static void requests_have_four_that_come_first(void **state)
{
    (void)state;
    assert_int_equal(REQUEST(":method POST", ":scheme http", ":path /a", ":authority h", "a b"), 'g');
    assert_int_equal(REQUEST(":method POST", ":scheme http", ":path /a", "host h"), 'g');
    assert_int_equal(REQUEST(":method POST", ":scheme http", ":path /a"), 'i');
    assert_int_equal(REQUEST(":scheme http", ":path /a", ":authority h"), 'i');
    assert_int_equal(REQUEST(":method POST", ":path /a", ":authority h"), 'i');
    assert_int_equal(REQUEST(":method POST", ":scheme http", ":authority h"), 'i');
    assert_int_equal(REQUEST(":method POST", ":method POST"), 'm');
    assert_int_equal(REQUEST(":scheme http", ":scheme http"), 'm');
    assert_int_equal(REQUEST(":path /a", ":path /a"), 'm');
    assert_int_equal(REQUEST(":authority h", ":authority h"), 'm');
    assert_int_equal(REQUEST("host h", "host h"), 'm');
    assert_int_equal(REQUEST("content-length 1", "content-length 1"), 'm');
    assert_int_equal(REQUEST("a b", ":path /a"), 'm');
    assert_int_equal(REQUEST("a\x01 b", ":path /a"), 'm');
}

static void paths_are_those_of_the_scheme(void **state)
{
    (void)state;
    assert_int_equal(REQUEST(":method POST", ":scheme HTTPS", ":path a", "host h"), 'i');
    assert_int_equal(REQUEST(":method POST", ":scheme http", ":path *", "host h"), 'i');
    assert_int_equal(REQUEST(":method OPTIONS", ":scheme http", ":path *", "host h"), 'g');
    assert_int_equal(REQUEST(":method POST", ":scheme other", ":path a", "host h"), 'g');
    assert_int_equal(REQUEST(":method CONNECT", ":authority h"), 'g');
    assert_int_equal(REQUEST(":method CONNECT", "host h"), 'i');
    assert_int_equal(REQUEST(":method CONNECT", ":authority h", ":path /a"), 'i');
}

static void bodies_are_as_long_as_they_say(void **state)
{
    struct h2_fields f = { 0 };
    (void)state;
    assert_true(h2_fields_received(&f, 100));
    assert_true(h2_fields_ended(&f));
    f = (struct h2_fields){ 0 };
    assert_true(h2_fields_add(&f, h2_field_judge(SV("content-length"), SV("3")), SV("3"), false));
    assert_false(h2_fields_ended(&f));
    assert_true(h2_fields_received(&f, 3));
    assert_true(h2_fields_ended(&f));
    assert_false(h2_fields_received(&f, 1));
    assert_false(h2_fields_ended(&f));
}

static void trailers_have_no_pseudo_fields(void **state)
{
    struct h2_fields f = { 0 };
    (void)state;
    assert_true(h2_fields_add(&f, h2_field_judge(SV("a"), SV("b")), SV("b"), true));
    assert_false(h2_fields_add(&f, h2_field_judge(SV(":path"), SV("/")), SV("/"), true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_have_bytes_of_tokens),     cmocka_unit_test(values_have_no_controls),
        cmocka_unit_test(some_names_mean_something),      cmocka_unit_test(requests_have_four_that_come_first),
        cmocka_unit_test(paths_are_those_of_the_scheme),  cmocka_unit_test(bodies_are_as_long_as_they_say),
        cmocka_unit_test(trailers_have_no_pseudo_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
