#include "decisions/database.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

bool bench_database_make(struct bench_database *p)
{
    const char *tmp = getenv("TMPDIR");
    int n = snprintf(p->folder, sizeof p->folder, "%s/weir-bench-XXXXXX", tmp ? tmp : "/tmp");
    if (n >= (int)sizeof p->folder || !mkdtemp(p->folder))
        return false;
    snprintf(p->path, sizeof p->path, "%s/rules.db", p->folder);
    snprintf(p->copy, sizeof p->copy, "%s/rules.last.yaml", p->folder);
    snprintf(p->address, sizeof p->address, "sqlite:%s", p->path);
    return true;
}

void bench_database_remove(const struct bench_database *p)
{
    static const char *const behind[] = { "", "-wal", "-shm", "-journal" };
    for (size_t i = 0; i < sizeof behind / sizeof behind[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s%s", p->path, behind[i]);
        unlink(path);
    }
    unlink(p->copy);
    rmdir(p->folder);
}

void bench_add_rule(struct buf *out, unsigned i, unsigned max)
{
    buf_printf(
        out,
        "{\"id\": \"r%u\", \"match\": {\"path\": \"/service%u/resource%u/#\"}, \"by\": [\"user\"], \"limits\": [\"%u "
        "per 60s\"]}",
        i, i / 100, i % 100, max);
}
