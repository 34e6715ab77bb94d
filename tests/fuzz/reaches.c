/*
 * What the long lives among the seeds of gossip_signed come to: if none of them makes a member count
 * as withholding, be banned, be kept out and so on, the fuzzer that owns keys has lost its way to the
 * code that judges these, and says so nowhere.
 */
#include "tests/fuzz/gossip_signed.c"

#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <stdio.h>

enum { LIVES_BEGIN = 96, LIVES = 32, VERSIONS = 10 };

typedef struct reached {
    uint64_t versions, withheld, lies, bans, evidence, audits_open, false_claims, kept_out, joined;
} reached;

static void add(reached *r)
{
    const gsp_agree *a = &forge.agree[VICTIM];
    r->versions += a->stats.certified >= VERSIONS;
    r->withheld += a->stats.withheld;
    r->lies += a->stats.lies;
    r->bans += a->stats.bans;
    r->evidence += a->stats.evidence;
    r->audits_open += a->stats.audits_open;
    r->false_claims += a->stats.false_claims;
    r->kept_out += a->certificate.proposal.n_barred;
    r->joined += gsp_agree_is_member(&forge.agree[forge.n - 1]);
}

int main(int argc, char **argv)
{
    reached r = {0};
    if (argc != 2) {
        fprintf(stderr, "usage: fuzz_reaches FOLDER\n");
        return 2;
    }
    for (unsigned i = LIVES_BEGIN; i < LIVES_BEGIN + LIVES; i++) {
        char path[4096], *data = NULL;
        uint64_t bytes;
        snprintf(path, sizeof path, "%s/%03u", argv[1], i);
        if (atom_file_read(path, 1 << 20, &data, &bytes) != ATOM_OK) {
            fprintf(stderr, "fuzz_reaches: %s\n", atom_fail_message());
            return 1;
        }
        LLVMFuzzerTestOneInput((const uint8_t *)data, bytes);
        atom_free(data);
        add(&r);
    }
    printf("of %d lives %llu had %d versions; withheld %llu, lies %llu, bans %llu, evidence %llu, "
           "open "
           "%llu, false %llu, kept out %llu, joined %llu\n",
           LIVES, (unsigned long long)r.versions, VERSIONS, (unsigned long long)r.withheld,
           (unsigned long long)r.lies, (unsigned long long)r.bans, (unsigned long long)r.evidence,
           (unsigned long long)r.audits_open, (unsigned long long)r.false_claims,
           (unsigned long long)r.kept_out, (unsigned long long)r.joined);
    bool all = r.versions && r.withheld && r.lies && r.bans && r.evidence && r.audits_open &&
               r.kept_out && r.joined;
    if (!all)
        fprintf(stderr, "fuzz_reaches: something of this does not happen any more\n");
    return !all;
}
