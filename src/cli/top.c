/* weir top: who is throttled by which rule, live. */
#include "cli/top.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/admin_client.h"
#include "cli/cli.h"
#include "cli/options.h"

enum {
    INTERVAL_DEFAULT_MS = 2000,
    MOST_DEFAULT = 20,
    MOST_MAX = 1000,
    FRAME_BYTES_MAX = 4 << 20,
};
#define MOST_NOT_GIVEN UINT32_MAX

#define AT(field) offsetof(struct top_options, field)

static const struct option options[] = {
    { "data", "DIR", OPTION_TEXT, AT(data), "the data folder of the service, for its token (default ./weir-data)" },
    { "admin", "ADDR", OPTION_TEXT, AT(admin),
      "the admin listener of the service, HOST:PORT, https://HOST:PORT or unix:PATH (default 127.0.0.1:8081)" },
    { "rule", "ID", OPTION_TEXT, AT(rule), "list only subjects that this rule refused" },
    { "interval", "TIME", OPTION_LENGTH, AT(interval_ms),
      "how often to ask the service, 1s to 1h (default 2s); a number without a unit is in seconds", .min = 1000,
      .max = 3600000, .bare = 1000 },
    { "most", "N", OPTION_NUMBER, AT(most),
      "how many subjects to list, 1 to 1000 (default 20, or as many as fit the screen)", .min = 1, .max = MOST_MAX },
    { "once", NULL, OPTION_FLAG, AT(once), "print once, as plain text, and exit" },
    { 0 },
};

static const struct command command = {
    .name = "top",
    .usage = "[OPTION]...",
    .text = "Shows which subjects are throttled by which rule, and the state of the service, until q is pressed. It asks a "
            "running 'weir serve'. If the output is not a terminal, it prints once.",
    .footer =
        "The list begins with the subjects that were refused most in the last 30 to 60 seconds (less after a start). A "
        "count such as 90-120 is a range: at least 90 and at most 120.\n\n"
        "The exit status is 0; 2 after an error, with --once also if the service does not answer.\n\n"
        "Examples:\n  weir top\n  weir top --data /var/lib/weir --rule login\n  weir top --once --most 5",
    .options = options,
};

/* ---- the screen ---- */

struct screen {
    struct termios was;
    bool changed; /* `was` is to be restored */
    int signal_fd;
    int keys_fd; /* -1: nobody types */
};

#define ENTER_SCREEN "\033[?1049h\033[?25l\033[?7l"
#define LEAVE_SCREEN "\033[?7h\033[?25h\033[?1049l"

static void put(sv text)
{
    fwrite(text.ptr, 1, text.len, stdout);
    fflush(stdout);
}

/* Switches to the alternate screen, without cursor and line wrapping; keys are read at once and not echoed. */
static void enter(struct screen *screen)
{
    if (screen->keys_fd >= 0 && tcgetattr(screen->keys_fd, &screen->was) == 0) {
        struct termios raw = screen->was;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        screen->changed = tcsetattr(screen->keys_fd, TCSANOW, &raw) == 0;
    }
    put(SV(ENTER_SCREEN));
}

static void leave(struct screen *screen)
{
    put(SV(LEAVE_SCREEN));
    if (screen->changed)
        tcsetattr(screen->keys_fd, TCSANOW, &screen->was);
    screen->changed = false;
}

/* Overwrites the previous frame line by line, and clears the rest of the screen. */
static void show(sv frame, unsigned rows)
{
    CLEANUP(buf_done) struct buf out;
    buf_init(&out, FRAME_BYTES_MAX);
    buf_add(&out, SV("\033[H"));
    for (unsigned row = 0; frame.len > 0 && row < rows; row++) {
        buf_add(&out, row ? SV("\r\n") : SV(""));
        buf_add(&out, sv_cut(&frame, '\n'));
        buf_add(&out, SV("\033[K"));
    }
    buf_add(&out, SV("\033[J"));
    put(buf_sv(&out));
}

/* ---- signals and keys ---- */

static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP };

static bool open_signals(struct screen *screen)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        sigaddset(&set, signals[i]);
    screen->signal_fd = sigprocmask(SIG_BLOCK, &set, NULL) < 0 ? -1 : signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return screen->signal_fd >= 0;
}

enum event { EVENT_TIME, EVENT_DRAW, EVENT_END };

