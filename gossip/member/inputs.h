/*
 * The contributions of others to the parts that this member owns, of the version in progress.
 * Some come before the BEGIN that asks for them; of each member a bounded amount of these is kept.
 *
 * Thread: the member's. Errors: none.
 */
#ifndef GOSSIP_MEMBER_INPUTS_H
#define GOSSIP_MEMBER_INPUTS_H

#include "gossip/agree/agree.h"
#include "gossip/member/blob.h"

typedef struct gsp_inputs {
    gsp_blob *blob[GSP_MEMBERS_MAX][GSP_PARTS_MAX]; /* by index in the roster */
    uint64_t early_bytes[GSP_MEMBERS_MAX];          /* of pieces that no BEGIN wanted yet */
} gsp_inputs;

/* Where a piece of a contribution from member `from` of the roster (or GSP_NOBODY) belongs; NULL:
 * nobody wants it. */
gsp_blob **gsp_inputs_place(gsp_inputs *inputs, const gsp_agree *agree, const gsp_message *message,
                            uint32_t from);
/* The bytes of a contributor's part; NULL: not here, or not whole. */
const void *gsp_inputs_find(const gsp_inputs *inputs, const gsp_contributor *contributor,
                            uint32_t part);
/* The version is over. */
void gsp_inputs_clear(gsp_inputs *inputs);

#endif
