/*
 * Members with a state, for tests of who comes late: up to five hosts in one thread, over links that
 * are simulated, which average a few floats of each fragment and keep anchor and momentum.
 */
#ifndef TESTS_LIB_GOSSIP_JOINING_H
#define TESTS_LIB_GOSSIP_JOINING_H

#include "gossip/member/node.h"
#include "gossip/member/shares.h"
#include "gossip/net/net_sim.h"
#include "tests/lib/gossip_pool.h"
#include "tests/scratch.h"

#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* A version averages every STEP-th float of its fragment, so that all chunks of the state change
 * and little is computed. */
enum { HOSTS = 5, FRAGMENTS = 3, FLOATS = 350003, STEP = 16, AVERAGED = FLOATS / STEP };
/* Between rounds: where nobody waits for anything; where who comes gets no further. */
static const uint64_t QUICK_NS = 1000000, PATIENCE_NS = 3000000000u;

typedef enum lie { HONEST, WRONG_BYTES, WRONG_ROOTS } lie;

typedef struct host {
    unsigned i;
    gsp_net *net;
    gsp_node *node;
    /* Anchor, then momentum, of every fragment; what is on its way in. */
    float *state[FRAGMENTS], *coming[FRAGMENTS];
    uint64_t written[FRAGMENTS], applied;
    float *x, *mean;
    unsigned later, n_adopted;
    bool holds, pauses;
    lie lie;
    gsp_node_status status;
    uint64_t n_read;
} host;

static test_pool pool;
/* Of hosts that are opened from now on. 0: an hour, a minute. */
static uint64_t fork_ns, round_ns;
static scratch place;
static gsp_sim_hub *hub;
static gsp_genesis genesis;
static host hosts[HOSTS];
static uint64_t pause_ns;

static inline gsp_freeze freeze(void *context, uint64_t version, const float **x, uint64_t *tokens,
                                uint64_t *samples)
{
    host *h = context;
    if (h->later++ % 3 != 2)
        return GSP_FREEZE_LATER;
    uint32_t word = (uint32_t)version * 2654435761u + h->i;
    for (uint64_t k = 0; k < AVERAGED; k++) {
        word = word * 1664525u + 1013904223u;
        h->x[k] = (float)(word >> 8) * 0x1p-24f - 0.5f;
    }
    *x = h->x;
    *tokens = 100 + h->i;
    *samples = 1;
    return GSP_FREEZE_READY;
}

static inline void part(void *context, uint64_t version, uint64_t first, const float *x, uint64_t n)
{
    host *h = context;
    (void)version;
    memcpy(h->mean + first, x, n * sizeof *x);
}

static inline atom_status apply(void *context, const gsp_certificate *c, const gsp_hash *result)
{
    host *h = context;
    float *anchor = h->state[c->proposal.version % FRAGMENTS], *momentum = anchor + FLOATS;
    (void)result;
    for (uint64_t k = 0; k < AVERAGED && c->proposal.n_contributors; k++) {
        momentum[k * STEP] = 0.5f * momentum[k * STEP] + h->mean[k];
        anchor[k * STEP] -= 0.25f * momentum[k * STEP];
    }
    memset(h->mean, 0, AVERAGED * sizeof *h->mean);
    h->applied = c->proposal.version;
    return ATOM_OK;
}

static inline atom_status state_read(void *context, uint32_t f, uint64_t first, uint64_t n,
                                     float *out)
{
    host *h = context;
    memcpy(out, h->state[f] + first, n * sizeof *out);
    h->n_read++;
    if (h->lie == WRONG_ROOTS) /* from the start: hashes and bytes agree */
        out[0] += 1.0f;
    if (h->lie == WRONG_BYTES && h->n_read > 18) /* after all was hashed */
        out[n / 2] += 1.0f;
    return ATOM_OK;
}

static inline atom_status state_write(void *context, uint32_t f, uint64_t version, uint64_t first,
                                      uint64_t n, const float *x)
{
    host *h = context;
    (void)version;
    assert_true(first + n <= 2 * FLOATS);
    h->written[f] = first == 0 ? 0 : h->written[f];
    assert_int_equal(h->written[f], first); /* in order */
    memcpy(h->coming[f] + first, x, n * sizeof *x);
    h->written[f] += n;
    return ATOM_OK;
}

