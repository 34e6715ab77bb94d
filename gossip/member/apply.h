/*
 * Results on their way into the work. Where the work can hold a version beside the one it has
 * (gsp_work.early), parts are given as soon as they are here, while the links are still busy with
 * the others; a certificate then only says which of them stay, and which are replaced or taken
 * back.
 *
 * Thread: the member's. Errors: ATOM_E_RUNTIME where a certified result is gone.
 */
#ifndef GOSSIP_MEMBER_APPLY_H
#define GOSSIP_MEMBER_APPLY_H

#include "gossip/member/freezing.h"
#include "gossip/member/parts.h"
#include "gossip/member/recent_results.h"
#include "gossip/member/work.h"
#include "gossip/sum/mix.h"

typedef struct gsp_apply {
    const gsp_terms *terms;
    const gsp_work *work;
    gsp_mix *mix;                  /* its memory is for decoding */
    uint64_t version;              /* these parts were given for it; 0: none were */
    gsp_hash given[GSP_PARTS_MAX]; /* zero: not given */
    bool useless[GSP_PARTS_MAX];   /* it does not decode */
    bool on;                       /* the newest certificate is being applied */
    uint32_t next;                 /* its next part */
} gsp_apply;

/* All three stay where they are for as long as it is used. */
void gsp_apply_open(gsp_apply *apply, const gsp_terms *terms, const gsp_work *work, gsp_mix *mix);

/* Gives the work one part of the version in progress whose result is here and stands in this
 * ballot. False: there is none. */
bool gsp_apply_early(gsp_apply *apply, const gsp_agree *agree, const gsp_recent *held);
/* What was given of a version that is not certified is as if it had not been. */
void gsp_apply_take_back(gsp_apply *apply);

/* The newest certificate is to be applied. */
void gsp_apply_begin(gsp_apply *apply);
/* Gives some parts of the certificate's proposal; *done: all were. */
ATOM_MUST atom_status gsp_apply_some(gsp_apply *apply, const gsp_proposal *proposal,
                                     gsp_recent *held, gsp_freezing *freezing, bool *done);

#endif
