/*
 * A member of a cell in a process of its own, for faults that only processes have: real gate, real
 * disk, real clock (member.h). One idea: it says every version that it applied, with the hashes of
 * certificate and result, at once, so that whoever watches can compare members at any moment. It
 * makes up its floats; a state it has only where STATE_FLOATS says how many there are of every one
 * of eight fragments. Refuses to end by itself before its time is over.
 *
 *   net_member ME ADDRESS:PORT DIR SECONDS FLOATS PARTS PAUSE_MS HEARTBEAT_MS NUMBER@ADDRESS:PORT..
 *
 * Rounds follow each other with a pause, a longer one while somebody is missing on the roster.
 * Prints a line of JSON per version applied, one at the start, one a second where no version is
 * applied for two, and one at the end. Member 0 founds
 * the cell.
 */
#include "atom/base/hash.h"
#include "atom/base/machine.h"
#include "atom/base/mem.h"
#include "gossip/agree/signed.h"
#include "gossip/member/node.h"
#include "gossip/member/shares.h"
#include "gossip/trust/seals.h"
#include "tests/lib/gossip_pool.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>

enum { FRAGMENTS = 8 };

typedef struct member {
    unsigned me;
    test_pool pool;
    gsp_seals seals;
    gsp_net *net;
    gsp_node *node;
    float *x;
    uint64_t n_floats, applied, applied_ns, froze;
    uint32_t n_fragments;
    uint64_t n_state, asked_ns;
    float *state[FRAGMENTS], *coming[FRAGMENTS];
} member;

static volatile sig_atomic_t ending;

static void on_term(int signal_number)
{
    (void)signal_number;
    ending = 1;
}

static void hex(const gsp_hash *hash, char out[33])
{
    for (int i = 0; i < 16; i++)
        snprintf(out + 2 * i, 3, "%02x", hash->byte[i]);
}

static gsp_freeze freeze(void *context, uint64_t version, const float **x, uint64_t *tokens,
                         uint64_t *samples)
{
    member *m = context;
    uint64_t word = version * 0x9e3779b97f4a7c15u + m->me;
    for (uint64_t k = 0; k < m->n_floats; k++) {
        word = word * 6364136223846793005u + 1442695040888963407u;
        m->x[k] = (float)(word >> 40) * 0x1p-24f - 0.5f;
    }
    *x = m->x;
    *tokens = 100 + m->me;
    *samples = 1;
    m->froze = version;
    printf("{\"froze\":%llu,\"ns\":%llu}\n", (unsigned long long)version,
           (unsigned long long)atom_clock_ns());
    return GSP_FREEZE_READY;
}

static void part(void *context, uint64_t version, uint64_t first, const float *x, uint64_t n)
{
    (void)context, (void)version, (void)first, (void)x, (void)n;
}

static atom_status apply(void *context, const gsp_certificate *c, const gsp_hash *result)
{
    member *m = context;
    gsp_hash proposal;
    char of_proposal[33], of_result[33], of_lineage[33];
    gsp_proposal_hash(&m->seals, &c->proposal, &proposal);
    hex(&proposal, of_proposal);
    hex(result, of_result);
    hex(&c->proposal.lineage, of_lineage);
    m->applied = c->proposal.version;
    m->applied_ns = atom_clock_ns();
    float *changed = m->state[m->applied % m->n_fragments];
    for (uint64_t k = 0; k < m->n_state; k++)
        changed[k] = 0.5f * changed[k] + (float)(k % 1021 + result->byte[k % 32]);
    printf("{\"version\":%llu,\"lineage\":\"%s\",\"certificate\":\"%s\",\"result\":\"%s\","
           "\"contributors\":%u,\"roster\":%u,\"ns\":%llu}\n",
           (unsigned long long)m->applied, of_lineage, of_proposal, of_result,
           c->proposal.n_contributors, c->proposal.next.n, (unsigned long long)m->applied_ns);
    return ATOM_OK;
}

static atom_status state_read(void *context, uint32_t f, uint64_t first, uint64_t n, float *out)
{
    member *m = context;
    memcpy(out, m->state[f] + first, n * sizeof *out);
    return ATOM_OK;
}