static inline atom_status state_adopt(void *context, const gsp_saved *saved)
{
    host *h = context;
    for (unsigned f = 0; f < FRAGMENTS; f++) {
        assert_int_equal(h->written[f], 2 * FLOATS);
        memcpy(h->state[f], h->coming[f], 2 * FLOATS * sizeof(float));
        h->written[f] = 0;
    }
    h->applied = saved->has_certificate ? saved->certificate.proposal.version : 0;
    h->n_adopted++;
    return ATOM_OK;
}

static inline gsp_rules rules_of_test(void)
{
    gsp_rules r;
    gsp_agree_defaults(&r);
    r.samples_due = 1;
    r.time_due_ns = 3600 * 1000000000ull;
    r.heartbeat_ns = 20000000;
    r.dead_ns = 5 * 1000000000ull;
    r.round_ns = r.round_min_ns = round_ns ? round_ns : 60 * 1000000000ull;
    r.n_parts = 4;
    r.assign = gsp_shares_assign;
    r.silent_rounds = 3;
    r.fork_ns = fork_ns ? fork_ns : r.fork_ns;
    memcpy(r.owner.byte, pool.member[0].public_key, sizeof r.owner.byte);
    return r;
}

static inline void host_open(host *h)
{
    char name[20];
    snprintf(name, sizeof name, "host%u", h->i);
    test_must(gsp_sim_net_open(hub, pool.member[h->i].public_key, &h->net));
    gsp_node_config c = {
        .net = h->net,
        .identity = &pool.member[h->i],
        .directory = scratch_path(&place, name),
        .rules = rules_of_test(),
        .rates = {1000000, 1000000, true},
        .genesis = genesis,
        .holds_genesis = h->holds,
        .n_fragments = FRAGMENTS,
        .codec = GSP_CODEC_FP32,
        .work = {.context = h,
                 .freeze = freeze,
                 .part = part,
                 .apply = apply,
                 .state_read = state_read,
                 .state_write = state_write,
                 .state_adopt = state_adopt},
    };
    for (unsigned f = 0; f < FRAGMENTS; f++) {
        c.n_floats[f] = AVERAGED;
        c.work.n_state[f] = 2 * FLOATS;
    }
    test_must(gsp_node_open(&c, &h->node));
    for (unsigned j = 0; j < HOSTS; j++) {
        gsp_address at = {0};
        at = test_loopback(hosts[j].net ? gsp_net_port(hosts[j].net) : 1);
        if (j != h->i && hosts[j].net)
            test_must(gsp_net_dial(h->net, pool.member[j].public_key, &at, 1));
    }
}

static inline void host_close(host *h)
{
    gsp_node_close(&h->node);
    gsp_net_close(&h->net);
}

static inline void pool_open(void)
{
    test_pool_make(&pool, 9);
    scratch_open(&place);
    test_must(gsp_sim_hub_open(&hub));
    memset(hosts, 0, sizeof hosts);
    memset(&genesis, 0, sizeof genesis);
    memcpy(genesis.founder.key.byte, pool.member[0].public_key, GSP_KEY_BYTES);
    genesis.founder.incarnation = 1;
    pause_ns = 50000000;
    for (unsigned i = 0; i < HOSTS; i++) {
        host *h = &hosts[i];
        h->i = i;
        h->x = atom_alloc(AVERAGED, sizeof(float));
        h->mean = atom_alloc(AVERAGED, sizeof(float));
        assert_true(h->x && h->mean);
        for (unsigned f = 0; f < FRAGMENTS; f++) {
            h->state[f] = atom_alloc(2 * FLOATS, sizeof(float));
            h->coming[f] = atom_alloc(2 * FLOATS, sizeof(float));
            assert_true(h->state[f] && h->coming[f]);
        }
    }
    for (unsigned f = 0; f < FRAGMENTS; f++) /* only the founder knows where the pool begins */
        for (uint64_t k = 0; k < FLOATS; k++)
            hosts[0].state[f][k] = (float)(k % 97) * 0.125f + (float)f;
    hosts[0].holds = true;
}

static inline void pool_close(void)
{
    for (unsigned i = 0; i < HOSTS; i++) {
        host *h = &hosts[i];
        host_close(h);
        atom_free(h->x);
        atom_free(h->mean);
        for (unsigned f = 0; f < FRAGMENTS; f++) {
            atom_free(h->state[f]);
            atom_free(h->coming[f]);
        }
    }
    gsp_sim_hub_close(&hub);
    scratch_close(&place);
}

static unsigned want_members;
static uint64_t want_version;

/* A next round may begin. At once, while nobody comes; who does needs versions that the others
 * still keep, so these are as many as the state comes in parts, however slow the machine is. */
