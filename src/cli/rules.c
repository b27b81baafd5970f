/* weir rules: shows and changes the rules of a source. This file finds the verb, checks its options and opens the source.
 */
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "cli/admin_client.h"
#include "cli/cli.h"
#include "cli/plain_text.h"
#include "cli/rules_cmd.h"

enum { WHO_MAX = 200 };

#define AT(field) offsetof(struct rules_options, field)

static const struct option options[] = {
    { "from", "ADDRESS", OPTION_TEXT, AT(from),
      "where the rules are (default: $WEIR_FROM): file:rules.yaml, sqlite:PATH, mysql://USER@HOST:PORT/DB or "
      "postgres://USER@HOST/DB. Put passwords into $WEIR_DB_PASSWORD, ~/.my.cnf or ~/.pgpass" },
    { "json", NULL, OPTION_FLAG, AT(json), "print JSON, for programs (list, show, override, history, export, penalties)" },
    { "author", "WHO", OPTION_TEXT, AT(author), "who makes the change, for the history (default: your login and host)" },
    { "note", "TEXT", OPTION_TEXT, AT(note), "why the change is made, for the history" },
    { "replace", NULL, OPTION_FLAG, AT(replace),
      "add: replace an existing rule with the same id; import: remove what is not in FILE" },
    { "by", "ATTRIBUTE", OPTION_TEXT, AT(by),
      "throttle: count for each value of user (default), ip, key or another attribute, of several joined by commas "
      "(ip,path), or 'all': all callers together" },
    { "row", NULL, OPTION_FLAG, AT(row), "throttle: write a row of THROTTLED_CALLS, which is a fixed window by user" },
    { "expires", "TIME", OPTION_TEXT, AT(expires),
      "throttle, override: when it expires, in RFC 3339, or seconds (from 10^11 on: milliseconds) since 1970 (default: "
      "never)" },
    { "for", "TIME", OPTION_LENGTH, AT(for_ms),
      "throttle, override: it expires after this time: 30m, 2h, 7d; up to 3650d. penalise: how long it lasts, 1s to 31d",
      .min = 1, .max = LIMIT_PER_MAX_US / US_PER_MS },
    { "limit", "LIMIT", OPTION_LIST, AT(limits),
      "override: a limit of the subject, such as \"50000 per minute\" or '{ name: day, calendar: day, max: 9 }'; may be "
      "repeated" },
    { "deny", NULL, OPTION_FLAG, AT(deny), "override: refuse every request of the subject" },
    { "unlimited", NULL, OPTION_FLAG, AT(unlimited), "override: the rule does not limit the subject" },
    { "why", "TEXT", OPTION_TEXT, AT(why), "override: the reason, which is stored with it" },
    { "remove", NULL, OPTION_FLAG, AT(remove), "override: remove it" },
    { "most", "N", OPTION_NUMBER, AT(most), "history: how many changes to list (default 20)", .min = 1 },
    { "change", "N", OPTION_NUMBER, AT(change), "undo: the number of the change in the history (default: the newest)",
      .min = 1 },
    { "admin", "ADDR", OPTION_TEXT, AT(admin),
      "penalties, penalise, lift: the admin listener of the service, HOST:PORT, https://HOST:PORT or unix:PATH (default "
      "127.0.0.1:8081)" },
    { "data", "DIR", OPTION_TEXT, AT(data),
      "penalties, penalise, lift: the data folder of the service, for its token (default ./weir-data)" },
    { "drop-comments", NULL, OPTION_FLAG, AT(drop_comments),
      "allow changing a file that has comments: the file is rewritten without them" },
    { 0 },
};

