/* An SQLite database with rules, and the copy of those in force, in a folder of its own. */
#ifndef BENCH_DATABASE_H
#define BENCH_DATABASE_H

#include "base/buf.h"

struct bench_database {
    char folder[64], path[96], address[112], copy[96];
};
/* Makes the folder. Returns false if it cannot. */
bool bench_database_make(struct bench_database *p);
void bench_database_remove(const struct bench_database *p);
/* Rule i as JSON: its path is its own. */
void bench_add_rule(struct buf *out, unsigned i, unsigned max);

#endif
