/*
 * A pool of gradients mode with whole members in one process: trainers of a tiny GPT-2, each with its
 * seam and its member, over the simulated transport, beside the one trainer that makes the same batches
 * (tests/unit/pool_gradients.c, pool_delayed.c). Thread: two for each member.
 */
#ifndef ATOM_TESTS_GRADIENTS_WORLD_H
#define ATOM_TESTS_GRADIENTS_WORLD_H

#include "atom/pool/anchor.h"
#include "gossip/member/shares.h"
#include "gossip/net/net_sim.h"
#include "tests/lib/delayed_oracle.h"
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

enum {
    MEMBERS = 8,
    VERSIONS_MAX = 512,
    STEPS = SANITIZED ? 10 : 20,
    B = 2,
    C = 8,
    T = 32,
    TOKENS = 30000
};

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
    atomic_uint n_roster, steps;
    atomic_bool done, dead, failed;
    char why[300];
    train_summary summary;
} peer;

struct world {
    unsigned n, n_dies; /* n_dies: this many die half way */
    unsigned on_disk;   /* every second member has its state there, from the second on: so many */
    bool muon, delayed;
    scratch place;
    char data[600], model[600];
    test_pool keys;
    gsp_sim_hub *hub;
    gsp_rules rules;
    gsp_codec codec;
    atomic_bool go, stop;
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
    test_pool_make(&w->keys, 12);
    snprintf(w->data, sizeof w->data, "%s/data", w->place.dir);
    snprintf(w->model, sizeof w->model, "%s/config.json", w->place.dir);
    must(atom_dir_make(w->data));
    must(little_words_write(w->data, TOKENS));
    /* With dropout: random numbers are those of the place in the batch, whoever computes it. */
    must(little_gpt2_write(w->model, 320, 64, 0.1));
    must(gsp_sim_hub_open(&w->hub));
    w->codec = GSP_CODEC_FP32;
    gsp_agree_defaults(&w->rules);
    w->rules.time_due_ns = 3600 * 1000000000ull;
    w->rules.heartbeat_ns = 30000000;
    w->rules.dead_ns = 60 * 1000000000ull; /* a busy machine is not a dead one */
    w->rules.round_ns = w->rules.round_min_ns = 120 * 1000000000ull;
    w->rules.n_parts = 8;
    w->rules.assign = gsp_shares_assign;
}

/* --- a peer's trainer ----------------------------------------------------------------------- */

static void report(void *context, const train_report *r)
{
    peer *p = context;
    p->steps = (unsigned)r->step;
}

static bool stop(void *context)
{
    peer *p = context;
    return p->w->stop || p->dead;
}

static bool keeps_on_disk(const peer *p)
{
    return p->i < p->w->n && p->i % 2 == 1 && p->i / 2 < p->w->on_disk;
}

static void configure(peer *p, int64_t accumulation)
{
    world *w = p->w;
    train_config *c = &p->config;
    char name[40];
    must(train_config_defaults(c));
    snprintf(name, sizeof name, "out%u", p->i);
    scratch_open(&p->place);
    atom_free(c->model);
    c->model = atom_strdup(w->model);
    c->data = atom_strdup(w->data);
    c->output_dir = atom_strdup(scratch_path(&p->place, name));
    c->micro_batch_size = B;
    c->gradient_accumulation_steps = accumulation;
    c->sequence_len = T;
    c->max_steps = STEPS;
    c->learning_rate = 2e-3;
    c->warmup_steps = 5;
    c->adam_epsilon = 1e-4;
    c->weight_decay = 0.1;
    c->max_grad_norm = 0.5; /* clips, at first */
    c->dropout = -1;
    c->optimizer = w->muon ? GRAPH_MUON : GRAPH_ADAMW;
    c->dtype = PLAN_DTYPE_FP32;
    c->execute = TRAIN_EXECUTE_INTERPRETED;
    c->threads = 1;
    c->eval_steps = 0;
    c->save_steps = p->w->on_disk ? 3 : 0;
    c->optimizer_state = keeps_on_disk(p) ? PLAN_STATE_ON_DISK : PLAN_STATE_IN_MEMORY;
    atom_free(c->device);
    c->device = atom_strdup("cpu");
    c->seed = 5;
    p->hooks = (train_hooks){.report = report, .stop = stop, .ctx = p};
}

static void open_trainer(peer *p, bool in_pool, int64_t accumulation)
{
    configure(p, accumulation);
    p->seam.shared = true;
    p->seam.host_bytes_per_float = 24;
    p->seam.least_bytes_per_float = 4;
    p->hooks.seam = in_pool ? &p->seam : NULL;
    must(trainer_open(&p->config, &p->hooks, &p->t));
    assert_int_equal(trainer_plan(p->t)->disk, keeps_on_disk(p));
    assert_int_equal(trainer_seam_on_disk(p->t), keeps_on_disk(p));
}

/* Weights and moments only change once who reads them has left. */
typedef struct watch {
    const train_reader *reader;
    bool left;
} watch;

