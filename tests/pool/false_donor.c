/*
 * Makes node.c a host that gives false data: linked into a program of its own with gsp_pieces_read
 * wrapped (CMakeLists.txt), so that every piece that it sends has one bit that is wrong.
 */
#include "gossip/member/pieces.h"

bool __real_gsp_pieces_read(gsp_pieces *pieces, uint32_t piece, void *out,
                            gsp_hash path[GSP_STATE_PATH_MAX], uint32_t *n_path);
bool __wrap_gsp_pieces_read(gsp_pieces *pieces, uint32_t piece, void *out,
                            gsp_hash path[GSP_STATE_PATH_MAX], uint32_t *n_path);

bool __wrap_gsp_pieces_read(gsp_pieces *pieces, uint32_t piece, void *out,
                            gsp_hash path[GSP_STATE_PATH_MAX], uint32_t *n_path)
{
    bool read = __real_gsp_pieces_read(pieces, piece, out, path, n_path);
    if (read)
        ((uint8_t *)out)[7] ^= 4;
    return read;
}
