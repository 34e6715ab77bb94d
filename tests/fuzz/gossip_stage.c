/*
 * Any bytes as the file of a state on its way in: what it claims to hold is either hashed to what
 * was asked for, or fetched again. The first two bytes say how many floats there are.
 */
#include "atom/base/assert.h"
#include "gossip/member/transfer.h"
#include "gossip/trust/identity.h"
#include "tests/scratch.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static scratch place;
static const char *path;

static void clean(void)
{
    scratch_close(&place);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static float out[GSP_CHUNK_FLOATS];
    static bool ready;
    if (!ready) {
        ready = gsp_crypto_start() == ATOM_OK;
        scratch_open(&place);
        path = scratch_path(&place, "state.0");
        ATOM_ASSERT(ready && atexit(clean) == 0);
    }
    if (size < 2)
        return 0;
    uint64_t n_floats = (uint64_t)(data[0] + 256 * data[1]) * 7;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ATOM_ASSERT(fd >= 0 && write(fd, data + 2, size - 2) == (ssize_t)(size - 2));
    close(fd);
    const gsp_hash root = {{1}};
    gsp_stage *s = NULL;
    ATOM_ASSERT(gsp_stage_open(place.dir, 0, 9, &root, n_floats, &s) == ATOM_OK);
    while (!gsp_stage_recheck(s, 3))
        ;
    /* Nobody finds bytes for this root. */
    ATOM_ASSERT(gsp_stage_n(s) == 0 || gsp_stage_here(s) < gsp_stage_n(s));
    for (uint32_t k = 0; k < gsp_stage_n(s); k++)
        ATOM_ASSERT(gsp_stage_read(s, k, out) == gsp_stage_has(s, k));
    gsp_stage_close(&s);
    return 0;
}
