/*
 * After the handshake: any bytes as frames or as a stream of records. The first byte chooses:
 * frames, raw bytes, or a valid stream of records with damage at places that the input names. Only
 * the undamaged prefix may open.
 */
#include "atom/base/assert.h"
#include "gossip/gate/gate_frame.h"
#include "gossip/gate/gate_record.h"

#include <sodium.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RECORDS = 4, PLAIN = 64, RECORD = PLAIN + GSP_RECORD_HEAD_BYTES + GSP_RECORD_TAG_BYTES };

/* Reads records as the gate does; returns how many bytes were opened. */
static size_t read_stream(uint8_t *stream, size_t size, const uint8_t key[32])
{
    gsp_record_key open = {.count = 0};
    size_t opened = 0;
    memcpy(open.key, key, 32);
    while (size >= GSP_RECORD_HEAD_BYTES) {
        size_t n = gsp_record_length(stream);
        size_t whole = GSP_RECORD_HEAD_BYTES + n + GSP_RECORD_TAG_BYTES;
        ATOM_ASSERT(n <= GSP_RECORD_BYTES_MAX);
        if (n == 0 || size < whole || !gsp_record_open(&open, stream, n))
            break;
        opened += n;
        stream += whole;
        size -= whole;
    }
    return opened;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t stream[1 << 17], good[RECORDS * RECORD];
    static const uint8_t key[32] = {9};
    gsp_record_key seal = {.key = {9}};
    ATOM_ASSERT(sodium_init() >= 0);
    if (size == 0 || size > sizeof stream)
        return 0;
    if (data[0] & 2) { /* frames: any split gives the same answer */
        gsp_frames whole = {.bytes_max = 64}, pieces = whole;
        bool passes = gsp_frames_pass(&whole, data + 1, size - 1), all = true;
        for (size_t i = 1; i < size && all; i++)
            all = gsp_frames_pass(&pieces, data + i, 1);
        ATOM_ASSERT(passes == all && (!passes || whole.left <= 64));
        return 0;
    }
    if (data[0] & 1) {
        memcpy(stream, data + 1, size - 1);
        ATOM_ASSERT(read_stream(stream, size - 1, key) == 0);
        return 0;
    }
    for (size_t i = 0; i < RECORDS; i++) {
        memset(good + i * RECORD, (int)i, RECORD);
        ATOM_ASSERT(gsp_record_seal(&seal, good + i * RECORD, PLAIN) == RECORD);
    }
    memcpy(stream, good, sizeof good);
    for (size_t i = 1; i + 3 <= size; i += 3)
        stream[((size_t)data[i] << 8 | data[i + 1]) % sizeof good] ^= data[i + 2];
    size_t intact = 0;
    while (intact < RECORDS &&
           memcmp(stream + intact * RECORD, good + intact * RECORD, RECORD) == 0)
        intact++;
    ATOM_ASSERT(read_stream(stream, sizeof good, key) == intact * PLAIN);
    return 0;
}
