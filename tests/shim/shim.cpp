/*
 * Owns the shim's engine: fibers, barriers, shared memory. One idea: a fiber runs until it waits,
 * and the scheduler then takes a random one of those that may run, so a missing barrier shows as
 * garbage sooner or later. Refuses to run two blocks at once, and says so when threads wait for
 * each other.
 */
#include "cuda_shim.h"

#include <cstdio>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#if defined(SHIM_ADDRESS_SANITIZER)
#include <sanitizer/common_interface_defs.h>
#define ASAN_FIBERS 1
#else
#define ASAN_FIBERS 0
#endif

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace
{

enum { STACK_BYTES = 256 << 10, WARP = 32, FIBERS_MAX = 1024 };
/* Each stack begins this much lower than the one before: at equal places all would lie in the same few
 * sets of the caches. */
enum { STAGGER_BYTES = 65 * 64, STAGGER_MAX = 64 << 10 };
enum wait_for { RUNS, AT_SYNC, AT_WARP, ENDED };

struct pending {
    void *shared;
    const void *at;
    bool there;
    uint32_t group;
};

struct fiber {
    void *sp = nullptr;
    void *stack = nullptr;
    void *fake_stack = nullptr; /* the sanitizer's */
    wait_for state = RUNS;
    uint32_t exchanges = 0;      /* collective steps so far: which half of the slots */
    std::vector<pending> copies; /* asynchronous, not yet done */
    uint32_t group = 0;          /* number of the open group */
};

struct warp_state {
    unsigned char slot[2][WARP * SHIM_SLOT];
    int arrived = 0;
};

struct engine {
    std::vector<fiber> fibers;
    std::vector<warp_state> warps;
    std::vector<int> ready; /* fibers that may run */
    std::map<const void *, void *> shared;
    void *dynamic = nullptr;
    const std::function<void()> *thread = nullptr;
    void *home_sp = nullptr, *home_fake = nullptr;
    const void *home_stack = nullptr;
    size_t home_bytes = 0;
    int current = -1, live = 0, at_sync = 0;
    uint64_t random = 88172645463325252u;
} e;

uint64_t next_random(void)
{
    e.random ^= e.random << 13;
    e.random ^= e.random >> 7;
    e.random ^= e.random << 17;
    return e.random;
}

/* Saves the callee's registers and the stack pointer, takes the other's. System V x86-64. */
extern "C" void shim_switch(void **save_sp, void *load_sp);
asm(R"(
.text
.globl shim_switch
.type shim_switch, @function
shim_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size shim_switch, .-shim_switch
.section .note.GNU-stack,"",@progbits
.text
)");

void to_home(bool for_good)
{
    fiber &f = e.fibers[(size_t)e.current];
#if ASAN_FIBERS
    __sanitizer_start_switch_fiber(for_good ? nullptr : &f.fake_stack, e.home_stack, e.home_bytes);
#else
    (void)for_good;
#endif
    shim_switch(&f.sp, e.home_sp);
#if ASAN_FIBERS
    __sanitizer_finish_switch_fiber(f.fake_stack, &e.home_stack, &e.home_bytes);
#endif
}

__attribute__((noinline)) void fiber_ended(void)
{
    fiber &f = e.fibers[(size_t)e.current];
    if (!f.copies.empty())
        shim_fail("the thread ends with copies into shared memory under way");
    f.state = ENDED;
    e.live--;
}

/* Never returns, so it must not leave the sanitizer's marks on the stack: the fiber is used again.
 */
__attribute__((no_sanitize_address)) void fiber_main(void)
{
#if ASAN_FIBERS
    __sanitizer_finish_switch_fiber(nullptr, &e.home_stack, &e.home_bytes);
#endif
    (*e.thread)();
    fiber_ended();
    to_home(true);
    shim_fail("an ended thread ran again");
}

void run_fiber(int i)
{
    fiber &f = e.fibers[(size_t)i];
    e.current = i;
    threadIdx.x = (unsigned)i;
#if ASAN_FIBERS
    __sanitizer_start_switch_fiber(&e.home_fake, f.stack, STACK_BYTES);
#endif
    shim_switch(&e.home_sp, f.sp);
#if ASAN_FIBERS
    __sanitizer_finish_switch_fiber(e.home_fake, nullptr, nullptr);
#endif
}

void prepare_fibers(unsigned threads)
{
    size_t have = e.fibers.size();
    if (have < threads)
        e.fibers.resize(threads);
    for (; have < threads; have++) {
        void *stack = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED)
            shim_fail("no memory for stacks");
        e.fibers[have].stack = stack;
    }
    e.warps.assign(threads / WARP, warp_state());
    e.ready.clear();
    for (unsigned i = 0; i < threads; i++) {
        fiber &f = e.fibers[i];
        void **top = (void **)((char *)f.stack + STACK_BYTES - i * STAGGER_BYTES % STAGGER_MAX);
        for (int r = 0; r < 3; r++)
            *--top = nullptr; /* the end of a back trace, and the alignment of a called function */
        *--top = (void *)fiber_main; /* where shim_switch returns to */
        for (int r = 0; r < 6; r++)
            *--top = nullptr;
        f.sp = top;
        f.fake_stack = nullptr;
        f.state = RUNS;
        f.exchanges = 0;
        f.copies.clear();
        f.group = 0;
        e.ready.push_back((int)i);
    }
    e.live = (int)threads;
    e.at_sync = 0;
}

void release_sync(unsigned threads)
{
    e.at_sync = 0;
    for (unsigned i = 0; i < threads; i++) {
        if (e.fibers[i].state == AT_SYNC) {
            e.fibers[i].state = RUNS;
            e.ready.push_back((int)i);
        }
    }
}

