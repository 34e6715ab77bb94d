/*
 * Slices, without a network: four members in one process against a scalar oracle that averages
 * their weights and writes the average over all of them; what happens to a part that lacks a
 * contribution; a member alone; restarts to the bit; what joiners fetch; settings that make no
 * sense.
 */
#include "atom/pool/anchor.h"
#include "atom/pool/pool_json.h"
#include "atom/pool/settings.h"
#include "gossip/trust/seals.h"
#include "tests/lib/both_tiers.h"
#include "tests/scratch.h"

#include <math.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { N = 128 * 60 + 31, F = 4, PARTS = 3, MEMBERS = 4, SAMPLE = 16 };

typedef struct side {
    scratch s;
    uint32_t who;
    double mix;
    pool_anchor *pool;
    train_seam seam;
    gsp_work work;
    float *live;
    uint64_t samples;
} side;

static void must(atom_status st)
{
    if (st != ATOM_OK)
        fail_msg("%s", atom_fail_message());
}

static gsp_key key_of(uint32_t who)
{
    gsp_key key;
    memset(key.byte, 10 + (int)who, sizeof key.byte);
    return key;
}

static float noise(uint64_t k, uint32_t salt)
{
    uint32_t x = (uint32_t)k * 2654435761u + salt * 40503u;
    x ^= x >> 15;
    x *= 2246822519u;
    return (float)(x >> 8) * 0x1p-24f - 0.5f;
}

static void reopen(side *a)
{
    pool_anchor_config c = {.directory = a->s.dir,
                            .self = key_of(a->who),
                            .n_floats = N,
                            .n_fragments = F,
                            .slices = true,
                            .mix = a->mix,
                            .batch = 4,
                            .tokens_per_sample = SAMPLE,
                            .max_samples = 4000,
                            .on_disk = anchors_on_disk,
                            .piece_floats = PIECE};
    pool_anchor_close(&a->pool);
    must(pool_anchor_open(&c, &a->pool));
    a->seam = pool_anchor_seam(a->pool);
    pool_anchor_work(a->pool, &a->work);
}

static void attach(side *a, const char *marks)
{
    must(pool_anchor_attach(a->pool, file_vector_memory(a->live), marks, a->samples,
                            a->samples * SAMPLE));
    pool_anchor_running(a->pool, true);
}

static void side_open(side *a, uint32_t who, double mix)
{
    *a = (side){.who = who, .mix = mix};
    scratch_open(&a->s);
    a->live = atom_alloc(N, sizeof *a->live);
    for (uint64_t i = 0; i < N; i++)
        a->live[i] = noise(i, 1);
    reopen(a);
}

static void side_close(side *a)
{
    pool_anchor_close(&a->pool);
    atom_free(a->live);
    scratch_close(&a->s);
}

/* What training does: every weight of every member its own way. */
static void train(float *live, uint32_t who, uint64_t samples)
{
    for (uint64_t i = 0; i < N; i++)
        live[i] += 0x1p-7f * noise(i, 1000 * who + (uint32_t)samples);
}

/* A step of so many samples: more where a member is quicker. */
static void step(side *a)
{
    a->seam.before_updates(a->seam.ctx, a->live, NULL);
    a->samples += 4 + 2 * a->who;
    train(a->live, a->who, a->samples);
    a->seam.stepped(a->seam.ctx, a->samples, a->samples * SAMPLE);
    a->seam.after_updates(a->seam.ctx, a->live);
}

static uint64_t stride_of(uint64_t n)
{
    uint64_t stride = (n + PARTS - 1) / PARTS;
    return (stride + GSP_INT8_BLOCK - 1) / GSP_INT8_BLOCK * GSP_INT8_BLOCK;
}

/* included: of every part; members are the roster, and contribute in its order. */
static void certificate_make(gsp_certificate *c, uint64_t version, uint32_t members,
                             const uint32_t *included)
{
    memset(c, 0, sizeof *c);
    gsp_proposal *p = &c->proposal;
    p->version = version;
    p->n_parts = included ? PARTS : 0;
    p->n_contributors = included ? members : 0;
    for (uint32_t i = 0; i < p->n_contributors; i++)
        p->contributor[i].member = (uint8_t)i;
    for (uint32_t k = 0; k < p->n_parts; k++)
        p->part[k].included = included[k];
    p->next.n = members;
    for (uint32_t i = 0; i < members; i++)
        p->next.member[i].key = key_of(i);
}

