/*
 * Owns a member's bytes: its own contribution, those that came for the parts it owns, and results.
 * Its one idea: a part is one blob, which stays where it arrived, and nothing is said of it before
 * its hash was checked. It refuses pieces that no round asks for, and sizes other than the one that
 * follows from the codec.
 */
#include "gossip/member/node_inner.h"

#include "atom/base/assert.h"
#include "atom/base/clock.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum { FREEZE_PARTS = 4 };

/* CPU time of this thread. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- geometry ---- */

static uint64_t fragment_floats(const gsp_node *d, uint64_t version)
{
    return d->config.n_floats[version % d->config.n_fragments];
}

uint64_t gsp_node_part_floats(const gsp_node *d, uint64_t version, uint32_t part, uint64_t *first)
{
    return gsp_part_cut(fragment_floats(d, version), d->config.rules.n_parts, part, first);
}

/* Floats of every part but the last ones. */
static uint64_t part_stride(const gsp_node *d, uint64_t version)
{
    return gsp_part_stride(fragment_floats(d, version), d->config.rules.n_parts);
}

uint64_t gsp_node_part_bytes(const gsp_node *d, uint64_t version, uint32_t part)
{
    uint64_t first;
    return gsp_codec_bytes(d->config.codec, gsp_node_part_floats(d, version, part, &first));
}

/* ---- blobs ---- */

void gsp_blob_close(gsp_node *d, gsp_blob **blob)
{
    if (*blob) {
        if ((*blob)->message)
            gsp_net_free(d->config.net, (*blob)->message);
        atom_free((*blob)->memory);
        atom_free(*blob);
    }
    *blob = NULL;
}

/* With memory for bytes, or none where bytes is UINT64_MAX. */
static gsp_blob *blob_open(uint64_t bytes, const gsp_hash *root)
{
    gsp_blob *b = atom_alloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->root = *root;
    if (bytes != UINT64_MAX) {
        b->memory = atom_alloc(1, bytes ? bytes : 1);
        b->data = b->memory;
        b->bytes = bytes;
    }
    if (bytes != UINT64_MAX && !b->memory) {
        atom_free(b);
        return NULL;
    }
    return b;
}

gsp_blob *gsp_blob_copy(const gsp_hash *root, const gsp_exhibit *exhibit)
{
    gsp_blob *b = blob_open(exhibit->bytes, root);
    if (!b)
        return NULL;
    memcpy(b->memory, exhibit->data, exhibit->bytes);
    b->n_path = exhibit->n_path;
    memcpy(b->path, exhibit->path, sizeof b->path);
    b->whole = true;
    return b;
}

gsp_blob *gsp_row_find(gsp_blob *const row[GSP_HELD_MAX], const gsp_hash *root)
{
    for (uint32_t k = 0; k < GSP_HELD_MAX; k++)
        if (row[k] && gsp_hash_equal(&row[k]->root, root))
            return row[k];
    return NULL;
}

/* What the machine may still need of a part's results. */
static bool needed(const gsp_node *d, uint32_t part, const gsp_hash *root)
{
    const gsp_agree *a = &d->agree;
    return gsp_hash_equal(&a->round.known[part].hash, root) ||
           (a->has_pending &&
            gsp_hash_equal(&a->pending.as.propose.proposal.part[part].hash, root)) ||
           (a->record.voted && gsp_hash_equal(&a->record.proposal.part[part].hash, root));
}

/* A place for one more result of a part; NULL: all are needed. */
static gsp_blob **row_place(gsp_node *d, uint32_t version_slot, uint32_t part)
{
    gsp_blob **row = d->result[version_slot][part], **place = NULL;
    for (uint32_t k = 0; k < GSP_HELD_MAX; k++) {
        if (!row[k])
            return &row[k];
        if (version_slot != 0 || !needed(d, part, &row[k]->root))
            place = &row[k];
    }
    if (place)
        gsp_blob_close(d, place);
    return place;
}

