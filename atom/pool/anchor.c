/*
 * Owns the trainer's side of a pool: what live weights give (copy-out) and take (merge), where a
 * run starts. One idea: both happen where the masters stand still anyway,
 * between two updates, so a step costs two passes over one fragment and no waiting. Refuses weights
 * that are not finite.
 */
#include "atom/pool/anchor_inner.h"
#include "atom/pool/gradients.h"
#include "atom/pool/pool_json.h"
#include "atom/pool/sums.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "gossip/trust/seals.h"

#include <string.h>
#include <unistd.h>

#include <sodium.h>

static void hash_all(const gsp_hash *fragment, uint32_t n, gsp_hash *out)
{
    gsp_seals seals = gsp_seals_real(NULL);
    seals.hash(NULL, fragment, n * sizeof *fragment, out);
}

atom_status pool_anchor_hash(file_vector weights, uint64_t n_floats, uint32_t n_fragments,
                             gsp_hash *out)
{
    gsp_hash hash[GSP_FRAGMENTS_MAX];
    atom_status st = ATOM_OK;
    float *x = atom_alloc(POOL_PIECE_FLOATS, sizeof *x);
    if (!x)
        return atom_fail_memory("a piece of a fragment", POOL_PIECE_FLOATS * sizeof *x);
    for (uint32_t f = 0; f < n_fragments; f++) {
        crypto_generichash_state state;
        uint64_t first, n = pool_fragment_range(n_floats, n_fragments, f, &first);
        crypto_generichash_init(&state, NULL, 0, sizeof hash[f].byte);
        for (uint64_t at = 0, some; at < n; at += some) {
            some = n - at < POOL_PIECE_FLOATS ? n - at : POOL_PIECE_FLOATS;
            ATOM_TRY_CLEAN(weights.get(weights.ctx, first + at, some, x));
            crypto_generichash_update(&state, (const uint8_t *)x, some * sizeof *x);
        }
        crypto_generichash_final(&state, hash[f].byte, sizeof hash[f].byte);
    }
    hash_all(hash, n_fragments, out);
cleanup:
    atom_free(x);
    return st;
}

/* ---- life ---- */

static pool_sync mode(const pool_anchor *p)
{
    if (p->c.dense_samples)
        return POOL_SYNC_DENSE_FIRST;
    if (p->g)
        return pool_gradients_delayed(p) ? POOL_SYNC_DELAYED : POOL_SYNC_GRADIENTS;
    return p->c.slices ? POOL_SYNC_SLICES : POOL_SYNC_PARAMETERS;
}

/* Floats of a fragment's state behind its anchor of n. */
static uint64_t outer_of(const pool_anchor *p, uint64_t n)
{
    if (p->c.slices)
        return 0;
    return p->g ? pool_gradients_outer(p, n) : n;
}

/* Steps alone are made in place: what needs the old weights waits. */
static bool in_place(const pool_anchor *p)
{
    return p->g && !p->c.dense_samples;
}

/* What a version needs while it is made. */
static atom_status take_rooms(pool_anchor *p)
{
    const pool_anchor_config *c = &p->c;
    uint64_t piece = c->piece_floats ? c->piece_floats : POOL_PIECE_FLOATS;
    if (c->update && c->on_disk)
        piece = pool_sums_room(c->update, piece);
    const struct {
        float **at;
        uint64_t floats;
    } all[] = {{&p->x, p->longest},
               {&p->new_anchor, in_place(p) || c->on_disk ? 0 : p->longest},
               {&p->new_momentum, in_place(p) || c->slices || c->on_disk ? 0 : p->longest},
               {&p->room.at, c->on_disk ? POOL_ROOMS * piece : 0},
               {&p->pass_room, c->on_disk ? piece : 0}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].floats && !(*all[i].at = atom_alloc(all[i].floats, sizeof(float))))
            return atom_fail_memory("a fragment", all[i].floats * sizeof(float));
    p->room.floats = c->on_disk ? piece : 0;
    if (c->slices)
        return ATOM_OK;
    return pool_floats_open(c->on_disk ? p->store.directory : NULL, p->longest, &p->sent);
}

