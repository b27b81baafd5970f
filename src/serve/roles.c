#include "serve/roles.h"

const char *const role_names[ROLES] = { "none", "ask", "read", "operate", "admin" };

enum role role_named(sv name)
{
    for (int role = ROLE_ASK; role < ROLES; role++)
        if (sv_eq_nocase(name, weir_str(role_names[role])))
            return (enum role)role;
    return ROLE_NONE;
}
