/*
 * How the members of one pool agree: which versions there are and what each did, who is on the
 * roster, which lineage to follow (docs/design/pool.md#agreement). It is a pure state machine:
 * gsp_agree_step takes one event and calls `sink` once per action, in order. It has no clock (each
 * event carries the member's own time), no sockets and no disk, and it allocates nothing.
 *
 * Inside a version it is Paxos with a rotating proposer. A ballot is prepared with a quorum,
 * proposes again the highest vote that it is told of, is echoed by those who find it right, and is
 * certified by a quorum of signed votes. Members vote only for what a quorum has echoed, so that a
 * proposer that proposes two things in one ballot gets votes for one of them at most.
 * Every message is checked; a wrong one is dropped and counted. A member that signs two things
 * where only one is allowed is convicted by its own signatures and banned. A member that tells of
 * a vote shows that a quorum echoed what it voted for (agree_proof.c), so no liar can make the
 * others propose something that nobody proposed.
 *
 * What the driver owes it:
 *   - It does the actions in order, and PERSIST is a barrier: nothing after it happens (no message
 *     leaves, nothing is applied) before the record is on disk. If the disk fails, everything after
 *     the barrier is dropped and the machine is closed; a new one opens from what is on disk.
 *   - A record with a vote names the results of its proposal: their bytes are made durable with it,
 *     since a vote promises them to everybody.
 *   - APPLY makes the anchor, momentum and certificate of a version durable together; then comes
 *     APPLIED.
 *   - Messages come over authenticated links: message->from.key is the link's key.
 *   - Time never runs backwards, also not across restarts: wall time, which stands still where the
 *     clock was set back.
 *   - It keeps the steps of the chain that led here (certificate_chain.h), gives them to whoever
 *     asks, and checks those of others. `match` compares the two: what was kept, and what was checked.
 *   - If the lineage or `applied` changed during the step of a STATE event, the machine has taken
 *     that state over. Then chain, anchor, certificate and genesis of `saved` and the machine's
 *     incarnation are made durable before anything else.
 *   - A member that left, and one that lost its records, comes back with a larger incarnation than
 *     it ever had.
 *   - Answers come as later events, never from inside the sink.
 *
 * Thread: the caller's. Errors: none. No input makes it assert; its own state does, if it is wrong
 * (agree_invariants.c).
 */
#ifndef GOSSIP_AGREE_AGREE_H
#define GOSSIP_AGREE_AGREE_H

#include "gossip/agree/certificate_chain.h"
#include "gossip/agree/claim.h"
#include "gossip/agree/round.h"

enum {
    GSP_PEERS_KNOWN_MAX = 64,   /* peers that are remembered, with a link or without */
    GSP_WAITING_MAX = 256,      /* joiners in the queue */
    GSP_BANNED_MAX = 256,       /* keys; the oldest that takes no part is forgotten */
    GSP_DURATIONS_MAX = 16,     /* rounds that the timeout learns from */
    GSP_BUDGET_PER_S = 400,     /* messages of one peer that are looked at */
    GSP_ANSWERS_PER_S = 20,     /* answers to questions of one peer */
    GSP_REPEATS_MAX = 60,       /* certificates that one peer is sent again in a minute; an honest
                                   one asks once in two heartbeats where answers are lost */
    GSP_BALLOT_STEP_MAX = 4096, /* by which a ballot may be ahead; honest ones take days for that.
                                   So no liar can use up all numbers */
    GSP_PATIENCE_FIRST = 256,
    GSP_REPLAY_MAX = 8,     /* certificates and results that every member keeps for others */
    GSP_AUDITS_MAX = 16,    /* parts of one version that a member checks by its own choice */
    GSP_ACCUSED_MAX = 4,    /* accusations that wait, one of each author */
    GSP_PROVEN_MAX = 4,     /* proven lies that are passed on; the oldest is forgotten */
    GSP_WITHHELD_MAX = 96,  /* rows of the table of members that withhold */
    GSP_COMPLAINTS_MAX = 4, /* of one member about one version, that are asked after */
    GSP_COMPLAINED_MAX =
        32,             /* contributions that are asked for because of one member in a minute */
    GSP_PULLS_MAX = 96, /* tries for a certified result before the whole state is fetched */
};

