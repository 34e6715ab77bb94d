/*
 * What others see of a host in its pool: how far it has come, what its trainer should do, its
 * peers, the last rounds, and all of that as the JSON that the control socket answers
 * (docs/design/pool.md#what-the-user-sees).
 *
 * Plain values. Thread: any.
 */
#ifndef GOSSIP_POOL_STATUS_H
#define GOSSIP_POOL_STATUS_H

#include "gossip/directory/heartbeats.h"
#include "gossip/member/node.h"
#include "gossip/pool/manifest.h"
#include "gossip/pool/quota.h"

enum {
    GSP_POOL_REST_BYTES = 128,
    GSP_POOL_WHY_BYTES = 256,
    GSP_POOL_SHOWN_MAX = 64,
    GSP_POOL_ROUNDS_SHOWN = 32
};

typedef enum gsp_pool_stage {
    GSP_POOL_SEEKING,  /* looks for a member that answers */
    GSP_POOL_ASKING,   /* asks for an admission */
    GSP_POOL_READING,  /* waits for the manifest */
    GSP_POOL_FETCHING, /* fetches files: bytes_done of bytes */
    GSP_POOL_READY,    /* may be started */
    GSP_POOL_RUNNING,  /* takes part; gsp_pool_status.member says the rest */
    GSP_POOL_LEFT,     /* said goodbye */
    GSP_POOL_DEAD,     /* the text says why */
} gsp_pool_stage;

typedef enum gsp_pool_wish {
    GSP_POOL_GO,
    GSP_POOL_PAUSE, /* the user wants the machine: stop computing; the member stays in the pool */
    GSP_POOL_REST, /* this month's bytes are used up, or the disk is full: nothing is exchanged until
                    * the next month, or until there is room */
    GSP_POOL_STOP, /* save and exit: a user asked for it, or the pool is over for this host */
} gsp_pool_wish;

typedef struct gsp_pool_peer {
    uint8_t key[GSP_PUBLIC_BYTES];
    char name[32];
    bool self, up, on_roster, waiting, relayed;
    gsp_address address;                 /* of its end; zeros: relayed, or it is not linked */
    uint64_t certified, applied, tokens; /* as its last heartbeat said */
    uint64_t samples;                    /* of those tokens: trained in all */
    uint64_t brought; /* samples that counted, as the certificates say that this host applied */
    double share;     /* of what everybody brought, in the same count: 0 to 1 */
    gsp_rates rates;
    bool rests;     /* it says that it computes nothing now */
    bool muted;     /* what it brings counts for nothing, because it leads away from the others' */
    double heard_s; /* since its last message of the agreement; < 0: never */
} gsp_pool_peer;

typedef struct gsp_pool_round {
    uint64_t version;
    uint32_t n_contributors, n_roster;
    uint64_t tokens, samples; /* certified, with this version */
    double wall_s;            /* since 1970: when it was applied here */
    double round_s;           /* from our freeze to applied; 0: we contributed nothing */
} gsp_pool_round;

typedef struct gsp_pool_status {
    gsp_pool_stage stage;
    gsp_pool_wish wish;
    char text[GSP_POOL_WHY_BYTES]; /* one sentence: "training", "downloading 43 %", ... */
    uint32_t manifest;
    double up_s; /* since start */
    gsp_node_status member;
    uint64_t tokens, samples; /* certified */
    uint64_t own_samples;     /* trained since start; where sums are made, the mean member's part */
    uint64_t own_tokens;      /* in this and in earlier runs (gsp_pool_own_tokens) */
    uint64_t bytes_out, bytes_in;  /* on the wire, since start */
    gsp_quota quota;               /* of this month */
    uint64_t faults;               /* refused messages, strangers, records that did not open */
    gsp_heartbeats_seen directory; /* of the others, as they say */
    uint32_t n_peers;
    gsp_pool_peer peer[GSP_POOL_SHOWN_MAX]; /* ourselves first */
    uint32_t n_rounds;
    gsp_pool_round round[GSP_POOL_ROUNDS_SHOWN]; /* newest first */
} gsp_pool_status;

/* How much of the data set is here. */
typedef struct gsp_pool_data {
    uint32_t n_files, n_here;   /* here: in the directory, and what the manifest says */
    uint64_t bytes, bytes_here; /* of files; what an earlier download left of one counts as here */
    char missing[GSP_MANIFEST_FILE_NAME_BYTES]; /* the first that is missing; "": none */
    char wrong[GSP_MANIFEST_FILE_NAME_BYTES];   /* the first with other bytes; "": none */
    /* The first of those that was never this pool's, and so is not replaced; "": none. */
    char in_the_way[GSP_MANIFEST_FILE_NAME_BYTES];
} gsp_pool_data;

/* What the JSON says beside it. */
typedef struct gsp_pool_head {
    gsp_trust trust;
    const char *name, *settings; /* the manifest's */
    const uint8_t *key;          /* ours */
    bool is_owner;
    uint16_t port;
} gsp_pool_head;
/* A sentence as JSON. Paths have any bytes, and a text may be cut in the middle of a letter: where it is not UTF-8, everything but
 * ASCII becomes '?', so that no answer is lost for it. NULL: no memory. */
struct json_t *gsp_pool_text_json(const char *text);
/* As the control socket answers it; NULL: no memory. Give it back with json_decref. */
struct json_t *gsp_pool_status_json(const gsp_pool_status *status, const gsp_pool_head *head);

#endif
