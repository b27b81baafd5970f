/* Commands in messages that say what to run: they run as they stand. */
#ifndef BASE_PROGRAM_H
#define BASE_PROGRAM_H

enum { PROGRAM_WORD_BYTES = 5000 };

/* Returns "weir", or the path by which this process was started if it is a weir that is not found by its name alone. */
const char *program_command(void);

/* Returns the text as one word of a shell: itself, or quoted in `room` if it has blanks or the like. A text that is too
 * long is returned as it is. */
const char *program_word(const char *text, char room[PROGRAM_WORD_BYTES]);

#endif
