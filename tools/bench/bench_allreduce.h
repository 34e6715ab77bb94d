/*
 * What the files of atom bench allreduce share: cmd_bench_allreduce.c (asks, waits, judges,
 * prints), cmd_bench_allreduce_net.c (hosts: namespaces, links, rates), cmd_bench_allreduce_peer.c
 * (one member), cmd_bench_allreduce_strangers.c (a host without a ticket). Peers report through
 * memory that they share with the process that started them.
 */
#ifndef TOOLS_BENCH_BENCH_ALLREDUCE_H
#define TOOLS_BENCH_BENCH_ALLREDUCE_H

#include "atom/atom.h"

#include <stdatomic.h>
#include <sys/types.h>

enum {
    ALLREDUCE_PEERS_MAX = 32,
    ALLREDUCE_ROUNDS_MAX = 64,
    ALLREDUCE_WARM_UP = 1, /* first rounds that count for nothing: memory is touched */
    ALLREDUCE_PORT = 4400,
    ALLREDUCE_ADDRESS_BYTES = 56,
};

typedef struct allreduce_plan {
    uint32_t peers;
    uint32_t rounds;     /* that count; before them ALLREDUCE_WARM_UP more */
    uint32_t first, end; /* peers that run here: all, or with `given` one */
    bool given;          /* address: of all peers, on hosts of their own */
    char address[ALLREDUCE_PEERS_MAX][ALLREDUCE_ADDRESS_BYTES];
    uint64_t floats;
    int32_t codec;            /* gsp_codec */
    bool gate, shaped, hosts; /* hosts: every peer has its own network namespace */
    double mbit[ALLREDUCE_PEERS_MAX], rtt_ms;
    uint32_t streams;            /* for parts, per pair of peers */
    double strangers_per_second; /* 0: none */
    char directory[512];
    uint8_t secret[32]; /* of this run's pool */
} allreduce_plan;

typedef struct allreduce_round {
    uint64_t froze_ns, applied_ns;       /* the machine's monotonic clock */
    uint64_t sent_bytes, received_bytes; /* of the interface when it froze */
    uint8_t hash[32];                    /* Merkle root of the results that were applied */
} allreduce_round;

/* In shared memory. `why` is written before `failed`. */
typedef struct allreduce_peer {
    atomic_uint ready, n_done; /* address known; rounds applied */
    atomic_bool failed, wrong; /* wrong: a float is not the sum that it should be */
    atomic_uint port;          /* without hosts: where it listens */
    allreduce_round round[ALLREDUCE_WARM_UP + ALLREDUCE_ROUNDS_MAX + 1]; /* last: at the end */
    uint64_t compute_ns, pulled, repeated_bytes, vm_peak_bytes, refused, resent_segments;
    uint64_t frozen_ns, begun_ns, reduced_ns, held_ns; /* of the last round (member.h) */
    double cpu_seconds;
    char congestion[16];     /* TCP's congestion control; empty: unknown */
    uint8_t floats_hash[32]; /* of the floats after the last round */
    char why[256];
} allreduce_peer;

typedef struct allreduce_shared {
    atomic_bool go, stop;
    atomic_bool flood;                          /* strangers: now */
    _Atomic uint64_t strangers, answered_bytes; /* connections tried; bytes that came back */
    allreduce_peer peer[ALLREDUCE_PEERS_MAX];
} allreduce_shared;

/* cmd_bench_allreduce_net.c: enters a network of its own, which ends with this process and its
 * children. ATOM_E_UNSUPPORTED where that is not allowed. */
ATOM_MUST atom_status allreduce_net_enter(const char *directory);
/* Links the peer, which runs in a fresh namespace of its own (allreduce_net_leave), to the hub. */
ATOM_MUST atom_status allreduce_net_link(const allreduce_plan *plan, uint32_t i, pid_t pid);
/* In the peer: a namespace of its own; then, once linked, its address, route and rate. */
ATOM_MUST atom_status allreduce_net_leave(void);
ATOM_MUST atom_status allreduce_net_up(const allreduce_plan *plan, uint32_t i);
/* Bytes of the peer's interface so far, headers included; of all but loopback, where there is none
 * of the bench's own. */
void allreduce_net_bytes(uint64_t *sent, uint64_t *received);
/* TCP segments that its kernel sent again. */
uint64_t allreduce_net_resent(void);

/* cmd_bench_allreduce_peer.c: runs peer i until shared->stop. */
ATOM_MUST atom_status allreduce_peer_run(const allreduce_plan *plan, uint32_t i,
                                         allreduce_shared *shared);

/* cmd_bench_allreduce_strangers.c: a host without a ticket, until shared->stop. */
ATOM_MUST atom_status allreduce_strangers_run(const allreduce_plan *plan, allreduce_shared *shared);

#endif
