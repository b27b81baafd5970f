/* The command as the user typed it, for messages that say what to run. */
#ifndef BASE_PROGRAM_H
#define BASE_PROGRAM_H

#include <errno.h>
#include <string.h>

/* Returns "weir", or the path by which this process was started if it is a weir that is not found by its name alone. */
static inline const char *program_command(void)
{
    return strcmp(program_invocation_short_name, "weir") == 0 ? program_invocation_name : "weir";
}

#endif
