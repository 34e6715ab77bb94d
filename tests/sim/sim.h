/*
 * The simulator: many real machines of the agreement (agree.h) in one process, with a virtual
 * clock, all from one seed. world.c owns time, network and faults; host.c is one member with its
 * disk, act.c what its driver does, and inputs.c what it gives to those who check; hostile.c and
 * hostile_audit.c lie; check.c watches everything from outside and
 * knows all.
 *
 * It checks I1 to I8 of docs/design/pool.md#agreement, and
 *   I9   nobody honest is banned
 *   I10  an owner that lies, or withholds what shows it, is off the roster within ten such versions
 *   I11  nobody honest says what it did not sign
 *   I12  nothing is certified that nobody proposed
 *   I13  a joiner that keeps up is let in
 *   I14  nobody honest follows a lineage that nobody honest signed, out of a roster of three or more,
 *        unless it had given up
 *   I15  nobody is on a roster that was not admitted, or as an incarnation that it never was, and
 *        nobody honest is taken off it that was not silent and did not leave
 *   I16  whoever promised a contribution in time is in the sum: nobody who promised is left out of
 *        what is proposed, and no part is decided by a few of the contributors
 */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include "gossip/agree/agree.h"
#include "gossip/member/inquiry.h"

#include <stddef.h>
#include <stdio.h>

enum {
    SIM_HOSTS_MAX = 200,
    SIM_FAULTS_MAX = 64,
    SIM_RESULTS_MAX = 256, /* results that a host keeps */
    SIM_LINEAGES_MAX = 64,
    SIM_BEGUN_MAX = 1024,
    SIM_FRAGMENTS = 2,
    SIM_GOT_MAX = 64,
    SIM_REPLAYS = 8, /* old messages kept per host, to be said again */
};
#define SIM_MS 1000000ull
#define SIM_SECOND 1000000000ull

typedef enum sim_hostility {
    SIM_HONEST,
    SIM_LIES,
    SIM_EQUIVOCATES,
    SIM_REPLAYS_OLD,
    SIM_FLOODS,
    SIM_FALSIFIES, /* the results of its parts */
    SIM_ACCUSES,
    SIM_CLAIMS,    /* votes for what nobody proposed */
    SIM_ORDERS,    /* a reset */
    SIM_WITHHOLDS, /* falsifies its parts, and gives what it brought to other liars at most */
    SIM_WRAPS,
    SIM_DEFAMES,
    SIM_INVENTS,    /* members that nobody admitted, or that did not ask; goodbyes */
    SIM_OMITS,      /* contributors */
    SIM_PARTIAL,    /* sums parts of one contribution */
    SIM_INFLATES,   /* tokens and samples */
    SIM_TAKES_OVER, /* leads others to lineages and states of its own */
    SIM_HOSTILITY_N
} sim_hostility;

typedef struct sim_options {
    uint64_t seed;
    uint32_t members, waiting; /* 0: the seed decides */
    bool trace, brisk;         /* brisk: rounds are much shorter than a heartbeat */
    bool audits;       /* as many members as the pool survives lie about parts, for many versions */
    uint64_t disabled; /* bit i: fault i does not happen */
    sim_hostility role; /* of all liars, of whom there are some; HONEST: the seed decides */
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
    SIM_WITHHELD,  /* contributions, from somebody who checks a part */
    SIM_WRAPPED,   /* claims beyond belief, of keys that nobody knows, too */
    SIM_DEFAMED,   /* false complaints, counts, and evidence about anybody */
    SIM_INVENTED,  /* members, incarnations, goodbyes */
    SIM_OMITTED,   /* contributors */
    SIM_PARTIAL_SUM,
    SIM_INFLATED,
    SIM_TAKEN, /* claims of a lineage or state that was made up */
    SIM_INJECTED_N
} sim_injected;