static void row_clear(gsp_node *d, gsp_blob *row[GSP_HELD_MAX])
{
    for (uint32_t k = 0; k < GSP_HELD_MAX; k++)
        gsp_blob_close(d, &row[k]);
}

/* A result that is kept takes the memory of the one before it, which is on disk for who lags: to
 * free a whole version at once takes long, when everybody waits for what comes next. */
static void result_replaces(gsp_node *d, uint32_t part)
{
    if (d->agree.applied == d->agree.certified)
        row_clear(d, d->result[1][part]);
}

static gsp_blob *from_disk(gsp_node *d, uint32_t part, const gsp_hash *hash)
{
    uint64_t bytes;
    gsp_hash leaf;
    if (!gsp_results_find(d->results, part, hash, &bytes))
        return NULL;
    gsp_blob *b = blob_open(bytes, hash);
    if (!b)
        return NULL;
    if (gsp_results_read(d->results, part, hash, b->memory) == ATOM_OK) {
        gsp_merkle_leaf(part, b->data, b->bytes, &leaf);
        b->whole = gsp_hash_equal(&leaf, hash);
    }
    if (!b->whole)
        gsp_blob_close(d, &b);
    return b;
}

gsp_blob *gsp_node_result(gsp_node *d, uint32_t part, const gsp_hash *hash)
{
    gsp_blob *b = NULL;
    if (part >= GSP_PARTS_MAX || gsp_hash_none(hash))
        return NULL;
    for (uint32_t slot = 0; slot < 2; slot++)
        if ((b = gsp_row_find(d->result[slot][part], hash)) && b->whole)
            return b;
    for (uint32_t k = 0; k < MEMBER_OLD; k++)
        if (d->old[k] && gsp_hash_equal(&d->old[k]->root, hash))
            return d->old[k];
    if ((b = from_disk(d, part, hash))) {
        gsp_blob **place = &d->old[d->old_turn++ % MEMBER_OLD];
        gsp_blob_close(d, place);
        *place = b;
    }
    return b;
}

gsp_blob *gsp_node_recall(gsp_node *d, uint32_t part, const gsp_hash *hash)
{
    gsp_blob *b = from_disk(d, part, hash);
    gsp_blob **place = b ? row_place(d, 0, part) : NULL;
    if (!place)
        gsp_blob_close(d, &b);
    else
        *place = b;
    return b;
}

/* ---- my own contribution ---- */

/* Memory for what is encoded. */
static void freeze_memory(gsp_node *d)
{
    gsp_freezing *f = &d->freezing;
    gsp_codec codec = d->config.codec;
    uint64_t n = 0, stride = part_stride(d, f->version);
    for (uint32_t k = 0; k < d->config.n_fragments; k++)
        n = d->config.n_floats[k] > n ? d->config.n_floats[k] : n;
    float **residual = &d->residual[f->version % d->config.n_fragments];
    if (!f->x || codec == GSP_CODEC_FP32)
        return;
    atom_free(f->encoded);
    f->encoded = atom_alloc(d->config.rules.n_parts, gsp_codec_bytes(codec, stride));
    if (codec == GSP_CODEC_INT8 && !f->lost)
        f->lost = atom_alloc(n, sizeof(float));
    if (codec == GSP_CODEC_INT8 && !*residual)
        *residual = atom_alloc(n, sizeof(float));
    if (!f->encoded || (codec == GSP_CODEC_INT8 && (!f->lost || !*residual)))
        gsp_node_die(d, atom_fail_memory("a contribution", n * sizeof(float)));
}

/* Asks the work, which may not be ready yet. */
static void freeze_ask(gsp_node *d)
{
    gsp_freezing *f = &d->freezing;
    gsp_contribution *c = &f->contribution;
    f->x = NULL;
    gsp_freeze answer =
        d->config.work.freeze(d->config.work.context, f->version, &f->x, &c->tokens, &c->samples);
    f->later = answer == GSP_FREEZE_LATER;
    if (answer != GSP_FREEZE_READY)
        f->x = NULL;
    if (!f->later)
        freeze_memory(d);
}

