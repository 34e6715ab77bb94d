/*
 * A run in which somebody takes part, on one device and on several: gradients of leases of any
 * shape, and own steps between which weights are moved and looked at. What is brought, what is seen
 * and what is saved has the bits of one device, with the state in memory and on disk.
 */
#include "atom/base/files.h"
#include "atom/base/hash.h"
#include "tests/lib/little_run.h"
#include "tests/lib/sanitized.h"

#include <stdio.h>
#include <string.h>

enum { C = 4, DEVICES = TSAN ? 3 : 4, STEPS = 5, LEASE_MAX = 9 };
enum { EVERY = TSAN ? DEVICES : 1 }; /* of the numbers of devices: several have all the threads */

/* A pass takes C neighbours. One micro-batch, not the first; as many as a pass has, and a divisor of
 * no number of devices; gaps; more than two passes. */
typedef struct shape {
    uint32_t n, micro_batch[LEASE_MAX];
} shape;
static const shape shapes[] = {{1, {0}},
                               {1, {5}},
                               {4, {2, 3, 4, 5}},
                               {3, {1, 2, 3}},
                               {2, {3, 7}},
                               {9, {0, 1, 2, 3, 4, 5, 6, 7, 8}},
                               {5, {0, 2, 3, 4, 8}}};
enum { LEASES = sizeof shapes / sizeof *shapes };
_Static_assert(LEASES > (int)STEPS, "the last updates are drained after the last step");

typedef struct part {
    train_config config;
    train_seam seam;
    trainer *t;
    uint64_t floats, steps, blocks;
    float *sum, *piece;
    uint64_t tokens[LEASES];
    uint64_t seen[LEASES]; /* hashes of sums, or of weights */
    double norm;
} part;

/* --- gradients ------------------------------------------------------------------------------- */

static bool all_leased(void *ctx)
{
    return ((part *)ctx)->steps == LEASES;
}

/* The weights are others before every second lease. */
static atom_status take(void *ctx, const file_vector state[3], const train_reader *reader,
                        train_lease *out)
{
    part *p = ctx;
    const shape *s = &shapes[p->steps];
    *out = (train_lease){.steps = p->steps,
                         .batch = p->steps,
                         .samples = p->steps * LEASE_MAX * 2,
                         .first_sample = p->steps * LEASE_MAX * 2,
                         .moved = p->steps % 2 == 1,
                         .n = s->n,
                         .micro_batch = s->micro_batch,
                         .sum = p->sum};
    memset(p->sum, 0, p->floats * sizeof *p->sum);
    if (!out->moved)
        return ATOM_OK;
    reader->leave(reader->ctx, 0, p->floats);
    ATOM_TRY(state[0].get(state[0].ctx, 0, p->floats, p->piece));
    for (uint64_t i = 0; i < p->floats; i++)
        p->piece[i] += 1e-3f * (float)(i % 13);
    return state[0].put(state[0].ctx, 0, p->floats, p->piece);
}

static bool current(void *ctx, const train_lease *lease)
{
    (void)ctx;
    (void)lease;
    return true;
}

static void bring(void *ctx, const train_lease *lease, uint64_t tokens)
{
    part *p = ctx;
    p->norm = 0;
    for (uint64_t i = 0; i < p->floats; i++)
        p->norm += (double)(lease->sum[i] * lease->sum[i]);
    p->seen[p->steps] = atom_hash(ATOM_HASH_SEED, lease->sum, p->floats * sizeof *lease->sum);
    p->tokens[p->steps++] = tokens;
    assert_true(p->norm > 0);
}

/* --- own steps ------------------------------------------------------------------------------- */

static void move(part *p, uint64_t first, uint64_t n, float *live)
{
    for (uint64_t i = 0; i < n; i++)
        live[i] += 1e-3f * (float)((first + i + p->steps) % 7);
}

/* Of weights in no particular order. */
static void look(part *p, uint64_t first, uint64_t n, const float *live)
{
    for (uint64_t i = 0; i < n; i++) {
        const struct {
            uint64_t at;
            float value;
            uint32_t none;
        } one = {first + i, live[i], 0};
        p->seen[p->steps] += atom_hash(ATOM_HASH_SEED, &one, sizeof one);
    }
}

static void before_updates(void *ctx, float *live, const train_reader *reader)
{
    part *p = ctx;
    if (!live)
        return; /* in blocks */
    if (reader)
        reader->leave(reader->ctx, 0, p->floats);
    move(p, 0, p->floats, live);
}

static void after_updates(void *ctx, const float *live)
{
    part *p = ctx;
    if (live)
        look(p, 0, p->floats, live);
}

