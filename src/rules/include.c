/* `include`: several files, read as one. The trees of all files become one document: its lists are those of all files, one
 * after the other, so that nothing but this file knows that there are several. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/err.h"
#include "rules/included.h"
#include "rules/reader.h"

struct document {
    const struct node *root;
    struct document *next;
};

struct includer {
    struct reader *r;
    struct included *included;
    struct file_version top; /* of the rules file; all zeros if it is not a file */
    struct document *first, **end;
    int lines; /* so far */
    size_t bytes;
    uint64_t weight;
    unsigned depth;
};

/* ---- files ---- */

void included_drop_texts(struct included *included)
{
    for (size_t i = 0; i < included->count; i++)
        buf_done(&included->list[i].text);
}

void included_done(struct included *included)
{
    if (!included)
        return;
    included_drop_texts(included);
    free(included->list);
    arena_done(&included->arena);
    *included = (struct included){ 0 };
}

static bool version_is_none(const struct file_version *version)
{
    return version->inode == 0;
}

enum files_state rules_files_look(const char *path, const struct file_version *version, const struct included *included)
{
    struct file_version now;
    if (!rules_file_version(path, &now))
        return FILES_GONE;
    bool changed = !file_version_same(&now, version), settled = !changed || file_version_settled(&now);
    for (size_t i = 0; i < included->count; i++) {
        const struct included_file *file = &included->list[i];
        bool there = rules_file_version(file->path.ptr, &now);
        if (there ? file_version_same(&now, &file->version) : version_is_none(&file->version))
            continue;
        changed = true;
        settled = settled && (!there || file_version_settled(&now));
    }
    return !changed ? FILES_SAME : settled ? FILES_CHANGED : FILES_SETTLING;
}

static struct included_file *add_file(struct includer *inc, sv path)
{
    struct included *included = inc->included;
    struct included_file *list = realloc(included->list, (included->count + 1) * sizeof *list);
    if (list)
        included->list = list;
    sv copy = arena_copy(&included->arena, path);
    if (!list || !copy.ptr) {
        inc->r->no_memory = true;
        return NULL;
    }
    list[included->count] = (struct included_file){ .path = copy, .lines_before = inc->lines };
    return &list[included->count++];
}

/* ---- errors ---- */

