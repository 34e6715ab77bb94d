/* Any bytes as a file of peers: refused whole, or taken. The checksum is mended in a second try, so
 * that what is behind it is reached. Nothing that is not signed by a member may be kept. */
#include "atom/base/assert.h"
#include "gossip/directory/peers.h"

#include <sodium.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_file(const uint8_t *data, size_t size)
{
    gsp_handshake_config who = {.pool = {2}, .owner = {3}, .psk = {{4}}, .n_psks = 1};
    gsp_peers *book = NULL;
    ATOM_ASSERT(gsp_peers_open(&who, &book) == ATOM_OK);
    atom_status st = gsp_peers_read(book, data, size, 1000);
    ATOM_ASSERT(st == ATOM_OK || st == ATOM_E_FORMAT);
    ATOM_ASSERT(gsp_peers_count(book) == 0); /* nobody has the owner's key here */
    gsp_peers_close(&book);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char HEAD[] = "atom peers 1\n";
    uint8_t file[8192];
    try_file(data, size);
    if (size > sizeof file - 64)
        size = sizeof file - 64;
    /* head, sequence, then the fuzzer's bytes (a count and peers), then a right checksum */
    size_t n = sizeof HEAD - 1;
    memcpy(file, HEAD, n);
    memset(file + n, 7, 8);
    n += 8;
    memcpy(file + n, data, size);
    n += size;
    crypto_generichash(file + n, 16, file, n, (const uint8_t *)HEAD, sizeof HEAD - 1);
    try_file(file, n + 16);
    return 0;
}
