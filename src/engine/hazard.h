/* Using something that may be replaced at any moment, without a lock: a thread says in a slot of its own what it is looking
 * at, and the thread that replaces it frees the old one only when no slot names it. A thread looks at one thing at a time.
 */
#ifndef ENGINE_HAZARD_H
#define ENGINE_HAZARD_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the object that *current points to. Nobody frees it until hazard_release. Returns NULL if out of memory. */
void *hazard_acquire(void *const *current);
void hazard_release(void);
/* The same for a caller that remembers the slot of its thread: finding it costs as much as the rest. */
void *hazard_acquire_in(void *const *current, void ***ret_slot);
static inline void hazard_release_in(void **slot)
{
    __atomic_store_n(slot, NULL, __ATOMIC_RELEASE);
}
/* To be called between the two. Returns at least `bytes` (> 0) bytes for what the thread returns to its caller. They are
 * valid until the next call or the end of the thread. NULL: out of memory. */
void *hazard_memory(size_t bytes);

/* Returns whether some thread uses it, or may do so. To be called when it cannot be reached any more. It interrupts the
 * other threads of the process for a moment. */
bool hazard_held(const void *ptr);

#endif
