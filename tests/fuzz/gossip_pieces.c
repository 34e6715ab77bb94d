/*
 * Any bytes as the tree of a file, on its way in and whole: what it claims is hashed to the root
 * that was asked for, or does not count. The first two bytes say how long the file is.
 */
#include "atom/base/assert.h"
#include "gossip/member/pieces.h"
#include "gossip/trust/identity.h"
#include "tests/scratch.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static scratch place;
static const char *tree, *part;

static void clean(void)
{
    scratch_close(&place);
}

static void write_tree(const uint8_t *data, size_t size)
{
    int fd = open(tree, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ATOM_ASSERT(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t out[GSP_PIECE_BYTES];
    static bool ready;
    if (!ready) {
        ready = gsp_crypto_start() == ATOM_OK;
        scratch_open(&place);
        tree = scratch_path(&place, "tree");
        part = scratch_path(&place, "part");
        ATOM_ASSERT(ready && atexit(clean) == 0);
    }
    if (size < 2)
        return 0;
    uint64_t bytes = (uint64_t)(data[0] + 256 * data[1]) * 97 + 1;
    const gsp_hash root = {{1}};
    gsp_hash path[GSP_STATE_PATH_MAX];
    uint32_t n_path;
    bool good = true;
    gsp_pieces *p = NULL;
    write_tree(data + 2, size - 2);
    ATOM_ASSERT(gsp_pieces_begin(part, tree, bytes, &root, &p) == ATOM_OK);
    while (!gsp_pieces_recheck(p, 3))
        ;
    /* Nobody finds bytes for this root. */
    for (uint32_t k = 0; k < gsp_pieces_n(p); k++) {
        ATOM_ASSERT(!gsp_pieces_read(p, k, out, path, &n_path));
        ATOM_ASSERT(gsp_pieces_put(p, k, out, gsp_piece_length(bytes, k), path, 0, &good) ==
                        ATOM_OK &&
                    !good);
    }
    gsp_pieces_close(&p);
    ATOM_ASSERT(truncate(part, (off_t)bytes) == 0);
    write_tree(data + 2, size - 2);
    ATOM_ASSERT(gsp_pieces_open(part, tree, bytes, &root, &p) != ATOM_OK);
    return 0;
}
