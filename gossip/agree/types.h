/*
 * What members of a pool say to each other, as plain structs (docs/design/pool.md#agreement):
 * limits, ids, signed statements, and every message. wire.h encodes them, agree.h and round.h give
 * them meaning, and the driver (gossip/member) moves the bytes of contributions and results.
 *
 * The terms:
 *   version      one averaging of one fragment; versions are numbered from 1 and follow each other
 *   roster       the members that decide a version: R(v), at most 32
 *   certificate  what a version did, signed by a quorum of its roster: C(v). It names R(v + 1)
 *   lineage      a chain of certificates from one genesis; its id is in every message
 *   ballot       one attempt to agree on a version, led by one proposer
 *   part         a piece of the fragment; one member, its owner, sums it for everybody
 *
 * A count (n_...) says how much of an array is used. The rest is zero, so that equal messages are
 * equal bytes; wire.h refuses counts above the limits and does not send the rest. Integers are
 * little endian on the wire. Times are durations in nanoseconds: members never compare clocks.
 */
#ifndef GOSSIP_AGREE_TYPES_H
#define GOSSIP_AGREE_TYPES_H

#include <stdbool.h>
#include <stdint.h>

enum {
    GSP_MEMBERS_MAX = 32,   /* a roster; included contributors are bits of a uint32_t */
    GSP_PARTS_MAX = 256,    /* parts of one fragment: leaves of the Merkle trees, units of work */
    GSP_FRAGMENTS_MAX = 64, /* F */
    GSP_HASH_BYTES = 32,    /* BLAKE2b-256 */
    GSP_KEY_BYTES = 32,     /* Ed25519 public key */
    GSP_SEAL_BYTES = 64,    /* Ed25519 signature */
    GSP_CHUNK_BYTES = 512 * 1024, /* of a state; the last chunk of a fragment may be shorter */
    GSP_STATE_PATH_MAX = 20,      /* hashes that prove a chunk: up to 2^20 chunks a fragment */
    GSP_STATE_PULL_MAX = 32,      /* chunks asked for at once */
    GSP_SHOWN_BYTES_MAX = 384,    /* of a credential */
    GSP_BARRED_MAX = 32,          /* keys that a certificate keeps out */
    GSP_CHAIN_SAID_MAX = 16,      /* steps of one CHAIN */
    GSP_LOCATOR_MAX = 32,         /* ids of one CHAIN_ASK */
    GSP_HEALTH_RESTING = 2,       /* of a heartbeat */
    GSP_HEALTH_LEAVING = 3,
    GSP_NOBODY = 0xff,     /* an index into a roster that names no member */
    GSP_TYPES_VERSION = 9, /* of everything in this file */
};

/* Whom a pool expects among its members (docs/design/pool.md#trust). It decides how many votes make
 * a certificate, and how many hostile members that survives. */
typedef enum gsp_trust {
    GSP_FRIENDS,   /* hosts crash and nobody lies to win: more than half of the roster */
    GSP_STRANGERS, /* fewer than a third are hostile, in any role: more than two thirds */
    GSP_TRUST_N
} gsp_trust;

typedef struct gsp_hash {
    uint8_t byte[GSP_HASH_BYTES];
} gsp_hash; /* all zero: none */

typedef struct gsp_key {
    uint8_t byte[GSP_KEY_BYTES];
} gsp_key;

/* A member is a key and one unbroken memory of its votes. A member that lost its votes comes back
 * with a larger incarnation, as somebody new to the roster (docs/design/pool.md#restarts). */
typedef struct gsp_member {
    gsp_key key;
    uint64_t incarnation; /* from 1 */
} gsp_member;

typedef struct gsp_roster {
    uint32_t n;
    gsp_member member[GSP_MEMBERS_MAX]; /* ascending by key; a key occurs once */
} gsp_roster;

/* What a member's link can do, as the member measured it. 0: unknown. */
typedef struct gsp_rates {
    uint64_t up_bytes_per_s, down_bytes_per_s;
    bool accepts; /* others can open connections to it; a member without this owns no part */
} gsp_rates;

