/* The rights of a client. ROLE_ASK may ask for decisions, and nothing else. Each of the others has the rights of those
 * before it on the admin listener. */
#ifndef SERVE_ROLES_H
#define SERVE_ROLES_H

#include "base/sv.h"

enum role { ROLE_NONE, ROLE_ASK, ROLE_READ, ROLE_OPERATE, ROLE_ADMIN, ROLES };
extern const char *const role_names[ROLES]; /* "none", "ask", "read", "operate", "admin" */

/* ROLE_NONE: no role has this name. */
enum role role_named(sv name);

#endif