/* What a pool has fixed for all its members, and what this member's driver decides. Durations are
 * in ns of the member's own clock; gsp_agree_defaults fills in the usual ones
 * (docs/design/pool.md#what-the-user-sees). */
typedef struct gsp_rules {
    gsp_trust trust;
    uint64_t samples_due;  /* S: a version is due after so many samples of all members */
    uint64_t time_due_ns;  /* T: or after so long */
    uint64_t heartbeat_ns; /* also how often unanswered messages are repeated */
    uint64_t dead_ns;      /* after so much silence a member is not waited for */
    uint64_t round_ns;     /* timeout of the first ballot, before any round was measured */
    uint64_t round_min_ns, round_max_ns;
    uint64_t fork_ns;        /* T_fork: without a quorum for so long, a member goes on by itself */
    uint64_t withheld_ns;    /* for so long a member that withheld is counted, and about so long it
                                is not let in again (kept_out.h) */
    uint32_t silent_rounds;  /* k: after so many versions without a promise, off the roster */
    uint32_t audit_percent;  /* of all parts, how many somebody checks; 0: nobody checks */
    uint32_t against_rounds; /* K: after so many contributions against the others, weight 0; 0:
                                where a contribution leans has no effect */
    uint32_t n_parts;
    uint64_t fragment_bytes; /* of the largest fragment as it travels; 0: not known */
    /* What one member can bring to one version: so many samples, and so many tokens for each of
     * them. Tokens are counted since the last contribution to the same fragment and samples since
     * the last one to any, so this is a sample's length times the number of fragments. */
    uint64_t samples_max, tokens_per_sample;
    /* True: contributions are pieces of one sum, and members wait for each other. Weights are then
     * exactly the tokens. A version is due when every living member has said what it brings (the
     * samples of its heartbeat; 0: not yet, 1: nothing, more: something), and somebody brings
     * something, is silent, or can be let in. Where those who are done were leased half of all, it
     * is due without the others once an eighth to a third as long again has passed, and a heartbeat
     * (docs/design/pool.md#leases-by-speed). S has no meaning. */
    bool summed;
    /* Parts are combined by robust.h. What is summed then has exactly the tokens of its samples, which
     * are leased, so nobody chooses its weight; and it weighs at most twice the lower median. A version
     * is due without the others once more than two thirds of the roster are done, too. */
    bool robust;
    /* With `robust`: a member whose own work has fallen behind the others' in sum loses its weight, as it does
     * where a sum is clipped (proposal.h). False: one whose last against_rounds contributions leant
     * backwards. */
    bool drifts;
    /* With `summed`: as soon as the totals have so many samples, contributions are changes of members'
     * own work, by the rules for those, from the next version on. 0: that never happens. */
    uint64_t summed_samples;
    /* Where contributions are summed: how many samples member i of n brings to `version`, by the
     * state that the version before left; UINT64_MAX: not known now. NULL: nobody is told how much
     * to bring. A function of its context and of what is agreed, the same at all members. */
    uint64_t (*lease)(void *context, uint64_t version, uint32_t n, uint32_t i);
    void *lease_context;
    /* With `lease`: if all members that were leased something rest, and another one does not, a
     * version without contributions is due. After some of those what is open is leased to others
     * (batch.h). */
    bool passes_on;
    gsp_key owner; /* of the pool: the only one who may order resets */
    /* Whether a key may be a member by what it shows (docs/design/pool.md#who-gets-in), at the
     * member's own time; shown NULL: it is one, and may it stay? A function of its arguments and of
     * what the owner has said. NULL: every key may. */
    bool (*admits)(void *context, const gsp_key *key, const gsp_shown *shown, uint64_t now_ns);
    /* What I show. NULL: nothing. */
    void (*shows)(void *context, gsp_shown *out);
    /* Hands out parts by the members' rates; a member with `able` false may own none. NULL: in
     * proportion to min(up, down). */
    void (*assign)(void *context, const gsp_rates *rates, const bool *able, uint32_t n,
                   uint32_t n_parts, uint8_t *owner);
    void *context; /* of these functions */
} gsp_rules;

