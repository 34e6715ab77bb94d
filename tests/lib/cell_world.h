/*
 * Whole members in one process: trainers of a tiny GPT-2, each with its seam and its member, over the
 * simulated transport.
 */
#ifndef TESTS_LIB_CELL_WORLD_H
#define TESTS_LIB_CELL_WORLD_H

#include "atom/pool/anchor.h"
#include "gossip/member/shares.h"
#include "gossip/net/net_sim.h"
#include "tests/lib/gossip_pool.h"
#include "tests/lib/little_gpt2.h"
#include "tests/lib/sanitized.h"
#include "tests/scratch.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { MEMBERS = 4, VERSIONS_MAX = 512, STEPS_MAX = 2000, BATCH = 4, T = 32, TOKENS = 60000 };

typedef struct world world;
typedef struct peer {
    world *w;
    unsigned i;
    scratch place;
    train_config config;
    train_hooks hooks;
    train_seam seam;
    trainer *t;
    pool_anchor *pool;
    gsp_net *net;
    gsp_node *node;
    gsp_work inner;
    pthread_t member, training;
    gsp_hash anchor[VERSIONS_MAX]; /* after each version */
    atomic_ullong applied;
    uint64_t applied_ns;
    uint64_t version_seen;
    int64_t step_seen;
    uint64_t samples_seen;
    double loss[STEPS_MAX];
    atomic_uint steps;
    atomic_uint n_roster;
    atomic_bool done, failed;
    float *ended; /* room for its anchor as it was when all steps were made; NULL: not kept */
    bool kept;
    bool older;  /* ends with the last step, as members did before there was a last average */
    bool killed; /* does nothing any more once the last average has begun */
    atomic_bool dead;
    char why[300];
    train_summary summary;
} peer;

struct world {
    unsigned n;
    scratch place;
    char data[600], model[600];
    test_pool keys;
    gsp_sim_hub *hub;
    gsp_rules rules;
    gsp_codec codec;
    double lr, mu;
    uint32_t fragments;
    int64_t batch, sync_steps, steps; /* of a member; H; steps of batch BATCH in all */
    atomic_bool stop;
    atomic_uint n_trained;
    bool older[MEMBERS], killed[MEMBERS];
    bool early; /* those that are killed die after two thirds of the steps */
    peer peer[MEMBERS];
};

static void must(atom_status st)
{
    if (st != ATOM_OK)
        fail_msg("%s", atom_fail_message());
}

static void world_open(world *w, unsigned n)
{
    memset(w, 0, sizeof *w);
    w->n = n;
    scratch_open(&w->place);
    test_pool_make(&w->keys, 11);
    snprintf(w->data, sizeof w->data, "%s/data", w->place.dir);
    snprintf(w->model, sizeof w->model, "%s/config.json", w->place.dir);
    must(atom_dir_make(w->data));
    must(little_words_write(w->data, TOKENS));
    must(little_gpt2_write(w->model, 320, 64, 0));
    must(gsp_sim_hub_open(&w->hub));
    w->codec = GSP_CODEC_FP32;
    w->lr = 0.7;
    w->mu = 0.9;
    w->fragments = 3;
    w->sync_steps = 9;
    w->steps = SANITIZED ? 120 : 240;
    w->batch = BATCH;
    gsp_agree_defaults(&w->rules);
    w->rules.time_due_ns = 3600 * 1000000000ull;
    w->rules.heartbeat_ns = 30000000;
    w->rules.dead_ns = 60 * 1000000000ull; /* a busy machine is not a dead one */
    w->rules.round_ns = w->rules.round_min_ns = 120 * 1000000000ull;
    w->rules.n_parts = 8;
    w->rules.assign = gsp_shares_assign;
}

/* ---- a peer's trainer ---- */

static void report(void *context, const train_report *r)
{
    peer *p = context;
    if (!r->validation && p->steps < STEPS_MAX)
        p->loss[p->steps++] = r->loss;
}

/* Steps of this model are faster than rounds, as no real one's are: they are slowed down, and more
 * so for who is far ahead of the pool. */
