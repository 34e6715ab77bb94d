/*
 * Owns the fake CUDA runtime (fake/cuda_runtime_api.h) under the module libatom_cuda_shim.so. One
 * idea: what is enqueued runs at one end of what CUDA allows. At once, so what a stream should have
 * waited for is not there yet; or, with ATOM_FAKE_LATE, not before somebody waits for it, so what
 * the host reads, writes or frees too early is still in use. Either shows as wrong bits. While a
 * stream is captured, kernels, copies and products are kept instead of run.
 *
 * ATOM_FAKE_FAULT=N: copy N and everything after it fails, as after a fault of a card.
 * ATOM_FAKE_FAULT_IS=memory: and says that it lacks memory.
 * ATOM_FAKE_CARDS=N: so many cards. ATOM_FAKE_USED=N: bytes of a card that others use.
 * ATOM_FAKE_NO_UPLOAD: no memory for recordings.
 * ATOM_FAKE_FULL=card: no memory for a thread that computes. =host: and it gets nothing to the host.
 */
#include <cuda_runtime_api.h>
#include <cuda_shim.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void shim_launch_now(void *stream, dim3 grid, unsigned threads, size_t shared_bytes,
                     const std::function<void()> &thread);

struct fake_graph {
    std::vector<std::function<void()>> work;
    bool uploaded = false; /* executable ones: has the memory that it needs */
};
struct fake_stream {
    fake_graph *recording = nullptr;
    int card = 0;
    std::deque<std::function<void()>> work; /* this and what follows: under `turns` */
    uint64_t queued = 0, done = 0;
    bool running = false; /* somebody runs its next piece */
};
/* A point of a stream: reached when so much of it is done. */
struct fake_point {
    fake_stream *stream;
    uint64_t at;
    std::chrono::steady_clock::time_point when;
};
struct fake_event {
    std::shared_ptr<fake_point> point; /* the latest record's; none: never recorded */
    int card;
};

namespace
{
std::mutex lock;                           /* guards what follows */
std::map<const char *, size_t> registered; /* pieces of pinned memory */
std::vector<fake_stream *> streams;        /* all there ever were: events refer to them */
std::atomic<long> live_graphs{0};
thread_local cudaError_t last = cudaSuccess;
thread_local fake_graph *recording = nullptr; /* of the stream that this thread captures */

std::atomic<long> copies{0};

/* A fault is sticky: true from the copy on that ATOM_FAKE_FAULT names. */
bool faulty(bool copies_now = false)
{
    static const char *asked = getenv("ATOM_FAKE_FAULT");
    static const long first_bad = asked ? atol(asked) : 0;
    if (!first_bad)
        return false;
    return (copies_now ? ++copies : copies.load()) >= first_bad;
}

/* This thread computes: it has queued a kernel or a product. */
thread_local bool computes = false;

bool is_full(const char *where)
{
    const char *full = computes ? getenv("ATOM_FAKE_FULL") : nullptr;
    return full && (!where || strcmp(full, where) == 0);
}

cudaError_t refuse(cudaError_t error)
{
    last = error;
    return error;
}

cudaError_t fault(void)
{
    return getenv("ATOM_FAKE_FAULT_IS") ? cudaErrorMemoryAllocation : cudaErrorLaunchFailure;
}

/* In one registration, or in none (device memory). */
bool in_one_piece(const void *at, size_t bytes)
{
    std::lock_guard<std::mutex> held(lock);
    const char *first = (const char *)at;
    auto after = registered.upper_bound(first);
    if (after != registered.end() && after->first < first + bytes)
        return false;
    if (after == registered.begin())
        return true;
    --after;
    bool inside = first < after->first + after->second;
    return !inside || first + bytes <= after->first + after->second;
}

std::mutex turns; /* guards the work of all streams */
std::condition_variable moved;

/* Runs the stream's work until so much of it is done. What it waits for in other streams comes
 * before it there, so nobody waits in a circle. */
void run_until(fake_stream *s, uint64_t until)
{
    std::unique_lock<std::mutex> held(turns);
    while (s->done < until) {
        if (s->running) {
            moved.wait(held);
            continue;
        }
        std::function<void()> work = std::move(s->work.front());
        s->work.pop_front();
        s->running = true;
        held.unlock();
        work();
        held.lock();
        s->running = false;
        s->done++;
        moved.notify_all();
    }
}

uint64_t queued_in(fake_stream *s)
{
    std::lock_guard<std::mutex> held(turns);
    return s->queued;
}

bool is_done(fake_stream *s, uint64_t until)
{
    std::lock_guard<std::mutex> held(turns);
    return s->done >= until;
}

void run_all(void)
{
    std::vector<fake_stream *> all;
    {
        std::lock_guard<std::mutex> held(lock);
        all = streams;
    }
    for (fake_stream *s : all)
        run_until(s, queued_in(s));
}

/* Its place in the stream. */
uint64_t enqueue(fake_stream *s, const std::function<void()> &work)
{
    static const bool late = getenv("ATOM_FAKE_LATE") != nullptr;
    std::unique_lock<std::mutex> held(turns);
    s->work.push_back(work);
    uint64_t place = ++s->queued;
    held.unlock();
    if (!late)
        run_until(s, place);
    return place;
}

void run_or_keep(fake_stream *s, const std::function<void()> &work)
{
    if (recording)
        recording->work.push_back(work);
    else
        (void)enqueue(s, work);
}
} // namespace