static void watched_leave(void *ctx, uint64_t first, uint64_t n)
{
    watch *w = ctx;
    w->left = true;
    w->reader->leave(w->reader->ctx, first, n);
}

static atom_status (*pools_take)(void *ctx, const file_vector state[3], const train_reader *reader,
                                 train_lease *out);
static atomic_uint n_moved, n_unseen, n_ahead, n_behind;

static atom_status watched_take(void *ctx, const file_vector state[3], const train_reader *reader,
                                train_lease *out)
{
    watch w = {.reader = reader};
    const train_reader mine = {&w, watched_leave};
    atom_status st = pools_take(ctx, state, &mine, out);
    n_moved += out->moved;
    n_ahead += out->n > 0 && out->batch > out->steps;
    n_behind += out->n > 0 && out->behind;
    n_unseen += out->moved && !w.left;
    return st;
}

static void open_pool(peer *p)
{
    world *w = p->w;
    pool_update u;
    pool_update_of(p->t, C, &u);
    u.delayed = w->delayed;
    pool_anchor_config c = {.directory = scratch_path(&p->place, "anchor"),
                            .n_floats = trainer_floats(p->t),
                            .n_fragments = 1,
                            .batch = B * C,
                            .max_samples = STEPS * B * C,
                            .update = &u,
                            .on_disk = keeps_on_disk(p),
                            .piece_floats = 5000};
    memcpy(c.self.byte, w->keys.member[p->i].public_key, GSP_KEY_BYTES);
    must(pool_anchor_open(&c, &p->pool));
    p->seam = pool_anchor_seam(p->pool);
    pools_take = p->seam.take;
    p->seam.take = watched_take;
    pool_anchor_work(p->pool, &p->inner);
    must(pool_anchor_begin(p->pool, trainer_weights(p->t)));
    must(pool_anchor_attach(p->pool, trainer_weights(p->t), NULL, 0, 0));
    must(trainer_weights_changed(p->t));
}

/* --- a peer's member ------------------------------------------------------------------------ */

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

static uint64_t ready(void *context, uint64_t version)
{
    peer *p = context;
    return p->inner.ready(p->inner.context, version);
}

static atom_status apply(void *context, const gsp_certificate *c, const gsp_hash *result)
{
    peer *p = context;
    pool_anchor_status s;
    atom_status st = p->inner.apply(p->inner.context, c, result);
    pool_anchor_read_status(p->pool, true, &s);
    p->anchor[c->proposal.version % VERSIONS_MAX] = s.anchor;
    return st;
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
                         .n_fragments = 1,
                         .codec = w->codec,
                         .n_floats = {trainer_floats(p->t)},
                         .work = {.context = p,
                                  .freeze = freeze,
                                  .part = part,
                                  .early = true,
                                  .apply = apply,
                                  .ready = ready}};
    memcpy(c.genesis.founder.key.byte, w->keys.member[0].public_key, GSP_KEY_BYTES);
    c.genesis.founder.incarnation = 1;
    must(gsp_node_open(&c, &p->node));
}

static bool dies(const peer *p)
{
    return p->i >= p->w->n - p->w->n_dies && p->steps >= STEPS / 2;
}

