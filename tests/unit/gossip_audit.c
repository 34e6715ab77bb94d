/*
 * Owners that lie, for real: members on threads of their own, one of which makes other results of
 * its parts than it should. gsp_mix_part is wrapped by the linker for this program alone
 * (tests/CMakeLists.txt), so that the liar is an honest member but for its sums. And the files of
 * evidence, by themselves.
 */
#include "tests/lib/gossip_cell.h"
#include "tests/lib/sanitized.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "gossip/agree/agree_inner.h"
#include "gossip/agree/wire.h"
#include "gossip/member/evidence.h"
#include "gossip/member/node_inner.h"
#include "gossip/sum/mix.h"
#include "gossip/trust/seals.h"

#include <dirent.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

bool __real_gsp_mix_part(gsp_mix *mix, uint32_t number, const gsp_contributor *contributor,
                         uint32_t n_contributors, const void *const *input, uint32_t included,
                         uint64_t n, void *out, gsp_part *part, atom_status *status);
bool __wrap_gsp_mix_part(gsp_mix *mix, uint32_t number, const gsp_contributor *contributor,
                         uint32_t n_contributors, const void *const *input, uint32_t included,
                         uint64_t n, void *out, gsp_part *part, atom_status *status);

typedef enum lie {
    HONEST,
    ONE_VALUE,  /* off by a bit */
    OTHER_PART, /* the result of the part before, under this part's number */
    NORM,       /* right bytes, and a wrong word about them */
    TWO_VOTES,  /* right sums, and a second vote in each ballot */
} lie;

static _Thread_local lie lies;
static _Thread_local uint8_t before[1 << 20];

bool __wrap_gsp_mix_part(gsp_mix *mix, uint32_t number, const gsp_contributor *contributor,
                         uint32_t n_contributors, const void *const *input, uint32_t included,
                         uint64_t n, void *out, gsp_part *part, atom_status *status)
{
    uint64_t bytes = gsp_codec_bytes(mix->codec, n);
    if (!__real_gsp_mix_part(mix, number, contributor, n_contributors, input, included, n, out,
                             part, status))
        return false;
    if (lies == HONEST || lies == TWO_VOTES || n == 0)
        return true;
    if (lies == ONE_VALUE) {
        ((uint8_t *)out)[bytes - 1] ^= 1;
    } else if (lies == OTHER_PART) {
        uint8_t *kept = atom_alloc(1, bytes);
        memcpy(kept, out, bytes);
        memcpy(out, before, bytes);
        memcpy(before, kept, bytes);
        atom_free(kept);
    } else {
        part->norm *= 1.5f;
    }
    gsp_merkle_leaf(number, out, bytes, &part->hash);
    return true;
}

/* ---- members that go on when one is gone ---- */

enum { MEMBERS = 4, LIAR = 3, PARTS = 16, FLOATS = SANITIZED ? 40000 : 150000 };
static const uint64_t PACE_NS = 150000000; /* between versions, so that audits have their time */

typedef struct play {
    cell cell;
    lie lie;
    bool accuses; /* the last member owns nothing, and finds everybody else wrong */
    bool over[MEMBERS];
} play;

static void open_member(play *p, cell_member *m)
{
    gsp_node_config config = cell_company_config(m, !p->accuses || m->i != LIAR);
    if (m->i == LIAR && p->lie != HONEST)
        config.rules.audit_percent = p->accuses ? 100 : 0;
    test_must(gsp_node_open(&config, &m->node));
}

static bool bans(const gsp_node_status *s, const gsp_identity *who)
{
    for (uint32_t k = 0; k < s->n_bans && k < GSP_BANS_SHOWN; k++)
        if (memcmp(s->ban[k].key.byte, who->public_key, GSP_PUBLIC_BYTES) == 0)
            return true;
    return false;
}

/* Whether this member has seen what the play is for. */
static bool seen(play *p, cell_member *m)
{
    const gsp_identity *liar = &p->cell.pool.member[LIAR];
    if (p->accuses) /* who bans everybody hangs up, and with it may go the bytes that clear them */
        return m->i == LIAR || m->status.false_claims > 0 || m->status.audits_open > 0;
    if (p->lie == HONEST)
        return m->status.audits - m->status.audits_open > 4;
    return m->i == LIAR || (bans(&m->status, liar) && m->status.n_roster == MEMBERS - 1);
}

static play *the_play;

