/*
 * Owns one peer of atom bench allreduce: a member as a pool runs it (gossip/member/node.h), whose
 * work is a fixed vector. Its one idea: nothing is left out; the agreement, its disk, the hashes
 * and the gate are in the time. It refuses results that are not the sum.
 */
#include "tools/bench/bench_allreduce.h"

#include "gossip/member/node.h"
#include "gossip/member/shares.h"
#include "gossip/net/net_nanomsg.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <sodium.h>

typedef struct bench_peer {
    const allreduce_plan *plan;
    allreduce_shared *shared;
    allreduce_peer *out;
    uint32_t i;
    gsp_identity identity[ALLREDUCE_PEERS_MAX];
    gsp_net *net;
    gsp_node *node;
    float *x, *got;
    uint64_t applied_ns;
    uint32_t n_froze;
    bool in_round;
} bench_peer;

static uint32_t rounds_run(const allreduce_plan *plan)
{
    return ALLREDUCE_WARM_UP + plan->rounds;
}

/* Float k of peer i. */
static float value(uint32_t i, uint64_t k)
{
    uint32_t x = (uint32_t)(k * 2654435761u) ^ (i * 40503u + 977u);
    x ^= x >> 15;
    x *= 2246822519u;
    return (float)(x >> 8) * 0x1p-24f - 0.5f;
}

static gsp_freeze freeze(void *context, uint64_t version, const float **x, uint64_t *tokens,
                         uint64_t *samples)
{
    bench_peer *p = context;
    gsp_node_status s;
    (void)version;
    gsp_node_read_status(p->node, &s);
    if (s.n_roster < p->plan->peers || p->n_froze >= rounds_run(p->plan))
        return GSP_FREEZE_NOTHING;
    allreduce_round *r = &p->out->round[p->n_froze];
    r->froze_ns = atom_clock_ns();
    allreduce_net_bytes(&r->sent_bytes, &r->received_bytes);
    *x = p->x;
    *tokens = 1000;
    *samples = 1;
    p->in_round = true;
    return GSP_FREEZE_READY;
}

static void part(void *context, uint64_t version, uint64_t first, const float *x, uint64_t n)
{
    bench_peer *p = context;
    (void)version;
    if (x) /* else it comes again, or check() tells */
        memcpy(p->got + first, x, n * sizeof *x);
}

/* Some floats against the sum in the order of keys, which reduce.h promises to the bit in fp32. */
static void check(bench_peer *p, const gsp_certificate *c)
{
    const gsp_roster *roster = gsp_agree_roster(&(gsp_agree){.certificate = *c});
    uint32_t who[ALLREDUCE_PEERS_MAX], n = p->plan->peers;
    float share = (float)(1.0 / n);
    for (uint32_t i = 0; i < roster->n && i < n; i++)
        for (who[i] = 0; who[i] + 1 < n && memcmp(p->identity[who[i]].public_key,
                                                  roster->member[i].key.byte, 32) != 0;)
            who[i]++;
    if (c->proposal.n_contributors != n || roster->n != n) {
        p->out->wrong = true;
        return;
    }
    for (uint64_t k = 0; k < p->plan->floats; k += 1 + p->plan->floats / 4096) {
        float sum = share * value(who[0], k), largest = 0.5f;
        for (uint32_t i = 1; i < n; i++)
            sum += share * value(who[i], k);
        float off = p->got[k] > sum ? p->got[k] - sum : sum - p->got[k];
        float bound = p->plan->codec == GSP_CODEC_FP32   ? 0.0f
                      : p->plan->codec == GSP_CODEC_BF16 ? 0x1p-7f * largest
                                                         : 3 * largest / 127;
        if (!(off <= bound))
            p->out->wrong = true;
    }
}

static atom_status apply(void *context, const gsp_certificate *c, const gsp_hash *result)
{
    bench_peer *p = context;
    p->applied_ns = atom_clock_ns();
    if (!p->in_round)
        return ATOM_OK;
    allreduce_round *r = &p->out->round[p->n_froze++];
    r->applied_ns = p->applied_ns;
    p->in_round = false;
    check(p, c);
    /* Every round by its parts' hashes, which were checked as they came; the last one also by the
     * floats themselves, after the clock has stopped for everybody. */
    memcpy(r->hash, result->byte, sizeof r->hash);
    return ATOM_OK;
}

