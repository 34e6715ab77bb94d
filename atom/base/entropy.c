/*
 * Owns asking the kernel for random bytes. Refuses any generator of its own.
 */
#include "atom/base/entropy.h"

#include <errno.h>
#include <stdint.h>
#include <sys/random.h>

atom_status atom_entropy(void *out, size_t bytes)
{
    uint8_t *at = out;
    while (bytes) {
        ssize_t n = getrandom(at, bytes, 0);
        if (n < 0 && errno != EINTR)
            return atom_fail_errno(errno, "no entropy from the kernel");
        if (n > 0) {
            at += n;
            bytes -= (size_t)n;
        }
    }
    return ATOM_OK;
}
