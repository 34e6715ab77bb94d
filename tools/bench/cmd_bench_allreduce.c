/*
 * atom bench allreduce: N members on one machine, each in a network namespace of its own, average a
 * vector over links of a given rate; seconds, bytes and the share of what the links could do at
 * best. One idea: the ceiling is arithmetic, 2 (N-1)/N bytes / rate, or with unequal rates the best
 * shares (gossip/member/shares.h), so nothing but the links' rate has to be believed. Refuses to
 * leave processes, namespaces or files behind.
 */
#include "tools/bench/bench.h"
#include "tools/bench/bench_allreduce.h"

#include "gossip/gate/net_address.h"
#include "gossip/member/shares.h"
#include "gossip/sum/quant.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sodium.h>

typedef struct allreduce_run {
    allreduce_plan plan;
    allreduce_shared *shared;
    pid_t pid[ALLREDUCE_PEERS_MAX];
    int up[ALLREDUCE_PEERS_MAX][2], down[ALLREDUCE_PEERS_MAX][2]; /* pipes to and from a peer */
    double idle_cores; /* of the machine, from the first round to the last */
} allreduce_run;

static volatile sig_atomic_t interrupted;
static void on_signal(int number)
{
    interrupted = number;
}

/* --addresses, --self and --secret. */
static atom_status plan_hosts(const bench_values *v, allreduce_plan *p)
{
    const char *at = v->addresses;
    gsp_address parsed;
    p->given = true;
    p->peers = 0;
    if (v->rtt > 0 || v->strangers > 0)
        return atom_fail(ATOM_E_USAGE, "allreduce: --rtt and --strangers work only with all "
                                       "peers on this host; leave them out, or leave --addresses "
                                       "out");
    if (!v->secret || strlen(v->secret) < 8 || v->self < 0)
        return atom_fail(ATOM_E_USAGE, "allreduce: --addresses needs --self N (which of them is "
                                       "this host, counted from 0) and --secret (at least 8 "
                                       "letters)");
    while (*at) {
        size_t n = strcspn(at, ",");
        if (n == 0 || n >= ALLREDUCE_ADDRESS_BYTES || p->peers == ALLREDUCE_PEERS_MAX)
            return atom_fail(ATOM_E_USAGE,
                             "allreduce: --addresses takes 2 to %d HOST:PORT, separated by commas",
                             ALLREDUCE_PEERS_MAX);
        memcpy(p->address[p->peers], at, n);
        ATOM_TRY(gsp_address_parse(p->address[p->peers++], &parsed));
        at += n + (at[n] == ',');
    }
    if (p->peers < 2 || v->self >= p->peers)
        return atom_fail(ATOM_E_USAGE, "allreduce: --self %lld, but --addresses has %u",
                         (long long)v->self, p->peers);
    p->first = (uint32_t)v->self;
    p->end = p->first + 1;
    for (uint32_t i = 0; i < p->peers; i++)
        p->mbit[i] = v->rate > 0 ? v->rate : 0;
    if (v->slow > 0)
        p->mbit[p->peers - 1] = v->slow;
    p->streams = v->streams > 0 ? (uint32_t)v->streams : p->peers > 3 ? 1 : 2;
    crypto_generichash(p->secret, sizeof p->secret, (const uint8_t *)v->secret, strlen(v->secret),
                       NULL, 0);
    return ATOM_OK;
}

