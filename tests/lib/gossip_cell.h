/*
 * A cell for tests: n members, each on its own thread with its own endpoint, memory on disk and
 * floats; they join a founder, average `rounds` versions together, and stay until all are done.
 */
#ifndef TESTS_LIB_GOSSIP_CELL_H
#define TESTS_LIB_GOSSIP_CELL_H

#include "atom/base/mem.h"
#include "gossip/member/node.h"
#include "gossip/member/shares.h"
#include "gossip/net/net_sim.h"
#include "tests/lib/gossip_pool.h"
#include "tests/scratch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum { CELL_MEMBERS_MAX = 8, CELL_VERSIONS_MAX = 64 };

typedef struct cell cell;

typedef struct cell_member {
    cell *cell;
    unsigned i;
    pthread_t thread;
    gsp_net *net;
    gsp_node *node;
    float *x;                               /* the contribution */
    float *got;                             /* the last version applied */
    unsigned n_whole;                       /* versions applied with everybody's contribution */
    unsigned n_contributed;                 /* versions applied with anybody's */
    uint64_t froze;                         /* version */
    uint64_t changed_floats;                /* of the version being applied */
    uint64_t given[GSP_PARTS_MAX], n_given; /* where its parts begin */
    unsigned n_early, n_again, n_back;      /* parts before the certificate; again; taken back */
    gsp_hash result[CELL_VERSIONS_MAX];
    uint64_t applied, applied_ns;
    gsp_node_status status;
    bool dies; /* in the middle of its second round */
    atomic_bool died, failed;
    char why[200];
} cell_member;

struct cell {
    unsigned n, rounds;
    unsigned seconds; /* that it may take; 0: 100 */
    uint64_t n_floats;
    uint64_t rate; /* bytes a second that each says it has, both ways */
    gsp_codec codec;
    bool robust, drifts;
    uint32_t n_parts;
    test_pool pool;
    scratch place;
    gsp_sim_hub *hub; /* NULL: through gates on loopback */
    gsp_genesis genesis;
    gsp_rules rules;
    atomic_uint n_open, n_done;
    atomic_bool stop, enough; /* enough: what the rounds are for has been seen */
    uint16_t port[CELL_MEMBERS_MAX];
    cell_member member[CELL_MEMBERS_MAX];
    void (*check)(cell_member *m, const gsp_certificate *c);  /* before a version is applied */
    float (*value)(unsigned i, uint64_t version, uint64_t k); /* NULL: cell_value */
    void (*opened)(cell_member *m); /* its endpoint, before there is a member; may be NULL */
};

/* Float k of member i in a version: cheap, so that nobody falls silent while it makes them. */
static inline float cell_value(unsigned i, uint64_t version, uint64_t k)
{
    uint32_t x = (uint32_t)(k * 2654435761u) ^ (uint32_t)(version * 40503u + i * 977u);
    x ^= x >> 15;
    x *= 2246822519u;
    return ((float)(x >> 8) * 0x1p-24f - 0.5f) * (float)(1 + i);
}

static inline gsp_freeze cell_freeze(void *context, uint64_t version, const float **x,
                                     uint64_t *tokens, uint64_t *samples)
{
    cell_member *m = context;
    gsp_node_status s;
    gsp_node_read_status(m->node, &s);
    if (s.n_roster < m->cell->n || m->applied == version)
        return GSP_FREEZE_NOTHING;
    for (uint64_t k = 0; k < m->cell->n_floats; k++)
        m->x[k] = (m->cell->value ? m->cell->value : cell_value)(m->i, version, k);
    m->froze = version;
    *x = m->x;
    *tokens = 100 + 10 * m->i;
    *samples = 1;
    return GSP_FREEZE_READY;
}

static inline void cell_part(void *context, uint64_t version, uint64_t first, const float *x,
                             uint64_t n)
{
    cell_member *m = context;
    gsp_node_status s;
    uint64_t k = 0;
    gsp_node_read_status(m->node, &s);
    m->n_early += x && s.certified < version;
    while (n && k < m->n_given && m->given[k] != first)
        k++;
    bool again = n && k < m->n_given;
    m->n_again += again && x;
    m->n_back += !x;
    if (x)
        memcpy(m->got + first, x, n * sizeof *x);
    if (x && n && !again) {
        m->given[m->n_given++] = first;
        m->changed_floats += n;
    } else if (!x && again) {
        m->given[k] = m->given[--m->n_given];
        m->changed_floats -= n;
    }
}