void gsp_node_freeze(gsp_node *d, uint64_t version)
{
    gsp_freezing *f = &d->freezing;
    f->on = true;
    f->done = false;
    f->version = version;
    f->next = 0;
    f->began_ns = atom_clock_ns();
    memset(&f->contribution, 0, sizeof f->contribution);
    freeze_ask(d);
}

static const uint8_t *frozen_part(const gsp_node *d, uint32_t part)
{
    const gsp_freezing *f = &d->freezing;
    uint64_t first;
    gsp_node_part_floats(d, f->version, part, &first);
    if (d->config.codec == GSP_CODEC_FP32)
        return (const uint8_t *)(f->x + first);
    return f->encoded + part * gsp_codec_bytes(d->config.codec, part_stride(d, f->version));
}

const uint8_t *gsp_node_own_part(const gsp_node *d, uint64_t version, const gsp_hash *root,
                                 uint32_t part)
{
    const gsp_freezing *f = &d->freezing;
    if (!f->done || !f->x || f->version != version || !gsp_hash_equal(&f->contribution.root, root))
        return NULL;
    return frozen_part(d, part);
}

/* Only the first of these passes over a part waits for memory. The hash is first where it can be:
 * it asks for memory ahead of its work. */
static void freeze_one(gsp_node *d, uint32_t part)
{
    gsp_freezing *f = &d->freezing;
    const gsp_codec codec = d->config.codec;
    uint64_t first, n = gsp_node_part_floats(d, f->version, part, &first);
    const float *residual = d->residual[f->version % d->config.n_fragments];
    uint8_t *out = (uint8_t *)(uintptr_t)frozen_part(d, part);
    if (codec == GSP_CODEC_FP32)
        gsp_merkle_leaf(part, out, gsp_codec_bytes(codec, n), &f->leaf[part]);
    if (!gsp_all_finite(f->x + first, n)) {
        atom_log(ATOM_LOG_WARN, "version %llu: my contribution is not finite and stays at home",
                 (unsigned long long)f->version);
        f->x = NULL;
        return;
    }
    if (codec == GSP_CODEC_FP32)
        return;
    if (codec == GSP_CODEC_INT8)
        gsp_encode(codec, f->x + first, n, residual + first, out, f->lost + first);
    else
        gsp_encode(codec, f->x + first, n, NULL, out, NULL);
    gsp_merkle_leaf(part, out, gsp_codec_bytes(codec, n), &f->leaf[part]);
}

static void freeze_some(gsp_node *d)
{
    gsp_freezing *f = &d->freezing;
    uint32_t n_parts = d->config.rules.n_parts;
    if (f->later && f->version != d->agree.certified + 1)
        f->on = f->later = false; /* decided without mine */
    if (f->later)
        freeze_ask(d);
    if (!f->on || f->later || d->dead != ATOM_OK)
        return;
    for (uint32_t k = 0; k < FREEZE_PARTS && f->x && f->next < n_parts; k++)
        freeze_one(d, f->next++);
    if (f->x && f->next < n_parts)
        return;
    if (f->x)
        gsp_merkle_root(f->leaf, n_parts, &f->contribution.root);
    else
        memset(&f->contribution, 0, sizeof f->contribution);
    f->contribution.rates = d->agree.rates;
    d->status.frozen_ns = atom_clock_ns() - f->began_ns;
    f->on = false;
    f->done = true;
    gsp_event event = {
        .kind = GSP_ON_FROZEN, .version = f->version, .contribution = f->contribution};
    gsp_node_step(d, &event);
}

/* ---- what comes in ---- */

static bool wanted_result(const gsp_node *d, const gsp_message *m, uint32_t from)
{
    const gsp_agree *a = &d->agree;
    const gsp_piece *p = &m->as.piece;
    if (m->version == a->certified && a->applied < a->certified)
        return gsp_hash_equal(&a->certificate.proposal.part[p->part].hash, &p->root);
    if (m->version != a->certified + 1)
        return false;
    const gsp_round *r = &a->round;
    return needed(d, p->part, &p->root) ||
           (r->ballot != 0 && from != GSP_NOBODY && r->begin.owner[p->part] == from &&
            gsp_hash_none(&r->known[p->part].hash));
}