static atom_status plan_make(const bench_values *v, allreduce_plan *p)
{
    const char *tmp = getenv("TMPDIR");
    *p = (allreduce_plan){.peers = (uint32_t)v->peers,
                          .end = (uint32_t)v->peers,
                          .rounds = (uint32_t)(v->rounds > 0 ? v->rounds : 3),
                          .floats = v->bytes / sizeof(float),
                          .codec = v->codec,
                          .gate = v->transport == BENCH_GATE,
                          .shaped = v->rate > 0 || v->rtt > 0 || v->slow > 0,
                          .rtt_ms = v->rtt > 0 ? v->rtt : 0,
                          .streams = v->streams > 0 ? (uint32_t)v->streams
                                     : v->peers > 3 ? 1
                                                    : 2};
    if (p->rounds > ALLREDUCE_ROUNDS_MAX)
        return atom_fail(ATOM_E_USAGE, "allreduce: at most %d rounds", ALLREDUCE_ROUNDS_MAX);
    if (v->strangers > 0 && !p->gate)
        return atom_fail(ATOM_E_USAGE,
                         "allreduce: --strangers needs --transport gate, because plain "
                         "has nothing that keeps them out");
    if (v->strangers > 0 && p->peers == ALLREDUCE_PEERS_MAX)
        return atom_fail(ATOM_E_USAGE, "allreduce: --strangers works with at most %d peers",
                         ALLREDUCE_PEERS_MAX - 1);
    p->strangers_per_second = v->strangers > 0 ? (double)v->strangers : 0;
    for (uint32_t i = 0; i < p->peers + (v->strangers > 0); i++)
        p->mbit[i] = v->rate > 0 ? v->rate : 0;
    if (v->slow > 0)
        p->mbit[p->peers - 1] = v->slow;
    if (v->addresses) {
        ATOM_TRY(plan_hosts(v, p));
    }
    snprintf(p->directory, sizeof p->directory, "%s/atom-allreduce-XXXXXX",
             tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(p->directory))
        return atom_fail_errno(errno, "%s", p->directory);
    return p->given ? ATOM_OK : atom_entropy(p->secret, sizeof p->secret);
}

/* ---- processes ---- */

static bool say(int fd)
{
    return write(fd, "", 1) == 1;
}

static bool heard(int fd)
{
    char c;
    ssize_t n;
    while ((n = read(fd, &c, 1)) < 0 && errno == EINTR && !interrupted)
        ;
    return n == 1;
}

/* Peers, and the strangers behind them. */
static uint32_t processes(const allreduce_run *r)
{
    return r->plan.end + (r->plan.strangers_per_second > 0);
}

/* A peer's whole life. */
static void child(allreduce_run *r, uint32_t i)
{
    allreduce_peer *out = &r->shared->peer[i];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN); /* the parent ends us */
    signal(SIGTERM, SIG_DFL);
    atom_status st = ATOM_OK;
    if (r->plan.hosts) {
        st = allreduce_net_leave();
        if (st == ATOM_OK && (!say(r->up[i][1]) || !heard(r->down[i][0])))
            _exit(1);
        if (st == ATOM_OK)
            st = allreduce_net_up(&r->plan, i);
    }
    if (st == ATOM_OK && i == r->plan.peers)
        st = allreduce_strangers_run(&r->plan, r->shared);
    else if (st == ATOM_OK)
        st = allreduce_peer_run(&r->plan, i, r->shared);
    if (st != ATOM_OK) {
        snprintf(out->why, sizeof out->why, "%s", atom_fail_message());
        out->failed = true;
    }
    _exit(st == ATOM_OK ? 0 : 1);
}

static atom_status start(allreduce_run *r)
{
    for (uint32_t i = r->plan.first; i < processes(r); i++) {
        if (pipe(r->up[i]) != 0 || pipe(r->down[i]) != 0)
            return atom_fail_errno(errno, "a pipe");
        r->pid[i] = fork();
        if (r->pid[i] < 0)
            return atom_fail_errno(errno, "a process for peer %u", i);
        if (r->pid[i] == 0)
            child(r, i);
    }
    for (uint32_t i = r->plan.first; r->plan.hosts && i < processes(r); i++) {
        if (!heard(r->up[i][0]))
            return atom_fail(ATOM_E_RUNTIME, "peer %u: %s", i, r->shared->peer[i].why);
        ATOM_TRY(allreduce_net_link(&r->plan, i, r->pid[i]));
        if (!say(r->down[i][1]))
            return atom_fail(ATOM_E_RUNTIME, "peer %u is gone", i);
    }
    return ATOM_OK;
}

/* Ends what still runs, and forgets it. */
static void finish(allreduce_run *r)
{
    r->shared->stop = true;
    for (uint32_t tries = 0; tries < 500; tries++) {
        bool any = false;
        for (uint32_t i = r->plan.first; i < processes(r); i++) {
            if (r->pid[i] > 0 && waitpid(r->pid[i], NULL, tries < 499 ? WNOHANG : 0) == r->pid[i])
                r->pid[i] = 0;
            any |= r->pid[i] > 0;
            if (tries == 498 && r->pid[i] > 0)
                kill(r->pid[i], SIGKILL);
        }
        if (!any)
            break;
        usleep(10000);
    }
    for (uint32_t i = r->plan.first; i < processes(r); i++)
        for (int k = 0; k < 2; k++) {
            close(r->up[i][k]);
            close(r->down[i][k]);
        }
}