/* Whether contributions to a version are pieces of one sum, by the samples of the totals before it. */
static inline bool gsp_rules_sums(const gsp_rules *rules, uint64_t samples)
{
    return rules->summed && (!rules->summed_samples || samples < rules->summed_samples);
}

/* Whether pieces of that sum are clipped, and weigh what their members were leased. */
static inline bool gsp_rules_clips_sums(const gsp_rules *rules, uint64_t samples)
{
    return rules->robust && gsp_rules_sums(rules, samples);
}

/* Whether members are judged by how far they have fallen behind in sum (proposal.h). */
static inline bool gsp_rules_drifts(const gsp_rules *rules, uint64_t samples)
{
    return rules->robust && (rules->drifts || gsp_rules_sums(rules, samples));
}

/* What a member must not forget of the version in progress: promise, echo and vote. It is on disk
 * before anything is said that follows from it. */
typedef struct gsp_record {
    gsp_member self;
    gsp_hash lineage;
    uint64_t version;
    uint32_t promised, echoed, voted; /* ballots; 0: none */
    gsp_hash echo;                    /* of the proposal that was echoed */
    gsp_proposal proposal;            /* the one voted for */
    gsp_proof proof;                  /* that there was something to vote for */
} gsp_record;

/* Where a member starts: after creation, a restart, or a transfer of state. */
typedef struct gsp_saved {
    gsp_genesis genesis;
    bool has_certificate;        /* false: nothing is certified since genesis */
    gsp_certificate certificate; /* of the newest version applied */
    gsp_record record;           /* version 0: none */
} gsp_saved;

typedef enum gsp_event_kind {
    GSP_ON_TICK,    /* at the time of gsp_agree_deadline, or earlier; samples, tokens and rests are
                       set */
    GSP_ON_MESSAGE, /* message is set */
    GSP_ON_UP,      /* a link to peer */
    GSP_ON_DOWN,    /* and its end */
    GSP_ON_FROZEN,  /* version, contribution: an answer to FREEZE */
    GSP_ON_ARRIVED, /* version, peer, root, part: that part of peer's contribution is here and was
                       checked against its root */
    GSP_ON_REDUCED, /* version, ballot, part, included, hash, norm, lean: an answer to REDUCE */
    GSP_ON_HELD,    /* version, part, hash: the bytes of that result are here, checked */
    GSP_ON_APPLIED, /* version: an answer to APPLY */
    GSP_ON_CHAIN,   /* peer, match: an answer to CHAIN. NULL: there was none, or it was wrong */
    GSP_ON_STATE,   /* saved, match: an answer to STATE; the anchor of its version is applied and
                       durable. NULL: it failed */
    GSP_ON_AUDITED, /* version, part, verdict: an answer to AUDIT; withheld, where it stays open */
    GSP_ON_INPUTS,  /* version, peer, part, included, withheld: news about what INPUTS asked for
                       peer, or with my own key AUDIT for me. May come again and again */
    GSP_ON_PROVEN,  /* peer: before a restart, this member was proven to lie */
    GSP_ON_LEAVE,   /* the user wants to leave the pool */
    GSP_ON_RESET,   /* the owner wants a new lineage, with itself as founder */
} gsp_event_kind;

