/*
 * Owns the words when memory is short. One idea: say how much is needed, how much there is, how
 * much is missing, what needs it, and what to type instead. Refuses to guess: the need is that of a
 * plan which was made and judged.
 */
#include "partition/candidates.h"

#include "atom/base/mem.h"
#include "atom/base/size.h"

#include <stdio.h>
#include <string.h>

static const uint64_t MIB = 1 << 20;

static uint64_t in_mib(uint64_t bytes)
{
    return (bytes + MIB - 1) / MIB;
}

/* `bytes` is needed for `what`, there are `have`. */
ATOM_MUST static atom_status short_of(const char *where, uint64_t bytes, uint64_t have,
                                      const char *what, const char *advice)
{
    char a[32], b[32], c[32];
    return atom_fail(ATOM_E_RESOURCE,
                     "not enough %s memory: %s needs at least %s (%llu bytes), but there is only "
                     "%s; %s (%llu bytes) are missing; use %s",
                     where, what, atom_size_text(bytes, a), (unsigned long long)bytes,
                     atom_size_text(have, b), atom_size_text(bytes - have, c),
                     (unsigned long long)(bytes - have), advice);
}

/* --- what to type instead --- */

enum { ADVICE_MAX = 6 };

typedef struct advice {
    const char *words[ADVICE_MAX];
    uint32_t n;
    char limit[64];
} advice;

static void advise(advice *a, bool helps, const char *words)
{
    if (helps)
        a->words[a->n++] = words;
}

/* "a, b or c". */
static void join(const advice *a, char *out, size_t room)
{
    out[0] = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        const size_t at = strlen(out);
        const char *between = i == 0 ? "" : i + 1 < a->n ? ", " : " or ";
        snprintf(out + at, room - at, "%s%s", between, a->words[i]);
    }
}

/* A larger limit, where the device has that much. */
static void advise_limit(const part_search_state *s, uint64_t bytes, advice *a)
{
    const uint64_t has = s->profile->device.device_bytes;
    snprintf(a->limit, sizeof a->limit, "--device-memory %lluMiB",
             (unsigned long long)in_mib(bytes));
    advise(a, !has || in_mib(bytes) * MIB <= has, a->limit);
}

/* Less of what is computed at once; with none of that left, another device. */
static void advise_less(const part_search_state *s, bool fewer, advice *a)
{
    advise(a, fewer && s->request->micro_batches > 1, "fewer --gradient-accumulation-steps");
    advise(a, s->request->recompute == 0, "--recompute auto");
    advise(a, s->g->micro_batch > 1, "a smaller --micro-batch-size");
    advise(a, s->g->micro_batch == 1 && s->g->sequence > 1, "a shorter --sequence-len");
    advise(a, a->words[0] != a->limit, "a device with more memory");
}

atom_status part_refuse_host(const part_search_state *s, uint64_t need)
{
    const uint64_t base = part_host_base_bytes(s->model, s->micro_batches);
    bool narrow =
        !s->model->disk && s->g->moments == ATOM_F32 && /* would that do? */
        need - 2 * (2 * s->model->trained_elements - s->model->muon_elements) <= s->host_bytes;
    const uint64_t state =
        part_state_bytes(s->model, s->model->trained_elements, s->model->muon_elements);
    const uint64_t ring = 256 * MIB; /* more than part_model_use_disk() takes */
    const bool disk = s->request->disk == 0 && need + ring <= s->host_bytes + state;
    const bool trains = graph_trains(s->g);
    const uint32_t state_each = trains && !s->model->disk ? atom_state_bytes(s->g->moments) : 0;
    char what[320], instead[256], larger[64], beside[96] = "";
    if (need > base)
        snprintf(beside, sizeof beside, ", and activations of %u micro-batch%s", s->micro_batches,
                 s->micro_batches == 1 ? "" : "es");
    snprintf(what, sizeof what, "%s in %s (%u bytes for each of %llu parameters%s%s)", s->g->name,
             atom_dtype_name(s->g->dtype), state_each + atom_dtype_bytes(s->g->dtype),
             (unsigned long long)s->g->param_elements,
             s->model->disk ? ", the optimizer's state on disk" : "", beside);
    snprintf(larger, sizeof larger, "--host-memory %lluMiB on a larger host",
             (unsigned long long)in_mib(need));
    snprintf(instead, sizeof instead, "%s%s%s%s or a smaller model",
             trains ? larger : "a host with more memory",
             s->g->dtype == ATOM_F32 ? ", --dtype bf16" : "",
             narrow ? ", --moments-dtype bf16 (4 bytes less for each)" : "",
             disk ? ", --optimizer-state disk" : "");
    return short_of("host", need, s->host_bytes, what, instead);
}

