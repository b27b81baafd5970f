/* weir cells: shows, checks, resizes and copies a table of counts. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/instant.h"
#include "cells/resize.h"
#include "cells/saved.h"
#include "cli/cli.h"
#include "cli/file_users.h"
#include "cli/options.h"
#include "slices/asks.h"

enum { CELLS_FINE = 0, CELLS_DAMAGED = 1, TEXT_MAX = 64 << 10 };

struct values {
    uint64_t keys, bytes;
    bool json, drop;
};

#define AT(field) offsetof(struct values, field)

static const struct option options[] = {
    { "keys", "N", OPTION_COUNT, AT(keys),
      "resize: so many keys (subjects of a limit) fit at a fill of 3/4; 48 bytes each: 1000000, 10m", .min = 1,
      .max = OPTION_CELLS_KEYS_MAX },
    { "bytes", "SIZE", OPTION_SIZE, AT(bytes),
      "resize: the bytes of the cells instead; the room for holds adds an eighth: 64m, 1g", .min = 1,
      .max = OPTION_CELLS_BYTES_MAX },
    { "drop", NULL, OPTION_FLAG, AT(drop), "resize: do it although some counts are lost; those at their limit go last" },
    { "json", NULL, OPTION_FLAG, AT(json), "show, check: print JSON, for programs" },
    { 0 },
};

static const struct command command = {
    .name = "cells",
    .usage = "VERB FILE [OPTION]...",
    .text = "Works on a cells file, the table of counts: the option --cells of other commands, cells in the data folder of "
            "weir "
            "serve, or the cells of nginx.\n\n"
            "  show FILE       print its size, how full it is, what was dropped, and which table it is\n"
            "  check FILE      look at every cell, and say which are damaged\n"
            "  resize FILE     give it another size, with --keys or --bytes, and keep the counts; no process may use it "
            "meanwhile\n"
            "  copy FILE TO    make a copy with an identity of its own; processes may go on counting",
    .footer =
        "The exit status is 0 for success; 1 if cells are damaged (check), or counts would be lost (resize); 2 after an "
        "error.\n\nExamples:\n  weir cells show weir-data/cells\n  weir cells resize weir-data/cells --keys 10m",
    .options = options,
};

/* A table that is open. */
struct table {
    const char *name; /* as it was given */
    char path[PATH_MAX];
    struct stat file;
    int fd;
    struct cells *cells;
};

static void close_table(struct table *t)
{
    cells_close(t->cells);
    if (t->fd >= 0)
        close(t->fd);
}

static int open_table(const char *name, struct table *ret)
{
    struct weir_error error = { 0 };
    *ret = (struct table){ .name = name, .fd = -1 };
    if (!realpath(name, ret->path)) {
        struct stat link;
        bool dangles = errno == ENOENT && lstat(name, &link) == 0;
        return cli_error(
            "%s: %s%s", name, strerror(errno),
            dangles ? "; it is a link to a file that is not there: if a reboot has removed the table in memory of a weir "
                      "serve, start it, and it reads the saved counts back"
                    : "");
    }
    ret->fd = open(ret->path, O_RDWR | O_CLOEXEC);
    if (ret->fd < 0 || fstat(ret->fd, &ret->file) < 0)
        return cli_error("%s: cannot be opened for reading and writing: %s", name, strerror(errno));
    if (cells_open(&ret->cells, ret->path, (struct cells_size){ 0 }, &error) < 0)
        return cli_fail(&error);
    /* Only the first who opens a copy learns of it. */
    if (cells_copied(ret->cells))
        lender_status_note_copy(ret->cells);
    cli_warn_copied(cells_copied(ret->cells), name);
    return -1;
}

/* ---- show and check ---- */

static uint64_t percent(uint64_t part, uint64_t whole)
{
    return whole ? (uint64_t)((unsigned __int128)part * 100 / whole) : 0;
}

static void print_facts(const struct table *t, const struct cells_facts *f, struct buf *out)
{
    struct cells_stats stats = cells_stats(t->cells);
    char made[INSTANT_TEXT_MAX];
    instant_text(f->made_us / US_PER_S * US_PER_S, made);
    buf_printf(out, "%s\n", t->name);
    if (strcmp(t->path, t->name) != 0)
        buf_printf(out, "  file        %s\n", t->path);
    buf_printf(out, "  size        %" PRIu64 " keys at a fill of 3/4, %" PRIu64 " bytes\n", f->keys, f->bytes);
    buf_printf(out,
               "  in use      %" PRIu64 " cells, %" PRIu64 " %% of these keys; %" PRIu64 " at their limit, %" PRIu64
               " with holds\n",
               f->live, percent(f->live, f->keys), f->full, f->held);
    buf_printf(out, "  dropped     %" PRIu64 " since it was made, %" PRIu64 " of them at their limit%s\n", stats.drops,
               stats.drops_at_limit, stats.drops_at_limit ? ": the table is too small" : "");
    buf_printf(out, "  layout      %u\n", (unsigned)f->layout);
    buf_printf(out, "  identity    %016" PRIx64 "%s\n", cells_host(t->cells),
               cells_identity(t->cells) ? ", of a copy" : "");
    buf_printf(out, "  made        %s\n", made);
}