/* The best time of a round by the links' rates; 0: no rates. */
static double optimum(const allreduce_plan *p)
{
    gsp_rates rates[ALLREDUCE_PEERS_MAX];
    bool able[ALLREDUCE_PEERS_MAX];
    double share[ALLREDUCE_PEERS_MAX];
    double bytes = (double)gsp_codec_bytes((gsp_codec)p->codec, p->floats);
    for (uint32_t i = 0; i < p->peers; i++) {
        uint64_t rate = (uint64_t)(p->mbit[i] * 125000);
        rates[i] = (gsp_rates){rate, rate, true};
        able[i] = true;
        if (rate == 0)
            return 0;
    }
    return gsp_shares_fill(rates, able, p->peers, share)
               ? gsp_shares_seconds(rates, p->peers, share, bytes)
               : 0;
}

static uint32_t least(const allreduce_run *r, bool ready)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t i = r->plan.first; i < r->plan.end; i++) {
        uint32_t n = ready ? r->shared->peer[i].ready : r->shared->peer[i].n_done;
        least = n < least ? n : least;
    }
    return least;
}

static atom_status wait_for(allreduce_run *r, bool ready, uint32_t n, double seconds)
{
    double end = atom_clock_seconds() + seconds;
    while (least(r, ready) < n) {
        for (uint32_t i = r->plan.first; i < r->plan.end; i++) {
            int code = 0;
            if (r->shared->peer[i].failed)
                return atom_fail(ATOM_E_RUNTIME, "peer %u: %s", i, r->shared->peer[i].why);
            if (waitpid(r->pid[i], &code, WNOHANG) == r->pid[i]) {
                r->pid[i] = 0;
                return atom_fail(ATOM_E_RUNTIME, "peer %u ended: %s", i,
                                 r->shared->peer[i].failed ? r->shared->peer[i].why
                                                           : "killed or crashed");
            }
        }
        if (interrupted)
            return atom_fail(ATOM_E_INTERRUPTED, "interrupted");
        if (atom_clock_seconds() > end)
            return atom_fail(ATOM_E_RUNTIME, "round %u is not done after %.0f s", n, seconds);
        usleep(20000);
    }
    return ATOM_OK;
}

/* ---- what came out ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct outcome {
    double seconds[ALLREDUCE_ROUNDS_MAX], median, optimum, efficiency;
    double calm, flooded; /* medians of rounds without and with strangers */
    uint32_t middle;      /* the median round */
    bool equal, exact;
    double cpu_seconds, compute_seconds;
    double moving; /* the last round's, from the first BEGIN to the last result held */
    double frozen, begun, reduced, held; /* seconds after its freeze, of the last peer in the last
                                            round */
    uint64_t pulled, repeated_bytes, vm_peak_bytes, refused, resent;
} outcome;

static double later(double seconds, uint64_t ns)
{
    return (double)ns * 1e-9 > seconds ? (double)ns * 1e-9 : seconds;
}

/* Of every second one, from `first` on; 0: none. */
static double median_of(const double *x, uint32_t n, uint32_t first)
{
    double sorted[ALLREDUCE_ROUNDS_MAX];
    uint32_t m = 0;
    for (uint32_t k = first; k < n; k += 2)
        sorted[m++] = x[k];
    qsort(sorted, m, sizeof *sorted, compare);
    return m ? sorted[m / 2] : 0.0;
}

static json_t *strangers_json(const allreduce_run *r, const outcome *o)
{
    if (r->plan.strangers_per_second <= 0)
        return json_null();
    return json_pack("{s:I, s:I, s:o, s:o}", "connections", (json_int_t)r->shared->strangers,
                     "answered_bytes", (json_int_t)r->shared->answered_bytes, "calm_seconds",
                     cli_real(o->calm), "flooded_seconds", cli_real(o->flooded));
}

static const allreduce_round *counted(const allreduce_run *r, uint32_t peer, uint32_t round)
{
    return &r->shared->peer[peer].round[ALLREDUCE_WARM_UP + round];
}