/* Parts may come before the BEGIN that asks for them: a bounded lot of these is kept. */
static bool wanted_part(gsp_node *d, const gsp_message *m, uint32_t from)
{
    const gsp_round *r = &d->agree.round;
    const gsp_piece *p = &m->as.piece;
    if (m->version != d->agree.certified + 1 || from == GSP_NOBODY)
        return false;
    bool known = r->ballot == 0, right = known;
    for (uint32_t i = 0; i < r->begin.n_contributors && r->ballot; i++)
        if (r->begin.contributor[i].member == from) {
            known = true;
            right = gsp_hash_equal(&r->begin.contributor[i].root, &p->root);
        }
    if (!known || !right)
        return false;
    if (r->ballot != 0 && r->begin.owner[p->part] == d->agree.self_i)
        return true;
    d->early_bytes += p->bytes;
    return d->early_bytes <= MEMBER_EARLY_BYTES_MAX;
}

/* Where the piece belongs; NULL: nobody wants it. */
static gsp_blob **place_of(gsp_node *d, const gsp_message *m, uint32_t from)
{
    const gsp_piece *p = &m->as.piece;
    gsp_blob **place;
    if (p->is_result) {
        uint32_t slot = m->version == d->agree.certified ? 1 : 0;
        if (!wanted_result(d, m, from))
            return NULL;
        for (uint32_t k = 0; k < GSP_HELD_MAX; k++) {
            place = &d->result[slot][p->part][k];
            if (*place && gsp_hash_equal(&(*place)->root, &p->root))
                return place;
        }
        return row_place(d, slot, p->part);
    }
    if (m->version <= d->agree.certified)
        return gsp_audit_place(d, m);
    if (!wanted_part(d, m, from))
        return NULL;
    place = &d->brought[from][p->part];
    if (*place && !gsp_hash_equal(&(*place)->root, &p->root))
        gsp_blob_close(d, place);
    return place;
}

static bool well_cut(const gsp_node *d, const gsp_message *m)
{
    const gsp_piece *p = &m->as.piece;
    if (p->part >= d->config.rules.n_parts || p->codec != d->config.codec ||
        !gsp_hash_equal(&m->lineage, &d->agree.lineage) || gsp_hash_none(&p->root) ||
        p->part_bytes != gsp_node_part_bytes(d, m->version, p->part) ||
        p->sequence >= MEMBER_PIECES_MAX ||
        p->offset != (uint64_t)p->sequence * GSP_MEMBER_PIECE_BYTES)
        return false;
    uint64_t rest = p->part_bytes - p->offset;
    return p->bytes == (rest < GSP_MEMBER_PIECE_BYTES ? rest : GSP_MEMBER_PIECE_BYTES);
}

static bool proven(const gsp_node *d, const gsp_blob *b, const gsp_piece *p)
{
    gsp_hash leaf;
    gsp_merkle_leaf(p->part, b->data, b->bytes, &leaf);
    if (p->is_result)
        return gsp_hash_equal(&leaf, &b->root);
    return gsp_merkle_check(&b->root, d->config.rules.n_parts, p->part, &leaf, b->path, b->n_path);
}

/* Adds the piece; *taken: the message is the blob's now. False: no memory. */
static bool blob_add(gsp_blob **place, const gsp_piece *p, const void *body, void *message,
                     bool *taken)
{
    bool one = p->bytes == p->part_bytes && ((uintptr_t)body & 3) == 0;
    if (!*place)
        *place = blob_open(one ? UINT64_MAX : p->part_bytes, &p->root);
    gsp_blob *b = *place;
    if (!b)
        return false;
    if (one) {
        b->data = body;
        b->bytes = p->bytes;
        b->message = message;
        *taken = true;
    } else if (p->bytes) {
        memcpy(b->memory + p->offset, body, p->bytes);
    }
    if (p->n_path) {
        b->n_path = p->n_path;
        memcpy(b->path, p->path, sizeof b->path);
    }
    b->pieces |= 1ull << p->sequence;
    return true;
}