static void print_json(const struct table *t, const struct cells_facts *f, bool checked, struct buf *out)
{
    struct cells_stats stats = cells_stats(t->cells);
    buf_add(out, SV("{\"file\":"));
    buf_json(out, weir_str(t->path));
    buf_printf(out,
               ",\"keys\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"live\":%" PRIu64 ",\"at_limit\":%" PRIu64 ",\"held\":%" PRIu64
               ",\"drops\":%" PRIu64 ",\"drops_at_limit\":%" PRIu64 ",\"layout\":%u,\"identity\":\"%016" PRIx64
               "\",\"copy\":%s",
               f->keys, f->bytes, f->live, f->full, f->held, stats.drops, stats.drops_at_limit, (unsigned)f->layout,
               cells_host(t->cells), cells_identity(t->cells) ? "true" : "false");
    if (checked)
        buf_printf(out, ",\"damaged\":%" PRIu64 ",\"damaged_holds\":%" PRIu64 ",\"misplaced\":%" PRIu64, f->torn, f->lost,
                   f->misplaced);
    buf_add(out, SV("}\n"));
}

static int show(struct table *t, const struct values *o, bool check)
{
    CLEANUP(buf_done) struct buf out;
    struct cells_facts facts;
    buf_init(&out, TEXT_MAX);
    cells_survey(t->cells, clock_now_us(), check, &facts);
    uint64_t damaged = facts.torn + facts.lost + facts.misplaced;
    if (o->json)
        print_json(t, &facts, check, &out);
    else if (!check)
        print_facts(t, &facts, &out);
    else if (damaged == 0)
        buf_printf(&out, "%s: the header and all cells are good; %" PRIu64 " cells in use\n", t->name, facts.live);
    else
        buf_printf(&out,
                   "%s: the header is good; %" PRIu64 " cells are damaged, %" PRIu64 " have damaged holds, %" PRIu64
                   " are where no key finds them; they count as empty, and weir uses them again; %" PRIu64
                   " good cells in use\n",
                   t->name, facts.torn, facts.lost, facts.misplaced, facts.live);
    return cli_print(&out, check && damaged > 0 ? CELLS_DAMAGED : CELLS_FINE);
}

/* ---- resize ---- */

/* Counts that are made while the table is replaced are lost. A process that keeps the old file counts alone. And a table
 * that has taken the place of this one has counts of its own. */
static int check_unused(const struct table *t, bool again)
{
    CLEANUP(buf_done) struct buf users;
    struct stat now;
    size_t unseen;
    buf_init(&users, TEXT_MAX);
    if (stat(t->path, &now) < 0 || now.st_ino != t->file.st_ino || now.st_dev != t->file.st_dev)
        return cli_error("%s: was replaced meanwhile; nothing was changed; look at the new table first", t->name);
    if (file_users(t->path, &t->file, &users, &unseen) > 0)
        return cli_error(
            "%s: in use by %.*s; stop weir serve, nginx and other programs that count in it, resize it, and start "
            "them again",
            t->name, SV_FMT(buf_sv(&users)));
    if (flock(t->fd, LOCK_EX | LOCK_NB) < 0)
        return cli_error("%s: in use by a weir serve; stop it, resize the table, and start it again", t->name);
    if (unseen > 0 && !again)
        cli_error("%s: cannot look at all processes of this host; make sure that none of them uses the table", t->name);
    return -1;
}

/* weir serve keeps a saved copy of a table in memory beside the link to it: it must have the new size after a reboot, too.
 */
static int save_again(const char *name, const char *path, struct weir_error *error)
{
    char saved[PATH_MAX];
    struct stat link;
    struct cells *cells = NULL;
    struct cells_saver *saver = NULL;
    if (lstat(name, &link) < 0 || !S_ISLNK(link.st_mode) ||
        snprintf(saved, sizeof saved, "%s.saved", name) >= (int)sizeof saved || access(saved, F_OK) < 0)
        return 0;
    CLEANUP_CLOSE int fd = open(path, O_RDWR | O_CLOEXEC);
    int r = fd < 0 ? err_set(error, WEIR_E_SYSTEM, "%s: %s", path, strerror(errno))
                   : cells_open(&cells, path, (struct cells_size){ 0 }, error);
    if (r == 0)
        r = cells_saver_new(&saver, cells, fd, saved, error);
    if (r == 0)
        r = cells_save_all(saver, clock_now_us(), error);
    cells_saver_free(saver);
    cells_close(cells);
    return r;
}

