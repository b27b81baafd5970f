/* The sessions that were ended by signing out, until they would have expired. The value of a cookie stays valid until then,
 * so this list must not forget one: it is stored in the file ended-sessions of the data folder, and when the list of a role
 * is full, it makes room for the next: all sessions of that role end that began no later than the oldest in the list. All
 * of it belongs to one thread. */
#ifndef SERVE_ENDED_H
#define SERVE_ENDED_H

#include "serve/cookie.h"

enum { ENDED_MAX = 256 };

struct ended_role {
    struct cookie sessions[ENDED_MAX];
    unsigned count;
    int64_t until_s; /* all sessions that began until then have ended; 0: none */
};

struct ended {
    char *path;
    struct ended_role roles[ROLES];
};

/* Reads the file, if it is there. If the file is damaged, all sessions that began until now have ended. */
int ended_init(struct ended *ended, const char *folder, int64_t now_s, struct weir_error *error);
void ended_done(struct ended *ended);

bool ended_has(const struct ended *ended, const struct cookie *session);
/* Ends a session. Returns 0; or an error if it cannot be stored: then the session has ended until the next start. */
int ended_add(struct ended *ended, const struct cookie *session, int64_t now_s, struct weir_error *error);

#endif