static atom_status take_memory(pool_anchor *p)
{
    const pool_anchor_config *c = &p->c;
    p->longest = pool_longest(c->n_floats, c->n_fragments);
    ATOM_TRY(take_rooms(p));
    for (uint32_t i = 0; i < c->n_fragments; i++) {
        pool_fragment *f = &p->fragment[i];
        f->n = pool_fragment_range(c->n_floats, c->n_fragments, i, &f->first);
        p->store.n[i] = f->n;
        p->store.outer[i] = outer_of(p, f->n);
        if (c->on_disk)
            continue;
        f->anchor = atom_alloc(p->longest, sizeof(float));
        f->momentum = atom_alloc(outer_of(p, p->longest), sizeof(float));
        if (!f->anchor || !f->momentum)
            return atom_fail_memory(
                "the pool's anchor",
                pool_anchor_host_bytes(c->n_floats, c->n_fragments, mode(p), false));
    }
    if (in_place(p))
        p->new_anchor = p->fragment[0].anchor;
    return ATOM_OK;
}

atom_status pool_anchor_open(const pool_anchor_config *config, pool_anchor **out)
{
    atom_status st;
    if (config->n_floats == 0 || config->n_fragments == 0 ||
        config->n_fragments != pool_fragments(config->n_floats, config->n_fragments) ||
        config->batch == 0 || (config->slices && config->update) ||
        (config->dense_samples && !config->update))
        return atom_fail(ATOM_E_USAGE, "a pool of %llu floats cannot have %u fragments",
                         (unsigned long long)config->n_floats, config->n_fragments);
    pool_anchor *p = atom_alloc(1, sizeof *p);
    if (!p)
        return atom_fail_memory("a pool's seam", sizeof *p);
    p->c = *config;
    p->incoming.fd = p->next = -1;
    for (uint32_t i = 0; i < GSP_FRAGMENTS_MAX; i++)
        p->fragment[i].file = -1;
    pthread_mutex_init(&p->lock, NULL);
    p->store.directory = atom_strdup(config->directory);
    if (!p->store.directory)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 256));
    ATOM_TRY_CLEAN(gsp_crypto_start());
    ATOM_TRY_CLEAN(atom_dir_make(p->store.directory));
    if (config->update)
        ATOM_TRY_CLEAN(pool_gradients_open(p));
    ATOM_TRY_CLEAN(take_memory(p));
    *out = p;
    return ATOM_OK;
cleanup:
    pool_anchor_close(&p);
    return st;
}

void pool_anchor_close(pool_anchor **pool)
{
    pool_anchor *p = *pool;
    *pool = NULL;
    if (!p)
        return;
    for (uint32_t i = 0; i < p->c.n_fragments; i++)
        pool_fragment_close(&p->fragment[i]);
    pool_incoming_close(&p->incoming);
    pool_anchor_drop_next(p);
    atom_free(p->x);
    pool_floats_close(&p->sent);
    atom_free(p->room.at);
    atom_free(p->pass_room);
    atom_free(p->stand_room);
    if (!in_place(p))
        atom_free(p->new_anchor);
    atom_free(p->new_momentum);
    pool_gradients_close(p);
    atom_free(p->store.directory);
    pthread_mutex_destroy(&p->lock);
    atom_free(p);
}

bool pool_anchor_ready(pool_anchor *p)
{
    pthread_mutex_lock(&p->lock);
    bool ready = p->ready;
    pthread_mutex_unlock(&p->lock);
    return ready;
}

void pool_anchor_running(pool_anchor *p, bool running)
{
    pthread_mutex_lock(&p->lock);
    p->running = running;
    p->awaits = running ? 0 : p->awaits;
    pthread_mutex_unlock(&p->lock);
}

void pool_anchor_awaits(pool_anchor *p, uint32_t n)
{
    pthread_mutex_lock(&p->lock);
    p->awaits = n;
    pthread_mutex_unlock(&p->lock);
}

/* ---- where the anchor comes from ---- */

static atom_status begin_in_memory(pool_anchor *p, uint32_t i, file_vector weights,
                                   pool_header *header)
{
    const pool_fragment *f = &p->fragment[i];
    ATOM_TRY(weights.get(weights.ctx, f->first, f->n, f->anchor));
    memset(f->momentum, 0, p->store.outer[i] * sizeof *f->momentum);
    if (p->g)
        ATOM_TRY(pool_gradients_begin(p));
    return pool_file_write(&p->store, i, 0, header, f->anchor, f->momentum);
}