static bool stop(void *context)
{
    peer *p = context;
    uint64_t applied = p->applied;
    if (applied != p->version_seen) {
        p->version_seen = applied;
        p->step_seen = (int64_t)p->steps;
    }
    int64_t ahead = (int64_t)p->steps - p->step_seen, few = p->w->sync_steps / p->w->fragments;
    if (p->w->n)
        usleep(ahead < 2 * few ? 10000 : ahead < 4 * few ? 50000 : 200000);
    return p->w->stop || p->dead;
}

static void configure(peer *p)
{
    world *w = p->w;
    char name[40];
    must(train_config_defaults(&p->config));
    snprintf(name, sizeof name, "out%u", p->i);
    scratch_open(&p->place);
    atom_free(p->config.model);
    p->config.model = atom_strdup(w->model);
    p->config.data = atom_strdup(w->data);
    p->config.output_dir = atom_strdup(scratch_path(&p->place, name));
    p->config.micro_batch_size = w->batch;
    p->config.gradient_accumulation_steps = 1;
    p->config.sequence_len = T;
    p->config.max_steps = w->steps * BATCH / w->batch;
    p->config.learning_rate = 2e-3;
    p->config.warmup_steps = 5;
    p->config.dtype = PLAN_DTYPE_FP32;
    p->config.execute = TRAIN_EXECUTE_INTERPRETED;
    p->config.threads = 1;
    p->config.eval_steps = 0;
    p->config.save_steps = 0;
    atom_free(p->config.device);
    p->config.device = atom_strdup("cpu");
    p->config.seed = 5 + p->i; /* everybody sees other data */
    p->hooks = (train_hooks){.report = report, .stop = stop, .ctx = p};
}

static void open_trainer(peer *p, bool in_pool)
{
    configure(p);
    p->seam.host_bytes_per_float = 12;
    p->hooks.seam = in_pool ? &p->seam : NULL;
    must(trainer_open(&p->config, &p->hooks, &p->t));
}

/* ---- a peer's member ---- */

static gsp_freeze freeze(void *context, uint64_t version, const float **x, uint64_t *tokens,
                         uint64_t *samples)
{
    peer *p = context;
    return p->inner.freeze(p->inner.context, version, x, tokens, samples);
}

static void part(void *context, uint64_t version, uint64_t first, const float *x, uint64_t n)
{
    peer *p = context;
    p->inner.part(p->inner.context, version, first, x, n);
}

static void read_anchor(const peer *p, float *out)
{
    uint64_t n = trainer_floats(p->t), first;
    for (uint32_t f = 0; f < p->w->fragments; f++) {
        uint64_t some = pool_fragment_range(n, p->w->fragments, f, &first);
        if (p->inner.state_read(p->inner.context, f, 0, some, out + first) != ATOM_OK)
            abort();
    }
}

static atom_status apply(void *context, const gsp_certificate *c, const gsp_hash *result)
{
    peer *p = context;
    pool_anchor_status s;
    atom_status st = p->inner.apply(p->inner.context, c, result);
    pool_anchor_read_status(p->pool, true, &s);
    p->anchor[c->proposal.version % VERSIONS_MAX] = s.anchor;
    p->applied_ns = atom_clock_ns();
    p->applied = c->proposal.version;
    return st;
}

static bool hastens(void *context)
{
    const peer *p = context;
    return !p->older && p->inner.hastens(p->inner.context);
}

static void open_member(peer *p)
{
    world *w = p->w;
    gsp_node_config c = {.net = p->net,
                         .identity = &w->keys.member[p->i],
                         .directory = scratch_path(&p->place, "member"),
                         .rules = w->rules,
                         .rates = {1000000, 1000000, true},
                         .holds_genesis = true,
                         .n_fragments = w->fragments,
                         .codec = w->codec,
                         .work = {.context = p,
                                  .freeze = freeze,
                                  .part = part,
                                  .early = true,
                                  .apply = apply,
                                  .hastens = hastens}};
    uint64_t first, n = trainer_floats(p->t);
    memcpy(c.genesis.founder.key.byte, w->keys.member[0].public_key, GSP_KEY_BYTES);
    c.genesis.founder.incarnation = 1;
    for (uint32_t f = 0; f < w->fragments; f++)
        c.n_floats[f] = pool_fragment_range(n, w->fragments, f, &first);
    must(gsp_node_open(&c, &p->node));
}

