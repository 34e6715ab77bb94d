/*
 * The fragments of an anchor on disk, in one directory (docs/design/pool.md#what-a-member-holds):
 * two files for each, written in turn; a page with the header, the anchor, and behind it what else
 * belongs to the fragment's state. Thread: one writes; others may read headers and floats
 * meanwhile, and see what is not whole as not there. Errors: as stated; ATOM_E_RUNTIME,
 * ATOM_E_RESOURCE  the disk.
 */
#ifndef ATOM_POOL_STORE_H
#define ATOM_POOL_STORE_H

#include "atom/base/status.h"
#include "atom/pool/floats.h"
#include "gossip/agree/types.h"

typedef struct pool_store {
    char *directory;                   /* owned by whoever has the store */
    uint64_t n[GSP_FRAGMENTS_MAX];     /* floats of each fragment's anchor */
    uint64_t outer[GSP_FRAGMENTS_MAX]; /* floats behind it: momentum, moments, sum */
} pool_store;

typedef struct pool_header {
    uint64_t epoch, version, n;
    gsp_hash lineage;
    gsp_hash anchor, momentum; /* hashes of the floats */
} pool_header;

void pool_floats_hash(const float *x, uint64_t n, gsp_hash *out);
/* Writes floats and header, synced. Fills the header's hashes. */
ATOM_MUST atom_status pool_file_write(const pool_store *s, uint32_t f, uint32_t slot,
                                      pool_header *header, const float *anchor,
                                      const float *momentum);
/* False: there is none, or it is not whole. */
bool pool_file_header(const pool_store *s, uint32_t f, uint32_t slot, pool_header *out);
/* Floats of a whole file, checked against the header's hashes; ATOM_E_FORMAT where they differ.
 * momentum NULL: the anchor alone. */
ATOM_MUST atom_status pool_file_read(const pool_store *s, uint32_t f, uint32_t slot,
                                     const pool_header *header, float *anchor, float *momentum);
/* A file that is fetched: floats without a header, piece by piece, one fragment after the other. */
typedef struct pool_incoming {
    int fd; /* -1: none */
    uint32_t fragment;
    uint64_t version[GSP_FRAGMENTS_MAX]; /* of each that came */
} pool_incoming;
/* n floats from float `first` on; the file begins with 0. */
ATOM_MUST atom_status pool_incoming_put(pool_incoming *in, const pool_store *s, uint32_t f,
                                        uint32_t slot, uint64_t version, uint64_t first, uint64_t n,
                                        const float *x);
void pool_incoming_close(pool_incoming *in);
/* Then: reads the floats back, writes the header, syncs. */
ATOM_MUST atom_status pool_file_seal(const pool_store *s, uint32_t f, uint32_t slot,
                                     pool_header *header, float *anchor, float *momentum);

/*
 * Fragments that stay on disk, read and made in pieces of at most `piece` floats, for which there is
 * room[piece]. A version is made in a file `next`, which becomes that of a slot when it is whole: what
 * the slot had is there until then.
 */
/* What lies in an open file of fragment f: its anchor, and what is behind it. */
pool_floats pool_file_anchor(int fd);
pool_floats pool_file_outer(const pool_store *s, uint32_t f, int fd);
/* Zero floats, with their space on the disk. */
ATOM_MUST atom_status pool_next_open(const pool_store *s, uint32_t f, int *fd);
/* Fills the header's hashes, synced. fd stays open. */
ATOM_MUST atom_status pool_next_end(const pool_store *s, uint32_t f, uint32_t slot, int fd,
                                    pool_header *header, float *room, uint64_t piece);
/* pool_file_read and pool_file_seal without taking the floats; *fd is open when they return ATOM_OK. */
ATOM_MUST atom_status pool_slot_open(const pool_store *s, uint32_t f, uint32_t slot,
                                     const pool_header *header, float *room, uint64_t piece,
                                     int *fd);
ATOM_MUST atom_status pool_slot_seal(const pool_store *s, uint32_t f, uint32_t slot,
                                     pool_header *header, float *room, uint64_t piece, int *fd);

#endif