static atom_status state_write(void *context, uint32_t f, uint64_t version, uint64_t first,
                               uint64_t n, const float *x)
{
    member *m = context;
    (void)version;
    memcpy(m->coming[f] + first, x, n * sizeof *x);
    return ATOM_OK;
}

/* The state, version and time of what was adopted, for who watches. */
static atom_status state_adopt(void *context, const gsp_saved *saved)
{
    member *m = context;
    for (uint32_t f = 0; f < m->n_fragments; f++) {
        float *was = m->state[f];
        m->state[f] = m->coming[f];
        m->coming[f] = was;
    }
    m->applied = saved->has_certificate ? saved->certificate.proposal.version : 0;
    m->applied_ns = atom_clock_ns();
    printf("{\"adopted\":%llu,\"ns\":%llu}\n", (unsigned long long)m->applied,
           (unsigned long long)m->applied_ns);
    return ATOM_OK;
}

/* What it sums up to, so that members can be compared. */
static uint64_t state_sum(const member *m)
{
    uint64_t sum = 0;
    for (uint32_t f = 0; f < m->n_fragments && m->n_state; f++)
        sum ^= atom_hash(ATOM_HASH_SEED + f, m->state[f], m->n_state * sizeof(float));
    return sum;
}

static void open_state(member *m, gsp_node_config *c)
{
    c->work.state_read = state_read;
    c->work.state_write = state_write;
    c->work.state_adopt = state_adopt;
    c->holds_genesis = m->me == 0;
    c->n_fragments = m->n_fragments = FRAGMENTS;
    for (uint32_t f = 0; f < FRAGMENTS; f++) {
        c->n_floats[f] = m->n_floats;
        c->work.n_state[f] = m->n_state;
        m->state[f] = atom_alloc(m->n_state, sizeof(float));
        m->coming[f] = atom_alloc(m->n_state, sizeof(float));
        for (uint64_t k = 0; k < m->n_state; k++)
            m->state[f][k] = m->me == 0 ? (float)(k + f) : 0.0f;
    }
}

