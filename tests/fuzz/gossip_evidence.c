/*
 * Any bytes as a file of evidence: they are refused, or they convict somebody of what it signed.
 * The sum over the file and the hash over the contributions are made right first, so that what lies
 * behind them is reached; the accused's seal is not, but for the seeds that carry one.
 */
#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "gossip/member/evidence.h"
#include "gossip/trust/identity.h"
#include "tests/fuzz/evidence_terms.h"

#include <sodium.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static gsp_finding finding;
    static bool ready;
    ready = ready || gsp_crypto_start() == ATOM_OK;
    ATOM_ASSERT(ready);
    if (size < 40)
        return 0;
    uint8_t *file = atom_alloc(1, size);
    ATOM_ASSERT(file);
    memcpy(file, data, size);
    for (uint32_t k = 0; k < EVIDENCE_TERMS_N; k++) {
        const gsp_terms terms = evidence_terms(k);
        if (k & 1)
            crypto_generichash(file + size - 32, 32, file, size - 32, NULL, 0);
        if (gsp_evidence_judge(&terms, file, size, &finding) == ATOM_OK)
            ATOM_ASSERT(finding.verdict == GSP_VERDICT_RIGHT || finding.verdict == GSP_VERDICT_LIE);
        gsp_evidence words;
        (void)!gsp_evidence_judge_words(file, size, &words);
    }
    atom_free(file);
    return 0;
}