void shim_launch(void *stream, dim3 grid, unsigned threads, size_t shared_bytes,
                 const std::function<void()> &thread)
{
    computes = true;
    run_or_keep((fake_stream *)stream,
                [=] { shim_launch_now(nullptr, grid, threads, shared_bytes, thread); });
}

/* For the fake cuBLASLt. */
void fake_enqueue(cudaStream_t stream, const std::function<void()> &work);
int fake_card_of(cudaStream_t stream);
void fake_closed(void);

void fake_enqueue(cudaStream_t stream, const std::function<void()> &work)
{
    computes = true;
    run_or_keep(stream, work);
}
int fake_card_of(cudaStream_t stream)
{
    return stream->card;
}
/* A device has closed: nothing recorded may be left. */
void fake_closed(void)
{
    if (live_graphs != 0) {
        fprintf(stderr, "fake CUDA: %ld recorded graphs were not freed\n", live_graphs.load());
        abort();
    }
}

extern "C" {

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int *count)
{
    const char *cards = getenv("ATOM_FAKE_CARDS");
    *count = cards ? atoi(cards) : 1;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int)
{
    memset(prop, 0, sizeof *prop);
    strcpy(prop->name, "a card of the tests");
    prop->major = 8;
    prop->multiProcessorCount = 1;
    prop->totalGlobalMem = (size_t)4 << 30;
    return cudaSuccess;
}
cudaError_t cudaInitDevice(int, unsigned, unsigned)
{
    return cudaSuccess;
}
/* Of the calling thread: what is made belongs to it. */
static thread_local int the_card;
cudaError_t cudaSetDevice(int card)
{
    int cards = 0;
    (void)cudaGetDeviceCount(&cards);
    if (card < 0 || card >= cards)
        return refuse(cudaErrorInvalidDevice);
    the_card = card;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *card)
{
    *card = the_card;
    return cudaSuccess;
}
/* Memory of 1 TB/s. */
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr what, int)
{
    *value = what == cudaDevAttrMemoryClockRate ? 1000000 : 4000;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void)
{
    run_all();
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last;
    last = cudaSuccess;
    return error;
}
cudaError_t cudaPeekAtLastError(void)
{
    return last;
}
const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaSuccess ? "cudaSuccess" : "an error of the fake";
}
const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorInvalidValue ? "invalid argument" : cudaGetErrorName(error);
}

