/*
 * Owns what all readers through a source and all writers through a sink do alike. One idea: bytes
 * pass through a reader piece by piece, as it has them. Refuses nothing; the reader does.
 */
#include "atom/file/source.h"

#include <string.h>

atom_status file_source_read(const file_source *source, void *reader, uint64_t offset,
                             uint64_t bytes, void *out)
{
    char *to = out;
    while (bytes) {
        const void *at = NULL;
        uint64_t some = 0;
        ATOM_TRY(source->view(reader, offset, bytes, &at, &some));
        memcpy(to, at, (size_t)some);
        to += some;
        offset += some;
        bytes -= some;
    }
    return ATOM_OK;
}
