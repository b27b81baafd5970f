/* Values of options: read from text, within their bounds. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "serve/config.h"
#include "serve/listen.h"

static bool is_amount(enum config_kind kind)
{
    return kind <= CONFIG_TIME;
}

static struct amount_range range_of(const struct config_option *option)
{
    return (struct amount_range){ .kind = (enum amount_kind)option->kind, .min = option->min, .max = option->max };
}

void config_bounds(const struct config_option *option, char out[CONFIG_ALLOWED_MAX])
{
    struct amount_range range = range_of(option);
    out[0] = '\0';
    if (is_amount(option->kind))
        amount_range_text(&range, out);
}

static const char *store_amount(const struct config_option *option, sv value, void *field, char scratch[CONFIG_ALLOWED_MAX])
{
    struct amount_range range = range_of(option);
    uint64_t n;
    if (amount_read(value, &range, &n) != AMOUNT_GOOD) {
        amount_allowed_text(&range, scratch);
        return scratch;
    }
    if (option->kind == CONFIG_NUMBER || option->kind == CONFIG_TIME)
        *(unsigned *)field = (unsigned)n;
    else
        *(uint64_t *)field = n;
    return NULL;
}

static bool is_token(sv text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = ascii_lower(text.ptr[i]);
        if (!(c >= 'a' && c <= 'z') && !ascii_digit(c) && (!c || !strchr("!#$%&'*+-.^_`|~", c)))
            return false;
    }
    return text.len > 0;
}

static const char *store_text(const struct config_option *option, sv value, char **field, char scratch[CONFIG_ALLOWED_MAX])
{
    if (value.len < option->min || value.len > option->max) {
        snprintf(scratch, CONFIG_ALLOWED_MAX, "%" PRIu64 " to %" PRIu64 " bytes", option->min, option->max);
        return scratch;
    }
    if (option->kind == CONFIG_HEADER && !is_token(value))
        return "the name of a header, such as X-User-Id";
    char *copy = strndup(value.ptr, value.len);
    if (!copy)
        return "something that fits into memory";
    if (option->kind == CONFIG_ADDRESS && !listen_is_address(copy)) {
        free(copy);
        return LISTEN_ALLOWED;
    }
    free(*field);
    *field = copy;
    return NULL;
}

_Static_assert((int)CONFIG_ALLOWED_MAX >= (int)AMOUNT_ALLOWED_MAX, "what is allowed fits");

const char *config_store(const struct config_option *option, sv value, struct config *config,
                         char scratch[CONFIG_ALLOWED_MAX])
{
    void *field = (char *)config + option->offset;
    if (is_amount(option->kind))
        return store_amount(option, value, field, scratch);
    if (option->kind == CONFIG_CHOICE)
        return choice_read(value, option->argument, field) ? NULL : option->argument;
    return store_text(option, value, field, scratch);
}