cudaError_t cudaMemGetInfo(size_t *has, size_t *all)
{
    const char *others = getenv("ATOM_FAKE_USED");
    *has = *all = (size_t)4 << 30;
    *has -= others ? (size_t)atoll(others) : 0;
    return cudaSuccess;
}
cudaError_t cudaMalloc(void **at, size_t bytes)
{
    *at = is_full(nullptr) ? nullptr : aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *at ? cudaSuccess : refuse(cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void *at)
{
    run_all();
    free(at);
    return cudaSuccess;
}
cudaError_t cudaMemset(void *at, int value, size_t bytes)
{
    memset(at, value, bytes);
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned)
{
    return cudaMalloc(at, bytes);
}
cudaError_t cudaFreeHost(void *at)
{
    return cudaFree(at);
}
cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned)
{
    std::lock_guard<std::mutex> held(lock);
    return registered.emplace((const char *)at, bytes).second ? cudaSuccess
                                                              : refuse(cudaErrorInvalidValue);
}
cudaError_t cudaHostUnregister(void *at)
{
    std::lock_guard<std::mutex> held(lock);
    return registered.erase((const char *)at) ? cudaSuccess : refuse(cudaErrorInvalidValue);
}
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    if (faulty(true))
        return refuse(fault());
    if (kind == cudaMemcpyDeviceToHost && is_full("host"))
        return refuse(cudaErrorMemoryAllocation);
    if (!in_one_piece(dst, bytes) || !in_one_piece(src, bytes))
        return refuse(cudaErrorInvalidValue);
    run_or_keep(stream, [=] { memcpy(dst, src, bytes); });
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream)
{
    run_or_keep(stream, [=] { memset(at, value, bytes); });
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    std::lock_guard<std::mutex> held(lock);
    *stream = new fake_stream;
    (*stream)->card = the_card;
    streams.push_back(*stream);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    run_until(stream, queued_in(stream));
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return is_done(stream, queued_in(stream)) ? cudaSuccess : refuse(cudaErrorNotReady);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    if (faulty())
        return refuse(fault());
    run_until(stream, queued_in(stream));
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    std::shared_ptr<fake_point> point = event->point;
    if (!point)
        return refuse(cudaErrorInvalidValue);
    (void)enqueue(stream, [=] { run_until(point->stream, point->at); });
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    *event = new fake_event{};
    (*event)->card = the_card;
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}
/* Waits may cross from one card to another; records and times may not. */
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    if (event->card != stream->card)
        return refuse(cudaErrorInvalidResourceHandle);
    auto point = std::make_shared<fake_point>();
    point->stream = stream;
    point->at = queued_in(stream) + 1; /* only this thread queues */
    event->point = point;
    (void)enqueue(stream, [=] { point->when = std::chrono::steady_clock::now(); });
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (faulty())
        return refuse(fault());
    if (!event->point)
        return refuse(cudaErrorInvalidValue);
    run_until(event->point->stream, event->point->at);
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    if (begin->card != end->card)
        return refuse(cudaErrorInvalidResourceHandle);
    for (const auto &point : {begin->point, end->point})
        if (!point || !is_done(point->stream, point->at))
            return refuse(cudaErrorNotReady);
    *ms = std::chrono::duration<float, std::milli>(end->point->when - begin->point->when).count();
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode)
{
    stream->recording = recording = new fake_graph;
    live_graphs++;
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    *status = stream->recording ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    *graph = stream->recording;
    stream->recording = recording = nullptr;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    *exec = new fake_graph(*graph);
    live_graphs++;
    return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t)
{
    exec->uploaded = getenv("ATOM_FAKE_NO_UPLOAD") == nullptr;
    return exec->uploaded ? cudaSuccess : refuse(cudaErrorMemoryAllocation);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    if (!exec->uploaded)
        return refuse(cudaErrorInvalidValue);
    if (faulty())
        return refuse(fault());
    (void)enqueue(stream, [=] {
        for (const auto &work : exec->work)
            work();
    });
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    live_graphs--;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    return cudaGraphDestroy(exec);
}

} // extern "C"
