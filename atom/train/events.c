/*
 * Owns TensorBoard event files. One idea: a message is built in a small buffer from its inside to
 * its outside, and a record is one write. Refuses to know more of protobuf than five field types.
 */
#include "atom/train/events.h"

#include "atom/base/assert.h"
#include "atom/base/clock.h"
#include "atom/base/mem.h"
#include "atom/train/append.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MESSAGE_BYTES = 4096, TAG_BYTES_MAX = 64 };
enum { WIRE_VARINT = 0, WIRE_DOUBLE = 1, WIRE_BYTES = 2, WIRE_FLOAT = 5 };

struct train_events {
    train_append file;
};

typedef struct message {
    uint8_t data[MESSAGE_BYTES];
    size_t n;
} message;

static void put(message *m, const void *data, size_t bytes)
{
    ATOM_ASSERT(m->n + bytes <= sizeof m->data);
    memcpy(m->data + m->n, data, bytes);
    m->n += bytes;
}

static void put_varint(message *m, uint64_t value)
{
    do {
        uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        put(m, &byte, 1);
        value >>= 7;
    } while (value);
}

static void put_key(message *m, uint32_t field, uint32_t wire)
{
    put_varint(m, field << 3 | wire);
}

static void put_bytes(message *m, uint32_t field, const void *data, size_t bytes)
{
    put_key(m, field, WIRE_BYTES);
    put_varint(m, bytes);
    put(m, data, bytes);
}

/* CRC-32C (Castagnoli), bit by bit: a few hundred bytes per step. */
static uint32_t crc32c(const uint8_t *data, size_t bytes)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static uint32_t masked(const void *data, size_t bytes)
{
    uint32_t crc = crc32c(data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static atom_status write_record(train_events *e, const message *m)
{
    uint64_t bytes = m->n;
    message record = {.n = 0};
    uint32_t head = masked(&bytes, sizeof bytes), body = masked(m->data, m->n);
    ATOM_ASSERT(m->n + 16 <= sizeof record.data);
    put(&record, &bytes, sizeof bytes);
    put(&record, &head, sizeof head);
    put(&record, m->data, m->n);
    put(&record, &body, sizeof body);
    return train_append_write(&e->file, record.data, record.n);
}

/* Event: 1 wall_time, 2 step, 3 file_version, 5 summary. */
static void begin_event(message *m, int64_t step)
{
    double now = atom_wall_seconds();
    m->n = 0;
    put_key(m, 1, WIRE_DOUBLE);
    put(m, &now, sizeof now);
    put_key(m, 2, WIRE_VARINT);
    put_varint(m, (uint64_t)step);
}

atom_status train_events_open(const char *dir, train_events **out)
{
    static const char version[] = "brain.Event:2";
    char host[64] = "host";
    message m;
    atom_status st = ATOM_OK;
    char *path = NULL;
    train_events *e = atom_alloc(1, sizeof *e);
    if (!e)
        return atom_fail_memory("an event file", sizeof *e);
    e->file.fd = -1;
    if (gethostname(host, sizeof host - 1))
        snprintf(host, sizeof host, "host");
    path = atom_format("%s/events.out.tfevents.%.0f.%s.%ld", dir, atom_wall_seconds(), host,
                       (long)getpid());
    if (!path)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 256));
    ATOM_TRY_CLEAN(train_append_open(&e->file, path, 0));
    begin_event(&m, 0);
    put_bytes(&m, 3, version, sizeof version - 1);
    ATOM_TRY_CLEAN(write_record(e, &m));
    *out = e;
    e = NULL;
cleanup:
    atom_free(path);
    train_events_close(&e);
    return st;
}

/* Summary: repeated 1 value; Value: 1 tag, 2 simple_value. */
atom_status train_events_add(train_events *e, int64_t step, const train_scalar *scalars, uint32_t n)
{
    message event, summary = {.n = 0}, value;
    ATOM_ASSERT(n <= TRAIN_SCALARS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        float number = (float)scalars[i].value;
        size_t bytes = strlen(scalars[i].tag);
        ATOM_ASSERT(bytes <= TAG_BYTES_MAX);
        value.n = 0;
        put_bytes(&value, 1, scalars[i].tag, bytes);
        put_key(&value, 2, WIRE_FLOAT);
        put(&value, &number, sizeof number);
        put_bytes(&summary, 1, value.data, value.n);
    }
    begin_event(&event, step);
    put_bytes(&event, 5, summary.data, summary.n);
    return write_record(e, &event);
}

void train_events_close(train_events **events)
{
    train_events *e = *events;
    if (!e)
        return;
    train_append_close(&e->file);
    atom_free(e);
    *events = NULL;
}
