/*
 * Members that sum falsely and keep back what would prove it, for real: one of four friends, and two of
 * seven strangers who give their contributions to each other only, never name each other, and name an
 * honest member instead. Nobody can show what they did, and they are off the roster all the same, within
 * a number of versions; everybody honest stays. What is wrapped says the linker (tests/CMakeLists.txt).
 */
#include "gossip/agree/agree_inner.h"
#include "gossip/member/node_inner.h"
#include "gossip/sum/mix.h"
#include "tests/lib/gossip_cell.h"

#include <dirent.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

__typeof__(gsp_mix_part) __real_gsp_mix_part, __wrap_gsp_mix_part;
__typeof__(gsp_friends_send_exhibit) __real_gsp_friends_send_exhibit,
    __wrap_gsp_friends_send_exhibit;
__typeof__(gsp_withheld_bits) __real_gsp_withheld_bits, __wrap_gsp_withheld_bits;

enum { PARTS = 14, FLOATS = 40000, VERSIONS_MAX = 30, VICTIM = 0 };
static const uint64_t PACE_NS = 800000000; /* who keeps something back gets the time to give it */

/* The liars are the last ones. */
static struct {
    cell cell;
    unsigned n, n_liars;
    _Atomic(uint64_t) from, out; /* the first version with all of them; with none of them */
} play;

static _Thread_local bool lies;

static unsigned n_honest(void)
{
    return play.n - play.n_liars;
}

static bool is_liar(const gsp_key *key)
{
    for (unsigned i = n_honest(); i < play.n; i++)
        if (memcmp(play.cell.pool.member[i].public_key, key->byte, sizeof key->byte) == 0)
            return true;
    return false;
}

bool __wrap_gsp_mix_part(gsp_mix *mix, uint32_t number, const gsp_contributor *contributor,
                         uint32_t n_contributors, const void *const *input, uint32_t included,
                         uint64_t n, void *out, gsp_part *part, atom_status *status)
{
    uint64_t bytes = gsp_codec_bytes(mix->codec, n);
    if (!__real_gsp_mix_part(mix, number, contributor, n_contributors, input, included, n, out,
                             part, status))
        return false;
    if (lies && n) {
        ((uint8_t *)out)[bytes - 1] ^= 1;
        gsp_merkle_leaf(number, out, bytes, &part->hash);
    }
    return true;
}

bool __wrap_gsp_friends_send_exhibit(gsp_friend *to, uint64_t version, uint32_t part,
                                     const gsp_hash *root)
{
    bool gives = !lies || (to && is_liar(&to->key));
    return gives && __real_gsp_friends_send_exhibit(to, version, part, root);
}

/* A liar names the victim, and nobody else. */
uint32_t __wrap_gsp_withheld_bits(gsp_agree *a)
{
    gsp_key victim;
    if (!lies)
        return __real_gsp_withheld_bits(a);
    memcpy(victim.byte, play.cell.pool.member[VICTIM].public_key, sizeof victim.byte);
    uint32_t at = gsp_roster_find_key(gsp_agree_roster(a), &victim);
    return at == GSP_NOBODY ? 0 : 1u << at;
}

/* ---- members ---- */

static void open_member(cell_member *m)
{
    gsp_node_config config = cell_company_config(m, true);
    if (m->i >= n_honest())
        config.rules.audit_percent = 0; /* it would find everybody honest wrong */
    test_must(gsp_node_open(&config, &m->node));
}

static unsigned n_liars_on(const gsp_roster *roster)
{
    unsigned n = 0;
    for (uint32_t i = 0; i < roster->n; i++)
        n += is_liar(&roster->member[i].key);
    return n;
}