static inline atom_status cell_apply(void *context, const gsp_certificate *c,
                                     const gsp_hash *result)
{
    cell_member *m = context;
    uint64_t v = c->proposal.version;
    if (m->cell->check)
        m->cell->check(m, c);
    m->result[v % CELL_VERSIONS_MAX] = *result;
    m->applied = v;
    m->applied_ns = atom_clock_ns();
    m->n_contributed += c->proposal.n_contributors > 0;
    m->n_whole += c->proposal.n_contributors == m->cell->n;
    m->changed_floats = m->n_given = 0;
    return ATOM_OK;
}

static inline void cell_open_net(cell_member *m)
{
    cell *c = m->cell;
    if (c->hub) {
        test_must(gsp_sim_net_open(c->hub, c->pool.member[m->i].public_key, &m->net));
    } else {
        gsp_net_gate_config g = {.gate.handshake = test_member(&c->pool, m->i), .gate.n_listen = 1};
        g.gate.listen[0] = test_loopback(c->port[m->i]);
        test_must(gsp_net_open_gate(&g, &m->net));
    }
    c->port[m->i] = gsp_net_port(m->net);
    if (c->opened)
        c->opened(m);
}

/* What a member of the cell is opened with, for tests that change something of it. */
static inline gsp_node_config cell_node_config(cell_member *m)
{
    cell *c = m->cell;
    char name[20];
    snprintf(name, sizeof name, "member%u", m->i);
    return (gsp_node_config){
        .net = m->net,
        .identity = &c->pool.member[m->i],
        .directory = scratch_path(&c->place, name),
        .rules = c->rules,
        .rates = {c->rate, c->rate, true},
        .genesis = c->genesis,
        .n_fragments = 1,
        .n_floats = {c->n_floats},
        .codec = c->codec,
        .robust = c->robust,
        .drifts = c->drifts,
        .work = {.context = m,
                 .freeze = cell_freeze,
                 .part = cell_part,
                 .early = true,
                 .apply = cell_apply},
    };
}

static inline void cell_open_node(cell_member *m)
{
    gsp_node_config config = cell_node_config(m);
    test_must(gsp_node_open(&config, &m->node));
}

/* Brings something new to each version, once the member is not alone; for work that is not early. */
static inline gsp_freeze cell_freeze_in_company(void *context, uint64_t version, const float **x,
                                                uint64_t *tokens, uint64_t *samples)
{
    cell_member *m = context;
    if (m->status.n_roster < 2 || !m->status.is_member)
        return GSP_FREEZE_NOTHING;
    for (uint64_t k = 0; k < m->cell->n_floats; k++)
        m->x[k] = cell_value(m->i, version, k);
    *x = m->x;
    *tokens = 100 + 10 * m->i;
    *samples = 1;
    return GSP_FREEZE_READY;
}

/* The same member with such work. */
static inline gsp_node_config cell_company_config(cell_member *m, bool reduces)
{
    gsp_node_config config = cell_node_config(m);
    config.rates = (gsp_rates){1000000, 1000000, reduces};
    config.work.freeze = cell_freeze_in_company;
    config.work.early = false;
    return config;
}

static inline void cell_dial(cell_member *m)
{
    for (unsigned j = 0; j < m->cell->n; j++) {
        gsp_address at = test_loopback(m->cell->port[j]);
        if (j != m->i)
            test_must(gsp_net_dial(m->net, m->cell->pool.member[j].public_key, &at, 1));
    }
}