void *poisoned(size_t bytes)
{
    void *at = aligned_alloc(128, (bytes + 127) / 128 * 128);
    if (!at)
        shim_fail("no memory for shared arrays");
    memset(at, 0xff, bytes); /* NaN in every float type */
    return at;
}

void run_block(unsigned threads, size_t shared_bytes)
{
    prepare_fibers(threads);
    e.dynamic = shared_bytes ? poisoned(shared_bytes) : nullptr;
    while (e.live > 0) {
        if (e.at_sync == e.live)
            release_sync(threads);
        if (e.ready.empty())
            shim_fail("threads wait for others that never come: a barrier or warp primitive that "
                      "not all of them reach");
        size_t pick = (size_t)((next_random() >> 32) * e.ready.size() >> 32);
        int i = e.ready[pick];
        e.ready[pick] = e.ready.back();
        e.ready.pop_back();
        run_fiber(i);
    }
    for (auto &one : e.shared)
        free(one.second);
    e.shared.clear();
    free(e.dynamic);
    e.dynamic = nullptr;
}

} // namespace

void shim_fail(const char *what)
{
    fprintf(stderr, "shim: block %u,%u,%u thread %u: %s\n", blockIdx.x, blockIdx.y, blockIdx.z,
            threadIdx.x, what);
    fflush(nullptr);
    _exit(1);
}

void shim_sync(void)
{
    e.fibers[(size_t)e.current].state = AT_SYNC;
    e.at_sync++;
    to_home(false);
}

const unsigned char *shim_warp_exchange(const void *mine, size_t bytes)
{
    if (bytes > SHIM_SLOT)
        shim_fail("more bytes than a slot of the warp has");
    int self = e.current, first = self / WARP * WARP;
    fiber &f = e.fibers[(size_t)self];
    warp_state &w = e.warps[(size_t)(self / WARP)];
    unsigned char *half = w.slot[f.exchanges++ % 2];
    memcpy(half + (self - first) * SHIM_SLOT, mine, bytes);
    if (++w.arrived < WARP) {
        f.state = AT_WARP;
        to_home(false);
        return half;
    }
    w.arrived = 0;
    for (int i = first; i < first + WARP; i++) {
        if (i != self) {
            if (e.fibers[(size_t)i].state != AT_WARP)
                shim_fail("a warp primitive without all lanes");
            e.fibers[(size_t)i].state = RUNS;
            e.ready.push_back(i);
        }
    }
    return half;
}

/* Word i of what a lane gave, as its two elements. The slots are this file's: unchecked, for speed.
 */
__attribute__((no_sanitize_address)) static inline void
bf16_pair(double x[2], const unsigned char *slots, int lane, int i)
{
    union {
        uint32_t bits;
        float value;
    } low, high;
    uint32_t pair = ((const uint32_t *)(slots + lane * SHIM_SLOT))[i];
    low.bits = pair << 16;
    high.bits = pair & 0xffff0000u;
    x[0] = (double)low.value;
    x[1] = (double)high.value;
}

__attribute__((no_sanitize_address)) void shim_mma(float d[4], const unsigned char *slots)
{
    int lane = (int)(threadIdx.x & 31u), g = lane / 4, t = lane % 4;
    double row[2][16], column[2][16];
    for (int quad = 0; quad < 4; quad++) {
        for (int k = 0; k < 2; k++) { /* halves of the depth */
            for (int i = 0; i < 2; i++) {
                bf16_pair(row[i] + 8 * k + 2 * quad, slots, g * 4 + quad, i + 2 * k);
                bf16_pair(column[i] + 8 * k + 2 * quad, slots, (2 * t + i) * 4 + quad, 4 + k);
            }
        }
    }
    for (int e = 0; e < 4; e++) {
        double sum = (double)d[e];
        for (int k = 0; k < 16; k++)
            sum += row[e / 2][k] * column[e % 2][k];
        d[e] = (float)sum;
    }
}

void shim_copy_async(void *shared, const void *at, bool there)
{
    fiber &f = e.fibers[(size_t)e.current];
    f.copies.push_back({shared, at, there, f.group});
}

void shim_copy_commit(void)
{
    e.fibers[(size_t)e.current].group++;
}

void shim_copy_wait(int groups)
{
    fiber &f = e.fibers[(size_t)e.current];
    std::vector<pending> later;
    for (const pending &p : f.copies) {
        if (p.group + (uint32_t)groups >= f.group)
            later.push_back(p);
        else if (p.there)
            memcpy(p.shared, p.at, 16);
        else
            memset(p.shared, 0, 16);
    }
    f.copies.swap(later);
}

void *shim_shared(const void *key, size_t bytes)
{
    void *&at = e.shared[key];
    if (!at)
        at = poisoned(bytes);
    return at;
}

void *shim_shared_dynamic(void)
{
    if (!e.dynamic)
        shim_fail("a kernel uses dynamic shared memory, and its launch asks for none");
    return e.dynamic;
}

void shim_launch(void *, dim3 grid, unsigned threads, size_t shared_bytes,
                 const std::function<void()> &thread)
{
    static std::mutex one_at_a_time; /* each of several cards launches from a thread of its own */
    static thread_local bool inside;
    if (inside)
        shim_fail("a launch from inside a kernel");
    std::lock_guard<std::mutex> turn(one_at_a_time);
    inside = true;
    e.thread = &thread;
    gridDim = grid;
    blockDim.x = threads;
    for (blockIdx.z = 0; blockIdx.z < grid.z; blockIdx.z++) {
        for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++) {
            for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++)
                run_block(threads, shared_bytes);
        }
    }
    inside = false;
}