/* What it has just voted for, and something else, to all. */
static void vote_twice(cell_member *m)
{
    static uint8_t bytes[1024];
    const gsp_agree *a = &m->node->agree;
    if (!gsp_agree_is_member(a) || !a->vote[a->self_i].kind)
        return;
    gsp_seals seals = gsp_seals_real(&m->cell->pool.member[m->i]);
    gsp_message *other = atom_alloc(1, sizeof *other);
    other->kind = GSP_VOTE;
    other->from = a->self;
    other->lineage = a->lineage;
    other->version = a->certified + 1;
    other->as.vote.statement = a->vote[a->self_i];
    other->ballot = other->as.vote.statement.ballot;
    other->as.vote.statement.subject.byte[0] ^= 1;
    gsp_statement_seal(&seals, &other->as.vote.statement);
    size_t n = gsp_wire_encode(other, bytes, sizeof bytes);
    for (unsigned i = 0; i < MEMBERS; i++)
        if (i != m->i)
            (void)!gsp_net_send(m->net, m->cell->pool.member[i].public_key, GSP_NET_CONTROL, bytes,
                                n, NULL, 0);
    atom_free(other);
}

static void *run(void *context)
{
    cell_member *m = context;
    play *p = the_play;
    bool counted = false;
    lies = m->i == LIAR ? p->lie : HONEST;
    cell_dial(m);
    while (!p->cell.stop) {
        bool due = atom_clock_ns() - m->applied_ns > PACE_NS;
        gsp_node_report(m->node, due ? p->cell.n : 0, 0);
        if (gsp_node_turn(m->node, 20000000) != ATOM_OK) {
            snprintf(m->why, sizeof m->why, "%s", atom_fail_message());
            m->failed = true;
            break;
        }
        if (lies == TWO_VOTES)
            vote_twice(m);
        gsp_node_read_status(m->node, &m->status);
        if (!counted && seen(p, m)) {
            counted = true;
            p->cell.n_done++;
        }
    }
    return NULL;
}

static void open_play(play *p, lie kind, gsp_codec codec, bool robust)
{
    memset(p, 0, sizeof *p);
    cell_make(&p->cell, MEMBERS, codec, FLOATS, PARTS, 0);
    p->cell.robust = robust;
    /* A ballot of the liar's, cut off by its ban, does not end before that. */
    p->cell.rules.round_ns = p->cell.rules.round_min_ns = 20 * 1000000000ull;
    p->lie = kind;
    test_must(gsp_sim_hub_open(&p->cell.hub));
    the_play = p;
    for (unsigned i = 0; i < MEMBERS; i++)
        cell_open_net(&p->cell.member[i]);
}

static bool go(play *p)
{
    cell *c = &p->cell;
    for (unsigned i = 0; i < MEMBERS; i++)
        open_member(p, &c->member[i]);
    for (unsigned i = 0; i < MEMBERS; i++)
        if (pthread_create(&c->member[i].thread, NULL, run, &c->member[i]) != 0)
            abort();
    uint64_t end = atom_clock_ns() + 100 * 1000000000ull;
    while (c->n_done < MEMBERS && atom_clock_ns() < end)
        usleep(10000);
    bool done = c->n_done >= MEMBERS;
    c->stop = true;
    for (unsigned i = 0; i < MEMBERS; i++)
        pthread_join(c->member[i].thread, NULL);
    for (unsigned i = 0; i < MEMBERS; i++) {
        cell_member *m = &c->member[i];
        char text[200];
        if (!done)
            printf("member %u: %s%s; applied %llu, roster %u, audits %llu (%llu open), bans %u\n",
                   i, gsp_node_explain(m->node, text, sizeof text), m->why,
                   (unsigned long long)m->applied, m->status.n_roster,
                   (unsigned long long)m->status.audits, (unsigned long long)m->status.audits_open,
                   m->status.n_bans);
        assert_false(m->failed);
        gsp_node_close(&m->node);
        gsp_net_close(&m->net);
    }
    return done;
}

static gsp_terms terms_of(const play *p)
{
    return (gsp_terms){.pool = p->cell.genesis.pool,
                       .codec = p->cell.codec,
                       .robust = p->cell.robust,
                       .n_parts = PARTS,
                       .n_fragments = 1,
                       .n_floats = &p->cell.n_floats};
}