typedef struct gsp_event {
    gsp_event_kind kind;
    uint64_t now_ns;
    const gsp_message *message;
    const gsp_saved *saved;
    const gsp_match *match;
    gsp_key peer;
    uint64_t version, samples, tokens;
    bool rests; /* nothing is computed here now */
    uint32_t ballot, part, included;
    uint32_t withheld; /* bits of C(version)'s contributors: their makers had a link for all of
                          `within_ns`, and gave nothing */
    gsp_hash hash, root;
    float norm;
    int8_t lean[GSP_MEMBERS_MAX]; /* of `included` */
    gsp_contribution contribution;
    gsp_verdict verdict;
} gsp_event;

typedef enum gsp_to {
    GSP_TO_ONE,    /* action->peer */
    GSP_TO_ROSTER, /* everybody on the roster of the version in progress, but not me */
    GSP_TO_ALL,    /* over every link */
} gsp_to;

typedef enum gsp_action_kind {
    GSP_DO_PERSIST,     /* make `record` durable; a barrier */
    GSP_DO_SEND,        /* send `message` to `to` */
    GSP_DO_CERTIFICATE, /* send C(version) to peer; the newest if that one is not kept any more */
    GSP_DO_FREEZE,      /* freeze a contribution for version; answer FROZEN */
    GSP_DO_PART,        /* send `part` of my contribution of version to peer */
    GSP_DO_REDUCE,      /* combine `part` over the contributors `included` of `begin`; answer
                           REDUCED */
    GSP_DO_RESULT,      /* send the roster `message` (a REDUCED) and the bytes of `hash` after it */
    GSP_DO_PULL,        /* get the result `hash` of `part` from peer; answer HELD */
    GSP_DO_APPLY,       /* apply `certificate`; answer APPLIED */
    GSP_DO_CHAIN,       /* get the chain of `lineage` from peer, and compare it with the one that
                           led here, or to the state that is being fetched; answer CHAIN */
    GSP_DO_STATE,       /* get genesis, certificate and anchor of where peer's chain leads; answer
                           STATE */
    GSP_DO_AUDIT,       /* get the contributions that `claim` names and combine them again; answer
                           AUDITED. peer: the accuser, who has them; zero: this member's own
                           choice, the contributors have them. What does not come within
                           `within_ns` is told by INPUTS, and asked of all members from then on */
    GSP_DO_INPUTS,      /* ask for `part` of the contributions `included` (bits of C(version)'s
                           contributors: gsp_withheld_find) those who made them, and keep it for
                           peer; answer INPUTS */
    GSP_DO_FOUND,       /* a new lineage starts here: make `genesis` durable, and this member's
                           incarnation on its roster; a barrier. The counts of contributed tokens
                           start anew, the anchor stays */
} gsp_action_kind;

typedef struct gsp_action {
    gsp_action_kind kind;
    gsp_to to;
    gsp_key peer;
    uint64_t version;
    uint32_t ballot, part, included;
    uint64_t within_ns;
    gsp_hash hash, lineage;
    const gsp_message *message; /* valid during the call, as are the others */
    const gsp_record *record;
    const gsp_begin *begin;
    const gsp_certificate *certificate;
    const gsp_genesis *genesis;
    const gsp_claim *claim;
} gsp_action;
typedef void gsp_sink(void *context, const gsp_action *action);

/* What a peer said is withheld from it: each time all others ask, so it is counted. */
typedef struct gsp_complaints {
    uint64_t last_ns, minute_ns; /* minute_ns: since when `asked` counts */
    uint32_t asked;              /* contributions in this minute */
    uint32_t turn;               /* which contributions of a long complaint are next */
    struct {
        uint64_t version;
        uint32_t n;
    } about[GSP_REPLAY_MAX]; /* by version % */
} gsp_complaints;

