/*
 * The simulator: many real machines of the agreement (agree.h) in one process, with a virtual
 * clock, all from one seed. world.c owns time, network and faults; host.c is one member with its
 * disk, and act.c what its driver does; hostile.c lies; check.c watches everything from outside and
 * knows all.
 *
 * It checks I1 to I8 of docs/design/pool.md#agreement, and
 *   I9   nobody honest is banned
 *   I10  an owner that lies is banned
 *   I11  nobody honest says what it did not sign
 *   I12  nothing is certified that nobody proposed
 *   I13  a joiner that keeps up is let in
 */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include "gossip/agree/agree.h"

#include <stddef.h>
#include <stdio.h>

enum {
    SIM_HOSTS_MAX = 200,
    SIM_FAULTS_MAX = 64,
    SIM_RESULTS_MAX = 256, /* results that a host keeps */
    SIM_LINEAGES_MAX = 64,
    SIM_FRAGMENTS = 2,
    SIM_REPLAYS = 8, /* old messages kept per host, to be said again */
};
#define SIM_MS 1000000ull
#define SIM_SECOND 1000000000ull

typedef struct sim_options {
    uint64_t seed;
    uint32_t members, waiting; /* 0: the seed decides */
    bool trace, brisk;         /* brisk: rounds are much shorter than a heartbeat */
    uint64_t disabled;         /* bit i: fault i does not happen */
} sim_options;

/* What went wrong on purpose, counted where it takes effect. */
typedef enum sim_injected {
    SIM_LOST,
    SIM_DOUBLED,
    SIM_REORDERED,
    SIM_DELAYED, /* ten times */
    SIM_PARTITIONED,
    SIM_ONE_WAY,
    SIM_CUT_LINK,
    SIM_CRASHED,
    SIM_CRASHED_AND_LOST,
    SIM_POWER_CUT,
    SIM_SLOWED,
    SIM_DRIFTED, /* hosts whose clock is wrong by more than 1 % */
    SIM_DISK_FAILED,
    SIM_LEFT,
    SIM_RESET,
    SIM_LIED,
    SIM_EQUIVOCATED,
    SIM_REPLAYED,
    SIM_FLOODED,
    SIM_FALSIFIED, /* parts by a lying owner */
    SIM_ACCUSED,   /* somebody honest, falsely */
    SIM_CLAIMED,   /* a vote for what nobody proposed */
    SIM_ORDERED,   /* a reset, by somebody who is not the owner: told as a state */
    SIM_INJECTED_N
} sim_injected;

typedef struct sim_outcome {
    bool violated;
    char invariant[8]; /* "I1" ... */
    char what[200];
    uint64_t events, versions, virtual_ns, forks, moves, evidence, faults, audits, lies;
    uint64_t fault_bits; /* those that happened */
    uint64_t injected[SIM_INJECTED_N];
    uint32_t hosts;
} sim_outcome;

typedef enum sim_hostility {
    SIM_HONEST,
    SIM_LIES,
    SIM_EQUIVOCATES,
    SIM_REPLAYS_OLD,
    SIM_FLOODS,
    SIM_FALSIFIES, /* the results of its parts */
    SIM_ACCUSES,
    SIM_CLAIMS, /* votes for what nobody proposed */
    SIM_ORDERS, /* a reset */
    SIM_HOSTILITY_N
} sim_hostility;

typedef enum sim_kind {
    SIM_DELIVER, /* message to host */
    SIM_TICK,
    SIM_EVENT,    /* an event for the machine, as prepared */
    SIM_DEFERRED, /* an action behind a disk barrier */
    SIM_WRITTEN,  /* a record reaches the disk */
    SIM_KNOWN,    /* a certificate is a fact: what it rests on is on disk */
    SIM_PULLED,   /* a question for bytes reaches a host */
    SIM_ASKED,    /* a question for state reaches a host */
    SIM_START,
    SIM_FAULT,
} sim_kind;

typedef struct sim_item {
    uint64_t at_ns, order;
    sim_kind kind;
    uint32_t host, from, boot, fault;
    uint64_t version;
    gsp_event event;
    void *payload; /* gsp_message, gsp_saved, gsp_record or action, malloc'ed */
} sim_item;

typedef struct sim_deferred {
    gsp_action action;
    gsp_message *message;
    gsp_begin *begin;
    gsp_certificate *certificate;
    gsp_genesis genesis;
    gsp_claim claim;
} sim_deferred;

typedef struct sim_span {
    uint64_t root; /* first bytes of the contribution's root */
    uint32_t host;
    uint64_t from, to;
} sim_span;

typedef struct sim_host {
    gsp_agree agree;
    gsp_member self;
    gsp_rates rates;
    sim_hostility hostility;
    bool running, gone, leaving, disk_bad, started, follower;
    uint32_t boot, index;
    double drift;
    uint64_t offset_ns, tick_ns, barrier_ns, slow_ns;
    /* durable */
    bool has_disk;
    gsp_saved disk;
    uint64_t anchor; /* stands for anchor and momentum */
    uint64_t mark[SIM_FRAGMENTS];
    /* results: hash (first bytes), version, on disk or only in memory */
    struct {
        uint64_t hash, version;
        bool durable;
    } result[SIM_RESULTS_MAX];
    uint32_t n_results;
    /* live */
    double tokens_per_ns;
    uint64_t born_ns, base; /* tokens before `base` are lost */
    gsp_message *old[SIM_REPLAYS];
    uint32_t n_old;
    uint32_t actions; /* of this step */
    gsp_begin begun;  /* a BEGIN that it made up; ballot 0: none */
    uint32_t begun_ballot;
    uint64_t begun_version;
    gsp_genesis forged;                 /* generation 0: none */
    uint32_t n_falsified;               /* versions certified with a false part of its */
    uint64_t waits_from, waits_lineage; /* the newest version when its wait began */
} sim_host;