/* Evidence in a member's directory that convicts the liar: how many files. */
static unsigned convictions(const play *p, unsigned i)
{
    char name[20];
    unsigned n = 0;
    snprintf(name, sizeof name, "member%u", i);
    const char *directory = scratch_path((scratch *)(uintptr_t)&p->cell.place, name);
    DIR *dir = opendir(directory);
    struct dirent *e;
    gsp_terms terms = terms_of(p);
    while (dir && (e = readdir(dir))) {
        char *data, *path = atom_path_join(directory, e->d_name);
        uint64_t bytes;
        gsp_finding *f = atom_alloc(1, sizeof *f);
        if (strncmp(e->d_name, "evidence-", 9) == 0) {
            test_must(atom_file_read(path, 1 << 28, &data, &bytes));
            if (gsp_evidence_is_words(data, bytes)) {
                gsp_evidence words;
                test_must(gsp_evidence_judge_words(data, bytes, &words));
                f->claim.owner = words.first.signer;
                data[30] ^= 1;
                assert_int_equal(gsp_evidence_judge_words(data, bytes, &words), ATOM_E_FORMAT);
                assert_int_equal(gsp_evidence_judge_words(data, 40, &words), ATOM_E_FORMAT);
            } else {
                test_must(gsp_evidence_judge(&terms, data, bytes, f));
                assert_int_equal(f->verdict, GSP_VERDICT_LIE);
            }
            assert_memory_equal(f->claim.owner.key.byte, p->cell.pool.member[LIAR].public_key,
                                GSP_PUBLIC_BYTES);
            atom_free(data);
            n++;
        }
        atom_free(f);
        atom_free(path);
    }
    if (dir)
        closedir(dir);
    return n;
}

static void a_liar_is_found(lie kind, gsp_codec codec, bool robust)
{
    static play p;
    open_play(&p, kind, codec, robust);
    assert_true(go(&p));
    for (unsigned i = 0; i < MEMBERS; i++) {
        const gsp_node_status *s = &p.cell.member[i].status;
        for (unsigned k = 0; k < LIAR; k++)
            assert_false(bans(s, &p.cell.pool.member[k]));
        if (i == LIAR)
            continue;
        assert_int_equal(s->false_claims, 0);
        assert_int_equal(convictions(&p, i), 1);
    }
    /* A restart does not forget it. */
    p.cell.stop = false;
    for (unsigned i = 0; i < 1; i++) {
        cell_open_net(&p.cell.member[i]);
        open_member(&p, &p.cell.member[i]);
        gsp_node_read_status(p.cell.member[i].node, &p.cell.member[i].status);
        assert_true(bans(&p.cell.member[i].status, &p.cell.pool.member[LIAR]));
        gsp_node_close(&p.cell.member[i].node);
        gsp_net_close(&p.cell.member[i].net);
    }
    cell_close(&p.cell);
}

static void one_value_off_is_found(void **unused)
{
    (void)unused;
    a_liar_is_found(ONE_VALUE, GSP_CODEC_FP32, false);
}

static void another_parts_result_is_found(void **unused)
{
    (void)unused;
    a_liar_is_found(OTHER_PART, GSP_CODEC_BF16, false);
}

static void a_wrong_norm_is_found(void **unused)
{
    (void)unused;
    a_liar_is_found(NORM, GSP_CODEC_INT8, true);
}

static void who_votes_twice_is_found(void **unused)
{
    (void)unused;
    a_liar_is_found(TWO_VOTES, GSP_CODEC_INT8, false);
}

static void nobody_honest_is_accused(void **unused)
{
    (void)unused;
    static play p;
    open_play(&p, HONEST, GSP_CODEC_INT8, true);
    assert_true(go(&p));
    for (unsigned i = 0; i < MEMBERS; i++) {
        assert_int_equal(p.cell.member[i].status.n_bans, 0);
        assert_int_equal(p.cell.member[i].status.n_roster, MEMBERS);
        assert_int_equal(convictions(&p, i), 0);
    }
    cell_close(&p.cell);
}

static void who_accuses_falsely_is_not_believed(void **unused)
{
    (void)unused;
    static play p;
    open_play(&p, ONE_VALUE, GSP_CODEC_INT8, false);
    p.accuses = true;
    assert_true(go(&p));
    /* As a proposer that has banned everybody else it may give parts to itself, whose sums are then
     * wrong in earnest: it may be banned, and nobody else. */
    for (unsigned i = 0; i < LIAR; i++)
        for (unsigned k = 0; k < LIAR; k++)
            assert_false(bans(&p.cell.member[i].status, &p.cell.pool.member[k]));
    cell_close(&p.cell);
}

