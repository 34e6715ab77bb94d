/* Any bytes as a packed file: refused with the file's name, or the same bytes however they are
 * read. */
#include "atom/base/assert.h"
#include "atom/base/hash.h"
#include "atom/text/unpack.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { UNPACKED_MAX = 1 << 20 };

static atom_status read_all(const uint8_t *data, size_t size, size_t want, uint64_t *hash)
{
    char buffer[4096];
    text_unpack *u = NULL;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    ATOM_ASSERT(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    ATOM_ASSERT(lseek(fd, 0, SEEK_SET) == 0);
    atom_status st = text_unpack_take(fd, "fuzz", &u);
    size_t got = 1, total = 0;
    *hash = ATOM_HASH_SEED;
    while (st == ATOM_OK && got && total < UNPACKED_MAX) {
        st = text_unpack_read(u, buffer, want, &got);
        ATOM_ASSERT(got <= want && text_unpack_used(u) <= size);
        *hash = atom_hash(*hash, buffer, got);
        total += got;
    }
    ATOM_ASSERT(st != ATOM_OK || total >= UNPACKED_MAX || text_unpack_used(u) == size);
    text_unpack_close(&u);
    if (total >= UNPACKED_MAX)
        *hash = 0; /* the reads end elsewhere */
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t a = 0, b = 0;
    atom_status st = read_all(data, size, 4096, &a);
    ATOM_ASSERT(st == ATOM_OK || st == ATOM_E_FORMAT || st == ATOM_E_UNSUPPORTED);
    ATOM_ASSERT(st == ATOM_OK || strncmp(atom_fail_message(), "fuzz", 4) == 0);
    atom_status again = read_all(data, size, 61, &b);
    ATOM_ASSERT(st == again && (st != ATOM_OK || a == b));
    return 0;
}
