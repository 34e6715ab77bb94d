/*
 * The manifest: what a pool is, in one text that its owner signed (docs/design/pool.md#manifest,
 * #who-gets-in). It changes only by a next one with a larger number, which may ban members and
 * bring a new pre-shared key; what is trained (fragments, anchor, codec, files) is the same in all
 * of them.
 *
 * Two forms. The text is JSON, for people and for the wire. What is signed is the hash of the
 * canonical bytes: all fields in a fixed order, so neither blanks nor the order of keys matter. A
 * text with unknown keys, with anything above its limits or without the owner's signature is
 * refused.
 *
 * `settings` is the trainer's own business (mode, H, outer optimizer): opaque here, but signed.
 * Files (config.json, tokenizer.json, run.yml, shards of data) are named by hash; a host that joins
 * gets from any member those that it wants, and checks them.
 *
 * Thread: any. Ownership: a manifest is a plain struct of about 40 KB; keep it on the heap.
 */
#ifndef GOSSIP_POOL_MANIFEST_H
#define GOSSIP_POOL_MANIFEST_H

#include "gossip/agree/agree.h"
#include "gossip/sum/quant.h"
#include "gossip/trust/ticket.h"

enum {
    /* What is added to it is for rules that older builds do not know, so that they refuse such a pool. */
    GSP_MANIFEST_FORMAT = 3,
    GSP_MANIFEST_FORMAT_CLIPS = 1,   /* clips_sums */
    GSP_MANIFEST_FORMAT_RETURNS = 2, /* shares_return */
    GSP_MANIFEST_FORMAT_PASSES = 4,  /* passes_on */
    GSP_MANIFEST_FORMAT_DRIFTS = 8,  /* drifts */
    GSP_MANIFEST_FORMAT_LAST = GSP_MANIFEST_FORMAT + 15,
    GSP_MANIFEST_NAME_BYTES = 64,      /* with the NUL */
    GSP_MANIFEST_FILES_MAX = 256,      /* config, tokenizer, run.yml, shards */
    GSP_MANIFEST_FILE_NAME_BYTES = 64, /* with the NUL */
    GSP_MANIFEST_BANNED_MAX = 64,
    GSP_MANIFEST_SETTINGS_BYTES = 4096,      /* with the NUL */
    GSP_MANIFEST_TEXT_BYTES_MAX = 96 * 1024, /* fits one message of CONTROL */
};

typedef struct gsp_manifest_file {
    char name[GSP_MANIFEST_FILE_NAME_BYTES]; /* letters, digits, "._-", no leading dot */
    uint64_t bytes;
    gsp_hash hash; /* BLAKE2b-256 of all bytes; of data: the root over its pieces (pieces.h) */
    bool later;    /* data: fetched by gsp_pool_data_fetch, not by gsp_pool_fetch */
} gsp_manifest_file;

