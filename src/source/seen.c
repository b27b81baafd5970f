/* What was read from each row, by what the row said. A table that is read again finds the rules of all rows that have not
 * changed here, and reads only the others. A row is known by a hash of all that its rule is made of. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/hash.h"
#include "source/backend.h"

enum { AHEAD_MAX = 16 }; /* rows that were removed in a row, and do not cost the order in which rows come */

static void hash_row(struct hash *hash, const struct stored_row *row)
{
    hash_word(hash, (uint64_t)row->table << 1 | row->enabled);
    hash_text(hash, row->key.ptr, row->key.len);
    hash_text(hash, row->text.ptr, row->text.len);
    hash_text(hash, row->fault.ptr, row->fault.len);
}

uint64_t row_version(const struct stored_row *row)
{
    static const struct hash_key known = { 0 }; /* not a secret: whoever may read a row may know its version */
    struct hash hash;
    hash_init(&hash, &known);
    hash_row(&hash, row);
    return hash_final(&hash) | 1;
}

/* A secret of the process: nobody can choose two rows that are taken for the same, such as the names of two customers. */
static struct hash_key seen_key;

static void make_seen_key(void)
{
    if (getrandom(&seen_key, sizeof seen_key, 0) != sizeof seen_key)
        seen_key.k0 = (uint64_t)clock_now_us();
}

static void seen_hash(struct hash *ret)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_seen_key);
    hash_init(ret, &seen_key);
}

uint64_t seen_version(const struct stored_row *row)
{
    struct hash hash;
    seen_hash(&hash);
    hash_row(&hash, row);
    hash_text(&hash, row->rule.ptr, row->rule.len);
    return (hash_final(&hash) & ~UINT64_C(1)) | row->enabled;
}

void seen_done(struct seen *seen)
{
    rules_free(seen->rules);
    free(seen->rows);
    free(seen->came);
    free(seen->slots);
    *seen = (struct seen){ 0 };
}

bool seen_begin(struct seen *seen, struct rules *rules, uint64_t settings, size_t most, size_t most_others)
{
    size_t size = 4;
    while (size < 2 * most_others)
        size *= 2;
    *seen = (struct seen){ .rows = malloc((most + 1) * sizeof *seen->rows),
                           .slots = calloc(size, sizeof *seen->slots),
                           .mask = size - 1,
                           .settings = settings };
    if (!seen->rows || !seen->slots) {
        seen_done(seen);
        return false;
    }
    seen->rules = rules_share(rules);
    return true;
}

/* The slot of a row with this version, or an empty one. */
static uint32_t *find_slot(const struct seen *seen, uint64_t version)
{
    size_t slot = (size_t)(version >> 1) & seen->mask;
    while (seen->slots[slot] && seen->rows[seen->slots[slot] - 1].version != version)
        slot = (slot + 1) & seen->mask;
    return &seen->slots[slot];
}

void seen_add_rule(struct seen *seen, uint64_t version, struct rule *rule)
{
    seen->rows[seen->count++] = (struct seen_row){ version, { .rule = rule } };
    seen->rule_count = seen->count;
}

void seen_add_other(struct seen *seen, struct seen_row row)
{
    seen->rows[seen->count++] = row;
    *find_slot(seen, row.version) = (uint32_t)seen->count;
}

/* Two rows with one version have one id, too. */
static const struct seen_row *find_rule(const struct seen *seen, sv id, uint64_t version)
{
    size_t place = seen_place(seen, id);
    return place < seen->rule_count && seen->rows[place].version == version ? &seen->rows[place] : NULL;
}

const struct seen_row *seen_find(const struct seen *seen, const struct stored_row *row, uint64_t version)
{
    if (!seen->rules)
        return NULL;
    if (row->table == TABLE_RULES)
        return find_rule(seen, row->rule, version);
    uint32_t number = *find_slot(seen, version);
    return number ? &seen->rows[number - 1] : NULL;
}

static const struct seen_row *row_that_came(const struct seen *seen, size_t i)
{
    return &seen->rows[seen->came ? seen->came[i] : i];
}

void seen_trim_came(struct seen *seen, size_t count)
{
    size_t kept = 0;
    bool as_ids = true;
    for (size_t i = 0; i < count; i++)
        if (seen->came[i] != UINT32_MAX) {
            as_ids = as_ids && seen->came[i] == kept;
            seen->came[kept++] = seen->came[i];
        }
    uint32_t *trimmed = as_ids ? NULL : realloc(seen->came, kept * sizeof *trimmed);
    if (as_ids)
        free(seen->came);
    if (as_ids || trimmed)
        seen->came = trimmed;
}

/* Rows mostly come in the order in which they came before. */
const struct seen_row *seen_next(const struct seen *seen, sv id, uint64_t version, size_t *next)
{
    if (*next < seen->rule_count && row_that_came(seen, *next)->version == version)
        return row_that_came(seen, (*next)++);
    const struct seen_row *row = find_rule(seen, id, version);
    for (size_t i = *next; row && i < seen->rule_count && i < *next + AHEAD_MAX; i++)
        if (row_that_came(seen, i) == row) {
            *next = i + 1;
            return row;
        }
    return row;
}

size_t seen_place(const struct seen *seen, sv id)
{
    size_t low = 0, high = seen->rule_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sv_compare(seen->rows[middle].rule->id, id) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint64_t seen_settings(const struct snapshot *snapshot)
{
    struct hash hash;
    seen_hash(&hash);
    for (size_t i = 0; i < snapshot->count; i++)
        if (snapshot->rows[i].table == TABLE_SETTINGS)
            hash_row(&hash, &snapshot->rows[i]);
    return hash_final(&hash);
}