/* ---- files ---- */

enum { TWO = 2, PART = 1, N_PARTS = 3 };

/* Two brought something, and the first owns the part. */
typedef struct affair {
    test_pool pool;
    gsp_genesis genesis;
    gsp_claim claim;
    gsp_terms terms;
    uint64_t n_floats;
    float x[TWO][2 * GSP_INT8_BLOCK];
    gsp_exhibit exhibit[TWO];
    scratch place;
} affair;

static void sign(affair *a)
{
    gsp_hash lineage, contributors;
    gsp_statement said;
    gsp_seals seals = gsp_seals_real(&a->pool.member[0]);
    gsp_genesis_hash(&seals, &a->genesis, &lineage);
    gsp_contributors_hash(&seals, a->claim.contributor, TWO, &contributors);
    gsp_reduced_statement(&seals, &lineage, a->claim.version, a->claim.number, &a->claim.part,
                          &contributors, &a->claim.owner, &said);
    gsp_statement_seal(&seals, &said);
    memcpy(a->claim.part.seal, said.seal, sizeof said.seal);
}

static void open_affair(affair *a)
{
    memset(a, 0, sizeof *a);
    test_pool_make(&a->pool, 7);
    scratch_open(&a->place);
    a->genesis.pool.byte[0] = 9;
    memcpy(a->genesis.founder.key.byte, a->pool.member[0].public_key, GSP_KEY_BYTES);
    a->n_floats = N_PARTS * GSP_INT8_BLOCK;
    a->terms = (gsp_terms){
        .pool = a->genesis.pool, .n_parts = N_PARTS, .n_fragments = 1, .n_floats = &a->n_floats};
    a->claim.version = 5;
    a->claim.number = PART;
    a->claim.owner = (gsp_member){.key = a->genesis.founder.key, .incarnation = 1};
    a->claim.n_contributors = TWO;
    for (uint32_t i = 0; i < TWO; i++) {
        gsp_hash leaf[N_PARTS] = {{{0}}};
        for (uint32_t k = 0; k < GSP_INT8_BLOCK; k++)
            a->x[i][k] = (float)(k % 97) * (i ? -0.5f : 0.25f);
        a->exhibit[i] = (gsp_exhibit){.data = a->x[i], .bytes = 4 * GSP_INT8_BLOCK};
        gsp_merkle_leaf(PART, a->x[i], a->exhibit[i].bytes, &leaf[PART]);
        a->exhibit[i].n_path = gsp_merkle_path(leaf, N_PARTS, PART, a->exhibit[i].path);
        a->claim.contributor[i] =
            (gsp_contributor){.member = (uint8_t)i, .tokens = 10 + i, .weight = 10 + i};
        gsp_merkle_root(leaf, N_PARTS, &a->claim.contributor[i].root);
    }
    gsp_mix mix;
    static float out[GSP_INT8_BLOCK];
    const void *input[TWO] = {a->x[0], a->x[1]};
    atom_status st;
    test_must(gsp_mix_open(&mix, GSP_CODEC_FP32, false, GSP_INT8_BLOCK));
    assert_true(__real_gsp_mix_part(&mix, PART, a->claim.contributor, TWO, input, 3, GSP_INT8_BLOCK,
                                    out, &a->claim.part, &st));
    gsp_mix_close(&mix);
    sign(a);
}

static atom_status judge(affair *a, gsp_finding *f)
{
    char *data;
    const char *path = scratch_path(&a->place, "evidence");
    uint64_t bytes;
    test_must(gsp_evidence_write(path, &a->genesis, &a->claim, a->exhibit));
    test_must(atom_file_read(path, 1 << 20, &data, &bytes));
    atom_status st = gsp_evidence_judge(&a->terms, data, bytes, f);
    atom_free(data);
    return st;
}

static void convicted(void *context, const gsp_key *key)
{
    const gsp_ban_files *bans = context;
    assert_memory_equal(bans->ban[0].key.byte, key->byte, GSP_KEY_BYTES);
}

