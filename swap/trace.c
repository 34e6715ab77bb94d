/*
 * Owns trace files: what ran when, in the JSON form that Perfetto and chrome://tracing read. One
 * idea: one complete event per instruction, one thread per stream, and one for the host, which
 * issues the step. Refuses to buffer a whole run in memory.
 */
#include "swap/exec.h"

#include "atom/base/mem.h"

#include <errno.h>
#include <stdio.h>

struct swap_trace {
    FILE *file;
    char *path;
};

static const char *const stream_names[DEV_STREAM_N] = {
    "compute", "host to device", "device to host", "host (optimizer)", "disk read", "disk write"};

/* Of device 0 the streams and the host, then the others' streams. */
static uint32_t thread_of(const swap_instr *in)
{
    uint32_t lane = swap_lane(in->device, in->stream);
    return in->device ? lane + 1 : lane;
}

static void name_thread(FILE *f, uint32_t thread, const char *what, uint32_t device)
{
    fprintf(f,
            "%s\n{\"ph\": \"M\", \"pid\": 1, \"tid\": %u, \"name\": \"thread_name\", "
            "\"args\": {\"name\": \"%s",
            thread ? "," : "", thread, what);
    if (device)
        fprintf(f, " of device %u", device);
    fputs("\"}}", f);
}

static void name_threads(FILE *f, uint32_t n_devices)
{
    for (uint32_t s = 0; s <= DEV_STREAM_N; s++)
        name_thread(f, s, s < DEV_STREAM_N ? stream_names[s] : "host (issue)", 0);
    for (uint32_t d = 1; d < n_devices; d++) {
        for (uint32_t s = 0; s < DEV_OWN_STREAMS; s++)
            name_thread(f, swap_lane(d, (dev_stream_kind)s) + 1, stream_names[s], d);
    }
}

atom_status swap_trace_open(const char *path, uint32_t n_devices, swap_trace **out)
{
    swap_trace *t = atom_alloc(1, sizeof *t);
    char *copy = atom_strdup(path);
    if (!t || !copy) {
        atom_free(t);
        atom_free(copy);
        return atom_fail_memory("a trace", sizeof *t);
    }
    t->path = copy;
    t->file = fopen(path, "w");
    if (!t->file) {
        atom_status st = atom_fail_errno(errno, "cannot write the trace %s", path);
        atom_free(copy);
        atom_free(t);
        return st;
    }
    fputs("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [", t->file);
    name_threads(t->file, n_devices);
    *out = t;
    return ATOM_OK;
}

atom_status swap_trace_add(swap_trace *trace, const swap_tape *tape, const swap_span *spans,
                           swap_host_time host, uint32_t step, double offset_seconds)
{
    fprintf(trace->file,
            ",\n{\"ph\": \"X\", \"pid\": 1, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"name\": "
            "\"ISSUE\", \"args\": {\"step\": %u, \"launch_us\": %.3f}}",
            DEV_STREAM_N, offset_seconds * 1e6, host.issue_seconds * 1e6, step,
            host.launch_seconds * 1e6);
    for (uint32_t i = 0; i < tape->n; i++) {
        const swap_instr *in = &tape->instrs[i];
        double start_us = offset_seconds * 1e6 + (double)spans[i].start_ns * 1e-3;
        double took_us = (double)(spans[i].end_ns - spans[i].start_ns) * 1e-3;
        fprintf(
            trace->file,
            ",\n{\"ph\": \"X\", \"pid\": 1, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"name\": "
            "\"%s\", \"args\": {\"step\": %u, \"sub_model\": %d, \"micro_batch\": %d, \"bytes\": "
            "%llu, \"predicted_us\": %.3f}}",
            (int)thread_of(in), start_us, took_us, swap_code_name(in->code), step, in->sub_model,
            in->micro_batch, (unsigned long long)in->src.bytes, in->cost.seconds * 1e6);
    }
    return ferror(trace->file) ? atom_fail_errno(errno, "cannot write the trace %s", trace->path)
                               : ATOM_OK;
}

atom_status swap_trace_close(swap_trace **trace_ref)
{
    swap_trace *t = *trace_ref;
    atom_status st = ATOM_OK;
    if (!t)
        return ATOM_OK;
    fputs("\n]}\n", t->file);
    int bad = ferror(t->file);
    if (fclose(t->file) != 0 || bad)
        st = atom_fail_errno(errno, "cannot write the trace %s", t->path);
    atom_free(t->path);
    atom_free(t);
    *trace_ref = NULL;
    return st;
}