static void *be_member(void *context)
{
    peer *p = context;
    gsp_node_status s = {0};
    while (!p->w->stop) {
        if (gsp_node_turn(p->node, 5000000) != ATOM_OK) {
            snprintf(p->why, sizeof p->why, "%s", atom_fail_message());
            p->failed = true;
            break;
        }
        gsp_node_read_status(p->node, &s);
        p->n_roster = s.n_roster;
        pool_anchor_running(p->pool, p->w->go && !p->done);
        if (dies(p)) { /* without a word */
            p->dead = true;
            gsp_node_close(&p->node);
            gsp_net_close(&p->net);
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
    return NULL;
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
    for (unsigned i = 0; i < w->n; i++) {
        peer *p = &w->peer[i];
        p->w = w;
        p->i = i;
        open_trainer(p, true, 1 + i % 3); /* passes of 1, 2 and 3 micro-batches */
        open_pool(p);
        must(gsp_sim_net_open(w->hub, w->keys.member[i].public_key, &p->net));
        open_member(p);
    }
    for (unsigned i = 0; i < w->n; i++)
        dial_all(&w->peer[i]);
    for (unsigned i = 0; i < w->n; i++)
        if (pthread_create(&w->peer[i].member, NULL, be_member, &w->peer[i]))
            abort();
    for (int k = 0; k < 6000 && !everybody_is_in(w); k++)
        usleep(10000);
    bool in = everybody_is_in(w);
    w->go = true;
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

static float *weights_of(trainer *t)
{
    uint64_t n = trainer_floats(t);
    file_vector v = trainer_weights(t);
    float *x = atom_alloc(n, sizeof *x);
    must(v.get(v.ctx, 0, n, x));
    return x;
}

/* One trainer that makes the same batches. */
static float *train_alone(world *w)
{
    peer *p = atom_alloc(1, sizeof *p);
    p->w = w;
    p->i = 99;
    open_trainer(p, false, C);
    must(trainer_run(p->t, &p->summary));
    float *x = weights_of(p->t);
    trainer_close(&p->t);
    train_config_free(&p->config);
    scratch_close(&p->place);
    atom_free(p);
    return x;
}

/* The same with gradients of `delay` steps before. */
static float *train_delayed(world *w, unsigned delay)
{
    peer *p = atom_alloc(1, sizeof *p);
    delayed_oracle o;
    p->w = w;
    p->i = 98;
    delayed_oracle_open(&o, delay, STEPS);
    configure(p, C);
    p->hooks.seam = &o.seam;
    must(trainer_open(&p->config, &p->hooks, &p->t));
    delayed_oracle_follow(&o, p->t, C);
    must(trainer_run(p->t, &p->summary));
    float *x = weights_of(p->t);
    trainer_close(&p->t);
    delayed_oracle_close(&o);
    train_config_free(&p->config);
    scratch_close(&p->place);
    atom_free(p);
    return x;
}

static double distance(const float *a, const float *b, uint64_t n)
{
    double difference = 0, norm = 0;
    for (uint64_t i = 0; i < n; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(difference / norm);
}

/* After every version, of all that have applied it. */
static void check_anchors(const world *w)
{
    static const gsp_hash none;
    unsigned compared = 0;
    for (unsigned v = 0; v < VERSIONS_MAX; v++)
        for (unsigned i = 0; i < w->n; i++)
            for (unsigned j = 0; j < i; j++) {
                const gsp_hash *a = &w->peer[i].anchor[v], *b = &w->peer[j].anchor[v];
                if (memcmp(a, &none, sizeof none) != 0 && memcmp(b, &none, sizeof none) != 0) {
                    assert_memory_equal(a, b, sizeof *a);
                    compared++;
                }
            }
    assert_true(w->n == 1 || compared >= STEPS / 2);
}

/* Checkpoints of a member whose state is on disk are those of one that has it in memory, also where they
 * were written while the next steps were made. */
static void check_checkpoints(world *w)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};
    unsigned compared = 0;
    for (unsigned step = 3; w->on_disk && step <= STEPS; step++)
        for (int k = 0; k < 2; k++) {
            char *a = NULL, *b = NULL, name[2][64];
            uint64_t n = 0, m = 0;
            for (unsigned i = 0; i < 2; i++)
                snprintf(name[i], sizeof name[i], "out%u/checkpoint-%u/%s", i, step, files[k]);
            if (atom_path_exists(scratch_path(&w->peer[0].place, name[0])) &&
                atom_path_exists(scratch_path(&w->peer[1].place, name[1]))) {
                must(atom_file_read(scratch_path(&w->peer[0].place, name[0]), 1 << 26, &a, &n));
                must(atom_file_read(scratch_path(&w->peer[1].place, name[1]), 1 << 26, &b, &m));
                assert_int_equal(n, m);
                assert_memory_equal(a, b, n);
                compared++;
            }
            atom_free(a);
            atom_free(b);
        }
    assert_true(!w->on_disk || compared >= 2);
    if (w->on_disk)
        print_message("%u files of checkpoints are equal\n", compared);
}

static void train_by(const world *like, unsigned n, unsigned n_dies, gsp_codec codec, double limit)
{
    world *w = atom_alloc(1, sizeof *w);
    world_open(w, n);
    w->n_dies = n_dies;
    w->muon = like->muon;
    w->delayed = like->delayed;
    w->on_disk = like->on_disk;
    w->codec = codec;
    n_ahead = n_behind = 0;
    float *alone = w->delayed ? train_delayed(w, 1) : train_alone(w), *first = NULL;
    run(w);
    check_anchors(w);
    check_checkpoints(w);
    for (unsigned i = 0; i < n; i++) {
        peer *p = &w->peer[i];
        pool_anchor_status s;
        if (p->failed)
            fail_msg("member %u: %s", i, p->why);
        pool_anchor_read_status(p->pool, false, &s);
        assert_int_equal(p->dead, i >= n - n_dies);
        assert_true(s.included >= STEPS / 2 - 2);
        if (p->dead)
            continue;
        assert_int_equal(s.pool_step, STEPS);
        float *x = weights_of(p->t);
        double d = distance(x, alone, trainer_floats(p->t));
        print_message("%u members, member %u: %llu versions, brought %llu, void %llu, loss %.4f, "
                      "%.2g from one trainer\n",
                      n, i, (unsigned long long)s.applied, (unsigned long long)s.included,
                      (unsigned long long)s.void_versions, p->summary.final_loss, d);
        assert_true(d < limit);
        if (first)
            assert_memory_equal(x, first, trainer_floats(p->t) * sizeof *x);
        else
            first = x;
        if (first != x)
            atom_free(x);
    }
    atom_free(first);
    atom_free(alone);
    assert_true(n_moved > 0);
    assert_int_equal(n_unseen, 0);
    if (w->delayed) /* the next batch while one is summed; what a dead member left, where it has to be */
        assert_true(n_ahead >= STEPS / 2 && (n_dies == 0 || n_behind > 0));
    else
        assert_true(n_ahead == 0 && n_behind == 0);
    world_close(w);
    atom_free(w);
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