/* The pool of this run: everything follows from the secret. */
static atom_status make_pool(bench_peer *p, gsp_identity *owner, uint8_t pool[32], uint8_t psk[32])
{
    uint8_t text[34], seed[32];
    atom_status st = gsp_crypto_start();
    for (uint32_t k = 0; st == ATOM_OK && k < p->plan->peers + 3; k++) {
        memcpy(text, p->plan->secret, 32);
        text[32] = (uint8_t)k;
        text[33] = 0;
        crypto_generichash(seed, sizeof seed, text, sizeof text, NULL, 0);
        if (k < p->plan->peers)
            st = gsp_identity_from_seed(seed, &p->identity[k]);
        else if (k == p->plan->peers)
            st = gsp_identity_from_seed(seed, owner);
        else
            memcpy(k == p->plan->peers + 1 ? pool : psk, seed, 32);
    }
    return st;
}

static atom_status address_of(const bench_peer *p, uint32_t i, gsp_address *out)
{
    char text[64];
    if (p->plan->given)
        snprintf(text, sizeof text, "%s", p->plan->address[i]);
    else if (p->plan->hosts)
        snprintf(text, sizeof text, "10.77.0.%u:%u", i + 1, ALLREDUCE_PORT);
    else
        snprintf(text, sizeof text, "127.0.0.1:%u", (unsigned)p->shared->peer[i].port);
    return gsp_address_parse(text, out);
}

static atom_status open_gate(bench_peer *p, const gsp_address *listen)
{
    gsp_identity owner;
    gsp_net_gate_config g = {.gate = {.n_listen = 1}, .streams = p->plan->streams};
    gsp_handshake_config *h = &g.gate.handshake;
    uint64_t now_s = (uint64_t)atom_wall_seconds();
    gsp_admission a = {.manifest = 1, .issued_s = now_s, .expires_s = now_s + 86400};
    ATOM_TRY(make_pool(p, &owner, h->pool, h->psk[0]));
    h->self = &p->identity[p->i];
    h->n_psks = 1;
    memcpy(h->owner, owner.public_key, sizeof h->owner);
    memcpy(a.pool, h->pool, sizeof a.pool);
    memcpy(a.member, h->self->public_key, sizeof a.member);
    gsp_admission_sign(&a, &owner);
    gsp_admission_encode(&a, h->credential);
    h->credential_bytes = GSP_ADMISSION_BYTES;
    g.gate.listen[0] = *listen;
    return gsp_net_open_gate(&g, &p->net);
}

static atom_status open_plain(bench_peer *p, gsp_address *listen)
{
    gsp_identity owner;
    uint8_t pool[32], psk[32];
    atom_status st = make_pool(p, &owner, pool, psk);
    uint16_t first = (uint16_t)(20000 + (getpid() * 7 + (int)p->i * 200) % 20000);
    for (uint32_t k = 0; st == ATOM_OK && k < 50; k++) {
        gsp_net_plain_config c = {.listen = *listen, .streams = p->plan->streams};
        if (!p->plan->hosts && !p->plan->given)
            c.listen.port = (uint16_t)(first + 401 * k);
        c.port_last = (uint16_t)(c.listen.port + 190);
        memcpy(c.key, p->identity[p->i].public_key, sizeof c.key);
        st = gsp_net_open_plain(&c, &p->net);
        if (st == ATOM_OK || p->plan->hosts || p->plan->given)
            break;
        st = k + 1 < 50 ? ATOM_OK : st; /* that port was taken */
    }
    return st;
}

static atom_status open_net(bench_peer *p)
{
    gsp_address listen;
    atom_status st = gsp_address_parse("127.0.0.1:1", &listen);
    listen.port = 0;
    if (st == ATOM_OK && (p->plan->hosts || p->plan->given))
        st = address_of(p, p->i, &listen);
    if (st == ATOM_OK)
        st = p->plan->gate ? open_gate(p, &listen) : open_plain(p, &listen);
    if (st == ATOM_OK)
        p->out->port = gsp_net_port(p->net);
    return st;
}