static void apply(side *a, const gsp_certificate *c, const float *average)
{
    static const gsp_hash none;
    uint64_t v = c->proposal.version, first;
    uint64_t n = pool_fragment_range(N, F, (uint32_t)(v % F), &first), stride = stride_of(n);
    for (uint64_t k = 0; average && k < PARTS; k++)
        if (k * stride < n)
            a->work.part(a->work.context, v, k * stride, average + k * stride,
                         n - k * stride < stride ? n - k * stride : stride);
    must(a->work.apply(a->work.context, c, &none));
}

/* All begin at the same weights; the first version brings nothing, and makes all members. */
static void begin(side *m, uint32_t members, double mix)
{
    gsp_certificate *c = atom_alloc(1, sizeof *c);
    certificate_make(c, 1, members, NULL);
    for (uint32_t i = 0; i < members; i++) {
        side_open(&m[i], i, mix);
        must(pool_anchor_begin(m[i].pool, file_vector_memory(m[i].live)));
        attach(&m[i], NULL);
        apply(&m[i], c, NULL);
    }
    atom_free(c);
}

/*
 * A round: all copy out, train on meanwhile, and apply the average of what is included. read (may
 * be NULL) gets what each had when it was read, `tokens` its weight.
 */
static void one_round(side *m, uint32_t members, uint64_t v, const uint32_t *included,
                      float *const *read, uint64_t *tokens)
{
    uint64_t first, samples, n = pool_fragment_range(N, F, (uint32_t)(v % F), &first);
    uint64_t stride = stride_of(n);
    const float *x[MEMBERS];
    float *average = atom_alloc(n, sizeof *average);
    gsp_certificate *c = atom_alloc(1, sizeof *c);
    for (uint32_t i = 0; i < members; i++) {
        side *a = &m[i];
        assert_int_equal(a->work.freeze(a->work.context, v, &x[i], &tokens[i], &samples),
                         GSP_FREEZE_LATER);
        step(a);
        assert_int_equal(a->work.freeze(a->work.context, v, &x[i], &tokens[i], &samples),
                         GSP_FREEZE_READY);
        if (read)
            memcpy(read[i], a->live, N * sizeof **read);
        step(a);
    }
    for (uint64_t j = 0; j < n; j++) {
        double sum = 0, all = 0;
        for (uint32_t i = 0; i < members; i++)
            if (included[j / stride] >> i & 1) {
                sum += (double)tokens[i] * (double)x[i][j];
                all += (double)tokens[i];
            }
        average[j] = all > 0 ? (float)(sum / all) : 0;
    }
    certificate_make(c, v, members, included);
    for (uint32_t i = 0; i < members; i++)
        apply(&m[i], c, average);
    atom_free(average);
    atom_free(c);
}

static const uint32_t everybody[PARTS] = {15, 15, 15};

/* The anchor's fragment of version v, as a joiner would read it. */
static uint64_t anchor_of(side *a, uint64_t v, float *to, uint64_t *first)
{
    uint64_t n = pool_fragment_range(N, F, (uint32_t)(v % F), first);
    must(a->work.state_read(a->work.context, (uint32_t)(v % F), 0, n, to));
    return n;
}

/*
 * The oracle knows no anchor, no deltas, no fragments' versions: sessions that train (w), whose
 * slice is read, averaged by tokens, and written over what each has by then.
 */