/* A new file has zeros where momentum is. */
static atom_status begin_on_disk(pool_anchor *p, uint32_t i, file_vector weights,
                                 pool_header *header)
{
    pool_fragment *f = &p->fragment[i];
    ATOM_TRY(pool_next_open(&p->store, i, &f->file));
    const pool_floats anchor = pool_file_anchor(f->file);
    for (uint64_t at = 0, some; at < f->n; at += some) {
        some = f->n - at < p->room.floats ? f->n - at : p->room.floats;
        ATOM_TRY(weights.get(weights.ctx, f->first + at, some, p->room.at));
        ATOM_TRY(pool_floats_put(&anchor, at, some, p->room.at));
    }
    if (p->g)
        ATOM_TRY(pool_gradients_begin(p));
    return pool_next_end(&p->store, i, 0, f->file, header, p->room.at, p->room.floats);
}

atom_status pool_anchor_begin(pool_anchor *p, file_vector weights)
{
    p->epoch = p->epoch_highest = 1;
    for (uint32_t i = 0; i < p->c.n_fragments; i++) {
        pool_fragment *f = &p->fragment[i];
        pool_header header = {.epoch = 1, .version = 0, .n = f->n};
        ATOM_TRY(p->c.on_disk ? begin_on_disk(p, i, weights, &header)
                              : begin_in_memory(p, i, weights, &header));
        f->hash = header.anchor;
        f->slot = 0;
    }
    p->roster = (gsp_roster){.n = 1, .member[0].key = p->c.self};
    p->ready = true;
    return ATOM_OK;
}

/* The epoch of what the member remembers: of the slot that holds its newest version. Two epochs
 * may have it, of two lineages. 0: none. */
static uint64_t find_epoch(const pool_anchor *p, const gsp_saved *saved, const gsp_hash *lineage)
{
    uint64_t applied = pool_applied_of(saved), epoch = 0;
    uint32_t f = (uint32_t)(applied % p->c.n_fragments);
    bool sure = false;
    for (uint32_t slot = 0; slot < 2; slot++) {
        pool_header h;
        if (!pool_file_header(&p->store, f, slot, &h) || h.version != applied)
            continue;
        bool same = gsp_hash_none(&h.lineage) || gsp_hash_equal(&h.lineage, lineage) ||
                    gsp_hash_equal(&h.lineage, &saved->genesis.parent);
        if ((same && !sure) || (same == sure && h.epoch > epoch)) {
            epoch = h.epoch;
            sure = same;
        }
    }
    return sure ? epoch : 0;
}

static atom_status restore_fragment(pool_anchor *p, uint32_t i, uint64_t applied)
{
    pool_fragment *f = &p->fragment[i];
    pool_header best = {0}, h;
    bool found = false;
    for (uint32_t slot = 0; slot < 2; slot++) {
        if (!pool_file_header(&p->store, i, slot, &h))
            continue;
        p->epoch_highest = h.epoch > p->epoch_highest ? h.epoch : p->epoch_highest;
        if (h.epoch != p->epoch || h.version > applied || (found && h.version < best.version))
            continue;
        best = h;
        f->slot = slot;
        found = true;
    }
    if (!found)
        return atom_fail(ATOM_E_FORMAT,
                         "%s holds no fragment %u of version %llu or before; the anchor must be "
                         "fetched from the others",
                         p->store.directory, i, (unsigned long long)applied);
    f->version = best.version;
    f->hash = best.anchor;
    if (p->c.on_disk)
        return pool_slot_open(&p->store, i, f->slot, &best, p->room.at, p->room.floats, &f->file);
    return pool_file_read(&p->store, i, f->slot, &best, f->anchor, f->momentum);
}