static enum event take_signal(struct screen *screen)
{
    struct signalfd_siginfo info;
    if (read(screen->signal_fd, &info, sizeof info) != sizeof info)
        return EVENT_DRAW;
    if (info.ssi_signo == SIGWINCH)
        return EVENT_DRAW;
    if (info.ssi_signo != SIGTSTP)
        return EVENT_END;
    leave(screen);
    kill(getpid(), SIGSTOP);
    enter(screen);
    return EVENT_DRAW;
}

static enum event take_key(struct screen *screen)
{
    char key;
    ssize_t n = read(screen->keys_fd, &key, 1);
    if (n <= 0 && errno != EINTR && errno != EAGAIN)
        screen->keys_fd = -1;
    return n == 1 && (key == 'q' || key == 'Q') ? EVENT_END : EVENT_DRAW;
}

static enum event wait_until(struct screen *screen, int64_t end_us)
{
    int64_t left_ms = (end_us - clock_steady_us()) / US_PER_MS;
    struct pollfd fds[2] = { { .fd = screen->signal_fd, .events = POLLIN }, { .fd = screen->keys_fd, .events = POLLIN } };
    int n = left_ms > 0 ? poll(fds, 2, (int)left_ms) : 0;
    if (n > 0 && fds[0].revents)
        return take_signal(screen);
    if (n > 0 && fds[1].revents)
        return take_key(screen);
    return n == 0 ? EVENT_TIME : EVENT_DRAW;
}

/* ---- live ---- */

static unsigned most_of(const struct top_options *o, unsigned rows)
{
    unsigned room = top_room(rows) < MOST_MAX ? top_room(rows) : MOST_MAX;
    return o->most != MOST_NOT_GIVEN ? (unsigned)o->most : room;
}

static void watch(const struct top_options *o, struct screen *screen)
{
    CLEANUP(top_view_done) struct top_view view = { 0 };
    enum event event = EVENT_TIME;
    int64_t next_us = 0;
    while (event != EVENT_END) {
        struct term term = term_of(STDOUT_FILENO);
        CLEANUP(buf_done) struct buf frame;
        if (event == EVENT_TIME) {
            top_ask(&view, o, most_of(o, term.rows));
            next_us = clock_steady_us() + (int64_t)o->interval_ms * US_PER_MS;
        }
        buf_init(&frame, FRAME_BYTES_MAX);
        top_draw(&view, o, &term, term.rows, &frame);
        show(buf_sv(&frame), term.rows);
        event = wait_until(screen, next_us);
    }
}

static int run_live(const struct top_options *o)
{
    struct screen screen = { .keys_fd = isatty(STDIN_FILENO) ? STDIN_FILENO : -1 };
    struct weir_error error;
    if (top_find_token(o, &error) < 0)
        return cli_fail(&error);
    if (!open_signals(&screen))
        return cli_error("cannot listen for signals: %s", strerror(errno));
    enter(&screen);
    watch(o, &screen);
    leave(&screen);
    close(screen.signal_fd);
    return 0;
}

/* ---- once ---- */

static int run_once(const struct top_options *o)
{
    CLEANUP(top_view_done) struct top_view view = { 0 };
    struct term term = term_of(STDOUT_FILENO);
    unsigned most = o->most != MOST_NOT_GIVEN ? (unsigned)o->most : MOST_DEFAULT;
    if (!top_ask(&view, o, most))
        return cli_fail(&view.away);
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, FRAME_BYTES_MAX);
    term.color = false;
    top_draw(&view, o, &term, UINT32_MAX, &text);
    return cli_print(&text, 0);
}

/* Whether the output is a terminal that can be drawn on. */
static bool is_screen(void)
{
    const char *kind = getenv("TERM");
    return isatty(STDOUT_FILENO) && kind && kind[0] && strcmp(kind, "dumb") != 0;
}

int cli_top(int argc, char **argv)
{
    struct top_options o = {
        .data = "./weir-data", .admin = "127.0.0.1:8081", .interval_ms = INTERVAL_DEFAULT_MS, .most = MOST_NOT_GIVEN
    };
    size_t count;
    int status = options_read(&command, argc, argv, &o, &count);
    if (status >= 0)
        return status;
    if (count > 0)
        return options_error(&command, "unexpected argument '%s'", argv[0]);
    if (!client_is_address(o.admin))
        return options_error(
            &command,
            "--admin: '%s' is not an address; allowed: HOST:PORT (IPv6 in brackets), https://HOST:PORT or unix:PATH",
            o.admin);
    if (o.rule && (!o.rule[0] || strlen(o.rule) > WEIR_ID_MAX))
        return options_error(&command, "--rule: the id of a rule has 1 to %d bytes", WEIR_ID_MAX);
    return o.once || !is_screen() ? run_once(&o) : run_live(&o);
}