static atom_status open_member(bench_peer *p)
{
    char directory[600];
    uint32_t n_parts = (uint32_t)((p->plan->floats + 65535) / 65536);
    snprintf(directory, sizeof directory, "%s/peer%u", p->plan->directory, p->i);
    /* Of payload, as a member would measure it: a segment of 1448 bytes takes 1514 of the link. */
    uint64_t rate = (uint64_t)(p->plan->mbit[p->i] * 125000 * 1448 / 1514);
    gsp_node_config c = {
        .net = p->net,
        .identity = &p->identity[p->i],
        .directory = directory,
        .rates = {rate, rate, true},
        .n_fragments = 1,
        .n_floats = {p->plan->floats},
        .codec = (gsp_codec)p->plan->codec,
        .results_kept = 2,
        .work = {.context = p, .freeze = freeze, .part = part, .early = true, .apply = apply}};
    memcpy(c.genesis.founder.key.byte, p->identity[0].public_key, 32);
    c.genesis.founder.incarnation = 1;
    gsp_agree_defaults(&c.rules);
    c.rules.audit_percent = 0; /* measured is the all-reduce alone */
    c.rules.samples_due = p->plan->peers;
    c.rules.time_due_ns = 3600 * 1000000000ull;
    c.rules.round_ns = c.rules.round_min_ns = 600 * 1000000000ull;
    c.rules.assign = gsp_shares_assign;
    n_parts = n_parts < 16 * p->plan->peers ? 16 * p->plan->peers : n_parts;
    c.rules.n_parts = n_parts > GSP_PARTS_MAX ? GSP_PARTS_MAX : n_parts;
    return gsp_node_open(&c, &p->node);
}

static atom_status dial_all(bench_peer *p)
{
    for (uint32_t i = 0; i < p->i; i++) {
        gsp_address at;
        ATOM_TRY(address_of(p, i, &at));
        ATOM_TRY(gsp_net_dial(p->net, p->identity[i].public_key, &at, 1));
    }
    return ATOM_OK;
}

static void report(bench_peer *p)
{
    gsp_node_status s;
    gsp_node_read_status(p->node, &s);
    bool whole = s.n_roster == p->plan->peers;
    /* Joiners have caught up with a version before the founder makes the next one. */
    bool slowly = atom_clock_ns() - p->applied_ns > 2500000000u;
    uint64_t samples = whole ? p->n_froze < rounds_run(p->plan) : slowly ? p->plan->peers : 0;
    gsp_node_report(p->node, samples, 0);
    p->out->n_done = p->n_froze;
    p->out->compute_ns = s.compute_ns;
    p->out->pulled = s.pulled;
    p->out->refused = s.refused;
    p->out->repeated_bytes = s.repeated_bytes;
    if (!p->in_round)
        return;
    p->out->frozen_ns = s.frozen_ns;
    p->out->begun_ns = s.begun_ns;
    p->out->reduced_ns = s.reduced_ns;
    p->out->held_ns = s.held_ns;
}

atom_status allreduce_peer_run(const allreduce_plan *plan, uint32_t i, allreduce_shared *shared)
{
    atom_status st;
    bench_peer *p = atom_alloc(1, sizeof *p);
    if (!p)
        return atom_fail_memory("a peer", sizeof *p);
    *p = (bench_peer){.plan = plan, .shared = shared, .out = &shared->peer[i], .i = i};
    p->x = atom_alloc(plan->floats, sizeof(float));
    p->got = atom_alloc(plan->floats, sizeof(float));
    if (!p->x || !p->got)
        ATOM_TRY_CLEAN(atom_fail_memory("the vectors", 2 * plan->floats * sizeof(float)));
    for (uint64_t k = 0; k < plan->floats; k++)
        p->x[k] = value(i, k);
    ATOM_TRY_CLEAN(open_net(p));
    ATOM_TRY_CLEAN(open_member(p));
    p->out->ready = 1;
    while (!shared->go && !shared->stop)
        usleep(2000);
    ATOM_TRY_CLEAN(dial_all(p));
    while (!shared->stop) {
        report(p);
        ATOM_TRY_CLEAN(gsp_node_turn(p->node, 50000000));
        if (p->n_froze == rounds_run(plan)) {
            allreduce_round *end = &p->out->round[rounds_run(plan)];
            allreduce_net_bytes(&end->sent_bytes, &end->received_bytes);
        }
    }
    crypto_generichash(p->out->floats_hash, sizeof p->out->floats_hash, (const uint8_t *)p->got,
                       plan->floats * sizeof *p->got, NULL, 0);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    p->out->cpu_seconds = (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
                          1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    p->out->resent_segments = allreduce_net_resent();
    atom_net_setting("ipv4/tcp_congestion_control", p->out->congestion, sizeof p->out->congestion);
    p->out->vm_peak_bytes = atom_vm_peak_bytes();
cleanup:
    if (p) {
        gsp_node_close(&p->node);
        gsp_net_close(&p->net);
        atom_free(p->x);
        atom_free(p->got);
    }
    atom_free(p);
    return st;
}
