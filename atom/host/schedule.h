/*
 * Which pool of a box computes now (docs/design/pool.md#several-pools-on-one-box): a pure function
 * from (state, event, time) to an action. One pool computes at a time. What a pool has used is its
 * level: the seconds that it really computed, divided by its share; a second counts half as much a
 * day later. The pool with the lowest level, in the middle of the turn to come, is next, so a pool
 * that could not compute for a while catches up on what it missed in about the last day.
 *
 *            START            computes                 the turn is over            LEAVE
 *   IDLE ------------> STARTING ------> COMPUTING -----------------> FINISHING ------------> LEAVING
 *     ^                   rests ^  | rests    ^ goes on     a version is applied    |
 *     |                         RESTING ------'             or it took too long     |
 *     '------------------------------- the process has ended <----------------------'
 *
 * A pool is left only behind a version that it contributed to, so that little of its work is lost.
 * Units: seconds of one clock that only runs forwards. Plain values; thread: one at a time.
 */
#ifndef ATOM_HOST_SCHEDULE_H
#define ATOM_HOST_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

enum { HOST_POOLS_MAX = 64, HOST_NONE = -1 };

typedef enum host_phase {
    HOST_IDLE,      /* no process */
    HOST_STARTING,  /* it looks for members, fetches, loads */
    HOST_COMPUTING, /* steps are made */
    HOST_RESTING,   /* its own limits or its user do not let it compute */
    HOST_FINISHING, /* computes until the next version that it contributed to */
    HOST_LEAVING,   /* was asked to end */
} host_phase;

typedef enum host_event_kind {
    HOST_TICK,      /* time has passed */
    HOST_COMPUTES,  /* the process says so */
    HOST_RESTS,     /* the process says so */
    HOST_CERTIFIED, /* a version with a contribution of ours was applied */
    HOST_EXITED,    /* the process has ended; `end` says how */
    HOST_STOP,      /* the user wants the box: end for good */
} host_event_kind;

typedef enum host_end {
    HOST_END_ASKED,  /* as it was asked to, and its pool goes on */
    HOST_END_OVER,   /* its pool is done, or somebody had it leave */
    HOST_END_FAILED, /* an error, or a signal */
} host_end;

typedef enum host_action {
    HOST_DO_NOTHING,
    HOST_DO_START,     /* the process of `running` */
    HOST_DO_LEAVE,     /* ask it to say goodbye and to end */
    HOST_DO_TERMINATE, /* SIGTERM: save and end, without a goodbye */
    HOST_DO_KILL,      /* SIGKILL: it did not end */
} host_action;

typedef struct host_event {
    host_event_kind kind;
    double now;
    host_end end; /* HOST_EXITED */
} host_event;

/* Of one pool. The first four are kept on disk (ledger.h). */
typedef struct host_turn {
    double level;         /* decayed seconds of computing per unit of share */
    double computed_s;    /* in all, not decayed */
    double switch_s;      /* what a turn of it costs: to begin and to end; 0: not measured */
    double first_round_s; /* from its first step to its first version; 0: not measured */
    double share;         /* > 0 */
    bool allowed;         /* its hours; the caller sets it */
    bool over;            /* it has nothing to do any more */
    uint32_t failures;    /* in a row */
    double not_before;    /* backed off until then */
} host_turn;

typedef struct host_rules {
    double slice_s;              /* of a turn; 0: follows from what switches cost */
    double half_life_s;          /* of what was used */
    double start_patience_s;     /* then another pool has a turn, if one may */
    double rest_patience_s;      /* the same for one that rests */
    double certify_wait_s;       /* for the version behind which a pool is left */
    double leave_patience_s;     /* then SIGTERM, and after as long again SIGKILL */
    double retry_s, retry_max_s; /* behind the first failure in a row; behind any */
} host_rules;

typedef struct host_schedule {
    host_rules rules;
    host_turn turn[HOST_POOLS_MAX];
    uint32_t n;
    int32_t running; /* HOST_NONE: nobody */
    host_phase phase;
    bool stopping;     /* for good */
    bool put_back;     /* it leaves because it did not compute */
    double now, since; /* since: of the phase */
    double started;    /* the process */
    double slice_used; /* seconds computed in this turn */
    double start_s;    /* of this turn: to its first step; < 0: it is not there yet */
    bool certified;    /* a version in this turn */
    uint32_t asked;    /* how often it was asked to end: LEAVE, SIGTERM, SIGKILL */
    uint64_t n_starts, n_failures;
} host_schedule;

extern const host_rules host_rules_usual;

/* turns: with shares, and what was kept of them. A pool whose level is < 0 is new: it begins where
 * the lowest of the others is. */
void host_schedule_begin(host_schedule *s, const host_rules *rules, const host_turn *turns,
                         uint32_t n, double now);
host_action host_schedule_step(host_schedule *s, const host_event *event);
/* Seconds that a turn of this pool lasts at least. */
double host_schedule_slice(const host_schedule *s, uint32_t pool);
/* Lets time that nobody watched pass: what was used counts less. */
void host_schedule_age(host_schedule *s, double seconds);
/* The share of pool among those that are not over: 0 to 1. */
double host_schedule_due(const host_schedule *s, uint32_t pool);
const char *host_phase_name(host_phase phase);

#endif
