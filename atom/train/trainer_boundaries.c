/*
 * Owns which codec a run has on its boundaries, and where. One idea: it is a part of what is
 * learnt, so a run that goes on keeps it unless somebody says otherwise, and then hears of it.
 * Refuses codecs in a pool, whose members learn one model by one rule.
 */
#include "atom/train/trainer_inner.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <stdio.h>
#include <string.h>

/* The newest state that the run can go on from; nothing in it where there is none. */
static void recall(const trainer *t, const char *checkpoint, train_state *out)
{
    const char *resume = t->config->resume_from_checkpoint;
    char *path = checkpoint ? atom_path_join(checkpoint, "atom_state.json") : NULL;
    train_state s;
    if (path && train_state_read(path, &s) == ATOM_OK)
        *out = s;
    atom_free(path);
    for (uint32_t i = 0; resume && strcmp(resume, "auto") == 0 && i < SWAP_GENERATIONS; i++)
        if (train_disk_state_find(trainer_store_dir(t), i, &s) == ATOM_OK && s.step > out->step)
            *out = s;
}

atom_status trainer_boundaries_choose(trainer *t, const char *checkpoint)
{
    const train_config *c = t->config;
    train_state was = {0};
    recall(t, checkpoint, &was);
    const char *codec = c->compress_boundaries ? c->compress_boundaries : was.compress_boundaries;
    bool none = !codec[0] || strcmp(codec, "none") == 0;
    const char *at = c->at ? c->at : none ? "" : was.at;
    if (!none && t->hooks.seam)
        return atom_fail(ATOM_E_USAGE,
                         "compress_boundaries: the members of a pool train the model as it is; "
                         "leave the key out");
    t->compress_boundaries = atom_strdup(codec);
    t->compress_at = atom_strdup(at);
    if (!t->compress_boundaries || !t->compress_at)
        return atom_fail_memory("boundaries", 64);
    return ATOM_OK;
}

void trainer_boundaries_note(const trainer *t)
{
    char codec[ATOM_CODEC_TEXT_BYTES];
    const plan_boundaries *b = &t->bench->boundaries;
    if (b->n)
        trainer_note(t,
                     "boundaries: %s behind %s of %u blocks: %llu bytes per token would cross in "
                     "each direction, %llu in bf16",
                     atom_codec_text(b->codec, codec), b->at, b->blocks,
                     (unsigned long long)b->token_bytes, (unsigned long long)b->token_bytes_bf16);
}

void trainer_boundaries_changed(const trainer *t, const train_state *now)
{
    const train_state *was = &t->state;
    const char *none = "none";
    if (strcmp(was->compress_boundaries, now->compress_boundaries) != 0)
        trainer_note(t, "resume: compress_boundaries is %s from here; it was %s",
                     now->compress_boundaries[0] ? now->compress_boundaries : none,
                     was->compress_boundaries[0] ? was->compress_boundaries : none);
    if (was->at[0] && now->at[0] && strcmp(was->at, now->at) != 0)
        trainer_note(t, "resume: at is %s from here; it was %s", now->at, was->at);
}
