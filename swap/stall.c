/*
 * Owns the blame for idle compute. One idea: a gap ends when the last thing the next instruction
 * needed was done; as far as that thing was running during the gap the gap is its stream's, and for
 * the rest one asks what that thing was itself waiting for. Refuses averages: every nanosecond has
 * one owner.
 */
#include "swap/stall.h"

enum { DEPTH_MAX = 256 };

/* The instruction before i on the same lane; -1: none. */
static int64_t before_on_stream(const swap_tape *tape, uint32_t i)
{
    for (int64_t j = (int64_t)i - 1; j >= 0; j--) {
        if (tape->instrs[j].stream == tape->instrs[i].stream &&
            tape->instrs[j].device == tape->instrs[i].device)
            return j;
    }
    return -1;
}

/* What held instruction i back: the latest to end of its waits and its predecessor; -1: nothing. */
static int64_t holder(const swap_tape *tape, const swap_span *spans, uint32_t i)
{
    const swap_instr *in = &tape->instrs[i];
    int64_t last = before_on_stream(tape, i);
    for (uint32_t w = 0; w < in->n_waits; w++) {
        if (last < 0 || spans[in->waits[w]].end_ns > spans[last].end_ns)
            last = in->waits[w];
    }
    return last;
}

static void blame(swap_stalls *out, dev_stream_kind stream, uint64_t from, uint64_t to)
{
    if (to > from)
        out->waited_seconds[stream] += (double)(to - from) * 1e-9;
}

/* Gives the gap [from, to) in front of compute instruction i to owners, walking back in time. */
static void explain(const swap_tape *tape, const swap_span *spans, uint32_t i, uint64_t from,
                    uint64_t to, swap_stalls *out)
{
    int64_t at = holder(tape, spans, i);
    for (int depth = 0; depth < DEPTH_MAX && at >= 0 && from < to; depth++) {
        uint64_t end = spans[at].end_ns < from ? from : spans[at].end_ns;
        uint64_t start = spans[at].start_ns < from ? from : spans[at].start_ns;
        if (end < to) { /* ready, but not yet started */
            blame(out, DEV_COMPUTE, end, to);
            to = end;
        }
        if (start < to) {
            blame(out, tape->instrs[at].stream, start, to);
            to = start;
        }
        at = holder(tape, spans, (uint32_t)at);
    }
    blame(out, DEV_COMPUTE, from, to);
}

/* After the last compute instruction: what ended last, and what that waited for, own the rest. */
static void explain_tail(const swap_tape *tape, const swap_span *spans, uint64_t from, uint64_t to,
                         swap_stalls *out)
{
    for (uint32_t i = 0; from < to && i < tape->n; i++) {
        if (spans[i].end_ns != to)
            continue;
        uint64_t start = spans[i].start_ns < from ? from : spans[i].start_ns;
        blame(out, tape->instrs[i].stream, start, to);
        explain(tape, spans, i, from, start, out);
        return;
    }
}

static swap_stalls stalls_of(const swap_tape *tape, const swap_span *spans, uint32_t device)
{
    swap_stalls out = {0};
    uint64_t done = 0, past = 0;
    for (uint32_t i = 0; i < tape->n; i++) {
        past = spans[i].end_ns > past ? spans[i].end_ns : past;
        if (tape->instrs[i].stream != DEV_COMPUTE || tape->instrs[i].device != device)
            continue;
        if (spans[i].start_ns > done)
            explain(tape, spans, i, done, spans[i].start_ns, &out);
        out.busy_seconds += (double)(spans[i].end_ns - spans[i].start_ns) * 1e-9;
        done = spans[i].end_ns;
    }
    explain_tail(tape, spans, done, past, &out);
    for (int s = 0; s < DEV_STREAM_N; s++)
        out.step_seconds += out.waited_seconds[s];
    out.step_seconds += out.busy_seconds;
    return out;
}

swap_stalls swap_stalls_of(const swap_tape *tape, const swap_span *spans)
{
    swap_stalls mean = {0};
    double n = tape->n_devices;
    for (uint32_t d = 0; d < tape->n_devices; d++) {
        swap_stalls one = stalls_of(tape, spans, d);
        for (int s = 0; s < DEV_STREAM_N; s++)
            mean.waited_seconds[s] += one.waited_seconds[s] / n;
        mean.busy_seconds += one.busy_seconds / n;
        mean.step_seconds += one.step_seconds / n;
    }
    return mean;
}