/* What a member knows of a peer. */
typedef struct gsp_peer {
    gsp_member who;
    bool up, known, rests;
    uint64_t heard_ns;
    gsp_hash lineage;
    uint64_t certified, applied, tokens, samples;
    uint64_t tokens_live; /* that it has trained, to be shown */
    uint64_t sequence;
    /* Until this version is certified, its word that it is done is not believed. */
    uint64_t doubted;
    /* When it was asked for its chain, and how long it is not asked again: whoever leads nowhere is
     * asked ever less, whatever it claims. */
    uint64_t chain_asked_ns, chain_wait_ns;
    gsp_hash chain_lineage; /* that it claimed then */
    uint64_t chain_news_ns; /* when another one last made it worth asking sooner */
    bool chain_far;         /* it sent what is far ahead in my lineage, and was not asked since */
    uint64_t wanted_ns, wanted_version; /* when it was asked for a certificate, and for which */
    uint32_t cost;                      /* of its evidence and accusations that were not true */
    uint64_t cost_ns;                   /* since when it lessens */
    gsp_complaints complaints;
    gsp_rates rates;
    uint64_t second; /* to which the two budgets below belong */
    uint32_t looked, answered;
    uint64_t shown;    /* the newest certificate that it was sent */
    uint64_t minute;   /* in which the next one counts */
    uint32_t repeated; /* certificates that it was sent and that were not newer than `shown` */
} gsp_peer;

typedef struct gsp_waiting {
    gsp_member who;
    uint64_t heard_ns;
    gsp_entry entry; /* checked; its wish is for the newest version that it said it holds */
} gsp_waiting;

typedef enum gsp_phase {
    GSP_IDLE,    /* not proposing */
    GSP_GATHER,  /* PREPARE was sent: promises come in */
    GSP_AVERAGE, /* BEGIN was sent: results of parts come in */
    GSP_DECIDE,  /* PROPOSE was sent: votes come in */
} gsp_phase;

typedef enum gsp_frozen {
    GSP_UNFROZEN,
    GSP_FREEZING, /* asked */
    GSP_FROZEN,
} gsp_frozen;

typedef struct gsp_agree_stats {
    uint64_t certified, ballots, refused, flooded, stale, evidence, forks, moves;
    uint64_t divided; /* chains that contradict mine: two quorums of one roster signed two things */
    uint64_t audits, audits_open, lies, false_claims; /* open: the bytes could not be had */
    uint64_t bans, withheld;                          /* withheld: members counted as withholding */
    uint64_t unanswered; /* questions for certificates by peers that had asked too often */
} gsp_agree_stats;

/* Checking what owners say (claim.h). */
typedef struct gsp_audits {
    uint64_t version;                  /* of `roster` and `todo` */
    gsp_roster roster;                 /* R(version): owners and contributors are indices into it */
    uint64_t todo[GSP_PARTS_MAX / 64]; /* bits: parts to check */
    bool on, accused;                  /* AUDIT was asked for; because somebody accuses */
    gsp_claim claim;
    gsp_key accuser;
    uint32_t n_heard, n_proven;
    struct {
        gsp_claim claim;
        gsp_key from;
    } heard[GSP_ACCUSED_MAX];
    gsp_claim proven[GSP_PROVEN_MAX];
    uint64_t said_ns;
} gsp_audits;

/* The contributors of a certified version, for those who look for their bytes. */
typedef struct gsp_named {
    uint64_t version; /* 0: none */
    gsp_roster roster;
    uint32_t n_contributors;
    gsp_contributor contributor[GSP_MEMBERS_MAX];
} gsp_named;

/* A member that this one counts as withholding. */
typedef struct gsp_withheld {
    gsp_key key;
    uint64_t incarnation;    /* that made the contribution */
    uint64_t version, at_ns; /* version: of the contribution */
    bool excused;            /* it came back with another memory, and that is not counted */
} gsp_withheld;

/* Contributions that are not to be had (docs/design/pool.md#hostile-members). */
typedef struct gsp_withholding {
    gsp_named named[GSP_REPLAY_MAX]; /* by version % */
    uint32_t n;
    gsp_withheld row[GSP_WITHHELD_MAX];
} gsp_withholding;

/* The machine. Anybody may read it; only agree*.c write it, and agree_invariants.c says what is
 * always true of it. */
