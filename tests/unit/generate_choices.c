/*
 * Accuracy on questions: every score against the plain forward pass of its row alone, in models of
 * all families; the same bits through a device budget; rows that are cut, empty contexts, spaces,
 * ties, limits; refusals and want of memory.
 */
#include "atom/generate/choices.h"

#include "atom/base/log.h"
#include "atom/train/config.h"
#include "tests/lib/gpt2_forward.h"
#include "tests/lib/model_dir.h"
#include "tests/lib/random_model.h"
#include "tests/lib/sanitized.h"
#include "tests/scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { START = 256, POSITIONS = 40, QUESTIONS = 9, ANSWERS = 5, TEXT_MAX = 200 };

typedef struct question {
    char context[TEXT_MAX];
    char answers[ANSWERS][TEXT_MAX];
    uint32_t n, right;
} question;

typedef struct world {
    scratch s;
    model_dir m;
    question questions[QUESTIONS];
    uint32_t n;
    char file[700];
} world;

/* What the callbacks were told. */
typedef struct heard {
    double scores[QUESTIONS][ANSWERS];
    eval_choices_answer answers[QUESTIONS];
    uint32_t n;
    int64_t told; /* questions of the last progress */
} heard;

/* So many bytes of letters, some of them of two. */
static void words(uint64_t seed, uint64_t at, int64_t least, int64_t most, char *out)
{
    int64_t n = random_gpt2_draw(seed, at, least, most);
    for (int64_t i = 0; i < n; i++) {
        int64_t letter = random_gpt2_draw(seed, at + 1 + (uint64_t)i, 'a', 'z' + 6);
        if (letter > 'z' && i + 1 < n) {
            out[i++] = '\xc3';
            out[i] = (char)(0xa0 + letter - 'z');
        } else {
            out[i] = letter > 'z' ? 'a' : (char)letter;
        }
    }
    out[n] = 0;
}

static void write_questions(world *w)
{
    char text[QUESTIONS * ANSWERS * (TEXT_MAX + 10)];
    size_t at = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        const question *q = &w->questions[i];
        at += (size_t)snprintf(text + at, sizeof text - at, "\n{\"ctx\": \"%s\", \"endings\": [",
                               q->context);
        for (uint32_t k = 0; k < q->n; k++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s\"%s\"", k ? ", " : "",
                                   q->answers[k]);
        at += (size_t)snprintf(text + at, sizeof text - at, "], \"label\": %u}", q->right);
    }
    snprintf(w->file, sizeof w->file, "%s", scratch_write(&w->s, "questions.jsonl", text, at));
}

static void world_open(world *w, const graph_config *config, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    scratch_open(&w->s);
    w->m =
        config ? model_dir_of(w->s.dir, config, seed) : model_dir_make(w->s.dir, POSITIONS, seed);
    model_dir_save(&w->m);
    w->n = QUESTIONS;
    for (uint32_t i = 0; i < w->n; i++) {
        question *q = &w->questions[i];
        uint64_t draw = 1000 * (i + 1);
        q->n = (uint32_t)random_gpt2_draw(seed, draw, 2, ANSWERS);
        q->right = (uint32_t)random_gpt2_draw(seed, draw + 1, 0, q->n - 1);
        words(seed, draw + 10, i ? 1 : 0, i == 1 ? 60 : 20, q->context); /* 0: empty; 1: cut */
        for (uint32_t k = 0; k < q->n; k++)
            words(seed, draw + 100 * (k + 1), 1, 12, q->answers[k]);
    }
    write_questions(w);
}

static void world_close(world *w)
{
    model_dir_close(&w->m);
    scratch_close(&w->s);
}

static void listen(void *ctx, const eval_choices_answer *a)
{
    heard *h = ctx;
    assert_true(h->n < QUESTIONS);
    h->answers[h->n] = *a;
    memcpy(h->scores[h->n++], a->scores, a->n * sizeof *a->scores);
}

static void look(void *ctx, const eval_choices_result *so_far, int64_t of)
{
    heard *h = ctx;
    assert_true(so_far->questions >= h->told && so_far->questions <= of && so_far->tokens > 0);
    h->told = so_far->questions;
}

