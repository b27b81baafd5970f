/* An HTTP server with limits, on libmicrohttpd.
 *
 *     cc -o server server.c $(pkg-config --cflags --libs weir libmicrohttpd)
 *     ./server --port 8000 --rules rules.yaml
 *
 *     curl -i -H 'X-User: ann' http://127.0.0.1:8000/notes        10 a minute for each user
 *     curl -i -H 'X-User: ann' -X POST http://127.0.0.1:8000/ocr  3 an hour for each user, by WEIR_DETECT
 *     curl -i http://127.0.0.1:8000/                              anything: 60 a minute for each address
 *
 * It believes X-User. A real server would take the user from its session, or from a token that it has checked. */
#include <arpa/inet.h>
#include <err.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

enum { HEADERS_MAX = 64, THREADS = 4, WATCH_MS = 200 };

static struct weir *weir;

/* ---- what weir asks and tells ---- */

/* The user of a request, asked only if a rule wants it. The context is what we gave along in ask(). */
static size_t user_id(const struct weir_request *request, char *buf, size_t cap, void *data)
{
    (void)data;
    const char *user = MHD_lookup_connection_value(request->context, MHD_HEADER_KIND, "X-User");
    size_t len = user ? strlen(user) : 0;
    if (len > cap)
        len = cap;
    if (len > 0)
        memcpy(buf, user, len);
    return len;
}

/* Our own words for a refusal. They are used before this thread refuses again, so that one buffer for each will do. */
static void refuse(const struct weir_request *request, const struct weir_verdict *verdict, struct weir_refusal *refusal,
                   void *data)
{
    static _Thread_local char body[100];
    (void)request, (void)data;
    snprintf(body, sizeof body, "{\"error\":\"slow down\",\"wait_ms\":%lld}\n", (long long)verdict->retry_after_ms);
    refusal->body = weir_str(body);
    refusal->content_type = weir_str("application/json");
}

static void on_rules(const struct weir_error *error, void *data)
{
    (void)data;
    fprintf(stderr, "%s\n", error->code ? error->text : "new rules are in force");
}

/* ---- what is asked of weir ---- */

/* The headers of a request. weir looks at X-Forwarded-For if the rules trust a proxy, and at what rules match or count by:
 * it has to get all of them, or a client could hide one behind many others. */
struct headers {
    struct weir_header all[HEADERS_MAX];
    size_t count;
};

static enum MHD_Result add_header(void *to, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct headers *headers = to;
    (void)kind;
    headers->all[headers->count++] = (struct weir_header){ weir_str(name), weir_str(value) };
    return MHD_YES;
}

static bool too_many_headers(struct MHD_Connection *connection)
{
    return MHD_get_connection_values(connection, MHD_HEADER_KIND, NULL, NULL) > HEADERS_MAX;
}

static void peer_text(struct MHD_Connection *connection, char *buf, size_t cap)
{
    const struct sockaddr_in *peer =
        (const void *)MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
    if (!inet_ntop(AF_INET, &peer->sin_addr, buf, (socklen_t)cap))
        buf[0] = '\0';
}

/* May this request go through? */
static void ask(struct MHD_Connection *connection, const char *method, const char *path, struct weir_request *request,
                struct weir_verdict *verdict)
{
    static _Thread_local struct headers headers;
    static _Thread_local struct weir_usage usage;
    static _Thread_local char peer[INET_ADDRSTRLEN];
    headers.count = 0;
    MHD_get_connection_values(connection, MHD_HEADER_KIND, add_header, &headers);
    peer_text(connection, peer, sizeof peer);
    *request = (struct weir_request){
        .method = weir_str(method),
        .path = weir_str(path),
        .host = weir_str(MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host")),
        .peer = weir_str(peer),
        .headers = headers.all,
        .header_count = headers.count,
        .cost = 1,
        .context = connection,
        .usage = &usage,
    };
    weir_check(weir, request, weir_now_us(), verdict);
}

/* ---- answers ---- */

/* Names and values of weir's headers end in NUL only by chance: they are copied. */
static void put_headers(struct MHD_Response *response, const struct weir_header *headers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char name[200], value[WEIR_HEADER_VALUE_MAX];
        snprintf(name, sizeof name, "%.*s", (int)headers[i].name.len, headers[i].name.ptr);
        snprintf(value, sizeof value, "%.*s", (int)headers[i].value.len, headers[i].value.ptr);
        MHD_add_response_header(response, name, value);
    }
}