static const struct command command = {
    .name = "rules",
    .usage = "VERB [WORD]... --from ADDRESS [OPTION]...",
    .text =
        "Shows the rules of a database or a file, and changes them there. Processes that follow the source (weir sync, "
        "and every enforcer that reads its file) apply a change within their poll interval. A database keeps a history of "
        "the "
        "changes, and each can be undone.\n\n"
        "  init             create missing tables\n"
        "  list             list all rules, settings, and invalid rows\n"
        "  show ID          print one rule as YAML, and who changed it last\n"
        "  throttle CALL N per LENGTH   "
        "limit a call for each user, or --by another attribute: throttle \"GET /entity/#\" 10 per 60s --by ip\n"
        "  add RULE         add a rule: a FILE (-: stdin) with one rule in YAML or JSON, or the rule itself: '{ id: ... "
        "}'\n"
        "  set ID FIELD=VALUE\n"
        "                   change one field: max=20, limits.day.max=20, mode=shadow, plans.free='[\"100 per minute\"]'\n"
        "  disable ID...    disable rules, and keep them and their modes\n"
        "  enable ID...     enable them again\n"
        "  rm ID...         remove rules\n"
        "  override [RULE [SUBJECT...]]\n"
        "                   give one subject of a rule other limits, with --limit, --deny or --unlimited; with --remove, "
        "remove them; without these, list overrides. SUBJECT is one argument for each value that the rule counts by\n"
        "  history [ID]     list changes, newest first\n"
        "  undo [ID]        undo the newest change (of a rule), or --change N\n"
        "  import FILE      add or change all rules, settings and overrides of a rules file\n"
        "  export           print all rules, settings and overrides as a rules file\n"
        "  penalties [RULE]\n"
        "                   list the subjects that are penalised; asks a running 'weir serve', not the source\n"
        "  penalise RULE SUBJECT...\n"
        "                   penalise a subject of a rule that has penalties, --for some time, at a running 'weir serve'\n"
        "  lift RULE SUBJECT...\n"
        "                   lift the penalty of a subject, at a running 'weir serve'",
    .footer = "The exit status is 0 for success; 1 if the source has invalid rows (list, show, override, export), or "
              "nothing was found "
              "or changed; 2 after an error.\n\n"
              "Example:\n  weir rules throttle 'GET /entity/#' 10 per 60s --by ip --from sqlite:rules.db",
    .options = options,
};

/* Options that only some verbs take. */
enum {
    JSON = 1,
    AUTHOR = 2,
    REPLACE = 4,
    UNTIL = 8,
    MOST = 16,
    CHANGE = 32,
    OVERRIDE = 64,
    SERVICE = 128,
    BY = 256,
    FOR = 512,
    NAME = 1024
};

static const struct verb {
    const char *name;
    int (*run)(struct rules_call *call);
    size_t words_min, words_max;
    const char *words; /* as --help has them */
    unsigned takes;
} verbs[] = {
    { "init", rules_init, 0, 0, "", 0 },
    { "list", rules_list, 0, 0, "", JSON },
    { "show", rules_show, 1, 1, "ID", JSON },
    { "throttle", rules_throttle, 2, 8, "CALL N per LENGTH", AUTHOR | UNTIL | BY },
    { "add", rules_add, 1, 1, "RULE", AUTHOR | REPLACE },
    { "set", rules_set, 2, 2, "ID FIELD=VALUE", AUTHOR },
    { "disable", rules_disable, 1, SIZE_MAX, "ID...", AUTHOR },
    { "enable", rules_enable, 1, SIZE_MAX, "ID...", AUTHOR },
    { "rm", rules_remove, 1, SIZE_MAX, "ID...", AUTHOR },
    { "override", rules_override, 0, SIZE_MAX, "[RULE [SUBJECT...]]", JSON | AUTHOR | UNTIL | OVERRIDE },
    { "history", rules_history, 0, 1, "[ID]", JSON | MOST },
    { "undo", rules_undo, 0, 1, "[ID]", AUTHOR | CHANGE },
    { "import", rules_import, 1, 1, "FILE", AUTHOR | REPLACE },
    { "export", rules_export, 0, 0, "", JSON },
    { "penalties", rules_penalties, 0, 1, "[RULE]", JSON | SERVICE },
    { "penalise", rules_penalise, 1, 1 + RULE_BY_MAX, "RULE SUBJECT...", SERVICE | NAME | FOR },
    { "lift", rules_lift, 1, 1 + RULE_BY_MAX, "RULE SUBJECT...", SERVICE | NAME },
};

enum { VERBS = sizeof verbs / sizeof verbs[0] };