static void evidence_is_what_the_accused_signed(void **unused)
{
    (void)unused;
    static affair a;
    static gsp_finding f;
    open_affair(&a);
    test_must(judge(&a, &f));
    assert_int_equal(f.verdict, GSP_VERDICT_RIGHT);
    a.claim.part.norm += 1;
    assert_int_equal(judge(&a, &f), ATOM_E_FORMAT); /* that is not what it signed */
    sign(&a);
    test_must(judge(&a, &f));
    assert_int_equal(f.verdict, GSP_VERDICT_LIE);
    a.terms.pool.byte[0]++;
    assert_int_equal(judge(&a, &f), ATOM_E_FORMAT);
    a.terms.pool.byte[0]--;
    a.x[1][3] += 1; /* somebody else's contribution */
    assert_int_equal(judge(&a, &f), ATOM_E_FORMAT);
    a.x[1][3] -= 1;
    a.claim.contributor[1].weight++; /* another round than the one that was signed */
    assert_int_equal(judge(&a, &f), ATOM_E_FORMAT);
    a.claim.contributor[1].weight--;
    a.terms.n_parts = 2;
    assert_int_equal(judge(&a, &f), ATOM_E_FORMAT);
    a.terms.n_parts = N_PARTS;
    a.claim.part.included = 1; /* it says it left one out: then the sum is another */
    a.claim.part.weight = 10;
    sign(&a);
    a.exhibit[1].data = NULL;
    test_must(judge(&a, &f));
    assert_int_equal(f.verdict, GSP_VERDICT_LIE);
    scratch_close(&a.place);
}

/* Signed, under the right roots, and no honest owner's word: it is refused before it is summed. */
static void evidence_beyond_belief_proves_nothing(void **unused)
{
    (void)unused;
    static affair a;
    static gsp_finding f;
    gsp_ban_files bans;
    open_affair(&a);
    a.claim.contributor[0].weight = UINT64_MAX; /* a sum that wraps */
    a.claim.contributor[1].weight = 3;
    a.claim.part.weight = 2;
    for (int robust = 0; robust < 2; robust++) {
        a.terms.robust = robust;
        sign(&a);
        assert_int_equal(judge(&a, &f), ATOM_E_FORMAT);
    }
    /* A member that starts with such a file beside a true one skips it. */
    bans = (gsp_ban_files){.directory = scratch_path(&a.place, "")};
    test_must(gsp_evidence_write(scratch_path(&a.place, "evidence-1-1-1"), &a.genesis, &a.claim,
                                 a.exhibit));
    gsp_ban_files_recall(&bans, &a.terms, convicted, &bans);
    assert_int_equal(bans.n, 0);
    a.terms.robust = false;
    a.claim.contributor[0].weight = 10, a.claim.contributor[1].weight = 11;
    a.claim.part.weight = 21, a.claim.part.norm += 1;
    sign(&a);
    test_must(gsp_evidence_write(scratch_path(&a.place, "evidence-1-1-2"), &a.genesis, &a.claim,
                                 a.exhibit));
    gsp_ban_files_recall(&bans, &a.terms, convicted, &bans);
    assert_int_equal(bans.n, 1);
    scratch_close(&a.place);
}

static void damaged_evidence_proves_nothing(void **unused)
{
    (void)unused;
    static affair a;
    static gsp_finding f;
    char *data;
    uint64_t bytes;
    open_affair(&a);
    a.claim.part.norm += 1;
    sign(&a);
    test_must(judge(&a, &f));
    test_must(atom_file_read(scratch_path(&a.place, "evidence"), 1 << 20, &data, &bytes));
    for (uint64_t at = 0; at < bytes; at += at < 1200 ? 1 : 997) {
        data[at] = (char)(data[at] ^ 4);
        assert_int_equal(gsp_evidence_judge(&a.terms, data, bytes, &f), ATOM_E_FORMAT);
        data[at] = (char)(data[at] ^ 4);
    }
    for (uint64_t n = 0; n < bytes; n += n < 1200 ? 1 : 997)
        assert_int_equal(gsp_evidence_judge(&a.terms, data, n, &f), ATOM_E_FORMAT);
    atom_free(data);
    scratch_close(&a.place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evidence_is_what_the_accused_signed),
        cmocka_unit_test(evidence_beyond_belief_proves_nothing),
        cmocka_unit_test(damaged_evidence_proves_nothing),
        cmocka_unit_test(nobody_honest_is_accused),
        cmocka_unit_test(one_value_off_is_found),
        cmocka_unit_test(another_parts_result_is_found),
        cmocka_unit_test(a_wrong_norm_is_found),
        cmocka_unit_test(who_votes_twice_is_found),
        cmocka_unit_test(who_accuses_falsely_is_not_believed),
    };
    atom_log_set_level(ATOM_LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