/* A statement is what a member signs (purpose GSP_FOR_AGREEMENT). Two of them convict their signer
 * if both are PROPOSE, both ECHO, or both VOTE, for the same lineage, version and ballot but different
 * subjects; so does a PROMISE that denies an earlier vote. Two different REDUCED convict nobody: an
 * owner that restarted may have other contributions at hand. */
typedef enum gsp_statement_kind {
    GSP_SAYS_PROMISE = 1, /* I will not vote in a ballot below this one; my highest vote is ... */
    GSP_SAYS_REDUCED,     /* the result of part `item` is this (subject: gsp_part_hash), made of
                             these contributions (root: gsp_contributors_hash); ballot 0 */
    GSP_SAYS_PROPOSE,     /* the proposal of this ballot (subject: gsp_proposal_hash) */
    GSP_SAYS_ECHO,        /* what was proposed to me in this ballot, and is right (subject:
                             gsp_proposal_hash) */
    GSP_SAYS_VOTE,        /* my vote in this ballot, after a quorum's echoes (subject likewise) */
    GSP_SAYS_LEAVE,       /* take me off the roster; valid in every version (version, ballot 0) */
    GSP_SAYS_JOIN,        /* put me on the next roster: I hold what this version made (subject: hash
                             of its proposal; ballot 0) */
    GSP_SAYS_N
} gsp_statement_kind;

typedef struct gsp_statement {
    uint8_t kind; /* gsp_statement_kind */
    gsp_hash lineage;
    uint64_t version;
    uint32_t ballot;  /* from 1 */
    uint32_t item;    /* REDUCED: the part; PROMISE: bits of the roster, the members that the
                         signer has banned or counts as withholding; else 0 */
    uint32_t voted;   /* PROMISE: ballot of the highest vote, 0: none; else 0 */
    gsp_hash subject; /* PROMISE: hash of the proposal voted for, zero: none; else as above */
    gsp_hash root;    /* PROMISE: hash of the frozen contribution (gsp_contribution_hash), zero:
                         none; REDUCED: gsp_contributors_hash; else zero */
    gsp_member signer;
    uint8_t seal[GSP_SEAL_BYTES];
} gsp_statement;

/* What one member brings to one version. Frozen at the version's first PREPARE, and the same in
 * all of its later ballots. */
typedef struct gsp_contribution {
    gsp_hash root;    /* Merkle root over its encoded parts; zero: brings nothing */
    uint64_t tokens;  /* since its last included contribution to this fragment */
    uint64_t samples; /* for the schedule and the global batch */
    gsp_rates rates;
} gsp_contribution;

/* A contribution as a round uses it: whose it is, and its weight. */
typedef struct gsp_contributor {
    uint8_t member; /* index into R(v), ascending */
    gsp_hash root;
    uint64_t tokens;
    uint64_t samples;
    uint64_t weight; /* min(tokens, 2 x median of tokens), an integer so that sums are exact; 0 for
                        a member whose contributions have long leant backwards (robust.h) */
} gsp_contributor;

/* The result of one part: what its owner says of it and the certificate repeats, with the owner's
 * seal. So everybody who has the certificate can hold the owner to its word (claim.h). */
typedef struct gsp_part {
    gsp_hash hash;                /* of the encoded result; zero: this part stays unchanged */
    uint32_t included;            /* bit i: contributor i of the round is in the sum */
    uint64_t weight;              /* sum of the weights of those; 0 when unchanged */
    float norm;                   /* of the decoded result; finite, >= 0 */
    int8_t lean[GSP_MEMBERS_MAX]; /* of each included contributor (robust.h); else 0 */
    uint8_t owner;                /* index into R(version); 0 when unchanged */
    uint8_t seal[GSP_SEAL_BYTES]; /* of its REDUCED (gsp_reduced_statement) */
} gsp_part;

/* A key that withheld what it contributed. */
typedef struct gsp_barred {
    gsp_key key;
    uint32_t versions; /* for so many more the key is on no roster (kept_out.h) */
} gsp_barred;

