/*
 * The members that this one has banned since it was opened, with the reasons, and the evidence in
 * its directory (evidence.h): written when somebody is convicted, read again after a restart. Of
 * one member one file is kept: a second proof says nothing that the first does not.
 *
 * Thread: the member's. Errors: none; evidence that cannot be written is logged, and the ban then
 * holds until a restart.
 */
#ifndef GOSSIP_MEMBER_BAN_FILES_H
#define GOSSIP_MEMBER_BAN_FILES_H

#include "gossip/agree/agree.h"
#include "gossip/member/evidence.h"

enum { GSP_BANS_SHOWN = 4 };

/* A member that is banned, and why. */
typedef struct gsp_ban {
    gsp_key key;
    char why[160];
    char file[256]; /* the evidence: evidence.h; "": there is none */
} gsp_ban;

typedef struct gsp_ban_files {
    const char *directory;
    uint32_t n;                  /* since open */
    gsp_ban ban[GSP_BANS_SHOWN]; /* the newest; n % GSP_BANS_SHOWN is the next place */
} gsp_ban_files;

/* Two statements that convict their signer, about to be passed on. */
void gsp_ban_files_statements(gsp_ban_files *bans, const gsp_evidence *evidence);
/* An owner's claim that was proven false: exhibit[claim->n_contributors] shows it. */
void gsp_ban_files_claim(gsp_ban_files *bans, const gsp_genesis *genesis, const gsp_claim *claim,
                         const gsp_exhibit *exhibit);
/* The agreement has banned members beyond the first n_before since it was opened: those that have
 * no reason here get one. */
void gsp_ban_files_follow(gsp_ban_files *bans, const gsp_agree *agree, uint64_t n_before);

/* The newest certificate keeps these members out from now on. */
void gsp_ban_files_barred(const gsp_agree *agree);

/* After a restart: calls `found` for every member that the files in the directory convict. */
void gsp_ban_files_recall(gsp_ban_files *bans, const gsp_terms *terms,
                          void (*found)(void *context, const gsp_key *key), void *context);

#endif