/* The node that needs most of the plan's largest sub-model. */
static const char *largest_node(const part_search_state *s, const part_plan *plan)
{
    uint64_t most = 0;
    int32_t which = 0;
    for (uint32_t k = 0; k < plan->n_sub_models; k++) {
        for (int32_t i = plan->sub_models[k].first_node; i < plan->sub_models[k].last_node; i++) {
            part_range r = part_range_make(s->model, i, i + 1);
            uint64_t bytes =
                r.slot_bytes + r.grad_bytes + r.own_bytes + r.kept_bytes + r.scratch_bytes;
            if (bytes > most) {
                most = bytes;
                which = i;
            }
        }
    }
    return s->g->nodes[which].name;
}

/* The host's memory is short for stashes; with `device` bytes of device memory there would be fewer of
 * them (0: unknown). */
ATOM_MUST static atom_status refuse_stashes(const part_search_state *s, uint64_t need,
                                            uint64_t device)
{
    const part_device *d = &s->profile->device;
    advice a = {0};
    char words[320], what[160], more[64], size[32];
    snprintf(a.limit, sizeof a.limit, "--host-memory %lluMiB", (unsigned long long)in_mib(need));
    snprintf(more, sizeof more, "%s of device memory", atom_size_text(device, size));
    advise(&a, true, a.limit);
    advise(&a, device > 0 && device / 2 < s->device_bytes, more);
    advise(&a, !device && s->device_bytes < d->device_bytes, "a larger --device-memory");
    advise_less(s, true, &a);
    join(&a, words, sizeof words);
    snprintf(what, sizeof what, "%s with %u micro-batches", s->g->name, s->micro_batches);
    return short_of("host", need, s->host_bytes, what, words);
}

/* Bytes of the device that one micro-batch would not take: those of all but one. */
static uint64_t of_micro_batches(const part_search_state *s, const part_plan *plan)
{
    const part_model *m = s->model;
    uint64_t each = m->micro_batch_bytes; /* tokens of all of them are on the device in any case */
    if (plan && plan->boundaries == PART_ON_DEVICE) {
        each += m->late_bytes;
        for (uint32_t k = 0; k + 1 < plan->n_sub_models; k++)
            each += 2 * m->boundary_bytes[plan->sub_models[k].last_node]; /* and its gradient */
    }
    return each * (s->micro_batches - 1);
}

atom_status part_refuse_device(const part_search_state *s, const part_plan *least)
{
    char what[320], words[256];
    const bool node = least && least->device_peak_bytes > s->device_bytes;
    const uint64_t need = node ? least->device_peak_bytes : s->device_need_bytes;
    advice a = {0};
    if (s->host_alone_bytes) /* with that the device would do */
        return refuse_stashes(s, s->host_alone_bytes, node ? need : 0);
    if (!node && s->host_need_bytes > s->host_bytes)
        return refuse_stashes(s, s->host_need_bytes, 0);
    if (need <= s->device_bytes)
        return atom_fail(ATOM_E_RESOURCE, "no plan fits %s; it needs more device or host memory",
                         s->g->name);
    snprintf(what, sizeof what, "%s", s->g->name);
    if (node)
        snprintf(what, sizeof what,
                 "%s with micro-batches of %lld x %lld tokens (its largest node is %s)", s->g->name,
                 (long long)s->g->micro_batch, (long long)s->g->sequence, largest_node(s, least));
    advise_limit(s, need, &a);
    /* With fewer of them other cuts need less, too: so it is worth saying where they are half of it. */
    const uint64_t more = of_micro_batches(s, least);
    const bool fewer = more >= need - s->device_bytes || more >= need / 2;
    advise_less(s, !node || s->request->recompute == 0 || fewer, &a);
    join(&a, words, sizeof words);
    return short_of("device", need, s->device_bytes, what, words);
}
