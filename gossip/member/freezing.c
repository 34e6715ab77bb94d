/*
 * Owns my contributions. Its one idea: only the first pass over a part waits for memory, so that
 * check, encoding and hash run over it one right after the other. It refuses floats that are not
 * finite: they would spoil the sum for all.
 */
#include "gossip/member/freezing.h"

#include "atom/base/clock.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <string.h>

enum { FREEZE_PARTS = 4 };

void gsp_freezing_open(gsp_freezing *f, const gsp_terms *terms, const gsp_work *work,
                       const char *directory)
{
    *f = (gsp_freezing){.terms = terms, .work = work};
    gsp_residuals_open(&f->residuals, terms, work->on_disk ? directory : NULL);
}

/* ---- encoding ---- */

/* Memory for what is encoded. */
static atom_status make_room(gsp_freezing *f)
{
    const gsp_terms *t = f->terms;
    uint64_t bytes = gsp_terms_all_bytes(t, f->version);
    if (!f->x || t->codec == GSP_CODEC_FP32)
        return ATOM_OK;
    atom_free(f->encoded);
    f->encoded = atom_alloc(1, bytes);
    if (!f->encoded)
        return atom_fail_memory("a contribution", bytes);
    return t->codec == GSP_CODEC_INT8 ? gsp_residuals_begin(&f->residuals, f->version) : ATOM_OK;
}

/* Asks the work, which may not be ready yet. */
static atom_status ask(gsp_freezing *f)
{
    gsp_contribution *c = &f->contribution;
    f->x = NULL;
    gsp_freeze answer =
        f->work->freeze(f->work->context, f->version, &f->x, &c->tokens, &c->samples);
    f->later = answer == GSP_FREEZE_LATER;
    if (answer != GSP_FREEZE_READY)
        f->x = NULL;
    return f->later ? ATOM_OK : make_room(f);
}

atom_status gsp_freezing_begin(gsp_freezing *f, uint64_t version)
{
    f->on = true;
    f->done = false;
    f->version = version;
    f->next = 0;
    f->began_ns = atom_clock_ns();
    memset(&f->contribution, 0, sizeof f->contribution);
    return ask(f);
}

static const uint8_t *encoded_part(const gsp_freezing *f, uint32_t part)
{
    const uint8_t *all = f->terms->codec == GSP_CODEC_FP32 ? (const uint8_t *)f->x : f->encoded;
    return all + gsp_terms_offset(f->terms, f->version, part);
}

/* The hash is first where it can be: it asks for memory ahead of its work. */
static atom_status encode_one(gsp_freezing *f, uint32_t part)
{
    const gsp_codec codec = f->terms->codec;
    uint64_t first, n = gsp_terms_floats(f->terms, f->version, part, &first);
    uint64_t bytes = gsp_codec_bytes(codec, n);
    if (codec == GSP_CODEC_FP32)
        gsp_merkle_leaf(part, encoded_part(f, part), bytes, &f->leaf[part]);
    if (!gsp_all_finite(f->x + first, n)) {
        atom_log(ATOM_LOG_WARN,
                 "version %llu: my contribution has floats that are not finite; it is not sent",
                 (unsigned long long)f->version);
        f->x = NULL;
        return ATOM_OK;
    }
    if (codec == GSP_CODEC_FP32)
        return ATOM_OK;
    const float *residual = NULL;
    float *lost = NULL;
    if (codec == GSP_CODEC_INT8)
        ATOM_TRY(gsp_residuals_look(&f->residuals, f->version, part, &residual, &lost));
    uint8_t *out = f->encoded + gsp_terms_offset(f->terms, f->version, part);
    gsp_encode(codec, f->x + first, n, residual, out, lost);
    gsp_merkle_leaf(part, out, bytes, &f->leaf[part]);
    return lost ? gsp_residuals_keep(&f->residuals, f->version, part) : ATOM_OK;
}

