/*
 * Owns the launching of kernels: straight, or recorded once as a CUDA graph and replayed. One idea:
 * the first run of a key is straight (libraries load, algorithms are chosen), the second is
 * recorded, all later ones are one call; what differs between them, the step, is in device memory
 * and is written before each. A recording that the runtime refuses is run straight, then and ever
 * after. Recordings take memory of the card that no budget knows, so there are no more of them where
 * little is left. Refuses to guess: keys say what is equal.
 */
#include "kernels/cuda/blas_lt.h"
#include "kernels/cuda/device_cuda.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/plain.h"

#include "atom/base/log.h"
#include "atom/base/size.h"

#include <stdio.h>

/* A recording takes 10 to 64 KiB per kernel, as others have measured; this much is left for code
 * that is loaded later and for other programs. */
static const size_t LEAVE_BYTES = (size_t)256 << 20;

/* A straight launch writes the step where its function asks for it. */
static void put_now(krn_ctx *cx, const krn_step *from)
{
    dev_stream *s = cx->device;
    krn_step there = *from;
    there.starts = cuda_starts_put(s, from->starts, s->owner->base.starts_n);
    krn_cuda_put_step(cx, s->block, &there);
    cx->step = s->block;
}

/* Before a replay it was written already, and a recording must not contain it. */
static void put_before(krn_ctx *cx, const krn_step *from)
{
    (void)from;
    dev_stream *s = cx->device;
    cx->step = s->block;
}

static krn_ctx context(dev_stream *s)
{
    return (krn_ctx){.threads = s->owner->threads,
                     .native_stream = (void *)s->native,
                     .put_step = put_now,
                     .device = s};
}

static void check(dev_stream *s, const char *what)
{
    char text[256];
    (void)cuda_dev_ok(s->owner, cudaGetLastError(), what);
    if (krn_cuda_blas_failed(text, sizeof text))
        dev_fault_set(&s->owner->fault, atom_fail(ATOM_E_RUNTIME, "%s", text));
}

void cuda_graph_launch_plain(dev_stream *s, dev_launch_fn fn, void *arg)
{
    krn_ctx cx = context(s);
    fn(&cx, arg);
    check(s, "a kernel's launch");
}

/* The place of a key; NULL where there is no more room: then it runs straight. */
static cuda_graph *find(cuda_dev *d, uint64_t key)
{
    if (!d->graphs || d->graphs_off)
        return NULL;
    key += key == 0; /* 0 marks an empty place */
    for (uint64_t i = 0; i < CUDA_GRAPHS_MAX; i++) {
        cuda_graph *g = &d->graphs[(key + i) % CUDA_GRAPHS_MAX];
        if (g->key == key)
            return g;
        if (g->key)
            continue;
        if (d->n_graphs >= CUDA_GRAPHS_MAX / 2)
            return NULL;
        d->n_graphs++;
        g->key = key;
        return g;
    }
    return NULL;
}

static void tell_refused(const char *what, const char *why)
{
    char text[400];
    snprintf(text, sizeof text, "a call list is not recorded but launched each time: %s: %s", what,
             why);
    krn_cuda_log(ATOM_LOG_WARN, text);
}

/* The card has memory for one more recording. */
static bool room_for_more(cuda_dev *d)
{
    size_t has = 0, all = 0;
    char there[24], text[256];
    if (d->graphs_full)
        return false;
    if (cudaMemGetInfo(&has, &all) == cudaSuccess && has >= LEAVE_BYTES)
        return true;
    d->graphs_full = true;
    snprintf(text, sizeof text,
             "only %s of the card's memory are free beside the budget, so no more call lists are "
             "recorded: the others are launched call by call; a lower --device-memory leaves more",
             atom_size_text(has, there));
    krn_cuda_log(ATOM_LOG_INFO, text);
    return false;
}

/* Takes the memory of the recording now, where a refusal is harmless: a launch that lacks it is a
 * fault. */
static cudaError_t instantiate(cuda_graph *g, cudaGraph_t graph, cudaStream_t stream)
{
    cudaError_t error = cudaGraphInstantiate(&g->exec, graph, 0);
    if (error != cudaSuccess) {
        g->exec = NULL;
        return error;
    }
    error = cudaGraphUpload(g->exec, stream);
    if (error != cudaSuccess) {
        (void)cudaGraphExecDestroy(g->exec);
        g->exec = NULL;
    }
    return error;
}

/* Leaves g->exec NULL where it did not work; nothing has run then. */
static void record(dev_stream *s, cuda_graph *g, krn_ctx *cx, const cuda_item *it)
{
    char text[256];
    const char *what = "cudaStreamBeginCapture";
    cudaGraph_t graph = NULL;
    cudaError_t error = cudaStreamBeginCapture(s->native, cudaStreamCaptureModeThreadLocal);
    bool product = false;
    if (error == cudaSuccess) {
        it->launch(cx, it->arg);
        what = "a launch";
        product = krn_cuda_blas_failed(text, sizeof text);
        error = cudaPeekAtLastError();
        cudaError_t end = cudaStreamEndCapture(s->native, &graph);
        if (error == cudaSuccess && end != cudaSuccess) {
            what = "cudaStreamEndCapture";
            error = end;
        }
    }
    if (error == cudaSuccess && !product) {
        what = "cudaGraphInstantiate or cudaGraphUpload";
        error = instantiate(g, graph, s->native);
    }
    if (graph)
        (void)cudaGraphDestroy(graph);
    if (error != cudaSuccess || product)
        tell_refused(product ? "a product" : what, product ? text : cudaGetErrorName(error));
    (void)cudaGetLastError(); /* a refused recording is no fault */
    s->owner->graphs_full |= error == cudaErrorMemoryAllocation;
    g->never = !g->exec;
}

void cuda_graph_run(dev_stream *s, const cuda_item *it)
{
    cuda_graph *g = find(s->owner, it->key);
    krn_ctx cx = context(s);
    put_now(&cx, &it->step);
    cx.put_step = put_before;
    if (g && !g->exec && !g->never && g->runs && room_for_more(s->owner))
        record(s, g, &cx, it);
    if (g && g->exec) {
        (void)cuda_dev_ok(s->owner, cudaGraphLaunch(g->exec, s->native), "a recorded call list");
        return;
    }
    it->launch(&cx, it->arg);
    check(s, "a kernel's launch");
    if (g)
        g->runs++;
}

void cuda_graphs_forget(cuda_dev *d)
{
    for (uint32_t i = 0; d->graphs && i < CUDA_GRAPHS_MAX; i++) {
        if (d->graphs[i].exec)
            (void)cudaGraphExecDestroy(d->graphs[i].exec);
        d->graphs[i] = (cuda_graph){0};
    }
    d->n_graphs = 0;
    d->graphs_full = false;
}