typedef struct sim_outcome {
    bool violated;
    char invariant[8]; /* "I1" ... */
    char what[200];
    uint64_t events, versions, virtual_ns, forks, moves, evidence, faults, audits, lies;
    bool strangers,
        beyond;          /* beyond: more liars were on a roster than are promised to be survived */
    uint64_t fault_bits; /* those that happened */
    uint64_t injected[SIM_INJECTED_N];
    uint32_t hosts;
} sim_outcome;

typedef enum sim_kind {
    SIM_DELIVER, /* message to host */
    SIM_TICK,
    SIM_EVENT,    /* an event for the machine, as prepared */
    SIM_DEFERRED, /* an action behind a disk barrier */
    SIM_WRITTEN,  /* a record reaches the disk */
    SIM_KNOWN,    /* a certificate is a fact: what it rests on is on disk */
    SIM_PULLED,   /* a question for bytes reaches a host */
    SIM_ASKED,    /* a question for state reaches a host */
    SIM_LOOK,     /* a host looks whether the contributions that it wants are there */
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
    uint64_t at_ns; /* when it was frozen */
} sim_span;

/* Contributions that a host wants, to check a part or for somebody who does. */
typedef struct sim_wanted {
    bool audit, accused;
    gsp_claim claim; /* of an audit */
    uint64_t version, within_ns;
    uint32_t part, wanted, looks;
    uint32_t before; /* bits: their makers had a link at the last look */
    gsp_key peer;
} sim_wanted;

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
    gsp_trail trail; /* the chain that led to `disk` */
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
    gsp_chain_terms terms;
    gsp_seals seals;
    gsp_inquiry inquiry;
    gsp_trail hope;               /* the chain of the state that was asked for last */
    gsp_trail lie;                /* what it makes up; n 0: nothing */
    gsp_saved lie_end, lie_saved; /* the state where that ends, and the one that it offers */
    gsp_saved was;                /* a state that it had before */
    uint64_t lie_ns, lie_anchor, was_anchor;
    gsp_begin begun; /* a BEGIN that it made up; ballot 0: none */
    uint32_t begun_ballot;
    uint64_t begun_version;
    gsp_genesis forged;                 /* generation 0: none */
    uint32_t n_falsified;               /* versions certified with a false part of its */
    uint64_t waits_from, waits_lineage; /* the newest version when its wait began */
    uint64_t lost_ns;                   /* when it lost its disk last */
    uint32_t n_lost;
    /* parts of others' contributions that it keeps for somebody: roots (first bytes) */
    struct {
        uint64_t root;
        uint32_t part;
    } got[SIM_GOT_MAX];
    uint32_t n_got;
} sim_host;