static void *run(void *context)
{
    cell_member *m = context;
    bool counted = false;
    bool liar = m->i >= n_honest();
    cell_dial(m);
    while (!play.cell.stop) {
        lies = liar && play.from; /* while there are fewer, two are too many */
        bool due = atom_clock_ns() - m->applied_ns > PACE_NS;
        gsp_node_report(m->node, due ? play.n : 0, 0);
        if (gsp_node_turn(m->node, 20000000) != ATOM_OK) {
            snprintf(m->why, sizeof m->why, "%s", atom_fail_message());
            m->failed = true;
            break;
        }
        gsp_node_read_status(m->node, &m->status);
        unsigned on = n_liars_on(gsp_agree_roster(&m->node->agree));
        if (m->i == VICTIM && m->status.n_roster == play.n && !play.from)
            play.from = m->status.certified + 1;
        if (m->i == VICTIM && play.from && on == 0 && !play.out)
            play.out = m->status.certified;
        if (!counted && (liar || (play.from && on == 0))) {
            counted = true;
            play.cell.n_done++;
        }
    }
    return NULL;
}

static unsigned n_evidence(unsigned i)
{
    char name[20];
    unsigned n = 0;
    snprintf(name, sizeof name, "member%u", i);
    DIR *dir = opendir(scratch_path(&play.cell.place, name));
    for (struct dirent *e; dir && (e = readdir(dir));)
        n += strncmp(e->d_name, "evidence-", 9) == 0;
    if (dir)
        closedir(dir);
    return n;
}

static void open_play(unsigned n, unsigned n_liars, gsp_trust trust)
{
    cell *c = &play.cell;
    memset(&play, 0, sizeof play);
    cell_make(c, n, GSP_CODEC_INT8, FLOATS, PARTS, 0);
    c->robust = trust == GSP_STRANGERS;
    c->rules.trust = trust;
    c->rules.dead_ns = c->rules.round_min_ns = 1000000000;
    c->rules.round_ns = 4000000000;
    c->rules.audit_percent = 75;
    play.n = n;
    play.n_liars = n_liars;
    test_must(gsp_sim_hub_open(&c->hub));
    for (unsigned i = 0; i < n; i++)
        cell_open_net(&c->member[i]);
    for (unsigned i = 0; i < n; i++)
        open_member(&c->member[i]);
}

static bool go(void)
{
    cell *c = &play.cell;
    for (unsigned i = 0; i < play.n; i++)
        if (pthread_create(&c->member[i].thread, NULL, run, &c->member[i]) != 0)
            abort();
    uint64_t end = atom_clock_ns() + 100 * 1000000000ull;
    while (c->n_done < play.n && atom_clock_ns() < end)
        usleep(10000);
    bool done = c->n_done >= play.n;
    c->stop = true;
    for (unsigned i = 0; i < play.n; i++)
        pthread_join(c->member[i].thread, NULL);
    for (unsigned i = 0; i < play.n; i++) {
        cell_member *m = &c->member[i];
        char text[200];
        if (!done)
            printf("member %u: %s%s; applied %llu, roster %u, bans %u\n", i,
                   gsp_node_explain(m->node, text, sizeof text), m->why,
                   (unsigned long long)m->applied, m->status.n_roster, m->status.n_bans);
        gsp_node_close(&m->node);
        gsp_net_close(&m->net);
    }
    return done;
}

static void they_are_out(unsigned n, unsigned n_liars, gsp_trust trust)
{
    open_play(n, n_liars, trust);
    assert_true(go());
    assert_in_range(play.out, play.from, play.from + VERSIONS_MAX);
    for (unsigned i = 0; i < n_honest(); i++) {
        const cell_member *m = &play.cell.member[i];
        assert_false(m->failed);
        assert_true(m->status.is_member);
        assert_int_equal(m->status.n_roster, n_honest());
        assert_int_equal(m->status.n_bans, 0); /* there is nothing to show */
        assert_int_equal(n_evidence(i), 0);
    }
    print_message("%u of %u are out after %llu versions\n", n_liars, n,
                  (unsigned long long)(play.out - play.from));
    cell_close(&play.cell);
}

static void one_of_four_friends(void **unused)
{
    (void)unused;
    they_are_out(4, 1, GSP_FRIENDS);
}

static void two_of_seven_strangers_that_collude(void **unused)
{
    (void)unused;
    they_are_out(7, 2, GSP_STRANGERS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_four_friends),
        cmocka_unit_test(two_of_seven_strangers_that_collude),
    };
    atom_log_set_level(ATOM_LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