static void block(void *ctx, uint64_t first, uint64_t n, float *live, bool begin)
{
    part *p = ctx;
    p->blocks++;
    if (begin)
        move(p, first, n, live);
    else
        look(p, first, n, live);
}

static void stepped(void *ctx, uint64_t samples, uint64_t tokens)
{
    part *p = ctx;
    (void)samples;
    (void)tokens;
    p->steps++;
}

/* --- one device and several ------------------------------------------------------------------ */

/* devices 0: one, which uses the weights in place. */
static void open_part(part *p, scratch *place, int devices, bool shared, bool on_disk)
{
    char out[32];
    memset(p, 0, sizeof *p);
    snprintf(out, sizeof out, "on-%d-%d", devices, on_disk);
    train_config *c = &p->config;
    little_config(c, place, out);
    c->gradient_accumulation_steps = C;
    c->devices = devices ? devices : 1;
    c->device_memory = devices ? 1700 << 10 : 0; /* swapped */
    c->max_steps = STEPS;
    c->eval_steps = 0;
    c->optimizer_state = on_disk ? PLAN_STATE_ON_DISK : PLAN_STATE_IN_MEMORY;
    p->seam = (train_seam){.ctx = p, .least_bytes_per_float = 1, .host_bytes_per_float = 2};
    if (shared) {
        p->seam.shared = true;
        p->seam.done = all_leased;
        p->seam.take = take;
        p->seam.current = current;
        p->seam.bring = bring;
    } else {
        p->seam.before_updates = before_updates;
        p->seam.after_updates = after_updates;
        p->seam.block = block;
        p->seam.stepped = stepped;
    }
    const train_hooks hooks = {.seam = &p->seam, .save_nothing = shared};
    must(trainer_open(c, &hooks, &p->t));
    p->floats = trainer_floats(p->t);
    p->sum = atom_alloc(p->floats, sizeof *p->sum);
    p->piece = atom_alloc(p->floats, sizeof *p->piece);
    assert_true(p->sum && p->piece);
    assert_int_equal(trainer_plan(p->t)->devices, c->devices);
    assert_int_equal(trainer_plan(p->t)->in_place, devices == 0);
    assert_int_equal(trainer_plan(p->t)->n_sub_models > 1, devices > 0);
    assert_int_equal(trainer_plan(p->t)->disk, on_disk);
}

static void close_part(part *p)
{
    atom_free(p->sum);
    atom_free(p->piece);
    trainer_close(&p->t);
    train_config_free(&p->config);
}

static void same_file(const part *a, const part *b, const char *name)
{
    char *one = atom_format("%s/checkpoint-%d/%s", a->config.output_dir, STEPS, name), *x = NULL;
    char *two = atom_format("%s/checkpoint-%d/%s", b->config.output_dir, STEPS, name), *y = NULL;
    uint64_t n = 0, m = 0;
    must(atom_file_read(one, 1 << 24, &x, &n));
    must(atom_file_read(two, 1 << 24, &y, &m));
    assert_int_equal(n, m);
    if (memcmp(x, y, n) != 0)
        fail_msg("%s and %s differ", one, two);
    atom_free(one);
    atom_free(two);
    atom_free(x);
    atom_free(y);
}

static void as_one_device(bool shared)
{
    scratch place;
    part one;
    little_world(&place);
    for (int devices = 0; devices <= DEVICES; devices += EVERY) {
        for (int on_disk = 0; on_disk < 2; on_disk++) {
            bool first = devices == 0 && !on_disk;
            part here, *p = first ? &one : &here;
            train_summary summary;
            open_part(p, &place, devices, shared, on_disk);
            must(trainer_run(p->t, &summary));
            assert_int_equal(p->steps, shared ? LEASES : STEPS);
            assert_int_equal(summary.devices, p->config.devices);
            if (first)
                continue;
            for (uint32_t i = 0; i < LEASES; i++)
                if (p->seen[i] != one.seen[i] || p->tokens[i] != one.tokens[i])
                    fail_msg("%s %u differs from that in place on %d devices, %s",
                             shared ? "lease" : "step", i, devices,
                             on_disk ? "on disk" : "in memory");
            assert_int_equal(p->blocks > 0, on_disk && !shared);
            if (!shared) {
                same_file(&one, p, "model.safetensors");
                same_file(&one, p, "optimizer.safetensors");
            }
            close_part(p);
        }
    }
    close_part(&one);
    scratch_close(&place);
}

static void leases(void **state)
{
    (void)state;
    as_one_device(true);
}

static void own_steps(void **state)
{
    (void)state;
    as_one_device(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leases),
        cmocka_unit_test(own_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
