/* Which process has a slot, and whether it lives.
 *
 * A slot belongs to the process that took it. The number of the owner is in the hold, where other holds have their window:
 *
 *   1 · place 41 · process 22
 *
 * The place is a hash of the boot of the kernel and of the pid namespace: within one place a process id names one process.
 * If there is no such process, the owner is dead. If another process has got its id since, the owner seems to live, and so
 * does one in another place: such slots end with their time to live, as all holds do. So whoever lives keeps its slots,
 * also where it is stopped, or has closed its handle or all of its descriptors. */
#ifndef CELLS_OWNER_H
#define CELLS_OWNER_H

#include <stdbool.h>
#include <stdint.h>

#define OWNER_MARK (UINT64_C(1) << 63) /* no window has it: see limit_origin */
enum { OWNER_PROCESS_BITS = 22 };
#define OWNER_PROCESS_MASK ((UINT64_C(1) << OWNER_PROCESS_BITS) - 1)

/* Returns whether it is the number of an owner, not a window or nobody. */
static inline bool is_owner(uint64_t origin)
{
    return origin & OWNER_MARK;
}

/* Returns the number of this process; 0 if it cannot be known. A child of a fork has its own. */
uint64_t owner_self(void);
/* Returns a number that tells this process from its parent and from the children of either; not 0. */
uint64_t owner_process(void);
/* Returns whether this is the number of a process that is certainly dead. */
bool owner_is_dead(uint64_t origin);
/* The same as of a moment before now_us: for those who only look, and before asking for certain. */
bool owner_seems_dead(uint64_t origin, int64_t now_us);

#endif