/* If anything is wrong with an `include`, rules may be missing, so the last good ones stay. */
static void include_error(struct includer *inc, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void include_error(struct includer *inc, int line, const char *format, ...)
{
    char text[1000];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    inc->r->report->unreadable = true;
    report_error(inc->r, line, "include: %s", text);
}

/* An error in an included file; `line` is the one in that file. */
static void document_error(struct includer *inc, const struct included_file *file, int line, const char *text)
{
    inc->r->report->unreadable = true;
    report_error(inc->r, file->lines_before + (line > 0 ? line : 1), "%s", text);
}

/* ---- reading files ---- */

static void read_includes(struct includer *inc, const struct node *root, sv path);

static bool is_known(const struct includer *inc, const struct included_file *file)
{
    const struct file_version *version = &file->version;
    if (version->inode == inc->top.inode && version->device == inc->top.device)
        return true;
    for (const struct included_file *f = inc->included->list; f < file; f++)
        if (f->version.inode == version->inode && f->version.device == version->device)
            return true;
    return false;
}

static int count_lines(sv text)
{
    int lines = 1;
    for (size_t i = 0; i < text.len; i++)
        lines += text.ptr[i] == '\n';
    return lines;
}

static bool add_document(struct includer *inc, const struct node *root)
{
    struct document *document = ARENA_NEW(inc->r->scratch, struct document);
    inc->weight += root->weight;
    if (!document) {
        inc->r->no_memory = true;
        return false;
    }
    *document = (struct document){ .root = root };
    *inc->end = document;
    inc->end = &document->next;
    return true;
}

static void read_document(struct includer *inc, size_t number)
{
    const struct included_file *file = &inc->included->list[number];
    const struct node *root = NULL;
    struct node_error error;
    if (node_read_at(buf_sv(&file->text), file->lines_before, inc->r->scratch, &root, &error) < 0) {
        inc->r->no_memory = inc->r->no_memory || error.no_memory;
        document_error(inc, file, error.line, error.text);
    } else if (!root || node_is_null(root)) {
        document_error(inc, file, 1, "is empty; to have no rules, write `rules: []`");
    } else if (root->kind != NODE_MAP) {
        document_error(inc, file, root->line - file->lines_before,
                       "must be a mapping with `rules`; put a list under `rules:`");
    } else if (add_document(inc, root)) {
        if (!node_get(root, SV("rules")) && !node_get(root, SV("overrides")) && !node_get(root, SV("include")))
            document_error(inc, file, root->line - file->lines_before,
                           "has no `rules`; to have no rules, write `rules: []`");
        read_includes(inc, root, file->path);
    }
}

/* `line`: of the `include` that names it. */
static void include_file(struct includer *inc, sv path, int line)
{
    struct weir_error error = { .code = WEIR_OK };
    struct included_file *file = add_file(inc, path);
    if (!file)
        return;
    buf_init(&file->text, RULES_BYTES_MAX - inc->bytes);
    int r = rules_file_read(file->path.ptr, &file->text, &file->version, &error);
    if (r == WEIR_E_RULES) {
        include_error(inc, line, "all files together are larger than %d MiB", RULES_BYTES_MAX >> 20);
    } else if (r < 0) {
        include_error(inc, line, "%s", error.text);
    } else if (is_known(inc, file)) {
        buf_done(&file->text);
        include_error(inc, line, "%.*s is included twice, or includes itself", SV_FMT(path));
    } else {
        inc->bytes += file->text.len;
        inc->lines += count_lines(buf_sv(&file->text));
        read_document(inc, inc->included->count - 1);
    }
}

static bool is_rules_file(const char *name)
{
    static const char *const ends[] = { ".yaml", ".yml", ".json" };
    size_t length = strlen(name);
    for (size_t i = 0; name[0] != '.' && i < sizeof ends / sizeof *ends; i++)
        if (length > strlen(ends[i]) && strcmp(name + length - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

static int choose(const struct dirent *entry)
{
    return is_rules_file(entry->d_name);
}

/* Not those of the locale: every host reads a folder in the same order. */
static int compare_entries(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static sv join(struct includer *inc, sv folder, sv name)
{
    CLEANUP(buf_done) struct buf path;
    buf_init(&path, 3 * RULE_PATH_MAX);
    buf_add(&path, folder);
    if (folder.len > 0 && folder.ptr[folder.len - 1] != '/')
        buf_char(&path, '/');
    buf_add(&path, name);
    sv copy = arena_copy(inc->r->scratch, buf_sv(&path));
    inc->r->no_memory = inc->r->no_memory || !copy.ptr;
    return path.failed ? sv_of(NULL, 0) : copy;
}

static bool has_room(struct includer *inc, int line)
{
    if (inc->r->no_memory)
        return false;
    if (inc->included->count < INCLUDED_MAX)
        return true;
    include_error(inc, line, "more than %d files", INCLUDED_MAX);
    return false;
}

/* The version is read before the content, so that the next look sees a change in between. */
static void include_folder(struct includer *inc, sv path, int line)
{
    struct included_file *folder = add_file(inc, path);
    struct dirent **entries;
    if (!folder)
        return;
    folder->is_folder = true;
    if (!rules_file_version(folder->path.ptr, &folder->version))
        folder->version = (struct file_version){ 0 };
    int count = scandir(path.ptr, &entries, choose, compare_entries);
    if (count < 0)
        include_error(inc, line, "%.*s: cannot be read: %s", SV_FMT(path), strerror(errno));
    for (int i = 0; i < count; i++) {
        sv name = join(inc, path, weir_str(entries[i]->d_name));
        struct stat st;
        bool is_folder = name.len > 0 && stat(name.ptr, &st) == 0 && S_ISDIR(st.st_mode);
        if (name.len > 0 && !is_folder && has_room(inc, line))
            include_file(inc, name, line);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
}

static void include_entry(struct includer *inc, const struct node *node, sv from)
{
    size_t before = path_field(inc->r, SV("include")), folder = from.len;
    bool good = check_text(inc->r, node, 1, RULE_PATH_MAX);
    path_end(inc->r, before);
    inc->r->report->unreadable = inc->r->report->unreadable || !good;
    if (!good || !has_room(inc, node->line))
        return;
    while (folder > 0 && from.ptr[folder - 1] != '/')
        folder--;
    if (node->text.ptr[0] == '/')
        folder = 0;
    sv path = join(inc, sv_of(from.ptr, folder), node->text);
    struct stat st;
    if (path.len == 0)
        include_error(inc, node->line, "the path is too long");
    else if (stat(path.ptr, &st) == 0 && S_ISDIR(st.st_mode))
        include_folder(inc, path, node->line);
    else
        include_file(inc, path, node->line);
    if (memchr(node->text.ptr, '*', node->text.len) && inc->r->report->unreadable)
        report_advice(inc->r, node->line, "include: a `*` stands for itself; write the folder alone for all its files");
}

static bool is_include(const struct node_item *item)
{
    return item->key->kind == NODE_SCALAR && sv_eq(item->key->text, SV("include"));
}

/* The field `include`; NULL: there is none. merge() takes all of them out, so a second one is reported here. */
static const struct node *find_include(struct includer *inc, const struct node *root)
{
    const struct node_item *first = NULL;
    for (const struct node_item *item = root->first; item; item = item->next) {
        if (is_include(item) && first)
            include_error(inc, item->key->line, "is given twice; the first is in line %d",
                          line_in_file(inc->r, first->key->line));
        else if (is_include(item))
            first = item;
    }
    return first ? first->value : NULL;
}

static void read_includes(struct includer *inc, const struct node *root, sv path)
{
    const struct node *node = find_include(inc, root);
    if (!node)
        return;
    if (inc->depth == INCLUDED_DEPTH_MAX) {
        include_error(inc, node->line, "files include files more than %d levels deep", INCLUDED_DEPTH_MAX);
        return;
    }
    inc->depth++;
    if (node->kind != NODE_LIST)
        include_entry(inc, node, path);
    else if (node->count == 0 || node->count > INCLUDED_ENTRIES_MAX)
        include_error(inc, node->line, "must have 1 to %d entries, not %u", INCLUDED_ENTRIES_MAX, node->count);
    else
        for (const struct node_item *item = node->first; item; item = item->next)
            include_entry(inc, item->value, path);
    inc->depth--;
}

/* ---- one document of many ---- */

/* A field of the whole, and the document that has it last. */
struct merged {
    const struct node *key;
    struct node *value;
    struct node_item **end; /* of a list */
    const struct document *document;
};

static bool append(struct includer *inc, struct merged *field, const struct node *list)
{
    for (const struct node_item *item = list->first; item; item = item->next) {
        struct node_item *copy = ARENA_NEW(inc->r->scratch, struct node_item);
        if (!copy)
            return false;
        copy->value = item->value;
        *field->end = copy;
        field->end = &copy->next;
        field->value->count++;
    }
    return true;
}

/* Lists of several files are one. A field that one file has twice stays there twice, for the error. */
static bool merge_field(struct includer *inc, struct merged *fields, size_t *count, const struct node_item *item,
                        const struct document *document)
{
    struct merged *field = fields;
    bool is_list = item->value->kind == NODE_LIST, text = item->key->kind == NODE_SCALAR;
    while (text && field < fields + *count && !(field->document != document && sv_eq(field->key->text, item->key->text)))
        field++;
    if (text && field < fields + *count && field->end && is_list) {
        field->document = document;
        return append(inc, field, item->value);
    }
    if (text && field < fields + *count) {
        inc->r->report->unreadable = true;
        if (field->end)
            report_error(inc->r, item->value->line, "%.*s: must be a list, not %s", SV_FMT(item->key->text),
                         shown_node(inc->r, item->value));
        else
            report_error(inc->r, item->key->line, "%.*s: only one file may have this field; it is in %s already",
                         SV_FMT(item->key->text), shown_line(inc->r, field->key->line, item->key->line));
        return true;
    }
    struct node *value = ARENA_NEW(inc->r->scratch, struct node);
    if (!value)
        return false;
    *value = *item->value;
    field = &fields[(*count)++];
    *field = (struct merged){ item->key, value, NULL, document };
    if (!is_list)
        return true;
    value->first = NULL;
    value->count = 0;
    field->end = &value->first;
    return append(inc, field, item->value);
}

static const struct node *merge(struct includer *inc, const struct node *root)
{
    struct arena *arena = inc->r->scratch;
    size_t most = 0, count = 0;
    for (const struct document *d = inc->first; d; d = d->next)
        most += d->root->count;
    struct merged *fields = ARENA_ARRAY(arena, struct merged, most);
    struct node *whole = ARENA_NEW(arena, struct node);
    struct node_item *items = ARENA_ARRAY(arena, struct node_item, most);
    bool good = fields && whole && items;
    for (const struct document *d = inc->first; d; d = d->next)
        for (const struct node_item *item = d->root->first; good && item; item = item->next)
            if (!is_include(item))
                good = merge_field(inc, fields, &count, item, d);
    if (!good) {
        inc->r->no_memory = true;
        return root;
    }
    *whole = (struct node){ .kind = NODE_MAP, .line = root->line, .count = (uint32_t)count };
    struct node_item **end = &whole->first;
    for (size_t i = 0; i < count; i++) {
        items[i] = (struct node_item){ .key = fields[i].key, .value = fields[i].value };
        *end = &items[i];
        end = &items[i].next;
    }
    return whole;
}

const struct node *read_included(struct reader *r, sv text, const struct node *root, struct included *included)
{
    if (root->kind != NODE_MAP || !node_get(root, SV("include")))
        return root;
    struct includer inc = { .r = r, .included = included, .lines = count_lines(text), .bytes = text.len };
    inc.end = &inc.first;
    if (!rules_file_version(included->top, &inc.top))
        inc.top = (struct file_version){ 0 };
    if (!add_document(&inc, root))
        return root;
    read_includes(&inc, root, weir_str(included->top));
    if (inc.weight > RULES_VALUES_MAX)
        include_error(&inc, 1, "more than %d values in all files together", RULES_VALUES_MAX);
    return merge(&inc, root);
}
