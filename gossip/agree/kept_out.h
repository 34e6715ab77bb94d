/*
 * Keys that a roster goes on without because they withheld what they contributed
 * (docs/design/pool.md#hostile-members). Certificates carry them, each with the number of versions
 * that it still stays out, so that all voters refuse the same joiners: a rule that some voters know
 * and others do not could leave a version without a decision. The start of a fork or a reset carries
 * them on, so that nobody comes in again by it.
 *
 * Pure. Thread: any. Errors: none.
 */
#ifndef GOSSIP_AGREE_KEPT_OUT_H
#define GOSSIP_AGREE_KEPT_OUT_H

#include "gossip/agree/types.h"

/* For how many versions a key stays out, in a pool whose versions are due after time_due_ns: about
 * `withheld_ns`, by a number that all members know alike. */
uint32_t gsp_kept_out_versions(uint64_t withheld_ns, uint64_t time_due_ns);
/* For how many more versions a certificate keeps this key out; 0: it does not. */
uint32_t gsp_kept_out_left(const gsp_proposal *proposal, const gsp_key *key);
/*
 * Fills in what proposal bars after the certificate `before`: the same keys, each for one version
 * less, then those of `out` (bits of before->next) for `versions`. Of more than GSP_BARRED_MAX the
 * first are let go.
 */
void gsp_kept_out_next(const gsp_proposal *before, uint32_t out, uint32_t versions,
                       gsp_proposal *proposal);
/* NULL, or what is wrong with what proposal bars after `before`. *out: as above, of the keys that
 * are new. */
const char *gsp_kept_out_wrong(const gsp_proposal *before, uint32_t versions,
                               const gsp_proposal *proposal, uint32_t *out);

#endif