static eval_choices_request request_of(const world *w, int64_t B, int64_t T, heard *h)
{
    return (eval_choices_request){.model = w->s.dir,
                                  .file = w->file,
                                  .micro_batch = B,
                                  .sequence = T,
                                  .dtype = PLAN_DTYPE_FP32,
                                  .threads = 2,
                                  .progress = look,
                                  .answered = listen,
                                  .ctx = h};
}

static eval_choices_result ask(const eval_choices_request *r)
{
    eval_choices_result result = {0};
    heard *h = r->ctx;
    memset(h, 0, sizeof *h);
    if (eval_choices(r, &result) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_int_equal(result.questions, h->n);
    assert_int_equal(result.questions, h->told);
    assert_true(result.seconds >= 0);
    return result;
}

/* --- the oracle: a row by itself, in the plainest way --- */

/* Tokens of a row that sees T at most; *first is the place of the answer's first. */
static int64_t plain_row(const question *q, uint32_t k, int64_t T, int32_t *row, int64_t *first)
{
    int32_t all[3 * TEXT_MAX];
    int64_t n = 0, cut;
    for (const char *c = q->context; *c; c++)
        all[n++] = (unsigned char)*c;
    if (n == 0)
        all[n++] = START;
    *first = n;
    if (q->answers[k][0] != ' ')
        all[n++] = ' ';
    for (const char *c = q->answers[k]; *c; c++)
        all[n++] = (unsigned char)*c;
    cut = n - 1 > T ? n - 1 - T : 0;
    *first -= cut;
    memcpy(row, all + cut, (size_t)(n - cut) * sizeof *row);
    return n - cut;
}

static double plain_score(const world *w, const question *q, uint32_t k, int64_t T)
{
    int32_t row[3 * TEXT_MAX], targets[3 * TEXT_MAX];
    int64_t first, n = plain_row(q, k, T, row, &first);
    gpt2_forward f = gpt2_forward_open(&w->m.config, ATOM_F32, n - 1, w->m.params);
    for (int64_t i = 0; i + 1 < n; i++)
        targets[i] = i + 1 >= first ? row[i + 1] : -1;
    double score = -gpt2_forward_loss(&f, row, targets);
    gpt2_forward_close(&f);
    return score;
}

static double letters(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += *text != '\xc3';
    return (double)n;
}

static uint32_t best(const question *q, const double *scores, bool norm)
{
    uint32_t at = 0;
    for (uint32_t k = 1; k < q->n; k++) {
        double a = scores[k], b = scores[at];
        if (norm) {
            a /= letters(q->answers[k]);
            b /= letters(q->answers[at]);
        }
        at = a > b ? k : at;
    }
    return at;
}

static void same_as_plain(const world *w, const heard *h, const eval_choices_result *r, int64_t T)
{
    int64_t acc = 0, acc_norm = 0;
    assert_int_equal(h->n, w->n);
    for (uint32_t i = 0; i < w->n; i++) {
        const question *q = &w->questions[i];
        double scores[ANSWERS];
        for (uint32_t k = 0; k < q->n; k++) {
            scores[k] = plain_score(w, q, k, T);
            if (!(fabs(h->scores[i][k] - scores[k]) <= 2e-5 * fabs(scores[k])))
                fail_msg("%s, question %u, answer %u: %.9g, not %.9g", w->m.config.name, i, k,
                         h->scores[i][k], scores[k]);
        }
        assert_int_equal(h->answers[i].line, i + 2);
        assert_int_equal(h->answers[i].n, q->n);
        assert_int_equal(h->answers[i].right, q->right);
        assert_int_equal(h->answers[i].picked, best(q, scores, false));
        assert_int_equal(h->answers[i].picked_norm, best(q, scores, true));
        acc += best(q, scores, false) == q->right;
        acc_norm += best(q, scores, true) == q->right;
    }
    double p = (double)acc / w->n, p_norm = (double)acc_norm / w->n;
    assert_true(r->acc == p && r->acc_norm == p_norm);
    assert_true(fabs(r->acc_stderr - sqrt(p * (1 - p) / (w->n - 1))) < 1e-12);
    assert_true(fabs(r->acc_norm_stderr - sqrt(p_norm * (1 - p_norm) / (w->n - 1))) < 1e-12);
}

static void test_scores(void **state)
{
    static const int64_t batches[] = {1, 4, 3}, sequences[] = {-1, 17, POSITIONS};
    world w;
    heard h;
    (void)state;
    for (uint64_t seed = 1; seed <= (SANITIZED ? 6 : 24); seed++) {
        random_gpt2 r = random_model_make(seed);
        int64_t T = sequences[seed % 3];
        r.config.vocab_size = 257 + random_gpt2_draw(seed, 500, 0, 9);
        r.config.positions = POSITIONS;
        if (r.config.long_rope.original) /* one list of divisors at all lengths */
            r.config.long_rope.original = POSITIONS;
        if (r.config.family == GRAPH_MISTRAL)
            r.config.window_layers = 0; /* its config.json has no word for it */
        world_open(&w, &r.config, seed);
        eval_choices_request request = request_of(&w, batches[seed / 3 % 3], T, &h);
        eval_choices_result got = ask(&request);
        assert_int_equal(got.sequence, T > 0 ? T : POSITIONS);
        assert_true(got.cut_contexts >= (T == 17));
        same_as_plain(&w, &h, &got, got.sequence);
        world_close(&w);
    }
}

static void test_batches_and_budgets(void **state)
{
    world w;
    heard one, h;
    int opened = 0;
    (void)state;
    world_open(&w, NULL, 5);
    eval_choices_request r = request_of(&w, 1, -1, &one);
    eval_choices_result want = ask(&r), got;
    for (int64_t B = 2; B <= 40; B += 19) { /* 40: all in one */
        r = request_of(&w, B, B == 2 ? 30 : -1, &h);
        got = ask(&r);
        assert_true(got.acc == want.acc && got.acc_norm == want.acc_norm);
        for (uint32_t i = 0; i < w.n; i++)
            for (uint32_t k = 0; k < w.questions[i].n && (B > 2 || i != 1); k++)
                assert_true(fabs(h.scores[i][k] - one.scores[i][k]) <=
                            2e-5 * fabs(one.scores[i][k]));
    }
    r = request_of(&w, 3, -1, &one);
    ask(&r);
    for (uint64_t kib = 200; kib <= 6400; kib *= 2) {
        r = request_of(&w, 3, -1, &h);
        r.device_memory = kib << 10;
        memset(&h, 0, sizeof h);
        atom_status st = eval_choices(&r, &got);
        assert_true(st == ATOM_OK || st == ATOM_E_RESOURCE);
        if (st != ATOM_OK)
            continue;
        opened++;
        assert_memory_equal(h.scores, one.scores, sizeof h.scores); /* the same bits */
    }
    assert_true(opened > 1);
    world_close(&w);
}

/* Two questions of two answers each. */
static void set_questions(world *w, const char *context, const char *a, const char *b,
                          uint32_t right)
{
    w->n = 2;
    for (uint32_t i = 0; i < w->n; i++) {
        question *q = &w->questions[i];
        q->n = 2;
        q->right = right;
        snprintf(q->context, sizeof q->context, "%s", context);
        snprintf(q->answers[0], sizeof q->answers[0], "%s", a);
        snprintf(q->answers[1], sizeof q->answers[1], "%s", b);
    }
    write_questions(w);
}

static void test_rules(void **state)
{
    world w;
    heard h;
    eval_choices_result got;
    (void)state;
    world_open(&w, NULL, 3);
    eval_choices_request r = request_of(&w, 1, 11, &h); /* a row each: the same bits */
    set_questions(&w, "what", "answer", "answer", 1);
    got = ask(&r);
    assert_true(h.scores[0][0] == h.scores[0][1]);
    assert_int_equal(h.answers[0].picked, 0); /* of equal ones the first */
    assert_int_equal(h.answers[0].picked_norm, 0);
    assert_true(got.acc == 0 && got.acc_norm == 0 && got.acc_stderr == 0);
    assert_int_equal(got.tokens, 4 * 10);

    set_questions(&w, "what", " answer", "answer", 1); /* the same tokens, a byte more */
    got = ask(&r);
    assert_true(h.scores[0][0] == h.scores[0][1]);
    assert_int_equal(h.answers[0].picked_norm, 0);
    same_as_plain(&w, &h, &got, 11);

    set_questions(&w, "", "x", "yy", 0); /* the start of a document */
    got = ask(&r);
    same_as_plain(&w, &h, &got, 11);
    assert_int_equal(got.cut_contexts, 0);
    assert_int_equal(got.tokens, 2 * (2 + 3));

    set_questions(&w, "abcdefghijkl", "mnopqrstuv", "w", 0);
    got = ask(&r); /* one token of the context is left */
    same_as_plain(&w, &h, &got, 11);
    assert_int_equal(got.cut_contexts, 2);

    r.limit = 1;
    got = ask(&r);
    assert_int_equal(got.questions, 1);
    assert_true(isnan(got.acc_stderr) && isnan(got.acc_norm_stderr));
    assert_int_equal(got.cut_contexts, 1);
    r.limit = 7;
    assert_int_equal(ask(&r).questions, 2);
    world_close(&w);
}

/* --- what is refused --- */

static void refuse(eval_choices_request r, atom_status want, const char *word)
{
    eval_choices_result result = {.tokens = -5};
    r.answered = NULL;
    r.progress = NULL;
    assert_int_equal(eval_choices(&r, &result), want);
    if (!strstr(atom_fail_message(), word))
        fail_msg("'%s' does not say '%s'", atom_fail_message(), word);
    assert_int_equal(result.tokens, -5);
}

static void test_refuses(void **state)
{
    world w;
    (void)state;
    world_open(&w, NULL, 2);
    eval_choices_request good = request_of(&w, 2, -1, NULL), r = good;
    r.sequence = POSITIONS + 1;
    refuse(r, ATOM_E_USAGE, "positions");
    r = good;
    r.model = "gpt2-124m";
    refuse(r, ATOM_E_USAGE, "no weights");
    r = good;
    r.device_memory = 4096;
    refuse(r, ATOM_E_RESOURCE, "device");
    r = good;
    r.limit = -1;
    refuse(r, ATOM_E_USAGE, "limit");
    r = good;
    r.micro_batch = 0;
    refuse(r, ATOM_E_USAGE, "micro_batch");
    r = good;
    r.file = scratch_path(&w.s, "none.jsonl");
    refuse(r, ATOM_E_FORMAT, "none.jsonl");
    set_questions(&w, "what", "eleven byte", "no", 0);
    r = good;
    r.sequence = 11; /* and the space in front */
    refuse(r, ATOM_E_FORMAT, ".jsonl:2: answer 0 (counted from 0) alone has 12 tokens");
    r.sequence = 12;
    heard h = {.n = 0};
    r.answered = listen;
    r.progress = look;
    r.ctx = &h;
    assert_int_equal(ask(&r).cut_contexts, 2);
    atom_log_set_level(ATOM_LOG_ERROR);
    model_dir_param(&w.m, "ln_f.weight")[0] = NAN;
    model_dir_save(&w.m);
    refuse(good, ATOM_E_DIVERGED, "questions.jsonl:2: the score of answer 0");
    char path[700];
    snprintf(path, sizeof path, "%s/tokenizer.json", w.s.dir);
    assert_int_equal(remove(path), 0);
    refuse(good, ATOM_E_FORMAT, "tokenizer.json");
    world_close(&w);
}

/* Allocations fail, one after the other; nothing is left behind. (A file that cannot be looked for
 * counts as not there.) */
static void test_memory(void **state)
{
    world w;
    heard h = {.n = 0};
    eval_choices_result result;
    (void)state;
    world_open(&w, NULL, 2);
    eval_choices_request r = request_of(&w, 2, -1, &h);
    ask(&r);
    atom_mem_stats before = atom_mem_read(), after;
    for (uint64_t n = 1; n < (SANITIZED ? 60 : 400); n += 1 + n / 40) {
        h.n = 0;
        h.told = 0;
        atom_mem_fail_after(n);
        atom_status st = eval_choices(&r, &result);
        atom_mem_fail_after(0);
        if (st != ATOM_OK && st != ATOM_E_RESOURCE && st != ATOM_E_USAGE)
            fail_msg("allocation %llu: %s", (unsigned long long)n, atom_fail_message());
        after = atom_mem_read();
        assert_int_equal(after.live_blocks, before.live_blocks);
    }
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores), cmocka_unit_test(test_batches_and_budgets),
        cmocka_unit_test(test_rules),  cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