typedef struct gsp_agree {
    gsp_rules rules;
    gsp_seals seals;
    gsp_member self;
    gsp_hash lineage;
    gsp_genesis genesis;
    gsp_agree_stats stats;
    uint64_t now_ns, sequence;
    uint64_t samples, tokens_live; /* mine, as the last tick said */
    gsp_rates rates;
    bool leaving, rests;

    /* What is certified. `certificate` is C(certified); before the first one of a lineage it is
     * made up from the genesis and has no votes. */
    uint64_t certified, applied;
    uint64_t certified_ns; /* when I learned of it */
    gsp_hash previous;     /* hash of its proposal; the lineage's id before the first */
    gsp_certificate certificate;
    bool applying;                        /* APPLY was asked for, APPLIED has not come */
    uint64_t missing[GSP_PARTS_MAX / 64]; /* bits: results of `certificate` that are not here yet */
    uint32_t pull_turn;

    /* The version in progress: certified + 1. */
    uint32_t self_i; /* my index in the roster, or GSP_NOBODY */
    gsp_record record;
    uint32_t view; /* the ballot that I take to be under way; 0: the version is not due */
    uint64_t view_until_ns, due_ns;
    bool lends;        /* it is due, and waits for a joiner that lags */
    uint32_t patience; /* gsp_view_late_learn; 0: nothing is learnt yet */
    uint32_t claimed;  /* bits of R(certified + 1) that said they are done before a ballot was on */
    uint32_t n_leased; /* members that have a lease of this version, as I know */
    uint64_t half_ns;  /* when I knew that half of what was leased is done; 0: it is not */
    uint64_t doubt_ns; /* when the link to the view's proposer broke; 0: it has led since */
    gsp_frozen frozen;
    gsp_contribution contribution;
    uint32_t promise_owed; /* ballot whose PROMISE waits for FROZEN; 0: none */
    gsp_round round;
    bool has_pending; /* `pending` is a PROPOSE that waits for its bytes, or was voted for */
    gsp_message pending;
    /* The highest of each member; kind 0: none. */
    gsp_statement echo[GSP_MEMBERS_MAX], vote[GSP_MEMBERS_MAX];
    uint64_t echo_ns; /* when my echo was said last */

    /* As proposer of `ballot`. */
    gsp_phase phase;
    uint32_t ballot;
    uint64_t phase_ns, phase_until_ns, said_ns;
    uint64_t most_ns;           /* when no more had not promised than may be liars; 0: not yet */
    uint32_t promised, refused; /* bit i: member i did */
    gsp_statement promise[GSP_MEMBERS_MAX];
    gsp_contribution brought[GSP_MEMBERS_MAX];
    uint32_t best_voted; /* the highest vote that promises tell of; 0: none */
    gsp_proposal best;
    gsp_proof best_proof;

    /* People. */
    gsp_peer peer[GSP_PEERS_KNOWN_MAX];
    uint32_t n_waiting, n_banned;
    gsp_waiting waiting[GSP_WAITING_MAX]; /* joiners, in the order of their arrival */
    gsp_key banned[GSP_BANNED_MAX];       /* in the order of their bans */
    uint32_t left;                        /* bits of the roster: said goodbye, or are banned */
    gsp_exit gone[GSP_MEMBERS_MAX]; /* of those: why, to be shown; first.kind 0: not known here */

    gsp_audits audits;
    gsp_withholding withholding;

    /* Timers. */
    uint64_t ahead_version; /* of the last certificate that came too early to be taken */
    gsp_key ahead;          /* who sent it: can be asked before its heartbeat says so */
    gsp_key state_from;     /* who was asked for a state last */
    uint64_t beat_ns, ask_ns, join_ns, chain_until_ns, pull_ns, quorum_ns;
    uint64_t lent_ns,
        lent_at_ns; /* how long versions waited for joiners of late, as counted then */
    uint64_t draft_ns, draft_said_ns;
    gsp_genesis draft; /* a fork that I want to begin, once its roster has signed; generation 0:
                          none */
    uint64_t duration_ns[GSP_DURATIONS_MAX];
    uint32_t n_durations;
    uint32_t reset; /* the newest one that the owner announced */
    gsp_message scratch;

    gsp_sink *sink;
    void *sink_context;
} gsp_agree;