/* What a version does. Its hash is what is voted for. */
typedef struct gsp_proposal {
    gsp_hash lineage;
    uint64_t version;
    gsp_hash previous; /* gsp_proposal_hash of C(version-1); for the first: the lineage's id */
    uint64_t tokens;   /* certified in this lineage so far, this version included */
    uint64_t samples;
    uint32_t n_contributors, n_parts;
    gsp_contributor contributor[GSP_MEMBERS_MAX];
    gsp_part part[GSP_PARTS_MAX];
    gsp_roster next;                  /* R(version+1) */
    uint64_t since, made;             /* the versions that put R(version) and `next` together, so
                                         that no change between them can be left out of a chain */
    uint8_t missed[GSP_MEMBERS_MAX];  /* of `next`: versions in a row without a promise */
    uint8_t against[GSP_MEMBERS_MAX]; /* of `next`: contributions in a row that leant backwards
                                         (gsp_proposal_against) */
    uint32_t n_barred;
    gsp_barred barred[GSP_BARRED_MAX];
} gsp_proposal;

/* One member's vote in a certificate. */
typedef struct gsp_mark {
    uint8_t member; /* index into R(version), ascending */
    uint8_t seal[GSP_SEAL_BYTES];
} gsp_mark;

/* C(version): a proposal with the votes of a quorum of R(version), all of one ballot. */
typedef struct gsp_certificate {
    gsp_proposal proposal;
    uint32_t ballot;
    uint32_t n_votes;
    gsp_mark vote[GSP_MEMBERS_MAX];
} gsp_certificate;

/* What the hash of a proposal is taken over: what follows from a version, and of what it did only a
 * hash (gsp_contents_hash). */
typedef struct gsp_head {
    gsp_hash lineage;
    uint64_t version;
    gsp_hash previous;
    uint64_t tokens, samples;
    gsp_hash contents;
    gsp_roster next;
    uint64_t since, made;
} gsp_head;

/* The pool owner's order: the reset with the genesis's number begins after this version of this
 * lineage. Forks of that reset repeat the order, so nobody but the owner can start a lineage with
 * that number. */
typedef struct gsp_order {
    gsp_hash parent;
    uint64_t version;
    uint8_t seal[GSP_SEAL_BYTES]; /* by the owner, over pool, cell, reset, parent, version */
} gsp_order;

/* The start of a lineage, whose id is gsp_genesis_hash. The owner makes the first one from the
 * manifest. A fork continues after a version of its parent with those members that agreed to it,
 * and all of them sign (docs/design/pool.md#forks). A reset is a fork ordered by the owner: it wins
 * against every lineage with a lower reset number. */
typedef struct gsp_genesis {
    gsp_hash pool;       /* the pool's id */
    uint32_t cell;       /* 0 until there are several (docs/design/pool.md#beyond-32-members) */
    uint32_t reset;      /* 0, or the number of the owner's reset */
    uint32_t generation; /* how many forks and resets lie between it and the first lineage */
    gsp_hash parent;     /* the lineage it came from; zero: none */
    uint64_t version;    /* it continues after this version of the parent; 0: from the start */
    gsp_hash previous;   /* the parent's proposal of that version; zero: none */
    gsp_hash anchor;     /* hash of the anchor it starts from */
    uint64_t tokens, samples; /* certified until then */
    gsp_member founder;
    gsp_roster roster; /* R(version+1), the founder among them; n 0: the founder alone */
    uint32_t n_barred; /* as after the parent's version: a fork lets nobody in again */
    gsp_barred barred[GSP_BARRED_MAX];
    gsp_order order;              /* zero where reset is 0 */
    uint8_t seal[GSP_SEAL_BYTES]; /* by the owner (reset, first) or by the founder (fork) */
    uint8_t consent[GSP_MEMBERS_MAX][GSP_SEAL_BYTES]; /* by each of the roster over the same; the
                                                         founder's is zero */
} gsp_genesis;

/* A certificate without what it did. */
typedef struct gsp_chain_link {
    gsp_head head;
    uint32_t ballot;
    uint32_t n_votes;
    gsp_mark vote[GSP_MEMBERS_MAX];
} gsp_chain_link;

/* A step of the chain that shows which roster decides a lineage now, and why (certificate_chain.h). */
typedef struct gsp_step {
    bool is_genesis;
    union {
        gsp_genesis genesis;
        gsp_chain_link link;
    } as;
} gsp_step;

/* ---- messages ---- */

/* What a host shows to be let in (gossip/trust/admission.h): only bytes here, which the rules'
 * `admits` judges. bytes 0: nothing, which is enough for some. */
