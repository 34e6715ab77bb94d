/*
 * One fragment as a member holds it: its anchor and what lies behind that, and what live weights
 * have of it. Knows neither pool nor disk. Thread: none of its own; the anchor's lock is held.
 */
#ifndef ATOM_POOL_FRAGMENT_H
#define ATOM_POOL_FRAGMENT_H

#include "atom/pool/slices.h"
#include "atom/pool/store.h"

typedef struct pool_fragment {
    uint64_t first, n;
    float *anchor, *momentum; /* NULL: they stay on disk, in: */
    int file;                 /* -1: none */
    uint64_t version;         /* that is in anchor */
    gsp_hash hash;            /* of anchor */
    uint32_t slot;            /* of its files: holds version */
    uint64_t merged;          /* version that is in live */
    pool_floats *merge;       /* to be added to live; NULL: nothing */
    bool passing;             /* between pass_begin and pass_end */
    uint64_t passed;          /* version that it had when that began */
    pool_floats *pass;        /* to be added to live in this pass; NULL: nothing */
    bool replace;             /* live becomes the anchor instead */
    pool_slices slices;       /* that the anchor is to be written over in live */
    bool left;                /* nobody reads it in live: it may change */
    uint64_t tokens_included;
} pool_fragment;

/* Room for a piece of floats, where a file is looked at. */
typedef struct pool_room {
    float *at; /* NULL: everything lies in memory */
    uint64_t floats;
} pool_room;

/* Frees what it has, and closes its file. */
void pool_fragment_close(pool_fragment *f);
/* Where its anchor lies. */
pool_floats pool_fragment_anchor(const pool_fragment *f);
/* There is something that live has not taken. */
bool pool_fragment_waits(const pool_fragment *f);
/*
 * Live takes what waits, in a pass over its floats: begin, each float of the fragment once, end.
 * What comes meanwhile waits for the next pass. at: floats [at, at + n) of the fragment, which live
 * has alone. mix: of slices. *written: the floats that slices wrote. What it reads from a disk may
 * fail: what live has then is worth nothing.
 */
void pool_fragment_pass_begin(pool_fragment *f);
ATOM_MUST atom_status pool_fragment_pass(const pool_fragment *f, double mix, uint64_t at,
                                         uint64_t n, float *live, pool_room room,
                                         uint64_t *written);
void pool_fragment_pass_end(pool_fragment *f);
/* The pass came to nothing: live has not merged the version, whatever it has of it. */
void pool_fragment_pass_fail(pool_fragment *f);
/* Nothing of it waits any more. */
void pool_fragment_forget(pool_fragment *f);
/* *merge is to be added to live, too; what is kept of it is taken out of *merge. room: two of them,
 * one behind the other. */
ATOM_MUST atom_status pool_fragment_owe(pool_fragment *f, pool_floats **merge, pool_room room);
/* What was made beside it, and is in the file of the other slot, becomes current; the old floats come
 * back in its place. */
void pool_fragment_turn(pool_fragment *f, const pool_header *header, float **anchor,
                        float **momentum);
/* The same of a fragment that stays on disk: `file` is the other slot's, and the fragment's own now. */
void pool_fragment_turn_file(pool_fragment *f, const pool_header *header, int file);

#endif
