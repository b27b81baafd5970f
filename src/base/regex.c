/* The bound on time. PCRE2 counts steps, and one step may run over the rest of the text (`.*?[ab]*c`), so what bounds the
 * time is steps × length. Measured over some sixty patterns on texts made to hurt them, a quarter of a nanosecond for each
 * of STEP_BYTES with JIT (half a one without) is the worst, which makes a millisecond; a pattern that only walks over its
 * text, as nearly all do, needs two steps for a byte and so never meets the bound below 1,400 bytes.
 *
 * Start-of-pattern items such as (*LIMIT_MATCH=…) can lower these limits and never raise them. */
#include "base/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    PATTERN_MAX = 4096,
    COMPILED_MAX = 64 * 1024,
    STEP_BYTES = 4 << 20,
    STEPS_MAX = 20000,
    HEAP_MAX_KIB = 1024, /* without JIT */
    JIT_STACK_MIN = 32 * 1024,
    JIT_STACK_MAX = 512 * 1024,
};

struct regex {
    pcre2_code *code;
    struct regex_needs *needs;
};

/* The memory of a match, which threads cannot share; made on a thread's first match. */
struct scratch {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

static _Thread_local struct scratch *thread_scratch;
static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;
static bool scratch_key_made;

static void scratch_free(void *ptr)
{
    struct scratch *scratch = ptr;
    if (!scratch)
        return;
    pcre2_match_data_free(scratch->data);
    pcre2_match_context_free(scratch->context);
    pcre2_jit_stack_free(scratch->stack);
    free(scratch);
    thread_scratch = NULL;
}

static void make_scratch_key(void)
{
    scratch_key_made = pthread_key_create(&scratch_key, scratch_free) == 0;
}

static struct scratch *scratch_new(void)
{
    pthread_once(&scratch_once, make_scratch_key);
    struct scratch *scratch = scratch_key_made ? calloc(1, sizeof *scratch) : NULL;
    if (!scratch)
        return NULL;
    scratch->data = pcre2_match_data_create(1, NULL);
    scratch->context = pcre2_match_context_create(NULL);
    scratch->stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, NULL);
    if (!scratch->data || !scratch->context || pthread_setspecific(scratch_key, scratch) != 0) {
        scratch_free(scratch);
        return NULL;
    }
    pcre2_set_heap_limit(scratch->context, HEAP_MAX_KIB);
    pcre2_set_depth_limit(scratch->context, STEPS_MAX);
    if (scratch->stack)
        pcre2_jit_stack_assign(scratch->context, NULL, scratch->stack);
    thread_scratch = scratch;
    return scratch;
}

static int compile(pcre2_code **ret, sv pattern, bool ignore_case, char *error, size_t error_cap)
{
    /* DOTALL: a path has no lines, and a %0A in it must not get past `.*`. */
    uint32_t options = PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_DOTALL | PCRE2_NEVER_BACKSLASH_C;
    if (ignore_case)
        options |= PCRE2_CASELESS;
    int code;
    PCRE2_SIZE offset;
    *ret = pcre2_compile((PCRE2_SPTR)pattern.ptr, pattern.len, options, &code, &offset, NULL);
    if (*ret)
        return 0;
    if (code == PCRE2_ERROR_HEAP_FAILED || code == PCRE2_ERROR_NOMEMORY) {
        snprintf(error, error_cap, "out of memory");
        return WEIR_E_NO_MEMORY;
    }
    PCRE2_UCHAR text[128];
    pcre2_get_error_message(code, text, sizeof text);
    snprintf(error, error_cap, "%s (at byte %zu)", (const char *)text, (size_t)offset);
    return WEIR_E_INVALID;
}

int regex_new(struct regex **ret, sv pattern, bool ignore_case, char *error, size_t error_cap)
{
    if (pattern.len > PATTERN_MAX) {
        snprintf(error, error_cap, "a regex of %zu bytes is too long; at most %d are allowed", pattern.len, PATTERN_MAX);
        return WEIR_E_INVALID;
    }
    if (pattern.len == 0)
        pattern = SV("");
    struct regex *regex = calloc(1, sizeof *regex);
    if (!regex) {
        snprintf(error, error_cap, "out of memory");
        return WEIR_E_NO_MEMORY;
    }
    int r = compile(&regex->code, pattern, ignore_case, error, error_cap);
    size_t size = 0;
    if (r == 0 && (pcre2_pattern_info(regex->code, PCRE2_INFO_SIZE, &size) != 0 || size > COMPILED_MAX)) {
        snprintf(error, error_cap, "the compiled regex takes %zu bytes; at most %d are allowed: use fewer or smaller {n,m}",
                 size, COMPILED_MAX);
        r = WEIR_E_INVALID;
    }
    if (r == 0 && !(regex->needs = regex_needs_new(pattern))) {
        snprintf(error, error_cap, "out of memory");
        r = WEIR_E_NO_MEMORY;
    }
    if (r < 0) {
        regex_free(regex);
        return r;
    }
    pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE); /* where it fails, the interpreter serves */
    *ret = regex;
    return 0;
}

void regex_free(struct regex *regex)
{
    if (!regex)
        return;
    pcre2_code_free(regex->code);
    free(regex->needs);
    free(regex);
}

const struct regex_needs *regex_needs(const struct regex *regex)
{
    return regex->needs;
}

/* Those who look for regexes by their needs never run this one on a text that does not meet them, so whoever does run it
 * has to come to the same result. */
static __attribute__((noinline)) enum regex_result exceeded(const struct regex *regex, sv text)
{
    return regex_needs_met(regex->needs, text) ? REGEX_BOUND : REGEX_NO;
}

static inline __attribute__((always_inline)) enum regex_result match_part(const struct regex *regex, sv text, size_t parts)
{
    struct scratch *scratch = thread_scratch ? thread_scratch : scratch_new();
    if (text.len == 0)
        text = SV("");
    if (!scratch)
        return exceeded(regex, text);
    size_t steps = STEP_BYTES / (text.len + 1);
    steps = (steps > STEPS_MAX ? STEPS_MAX : steps) / parts;
    pcre2_set_match_limit(scratch->context, (uint32_t)(steps < 1 ? 1 : steps));
    int r = pcre2_match(regex->code, (PCRE2_SPTR)text.ptr, text.len, 0, 0, scratch->data, scratch->context);
    if (r >= 0)
        return REGEX_YES;
    /* Every other failure is a bound as well: steps, memory, or a (*UTF) pattern on bytes that are not UTF-8. */
    return r == PCRE2_ERROR_NOMATCH ? REGEX_NO : exceeded(regex, text);
}

enum regex_result regex_match(const struct regex *regex, sv text)
{
    return match_part(regex, text, 1);
}

enum regex_result regex_match_part(const struct regex *regex, sv text, size_t parts)
{
    return match_part(regex, text, parts);
}