static void averages_are_written_over_what_is_trained(void **unused)
{
    (void)unused;
    side m[MEMBERS];
    float *w[MEMBERS], *was[MEMBERS], *state = atom_alloc(N, sizeof *state);
    double lost = 0;
    begin(m, MEMBERS, 0);
    for (int i = 0; i < MEMBERS; i++) {
        w[i] = atom_alloc(N, sizeof **w);
        was[i] = atom_alloc(N, sizeof **was);
        memcpy(w[i], m[i].live, N * sizeof **w);
    }
    for (uint64_t v = 2; v <= 4 * F; v++) {
        uint64_t tokens[MEMBERS], first;
        one_round(m, MEMBERS, v, everybody, NULL, tokens);
        for (uint32_t i = 0; i < MEMBERS; i++) {
            train(w[i], i, m[i].samples - (4 + 2 * i));
            memcpy(was[i], w[i], N * sizeof **was);
            train(w[i], i, m[i].samples);
            m[i].seam.before_updates(m[i].seam.ctx, m[i].live, NULL);
        }
        uint64_t n = anchor_of(&m[0], v, state, &first);
        lost += (double)n / N * 4;
        for (uint64_t j = first; j < first + n; j++) {
            double sum = 0, all = 0;
            for (int i = 0; i < MEMBERS; i++) {
                sum += (double)tokens[i] * (double)was[i][j];
                all += (double)tokens[i];
            }
            for (int i = 0; i < MEMBERS; i++) {
                w[i][j] = (float)(sum / all);
                assert_true(m[i].live[j] == state[j - first]); /* written, not moved */
            }
        }
        for (int i = 0; i < MEMBERS; i++)
            for (uint64_t j = 0; j < N; j++)
                assert_true(fabsf(w[i][j] - m[i].live[j]) <= 8 * 0x1p-24f);
    }
    pool_anchor_status s[2];
    for (int i = 0; i < MEMBERS; i++) {
        pool_anchor_read_status(m[i].pool, true, &s[i > 0]);
        assert_memory_equal(&s[i > 0].anchor, &s[0].anchor, sizeof s->anchor);
        assert_int_equal(s[i > 0].included, 4 * F - 1);
    }
    assert_true(fabs(s[0].lost_samples - lost) < 1e-9);
    atom_free(state);
    for (int i = 0; i < MEMBERS; i++) {
        atom_free(w[i]);
        atom_free(was[i]);
        side_close(&m[i]);
    }
}

/* Part 0 has all, part 1 lacks member 1, part 2 nobody but member 2. */
static void what_nobody_read_is_not_lost(void **unused)
{
    (void)unused;
    static const uint32_t included[PARTS] = {15, 13, 4};
    side m[MEMBERS];
    uint64_t tokens[MEMBERS], first;
    float *old = atom_alloc(N, sizeof *old), *now = atom_alloc(N, sizeof *now);
    float *live = atom_alloc(N, sizeof *live);
    begin(m, MEMBERS, 0);
    uint64_t n = anchor_of(&m[1], 2, old, &first), stride = stride_of(n);
    one_round(m, MEMBERS, 2, included, NULL, tokens);
    (void)anchor_of(&m[1], 2, now, &first);
    for (uint32_t i = 1; i <= 2; i++) {
        memcpy(live, m[i].live, N * sizeof *live);
        m[i].seam.before_updates(m[i].seam.ctx, m[i].live, NULL);
        for (uint64_t j = 0; j < n; j++) {
            float moved = live[first + j] + (now[j] - old[j]), got = m[i].live[first + j];
            bool mine = included[j / stride] >> i & 1, others = included[j / stride] & ~(1u << i);
            assert_true(got == (!mine ? moved : others ? now[j] : live[first + j]));
        }
        assert_memory_equal(live, m[i].live, first * sizeof *live);
        assert_memory_equal(live + first + n, m[i].live + first + n,
                            (N - first - n) * sizeof *live);
    }
    atom_free(old);
    atom_free(now);
    atom_free(live);
    for (int i = 0; i < MEMBERS; i++)
        side_close(&m[i]);
}

static void mix_keeps_a_part(void **unused)
{
    (void)unused;
    side m[2];
    uint64_t tokens[2], first;
    static const uint32_t both[PARTS] = {3, 3, 3};
    float *now = atom_alloc(N, sizeof *now), *live = atom_alloc(N, sizeof *live);
    begin(m, 2, 0.25);
    one_round(m, 2, 2, both, NULL, tokens);
    uint64_t n = anchor_of(&m[0], 2, now, &first);
    memcpy(live, m[0].live, N * sizeof *live);
    m[0].seam.before_updates(m[0].seam.ctx, m[0].live, NULL);
    for (uint64_t j = 0; j < n; j++)
        assert_true(m[0].live[first + j] == now[j] + 0.25f * (live[first + j] - now[j]));
    atom_free(now);
    atom_free(live);
    side_close(&m[0]);
    side_close(&m[1]);
}