typedef struct gsp_shown {
    uint32_t bytes;
    uint8_t data[GSP_SHOWN_BYTES_MAX];
} gsp_shown;

/* Why a member of the next roster is one that was not on this roster: it asked to be let in now, and
 * it was admitted, or comes back as a larger incarnation of a member (nothing is shown then). */
typedef struct gsp_entry {
    gsp_statement wish; /* JOIN */
    gsp_shown shown;
} gsp_entry;

/* Why somebody who is not silent is off the roster: its goodbye (LEAVE), or two statements that
 * convict it. */
typedef struct gsp_exit {
    gsp_statement first, second; /* second.kind 0: first is a LEAVE */
} gsp_exit;

/* The reasons for what is new in a roster. They travel beside the proposal, and are not in its
 * hash. */
typedef struct gsp_changes {
    uint32_t n_entries, n_exits;
    gsp_entry entry[GSP_MEMBERS_MAX]; /* ascending by key: all that are new */
    gsp_exit exit[GSP_MEMBERS_MAX];   /* ascending by key: those that are known here */
} gsp_changes;

typedef enum gsp_message_kind {
    GSP_HEARTBEAT = 1, /* every second, over every link */
    GSP_PREPARE,       /* proposer -> roster */
    GSP_PROMISE,       /* member -> proposer */
    GSP_REFUSE,        /* member -> proposer: I promised a later ballot */
    GSP_BEGIN,         /* proposer -> roster: who contributes, who owns which part */
    GSP_REDUCED,       /* owner -> roster: what the result of a part is; its bytes follow */
    GSP_PROPOSE,       /* proposer -> roster */
    GSP_ECHO,          /* member -> roster: I was proposed this, and it is right */
    GSP_VOTE,          /* member -> roster: a quorum was, and I hold the results */
    GSP_CERTIFY,       /* a certificate, to a member that lacks it */
    GSP_ASK,           /* I lack the certificate of this version */
    GSP_JOIN,          /* take me on the roster; repeated while waiting */
    GSP_WAIT,          /* the answer: your place in the queue */
    GSP_LEAVE,         /* a signed goodbye; passed on by members */
    GSP_EVIDENCE,      /* two statements that nobody honest signs; passed on by members */
    GSP_ACCUSE,        /* an owner's false word: every receiver computes the part again */
    GSP_LINEAGE,       /* the genesis of a fork or reset; of a fork also before all have signed */
    GSP_CONSENT,       /* member -> founder: I sign that fork */
    GSP_WITHHELD,      /* member -> roster: these contributions were not given to me */
    GSP_PIECE,         /* bulk: head of some bytes of a contribution or of a result */
    GSP_PULL,          /* send me these bytes */
    GSP_STATE_ASK,     /* joiner -> everybody: which state do you hold? Has no body */
    GSP_STATE_ROOTS,   /* the answer, signed */
    GSP_STATE_PULL,    /* joiner -> donor: send me these chunks */
    GSP_STATE_NONE,    /* the answer when the donor does not hold them (any more) */
    GSP_STATE_CHUNK,   /* bulk: head of the bytes of one chunk */
    GSP_CHAIN_ASK,     /* which steps lead to where you are? */
    GSP_CHAIN,         /* the answer, a few of them at a time */
    GSP_MESSAGE_N
} gsp_message_kind;

typedef struct gsp_heartbeat {
    uint64_t sequence;    /* grows within an incarnation */
    uint64_t applied;     /* newest version applied */
    gsp_hash anchor;      /* gsp_proposal_hash of the newest certificate */
    uint64_t tokens;      /* certified in the sender's lineage */
    uint64_t samples;     /* processed since the newest certificate (ATOM's heartbeat) */
    uint64_t tokens_live; /* trained in all, to be shown */
    gsp_rates rates;
    uint8_t health;    /* 0: well; GSP_HEALTH_RESTING, GSP_HEALTH_LEAVING */
    uint32_t round_ms; /* how long the last round took, to be shown */
} gsp_heartbeat;

typedef struct gsp_prepare {
    gsp_hash previous; /* gsp_proposal_hash of C(version-1) */
} gsp_prepare;