void gsp_agree_defaults(gsp_rules *rules);

/*
 * Opens in place. `saved` is copied; NULL: a newcomer that has nothing and must get its state from
 * somebody. `self` has the incarnation of saved->record, or a larger one if records were lost.
 */
void gsp_agree_open(gsp_agree *agree, const gsp_rules *rules, const gsp_seals *seals,
                    const gsp_member *self, const gsp_rates *rates, const gsp_saved *saved,
                    uint64_t now_ns);
void gsp_agree_step(gsp_agree *agree, const gsp_event *event, gsp_sink *sink, void *context);
/* When the next TICK is wanted, by the member's own clock. */
uint64_t gsp_agree_deadline(const gsp_agree *agree);

/* What C(version) named, one of the newest GSP_REPLAY_MAX; NULL: not known. */
const gsp_named *gsp_withheld_find(const gsp_agree *agree, uint64_t version);
/* Who made contribution i of it; NULL: there is no such contribution. */
const gsp_member *gsp_withheld_maker(const gsp_named *named, uint32_t i);

/* Where contributions are pieces of one sum: how long those who were leased half of all samples, and
 * were done with them half_ns after the last certificate, wait for the others, which were leased
 * `missing` of all samples. patience: in 1024ths of half_ns; 0: GSP_PATIENCE_FIRST. What is little is
 * soon done by others, and is waited for less (docs/design/pool.md#leases-by-speed). */
uint64_t gsp_view_late_wait_ns(uint32_t patience, uint64_t missing, uint64_t all, uint64_t half_ns,
                               uint64_t heartbeat_ns);
/* The next patience, by whether a version came without somebody who had a lease. */
uint32_t gsp_view_late_learn(uint32_t patience, bool late);

/* R(certified + 1). */
const gsp_roster *gsp_agree_roster(const gsp_agree *agree);
/* Contributions to the version in progress are pieces of one sum. */
static inline bool gsp_agree_sums(const gsp_agree *a)
{
    return gsp_rules_sums(&a->rules, a->certificate.proposal.samples);
}
bool gsp_agree_is_member(const gsp_agree *agree);
/* How many members of the roster are here and stay: whoever is silent, or says goodbye, is not. */
uint32_t gsp_agree_here(const gsp_agree *agree);
/* The key was heard lately, in my lineage: whoever has a link and is silent there has not begun yet. */
bool gsp_agree_hears(const gsp_agree *agree, const gsp_key *key);
/* True for a member that has not reached a quorum for `least_ns`; *fork_in_ns then says in how long
 * it goes on by itself if none comes. */
bool gsp_agree_waits(const gsp_agree *agree, uint64_t least_ns, uint64_t *fork_in_ns);
/* Writes why nothing is certified, or that all is well, in plain words; returns text. */
const char *gsp_agree_explain(const gsp_agree *agree, char *text, size_t bytes);
/* Whether what member i of the roster brings next weighs nothing: gsp_proposal_mutes, of fewer than half. */
bool gsp_agree_mutes(const gsp_agree *agree, uint32_t i);

/*
 * The rules that every voter checks before it votes for a proposal of version certified + 1. NULL
 * when all is right, else what is wrong.
 *   changes   why anybody is new on its roster, or off it
 *   promised  bits of the roster: whose promises the proposal was made on
 *   out       bits of the roster: the promises name these as those who must go (gsp_withheld_out)
 */
const char *gsp_proposal_wrong(const gsp_agree *agree, const gsp_proposal *proposal,
                               const gsp_changes *changes, uint32_t promised, uint32_t out);

#endif