/* An average of one is what it brought: a member alone trains as if there were no pool. */
static void alone_nothing_is_written(void **unused)
{
    (void)unused;
    static const uint32_t mine[PARTS] = {1, 1, 1};
    side m[1];
    uint64_t tokens[1];
    float *plain = atom_alloc(N, sizeof *plain);
    begin(m, 1, 0);
    memcpy(plain, m[0].live, N * sizeof *plain);
    for (uint64_t v = 2; v < 3 * F; v++) {
        one_round(m, 1, v, mine, NULL, tokens);
        train(plain, 0, m[0].samples - 4);
        train(plain, 0, m[0].samples);
    }
    m[0].seam.before_updates(m[0].seam.ctx, m[0].live, NULL);
    assert_memory_equal(plain, m[0].live, N * sizeof *plain);
    atom_free(plain);
    side_close(&m[0]);
}

/* What the member remembers of version v. */
static void remember(gsp_saved *saved, uint64_t v, uint32_t members)
{
    gsp_seals seals = gsp_seals_real(NULL);
    memset(saved, 0, sizeof *saved);
    saved->genesis.founder.key = key_of(0);
    saved->has_certificate = true;
    certificate_make(&saved->certificate, v, members, everybody);
    gsp_genesis_hash(&seals, &saved->genesis, &saved->certificate.proposal.lineage);
}

static void twelve_versions(side *m, uint64_t restart_after)
{
    gsp_saved *saved = atom_alloc(1, sizeof *saved);
    static const uint32_t both[PARTS] = {3, 3, 3};
    uint64_t tokens[2];
    begin(m, 2, 0);
    for (uint64_t v = 2; v <= 12; v++) {
        one_round(m, 2, v, both, NULL, tokens);
        for (int i = 0; i < 2; i++) /* written into live: a checkpoint has it */
            step(&m[i]);
        if (v != restart_after)
            continue;
        char *marks = pool_anchor_marks(m[1].pool);
        reopen(&m[1]);
        remember(saved, v, 2);
        must(pool_anchor_restore(m[1].pool, saved));
        attach(&m[1], marks);
        atom_free(marks);
    }
    atom_free(saved);
}

static void a_restart_goes_on_to_the_bit(void **unused)
{
    (void)unused;
    side straight[2], broken[2];
    pool_anchor_status s, t;
    twelve_versions(straight, 0);
    twelve_versions(broken, 6);
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(straight[i].live, broken[i].live, N * sizeof(float));
        pool_anchor_read_status(straight[i].pool, true, &s);
        pool_anchor_read_status(broken[i].pool, true, &t);
        assert_memory_equal(&s.anchor, &t.anchor, sizeof s.anchor);
        assert_int_equal(t.applied, 12);
    }
    for (int i = 0; i < 2; i++) {
        side_close(&straight[i]);
        side_close(&broken[i]);
    }
}

/* A checkpoint between an average and its writing does not have it. */
static void marks_know_what_is_to_be_written(void **unused)
{
    (void)unused;
    static const uint32_t both[PARTS] = {3, 3, 3};
    side m[2];
    uint64_t tokens[2];
    static const gsp_hash none;
    begin(m, 2, 0);
    one_round(m, 2, 2, both, NULL, tokens);
    for (int written = 0; written < 2; written++) {
        pool_mark marks;
        char *text = pool_anchor_marks(m[0].pool);
        must(pool_json_parse("pool.json", text, strlen(text), &marks));
        assert_int_equal(marks.version[2], written ? 2 : 0);
        assert_int_equal(gsp_hash_equal(&marks.anchor[2], &none), !written);
        m[0].seam.before_updates(m[0].seam.ctx, m[0].live, NULL);
        atom_free(text);
    }
    side_close(&m[0]);
    side_close(&m[1]);
}