typedef struct sim_world {
    sim_options options;
    sim_outcome *out;
    uint64_t now_ns, order, random, calm_ns, end_ns, fault_random;
    uint32_t n_hosts, n_faults;
    sim_host *host[SIM_HOSTS_MAX];
    gsp_rules rules;
    double loss, doubled;
    uint64_t delay_ns, jitter_ns, disk_ns;
    bool calm;
    sim_item **heap;
    size_t n_heap, room_heap;
    uint8_t linked[SIM_HOSTS_MAX][SIM_HOSTS_MAX], cut[SIM_HOSTS_MAX][SIM_HOSTS_MAX];
    uint16_t in_flight[SIM_HOSTS_MAX][SIM_HOSTS_MAX];
    uint64_t arrived[SIM_HOSTS_MAX][SIM_HOSTS_MAX]; /* order of the newest message that arrived */
    uint64_t goal_version;
    uint32_t ordered; /* the owner's latest reset */
    struct sim_check *check;
    char (*lines)[160];
    uint64_t n_lines;
} sim_world;

/* world.c */
sim_outcome sim_run(const sim_options *options);
uint64_t sim_random(uint64_t *state);
uint64_t sim_below(uint64_t *state, uint64_t n);
bool sim_chance(uint64_t *state, double p);
sim_item *sim_push(sim_world *w, sim_kind kind, uint32_t host, uint64_t at_ns);
void sim_message(sim_world *w, uint32_t from, uint32_t to, const gsp_message *message);
uint64_t sim_delay(sim_world *w);
bool sim_reaches(const sim_world *w, uint32_t from, uint32_t to);
void sim_violate(sim_world *w, const char *invariant, const char *fmt, ...) ATOM_PRINTF(3, 4);
void sim_trace(sim_world *w, const char *fmt, ...) ATOM_PRINTF(2, 3);
uint32_t sim_host_of(const sim_world *w, const gsp_key *key);

/* seal.c */
gsp_seals sim_seals(sim_host *host);
void sim_hash(void *context, const void *data, size_t bytes, gsp_hash *out);
uint64_t sim_mix(uint64_t x, uint64_t y);
uint64_t sim_short(const gsp_hash *hash); /* its first bytes */

/* host.c */
void sim_host_boot(sim_world *w, uint32_t i, bool lost);
void sim_host_stop(sim_world *w, uint32_t i);
void sim_host_take(sim_world *w, sim_item *item);
void sim_host_step(sim_world *w, uint32_t i, gsp_event *event);
uint64_t sim_host_tokens(const sim_world *w, const sim_host *host);
/* Results are known by the first bytes of their hash. */
bool sim_host_holds(const sim_host *host, uint64_t hash);
/* The results of a proposal reach the disk. */
void sim_host_keep(sim_host *host, const gsp_proposal *proposal);

/* act.c */
void sim_act(sim_world *w, sim_host *host, const gsp_action *action);
void sim_later(sim_world *w, uint32_t to, uint64_t delay_ns, const gsp_event *event);
/* In a new lineage, or with another's state, what was contributed before counts for nothing. */
void sim_host_fresh_marks(const sim_world *w, sim_host *host);
/* What an honest owner says of a part. */
void sim_made(const gsp_hash *lineage, uint64_t version, uint32_t number,
              const gsp_contributor *contributor, uint32_t n_contributors, uint32_t included,
              gsp_part *out);

/* hostile.c: what a hostile member sends instead; true: it has been sent */
bool sim_hostile_send(sim_world *w, sim_host *host, uint32_t to, const gsp_message *message);
/* What it says of its state; true: it lies. */
bool sim_hostile_state(sim_world *w, sim_host *host, gsp_saved *saved);
void sim_hostile_tick(sim_world *w, sim_host *host);
/* A liar that made up a BEGIN believes in it, so that what owners sign fits it. */
void sim_hostile_mind(sim_host *host);
/* A lie about a part: true where it tells one. */
bool sim_hostile_part(sim_world *w, sim_host *host, const gsp_begin *begin, uint32_t number,
                      gsp_part *part);

/* check.c */
void sim_check_open(sim_world *w);
void sim_check_close(sim_world *w);
void sim_check_frozen(sim_world *w, uint32_t host, const gsp_contribution *c, uint64_t from,
                      uint64_t to);
const sim_span *sim_check_span(const sim_world *w, const gsp_hash *root);
void sim_check_certified(sim_world *w, uint32_t host, const gsp_certificate *certificate);
void sim_check_applied(sim_world *w, uint32_t host, const gsp_certificate *c, uint64_t anchor);
void sim_check_said(sim_world *w, uint32_t host, const gsp_message *message);
/* Of anybody, honest or not: what it says to somebody. */
void sim_check_heard(sim_world *w, const gsp_message *message);
void sim_check_step(sim_world *w, uint32_t host);
void sim_check_end(sim_world *w);
uint64_t sim_check_digest(const gsp_agree *agree);
const gsp_certificate *sim_check_certificate(const sim_world *w, const gsp_hash *lineage,
                                             uint64_t version);
bool sim_converged(const sim_world *w);
/* Every second in calm. */
void sim_check_waits(sim_world *w);

#endif