atom_status gsp_freezing_some(gsp_freezing *f, uint64_t next, const gsp_rates *rates, bool *done)
{
    uint32_t n_parts = f->terms->n_parts;
    *done = false;
    if (f->later && f->version != next)
        f->on = f->later = false; /* decided without mine */
    if (f->later)
        ATOM_TRY(ask(f));
    if (!f->on || f->later)
        return ATOM_OK;
    for (uint32_t k = 0; k < FREEZE_PARTS && f->x && f->next < n_parts; k++)
        ATOM_TRY(encode_one(f, f->next++));
    if (f->x && f->next < n_parts)
        return ATOM_OK;
    if (f->x)
        gsp_merkle_root(f->leaf, n_parts, &f->contribution.root);
    else
        memset(&f->contribution, 0, sizeof f->contribution);
    f->contribution.rates = *rates;
    f->took_ns = atom_clock_ns() - f->began_ns;
    f->on = false;
    f->done = *done = true;
    return ATOM_OK;
}

bool gsp_freezing_is_busy(const gsp_freezing *f)
{
    return f->on && !f->later;
}

/* ---- for others ---- */

const uint8_t *gsp_freezing_part(const gsp_freezing *f, uint64_t version, const gsp_hash *root,
                                 uint32_t part)
{
    if (!f->done || !f->x || f->version != version || !gsp_hash_equal(&f->contribution.root, root))
        return NULL;
    return encoded_part(f, part);
}

bool gsp_freezing_exhibit(const gsp_freezing *f, uint64_t version, const gsp_hash *root,
                          uint32_t part, gsp_exhibit *out)
{
    const gsp_brought *k = &f->kept;
    const gsp_hash *leaf = f->leaf;
    const uint8_t *data = gsp_freezing_part(f, version, root, part);
    if (!data && version != 0 && k->version == version && gsp_hash_equal(&k->root, root)) {
        data = k->encoded + gsp_terms_offset(f->terms, version, part);
        leaf = k->leaf;
    }
    if (!data)
        return false;
    out->data = data;
    out->bytes = gsp_terms_bytes(f->terms, version, part);
    out->n_path = gsp_merkle_path(leaf, f->terms->n_parts, part, out->path);
    return true;
}

/* ---- the end of a version ---- */

uint32_t gsp_freezing_find(const gsp_freezing *f, const gsp_proposal *p)
{
    if (!f->done || !f->x || f->version != p->version)
        return GSP_NOBODY;
    for (uint32_t i = 0; i < p->n_contributors; i++)
        if (gsp_hash_equal(&p->contributor[i].root, &f->contribution.root))
            return i;
    return GSP_NOBODY;
}

void gsp_freezing_included(gsp_freezing *f, uint32_t part)
{
    if (f->terms->codec == GSP_CODEC_INT8)
        gsp_residuals_included(&f->residuals, f->version, part);
}

void gsp_freezing_keep(gsp_freezing *f, uint64_t version, bool audited)
{
    gsp_brought *k = &f->kept;
    k->version = 0;
    if (!audited || !f->done || !f->x || f->version != version)
        return;
    atom_free(k->encoded);
    if (f->terms->codec == GSP_CODEC_FP32) {
        uint64_t n = f->terms->n_floats[gsp_terms_fragment(f->terms, version)];
        k->encoded = atom_alloc(n ? n : 1, sizeof(float));
        if (k->encoded)
            memcpy(k->encoded, f->x, n * sizeof(float));
    } else {
        k->encoded = f->encoded;
        f->encoded = NULL;
    }
    f->done = false; /* its parts are found here from now on */
    if (!k->encoded)
        return; /* then nobody can check this one with my help */
    memcpy(k->leaf, f->leaf, sizeof k->leaf);
    k->root = f->contribution.root;
    k->version = version;
}

void gsp_freezing_drop_lost(gsp_freezing *f)
{
    gsp_residuals_forget(&f->residuals);
}

void gsp_freezing_forget(gsp_freezing *f)
{
    gsp_freezing_drop_lost(f);
    f->on = f->done = f->later = false;
    f->x = NULL;
}

void gsp_freezing_close(gsp_freezing *f)
{
    gsp_freezing_forget(f);
    gsp_residuals_close(&f->residuals);
    atom_free(f->encoded);
    atom_free(f->kept.encoded);
    *f = (gsp_freezing){0};
}