static void judge(const allreduce_run *r, outcome *o)
{
    const allreduce_plan *p = &r->plan;
    double sorted[ALLREDUCE_ROUNDS_MAX];
    *o = (outcome){.equal = true, .exact = true, .optimum = optimum(p)};
    for (uint32_t k = 0; k < p->rounds; k++) {
        uint64_t first = UINT64_MAX, last = 0;
        for (uint32_t i = p->first; i < p->end; i++) {
            const allreduce_round *x = counted(r, i, k);
            first = x->froze_ns < first ? x->froze_ns : first;
            last = x->applied_ns > last ? x->applied_ns : last;
            o->equal &= memcmp(x->hash, counted(r, p->first, k)->hash, sizeof x->hash) == 0;
        }
        sorted[k] = o->seconds[k] = (double)(last - first) * 1e-9;
    }
    for (uint32_t i = p->first; i < p->end; i++) {
        const allreduce_peer *x = &r->shared->peer[i];
        o->exact &= !x->wrong;
        o->equal &= memcmp(x->floats_hash, r->shared->peer[p->first].floats_hash, 32) == 0;
        o->cpu_seconds += x->cpu_seconds;
        o->compute_seconds += (double)x->compute_ns * 1e-9;
        o->pulled += x->pulled;
        o->refused += x->refused;
        o->repeated_bytes += x->repeated_bytes;
        o->resent += x->resent_segments;
        o->frozen = later(o->frozen, x->frozen_ns);
        o->begun = later(o->begun, x->begun_ns);
        o->reduced = later(o->reduced, x->reduced_ns);
        o->held = later(o->held, x->held_ns);
        o->vm_peak_bytes =
            x->vm_peak_bytes > o->vm_peak_bytes ? x->vm_peak_bytes : o->vm_peak_bytes;
    }
    uint64_t first = UINT64_MAX, last = 0;
    for (uint32_t i = p->first; i < p->end; i++) {
        const allreduce_peer *x = &r->shared->peer[i];
        uint64_t froze = counted(r, i, p->rounds - 1)->froze_ns;
        first = froze + x->begun_ns < first ? froze + x->begun_ns : first;
        last = froze + x->held_ns > last ? froze + x->held_ns : last;
    }
    o->moving = (double)(last - first) * 1e-9;
    o->calm = median_of(o->seconds, p->rounds, 0);
    o->flooded = median_of(o->seconds, p->rounds, 1);
    qsort(sorted, p->rounds, sizeof *sorted, compare);
    o->median = sorted[p->rounds / 2];
    while (o->seconds[o->middle] < o->median)
        o->middle = (o->middle + 1) % p->rounds;
    for (uint32_t k = 0; k < p->rounds; k++)
        if (!(o->seconds[k] < o->median) && !(o->seconds[k] > o->median))
            o->middle = k;
    o->efficiency = o->optimum > 0 ? o->optimum / o->median : 0;
}

static uint64_t wire_bytes(const allreduce_run *r, uint32_t i, uint32_t round)
{
    const allreduce_round *x = counted(r, i, round);
    return x[1].sent_bytes - x[0].sent_bytes;
}

/* The bench's two vectors, and what a member keeps (member.h): contributions of the parts that it
 * owns, results of a version, its own contribution where that is encoded, error feedback. */
static uint64_t buffer_bytes(const allreduce_plan *p)
{
    uint64_t floats = p->floats * sizeof(float);
    uint64_t bytes = gsp_codec_bytes((gsp_codec)p->codec, p->floats);
    uint64_t own = p->codec == GSP_CODEC_FP32 ? 0 : bytes;
    uint64_t feedback = p->codec == GSP_CODEC_INT8 ? 2 * floats : 0;
    return 2 * floats + 2 * bytes - bytes / p->peers + own + feedback;
}

static const char *congestion(const allreduce_run *r)
{
    const char *name = r->shared->peer[r->plan.first].congestion;
    return name[0] ? name : "unknown";
}