static inline bool round_due(uint64_t newest, uint64_t since_ns, const uint64_t had[HOSTS])
{
    unsigned n_here = 0, n_in = HOSTS, coming = 0, behind = 0;
    for (unsigned i = 0; i < HOSTS; i++) {
        const host *h = &hosts[i];
        if (!h->node || h->pauses) {
            coming += h->pauses;
            continue;
        }
        const gsp_node_status *s = &h->status;
        n_here++;
        n_in = s->n_roster < n_in ? s->n_roster : n_in;
        coming += s->state_all_bytes > 0;
        behind += s->state_bytes < had[i] + s->state_all_bytes / 4;
    }
    if (n_in < n_here || coming)
        return since_ns >= (behind ? PATIENCE_NS : n_in < n_here ? 4 * pause_ns : pause_ns);
    return since_ns >= (newest + 1 < want_version ? QUICK_NS : pause_ns);
}

/* Everybody takes turns until `done` says so; false: it took too long. Rounds begin while `go`. */
static inline bool run(bool go, bool (*done)(void))
{
    uint64_t end = atom_clock_ns() + 60 * 1000000000ull, last_ns = atom_clock_ns(), last = 0;
    uint64_t had[HOSTS] = {0};
    while (atom_clock_ns() < end) {
        bool idle = true;
        uint64_t newest = 0;
        for (unsigned i = 0; i < HOSTS; i++)
            newest = hosts[i].applied > newest ? hosts[i].applied : newest;
        for (unsigned i = 0; i < HOSTS && newest != last; i++)
            had[i] = hosts[i].status.state_bytes;
        if (newest != last)
            last_ns = atom_clock_ns();
        last = newest;
        bool due = go && round_due(newest, atom_clock_ns() - last_ns, had);
        for (unsigned i = 0; i < HOSTS; i++) {
            host *h = &hosts[i];
            if (!h->node || h->pauses)
                continue;
            gsp_node_report(h->node, due ? 1 : 0, 0);
            test_must(gsp_node_turn(h->node, 0));
            gsp_node_read_status(h->node, &h->status);
            idle &= !h->status.state_all_bytes;
        }
        if (done())
            return true;
        if (idle)
            usleep(100);
    }
    for (unsigned i = 0; i < HOSTS; i++) {
        char text[200];
        if (hosts[i].node)
            print_message("host %u: %s; applied %llu, adopted %u, wrong %llu\n", i,
                          gsp_node_explain(hosts[i].node, text, sizeof text),
                          (unsigned long long)hosts[i].applied, hosts[i].n_adopted,
                          (unsigned long long)hosts[i].status.state_wrong);
    }
    return false;
}

/* That many are on the roster of everybody who is there, and the version is applied by all. */
static inline bool all_there(void)
{
    for (unsigned i = 0; i < HOSTS; i++) {
        const host *h = &hosts[i];
        if (h->node && !h->pauses &&
            (h->status.n_roster != want_members || !h->status.is_member ||
             h->status.applied < want_version))
            return false;
    }
    return true;
}

static inline void until(unsigned n_members, uint64_t version)
{
    want_members = n_members;
    want_version = version;
    if (!run(true, all_there))
        fail_msg("not in time");
}

static inline bool all_at_rest(void)
{
    uint64_t version = 0;
    for (unsigned i = 0; i < HOSTS; i++)
        if (hosts[i].node && !hosts[i].pauses) {
            if (hosts[i].status.applied == 0 ||
                hosts[i].status.applied != hosts[i].status.certified ||
                (version && hosts[i].status.applied != version))
                return false;
            version = hosts[i].status.applied;
        }
    return true;
}

/* All that are there have the same version and the same bits. */
static inline void assert_equal_states(void)
{
    const host *first = NULL;
    assert_true(run(false, all_at_rest));
    for (unsigned i = 0; i < HOSTS; i++) {
        const host *h = &hosts[i];
        if (!h->node || h->pauses)
            continue;
        first = first ? first : h;
        for (unsigned f = 0; f < FRAGMENTS; f++)
            assert_memory_equal(h->state[f], first->state[f], 2 * FLOATS * sizeof(float));
    }
}

/* Three members, further than anybody keeps results for. */
static inline void three_go_ahead(void)
{
    pool_open();
    for (unsigned i = 0; i < 3; i++)
        host_open(&hosts[i]);
    until(3, GSP_REPLAY_MAX + 6);
}

#endif
