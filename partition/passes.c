/*
 * Owns where the optimizer's state is searched a plan for: in memory, on disk, its products on the device. One
 * idea: each place is a search of its own, in the order in which they are liked; the next one is tried where the
 * one before is refused. Refuses to know how a plan is found.
 */
#include "partition/candidates.h"

#include "atom/base/clock.h"

#include <stdio.h>

/* So much slower a step may be where updates cannot run ahead after all. */
static const double WORSE = 1.05;

/* Takes the other plan if it is quicker, and not much slower where updates cannot run ahead after all. */
static bool take_quicker(part_plan **plan, part_plan **other)
{
    part_plan *old = *plan;
    const double each = (*other)->predicted_step_seconds / (*other)->micro_batches;
    const double nearly = PART_NEARLY_ALL * part_plan_tokens_per_second(*other);
    if ((*other)->micro_batches > old->micro_batches && nearly <= part_plan_tokens_per_second(old))
        return false; /* fewer of them do nearly as well */
    if (!part_beats(*other, old) ||
        each >= WORSE * old->predicted_step_seconds / old->micro_batches)
        return false;
    *plan = *other;
    *other = old;
    return true;
}

/*
 * In place there is one sub-model, which needs all of its weights before its first micro-batch:
 * disk and compute follow each other. In the memory that it takes, several may be faster, copies
 * included. They must not be slower where updates cannot run ahead after all.
 */
ATOM_MUST static atom_status try_several(const graph *g, const part_profile *profile,
                                         const part_request *request, part_plan **plan,
                                         part_search_stats *stats)
{
    part_request several = *request;
    part_search_stats done = {0};
    part_plan *other = NULL;
    several.device_budget_bytes = (*plan)->device_peak_bytes;
    several.micro_batches = (*plan)->micro_batches;
    several.no_advice = several.no_needs = true;
    atom_status st =
        part_search_once(g, profile, &several, (part_where){.disk = true}, &other, &done);
    stats->states += done.states;
    stats->evaluated += done.evaluated;
    if (st == ATOM_OK && take_quicker(plan, &other)) { /* what was asked for, and advised, stays */
        (*plan)->device_budget_bytes = request->device_budget_bytes;
        (*plan)->recommended_micro_batches = other->recommended_micro_batches;
        (*plan)->recommended_tokens_per_second = other->recommended_tokens_per_second;
        (*plan)->most_tokens_per_second = other->most_tokens_per_second;
    }
    part_plan_close(&other);
    if (st == ATOM_OK || st == ATOM_E_RESOURCE)
        return ATOM_OK;
    part_plan_close(plan);
    return st;
}

static bool may_use_ortho(const part_profile *profile, const part_request *request,
                          graph_optimizer optimizer)
{
    return optimizer == GRAPH_MUON && request->ortho_on_device && request->clip &&
           profile->device.ortho_flops_per_second > 0 &&
           !(profile->device.unified && !request->device_budget_bytes);
}

/* What the host would get beside the disk, where its updates can run ahead and products on the device
 * cannot; it is taken if it is quicker, and not much slower where something is clipped. */
ATOM_MUST static atom_status try_ahead(const graph *g, const part_profile *profile,
                                       const part_request *request, part_where where,
                                       part_plan **plan, part_search_stats *stats)
{
    part_search_stats done = {0};
    part_plan *other = NULL;
    where.ortho = false;
    atom_status st = part_search_once(g, profile, request, where, &other, &done);
    stats->states += done.states;
    stats->evaluated += done.evaluated;
    if (st == ATOM_OK)
        (void)take_quicker(plan, &other);
    part_plan_close(&other);
    if (st == ATOM_OK || st == ATOM_E_RESOURCE)
        return ATOM_OK;
    part_plan_close(plan);
    return st;
}

/* With Muon's products on the device if there is room for them. */
ATOM_MUST static atom_status search_on(const graph *g, const part_profile *profile,
                                       const part_request *request, part_where where,
                                       part_plan **out, part_search_stats *stats)
{
    const bool last = where.last;
    where.ortho = may_use_ortho(profile, request, g->optimizer);
    where.last = last && !where.ortho;
    atom_status st = part_search_once(g, profile, request, where, out, stats);
    if (st == ATOM_OK && (*out)->ortho_on_device && where.disk && request->ahead)
        return try_ahead(g, profile, request, where, out, stats);
    if (st != ATOM_E_RESOURCE || !where.ortho)
        return st;
    where.ortho = false;
    where.last = last;
    return part_search_once(g, profile, request, where, out, stats);
}

/* Was a plan refused for want of the device's memory, with as much of the host's as any plan takes? */
static bool asks_the_device(const part_search_stats *stats)
{
    return stats->needs_bytes > 0 && stats->host_holds;
}

/* In memory if that can be; else, if it may be, through the disk. Where either is refused for want of the device's
 * memory, the refusal that asks for less of it counts: with so much of it that place is enough. */
atom_status part_search(const graph *g, const part_profile *profile, const part_request *request,
                        part_plan **out, part_search_stats *stats)
{
    part_search_stats done = {0};
    double begin = atom_clock_seconds();
    atom_status st = ATOM_E_RESOURCE;
    if (request->disk <= 0)
        st = search_on(g, profile, request, (part_where){.last = request->disk == 0}, out, &done);
    const uint64_t needs = st == ATOM_E_RESOURCE ? done.needs_bytes : 0;
    char refused[1024];
    snprintf(refused, sizeof refused, "%s", needs ? atom_fail_message() : "");
    /* What the host holds without a disk it holds with one, and the device needs no less for it. */
    for (int over = 0;
         over < 2 && st == ATOM_E_RESOURCE && request->disk != 0 && !asks_the_device(&done); over++)
        st = search_on(g, profile, request, (part_where){.disk = true, .over = over, .last = over},
                       out, &done);
    if (st == ATOM_E_RESOURCE && needs && needs < done.needs_bytes)
        st = atom_fail(st, "%s", refused);
    if (st == ATOM_OK && (*out)->disk && (*out)->in_place)
        st = try_several(g, profile, request, out, &done);
    done.seconds = atom_clock_seconds() - begin;
    if (stats)
        *stats = done;
    return st;
}