static atom_status print_json(const allreduce_run *r, const outcome *o)
{
    const allreduce_plan *p = &r->plan;
    json_t *wire = json_array(), *rounds = json_array(), *rates = json_array();
    for (uint32_t i = 0; wire && i < p->peers; i++) {
        bool seen = p->hosts || (p->given && i == p->first);
        json_array_append_new(wire, seen ? json_integer((json_int_t)wire_bytes(r, i, o->middle))
                                         : json_null());
        json_array_append_new(rates, cli_real(p->mbit[i]));
    }
    for (uint32_t k = 0; rounds && k < p->rounds; k++)
        json_array_append_new(rounds, cli_real(o->seconds[k]));
    return cli_print_json(json_pack(
        "{s:s, s:i, s:I, s:s, s:s, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:b, s:b, s:I, s:I, "
        "s:I, "
        "s:o, s:o, s:I, s:I, s:I, s:o, s:s, s:o, s:{s:o, s:o, s:o, s:o, s:o, s:o}}",
        "bench", "allreduce", "peers", (int)p->peers, "bytes",
        (json_int_t)gsp_codec_bytes((gsp_codec)p->codec, p->floats), "codec",
        gsp_codec_name((gsp_codec)p->codec), "transport", p->gate ? "gate" : "plain", "rate_mbit",
        rates, "rtt_ms", cli_real(p->rtt_ms), "namespaces", p->hosts, "seconds",
        cli_real(o->median), "rounds_seconds", rounds, "optimum_seconds",
        p->shaped ? cli_real(o->optimum) : json_null(), "efficiency",
        o->optimum > 0 ? cli_real(o->efficiency) : json_null(), "wire_bytes_per_peer", wire,
        "equal", o->equal, "right", o->exact, "pulled", (json_int_t)o->pulled, "refused",
        (json_int_t)o->refused, "repeated_bytes", (json_int_t)o->repeated_bytes, "cpu_seconds",
        cli_real(o->cpu_seconds), "compute_seconds", cli_real(o->compute_seconds),
        "peak_bytes_per_peer", (json_int_t)o->vm_peak_bytes, "buffer_bytes_per_peer",
        (json_int_t)buffer_bytes(p), "resent_segments", (json_int_t)o->resent, "idle_cores",
        cli_real(r->idle_cores), "congestion_control", congestion(r), "strangers",
        strangers_json(r, o), "last_round", "frozen_seconds", cli_real(o->frozen), "begun_seconds",
        cli_real(o->begun), "reduced_seconds", cli_real(o->reduced), "held_seconds",
        cli_real(o->held), "moving_seconds", cli_real(o->moving), "moving_efficiency",
        o->optimum > 0 ? cli_real(o->optimum / o->moving) : json_null()));
}

static void print_text(const allreduce_run *r, const outcome *o)
{
    const allreduce_plan *p = &r->plan;
    uint64_t bytes = gsp_codec_bytes((gsp_codec)p->codec, p->floats), most = 0;
    cli_print("all-reduce of %s (%s) among %u, %s, %s\n", cli_size(bytes),
              gsp_codec_name((gsp_codec)p->codec), p->peers, p->gate ? "through the gate" : "plain",
              p->given   ? "a host each"
              : p->hosts ? "own network each"
                         : "loopback");
    cli_print(
        "  seconds     %.3f (median of %u after one to warm up, first freeze to last apply)\n",
        o->median, p->rounds);
    if (o->optimum > 0)
        cli_print("  optimum     %.3f s at the links' rates\n  efficiency  %.3f\n", o->optimum,
                  o->efficiency);
    for (uint32_t i = 0; i < p->peers; i++)
        most = wire_bytes(r, i, o->middle) > most ? wire_bytes(r, i, o->middle) : most;
    if (p->hosts || p->given)
        cli_print("  wire        %s sent by the peer that sent most, %s at best\n", cli_size(most),
                  cli_size(2 * (p->peers - 1) * bytes / p->peers));
    cli_print("  results     %s on all peers, %s\n", o->equal ? "equal" : "NOT EQUAL",
              o->exact ? "and right" : "and WRONG");
    if (o->optimum > 0)
        cli_print("  moving      %.3f s from the first BEGIN to the last result: %.3f\n", o->moving,
                  o->optimum / o->moving);
    cli_print("  last round  frozen %.3f s, begun %.3f, reduced %.3f, all held %.3f\n", o->frozen,
              o->begun, o->reduced, o->held);
    cli_print("  waste       %u results pulled, %s came twice, %u segments sent again (TCP: %s)\n",
              (unsigned)o->pulled, cli_size(o->repeated_bytes), (unsigned)o->resent, congestion(r));
    cli_print(
        "  CPU         %.2f s of all peers and rounds, %.2f s of it hashing and summing; %.2f "
        "of the machine's %u cores idle\n",
        o->cpu_seconds, o->compute_seconds, r->idle_cores, atom_cores());
    if (p->strangers_per_second > 0)
        cli_print(
            "  strangers   %llu connections, answered with %llu bytes; rounds with them %.3f s, "
            "without %.3f s: %+.1f %%\n",
            (unsigned long long)r->shared->strangers, (unsigned long long)r->shared->answered_bytes,
            o->flooded, o->calm, 100 * (o->flooded / o->calm - 1));
    cli_print("  memory      %s at most, %s of it vectors and messages\n",
              cli_size(o->vm_peak_bytes), cli_size(buffer_bytes(p)));
}