/* What shows that there was something to vote for in a ballot: a quorum echoed it. One of them is
 * honest, and echoes only what it has found right; and no two proposals have one in the same
 * ballot. */
typedef struct gsp_proof {
    gsp_changes changes; /* of the proposal's roster */
    uint32_t n;
    gsp_statement echo[GSP_MEMBERS_MAX]; /* ascending by signer */
} gsp_proof;

typedef struct gsp_promise {
    gsp_statement statement;
    gsp_contribution contribution; /* statement.root is its hash */
    bool has_proposal;             /* same as statement.voted != 0: the two fields below are used */
    gsp_proposal proposal;
    gsp_proof proof; /* that it was proposed in ballot statement.voted */
} gsp_promise;

typedef struct gsp_refuse {
    uint32_t promised;
} gsp_refuse;

/* A part's owner is an index into R(version), or GSP_NOBODY: the part stays unchanged. A later
 * attempt of the same ballot changes nothing but owners: a dead owner's parts go to others. */
typedef struct gsp_begin {
    gsp_hash previous;
    uint32_t attempt;               /* from 0 */
    uint64_t collect_ns, finish_ns; /* from its arrival: contributions in, results out */
    uint32_t n_contributors, n_parts;
    gsp_contributor contributor[GSP_MEMBERS_MAX];
    uint8_t owner[GSP_PARTS_MAX];
} gsp_begin;

typedef struct gsp_reduced {
    gsp_statement statement; /* item is the part, subject is the hash of `part` and its number */
    gsp_part part;
} gsp_reduced;

/* The promises justify the ballot: they are a quorum's, and if any of them tells of a vote, the
 * proposal is that of the highest one; `proof` then shows that this vote was possible. */
typedef struct gsp_propose {
    gsp_statement statement;
    gsp_proposal proposal;
    uint32_t n_promises;
    gsp_statement promise[GSP_MEMBERS_MAX]; /* ascending by signer */
    gsp_proof proof;                        /* n 0: no promise tells of a vote */
} gsp_propose;

typedef struct gsp_vote { /* and ECHO */
    gsp_statement statement;
} gsp_vote;

typedef struct gsp_certify {
    gsp_certificate certificate;
} gsp_certify;

typedef struct gsp_ask {
    uint64_t version;
} gsp_ask;

/* What the roster needs of a joiner; whoever proposes it shows both to all voters. */
typedef struct gsp_join {
    gsp_entry entry; /* the version that it holds is its wish's */
    gsp_rates rates;
} gsp_join;

typedef struct gsp_wait {
    uint32_t place; /* from 1; 0: there is room, the next roster takes you */
    uint32_t n_waiting, n_members;
} gsp_wait;

typedef struct gsp_leave {
    gsp_statement statement;
} gsp_leave;

typedef struct gsp_evidence {
    gsp_statement first, second; /* of one signer */
} gsp_evidence;

/* What an owner said of one part, and the contributions that it spoke of
 * (docs/design/pool.md#hostile-members). Its seal is in `part`; the lineage is the message's. */
typedef struct gsp_claim {
    uint64_t version;
    gsp_member owner;
    uint32_t number; /* of the part */
    gsp_part part;
    uint32_t n_contributors;
    gsp_contributor contributor[GSP_MEMBERS_MAX];
} gsp_claim;

typedef struct gsp_accuse {
    gsp_claim claim;
} gsp_accuse;

/* Contributions that somebody checks a part with, and that the members who made them do not give
 * it: every receiver asks for them itself, and keeps them for the sender. */
typedef struct gsp_missing {
    uint64_t version;
    uint32_t part;
    uint32_t missing; /* bits of C(version)'s contributors */
} gsp_missing;

typedef struct gsp_lineage {
    gsp_genesis genesis;
} gsp_lineage;

/* Bytes [offset, offset + bytes) of one part. root names what they belong to: the Merkle root of a
 * contribution, or the hash of a result. The last piece of a part carries its Merkle path. */
typedef struct gsp_piece {
    gsp_hash root;
    bool is_result;
    uint8_t codec; /* quant.h */
    uint32_t part;
    uint32_t sequence; /* of the piece within the part, from 0 */
    uint64_t offset, bytes, part_bytes;
    uint32_t n_path; /* hashes of the Merkle path; 0 except with the last piece */
    gsp_hash path[8];
} gsp_piece;