static void arrived(gsp_node *d, const gsp_message *m, const gsp_blob *b, const gsp_key *from)
{
    const gsp_piece *p = &m->as.piece;
    gsp_event event = {.version = m->version, .part = p->part, .peer = *from};
    if (p->is_result) {
        event.kind = GSP_ON_HELD;
        event.hash = b->root;
        d->status.held_ns = atom_clock_ns() - d->freezing.began_ns;
        atom_status st =
            gsp_results_put(d->results, m->version, p->part, &b->root, b->data, b->bytes);
        if (st != ATOM_OK) {
            gsp_node_die(d, st);
            return;
        }
        if (m->version == d->agree.certified + 1)
            result_replaces(d, p->part);
    } else if (m->version <= d->agree.certified) {
        return; /* of a case: who looks into it looks again */
    } else {
        event.kind = GSP_ON_ARRIVED;
        event.root = b->root;
        d->changed = true; /* perhaps the last one, but for who is gone */
    }
    bool is_result = p->is_result;
    gsp_node_step(d, &event);
    if (is_result && event.version == d->agree.certified + 1)
        gsp_node_hear(d, event.part, &event.hash);
}

bool gsp_node_piece(gsp_node *d, gsp_friend *from, const gsp_message *m, const void *body,
                    void *message)
{
    const gsp_piece *p = &m->as.piece;
    bool taken = false;
    uint64_t began = cpu_ns();
    from->bulk_ns = atom_clock_ns();
    if (!well_cut(d, m)) {
        d->status.refused++;
        return false;
    }
    gsp_blob **place = place_of(d, m, gsp_roster_find_key(gsp_agree_roster(&d->agree), &from->key));
    if (!place || (*place && ((*place)->whole || ((*place)->pieces >> p->sequence & 1)))) {
        d->status.repeated_bytes += p->bytes;
        return false;
    }
    if (!blob_add(place, p, body, message, &taken))
        return false;
    uint64_t n =
        p->part_bytes ? (p->part_bytes + GSP_MEMBER_PIECE_BYTES - 1) / GSP_MEMBER_PIECE_BYTES : 1;
    if ((*place)->pieces != (n == 64 ? UINT64_MAX : (1ull << n) - 1))
        return taken;
    (*place)->whole = proven(d, *place, p);
    d->status.compute_ns += cpu_ns() - began;
    if ((*place)->whole) {
        arrived(d, m, *place, &from->key);
        return taken;
    }
    d->status.refused++;
    if (taken)
        (*place)->message = NULL; /* the caller frees it */
    gsp_blob_close(d, place);
    return false;
}

/* ---- reducing ---- */

static const void *input(const gsp_node *d, uint32_t part, const gsp_contributor *c)
{
    const gsp_blob *b = d->brought[c->member][part];
    if (c->member == d->agree.self_i)
        return gsp_node_own_part(d, d->agree.certified + 1, &c->root, part);
    return b && b->whole && gsp_hash_equal(&b->root, &c->root) ? b->data : NULL;
}