static unsigned open_files(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

static void state(const member *m, const char *when)
{
    gsp_node_status s;
    char text[200];
    gsp_node_read_status(m->node, &s);
    for (char *c = (char *)gsp_node_explain(m->node, text, sizeof text); *c; c++)
        *c = *c == '"' || *c == '\\' ? '\'' : *c;
    printf("{\"%s\":true,\"ns\":%llu,\"applied\":%llu,\"roster\":%u,\"links\":%u,\"refused\":%llu,"
           "\"pulled\":%llu,\"sent_bytes\":%llu,\"kept_bytes\":%llu,\"sum\":\"%llx\","
           "\"files\":%u,\"live_bytes\":%llu,\"rss_bytes\":%llu,\"why\":\"%s\"}\n",
           when, (unsigned long long)atom_clock_ns(), (unsigned long long)s.applied, s.n_roster,
           s.n_links, (unsigned long long)s.refused, (unsigned long long)s.pulled,
           (unsigned long long)s.state_sent_bytes, (unsigned long long)s.state_kept_bytes,
           (unsigned long long)state_sum(m), open_files(),
           (unsigned long long)atom_mem_read().live_bytes, (unsigned long long)atom_vm_peak_bytes(),
           text);
}

static void open_member(member *m, char **argv)
{
    gsp_net_gate_config g = {.gate.handshake = test_member(&m->pool, m->me), .gate.n_listen = 1};
    g.gate.listen[0] = test_address(argv[2]);
    test_must(gsp_net_open_gate(&g, &m->net));
    gsp_node_config c = {
        .net = m->net,
        .identity = &m->pool.member[m->me],
        .directory = argv[3],
        .rates = {12500000, 12500000, true},
        .n_fragments = 1,
        .n_floats = {m->n_floats},
        .codec = GSP_CODEC_FP32,
        .work = {.context = m, .freeze = freeze, .part = part, .early = true, .apply = apply},
    };
    const char *n_state = getenv("STATE_FLOATS");
    m->n_fragments = 1;
    m->n_state = n_state ? (uint64_t)atoll(n_state) : 0;
    if (m->n_state)
        open_state(m, &c);
    memcpy(c.genesis.founder.key.byte, m->pool.member[0].public_key, GSP_KEY_BYTES);
    c.genesis.founder.incarnation = 1;
    gsp_agree_defaults(&c.rules);
    c.rules.samples_due = 1;
    c.rules.n_parts = (uint32_t)atoi(argv[6]);
    c.rules.assign = gsp_shares_assign;
    c.rules.heartbeat_ns = (uint64_t)atoll(argv[8]) * 1000000u;
    c.rules.dead_ns = 4 * c.rules.heartbeat_ns; /* the defaults' proportions */
    c.rules.round_min_ns = 4 * c.rules.heartbeat_ns;
    c.rules.round_ns = 20 * c.rules.heartbeat_ns;
    m->seals = gsp_seals_real(&m->pool.member[m->me]);
    test_must(gsp_node_open(&c, &m->node));
}

/* Should the next round begin? Who joins or comes back needs versions that the others still keep,
 * so there is no hurry while somebody is missing, least of all before the first round. */
static uint64_t due(const member *m, uint32_t n, uint64_t pause_ns, uint64_t heartbeat_ns)
{
    gsp_node_status s;
    gsp_node_read_status(m->node, &s);
    if (m->n_state == 0 && s.applied == 0 && s.n_links < n - 1)
        return 0;
    uint64_t pause = s.n_roster < n ? 5 * heartbeat_ns : pause_ns;
    return atom_clock_ns() - m->applied_ns > pause;
}

int main(int argc, char **argv)
{
    static member m;
    if (argc < 10) {
        fprintf(stderr, "see the top of net/member.c\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGTERM, on_term);
    test_pool_make(&m.pool, 7);
    m.me = (unsigned)atoi(argv[1]);
    m.n_floats = (uint64_t)atoll(argv[5]);
    m.x = atom_alloc(m.n_floats, sizeof *m.x);
    uint64_t pause_ns = (uint64_t)atoll(argv[7]) * 1000000u;
    uint64_t heartbeat_ns = (uint64_t)atoll(argv[8]) * 1000000u;
    uint32_t n = (uint32_t)(argc - 9) + 1;
    double end = atom_clock_seconds() + atof(argv[4]);
    open_member(&m, argv);
    for (int i = 9; i < argc; i++) {
        char *at = strchr(argv[i], '@');
        gsp_address address = test_address(at ? at + 1 : "");
        test_must(gsp_net_dial(m.net, m.pool.member[atoi(argv[i])].public_key, &address, 1));
    }
    state(&m, "start");
    m.applied_ns = atom_clock_ns();
    int code = 0;
    uint64_t said_ns = 0;
    while (!ending && atom_clock_seconds() < end && code == 0) {
        if (atom_clock_ns() - m.applied_ns > 2000000000u &&
            atom_clock_ns() - said_ns > 1000000000u) {
            state(&m, "waits");
            said_ns = atom_clock_ns();
        }
        gsp_node_report(m.node, due(&m, n, pause_ns, heartbeat_ns), 0);
        gsp_node_status s;
        gsp_node_read_status(m.node, &s);
        if (s.state_all_bytes && !m.asked_ns)
            printf("{\"fetching\":%llu,\"here\":%llu,\"ns\":%llu}\n",
                   (unsigned long long)s.state_all_bytes, (unsigned long long)s.state_bytes,
                   (unsigned long long)(m.asked_ns = atom_clock_ns()));
        if (gsp_node_turn(m.node, 20000000) != ATOM_OK) {
            fprintf(stderr, "member %u: %s\n", m.me, atom_fail_message());
            code = 1;
        }
    }
    state(&m, "end");
    gsp_node_close(&m.node);
    gsp_net_close(&m.net);
    for (uint32_t f = 0; f < FRAGMENTS; f++) {
        atom_free(m.state[f]);
        atom_free(m.coming[f]);
    }
    atom_free(m.x);
    return code;
}
