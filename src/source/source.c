/* A source: its address, and the backend that knows where its rows live. */
#include "source/source.h"

#include <poll.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/hash.h"
#include "source/backend.h"

enum { VERSION_MAX = 64 << 10 };

int source_open(struct source **ret, const char *address, struct weir_error *error)
{
    struct source *source = calloc(1, sizeof *source);
    if (!source)
        return no_memory(error);
    int r = address_read(address, &source->address, error);
    if (r < 0) {
        free(source);
        return r;
    }
    source->backend = in_files(source) ? &file_backend : &table_backend;
    buf_init(&source->version, VERSION_MAX);
    buf_init(&source->file_text, RULES_BYTES_MAX);
    *ret = source;
    return 0;
}

void source_close(struct source *source)
{
    if (!source)
        return;
    sql_close(source->sql);
    buf_done(&source->version);
    buf_done(&source->file_text);
    included_done(&source->included);
    seen_done(&source->seen);
    address_done(&source->address);
    free(source);
}

const char *source_name(const struct source *source)
{
    return source->address.shown;
}

static void hash_version(struct hash *hash, const struct file_version *file)
{
    hash_word(hash, file->device);
    hash_word(hash, file->inode);
    hash_word(hash, file->bytes);
    hash_word(hash, (uint64_t)file->modified_ns);
    hash_word(hash, (uint64_t)file->changed_ns);
}

uint64_t source_seen(const struct source *source)
{
    static const struct hash_key key = { 0 };
    struct hash hash;
    hash_init(&hash, &key);
    hash_word(&hash, (uint64_t)source->changed << 1 | source->read_once);
    hash_text(&hash, source->version.ptr, source->version.len);
    hash_version(&hash, &source->file);
    for (size_t i = 0; i < source->included.count; i++)
        hash_version(&hash, &source->included.list[i].version);
    return hash_final(&hash);
}

bool source_is_file(const struct source *source)
{
    return in_files(source);
}

void source_drop_comments(struct source *source)
{
    source->drop_comments = true;
}

void source_set_terms(struct source *source, const struct source_terms *terms)
{
    source->terms = *terms;
}

int source_read(struct source *source, const struct rules *last, struct source_reading *ret, struct weir_error *error)
{
    return source->backend->read(source, last, true, ret, error);
}

int source_read_rules(struct source *source, const struct rules *last, struct source_reading *ret, struct weir_error *error)
{
    return source->backend->read(source, last, false, ret, error);
}

void source_problem_print(const struct source_problem *problem, struct buf *out)
{
    if (problem->table.len > 0)
        buf_printf(out, "%.*s: ", SV_FMT(problem->table));
    if (problem->row.len > 0)
        buf_printf(out, "%s%.*s: ", sv_starts(problem->row, SV("line ")) ? "" : "row ", SV_FMT(problem->row));
    if (problem->rule.len > 0 && !sv_starts(problem->text, SV("override of rule ")))
        buf_printf(out, "rule %.*s: ", SV_FMT(problem->rule));
    buf_printf(out, "%.*s\n", SV_FMT(problem->text));
}

int source_changed(struct source *source, bool *ret, struct weir_error *error)
{
    return source->backend->changed(source, ret, error);
}

int source_wait(struct source *source, int timeout_ms, int wake_fd, struct weir_error *error)
{
    return source->backend->wait(source, timeout_ms, wake_fd, error);
}

int source_init(struct source *source, struct buf *out, struct weir_error *error)
{
    return source->backend->init(source, out, error);
}
