/*
 * Owns what others contributed. Its one idea: before BEGIN one contribution of a member is as good
 * as another; afterwards only the one that BEGIN names counts. It refuses parts of other owners,
 * and of each member more than a bounded number of bytes that nobody asked for.
 */
#include "gossip/member/inputs.h"

#include <string.h>

/* Of all members, each of which has its share of them, and never less than the second. */
static const uint64_t EARLY_BYTES_MAX = 64 << 20, EARLY_BYTES_MIN = 8 << 20;

/* The contribution's root may be what this member brings: nothing is known of it yet, or BEGIN
 * names it. */
static bool right_root(const gsp_round *r, const gsp_piece *p, uint32_t from)
{
    if (r->ballot == 0)
        return true;
    for (uint32_t i = 0; i < r->begin.n_contributors; i++)
        if (r->begin.contributor[i].member == from)
            return gsp_hash_equal(&r->begin.contributor[i].root, &p->root);
    return false;
}

static bool wanted(gsp_inputs *in, const gsp_agree *agree, const gsp_message *m, uint32_t from)
{
    const gsp_round *r = &agree->round;
    const gsp_piece *p = &m->as.piece;
    if (m->version != agree->certified + 1 || from == GSP_NOBODY || !right_root(r, p, from))
        return false;
    if (r->ballot != 0 && r->begin.owner[p->part] == agree->self_i)
        return true;
    uint64_t share = EARLY_BYTES_MAX / gsp_agree_roster(agree)->n;
    in->early_bytes[from] += p->bytes;
    return in->early_bytes[from] <= (share > EARLY_BYTES_MIN ? share : EARLY_BYTES_MIN);
}

gsp_blob **gsp_inputs_place(gsp_inputs *in, const gsp_agree *agree, const gsp_message *m,
                            uint32_t from)
{
    const gsp_piece *p = &m->as.piece;
    if (!wanted(in, agree, m, from))
        return NULL;
    gsp_blob **place = &in->blob[from][p->part];
    if (*place && !gsp_hash_equal(&(*place)->root, &p->root))
        gsp_blob_close(place);
    return place;
}

const void *gsp_inputs_find(const gsp_inputs *in, const gsp_contributor *c, uint32_t part)
{
    const gsp_blob *b = in->blob[c->member][part];
    return b && b->whole && gsp_hash_equal(&b->root, &c->root) ? b->data : NULL;
}

void gsp_inputs_clear(gsp_inputs *in)
{
    for (uint32_t i = 0; i < GSP_MEMBERS_MAX; i++)
        for (uint32_t p = 0; p < GSP_PARTS_MAX; p++)
            gsp_blob_close(&in->blob[i][p]);
    memset(in->early_bytes, 0, sizeof in->early_bytes);
}
