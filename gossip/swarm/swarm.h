/*
 * A download from many donors at once (docs/design/pool.md#joining): which piece to ask of whom, and
 * when to ask somebody else. What is fetched are sets of pieces of one size: the fragments of a
 * state, the files of a data set, one small file.
 *
 * A pure state machine in the style of agree.h: events go in through the functions below, and
 * gsp_swarm_turn calls `sink` once for each question to send. It has no clock (`now_ns` comes in,
 * and must never be 0 or run backwards), no sockets, no disk, and never sees a piece: the caller
 * checks what comes and reports a verdict. It allocates nothing and is a function of its inputs.
 *
 *   - Each donor has a window: as many pieces in flight as it gave in half a second of late.
 *   - A set of higher rank is asked for first, then the lower set, then the lower piece.
 *   - A donor that gives nothing for `silent_ns` loses its questions, which others get, and is set
 *     aside for `aside_ns`. A donor that gave a wrong piece is barred.
 *   - With `late_ns`, a donor that has nothing left to do is asked for the piece that has been in
 *     flight elsewhere for longest; both may then send it.
 *
 * Thread: the caller's. Errors: none. Numbers of donors, sets and pieces must be in range: the
 * caller has checked those that a peer sent.
 */
#ifndef GOSSIP_SWARM_SWARM_H
#define GOSSIP_SWARM_SWARM_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GSP_SWARM_NAME_BYTES = 32, GSP_SWARM_NOBODY = 0xffff };

typedef struct gsp_swarm_config {
    uint32_t n_donors; /* known at once, barred ones among them */
    uint32_t n_sets;
    const uint32_t *n_pieces;                      /* [n_sets]; read at open only */
    uint32_t piece_bytes;                          /* of all but the last of a set */
    uint32_t window_first, window_min, window_max; /* pieces in flight at one donor */
    uint32_t run_max;                              /* neighbouring pieces in one question */
    bool offers_all;    /* a donor has every set until it denies one; else gsp_swarm_offer says */
    uint64_t silent_ns; /* without a piece: others get its questions */
    uint64_t aside_ns;  /* and it is not asked for so long; 0: it is asked again at once */
    uint64_t deny_ns; /* how long a donor is not asked for a set that it denied; 0: until offered */
    uint64_t late_ns; /* in flight for so long: asked of an idle donor too; 0: never */
} gsp_swarm_config;

typedef struct gsp_swarm gsp_swarm;

/* A question: pieces [first, first + n) of a set. */
typedef struct gsp_swarm_ask {
    uint32_t donor, set, first, n;
    const uint8_t *name; /* of the donor */
} gsp_swarm_ask;

/* False: it could not be sent; the donor is not asked for more in this turn. */
typedef bool gsp_swarm_sink(void *context, const gsp_swarm_ask *ask);

typedef enum gsp_swarm_verdict {
    GSP_SWARM_GOOD,
    GSP_SWARM_WRONG,  /* the donor is barred */
    GSP_SWARM_DENIED, /* the donor does not have it, nor the rest of its set */
} gsp_swarm_verdict;

/* Bytes of zeroed memory, aligned for uint64_t, that gsp_swarm_open wants. */
size_t gsp_swarm_bytes(const gsp_swarm_config *config);
/* Opens in the caller's memory, which is all that there is to free. All sets are closed. */
gsp_swarm *gsp_swarm_open(const gsp_swarm_config *config, void *memory);

/* ---- donors ---- */

/* A donor is there (again). Its number, which is its own until it goes; GSP_SWARM_NOBODY: no room. */
uint32_t gsp_swarm_up(gsp_swarm *s, const uint8_t name[GSP_SWARM_NAME_BYTES]);
void gsp_swarm_down(gsp_swarm *s, uint32_t donor);
/* Not asked again, not even after it went and came back; unless so many others came meanwhile that
 * its number was needed. */
void gsp_swarm_bar(gsp_swarm *s, uint32_t donor);
bool gsp_swarm_is_up(const gsp_swarm *s, uint32_t donor);
bool gsp_swarm_is_barred(const gsp_swarm *s, uint32_t donor);
/* Also of one that is barred or went away; GSP_SWARM_NOBODY: not known. */
uint32_t gsp_swarm_find(const gsp_swarm *s, const uint8_t name[GSP_SWARM_NAME_BYTES]);
/* NULL: nobody has this number. */
const uint8_t *gsp_swarm_name(const gsp_swarm *s, uint32_t donor);
/* The donor has the set, or has it no more. */
void gsp_swarm_offer(gsp_swarm *s, uint32_t donor, uint32_t set, bool has);

/* ---- sets ---- */

/* Opens a set of which nothing is here and nothing was asked. */
void gsp_swarm_begin(gsp_swarm *s, uint32_t set, uint64_t rank);
/* Nothing of it is asked any more. */
void gsp_swarm_end(gsp_swarm *s, uint32_t set);
bool gsp_swarm_is_open(const gsp_swarm *s, uint32_t set);
/* Only pieces below `end` are asked for. */
void gsp_swarm_reach(gsp_swarm *s, uint32_t set, uint32_t end);
/* A piece is here (from a former run), or is not after all. */
void gsp_swarm_here(gsp_swarm *s, uint32_t set, uint32_t piece, bool here);
/* Some donor that is up has the set. */
bool gsp_swarm_reachable(const gsp_swarm *s, uint32_t set);

/* ---- questions and answers ---- */

bool gsp_swarm_asked(const gsp_swarm *s, uint32_t donor, uint32_t set, uint32_t piece);
/* An answer, asked for or not (late ones are as good): of a GOOD piece so many bytes. */
void gsp_swarm_came(gsp_swarm *s, uint64_t now_ns, uint32_t donor, uint32_t set, uint32_t piece,
                    uint64_t bytes, gsp_swarm_verdict verdict);
/* Gives up on the silent, then asks every donor for as much as its window has room for, one
 * question to each in turn. Call it often. */
void gsp_swarm_turn(gsp_swarm *s, uint64_t now_ns, gsp_swarm_sink *sink, void *context);

typedef struct gsp_swarm_status {
    uint64_t came, again, wrong; /* pieces: new ones, those that were here, false ones */
    uint32_t givers, giving;     /* donors that gave any; that gave one in the last two seconds */
} gsp_swarm_status;

void gsp_swarm_look(const gsp_swarm *s, uint64_t now_ns, gsp_swarm_status *out);

#endif
