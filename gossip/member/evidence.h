/*
 * Evidence against an owner as a file (claim.h): what it said of a part, under its seal, and the
 * very contributions that it said it summed. Whoever has the pool's manifest can do the sum again
 * and needs to believe nobody.
 *
 *   8 bytes "atomevi5", u32 bytes of the claim, the claim (wire.h: genesis of its lineage, what the
 *   owner said, the contributors with their roots)
 *   for every contributor that was included, ascending: u32 hashes in the path, the path
 *   (merkle.h), u64 bytes, zeros up to a multiple of 8 from the start of the file, the encoded part
 *   32 bytes BLAKE2b of all before
 *
 * And evidence against a member that signed two statements where one is allowed
 * (gsp_statements_convict):
 *
 *   8 bytes "atomtwo1", an EVIDENCE message (wire.h), 32 bytes BLAKE2b of all before
 *
 * Thread: any. gsp_crypto_start has succeeded.
 */
#ifndef GOSSIP_MEMBER_EVIDENCE_H
#define GOSSIP_MEMBER_EVIDENCE_H

#include "gossip/agree/claim.h"
#include "gossip/member/parts.h"

typedef struct gsp_finding {
    gsp_claim claim;
    gsp_hash lineage;
    gsp_part made;       /* what comes out; hash zero: nothing can */
    gsp_verdict verdict; /* RIGHT or LIE */
} gsp_finding;

/* exhibit[claim->n_contributors]. Errors  those of atom_file_write; ATOM_E_RESOURCE */
ATOM_MUST atom_status gsp_evidence_write(const char *path, const gsp_genesis *genesis,
                                         const gsp_claim *claim, const gsp_exhibit *exhibit);

/*
 * Does the sum again. data is 8-byte aligned.
 * Errors  ATOM_E_FORMAT  not a file of evidence, damaged, of another pool, not signed by the
 *         accused, or contributions that are not those of the claim: it proves nothing against
 *         anybody; ATOM_E_RESOURCE
 */
ATOM_MUST atom_status gsp_evidence_judge(const gsp_terms *terms, const void *data, size_t bytes,
                                         gsp_finding *out);

/* Errors  those of atom_file_write; ATOM_E_RESOURCE */
ATOM_MUST atom_status gsp_evidence_write_words(const char *path, const gsp_evidence *evidence);
/* A file that begins like one of two words. */
bool gsp_evidence_is_words(const void *data, size_t bytes);
/* Errors  ATOM_E_FORMAT  damaged, or two words that one honest member may have signed */
ATOM_MUST atom_status gsp_evidence_judge_words(const void *data, size_t bytes, gsp_evidence *out);
/* The two words, which judge_words gave, are about the lineage that begins with this genesis. */
bool gsp_evidence_words_are_of(const gsp_genesis *genesis, const gsp_evidence *evidence);
/* "it signed two votes in ballot 2 of version 17"; returns text. */
const char *gsp_words_text(const gsp_evidence *evidence, char *text, size_t bytes);

/* "part 3 of version 17: the owner's result is not the sum ..."; returns text. */
const char *gsp_claim_text(const gsp_claim *claim, char *text, size_t bytes);

#endif
