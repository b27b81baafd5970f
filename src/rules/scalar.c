/* What a scalar is: nothing, a boolean, a number or text. */
#include "rules/node.h"
#include "rules/rules.h"

bool node_is_null(const struct node *node)
{
    static const char *const words[] = { "", "~", "null", "Null", "NULL", NULL };
    return node->kind == NODE_SCALAR && node->plain && word_find(node->text, words) >= 0;
}

bool node_is_bool(const struct node *node, bool *ret)
{
    static const char *const yes[] = { "true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", NULL };
    static const char *const no[] = { "false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", NULL };
    if (node->kind != NODE_SCALAR || !node->plain)
        return false;
    bool is_yes = word_find(node->text, yes) >= 0;
    if (!is_yes && word_find(node->text, no) < 0)
        return false;
    *ret = is_yes;
    return true;
}

static size_t digits(sv *s)
{
    size_t n = 0;
    while (n < s->len && ascii_digit(s->ptr[n]))
        n++;
    *s = sv_from(*s, n);
    return n;
}

bool node_is_number(const struct node *node)
{
    if (node->kind != NODE_SCALAR || !node->plain)
        return false;
    sv s = node->text;
    if (s.len > 0 && s.ptr[0] == '-')
        s = sv_from(s, 1);
    bool good = digits(&s) > 0;
    if (s.len > 0 && s.ptr[0] == '.') {
        s = sv_from(s, 1);
        good = good && digits(&s) > 0;
    }
    if (s.len > 0 && ascii_lower(s.ptr[0]) == 'e') {
        s = sv_from(s, s.len > 1 && (s.ptr[1] == '+' || s.ptr[1] == '-') ? 2 : 1);
        good = good && digits(&s) > 0;
    }
    return good && s.len == 0;
}

/* node_is_number accepts zeros before a number. JSON does not: such a text was probably not meant as a number. */
bool node_is_json_number(const struct node *node)
{
    sv s = node->text;
    if (!node_is_number(node))
        return false;
    s = sv_starts(s, SV("-")) ? sv_from(s, 1) : s;
    return s.len < 2 || s.ptr[0] != '0' || !ascii_digit(s.ptr[1]);
}

const struct node *node_get(const struct node *map, sv key)
{
    if (map->kind != NODE_MAP)
        return NULL;
    for (const struct node_item *item = map->first; item; item = item->next)
        if (item->key->kind == NODE_SCALAR && sv_eq(item->key->text, key))
            return item->value;
    return NULL;
}