typedef struct gsp_pull {
    gsp_hash root;
    bool is_result;
    uint32_t part;
    uint64_t offset; /* the bytes before it are here already */
} gsp_pull;

/* A joiner asks for the state (anchor and momentum) of every fragment. The state of fragment f
 * after version v is that of the newest version <= v that concerns f (version % n_fragments == f);
 * 0: no version did yet. It is cut into chunks of GSP_CHUNK_BYTES, the leaves of a Merkle tree
 * (merkle.h) whose root is the same at every member. The seal covers lineage, signer, certificate
 * and roots (transfer.h). */
typedef struct gsp_state_root {
    uint64_t version, n_floats;
    gsp_hash root; /* zero where n_floats is 0 */
} gsp_state_root;

typedef struct gsp_state_roots {
    gsp_genesis genesis;
    bool has_certificate;        /* false: nothing is applied since genesis */
    gsp_certificate certificate; /* of the newest version applied */
    uint32_t n_fragments;
    gsp_state_root fragment[GSP_FRAGMENTS_MAX];
    uint8_t seal[GSP_SEAL_BYTES];
} gsp_state_roots;

/* Chunks [first, first + n) of a fragment. A NONE repeats the PULL that it answers. */
typedef struct gsp_state_pull {
    uint32_t fragment;
    uint64_t version;
    gsp_hash root;
    uint32_t first, n;
} gsp_state_pull;

typedef struct gsp_state_chunk {
    uint32_t fragment;
    uint64_t version;
    gsp_hash root;
    uint32_t chunk, bytes;
    uint32_t n_path;
    gsp_hash path[GSP_STATE_PATH_MAX];
} gsp_state_chunk;

typedef struct gsp_consent {
    gsp_hash lineage; /* the fork's id */
    uint8_t seal[GSP_SEAL_BYTES];
} gsp_consent;

/* Ids of steps (gsp_step_id) that the asker has, ever fewer of the older ones; the answer begins
 * after the newest of them that the other has, or at the first lineage. */
typedef struct gsp_chain_ask {
    uint32_t n;
    gsp_hash known[GSP_LOCATOR_MAX];
} gsp_chain_ask;

typedef struct gsp_chain_said {
    gsp_hash after; /* id of the step before these; zero: from the first lineage on */
    bool more;      /* others follow the last of these */
    uint32_t n;
    gsp_step step[GSP_CHAIN_SAID_MAX];
} gsp_chain_said;

/* Every message has the same head. Of `from` only the incarnation travels, since the link says
 * whose key it is. A message that is passed on names its author in its statements. */
typedef struct gsp_message {
    gsp_message_kind kind;
    gsp_member from; /* key as the link has it, incarnation as the sender says */
    gsp_hash lineage;
    uint64_t version; /* PREPARE to VOTE: the version in progress
                         HEARTBEAT, JOIN, WAIT, ASK: the sender's newest certified version
                         CERTIFY: the certificate's; PULL: the result's
                         STATE_PULL: that of the certificate whose state is fetched
                         LEAVE, EVIDENCE, ACCUSE, LINEAGE, CONSENT, WITHHELD, CHAIN..., other
                         STATE_...: 0 */
    uint32_t ballot;  /* PREPARE to VOTE; CERTIFY: that of its votes; else 0 */
    union {
        gsp_heartbeat heartbeat;
        gsp_prepare prepare;
        gsp_promise promise;
        gsp_refuse refuse;
        gsp_begin begin;
        gsp_reduced reduced;
        gsp_propose propose;
        gsp_vote vote;
        gsp_certify certify;
        gsp_ask ask;
        gsp_join join;
        gsp_wait wait;
        gsp_leave leave;
        gsp_evidence evidence;
        gsp_accuse accuse;
        gsp_lineage announce;
        gsp_missing withheld;
        gsp_consent consent;
        gsp_piece piece;
        gsp_pull pull;
        gsp_state_roots roots;
        gsp_state_pull state_pull; /* and NONE */
        gsp_state_chunk chunk;
        gsp_chain_ask chain_ask;
        gsp_chain_said chain;
    } as;
} gsp_message;

#endif
