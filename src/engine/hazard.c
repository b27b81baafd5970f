#include "engine/hazard.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Slots are never freed: a thread that ends leaves its own to the next one. They are as many as threads have ever decided
 * at the same time. */
struct slot {
    _Alignas(64) void *ptr;
    bool taken;
    struct slot *next;
    void *memory; /* of the thread: see hazard_memory */
    size_t bytes;
};

static struct slot first_slot;
static struct slot *slots = &first_slot;
static _Thread_local struct slot *mine;
static pthread_key_t slot_key;
static bool slot_key_made;
static pthread_once_t slot_once = PTHREAD_ONCE_INIT;

/* A thread writes its slot and then reads *current again. The CPU must not do the two in the other order, which takes a
 * fence for each decision. So the thread that frees pays for it, once for each version: membarrier(2) makes every running
 * thread of the process execute a fence. Where the kernel does not have it, each decision has a fence of its own.
 *
 * Set before the first slot is used, and does not change. */
static bool others_fence;

static bool fence_others(void)
{
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0)
        return true;
    /* Not registered: in a child, if a fork does not inherit it. */
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
           syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

/* Forgotten as well: another destructor of this thread may still decide, and must not do so in a slot that is another's by
 * then. */
static void leave_slot(void *ptr)
{
    struct slot *slot = ptr;
    mine = NULL;
    free(slot->memory);
    slot->memory = NULL;
    slot->bytes = 0;
    __atomic_store_n(&slot->ptr, NULL, __ATOMIC_RELEASE);
    __atomic_store_n(&slot->taken, false, __ATOMIC_RELEASE);
}

static void make_key(void)
{
    others_fence = fence_others();
    slot_key_made = pthread_key_create(&slot_key, leave_slot) == 0;
}

static bool claim(struct slot *slot)
{
    bool was = false;
    return __atomic_compare_exchange_n(&slot->taken, &was, true, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static struct slot *new_slot(void)
{
    struct slot *slot = aligned_alloc(_Alignof(struct slot), sizeof *slot);
    if (!slot)
        return NULL;
    *slot = (struct slot){ .taken = true, .next = __atomic_load_n(&slots, __ATOMIC_ACQUIRE) };
    /* In the same one order as what hazard_acquire does next: whoever frees must find a slot that is new, too. */
    while (!__atomic_compare_exchange_n(&slots, &slot->next, slot, false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE))
        ;
    return slot;
}

static __attribute__((noinline)) struct slot *own_slot(void)
{
    pthread_once(&slot_once, make_key);
    if (!slot_key_made)
        return NULL;
    struct slot *slot = __atomic_load_n(&slots, __ATOMIC_ACQUIRE);
    while (slot && !claim(slot))
        slot = slot->next;
    if (!slot)
        slot = new_slot();
    if (slot && pthread_setspecific(slot_key, slot) != 0) {
        leave_slot(slot);
        return NULL;
    }
    mine = slot;
    return slot;
}

void *hazard_acquire_in(void *const *current, void ***ret_slot)
{
    struct slot *slot = mine;
    if (__builtin_expect(!slot, 0) && !(slot = own_slot()))
        return NULL;
    void *ptr = __atomic_load_n(current, __ATOMIC_ACQUIRE);
    for (;;) {
        /* In one order for all: whoever frees what was here looks at the slots after the exchange of *current. */
        if (__builtin_expect(others_fence, 1)) {
            __atomic_store_n(&slot->ptr, ptr, __ATOMIC_RELEASE);
            __atomic_signal_fence(__ATOMIC_SEQ_CST);
        } else {
            __atomic_store_n(&slot->ptr, ptr, __ATOMIC_SEQ_CST);
        }
        void *again = __atomic_load_n(current, __ATOMIC_SEQ_CST);
        if (__builtin_expect(again == ptr, 1)) {
            *ret_slot = &slot->ptr;
            return ptr;
        }
        ptr = again;
    }
}

void *hazard_acquire(void *const *current)
{
    void **slot;
    return hazard_acquire_in(current, &slot);
}

void hazard_release(void)
{
    __atomic_store_n(&mine->ptr, NULL, __ATOMIC_RELEASE);
}

void *hazard_memory(size_t bytes)
{
    if (bytes > mine->bytes) {
        free(mine->memory);
        mine->memory = malloc(bytes);
        mine->bytes = mine->memory ? bytes : 0;
    }
    return mine->memory;
}

bool hazard_held(const void *ptr)
{
    pthread_once(&slot_once, make_key);
    /* A slot that is being written is either seen here, or its thread sees that *current has changed. */
    if (others_fence && !fence_others())
        return true;
    for (struct slot *slot = __atomic_load_n(&slots, __ATOMIC_SEQ_CST); slot; slot = slot->next)
        if (__atomic_load_n(&slot->ptr, __ATOMIC_SEQ_CST) == ptr)
            return true;
    return false;
}
