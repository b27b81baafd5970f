/* Reads what a rule counts by and which requests it excepts. */
#include <stdio.h>

#include "rules/reader.h"

/* ---- by ---- */

static void report_attribute(struct reader *r, const struct node *node, sv text)
{
    const char *names[ATTRIBUTE_COUNT + 1], *nearest;
    char allowed[300];
    size_t count = 0, length = 0;
    for (enum attribute i = 0; i < ATTRIBUTE_COUNT; i++) {
        if (!(attribute_table[i].uses & IN_BY))
            continue;
        names[count++] = attribute_table[i].name.ptr;
        if (i != ATTR_HEADER)
            length += (size_t)snprintf(allowed + length, sizeof allowed - length, "%s%s", count > 1 ? ", " : "",
                                       attribute_table[i].name.ptr);
    }
    names[count] = NULL;
    nearest =
        word_find(text, names) < 0 && !(text.len && memchr(text.ptr, ':', text.len)) ? word_nearest(text, names) : NULL;
    report_error(r, node->line, "must be %s, descriptor:KEY or header:NAME, not %s%s%s%s", allowed, shown_node(r, node),
                 nearest ? "; did you mean `" : "", nearest ? nearest : "", nearest ? "`?" : "");
}

bool read_entry_name(struct reader *r, const struct node *node, sv text, sv *ret)
{
    const char *allowed;
    sv name;
    char *room = arena_text(r->scratch, 3 * text.len + 1);
    r->no_memory = r->no_memory || !room;
    if (!room)
        return false;
    if (!descriptor_name_read(text, room, &name, &allowed)) {
        report_error(r, node->line, "%s, not %s", allowed, shown_node(r, node));
        return false;
    }
    *ret = reader_copy(r, name);
    return true;
}

void read_attribute(struct reader *r, const struct node *node, void *ret)
{
    sv text = node->kind == NODE_SCALAR ? node->text : (sv){ 0 };
    struct rule_by entry = { .attribute = ATTR_DESCRIPTOR };
    if (sv_starts(text, SV("descriptor:"))) {
        if (!read_entry_name(r, node, sv_from(text, strlen("descriptor:")), &entry.name))
            entry.attribute = ATTRIBUTE_COUNT;
        *(struct rule_by *)ret = entry;
        return;
    }
    bool header = sv_starts(text, SV("header:"));
    sv name = header ? sv_trim(sv_from(text, 7)) : (sv){ 0 };
    enum attribute found = attribute_find(text);
    if (header && http_token(name) && name.len <= RULE_NAME_MAX)
        *(struct rule_by *)ret = (struct rule_by){ ATTR_HEADER, reader_copy_lower(r, name) };
    else if (found < ATTRIBUTE_COUNT && found != ATTR_HEADER && attribute_table[found].uses & IN_BY)
        *(struct rule_by *)ret = (struct rule_by){ .attribute = found };
    else {
        *(struct rule_by *)ret = (struct rule_by){ .attribute = ATTRIBUTE_COUNT };
        report_attribute(r, node, text);
    }
}

static bool same_by(const void *one, const void *two)
{
    const struct rule_by *a = one, *b = two;
    return a->attribute < ATTRIBUTE_COUNT && a->attribute == b->attribute && sv_eq(a->name, b->name);
}

void read_by(struct reader *r, const struct node *node, void *ret)
{
    static const struct list list = {
        .read = read_attribute, .size = sizeof(struct rule_by), .max = RULE_BY_MAX, .same = same_by
    };
    (void)ret;
    size_t count = 0;
    struct arena_mark before = arena_mark(&r->rules->arena);
    const struct rule_by *by = read_list(r, node, &list, &count);
    r->kind.by = share_by(&r->shared, by, count);
    if (r->kind.by != by)
        arena_back(&r->rules->arena, &before);
    r->kind.by_count = (uint8_t)count;
}

/* ---- except ---- */

void read_cidr(struct reader *r, const struct node *node, void *ret)
{
    if (node->kind != NODE_SCALAR || !cidr_parse(sv_trim(node->text), ret))
        report_error(r, node->line, "must be an address or a network such as 10.0.0.0/8 or fd00::/8, not %s",
                     shown_node(r, node));
}

struct cidr *read_cidrs(struct reader *r, const struct node *node, size_t max, size_t *ret_count)
{
    struct list list = { .read = read_cidr, .size = sizeof(struct cidr), .max = max };
    return read_list(r, node, &list, ret_count);
}

static void read_ips(struct reader *r, const struct node *node, void *ret)
{
    struct rule_except *except = ret;
    except->ips = read_cidrs(r, node, RULE_EXCEPT_MAX, &except->ip_count);
}

static void read_user(struct reader *r, const struct node *node, void *ret)
{
    read_text(r, node, 1, RULE_TEXT_MAX, ret);
}

static void read_users(struct reader *r, const struct node *node, void *ret)
{
    static const struct list list = { .read = read_user, .size = sizeof(sv), .max = RULE_EXCEPT_MAX };
    struct rule_except *except = ret;
    except->users = read_list(r, node, &list, &except->user_count);
}

void read_except(struct reader *r, const struct node *node, void *ret)
{
    static const struct field fields[] = { { "ip", read_ips }, { "user", read_users }, { NULL } };
    read_fields(r, node, fields, ret);
}