typedef struct sim_world {
    sim_options options;
    sim_outcome *out;
    uint64_t now_ns, order, random, calm_ns, end_ns, fault_random;
    uint32_t n_hosts, n_faults;
    sim_host *host[SIM_HOSTS_MAX];
    gsp_rules rules;
    gsp_genesis first;             /* of the pool's first lineage */
    gsp_hash begun[SIM_BEGUN_MAX]; /* lineages that somebody honest signed */
    uint32_t n_begun;
    gsp_hash lost[SIM_BEGUN_MAX]; /* lineages that somebody followed where nothing is promised */
    uint32_t n_lost;
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
    struct {          /* two proposals of one ballot, as the liars sign them */
        uint64_t version;
        uint32_t ballot;
        gsp_hash lineage, one, other;
    } twin;
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
void sim_host_hold(sim_host *host, uint64_t hash, uint64_t version);
/* The results of a proposal reach the disk. */
void sim_host_keep(sim_host *host, const gsp_proposal *proposal);

/* trail.c: the chain of a host, and those of others */
void sim_trail_boot(sim_world *w, sim_host *host, bool lost);
void sim_trail_stop(sim_host *host);
/* It asks a peer for its chain. */
void sim_trail_ask(sim_world *w, sim_host *host, uint32_t peer);
/* The state at the end of the chain that was heard last is wanted. */
void sim_trail_hope(sim_host *host);
/* A CHAIN_ASK or a CHAIN came. */
void sim_trail_heard(sim_world *w, sim_host *host, uint32_t from, const gsp_message *message);
/* Compares its chain with the one that it hopes for. */
void sim_trail_match(const sim_host *host, gsp_match *out);
/* A certificate is applied; a lineage begins; the state that was hoped for is adopted. */
void sim_trail_certify(sim_host *host, const gsp_certificate *certificate);
void sim_trail_begin(sim_host *host, const gsp_genesis *genesis);
void sim_trail_adopt(sim_host *host);

/* act.c */
void sim_act(sim_world *w, sim_host *host, const gsp_action *action);
void sim_later(sim_world *w, uint32_t to, uint64_t delay_ns, const gsp_event *event);
/* In a new lineage, or with another's state, what was contributed before counts for nothing. */
void sim_host_fresh_marks(const sim_world *w, sim_host *host);
/* What an honest owner says of a part. */
void sim_made(const gsp_hash *lineage, uint64_t version, uint32_t number,
              const gsp_contributor *contributor, uint32_t n_contributors, uint32_t included,
              gsp_part *out);

/* inputs.c */
void sim_audit(sim_world *w, sim_host *host, const gsp_action *action);
void sim_inputs(sim_world *w, sim_host *host, const gsp_action *action);
void sim_look(sim_world *w, sim_item *item);

/* hostile_state.c: a heartbeat of a lineage that is made up; true: it was changed */
bool sim_state_send(sim_world *w, sim_host *host, gsp_message *message);

/* hostile_audit.c */
/* What it does not give to a host. */
bool sim_hostile_withholds(const sim_host *host, const sim_host *from);
/* True: it sends something else. */
bool sim_hostile_defame(sim_world *w, sim_host *host, gsp_message *message);
void sim_hostile_audit_tick(sim_world *w, sim_host *host);

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

/* hostile_rules.c: the same for who comes and goes, contributors, parts and tokens */
bool sim_rules_send(sim_world *w, sim_host *host, uint32_t to, gsp_message *message);
/* What an owner includes in the sum of its part. */
uint32_t sim_rules_included(sim_world *w, const sim_host *host, uint32_t included);
/* Among strangers: two proposals in one ballot, and each liar signs both. */
bool sim_rules_equivocate(sim_world *w, sim_host *host, uint32_t to, gsp_message *message);
bool sim_admits(void *context, const gsp_key *key, const gsp_shown *shown, uint64_t now_ns);
void sim_shows(void *context, gsp_shown *out);

/* check_lineage.c */
/* A lineage begins with this host's signature. */
void sim_check_begun(sim_world *w, uint32_t host, const gsp_genesis *genesis);
/* This host signs a fork that another one begins; it need not have begun it yet when others follow. */
void sim_check_consents(sim_world *w, uint32_t host, const gsp_hash *lineage);
/* It may follow another one (I14). left: the roster that this one left; gave_up:
 * it had been without a quorum for long enough to follow anybody. */
void sim_check_followed(sim_world *w, uint32_t host, const gsp_roster *left, const gsp_hash *to,
                        bool gave_up);
bool sim_check_is_lost(const sim_world *w, const gsp_hash *lineage);
bool sim_check_is_begun(const sim_world *w, const gsp_hash *lineage);

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

/* check_rules.c */
/* What must hold of a certificate's contents (I4, I15, I16). */
void sim_check_contents(sim_world *w, const gsp_proposal *proposal);
/* Whether a proposal leaves out nobody honest who promised; and whether no roster of a lineage up to
 * a version had more liars than a pool survives, nor a liar founded it. */
bool sim_check_whole(const sim_world *w, const gsp_propose *propose);
bool sim_check_promised(const sim_world *w, const gsp_proposal *proposal);

/* check.c again */
/* Every second in calm. */
void sim_check_waits(sim_world *w);

#endif
