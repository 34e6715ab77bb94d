/*
 * Owns the way of results into the work. Its one idea: where the work can hold a version beside the
 * one it has, parts are given as soon as they are here, while the links are still busy with the
 * others, and a certificate only says which of them stay. It refuses to apply anything that no
 * quorum has voted for.
 */
#include "gossip/member/node_inner.h"

#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <string.h>

enum { APPLY_PARTS = 8 };

/* My contribution's index among the contributors of the newest certificate, or GSP_NOBODY. */
static uint32_t my_place(const gsp_node *d)
{
    const gsp_proposal *p = &d->agree.certificate.proposal;
    const gsp_freezing *f = &d->freezing;
    for (uint32_t i = 0; f->done && f->x && f->version == p->version && i < p->n_contributors; i++)
        if (gsp_hash_equal(&p->contributor[i].root, &f->contribution.root))
            return i;
    return GSP_NOBODY;
}

/* The floats of a result, perhaps in the mix's memory; NULL: it does not decode. */
static const float *result_floats(gsp_node *d, const gsp_blob *b, uint64_t n)
{
    const float *x = (const float *)(const void *)b->data;
    if (d->config.codec == GSP_CODEC_FP32 && gsp_all_finite(x, n))
        return x;
    return gsp_decode(d->config.codec, b->data, b->bytes, d->mix.sum, n) ? d->mix.sum : NULL;
}

static void forget_given(gsp_node *d)
{
    d->given_version = 0;
    memset(d->given, 0, sizeof d->given);
    memset(d->useless, 0, sizeof d->useless);
}

void gsp_apply_take_back(gsp_node *d)
{
    uint64_t first;
    for (uint32_t p = 0; d->given_version && p < d->config.rules.n_parts; p++)
        if (!gsp_hash_none(&d->given[p])) {
            uint64_t n = gsp_node_part_floats(d, d->given_version, p, &first);
            d->config.work.part(d->config.work.context, d->given_version, first, NULL, n);
        }
    forget_given(d);
}

/* What was given for another version than this one is taken back. */
static void given_for(gsp_node *d, uint64_t version)
{
    if (d->given_version == version)
        return;
    gsp_apply_take_back(d);
    d->given_version = version;
}

/* b NULL: the part stays as it is. What does not decode does, too: a lying owner and a quorum that
 * believed it change nothing, for all alike. */
static void give(gsp_node *d, uint32_t part, const gsp_blob *b)
{
    const gsp_hash none = {{0}};
    uint64_t first, n = gsp_node_part_floats(d, d->given_version, part, &first);
    const float *x = b ? result_floats(d, b, n) : NULL;
    if (x || !gsp_hash_none(&d->given[part]))
        d->config.work.part(d->config.work.context, d->given_version, first, x, n);
    d->given[part] = b ? b->root : none;
    d->useless[part] = !x;
}

bool gsp_apply_early(gsp_node *d)
{
    const gsp_agree *a = &d->agree;
    const gsp_round *r = &a->round;
    if (!d->config.work.early || r->ballot == 0 || a->applied != a->certified || d->dead != ATOM_OK)
        return false;
    for (uint32_t p = 0; p < r->begin.n_parts; p++) {
        const gsp_hash *hash = &r->known[p].hash;
        bool done = d->given_version == a->certified + 1 && gsp_hash_equal(hash, &d->given[p]);
        const gsp_blob *b =
            gsp_hash_none(hash) || done ? NULL : gsp_row_find(d->result[0][p], hash);
        if (!b || !b->whole)
            continue;
        given_for(d, a->certified + 1);
        give(d, p, b);
        return true;
    }
    return false;
}

static atom_status apply_one(gsp_node *d, uint32_t part, uint32_t mine)
{
    const gsp_proposal *p = &d->agree.certificate.proposal;
    const gsp_hash *hash = &p->part[part].hash;
    uint64_t first, n = gsp_node_part_floats(d, p->version, part, &first);
    bool done = gsp_hash_equal(hash, &d->given[part]); /* both may be zero */
    const gsp_blob *b = done || gsp_hash_none(hash) ? NULL : gsp_node_result(d, part, hash);
    if (!b && !done && !gsp_hash_none(hash))
        return atom_fail(ATOM_E_RUNTIME, "version %llu: the result of part %u is gone",
                         (unsigned long long)p->version, part);
    if (!done)
        give(d, part, b);
    if (mine != GSP_NOBODY && (p->part[part].included >> mine & 1) && !d->useless[part] &&
        !gsp_hash_none(hash) && d->config.codec == GSP_CODEC_INT8)
        memcpy(d->residual[p->version % d->config.n_fragments] + first, d->freezing.lost + first,
               n * sizeof(float));
    return ATOM_OK;
}

static atom_status apply_end(gsp_node *d)
{
    const gsp_certificate *c = &d->agree.certificate;
    gsp_hash leaf[GSP_PARTS_MAX], root;
    gsp_certificate **kept = &d->certificate[c->proposal.version % MEMBER_CERTIFICATES];
    for (uint32_t k = 0; k < c->proposal.n_parts; k++)
        leaf[k] = c->proposal.part[k].hash;
    gsp_merkle_root(leaf, c->proposal.n_parts, &root);
    gsp_audit_keep(d, c);
    ATOM_TRY(d->config.work.apply(d->config.work.context, c, &root));
    d->saved.genesis = d->agree.genesis;
    d->saved.has_certificate = true;
    d->saved.certificate = *c;
    d->saved.record = d->agree.record;
    gsp_state_changed(d, c->proposal.version);
    ATOM_TRY(gsp_votes_state(d->votes, &d->saved, d->agree.self.incarnation));
    if (!*kept)
        *kept = atom_alloc(1, sizeof **kept);
    if (*kept)
        **kept = *c;
    return ATOM_OK;
}

void gsp_apply_some(gsp_node *d)
{
    const gsp_proposal *p = &d->agree.certificate.proposal;
    uint32_t mine = my_place(d);
    atom_status st = ATOM_OK;
    if (d->apply_next == 0 && !gsp_lease_copy(d, (uint32_t)(p->version % d->config.n_fragments)))
        return;
    given_for(d, p->version);
    for (uint32_t k = 0; k < APPLY_PARTS && d->apply_next < p->n_parts && st == ATOM_OK; k++)
        st = apply_one(d, d->apply_next++, mine);
    if (st == ATOM_OK && d->apply_next < p->n_parts)
        return;
    d->applying = false;
    forget_given(d);
    if (st == ATOM_OK)
        st = apply_end(d);
    if (st != ATOM_OK) {
        gsp_node_die(d, st);
        return;
    }
    if (d->freezing.version == p->version)
        d->status.round_ns = atom_clock_ns() - d->freezing.began_ns;
    gsp_event event = {.kind = GSP_ON_APPLIED, .version = p->version};
    gsp_node_step(d, &event);
}
