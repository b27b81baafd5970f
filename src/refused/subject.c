#include "refused/subject.h"

#include <stdio.h>

#include "base/utf8.h"

/* At most `most` bytes, and no part of a character that was whole. */
static uint16_t put(char *to, sv text, size_t most, bool *cut)
{
    sv part = utf8_cut(text, most);
    *cut = *cut || part.len < text.len;
    if (part.len > 0)
        memcpy(to, part.ptr, part.len);
    return (uint16_t)part.len;
}

/* "user", "header:x-tenant" */
static uint16_t put_name(char *to, const struct rule_by *by, size_t most, bool *cut)
{
    size_t len = put(to, attribute_table[by->attribute].name, most, cut);
    if (by->name.len > 0)
        len += put(to + len, SV(":"), most - len, cut);
    return (uint16_t)(len + put(to + len, by->name, most - len, cut));
}

enum { SECRET_SHOWN = 4 };

/* A header may be a password: subjects are for logs and screens, so they keep no more than the beginning of its value. */
static uint16_t put_value(char *to, const struct rule_by *by, sv value, size_t most, bool *cut)
{
    const sv more = SV("…");
    if (by->attribute != ATTR_HEADER || value.len <= 2 * (size_t)SECRET_SHOWN || most < SECRET_SHOWN + more.len)
        return put(to, value, most, cut);
    size_t len = put(to, value, SECRET_SHOWN, cut);
    return (uint16_t)(len + put(to + len, more, more.len, cut));
}

/* ---- filling ---- */

/* A key of rule, names and values as texts, so that subject_find_key finds the same one from what is kept. */
static void key_begin(struct hash *hash, sv rule, const struct hash_key *key)
{
    hash_init(hash, key);
    hash_text(hash, rule.ptr, rule.len);
}

static void key_add(struct hash *hash, sv name, sv value)
{
    hash_text(hash, name.ptr, name.len);
    hash_text(hash, value.ptr, value.len);
}

/* Each attribute has an equal share of the room that the rule's id leaves, and its name at most half of that. */
void subject_fill(struct subject *ret, const struct rule *rule, const struct weir_str *values, const struct hash_key *key)
{
    struct hash hash;
    char *to = ret->text;
    key_begin(&hash, rule->id, key);
    ret->cut = false;
    ret->rule_len = (uint8_t)put(to, rule->id, WEIR_ID_MAX, &ret->cut);
    ret->by_count = (uint8_t)rule->kind->by_count;
    to += ret->rule_len;
    size_t share = rule->kind->by_count ? (SUBJECT_TEXT_MAX - ret->rule_len) / rule->kind->by_count : 0;
    for (size_t i = 0; i < rule->kind->by_count; i++) {
        const struct rule_by *by = &rule->kind->by[i];
        ret->by[i].name_len = put_name(to, by, share / 2, &ret->cut);
        key_add(&hash, sv_of(to, ret->by[i].name_len), values[i]);
        to += ret->by[i].name_len;
        ret->by[i].value_len = put_value(to, by, values[i], share - ret->by[i].name_len, &ret->cut);
        to += ret->by[i].value_len;
    }
    ret->key = hash_final(&hash);
}

void subject_fill_throttle(struct subject *ret, sv rule, unsigned space, sv key, const struct hash_key *hash_key)
{
    struct hash hash;
    char number[12];
    snprintf(number, sizeof number, "%u", space);
    const sv names[] = { SV("key"), SV("database") }, values[] = { key, weir_str(number) };
    key_begin(&hash, rule, hash_key);
    ret->cut = false;
    ret->rule_len = (uint8_t)put(ret->text, rule, WEIR_ID_MAX, &ret->cut);
    ret->by_count = space ? 2 : 1; /* the first space is everybody's: not worth a word */
    size_t share = (SUBJECT_TEXT_MAX - ret->rule_len) / 2;
    char *to = ret->text + ret->rule_len;
    for (size_t i = 0; i < ret->by_count; i++) {
        key_add(&hash, names[i], values[i]);
        ret->by[i].name_len = put(to, names[i], share, &ret->cut);
        to += ret->by[i].name_len;
        ret->by[i].value_len = put(to, values[i], share - ret->by[i].name_len, &ret->cut);
        to += ret->by[i].value_len;
    }
    ret->key = hash_final(&hash);
}

uint64_t subject_find_key(const struct subject *subject, const struct hash_key *key)
{
    struct hash hash;
    key_begin(&hash, subject_rule(subject), key);
    for (size_t i = 0; i < subject->by_count; i++)
        key_add(&hash, subject_name(subject, i), subject_value(subject, i));
    return hash_final(&hash);
}

/* ---- reading ---- */

sv subject_rule(const struct subject *subject)
{
    return sv_of(subject->text, subject->rule_len);
}

static size_t name_offset(const struct subject *subject, size_t i)
{
    size_t offset = subject->rule_len;
    for (size_t k = 0; k < i; k++)
        offset += (size_t)subject->by[k].name_len + subject->by[k].value_len;
    return offset;
}

sv subject_name(const struct subject *subject, size_t i)
{
    return sv_of(subject->text + name_offset(subject, i), subject->by[i].name_len);
}

sv subject_value(const struct subject *subject, size_t i)
{
    return sv_of(subject->text + name_offset(subject, i) + subject->by[i].name_len, subject->by[i].value_len);
}

size_t subject_bytes(const struct subject *subject)
{
    return offsetof(struct subject, text) + name_offset(subject, subject->by_count);
}

void subject_copy(struct subject *to, const struct subject *from)
{
    memcpy(to, from, subject_bytes(from));
}