typedef struct gsp_manifest {
    /* Who: filled in by gsp_pool_create. */
    uint32_t number; /* from 1 */
    uint8_t pool[GSP_POOL_BYTES];
    uint8_t owner[GSP_PUBLIC_BYTES];
    uint8_t founder[GSP_PUBLIC_BYTES]; /* R(1), incarnation 1: the creator */
    uint64_t created_s;
    gsp_hash key; /* gsp_manifest_key_hash of the pre-shared key that goes with this number */
    bool plain;   /* nanomsg's tcp without a gate, on a trusted LAN: no secrecy, no bans */

    /* What: the creator's draft. */
    char name[GSP_MANIFEST_NAME_BYTES]; /* for people: printable ASCII; may be empty */
    uint32_t n_fragments;
    uint64_t n_floats[GSP_FRAGMENTS_MAX]; /* of the anchor, per fragment */
    gsp_codec codec;
    gsp_hash anchor; /* of the genesis anchor, as the trainer hashes it */
    uint64_t tokens_per_sample;
    char settings[GSP_MANIFEST_SETTINGS_BYTES]; /* UTF-8 without control characters but \n */
    uint32_t n_files;
    gsp_manifest_file file[GSP_MANIFEST_FILES_MAX]; /* no name twice */

    /* Rules (agree.h); zeros in a draft mean gsp_agree_defaults. Seconds. */
    uint64_t samples_due; /* S */
    double time_due_s;    /* T */
    double fork_s;        /* T_fork */
    double heartbeat_s;
    double round_s;         /* the first round's timeout; later ones learn */
    uint32_t silent_rounds; /* k */
    gsp_trust trust;
    bool robust;     /* contributions are combined by robust.h, which mutes members that lean */
    bool clips_sums; /* ... though they are pieces of one sum (agree.h); only with robust */
    /* Members of pools that sum gradients have the share of work back soon after they stood still. Pools
     * from before 2026-11-26 do without. */
    bool shares_return;
    /* What is leased to members that rest is leased to others, if nobody brings anything (agree.h). Pools
     * from before 2026-11-28 do without. */
    bool passes_on;
    /* Members whose own work falls behind the others' lose their weight (agree.h); only with robust. Pools
     * from before 2026-11-29 mute those that lean backwards eight times in a row. */
    bool drifts;
    uint32_t n_parts; /* of a fragment; 0: chosen by gsp_manifest_complete */

    uint32_t n_banned;
    uint8_t banned[GSP_MANIFEST_BANNED_MAX][GSP_PUBLIC_BYTES];

    uint8_t signature[GSP_SIGNATURE_BYTES]; /* by the owner, GSP_FOR_MANIFEST */
} gsp_manifest;

/* Puts defaults in the place of zeros. ATOM_E_USAGE names what is out of bounds. */
ATOM_MUST atom_status gsp_manifest_complete(gsp_manifest *draft);
/* Signs everything else; the identity must be the owner's (ATOM_ASSERT). */
void gsp_manifest_sign(gsp_manifest *manifest, const gsp_identity *owner);
ATOM_MUST bool gsp_manifest_verify(const gsp_manifest *manifest);

/* JSON with a line break at its end, fresh memory (atom_free). ATOM_E_USAGE: it is longer than
 * GSP_MANIFEST_TEXT_BYTES_MAX (too many files). */
ATOM_MUST atom_status gsp_manifest_text(const gsp_manifest *manifest, char **text);
/*
 * Reads and verifies; `out` is written on success only. The text needs no NUL.
 * Errors  ATOM_E_FORMAT  not a manifest, out of bounds, of a newer atom, or not signed by its owner
 */
ATOM_MUST atom_status gsp_manifest_parse(const char *text, size_t bytes, gsp_manifest *out);
/* May `next` follow `now`: same pool, owner and matter, a larger number? NULL, or what is wrong. */
const char *gsp_manifest_follows(const gsp_manifest *now, const gsp_manifest *next);

/* Where its first lineage starts, and its rules for a member (but for admitted and assign). */
void gsp_manifest_genesis(const gsp_manifest *manifest, gsp_genesis *out);
void gsp_manifest_rules(const gsp_manifest *manifest, gsp_rules *out);
/* The hash of a pre-shared key that a manifest holds, so that a key that is passed on can be
 * believed. */
void gsp_manifest_key_hash(const uint8_t psk[GSP_PSK_BYTES], gsp_hash *out);
bool gsp_manifest_bans(const gsp_manifest *manifest, const uint8_t key[GSP_PUBLIC_BYTES]);
/* Bytes of its files, and of itself, that one member gives another in three hours: four times all of
 * them, so that a host that fetches again and again still gets them. */
uint64_t gsp_manifest_gives(const gsp_manifest *manifest);
/* NULL: no such file. */
const gsp_manifest_file *gsp_manifest_find(const gsp_manifest *manifest, const char *name);

#endif
