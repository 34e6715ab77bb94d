/*
 * Owns the predicted cost of single instructions. One idea: an instruction's time alone comes from
 * the profile, and its shares say what it takes away from others meanwhile; the null device does
 * the rest. Refuses to model overlap itself.
 */
#include "codegen/layout.h"

static double per_second(double bytes, double rate)
{
    return rate > 0 ? bytes / rate : 0;
}

/* Of PART_WARM_ALL, how warm the caches are for the instruction (part_warm_share): the first micro-batch of
 * a device's visit is cold. Late nodes, whose micro-batches follow each other too, are as warm as backward
 * of their sub-model. */
static uint32_t warm_share(const gen_layout *layout, const part_device *d, const swap_instr *in)
{
    const gen_visit *v = &layout->visits[in->sub_model];
    uint64_t touched = v->slot_bytes + v->kept_bytes + v->held_bytes + v->sent_bytes +
                       v->act_bytes + v->x.bytes + v->y.bytes;
    if (in->micro_batch == (int32_t)gen_share(layout, in->device))
        return 0;
    return part_warm_share(d, touched + (in->code != SWAP_FWD ? v->grads.bytes : 0));
}

static double calls_seconds(const part_profile *p, const swap_calls *calls, uint32_t warm)
{
    const double share = (double)warm / PART_WARM_ALL;
    double seconds = 0;
    for (uint32_t c = 0; c < calls->n; c++) {
        const swap_call *call = &calls->calls[c];
        const part_node_cost *node = &p->nodes[call->op == ATOM_OP_N ? 0 : call->node];
        if (call->op == ATOM_OP_N)
            seconds += per_second(2.0 * (double)call->dim[0], p->device.device_bytes_per_second);
        else if (call->backward)
            seconds += node->bwd_seconds - share * node->bwd_gain_seconds;
        else
            seconds += node->fwd_seconds - share * node->fwd_gain_seconds;
    }
    return seconds;
}

static dev_cost compute_cost(const part_device *d, double seconds)
{
    dev_cost cost = {.seconds = seconds};
    if (d->unified) {
        cost.share[DEV_R_CORES] = 1.0f;
        cost.share[DEV_R_DRAM] = 0.3f;
    } else {
        cost.share[DEV_R_GPU] = 1.0f;
    }
    return cost;
}

/* Two directions together run at `both`; a shared resource of which each takes 1/(2 f) says the
 * same. */
static float duplex_share(double alone, double both)
{
    double f = alone > 0 && both > 0 ? both / alone : 1;
    if (f > 1)
        f = 1;
    if (f < 0.5)
        f = 0.5;
    return (float)(0.5 / f);
}

static dev_cost copy_cost(const part_device *d, bool to_device, uint64_t bytes)
{
    double alone = to_device ? d->h2d_bytes_per_second : d->d2h_bytes_per_second;
    double both = to_device ? d->h2d_both_bytes_per_second : d->d2h_both_bytes_per_second;
    dev_cost cost = {.seconds = d->copy_latency_seconds + per_second((double)bytes, alone)};
    cost.share[to_device ? DEV_R_H2D : DEV_R_D2H] = 1.0f;
    cost.share[DEV_R_LINK] = duplex_share(alone, both);
    /* a device's copy engine reads or writes host memory; a memcpy does both,
     * and keeps a core busy */
    double moved = d->unified ? 2 * alone : alone;
    double memory = d->host_bytes_per_second > 0 ? moved / d->host_bytes_per_second : 0.5;
    double busy = memory > 1 ? 1 : memory;
    cost.share[DEV_R_DRAM] = (float)busy;
    if (d->unified)
        cost.share[DEV_R_CORES] = (float)(busy / (d->cores ? d->cores : 1));
    return cost;
}

static dev_cost disk_cost(const part_device *d, bool write, uint64_t bytes)
{
    part_disk disk = part_device_disk(d);
    double alone = write ? disk.write : disk.read;
    dev_cost cost = {.seconds = per_second((double)bytes, alone)};
    cost.share[DEV_R_DISK] = duplex_share(alone, write ? disk.write_both : disk.read_both);
    return cost;
}

static uint64_t extent_of(const swap_param *p)
{
    return (p->elements + GRAPH_PARAM_ALIGN - 1) / GRAPH_PARAM_ALIGN * GRAPH_PARAM_ALIGN;
}

/* Seconds of Muon on the host for the matrices of a parameter that begin in [first, past), of which
 * none ends outside; *elements loses those that they have, with what pads the last one. */