/* What is not written yet is not read: the same fragment's turn comes again before a step. */
static void it_is_written_before_it_is_read_again(void **unused)
{
    (void)unused;
    static const uint32_t both[PARTS] = {3, 3, 3};
    side m[2];
    uint64_t tokens[2], samples;
    const float *x;
    gsp_certificate *c = atom_alloc(1, sizeof *c);
    begin(m, 2, 0);
    one_round(m, 2, 2, both, NULL, tokens);
    for (uint64_t v = 3; v < 2 + F; v++) {
        certificate_make(c, v, 2, NULL);
        apply(&m[0], c, NULL);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(m[0].work.freeze(m[0].work.context, 2 + F, &x, tokens, &samples),
                         GSP_FREEZE_LATER);
        m[0].seam.after_updates(m[0].seam.ctx, m[0].live);
    }
    step(&m[0]);
    assert_int_equal(m[0].work.freeze(m[0].work.context, 2 + F, &x, tokens, &samples),
                     GSP_FREEZE_READY);
    for (uint64_t i = 0; i < F; i++) /* one step away from the anchor */
        assert_true(fabsf(x[i]) <= 0x1p-8f);
    atom_free(c);
    side_close(&m[0]);
    side_close(&m[1]);
}

static void a_joiner_fetches_the_anchor_alone(void **unused)
{
    (void)unused;
    static const uint32_t both[PARTS] = {3, 3, 3};
    side m[2], b;
    uint64_t tokens[2];
    pool_anchor_status one, two;
    gsp_saved *saved = atom_alloc(1, sizeof *saved);
    float *x = atom_alloc(N, sizeof *x);
    begin(m, 2, 0);
    for (uint64_t v = 2; v <= 6; v++)
        one_round(m, 2, v, both, NULL, tokens);
    side_open(&b, 3, 0);
    uint64_t floats = 0;
    for (uint32_t f = 0; f < F; f++) {
        uint64_t n = m[0].work.n_state[f];
        floats += n;
        must(m[0].work.state_read(m[0].work.context, f, 0, n, x));
        must(b.work.state_write(b.work.context, f, f + (f > 2 ? 0 : 4), 0, n, x));
    }
    assert_int_equal(floats, N);
    assert_int_equal(pool_anchor_state_bytes(N, POOL_SYNC_SLICES), 4 * N);
    remember(saved, 6, 2);
    must(b.work.state_adopt(b.work.context, saved));
    attach(&b, NULL);
    pool_anchor_read_status(m[0].pool, true, &one);
    pool_anchor_read_status(b.pool, true, &two);
    assert_memory_equal(&one.anchor, &two.anchor, sizeof one.anchor);
    /* No momentum: 4 bytes of a parameter less in memory, 12 on disk. */
    uint64_t big = 1 << 30;
    assert_true(pool_anchor_host_bytes(big, 16, POOL_SYNC_SLICES, false) + 4 * big <=
                pool_anchor_host_bytes(big, 16, POOL_SYNC_PARAMETERS, false));
    assert_int_equal(pool_anchor_disk_bytes(big, 16, POOL_SYNC_SLICES, false) + 12 * big,
                     pool_anchor_disk_bytes(big, 16, POOL_SYNC_PARAMETERS, false));
    atom_free(saved);
    atom_free(x);
    side_close(&b);
    side_close(&m[0]);
    side_close(&m[1]);
}

static atom_status settings_of(const char *text, pool_settings *s)
{
    opt_parsed parsed;
    must(opt_defaults(&pool_options, s, &parsed));
    must(opt_read_text(&pool_options, "run.yml", text, strlen(text), s, &parsed));
    pool_settings_fill(s, &parsed);
    atom_status st = pool_settings_check(s, &parsed, "run.yml", text);
    pool_settings numbers = *s;
    opt_free(&pool_options, s);
    numbers.base_hash = numbers.dense_steps = NULL; /* what is looked at here are numbers */
    *s = numbers;
    return st;
}

