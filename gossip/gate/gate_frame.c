/*
 * Owns the rule of what reaches nanomsg. Its one idea: follow the lengths and look at heads only,
 * so that the cost does not depend on the size of messages. It refuses everything that nanomsg
 * itself would not have sent.
 */
#include "gossip/gate/gate_frame.h"

static const uint8_t GREETING[GSP_GREETING_BYTES] = {0, 'S', 'P', 0, 0, 16, 0, 0};

static bool head_right(gsp_frames *f)
{
    f->left = 0;
    for (unsigned i = 1; i < GSP_FRAME_HEAD_BYTES; i++)
        f->left = f->left << 8 | f->head[i];
    f->n_head = 0;
    return f->head[0] == 1 && f->left > 0 && f->left <= f->bytes_max;
}

bool gsp_frames_pass(gsp_frames *f, const uint8_t *data, size_t n)
{
    for (size_t at = 0; at < n;) {
        if (f->greeted < GSP_GREETING_BYTES) {
            if (data[at++] != GREETING[f->greeted++])
                return false;
        } else if (f->left) {
            size_t skip = n - at < f->left ? n - at : (size_t)f->left;
            f->left -= skip;
            at += skip;
        } else {
            f->head[f->n_head++] = data[at++];
            if (f->n_head == GSP_FRAME_HEAD_BYTES && !head_right(f))
                return false;
        }
    }
    return true;
}