static double matrices_seconds(const swap_param *param, const part_device *d, uint64_t first,
                               uint64_t past, uint64_t *elements)
{
    double seconds = 0;
    uint64_t at = param->offset, end = param->offset + extent_of(param);
    for (uint8_t i = 0; i < param->n_matrices; i++) {
        uint64_t all = (uint64_t)(param->rows[i] * param->cols);
        uint64_t next = i + 1 < param->n_matrices ? at + all : end;
        if (at >= first && at < past) {
            seconds += part_muon_seconds(d, param->rows[i], param->cols);
            *elements -= next - at;
        }
        at = next;
    }
    return seconds;
}

/* An update on the host: AdamW at the speed of memory, Muon at that of the cores, or, where the
 * device makes its products, at that of memory too. */
static dev_cost update_cost(const gen_layout *layout, const part_device *d, const swap_instr *in)
{
    const uint32_t wire = layout->wire_bytes_each;
    const uint32_t moment = atom_dtype_bytes(layout->out->layout.moments);
    const uint64_t all = in->last_element - in->first_element;
    double muon = 0;
    uint64_t others = all;
    for (int32_t p = in->first_param; p < in->last_param; p++)
        muon += matrices_seconds(&layout->out->params[p], d, in->first_element, in->last_element,
                                 &others);
    double memory = per_second((double)others, d->adamw_params_per_second);
    if (in->code == SWAP_BEGIN)
        memory = part_muon_begin_seconds(d, all - others, wire, moment);
    else if (in->begun)
        memory += part_muon_end_seconds(d, all - others, wire);
    if (in->code == SWAP_BEGIN || in->begun)
        muon = 0;
    dev_cost cost = {.seconds = memory + muon};
    cost.share[DEV_R_CORES] = 1.0f;
    cost.share[DEV_R_DRAM] = muon > 0 ? (float)(memory / cost.seconds) : 1.0f;
    return cost;
}

static dev_cost ortho_cost(const gen_layout *layout, const part_device *d, const swap_instr *in)
{
    int64_t cols = layout->out->params[in->first_param].cols;
    int64_t rows = (int64_t)(in->last_element - in->first_element) / cols;
    double seconds = d->ortho_flops_per_second > 0 ? part_ortho_seconds(d, rows, cols)
                                                   : part_muon_seconds(d, rows, cols);
    return compute_cost(d, seconds);
}

void gen_cost_fill(const gen_layout *layout, const part_profile *profile, swap_instr *in)
{
    if (!profile)
        return;
    const part_device *d = &profile->device;
    double bytes;
    switch (in->code) {
    case SWAP_FWD:
    case SWAP_BWD:
    case SWAP_LATE: {
        const swap_calls *list = layout->out->program->sub_models[in->sub_model].list;
        const uint32_t warm = warm_share(layout, d, in);
        double seconds = 0;
        for (int l = 0; l < SWAP_LIST_N; l++) {
            if (in->lists & (1u << l))
                seconds += calls_seconds(profile, &list[l], warm);
        }
        in->cost = compute_cost(d, seconds);
        return;
    }
    case SWAP_ROUND:
        bytes = 2 * (double)in->src.bytes + (double)in->dst.bytes; /* read, cleared, written */
        in->cost =
            compute_cost(d, d->launch_seconds + per_second(bytes, d->device_bytes_per_second));
        return;
    case SWAP_CLEAR:
        in->cost = compute_cost(
            d, d->launch_seconds + per_second((double)in->dst.bytes, d->device_bytes_per_second));
        return;
    case SWAP_UPLOAD:
    case SWAP_FETCH:
    case SWAP_UNSTASH:
    case SWAP_TAKE:
    case SWAP_RAISE:
        in->cost = copy_cost(d, true, in->src.bytes);
        return;
    case SWAP_STASH:
    case SWAP_HAND:
    case SWAP_LOWER:
    case SWAP_SPILL:
    case SWAP_LOSS:
        in->cost = copy_cost(d, false, in->src.bytes);
        return;
    case SWAP_UPDATE:
        if (in->stream == DEV_COMPUTE) {
            /* state read and written; gradient read, parameter written */
            bytes = 2 * (double)in->src.bytes + 2 * (double)in->base[SWAP_BASE_GRAD].bytes;
            double launches = d->launch_seconds * (in->last_param - in->first_param);
            in->cost = compute_cost(d, launches + per_second(bytes, d->device_bytes_per_second));
            return;
        }
        in->cost = update_cost(layout, d, in);
        return;
    case SWAP_BEGIN:
        in->cost = update_cost(layout, d, in);
        return;
    case SWAP_ORTHO:
        in->cost = ortho_cost(layout, d, in);
        return;
    case SWAP_LOAD:
        in->cost = disk_cost(d, false, in->src.bytes);
        return;
    case SWAP_STORE:
        in->cost = disk_cost(d, true, in->src.bytes);
        return;
    case SWAP_COMMIT:
        in->cost.seconds = part_device_disk(d).sync_seconds;
        return;
    case SWAP_CLIP:
    case SWAP_CODE_N:
        return;
    }
}
