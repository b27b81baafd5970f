/* Which copy of a table this is.
 *
 * Counts may be copied with their file. But each copy is a host of its own: what the original was lent is not for the copy
 * to spend, and receipts of the original are for the original to take back. So a table has an identity besides its secret:
 * 0 in the file where it was made, a new random number in each copy. Things that belong to one host alone have both in
 * their names.
 *
 * A copy has to be recognised when it is opened. Beside the identity, in one word that changes by one compare-and-swap,
 * stands the origin: what the file and the machine looked like when the file was last opened.
 *
 *   inode, birth   a copy on the same machine is another inode, or one that was made at another time: file systems use the
 *                  numbers of removed files again
 *   boot           the boot of the kernel, and the device: equal for all containers of a machine that share the file
 *   machine        its id and its host name, since machines made from one image may have the same id; containers of one
 *                  machine may have different ones, so this counts only where the boot is another, as after a reboot
 *
 * Each is a short hash, 0 if it cannot be known; what is not known on either side says nothing. Any value is a good one: at
 * worst a table gets an identity that it did not need, which costs it what it was lent and the receipts that are out.
 * Processes that open a copy at once agree on which was first; one that dies meanwhile has done all or nothing. */
#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "cells/layout.h"

/* Longer than any text: nothing else that is hashed with the secret begins with it. */
#define HOST_MARK UINT64_C(0x686f73742d6d6172)

enum { UUID_LEN = 32 }; /* without its hyphens: shorter ones are placeholders, as in images that are not set up yet */

/* ---- what is here ---- */

static uint32_t fold(struct hash *hash, unsigned bits)
{
    return (uint32_t)(hash_final(hash) % ((UINT64_C(1) << bits) - 1)) + 1;
}

static bool hash_line(struct hash *hash, const char *path)
{
    char text[100];
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    size_t len = strcspn(text, "\n");
    if (len < UUID_LEN)
        return false;
    hash_text(hash, text, len);
    return true;
}

bool hash_boot(struct hash *hash)
{
    return hash_line(hash, "/proc/sys/kernel/random/boot_id");
}

static uint32_t current_boot(const struct hash_key *secret, uint64_t device)
{
    struct hash hash;
    hash_init(&hash, secret);
    hash_word(&hash, device);
    return hash_boot(&hash) ? fold(&hash, BOOT_BITS) : 0;
}

static uint32_t current_machine(const struct hash_key *secret)
{
    static const char *const paths[] = { "/etc/machine-id", "/var/lib/dbus/machine-id", "/sys/class/dmi/id/product_uuid" };
    char name[65] = "";
    struct hash hash;
    gethostname(name, sizeof name - 1);
    hash_init(&hash, secret);
    hash_text(&hash, name, strlen(name));
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (hash_line(&hash, paths[i]))
            return fold(&hash, MACHINE_BITS);
    return 0;
}

static uint32_t inode_bits(const struct hash_key *secret, uint64_t inode)
{
    struct hash hash;
    hash_init(&hash, secret);
    hash_word(&hash, inode);
    return fold(&hash, INODE_BITS);
}

static uint32_t birth_bits(const struct hash_key *secret, const struct statx_timestamp *at)
{
    struct hash hash;
    hash_init(&hash, secret);
    hash_word(&hash, (uint64_t)at->tv_sec);
    hash_word(&hash, at->tv_nsec);
    return fold(&hash, BIRTH_BITS);
}

static bool current_origin(const struct hash_key *secret, int fd, struct origin *ret)
{
    struct stat st;
    struct statx extended;
    if (fstat(fd, &st) < 0)
        return false;
    *ret = (struct origin){ .boot = current_boot(secret, st.st_dev),
                            .machine = current_machine(secret),
                            .inode = inode_bits(secret, st.st_ino) };
    if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &extended) == 0 && extended.stx_mask & STATX_BTIME)
        ret->birth = birth_bits(secret, &extended.stx_btime);
    return true;
}

/* ---- what it means ---- */

static bool differ(uint32_t a, uint32_t b)
{
    return a && b && a != b;
}

static bool is_same(const struct origin *was, const struct origin *current)
{
    if (differ(was->inode, current->inode) || differ(was->birth, current->birth))
        return false;
    if (was->boot && was->boot == current->boot)
        return true;
    if (was->machine && current->machine)
        return was->machine == current->machine;
    /* If the machine is not known, a reboot looks like another machine. */
    return !differ(was->boot, current->boot);
}

static struct origin merge(const struct origin *was, const struct origin *current)
{
    return (struct origin){ .id = was->id,
                            .boot = current->boot ? current->boot : was->boot,
                            .machine = was->machine ? was->machine : current->machine,
                            .inode = current->inode,
                            .birth = current->birth ? current->birth : was->birth };
}

static bool draw(uint64_t *ret)
{
    if (getrandom(ret, sizeof *ret, 0) != sizeof *ret)
        return false;
    *ret = *ret % (ORIGIN_IDS - 1) + 1;
    return true;
}

int cells_check_identity(struct cells *cells, int fd, const char *path, struct weir_error *error)
{
    struct origin current;
    word16 *word = &cells->header->origin;
    if (!current_origin(&cells->secret, fd, &current))
        return err_set(error, WEIR_E_SYSTEM, "%s: %s", path, strerror(errno));
    for (;;) {
        word16 seen = load_16(word);
        struct origin was = origin_of(seen);
        bool same = is_same(&was, &current);
        if (!same && !draw(&current.id))
            return err_set(error, WEIR_E_SYSTEM, "cannot get random bytes: %s", strerror(errno));
        struct origin next = same ? merge(&was, &current) : current;
        word16 now = origin_word(&next);
        if (same_16(now, seen) || cas_16(word, seen, now)) {
            cells->copied = !same;
            return 0;
        }
    }
}

/* ---- of a saved table ---- */

bool origin_of_saved(const struct cells *cells, int fd, word16 *ret)
{
    struct origin origin;
    if (!current_origin(&cells->secret, fd, &origin))
        return false;
    origin.id = cells_identity(cells);
    *ret = origin_word(&origin);
    return true;
}

bool origin_of_copy(const struct cells *cells, int fd, word16 *ret)
{
    struct origin origin;
    if (!current_origin(&cells->secret, fd, &origin) || !draw(&origin.id))
        return false;
    *ret = origin_word(&origin);
    return true;
}

bool origin_of_restored(const struct hash_key *secret, word16 saved, int saved_fd, int fd, word16 *ret)
{
    struct origin was = origin_of(saved), current, here;
    if (!current_origin(secret, saved_fd, &current) || !current_origin(secret, fd, &here))
        return false;
    struct origin kept = { .id = was.id };
    if (!is_same(&was, &current)) {
        kept = was;
        kept.inode = here.inode == 1 ? 2 : here.inode - 1;
    }
    *ret = origin_word(&kept);
    return true;
}

/* ---- what it is for ---- */

uint64_t cells_identity(const struct cells *cells)
{
    return load_8(&cells->header->origin.low) % ORIGIN_IDS;
}

/* The place, too: machines whose files could not be told apart are counted apart in any case. */
uint64_t cells_host(const struct cells *cells)
{
    struct hash hash;
    hash_init(&hash, &cells->secret);
    hash_word(&hash, HOST_MARK);
    hash_word(&hash, load_8(&cells->header->origin.low));
    return hash_final(&hash);
}

bool cells_copied(const struct cells *cells)
{
    return cells->copied;
}
