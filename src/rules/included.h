/* A rules file, and the files and folders that it includes. */
#ifndef RULES_INCLUDED_H
#define RULES_INCLUDED_H

#include "base/arena.h"
#include "rules/rules_file.h"

struct rules;
struct rules_report;

enum {
    INCLUDED_MAX = 1000,        /* files and folders */
    INCLUDED_DEPTH_MAX = 8,     /* files that include files */
    INCLUDED_ENTRIES_MAX = 100, /* of one `include` */
};

/* A file or folder that an `include` names. */
struct included_file {
    sv path; /* ends in NUL */
    bool is_folder;
    struct file_version version; /* all zeros: it could not be read */
    struct buf text;             /* of a file */
    int lines_before;            /* the reader numbers lines throughout: those of the rules file, then those of each file */
};

struct included {
    const char *top; /* the path of the rules file, while it is read */
    struct arena arena;
    struct included_file *list; /* in the order in which they were read */
    size_t count;
};

void included_done(struct included *included);
/* Frees the texts of the files: they are not needed to see whether the files have changed. */
void included_drop_texts(struct included *included);

/* rules_read for the text of the file `path`, with all that it includes; paths are relative to the file that names them.
 * Fills *ret also after errors. */
struct rules *rules_read_file(sv text, const char *path, struct included *ret, struct rules_report *ret_report);

enum files_state { FILES_SAME, FILES_SETTLING, FILES_CHANGED, FILES_GONE };
/* Returns whether the file, or one that it includes, has changed since it was read. FILES_SETTLING: it has, and may not be
 * complete yet. FILES_GONE: it cannot be found; errno says why. */
enum files_state rules_files_look(const char *path, const struct file_version *version, const struct included *included);

#endif