static const struct verb *find_verb(const char *name)
{
    for (size_t i = 0; i < VERBS; i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

/* An option that has no effect with this verb is an error. */
static int check_taken(const struct verb *verb, const struct rules_options *o)
{
    const struct {
        const char *name;
        bool given;
        unsigned flag;
    } given[] = {
        { "json", o->json, JSON },
        { "author", o->author, AUTHOR | NAME },
        { "row", o->row, BY },
        { "note", o->note, AUTHOR },
        { "replace", o->replace, REPLACE },
        { "for", o->for_ms, UNTIL | FOR },
        { "expires", o->expires, UNTIL },
        { "limit", o->limits.count > 0, OVERRIDE },
        { "deny", o->deny, OVERRIDE },
        { "unlimited", o->unlimited, OVERRIDE },
        { "why", o->why, OVERRIDE },
        { "remove", o->remove, OVERRIDE },
        { "most", o->most > 0, MOST },
        { "change", o->change > 0, CHANGE },
        { "drop-comments", o->drop_comments, AUTHOR },
        { "admin", o->admin, SERVICE },
        { "data", o->data, SERVICE },
    };
    /* --by was the author in earlier versions. */
    if (o->by && !(verb->takes & BY))
        return options_error(&command, "--by cannot be used with %s: only throttle takes it, and counts by it%s%s",
                             verb->name, verb->takes & (AUTHOR | NAME) ? "; who makes the change is --author " : "",
                             verb->takes & (AUTHOR | NAME) ? o->by : "");
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++)
        if (given[i].given && !(verb->takes & given[i].flag))
            return options_error(&command, "--%s cannot be used with %s", given[i].name, verb->name);
    if (o->admin && !client_is_address(o->admin))
        return options_error(&command, "--admin must be HOST:PORT, https://HOST:PORT or unix:PATH, not '%s'", o->admin);
    if (o->for_ms && o->expires)
        return options_error(&command, "--for and --expires cannot be combined; leave out one");
    return -1;
}

static int check_words(const struct verb *verb, char **words, size_t count)
{
    if (count < verb->words_min)
        return options_error(&command, "%s needs %s", verb->name, verb->words);
    if (count > verb->words_max) {
        plain_hide_password(words[verb->words_max]);
        return options_error(&command, "%s takes %s; unexpected argument '%s'", verb->name,
                             verb->words_max ? verb->words : "no arguments", words[verb->words_max]);
    }
    return -1;
}

/* "ann@host": the login name, with sudo as well. */
static void write_author(char out[WHO_MAX])
{
    char login[80] = "", host[80] = "";
    const struct passwd *entry = getlogin_r(login, sizeof login) == 0 && login[0] ? NULL : getpwuid(getuid());
    if (entry)
        snprintf(login, sizeof login, "%s", entry->pw_name);
    else if (!login[0])
        snprintf(login, sizeof login, "%u", (unsigned)getuid());
    if (gethostname(host, sizeof host) < 0 || !host[0])
        snprintf(host, sizeof host, "localhost");
    host[sizeof host - 1] = 0;
    snprintf(out, WHO_MAX, "%s@%s", login, host);
}

static int run_verb(const struct verb *verb, struct rules_call *call, const char *from)
{
    struct weir_error error = { 0 };
    char who[WHO_MAX];
    if (call->options->author && sv_trim(weir_str(call->options->author)).len == 0)
        return options_error(&command, "--author: empty; it says who makes the change, or is left out");
    write_author(who);
    call->author = (struct source_author){ weir_str(call->options->author ? call->options->author : who),
                                           weir_str(call->options->note) };
    if (verb->takes & SERVICE)
        return verb->run(call);
    if (source_open(&call->source, from, &error) < 0)
        return cli_fail(&error);
    if (call->options->drop_comments)
        source_drop_comments(call->source);
    int status = verb->run(call);
    source_close(call->source);
    return status;
}

static int unknown_verb(char *name)
{
    const char *names[VERBS + 1] = { NULL };
    for (size_t i = 0; i < VERBS; i++)
        names[i] = verbs[i].name;
    plain_hide_password(name);
    return options_unknown(&command, "verb", name, names);
}

static int no_verb(void)
{
    CLEANUP(buf_done) struct buf names;
    buf_init(&names, 1000);
    for (size_t i = 0; i < VERBS; i++)
        buf_printf(&names, "%s%s", i ? ", " : "", verbs[i].name);
    return options_error(&command, "VERB is required: %.*s", SV_FMT(buf_sv(&names)));
}

/* Returns -1 to go on, or the exit status. */
static int check(const struct verb *verb, char **argv, size_t count, const struct rules_options *o, const char *from)
{
    if (count == 0)
        return no_verb();
    if (!verb)
        return unknown_verb(argv[0]);
    int status = check_words(verb, argv + 1, count - 1);
    if (status < 0)
        status = check_taken(verb, o);
    if (status < 0 && !(verb->takes & SERVICE) && !from[0])
        status = options_error(&command, "--from ADDRESS (or $WEIR_FROM) is required, such as sqlite:rules.db");
    return status;
}

int cli_rules(int argc, char **argv)
{
    struct rules_options o = { 0 };
    size_t count;
    int status = options_read(&command, argc, argv, &o, &count);
    if (status >= 0)
        return status;
    CLEANUP_FREE char *from = plain_address(o.from);
    if (!from)
        return cli_error("out of memory");
    const struct verb *verb = count ? find_verb(argv[0]) : NULL;
    status = check(verb, argv, count, &o, from);
    if (status >= 0)
        return status;
    CHECK(verb);
    o.admin = o.admin ? o.admin : "127.0.0.1:8081";
    o.data = o.data ? o.data : "./weir-data";
    struct rules_call call = { .command = &command, .options = &o, .words = argv + 1, .word_count = count - 1 };
    return run_verb(verb, &call, from);
}