static bool ends_with_its_step(void *context)
{
    pool_anchor_status s;
    pool_anchor_read_status(context, false, &s);
    return s.pool_step >= s.max_steps;
}

static void open_pool(peer *p)
{
    world *w = p->w;
    pool_anchor_config c = {.directory = scratch_path(&p->place, "anchor"),
                            .n_floats = trainer_floats(p->t),
                            .n_fragments = w->fragments,
                            .outer_learning_rate = w->lr,
                            .outer_momentum = w->mu,
                            .batch = BATCH,
                            .max_samples = (uint64_t)w->steps * BATCH,
                            .tokens_per_sample = T,
                            .round_samples = (uint64_t)(w->sync_steps * BATCH),
                            .rewarm_steps = 10,
                            .on_disk = p->i % 2 == 1}; /* the others have it in memory */
    memcpy(c.self.byte, w->keys.member[p->i].public_key, GSP_KEY_BYTES);
    must(pool_anchor_open(&c, &p->pool));
    p->seam = pool_anchor_seam(p->pool);
    p->older = w->older[p->i];
    p->killed = w->killed[p->i];
    if (p->older) {
        p->seam.stands = NULL;
        p->seam.done = ends_with_its_step;
    }
    pool_anchor_work(p->pool, &p->inner);
    must(pool_anchor_begin(p->pool, trainer_weights(p->t)));
    must(pool_anchor_attach(p->pool, trainer_weights(p->t), NULL, 0, 0));
    must(trainer_weights_changed(p->t));
}

static void *be_member(void *context)
{
    peer *p = context;
    gsp_node_status s = {0};
    uint64_t version = 0, samples_then = 0, beat = p->w->rules.heartbeat_ns;
    bool all = false; /* were there once: from then on somebody may be dead, or be taken for dead */
    while (!p->w->stop) {
        uint64_t samples = (uint64_t)p->steps * BATCH;
        if (s.certified != version) {
            version = s.certified;
            samples_then = samples;
        }
        all |= s.n_roster == p->w->n;
        uint64_t report_samples = samples - samples_then;
        if (!all) /* joiners come with versions, when they have caught up with the one before */
            report_samples = p->i == 0 && atom_clock_ns() - p->applied_ns > 5 * beat
                                 ? p->w->rules.samples_due
                                 : 0;
        gsp_node_report(p->node, report_samples, samples * T);
        if (gsp_node_turn(p->node, 5000000) != ATOM_OK) {
            snprintf(p->why, sizeof p->why, "%s", atom_fail_message());
            p->failed = true;
            break;
        }
        gsp_node_read_status(p->node, &s);
        p->n_roster = s.n_roster;
        pool_anchor_running(p->pool, all && !p->done);
        pool_anchor_status a;
        pool_anchor_read_status(p->pool, false, &a);
        if (p->ended && a.stands && !p->kept)
            read_anchor(p, p->ended);
        p->kept |= a.stands;
        bool late = a.agreed && a.left_versions < p->w->fragments;
        if (p->killed && (p->w->early ? a.certified_step * 3 > a.max_steps * 2 : late)) {
            p->dead = true;
            break;
        }
    }
    return NULL;
}

static void *be_trainer(void *context)
{
    peer *p = context;
    if (trainer_run(p->t, &p->summary) != ATOM_OK && !p->w->stop && !p->dead) {
        snprintf(p->why, sizeof p->why, "%s", atom_fail_message());
        p->failed = true;
    }
    p->done = true;
    p->w->n_trained++;
    return NULL;
}

/* All start from the founder's. */
static void copy_weights(peer *p)
{
    file_vector from = trainer_weights(p->w->peer[0].t), to = trainer_weights(p->t);
    float band[128];
    for (uint64_t at = 0; p->i && at < trainer_floats(p->t); at += 128) {
        must(from.get(from.ctx, at, 128, band));
        must(to.put(to.ctx, at, 128, band));
    }
}

