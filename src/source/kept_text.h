/* The text of the rules in force, in a file. It is in memory only while it is needed: the text of many rules takes as much
 * room as the rules themselves. */
#ifndef SOURCE_KEPT_TEXT_H
#define SOURCE_KEPT_TEXT_H

#include "rules/rules.h"
#include "rules/rules_file.h"

struct kept_text {
    struct rules_text text;      /* without its bytes while only the file has them */
    size_t head;                 /* bytes of the file before the text; 0: no file has it */
    struct file_version version; /* of that file */
    uint64_t hash;               /* of the text in it */
};
void kept_text_done(struct kept_text *kept);
/* Puts `from` in its place, which is empty then. */
void kept_text_take(struct kept_text *kept, struct kept_text *from);
/* Reads the bytes from the file if only the file has them. If somebody has changed the file, there is no text any more. */
void kept_text_load(struct kept_text *kept, const char *path);
/* Frees the bytes if the file has them. */
void kept_text_unload(struct kept_text *kept);
/* Writes a file of `head`, which is not empty, and the text, and frees the bytes. They stay in memory if that fails. */
int kept_text_write(struct kept_text *kept, const char *path, sv head, struct weir_error *error);

#endif
