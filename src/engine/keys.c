#include "engine/keys.h"

#include <stdio.h>

#include "base/sha256.h"

enum {
    HASH_TEXT = 1 + 32, /* # and half of a SHA-256 in hexadecimal */
    VALUE_MAX = 64,     /* bytes of a value as it is written; longer ones are hashed */
    VALUES_MAX = 128,   /* of all together; what is longer is hashed again */
    ID_MAX = 100,       /* of a rule's id */
    NAMES_MAX = 100,    /* of the names of `by` */
};

_Static_assert(1 + VALUES_MAX + KEY_END_MAX <= STORE_KEY_MAX, "a key has room");
_Static_assert(2 + ID_MAX + 1 + NAMES_MAX <= KEY_END_MAX, "the end of a key has room");

static size_t put_hash(char *to, sv text)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char hash[32];
    sha256(text.ptr, text.len, hash);
    *to++ = '#';
    for (int i = 0; i < 16; i++) {
        *to++ = digits[hash[i] >> 4];
        *to++ = digits[hash[i] & 15];
    }
    return HASH_TEXT;
}

/* Not among them: { } , # % * which mean something in a key, blanks, and what a terminal would not show. */
static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || ascii_digit(c) || (c && strchr("-._~@/+=:!$&'()|", c));
}

/* As it is, with %XX where need be, or hashed if that takes more than `most` bytes. */
static size_t put_text(char *to, size_t most, sv text)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t len = 0;
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        bool plain = is_plain((char)c);
        if (len + (plain ? 1 : 3) > most)
            return put_hash(to, text);
        if (plain) {
            to[len++] = (char)c;
            continue;
        }
        to[len++] = '%';
        to[len++] = digits[c >> 4];
        to[len++] = digits[c & 15];
    }
    return len;
}

size_t key_write_end(char to[KEY_END_MAX], const struct rule *rule)
{
    char names[RULE_BY_MAX * (DESCRIPTOR_KEY_MAX * 3 + 20)];
    size_t names_len = 0;
    for (size_t i = 0; i < rule->kind->by_count; i++) {
        const struct rule_by *by = &rule->kind->by[i];
        sv name = attribute_table[by->attribute].name;
        if (i > 0)
            names[names_len++] = ',';
        memcpy(names + names_len, name.ptr, name.len);
        names_len += name.len;
        if (by->name.len > 0) {
            names[names_len++] = ':';
            names_len += put_text(names + names_len, DESCRIPTOR_KEY_MAX * 3, by->name);
        }
    }
    size_t len = 0;
    to[len++] = '}';
    to[len++] = ':';
    len += put_text(to + len, ID_MAX, rule->id);
    to[len++] = ':';
    if (names_len > NAMES_MAX)
        return len + put_hash(to + len, sv_of(names, names_len));
    memcpy(to + len, names, names_len);
    return len + names_len;
}

size_t key_write(char to[STORE_KEY_MAX], const struct bound_rule *rule, const sv *values)
{
    char room[RULE_BY_MAX * (VALUE_MAX + 1)];
    size_t len = 0, count = rule->rule->kind->by_count;
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            room[len++] = ',';
        if (values[i].len == 0)
            room[len++] = '%';
        else
            len += rule->rule->kind->by[i].attribute == ATTR_HEADER ? put_hash(room + len, values[i])
                                                                    : put_text(room + len, VALUE_MAX, values[i]);
    }
    if (count == 0)
        room[len++] = '*';
    to[0] = '{';
    if (len > VALUES_MAX)
        len = put_hash(to + 1, sv_of(room, len));
    else
        memcpy(to + 1, room, len);
    memcpy(to + 1 + len, rule->rest->key_end.ptr, rule->rest->key_end.len);
    return 1 + len + rule->rest->key_end.len;
}

size_t key_write_facts(char to[STORE_KEY_MAX], const struct bound_rule *rule, struct facts *facts)
{
    sv values[RULE_BY_MAX];
    for (size_t i = 0; i < rule->rule->kind->by_count; i++)
        values[i] = facts_attribute(facts, &rule->rule->kind->by[i]);
    return key_write(to, rule, values);
}

size_t field_write(char to[STORE_FIELD_MAX], const struct rule_limit *limit)
{
    static const char letters[] = { [LIMIT_TOKEN_BUCKET] = 'b',
                                    [LIMIT_FIXED_WINDOW] = 'f',
                                    [LIMIT_SLIDING_WINDOW] = 's',
                                    [LIMIT_CALENDAR] = 'c',
                                    [LIMIT_CONCURRENT] = 'n' };
    memcpy(to, limit->name.ptr, limit->name.len);
    to[limit->name.len] = '.';
    to[limit->name.len + 1] = letters[limit->algorithm];
    return limit->name.len + 2;
}

size_t field_write_given(char to[STORE_FIELD_MAX], const struct rule_limit *limit, int64_t length_us)
{
    char text[STORE_FIELD_MAX];
    int len = snprintf(text, sizeof text, "%.*s-%lldms.c", SV_FMT(limit->name), (long long)(length_us / US_PER_MS));
    memcpy(to, text, (size_t)len);
    return (size_t)len;
}