static int would_lose(const struct table *t, const struct cells_resized *done)
{
    if (done->lost_keys > 0)
        cli_error("%s: the old table is too small to tell which keys %" PRIu64 " of its %" PRIu64
                  " counts belong to; nothing was changed; choose another size, wait until counts have expired, or lose "
                  "them with --drop",
                  t->name, done->lost_keys, done->lost + done->kept);
    else
        cli_error("%s: %" PRIu64 " of %" PRIu64 " counts have no place in a table of this size, %" PRIu64
                  " of them at their limit; nothing was changed; choose a larger size, wait until counts have expired, or "
                  "lose them with --drop",
                  t->name, done->lost, done->lost + done->kept, done->lost_full);
    return CELLS_DAMAGED;
}

static int resize(struct table *t, const struct values *o)
{
    struct weir_error error = { 0 };
    struct cells_resized done;
    char fresh[PATH_MAX];
    struct cells_remake how = { .size = { o->keys, o->bytes }, .drop = o->drop };
    if (!o->keys == !o->bytes)
        return options_error(&command, "resize needs the new size: either --keys N or --bytes SIZE");
    int status = check_unused(t, false);
    if (status >= 0)
        return status;
    if (snprintf(fresh, sizeof fresh, "%s.resize", t->path) >= (int)sizeof fresh)
        return cli_error("%s: the path is too long", t->name);
    unlink(fresh); /* of a process that was killed just before it was renamed */
    if (cells_remake(t->cells, t->fd, fresh, &how, clock_now_us(), &done, &error) < 0)
        return done.lost > 0 ? would_lose(t, &done) : cli_fail(&error);
    status = check_unused(t, true); /* making the new one may have taken minutes */
    if (status >= 0) {
        unlink(fresh);
        return status;
    }
    struct stat made;
    if (lstat(fresh, &made) < 0 || made.st_uid != t->file.st_uid || made.st_gid != t->file.st_gid) {
        unlink(fresh);
        return cli_error(
            "%s: the new table cannot have the owner and group of the old one; nothing was changed; resize it as "
            "its owner or as root",
            t->name);
    }
    if (rename(fresh, t->path) < 0) {
        cli_error("%s: cannot be replaced: %s; nothing was changed", t->name, strerror(errno));
        unlink(fresh);
        return EXIT_BAD;
    }
    if (save_again(t->name, t->path, &error) < 0)
        return cli_fail(&error);
    printf("%s: %" PRIu64 " counts kept, %" PRIu64 " lost\n", t->name, done.kept, done.lost);
    return CELLS_FINE;
}

static int copy(struct table *t, const char *to)
{
    struct weir_error error = { 0 };
    struct cells_resized done;
    struct cells_remake how = { .copy = true, .drop = true, .note = lender_status_note_copy };
    if (cells_remake(t->cells, t->fd, to, &how, clock_now_us(), &done, &error) < 0)
        return cli_fail(&error);
    printf("%s: a copy of %s with %" PRIu64 " counts; it is the table of another host\n", to, t->name, done.kept);
    if (done.lost > 0)
        cli_error("%s: %" PRIu64 " counts had no place in the copy, and are missing there", to, done.lost);
    return CELLS_FINE;
}

/* ---- the command ---- */

static int check_given(const char *verb, const struct values *o)
{
    bool resizes = strcmp(verb, "resize") == 0, looks = strcmp(verb, "show") == 0 || strcmp(verb, "check") == 0;
    if (!resizes && (o->keys || o->bytes || o->drop))
        return options_error(&command, "--%s cannot be used with %s", o->keys ? "keys" : o->bytes ? "bytes" : "drop", verb);
    if (!looks && o->json)
        return options_error(&command, "--json cannot be used with %s", verb);
    return -1;
}

int cli_cells(int argc, char **argv)
{
    static const char *const verbs[] = { "show", "check", "resize", "copy", NULL };
    struct values o = { 0 };
    struct table table;
    size_t count;
    int status = options_read(&command, argc, argv, &o, &count);
    if (status >= 0)
        return status;
    const char *verb = count ? argv[0] : "";
    bool copies = strcmp(verb, "copy") == 0, resizes = strcmp(verb, "resize") == 0, checks = strcmp(verb, "check") == 0;
    if (!copies && !resizes && !checks && strcmp(verb, "show") != 0)
        return count ? options_unknown(&command, "verb", verb, verbs)
                     : options_error(&command, "say what to do: show, check, resize or copy");
    if (count != (copies ? 3 : 2))
        return options_error(&command, copies ? "copy takes FILE and TO" : "%s takes one FILE", verb);
    status = check_given(verb, &o);
    if (status < 0)
        status = open_table(argv[1], &table);
    else
        return status;
    if (status < 0)
        status = resizes ? resize(&table, &o) : copies ? copy(&table, argv[2]) : show(&table, &o, checks);
    close_table(&table);
    return status;
}