static void settings_say_what_makes_no_sense(void **unused)
{
    (void)unused;
    pool_settings s;
    must(settings_of("mode: slices\n", &s));
    assert_int_equal(s.sync, POOL_SYNC_SLICES);
    assert_int_equal(s.fragments, 16);
    assert_int_equal(s.sync_steps, 16);
    assert_true(s.outer_learning_rate == 1 && s.outer_momentum == 0);
    must(settings_of("sync_steps: 20\n", &s));
    assert_true(s.outer_learning_rate == 0.7 && s.outer_momentum == 0.8);
    must(settings_of("sync_steps: 19\n", &s)); /* few steps: the plain mean */
    assert_true(s.outer_learning_rate == 1 && s.outer_momentum == 0);
    must(settings_of("sync_steps: 19\nouter_momentum: 0.5\n", &s));
    assert_true(s.outer_learning_rate == 0.7 && s.outer_momentum == 0.5);
    must(settings_of("sync_steps: 19\nouter_learning_rate: 0.9\n", &s));
    assert_true(s.outer_learning_rate == 0.9 && s.outer_momentum == 0.8);
    must(settings_of("sync: gradients\n", &s));
    assert_true(s.outer_learning_rate == 0.7 && s.outer_momentum == 0.8);
    must(settings_of("sync: slices\nfragments: 24\nmix: 0.5\n", &s));
    assert_int_equal(s.sync_steps, 24);
    static const char *const bad[][2] = {
        {"sync: slices\nouter_momentum: 0.9\n", "run.yml:2: outer_momentum: "},
        {"\n\n outer_learning_rate : 0.7\n sync: slices\n", "run.yml:3: outer_learning_rate: "},
        {"sync: slices\ncodec: bf16\nglobal_batch_size: 64\n", "run.yml:3: global_batch_size: "},
        {"global_batch_size: 64\n", "run.yml:1: global_batch_size: "},
        {"trust: strangers\naudit_percent: 0\n", "run.yml:2: audit_percent: "},
        {"sync: gradients\nfragments: 2\n", "run.yml:2: fragments: "},
        {"sync: gradients\nsync_steps: 20\n", "run.yml:2: sync_steps: "},
        {"sync: gradients\nouter_learning_rate: 0.7\n", "run.yml:2: outer_learning_rate: "},
        {"sync: gradients\nouter_momentum: 0.9\n", "run.yml:2: outer_momentum: "},
        {"sync: gradients\nmix: 0.1\n", "run.yml:2: mix: "},
        {"sync: gradients\nrewarm_steps: 5\n", "run.yml:2: rewarm_steps: "},
        {"sync: parameters\nsteps: 500\n", "run.yml:2: steps: it is max_steps"},
        {"batch: 8\n", "run.yml:1: batch: "},
        {"data_hash: 8\n", "run.yml:1: data_hash: "},
        {"base_hash: ab\n", "run.yml:1: base_hash: "},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(settings_of(bad[i][0], &s), ATOM_E_USAGE);
        assert_non_null(strstr(atom_fail_message(), bad[i][1]));
    }
}

/* A message names the file where it is about the file, and only there. */
static void split_names_its_line(void **unused)
{
    static const char text[] = "seed: 3\npool: {sync_steps: 12}\n", good[] = "pool:\n a: 1\n";
    static const char two[] = "pool:\n  a: 1\nseed: 3\npool:\n  b: 2\n";
    char *pool = NULL, *rest = NULL;
    (void)unused;
    assert_int_equal(pool_settings_split("run.yml", text, sizeof text - 1, &pool, &rest),
                     ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "run.yml:2: pool: put"));
    assert_int_equal(pool_settings_split("run.yml", two, sizeof two - 1, &pool, &rest),
                     ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "run.yml:4: 'pool' was already set in line 1"));
    atom_mem_fail_after(2);
    assert_int_equal(pool_settings_split("run.yml", good, sizeof good - 1, &pool, &rest),
                     ATOM_E_RESOURCE);
    atom_mem_fail_after(0);
    assert_null(strstr(atom_fail_message(), "run.yml"));
    must(pool_settings_split("run.yml", good, sizeof good - 1, &pool, &rest));
    assert_string_equal(pool, "\n a: 1\n");
    assert_string_equal(rest, "\n\n");
    atom_free(pool);
    atom_free(rest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(averages_are_written_over_what_is_trained),
        cmocka_unit_test(what_nobody_read_is_not_lost),
        cmocka_unit_test(mix_keeps_a_part),
        cmocka_unit_test(alone_nothing_is_written),
        cmocka_unit_test(a_restart_goes_on_to_the_bit),
        cmocka_unit_test(marks_know_what_is_to_be_written),
        cmocka_unit_test(it_is_written_before_it_is_read_again),
        cmocka_unit_test(a_joiner_fetches_the_anchor_alone),
        cmocka_unit_test(settings_say_what_makes_no_sense),
        cmocka_unit_test(split_names_its_line),
    };
    return both_tiers(tests, NULL, NULL);
}