static void reduce_one(gsp_node *d, uint32_t part)
{
    const gsp_round *r = &d->agree.round;
    uint32_t included = d->reduce[part].included, ballot = d->reduce[part].ballot;
    uint64_t first, version = d->agree.certified + 1;
    uint64_t n = gsp_node_part_floats(d, version, part, &first);
    const void *in[GSP_MEMBERS_MAX] = {0};
    const gsp_hash none = {{0}};
    gsp_part made;
    atom_status st;
    d->reduce[part].ballot = 0;
    d->n_reduce--;
    if (ballot != r->ballot || r->begin.owner[part] != d->agree.self_i)
        return;
    gsp_event event = {.kind = GSP_ON_REDUCED, .version = version, .ballot = ballot, .part = part};
    for (uint32_t i = 0; i < r->begin.n_contributors; i++)
        in[i] = included >> i & 1 ? input(d, part, &r->begin.contributor[i]) : NULL;
    gsp_blob *b = blob_open(gsp_codec_bytes(d->config.codec, n), &none);
    gsp_blob **place = b ? row_place(d, 0, part) : NULL;
    bool made_it =
        place && gsp_mix_part(&d->mix, part, r->begin.contributor, r->begin.n_contributors, in,
                              included, n, b->memory, &made, &st);
    if (place && st != ATOM_OK)
        gsp_node_die(d, st);
    if (!made_it) {
        gsp_blob_close(d, &b);
        return;
    }
    d->status.refused += (uint64_t)__builtin_popcount(included & ~made.included);
    b->root = made.hash;
    b->whole = true;
    d->status.reduced_ns = atom_clock_ns() - d->freezing.began_ns;
    gsp_blob *same = gsp_row_find(d->result[0][part], &b->root);
    event.included = made.included;
    event.hash = b->root;
    event.norm = made.norm;
    memcpy(event.lean, made.lean, sizeof event.lean);
    if (same)
        gsp_blob_close(d, &b);
    else
        *place = b;
    st = same ? ATOM_OK : gsp_results_put(d->results, version, part, &b->root, b->data, b->bytes);
    result_replaces(d, part);
    if (st != ATOM_OK)
        gsp_node_die(d, st);
    else
        gsp_node_step(d, &event);
}

bool gsp_node_work(gsp_node *d)
{
    uint64_t began = cpu_ns();
    if (d->applying) {
        gsp_apply_some(d);
    } else if (d->n_reduce) {
        uint32_t part = 0;
        while (d->reduce[part].ballot == 0)
            part++;
        reduce_one(d, part);
    } else if (d->freezing.on) {
        freeze_some(d);
    } else if (!gsp_apply_early(d)) {
        return false;
    }
    d->status.compute_ns += cpu_ns() - began;
    return d->applying || d->n_reduce || !d->freezing.on || !d->freezing.later;
}

/* ---- the end of a version ---- */

void gsp_node_rotate(gsp_node *d, bool next)
{
    if (!next)
        gsp_apply_take_back(d);
    for (uint32_t p = 0; p < GSP_PARTS_MAX; p++) {
        for (uint32_t i = 0; i < GSP_MEMBERS_MAX; i++)
            gsp_blob_close(d, &d->brought[i][p]);
        row_clear(d, d->result[1][p]);
        if (next) {
            memcpy(d->result[1][p], d->result[0][p], sizeof d->result[0][p]);
            memset(d->result[0][p], 0, sizeof d->result[0][p]);
        } else {
            row_clear(d, d->result[0][p]);
        }
        d->reduce[p].ballot = d->said[p].ballot = 0;
        d->pulled_ns[p] = d->wanted_ns[p] = 0;
    }
    d->n_reduce = 0;
    d->early_bytes = 0;
    gsp_node_forget_parts(d);
}

void gsp_node_forget_work(gsp_node *d)
{
    for (uint32_t k = 0; k < GSP_FRAGMENTS_MAX; k++) {
        atom_free(d->residual[k]);
        d->residual[k] = NULL;
    }
    for (uint32_t k = 0; k < MEMBER_CERTIFICATES; k++) {
        atom_free(d->certificate[k]);
        d->certificate[k] = NULL;
    }
    gsp_apply_take_back(d);
    d->freezing.on = d->freezing.done = d->freezing.later = false;
    d->freezing.x = NULL;
}

void gsp_node_bytes_close(gsp_node *d)
{
    d->given_version = 0; /* what is never applied need not be taken back */
    gsp_node_rotate(d, false);
    for (uint32_t k = 0; k < MEMBER_OLD; k++)
        gsp_blob_close(d, &d->old[k]);
    for (uint32_t k = 0; k < GSP_FRAGMENTS_MAX; k++)
        atom_free(d->residual[k]);
    for (uint32_t k = 0; k < MEMBER_CERTIFICATES; k++)
        atom_free(d->certificate[k]);
    atom_free(d->freezing.encoded);
    atom_free(d->freezing.lost);
    gsp_mix_close(&d->mix);
}
