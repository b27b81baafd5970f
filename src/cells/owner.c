#include "cells/owner.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cells/layout.h"

enum { PLACE_BITS = 41 };
_Static_assert(1 + PLACE_BITS + OWNER_PROCESS_BITS == 64, "the parts of a number");

#define PLACE_MASK ((UINT64_C(1) << PLACE_BITS) - 1)
#define NO_PAGE (OWNER_MARK - 1) /* in place of a number: the kernel clears no page in children */

/* ---- this process ---- */

/* Without the mark of an owner: its place cannot be known. */
static uint64_t make_number(void)
{
    struct hash hash;
    struct stat space;
    uint64_t process = (uint64_t)getpid();
    hash_init(&hash, &(struct hash_key){ 0, 0 });
    if (process > OWNER_PROCESS_MASK || !hash_boot(&hash) || stat("/proc/self/ns/pid", &space) < 0)
        return process;
    hash_word(&hash, (uint64_t)space.st_ino);
    return OWNER_MARK | (hash_final(&hash) & PLACE_MASK) << OWNER_PROCESS_BITS | process;
}

/* Returns where the number of this process is kept. A fork sets it to 0, however the child was made. */
static uint64_t *number_page(void)
{
    static uint64_t *page, none = NO_PAGE;
    uint64_t *known = __atomic_load_n(&page, __ATOMIC_ACQUIRE), *mine = &none;
    if (known)
        return known;
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map != MAP_FAILED && madvise(map, bytes, MADV_WIPEONFORK) == 0)
        mine = map;
    else if (map != MAP_FAILED)
        munmap(map, bytes);
    if (__atomic_compare_exchange_n(&page, &known, mine, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return mine;
    if (mine != &none)
        munmap(mine, bytes);
    return known;
}

static uint64_t known_number(void)
{
    uint64_t *page = number_page(), number = __atomic_load_n(page, __ATOMIC_RELAXED);
    if (__builtin_expect(number == 0, 0)) {
        int saved = errno;
        number = make_number();
        __atomic_store_n(page, number, __ATOMIC_RELAXED); /* all threads make the same */
        errno = saved;
    }
    return number;
}

uint64_t owner_self(void)
{
    uint64_t number = known_number();
    return is_owner(number) ? number : 0;
}

uint64_t owner_process(void)
{
    uint64_t number = known_number();
    return number != NO_PAGE ? number : (uint64_t)getpid();
}

/* ---- others ---- */

bool owner_is_dead(uint64_t origin)
{
    uint64_t self = owner_self();
    if (!is_owner(origin) || origin == self || origin >> OWNER_PROCESS_BITS != self >> OWNER_PROCESS_BITS)
        return false;
    int saved = errno;
    bool dead = kill((pid_t)(origin & OWNER_PROCESS_MASK), 0) < 0 && errno == ESRCH;
    errno = saved;
    return dead;
}

/* So that a flood of refusals is not a flood of system calls: some bits of an owner · whether it was dead · when. */
enum { SEEN_BITS = 6, TIME_BITS = 20, TIME_SHIFT = 13 /* 8 ms */ };
static uint64_t seen[1 << SEEN_BITS];

bool owner_seems_dead(uint64_t origin, int64_t now_us)
{
    if (!is_owner(origin) || origin == owner_self())
        return false;
    uint64_t mixed = origin * UINT64_C(0x9e3779b97f4a7c15), dead = UINT64_C(1) << TIME_BITS;
    uint64_t time = (uint64_t)now_us >> TIME_SHIFT & (dead - 1);
    uint64_t *place = &seen[mixed >> (64 - SEEN_BITS)], word = (mixed & ~(2 * dead - 1)) | time;
    uint64_t found = __atomic_load_n(place, __ATOMIC_RELAXED);
    if ((found & ~dead) != word) {
        found = owner_is_dead(origin) ? word | dead : word;
        __atomic_store_n(place, found, __ATOMIC_RELAXED);
    }
    return found & dead;
}