/* Ticks of all cores since the machine started, and those of them that were idle. */
static void machine_ticks(double *all, double *idle)
{
    unsigned long long x[8] = {0};
    FILE *f = fopen("/proc/stat", "r");
    *all = *idle = 0.0;
    if (f && fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &x[0], &x[1], &x[2], &x[3],
                    &x[4], &x[5], &x[6], &x[7]) == 8)
        for (int k = 0; k < 8; k++) {
            *all += (double)x[k];
            *idle += k == 3 || k == 4 ? (double)x[k] : 0.0;
        }
    if (f)
        fclose(f);
}

static atom_status run_all(allreduce_run *r, const bench_values *v)
{
    atom_status st = ATOM_OK;
    outcome o;
    double all, idle, all_then, idle_then;
    /* The other hosts are started by hand, and may still need something of us at the end. */
    double patience = (r->plan.given ? 600 : 60) + 10 * optimum(&r->plan);
    ATOM_TRY_CLEAN(start(r));
    ATOM_TRY_CLEAN(wait_for(r, true, 1, 60));
    r->shared->go = true;
    ATOM_TRY_CLEAN(wait_for(r, false, ALLREDUCE_WARM_UP, patience));
    machine_ticks(&all_then, &idle_then);
    for (uint32_t k = 0; k < r->plan.rounds; k++) {
        r->shared->flood = r->plan.strangers_per_second > 0 && k % 2 == 1;
        ATOM_TRY_CLEAN(wait_for(r, false, ALLREDUCE_WARM_UP + k + 1, patience));
    }
    machine_ticks(&all, &idle);
    if (all > all_then)
        r->idle_cores = atom_cores() * (idle - idle_then) / (all - all_then);
    usleep(r->plan.given ? 3000000
                         : 500000); /* what is still on its way belongs to the last round's bytes */
cleanup:
    finish(r);
    ATOM_TRY(st);
    judge(r, &o);
    if (v->json)
        st = print_json(r, &o);
    else
        print_text(r, &o);
    if (st == ATOM_OK && (!o.equal || !o.exact))
        st = atom_fail(ATOM_E_RUNTIME, "not all peers hold the right sum");
    return st;
}

atom_status bench_allreduce_run(const bench_values *v)
{
    allreduce_run *r = atom_alloc(1, sizeof *r);
    struct sigaction action = {.sa_handler = on_signal}, was_int, was_term;
    if (!r)
        return atom_fail_memory("the bench", sizeof *r);
    atom_status st = plan_make(v, &r->plan);
    if (st != ATOM_OK) {
        atom_free(r);
        return st;
    }
    sigaction(SIGINT, &action, &was_int);
    sigaction(SIGTERM, &action, &was_term);
    r->shared =
        mmap(NULL, sizeof *r->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (r->shared == MAP_FAILED)
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "shared memory"));
    st = r->plan.given ? ATOM_E_UNSUPPORTED : allreduce_net_enter(r->plan.directory);
    r->plan.hosts = st == ATOM_OK;
    if (r->plan.given)
        st = ATOM_OK;
    if (st == ATOM_E_UNSUPPORTED && !r->plan.shaped) {
        atom_log(ATOM_LOG_WARN, "%s; going on over loopback, unshaped", atom_fail_message());
        st = ATOM_OK;
    }
    ATOM_TRY_CLEAN(st);
    st = run_all(r, v);
cleanup:
    if (r->shared != MAP_FAILED)
        munmap(r->shared, sizeof *r->shared);
    if (r->plan.hosts)
        (void)umount2(r->plan.directory, MNT_DETACH);
    atom_status gone = atom_dir_remove(r->plan.directory);
    if (st == ATOM_OK)
        st = gone;
    atom_free(r);
    sigaction(SIGINT, &was_int, NULL);
    sigaction(SIGTERM, &was_term, NULL);
    return st;
}
