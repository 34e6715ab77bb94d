/*
 * The chain that led to a state (certificate_chain.h), as a member keeps it: in memory, each step
 * encoded, with where it ends. Beside it stands the newest certificate, which becomes a step of its own when it
 * changes the roster or when a fork continues it.
 *
 * Thread: the member's. Errors: ATOM_E_RESOURCE for memory; ATOM_E_FORMAT for a step that does not
 * follow.
 */
#ifndef GOSSIP_MEMBER_TRAIL_H
#define GOSSIP_MEMBER_TRAIL_H

#include "gossip/agree/agree.h"

#include "atom/base/status.h"

enum { GSP_TRAIL_BYTES_MAX = 64 << 20 };

typedef struct gsp_trail {
    const gsp_chain_terms *terms; /* used, not taken */
    uint32_t n, room;
    size_t bytes; /* of the encoded steps */
    struct {
        gsp_hash id;
        uint32_t bytes;
        uint8_t *data;
    } * step;
    gsp_chain end;
} gsp_trail;

/* Empty. */
void gsp_trail_open(gsp_trail *trail, const gsp_chain_terms *terms);
void gsp_trail_close(gsp_trail *trail);

/* Takes the next step. known: its signatures were checked before. A reset takes the place of all but
 * the first step. */
ATOM_MUST atom_status gsp_trail_add(gsp_trail *trail, const gsp_step *step, bool known);
/* Only the first n steps stay. */
void gsp_trail_cut(gsp_trail *trail, uint32_t n);
ATOM_MUST atom_status gsp_trail_copy(gsp_trail *to, const gsp_trail *from);
void gsp_trail_read(const gsp_trail *trail, uint32_t i, gsp_step *out);
/* The number of the step with this id; trail->n: there is none. */
uint32_t gsp_trail_find(const gsp_trail *trail, const gsp_hash *id);
/* Where the first n steps lead. */
void gsp_trail_lead(const gsp_trail *trail, uint32_t n, gsp_chain *out);

/* There is no room for what a certificate or a fork may add: only a reset may follow. */
bool gsp_trail_is_full(const gsp_trail *trail);
/* A certificate was applied: kept if it changed the roster. */
ATOM_MUST atom_status gsp_trail_certify(gsp_trail *trail, const gsp_certificate *certificate);
/* A lineage begins here, after this certificate (NULL: none since the last genesis). To a reset the
 * certificate says nothing. */
ATOM_MUST atom_status gsp_trail_begin(gsp_trail *trail, const gsp_certificate *newest,
                                      const gsp_genesis *genesis);
/* The state of `saved` was adopted, which this chain shows: it ends there. */
ATOM_MUST atom_status gsp_trail_settle(gsp_trail *trail, const gsp_saved *saved);
/* What is left of a chain that may have gone further than `saved`, after a crash. False: it does
 * not lead there. */
ATOM_MUST bool gsp_trail_back(gsp_trail *trail, const gsp_saved *saved);

/* The newest certificate as the step that follows the trail; false: it is the trail's last, or there
 * is none. saved may be NULL. */
ATOM_MUST bool gsp_trail_tail(const gsp_trail *trail, const gsp_saved *saved, gsp_step *out);

/* What to ask another for, to hear only what is not here. */
void gsp_trail_ask(const gsp_trail *trail, gsp_chain_ask *out);
void gsp_trail_answer(const gsp_trail *trail, const gsp_saved *saved, const gsp_chain_ask *ask,
                      gsp_chain_said *out);
/* Compares two trails whose steps were checked. */
void gsp_trail_match(const gsp_trail *mine, const gsp_saved *saved, const gsp_trail *theirs,
                     gsp_match *out);

#endif