static enum MHD_Result send_and_free(struct MHD_Connection *connection, unsigned status, struct MHD_Response *response)
{
    enum MHD_Result sent = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return sent;
}

/* With the standard headers, if it was judged: clients see how much is left before they are refused. */
static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, const char *text,
                              const struct weir_request *request, const struct weir_verdict *verdict)
{
    struct weir_headers headers = { .count = 0 };
    struct MHD_Response *response = MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_MUST_COPY);
    if (verdict)
        weir_headers(weir, request, verdict, WEIR_HEADERS_SETTING, &headers);
    put_headers(response, headers.header, headers.count);
    return send_and_free(connection, status, response);
}

/* The refusal with the status that its rule wants, the standard headers, and our own body. */
static enum MHD_Result answer_refused(struct MHD_Connection *connection, const struct weir_request *request,
                                      const struct weir_verdict *verdict)
{
    struct weir_refusal refusal;
    if (weir_refuse(weir, request, verdict, &refusal) < 0)
        return MHD_NO;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(refusal.body.len, (void *)refusal.body.ptr, MHD_RESPMEM_MUST_COPY);
    put_headers(response, &(struct weir_header){ WEIR_STR("Content-Type"), refusal.content_type }, 1);
    put_headers(response, refusal.headers, refusal.header_count);
    return send_and_free(connection, refusal.status, response);
}

/* ---- what the server does ---- */

/* Something costly, for known users only. The guard stands beside it, whatever the request was limited by before. */
static enum MHD_Result ocr(struct MHD_Connection *connection, const struct weir_request *request,
                           const struct weir_verdict *verdict)
{
    const char *user = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "X-User");
    if (!user || !*user)
        return answer(connection, MHD_HTTP_UNAUTHORIZED, "who are you? say it in X-User\n", request, verdict);
    WEIR_DETECT(weir, "ocr", user) {
        return answer(connection, MHD_HTTP_OK, "the text of your image\n", NULL, weir_last(NULL));
    } else {
        return answer_refused(connection, request, weir_last(NULL));
    }
}

static enum MHD_Result handle(void *data, struct MHD_Connection *connection, const char *path, const char *method,
                              const char *version, const char *upload, size_t *upload_size, void **state)
{
    (void)data, (void)version, (void)upload;
    /* Called with the headers first, then with each piece of a body, and at last with nothing more. */
    static char begun;
    if (!*state) {
        *state = &begun;
        return MHD_YES;
    }
    if (*upload_size > 0) {
        *upload_size = 0;
        return MHD_YES;
    }
    if (too_many_headers(connection))
        return answer(connection, MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE, "too many headers: send fewer\n", NULL, NULL);
    struct weir_request request;
    struct weir_verdict verdict;
    ask(connection, method, path, &request, &verdict);
    if (!verdict.allowed)
        return answer_refused(connection, &request, &verdict);
    if (strcmp(path, "/ocr") == 0)
        return ocr(connection, &request, &verdict);
    return answer(connection, MHD_HTTP_OK, strcmp(path, "/notes") == 0 ? "your notes\n" : "welcome\n", &request, &verdict);
}

int main(int argc, char **argv)
{
    if (argc != 5 || strcmp(argv[1], "--port") != 0 || strcmp(argv[3], "--rules") != 0)
        errx(2, "usage: server --port PORT --rules FILE (port 0: any that is free)");
    struct weir_options options = { .size = sizeof options,
                                    .rules_file = argv[4],
                                    .watch_ms = WATCH_MS,
                                    .user_id = user_id,
                                    .refuse = refuse,
                                    .on_rules = on_rules };
    struct weir_error error;
    if (weir_open(&weir, &options, &error) < 0)
        errx(1, "%s", error.text);

    /* Blocked in all threads, so that it is us who get the signal to end. */
    sigset_t end;
    int signal;
    sigemptyset(&end);
    sigaddset(&end, SIGINT);
    sigaddset(&end, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &end, NULL);

    struct sockaddr_in on = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)atoi(argv[2])),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct MHD_Daemon *daemon =
        MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL, 0, NULL, NULL, handle, NULL, MHD_OPTION_SOCK_ADDR,
                         &on, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)THREADS, MHD_OPTION_END);
    if (!daemon)
        err(1, "cannot listen on 127.0.0.1:%s", argv[2]);
    printf("listening on http://127.0.0.1:%u\n", MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
    fflush(stdout);
    sigwait(&end, &signal);
    MHD_stop_daemon(daemon);
    weir_close(weir);
    return 0;
}
