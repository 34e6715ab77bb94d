/*
 * The messages of a probe, shared by its two sides, probe.c and probe_server.c, which do not call
 * each other. On CONTROL: mark, version, kind, 0, then the kind's fields. On BULK: a head of 8
 * bytes and padding. Thread: any.
 */
#ifndef GOSSIP_NET_PROBE_INNER_H
#define GOSSIP_NET_PROBE_INNER_H

#include "gossip/net/probe.h"

#include "atom/base/bytes.h"

enum {
    PROBE_VERSION = 2,
    PROBE_HEAD_BYTES = 4,
    PROBE_MESSAGE_BYTES_MAX = 160,
    PROBE_PART_BYTES = 256 * 1024,
};

typedef enum probe_kind {
    PROBE_ASK = 1, /* u64 the asker's time in ns */
    PROBE_HERE,    /* the same, u64 the answerer's, address: 16 bytes and u16, u64 bytes left */
    PROBE_DIAL,    /* u16 port */
    PROBE_DIALLED, /* u8 worked, text */
    PROBE_PART,    /* BULK */
    PROBE_SENT,    /* u64 bytes of parts that the asker has sent since the last SENT */
    PROBE_GOT,     /* u64 bytes after the first part, u64 ns from the first part to the last */
    PROBE_SEND,    /* u64 bytes of parts wanted */
    PROBE_NO,      /* u64 bytes left that may be asked for */
    PROBE_KIND_N
} probe_kind;

static inline atom_writer probe_write(uint8_t out[PROBE_MESSAGE_BYTES_MAX], probe_kind kind)
{
    atom_writer w = atom_writer_make(out, PROBE_MESSAGE_BYTES_MAX);
    atom_write_uint(&w, GSP_PROBE_MARK, 1);
    atom_write_uint(&w, PROBE_VERSION, 1);
    atom_write_uint(&w, kind, 1);
    atom_write_uint(&w, 0, 1);
    return w;
}

/* The kind, or 0 if the message is not a probe's; the reader then stands behind the head. */
static inline probe_kind probe_read(const gsp_net_event *event, atom_reader *r)
{
    *r = atom_reader_make(event->data, event->bytes);
    if (event->kind != GSP_NET_MESSAGE || event->bytes < PROBE_HEAD_BYTES ||
        atom_read_u8(r) != GSP_PROBE_MARK || atom_read_u8(r) != PROBE_VERSION)
        return 0;
    uint8_t kind = atom_read_u8(r);
    (void)atom_read_u8(r);
    bool part = kind == PROBE_PART;
    if (kind >= PROBE_KIND_N || part != (event->channel == GSP_NET_BULK))
        return 0;
    return (probe_kind)kind;
}

#endif
