/* The address of the store:
 *
 *   redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]
 *   redis+sentinel://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]…]/MASTER[/DB]
 *   redis+cluster://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]…]
 *   unix:PATH[?db=N&user=USER]
 *
 * rediss://, rediss+sentinel:// and rediss+cluster:// are the same with TLS, and may have ca, cert, key and name. Each may
 * have ?prefix=NAME&password_file=FILE. WEIR_REDIS_PASSWORD has the password if the address has none,
 * WEIR_SENTINEL_PASSWORD that of the sentinels. */
#ifndef REDIS_ADDRESS_H
#define REDIS_ADDRESS_H

#include <sys/un.h>

#include "base/secret.h"
#include "base/sv.h"
#include "redis/script.h"

enum redis_kind { REDIS_TCP, REDIS_UNIX, REDIS_SENTINEL, REDIS_CLUSTER };

enum {
    REDIS_ENDPOINTS_MAX = 16, /* sentinels, or nodes of a cluster */
    REDIS_HOST_MAX = 255,
    REDIS_SHOWN_MAX = 199,
    REDIS_FILE_MAX = 1023,
    REDIS_PORT = 6379,
    REDIS_SENTINEL_PORT = 26379,
    REDIS_DB_MAX = 65535,
};

struct redis_endpoint {
    char host[REDIS_HOST_MAX + 1];
    uint16_t port;
};

struct redis_address {
    enum redis_kind kind;
    struct redis_endpoint endpoints[REDIS_ENDPOINTS_MAX]; /* the server, the sentinels, or nodes */
    size_t endpoint_count;
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
    char user[REDIS_HOST_MAX + 1], password[SECRET_MAX + 1]; /* "": none */
    char sentinel_password[SECRET_MAX + 1];
    char password_file[REDIS_FILE_MAX + 1], sentinel_password_file[REDIS_FILE_MAX + 1]; /* "": none */
    bool tls;
    char ca[REDIS_FILE_MAX + 1], cert[REDIS_FILE_MAX + 1], key[REDIS_FILE_MAX + 1]; /* "": none */
    char name[REDIS_HOST_MAX + 1]; /* that the certificates of the servers must have; "": their host */
    char master[REDIS_HOST_MAX + 1];
    unsigned db;
    char prefix[SCRIPT_PREFIX_MAX + 1];
    char shown[REDIS_SHOWN_MAX + 1]; /* for people: without the password */
};

/* HOST:PORT, for people. */
void redis_endpoint_show(const struct redis_endpoint *endpoint, char shown[REDIS_SHOWN_MAX + 1]);

int redis_address_read(struct redis_address *ret, const char *text, struct weir_error *error);

#endif
