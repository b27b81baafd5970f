/* Servers for tests that are not written in C.
 *
 *   source_servers KIND…     KIND: mysql, postgres
 *
 * Prints a line for each: "KIND ADDRESS TCP_ADDRESS", or "KIND missing PACKAGE". Then it takes lines from stdin ("kill
 * KIND", "start KIND", "freeze KIND", "thaw KIND"), answers each with "ok" or "failed", and stops all servers when stdin
 * closes. */
#include <stdio.h>
#include <stdlib.h>

#include "servers.h"

enum { KINDS = 2 };

static const struct {
    const char *name;
    enum source_kind kind;
} kinds[KINDS] = { { "mysql", SOURCE_MYSQL }, { "postgres", SOURCE_POSTGRES } };

static struct server *servers[KINDS];

static int find(const char *name)
{
    for (int i = 0; i < KINDS; i++)
        if (strcmp(name, kinds[i].name) == 0)
            return i;
    return -1;
}

static bool start(const char *name)
{
    int i = find(name);
    const char *missing = i < 0 ? NULL : server_missing(kinds[i].kind);
    if (i < 0 || servers[i]) {
        fprintf(stderr, "%s is no kind of server: mysql, postgres, each once\n", name);
        return false;
    }
    if (missing)
        return printf("%s missing %s\n", name, missing) > 0;
    servers[i] = server_start(kinds[i].kind);
    return servers[i] && printf("%s %s %s\n", name, server_address(servers[i]), server_tcp_address(servers[i])) > 0;
}

static bool obey(char *line)
{
    char *name = strchr(line, ' ');
    if (!name)
        return false;
    *name++ = '\0';
    name[strcspn(name, "\n")] = '\0';
    int i = find(name);
    if (i < 0 || !servers[i])
        return false;
    if (strcmp(line, "kill") == 0)
        return server_kill(servers[i]);
    if (strcmp(line, "start") == 0)
        return server_restart(servers[i]);
    if (strcmp(line, "freeze") == 0 || strcmp(line, "thaw") == 0)
        return server_freeze(servers[i], line[0] == 'f');
    return false;
}

int main(int argc, char **argv)
{
    char line[100];
    bool good = argc > 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; good && i < argc; i++)
        good = start(argv[i]);
    while (good && fgets(line, sizeof line, stdin))
        puts(obey(line) ? "ok" : "failed");
    for (int i = 0; i < KINDS; i++)
        server_stop(servers[i]);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
