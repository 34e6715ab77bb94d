/*
 * Owns the list of what a member holds that grows with the model. One idea: whoever adds to it adds it
 * here. Refuses to know what the floats are.
 */
#include "gossip/member/size.h"

#include "gossip/agree/agree.h"

uint64_t gsp_member_host_bytes(const gsp_member_facts *f)
{
    uint64_t encoded = gsp_codec_bytes(f->codec, f->longest), bytes = 0;
    bytes += f->codec == GSP_CODEC_FP32 ? 0 : encoded; /* my contribution (freezing.h) */
    bytes += f->audits ? encoded : 0;                  /* the one before */
    bytes += encoded;                                  /* others' to my parts (inputs.h) */
    bytes += 2 * encoded; /* results in the making and certified ones (recent_results.h) */
    if (f->codec == GSP_CODEC_INT8 && !f->on_disk) /* residuals.h */
        bytes += 4 * (f->floats + f->longest);
    return bytes;
}

uint64_t gsp_member_disk_bytes(const gsp_member_facts *f)
{
    uint64_t encoded = gsp_codec_bytes(f->codec, f->longest);
    uint64_t bytes = GSP_REPLAY_MAX * encoded;         /* results.h */
    bytes += f->audits ? GSP_REPLAY_MAX * encoded : 0; /* own_inputs.h */
    if (f->codec == GSP_CODEC_INT8 && f->on_disk)
        bytes += 2 * 4 * f->floats; /* residuals.h */
    return bytes;
}