atom_status pool_anchor_restore(pool_anchor *p, const gsp_saved *saved)
{
    gsp_hash lineage;
    pool_lineage_of(saved, &lineage);
    uint64_t applied = pool_applied_of(saved);
    p->epoch = find_epoch(p, saved, &lineage);
    if (p->epoch == 0)
        return atom_fail(ATOM_E_FORMAT,
                         "%s does not hold version %llu of the pool's anchor; it must be fetched "
                         "from the others",
                         p->store.directory, (unsigned long long)applied);
    for (uint32_t i = 0; i < p->c.n_fragments; i++)
        ATOM_TRY(restore_fragment(p, i, applied));
    if (p->g)
        ATOM_TRY(pool_gradients_read(p));
    pool_anchor_remember(p, saved);
    return ATOM_OK;
}

/* ---- live ---- */

static atom_status put_anchor(const pool_anchor *p, const pool_fragment *f, file_vector live)
{
    const pool_floats anchor = pool_fragment_anchor(f);
    const float *from;
    for (uint64_t at = 0, some; at < f->n; at += some) {
        some = p->room.at && f->n - at > p->room.floats ? p->room.floats : f->n - at;
        ATOM_TRY(pool_floats_look(&anchor, at, some, p->pass_room, &from));
        ATOM_TRY(live.put(live.ctx, f->first + at, some, from));
    }
    return ATOM_OK;
}

atom_status pool_anchor_attach(pool_anchor *p, file_vector live, const char *text, uint64_t samples,
                               uint64_t tokens)
{
    pool_mark marks = {0};
    atom_status st = ATOM_OK;
    bool fresh = true; /* nothing of live is kept: moments of other weights, or of none */
    if (text)
        ATOM_TRY(pool_json_parse("pool.json of the newest checkpoint", text, strlen(text), &marks));
    pthread_mutex_lock(&p->lock);
    p->samples = samples;
    p->tokens = tokens;
    p->samples_included = samples;
    for (uint32_t i = 0; i < p->c.n_fragments && st == ATOM_OK; i++) {
        pool_fragment *f = &p->fragment[i];
        bool same = i < marks.n_fragments && marks.version[i] == f->version &&
                    gsp_hash_equal(&marks.anchor[i], &f->hash);
        f->tokens_included = same ? marks.tokens_included[i] : tokens;
        f->merged = f->version;
        f->replace = false;
        f->slices.stride = 0;
        fresh &= !same;
        if (!same)
            st = put_anchor(p, f, live);
    }
    if (!fresh && marks.samples_included < samples)
        p->samples_included = marks.samples_included;
    if (p->g && marks.own_steps && !pool_anchor_sums(p))
        pool_gradients_own_again(p);
    if (!text && p->applied > 0)
        p->rewarm_to = p->steps + p->c.rewarm_steps;
    pthread_mutex_unlock(&p->lock);
    return st;
}

static uint64_t now_ns(void)
{
    return atom_clock_ns();
}

static void note_time(pool_anchor *p, uint64_t ns)
{
    p->status.seam_seconds += 1e-9 * (double)ns;
    if (ns > p->status.wait_longest_ns)
        p->status.wait_longest_ns = ns;
}

/* The lock is held, and given away while a reader leaves what is about to change. */
static void leave(pool_anchor *p, const train_reader *reader)
{
    for (uint32_t k = 0; k < p->c.n_fragments; k++) {
        pool_fragment *f = &p->fragment[k];
        f->left = !reader || pool_fragment_waits(f);
        if (!reader || !f->left)
            continue;
        pthread_mutex_unlock(&p->lock);
        reader->leave(reader->ctx, f->first, f->n);
        pthread_mutex_lock(&p->lock);
    }
}

static void block(void *context, uint64_t first, uint64_t n, float *live, bool begin)
{
    pool_anchor *p = context;
    uint64_t begin_ns = now_ns();
    pthread_mutex_lock(&p->lock);
    if (begin)
        pool_pass_take(p, first, n, live);
    else
        pool_pass_copy(p, first, n, live);
    p->pass_ns += now_ns() - begin_ns;
    pthread_mutex_unlock(&p->lock);
}

/* All masters, which are in memory; where they meet a disk, in blocks, between which the member goes
 * on. The lock is held, and given away meanwhile. */
static void pass_whole(pool_anchor *p, float *live, bool begin)
{
    uint64_t each = p->c.on_disk ? p->room.floats : p->c.n_floats;
    pthread_mutex_unlock(&p->lock);
    for (uint64_t at = 0; at < p->c.n_floats; at += each)
        block(p, at, p->c.n_floats - at < each ? p->c.n_floats - at : each, live + at, begin);
    pthread_mutex_lock(&p->lock);
}

