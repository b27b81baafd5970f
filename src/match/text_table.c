#include "match/text_table.h"

#include <stdlib.h>
#include <sys/random.h>

uint64_t table_salt;

/* Without random numbers the table works, too. */
static __attribute__((constructor)) void choose_salt(void)
{
    if (getrandom(&table_salt, sizeof table_salt, GRND_NONBLOCK) != sizeof table_salt)
        table_salt = 0;
}

enum {
    FIRST_LINES = 16,
    MOVES_MAX = 500, /* of entries, until one that has no room goes on to the next line */
};

/* What a slot holds, on its way from one line to another. */
struct moved {
    uint32_t space, value;
    union table_text of;
    uint8_t len;
};

void table_done(struct table *table)
{
    if (!table)
        return;
    free(table->lines);
    *table = (struct table){ 0 };
}

/* ---- slots ---- */

static sv text_of(const union table_text *of, uint8_t len)
{
    return len == TABLE_FAR ? sv_of(of->far.text, of->far.len) : sv_of(of->text, len);
}

static uint64_t places_of(const struct moved *moved)
{
    return table_places(moved->space, table_word(text_of(&moved->of, moved->len)));
}

static struct moved read_slot(const struct table_line *line, unsigned slot)
{
    return (struct moved){ line->space[slot], line->value[slot], line->of[slot], line->len[slot] };
}

static void write_slot(struct table_line *line, unsigned slot, const struct moved *moved)
{
    line->space[slot] = moved->space;
    line->value[slot] = moved->value;
    line->of[slot] = moved->of;
    line->len[slot] = moved->len;
}

/* Slots are filled in their order. False: the line is full. */
static bool put_in_line(struct table_line *line, const struct moved *moved)
{
    unsigned slot = 0;
    while (slot < TABLE_SLOTS && line->len[slot] != TABLE_FREE)
        slot++;
    if (slot < TABLE_SLOTS)
        write_slot(line, slot, moved);
    return slot < TABLE_SLOTS;
}

/* ---- places ---- */

/* Returns the line in which an entry is to be that leaves this one. */
static uint32_t other_line(struct table *table, const struct moved *moved, uint32_t line)
{
    uint64_t places = places_of(moved);
    uint32_t first = table_first(table, places);
    if (first != line)
        return first;
    table->lines[line].more = true;
    return table_second(table, places);
}

/* Puts the entry into a full line, in place of one that has room in its other line, or of any. That one takes its place in
 * `moved`. Returns the line in which it is to be. */
static uint32_t displace(struct table *table, uint32_t at, struct moved *moved, unsigned any)
{
    struct table_line *line = &table->lines[at];
    struct moved out = read_slot(line, any);
    unsigned slot = any;
    for (unsigned i = 0; i < TABLE_SLOTS; i++) {
        struct moved candidate = read_slot(line, i);
        uint64_t places = places_of(&candidate);
        uint32_t first = table_first(table, places), other = first == at ? table_second(table, places) : first;
        if (table->lines[other].len[TABLE_SLOTS - 1] == TABLE_FREE) {
            out = candidate;
            slot = i;
            break;
        }
    }
    write_slot(line, slot, moved);
    *moved = out;
    return other_line(table, moved, at);
}

/* Puts an entry into the next line after its second one that has room. Some line has. */
static void put_beyond(struct table *table, const struct moved *moved)
{
    uint64_t places = places_of(moved);
    table->lines[table_first(table, places)].more = true;
    for (uint32_t at = table_second(table, places); !put_in_line(&table->lines[at], moved); at = table_next(table, at))
        table->lines[at].more = true;
}

/* Puts an entry into one of its lines, or a line in which the search goes on. The table is not full. */
static void put_somewhere(struct table *table, struct moved moved)
{
    uint32_t at = table_first(table, places_of(&moved));
    if (put_in_line(&table->lines[at], &moved))
        return;
    at = other_line(table, &moved, at);
    for (unsigned i = 0; i < MOVES_MAX; i++) {
        if (put_in_line(&table->lines[at], &moved))
            return;
        at = displace(table, at, &moved, i % TABLE_SLOTS);
    }
    put_beyond(table, &moved);
}

/* ---- size ---- */

/* First the entries that have room in their first line; those of before are free then. */
static void move_entries(struct table *from, struct table *to, bool all)
{
    for (uint32_t i = 0; i < from->line_count; i++)
        for (unsigned slot = 0; slot < TABLE_SLOTS; slot++) {
            struct moved moved = read_slot(&from->lines[i], slot);
            if (moved.len == TABLE_FREE)
                continue;
            if (all)
                put_somewhere(to, moved);
            else if (put_in_line(&to->lines[table_first(to, places_of(&moved))], &moved))
                from->lines[i].len[slot] = TABLE_FREE;
        }
}

static bool resize(struct table *table, size_t line_count)
{
    struct table resized = { .line_count = (uint32_t)line_count, .count = table->count };
    resized.lines = aligned_alloc(sizeof *resized.lines, line_count * sizeof *resized.lines);
    if (!resized.lines)
        return false;
    for (uint32_t i = 0; i < line_count; i++)
        resized.lines[i] = (struct table_line){ .len = { TABLE_FREE, TABLE_FREE, TABLE_FREE } };
    move_entries(table, &resized, false);
    move_entries(table, &resized, true);
    free(table->lines);
    *table = resized;
    return true;
}

/* At most half full, so that entries are seldom moved while there are more to come. */
static bool make_room(struct table *table)
{
    if (table->count < table->line_count * (uint64_t)TABLE_SLOTS / 2)
        return true;
    return table->line_count <= UINT32_MAX / 2 && resize(table, table->line_count ? table->line_count * 2 : FIRST_LINES);
}

bool table_reserve(struct table *table, size_t count)
{
    return resize(table, 2 * count / TABLE_SLOTS + 1);
}

bool table_trim(struct table *table)
{
    return table->count == 0 || resize(table, table->count * (size_t)8 / (TABLE_SLOTS * 7) + 1);
}

/* ---- entries ---- */

static uint32_t *find_value(const struct table *table, uint32_t space, sv text, uint64_t word)
{
    return table->count > 0 ? (uint32_t *)table_find_word(table, space, text, word) : NULL;
}

uint32_t *table_put(struct table *table, uint32_t space, sv text, uint32_t value)
{
    uint64_t word = table_word(text);
    uint32_t *found = find_value(table, space, text, word);
    if (found)
        return found;
    if (text.len > TABLE_TEXT_MAX || !make_room(table))
        return NULL;
    struct moved moved = { .space = space, .value = value, .len = TABLE_FAR };
    if (text.len > TABLE_INLINE)
        moved.of.far = table_far(text, word);
    else {
        moved.len = (uint8_t)text.len;
        memcpy(moved.of.text, text.len > 0 ? text.ptr : "", text.len);
    }
    put_somewhere(table, moved);
    table->count++;
    return find_value(table, space, text, word);
}

struct table_entry table_at(const struct table *table, size_t slot)
{
    struct table_line *line = &table->lines[slot / TABLE_SLOTS];
    slot %= TABLE_SLOTS;
    return (struct table_entry){ &line->space[slot], &line->value[slot], text_of(&line->of[slot], line->len[slot]) };
}

bool table_each(const struct table *table, size_t *next, struct table_entry *ret)
{
    size_t end = (size_t)table->line_count * TABLE_SLOTS;
    while (*next < end && table->lines[*next / TABLE_SLOTS].len[*next % TABLE_SLOTS] == TABLE_FREE)
        ++*next;
    if (*next == end)
        return false;
    *ret = table_at(table, (*next)++);
    return true;
}
