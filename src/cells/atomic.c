/* Which 16-byte loads this CPU has. */
#include "cells/atomic.h"

#if defined(__x86_64__) && !defined(CELLS_TSAN)
bool cells_cpu_has_avx;

__attribute__((constructor)) static void look_at_cpu(void)
{
    __builtin_cpu_init();
    cells_cpu_has_avx = __builtin_cpu_supports("avx");
}
#endif