static void dial_all(peer *p)
{
    for (unsigned j = 0; j < p->w->n; j++) {
        gsp_address at = test_loopback(gsp_net_port(p->w->peer[j].net));
        if (j != p->i)
            must(gsp_net_dial(p->net, p->w->keys.member[j].public_key, &at, 1));
    }
}

static bool everybody_is_in(world *w)
{
    for (unsigned i = 0; i < w->n; i++)
        if (w->peer[i].n_roster != w->n)
            return false;
    return true;
}

static void run(world *w)
{
    w->rules.samples_due = (uint64_t)(w->sync_steps * BATCH * (int64_t)w->n / w->fragments);
    for (unsigned i = 0; i < w->n; i++) {
        peer *p = &w->peer[i];
        p->w = w;
        p->i = i;
        open_trainer(p, true);
        copy_weights(p);
        open_pool(p);
        must(gsp_sim_net_open(w->hub, w->keys.member[i].public_key, &p->net));
        open_member(p);
    }
    for (unsigned i = 0; i < w->n; i++)
        dial_all(&w->peer[i]);
    for (unsigned i = 0; i < w->n; i++)
        if (pthread_create(&w->peer[i].member, NULL, be_member, &w->peer[i]))
            abort();
    for (int k = 0; k < 3000 && !everybody_is_in(w); k++)
        usleep(10000);
    bool in = everybody_is_in(w);
    for (unsigned i = 0; in && i < w->n; i++)
        if (pthread_create(&w->peer[i].training, NULL, be_trainer, &w->peer[i]))
            abort();
    for (unsigned i = 0; in && i < w->n; i++)
        pthread_join(w->peer[i].training, NULL);
    w->stop = true;
    for (unsigned i = 0; i < w->n; i++)
        pthread_join(w->peer[i].member, NULL);
    assert_true(in);
}

static void world_close(world *w)
{
    for (unsigned i = 0; i < w->n; i++) {
        peer *p = &w->peer[i];
        gsp_node_close(&p->node);
        gsp_net_close(&p->net);
        trainer_close(&p->t);
        pool_anchor_close(&p->pool);
        train_config_free(&p->config);
        scratch_close(&p->place);
    }
    gsp_sim_hub_close(&w->hub);
    scratch_close(&w->place);
}

/* The mean of the last `n` steps. */
static double last_loss(const peer *p, unsigned n)
{
    double sum = 0;
    for (unsigned i = p->steps - n; i < p->steps; i++)
        sum += p->loss[i];
    return sum / n;
}

/* One trainer with `batch` samples a step, on as much data. */
static inline double train_plain(const world *w, int64_t batch, unsigned *steps, double *loss)
{
    peer *p = atom_alloc(1, sizeof *p);
    static world alone;
    alone = *w;
    alone.n = 0;
    alone.batch = batch;
    p->w = &alone;
    open_trainer(p, false);
    must(trainer_run(p->t, &p->summary));
    double last = last_loss(p, 10);
    if (steps)
        *steps = p->steps;
    if (loss)
        memcpy(loss, p->loss, sizeof p->loss);
    trainer_close(&p->t);
    train_config_free(&p->config);
    scratch_close(&p->place);
    atom_free(p);
    return last;
}

static void check_peers(const world *w)
{
    static const gsp_hash none;
    for (unsigned i = 0; i < w->n; i++)
        if (w->peer[i].failed)
            fail_msg("member %u: %s", i, w->peer[i].why);
    for (unsigned v = 0; v < VERSIONS_MAX; v++)
        for (unsigned i = 0; i < w->n; i++)
            for (unsigned j = 0; j < i; j++) {
                const gsp_hash *a = &w->peer[i].anchor[v], *b = &w->peer[j].anchor[v];
                if (memcmp(a, &none, sizeof none) != 0 && memcmp(b, &none, sizeof none) != 0)
                    assert_memory_equal(a, b, sizeof *a);
            }
}

static int set_cache(void **state)
{
    static char dir[512];
    (void)state;
    snprintf(dir, sizeof dir, "%s/atom-test-cache-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(dir))
        return -1;
    *state = dir;
    return setenv("XDG_CACHE_HOME", dir, 1);
}

static int drop_cache(void **state)
{
    return atom_dir_remove(*state) == ATOM_OK ? 0 : -1;
}

#endif
