/* Lines of the log that clients cause: a few in a second. */
#include "module.h"

enum { LOGGED_PER_SECOND = 10 };

bool may_log(struct log_sampler *sampler)
{
    if (sampler->second != ngx_time()) {
        sampler->second = ngx_time();
        sampler->asked = 0;
    }
    bool logged = sampler->asked++ < LOGGED_PER_SECOND;
    sampler->left_out += !logged;
    return logged;
}

void write_left_out(struct log_sampler *sampler, char *text, size_t cap)
{
    if (sampler->left_out)
        snprintf(text, cap, " (%lu more since the last line)", (unsigned long)sampler->left_out);
    sampler->left_out = 0;
}