static inline void *cell_run(void *context)
{
    cell_member *m = context;
    cell *c = m->cell;
    unsigned turns = 0;
    bool done = false;
    cell_dial(m);
    while (!c->stop) {
        bool wants = m->n_contributed < (c->enough ? 1 : c->rounds);
        /* Joiners must have caught up with a version before the next is made. */
        bool joined = m->status.n_roster == c->n ||
                      atom_clock_ns() - m->applied_ns > 5 * c->rules.heartbeat_ns;
        gsp_node_report(m->node, wants && joined ? c->n : 0, 0);
        if (gsp_node_turn(m->node, 20000000) != ATOM_OK) {
            snprintf(m->why, sizeof m->why, "%s", atom_fail_message());
            m->failed = true;
            break;
        }
        gsp_node_read_status(m->node, &m->status);
        turns += m->n_contributed == 1 && m->froze > m->applied;
        if (m->dies && turns > 8) { /* as kill -9 would: no goodbye */
            gsp_node_close(&m->node);
            gsp_net_close(&m->net);
            m->died = true;
            return NULL;
        }
        if (!wants && !done) {
            done = true;
            c->n_done++;
        }
    }
    return NULL;
}

static inline void cell_make(cell *c, unsigned n, gsp_codec codec, uint64_t n_floats,
                             uint32_t n_parts, unsigned rounds)
{
    memset(c, 0, sizeof *c);
    c->n = n;
    c->rounds = rounds;
    c->codec = codec;
    c->n_floats = n_floats;
    c->rate = 100000000;
    test_pool_make(&c->pool, 7);
    scratch_open(&c->place);
    memcpy(c->genesis.founder.key.byte, c->pool.member[0].public_key, GSP_KEY_BYTES);
    c->genesis.founder.incarnation = 1;
    gsp_agree_defaults(&c->rules);
    c->rules.samples_due = n;
    c->rules.time_due_ns = 3600 * 1000000000ull;
    c->rules.heartbeat_ns = 50000000;
    c->rules.dead_ns = 20 * 1000000000ull; /* a busy machine is not a dead one */
    c->rules.round_ns = c->rules.round_min_ns = 120 * 1000000000ull;
    c->rules.n_parts = n_parts;
    c->rules.assign = gsp_shares_assign;
    for (unsigned i = 0; i < n; i++) {
        c->member[i].cell = c;
        c->member[i].i = i;
        c->member[i].x = atom_alloc(n_floats, sizeof(float));
        c->member[i].got = atom_alloc(n_floats, sizeof(float));
        if (!c->member[i].x || !c->member[i].got)
            abort();
    }
}

/* Opens all, then runs them; false: not done in time. */
static inline bool cell_go(cell *c)
{
    for (unsigned i = 0; i < c->n; i++)
        cell_open_net(&c->member[i]);
    unsigned living = 0;
    for (unsigned i = 0; i < c->n; i++) {
        cell_open_node(&c->member[i]);
        living += !c->member[i].dies;
    }
    for (unsigned i = 0; i < c->n; i++)
        if (pthread_create(&c->member[i].thread, NULL, cell_run, &c->member[i]) != 0)
            abort();
    uint64_t end = atom_clock_ns() + (c->seconds ? c->seconds : 100) * 1000000000ull;
    while (c->n_done < living && atom_clock_ns() < end)
        usleep(10000);
    bool done = c->n_done >= living;
    c->stop = true;
    for (unsigned i = 0; i < c->n; i++)
        pthread_join(c->member[i].thread, NULL);
    for (unsigned i = 0; i < c->n; i++) {
        char text[200];
        if (!done && c->member[i].node)
            printf("member %u: %s%s; contributed %u, applied %llu, certified %llu, links %u, "
                   "refused %llu, pulled %llu\n",
                   i, gsp_node_explain(c->member[i].node, text, sizeof text), c->member[i].why,
                   c->member[i].n_contributed, (unsigned long long)c->member[i].applied,
                   (unsigned long long)c->member[i].status.certified, c->member[i].status.n_links,
                   (unsigned long long)c->member[i].status.refused,
                   (unsigned long long)c->member[i].status.pulled);
        gsp_node_close(&c->member[i].node);
        gsp_net_close(&c->member[i].net);
    }
    return done;
}

static inline void cell_close(cell *c)
{
    for (unsigned i = 0; i < c->n; i++) {
        atom_free(c->member[i].x);
        atom_free(c->member[i].got);
    }
    gsp_sim_hub_close(&c->hub);
    scratch_close(&c->place);
}

#endif
