/*
 * Any bytes as a message, a record, a saved state: refused, or encoded again to the same bytes.
 * The first byte chooses.
 */
#include "atom/base/assert.h"
#include "gossip/agree/wire.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static gsp_message message;
    static gsp_record record;
    static gsp_saved saved;
    static uint8_t again[GSP_WIRE_SAVED_BYTES_MAX];
    const gsp_key from = {{1}};
    const void *body = NULL;
    size_t body_bytes = 0, bytes = 0;
    if (size == 0)
        return 0;
    uint8_t which = data[0] % 3;
    data++;
    size--;
    if (which == 0 && gsp_wire_decode(data, size, &from, &message, &body, &body_bytes))
        bytes = gsp_wire_encode(&message, again, sizeof again);
    else if (which == 1 && gsp_wire_get_record(data, size, &record))
        bytes = gsp_wire_put_record(&record, again, sizeof again);
    else if (which == 2 && gsp_wire_get_saved(data, size, &saved))
        bytes = gsp_wire_put_saved(&saved, again, sizeof again);
    else
        return 0;
    ATOM_ASSERT(bytes + body_bytes == size && memcmp(data, again, bytes) == 0);
    return 0;
}