/* Optimizer's stream: the masters stand still. What comes while readers leave waits for the next
 * time. live NULL: they pass by in blocks, and nobody reads them where they lie. */
static void before_updates(void *context, float *live, const train_reader *reader)
{
    pool_anchor *p = context;
    pthread_mutex_lock(&p->lock);
    leave(p, live ? reader : NULL);
    bool any = pool_pass_begin(p);
    p->pass_ns = 0;
    if (live && any)
        pass_whole(p, live, true);
    if (live)
        pool_pass_end(p);
    else
        pool_copy_begin(p, false);
    if (live && any)
        note_time(p, p->pass_ns);
    pthread_mutex_unlock(&p->lock);
}

static void after_updates(void *context, const float *live)
{
    pool_anchor *p = context;
    pthread_mutex_lock(&p->lock);
    const pool_fragment *f = &p->fragment[p->ask_version % p->c.n_fragments];
    if (live) {
        p->pass_ns = 0;
        pool_copy_begin(p, false);
    } else {
        pool_pass_end(p);
    }
    if (live && p->copying && !pool_fragment_waits(f))
        pass_whole(p, (float *)live, false); /* which reads them */
    if (pool_copy_end(p) || !live)
        note_time(p, p->pass_ns);
    pthread_mutex_unlock(&p->lock);
}

static void stepped(void *context, uint64_t samples, uint64_t tokens)
{
    pool_anchor *p = context;
    pthread_mutex_lock(&p->lock);
    p->samples = samples;
    p->tokens = tokens;
    p->steps++;
    pthread_mutex_unlock(&p->lock);
}

/* Of what live has: a version that was applied but not merged yet is not in it. */
char *pool_anchor_marks(pool_anchor *p)
{
    pthread_mutex_lock(&p->lock);
    pool_mark m = {.lineage = p->lineage,
                   .applied = p->applied,
                   .samples_included = p->samples_included,
                   .own_steps = p->g && pool_gradients_own(p),
                   .n_fragments = p->c.n_fragments};
    for (uint32_t i = 0; i < p->c.n_fragments; i++) {
        const pool_fragment *f = &p->fragment[i];
        m.version[i] = f->merged;
        m.tokens_included[i] = f->tokens_included;
        if (!pool_fragment_waits(f))
            m.anchor[i] = f->hash;
    }
    pthread_mutex_unlock(&p->lock);
    return pool_json_text(&m);
}

static char *marks(void *context)
{
    return pool_anchor_marks(context);
}

train_seam pool_anchor_seam(pool_anchor *p)
{
    uint64_t bytes = pool_anchor_host_bytes(p->c.n_floats, p->c.n_fragments, mode(p), p->c.on_disk);
    train_seam seam = {.ctx = p,
                       .host_bytes_per_float = (double)bytes / (double)p->c.n_floats,
                       .before_updates = before_updates,
                       .after_updates = after_updates,
                       .block = block,
                       .stepped = stepped,
                       .rate = pool_end_rate,
                       .done = pool_end_done,
                       .stands = pool_end_stands,
                       .stand = pool_end_stand,
                       .marks = marks};
    if (p->g)
        pool_gradients_seam(p, &seam);
    return seam;
}

void pool_anchor_read_status(pool_anchor *p, bool with_hash, pool_anchor_status *out)
{
    gsp_hash hash[GSP_FRAGMENTS_MAX];
    pthread_mutex_lock(&p->lock);
    *out = p->status;
    out->ready = p->ready;
    out->applied = p->applied;
    out->certified_samples = in_place(p) ? pool_gradients_samples(p) : p->certified_samples;
    pool_end_status(p, out);
    for (uint32_t i = 0; with_hash && i < p->c.n_fragments; i++) {
        hash[i] = p->fragment[i].hash;
        if (!p->g && !p->c.on_disk) /* a step is made in place, and then hashed */
            pool_floats_hash(p->fragment[i].anchor, p->fragment[i].n, &hash[i]);
    }
    if (with_hash)
        hash_all(hash, p->c.n_fragments, &out->anchor);
    pthread_mutex_unlock(&p->lock);
}
