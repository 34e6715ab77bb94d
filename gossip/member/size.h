/*
 * What a member takes of its host beside its work, from a pool's terms alone, so that it is known before
 * anything is fetched (docs/design/pool.md#what-a-member-holds).
 *
 * Thread: any. Errors: none.
 */
#ifndef GOSSIP_MEMBER_SIZE_H
#define GOSSIP_MEMBER_SIZE_H

#include "gossip/sum/quant.h"

typedef struct gsp_member_facts {
    gsp_codec codec;
    uint64_t floats, longest; /* of all fragments, and of the longest */
    bool audits;              /* contributions are kept for those who check */
    bool on_disk;             /* gsp_work.on_disk */
} gsp_member_facts;

/* Memory, when shares are equal and nobody lags. */
uint64_t gsp_member_host_bytes(const gsp_member_facts *facts);
uint64_t gsp_member_disk_bytes(const gsp_member_facts *facts);

#endif
