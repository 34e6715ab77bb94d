/*
 * Rows of a norm's backward, read ahead. A block has several teams of whole warps; a team takes
 * every teams-th row of the block's share, and each of its threads always has the same packs of a
 * row, so the sums of its columns stay in registers until the share ends. The block has one barrier
 * for all rows that its teams work on at a time. Meanwhile the packs of later rows are on their way
 * into shared memory, each to a place that only its own thread reads: it waits for its own copies
 * and needs no barrier. So the bytes under way do not depend on registers or on resident blocks.
 * The packs of rows too wide for that (krn_reads_ahead) are loaded when they are needed.
 *
 * Which row is added when depends on N and C alone, never on the card. Refuses atomics.
 */
#ifndef KERNELS_CUDA_TEAMS_CUH
#define KERNELS_CUDA_TEAMS_CUH

#include "kernels/cuda/finish.cuh"

enum {
    KRN_TEAM_PARTS_MAX = 256,     /* two blocks for each multiprocessor of the cards of today */
    KRN_TEAM_SCRATCH_BYTES = 256, /* two turns of two sums of 16 warps */
    KRN_TEAM_STAGES_MAX = 4,
    KRN_TEAM_SLOTS_BYTES = KRN_ROW_THREADS_MAX * 16, /* a pack for each thread */
    KRN_TEAM_SHARED_BYTES = 48 << 10                 /* so that two blocks share 100 KiB */
};

struct krn_teams {
    unsigned threads; /* of a block */
    int team, n;      /* threads of a team; teams */
    int packs;        /* per thread: 1, 2 or 4; 0: element by element */
    int stages;       /* rows ahead per team; 0: none */
    size_t shared_bytes;
};

/* Whether rows are read ahead: one row of each of three tensors fits. */
static __host__ __device__ constexpr bool krn_reads_ahead(int packs, int W)
{
    return packs == 1 || (packs == 2 && W == 8);
}

/* Rows of C in packs of W, of `tensors` tensors that are read; `sums` sums per column. */
static inline krn_teams krn_teams_of(int64_t C, int W, int tensors, int sums)
{
    krn_row row = krn_row_of(C, W);
    krn_teams s = {KRN_ROW_THREADS_MAX, KRN_ROW_THREADS_MAX, 1, row.packs, 0, 0};
    s.shared_bytes = KRN_TEAM_SCRATCH_BYTES;
    if (row.packs == 0)
        return s;
    s.team = (int)row.threads;
    s.n = KRN_ROW_THREADS_MAX / s.team;
    ATOM_ASSERT(s.packs == 1 || s.n == 1); /* krn_team_fold is for one pack */
    s.threads = (unsigned)(s.team * s.n);
    int stage = tensors * s.packs * KRN_TEAM_SLOTS_BYTES, room = KRN_TEAM_SHARED_BYTES;
    if (!krn_reads_ahead(s.packs, W))
        return s;
    if (W == 4) /* fp32 runs on cards that have no more than 48 KiB in all */
        room -= KRN_TEAM_SCRATCH_BYTES;
    s.stages = room / stage < KRN_TEAM_STAGES_MAX ? room / stage : KRN_TEAM_STAGES_MAX;
    int fold = s.n > 1 ? (int)s.threads * sums * W * (int)sizeof(float) : 0;
    int used = s.stages * stage;
    s.shared_bytes += (size_t)(used > fold ? used : fold);
    return s;
}

/* What a thread of a team reads: of rows n, n + teams, ... below end, counted from the block's first
 * one, PACKS packs that are `step` elements apart; `from` points to the first pack of row 0. */
struct krn_ahead {
    unsigned char *slots; /* shared: of this thread, [stages][tensors][packs][THREADS_MAX] */
    int C, end, column, step;
    int teams, stages;
    int stage; /* bytes from slots to the oldest */
};

/* Pack p is one of row n. */
static __device__ __forceinline__ bool krn_ahead_there(const krn_ahead *a, int n, int p)
{
    return n < a->end && a->column + p * a->step < a->C;
}

/* Asks for row n of `from` into the current stage, and goes on to the next stage. */
template <typename A, int TENSORS, int PACKS>
static __device__ __forceinline__ void krn_ahead_ask(krn_ahead *a, const A *const from[TENSORS],
                                                     int n)
{
    constexpr int STAGE = TENSORS * PACKS * KRN_TEAM_SLOTS_BYTES;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        if (!krn_ahead_there(a, n, p))
            continue;
#pragma unroll
        for (int t = 0; t < TENSORS; t++)
            krn_copy16_async(a->slots + a->stage + (t * PACKS + p) * KRN_TEAM_SLOTS_BYTES,
                             from[t] + (n * a->C + p * a->step), true);
    }
    krn_copy_commit();
    a->stage = a->stage == (a->stages - 1) * STAGE ? 0 : a->stage + STAGE;
}

/* Asks for the first `stages` rows from n on. */
template <typename A, int TENSORS, int PACKS>
static __device__ __forceinline__ void krn_ahead_begin(krn_ahead *a, const A *const from[TENSORS],
                                                       int n)
{
    a->stage = 0;
    if constexpr (krn_reads_ahead(PACKS, krn_pack<A>::N)) {
        for (int stage = 0; stage < a->stages; stage++)
            krn_ahead_ask<A, TENSORS, PACKS>(a, from, n + stage * a->teams);
    }
}

/* Until the oldest of `stages` groups of copies is there. */
static __device__ __forceinline__ void krn_ahead_wait(int stages)
{
    if (stages == 1)
        krn_copy_wait<0>();
    else if (stages == 2)
        krn_copy_wait<1>();
    else if (stages == 3)
        krn_copy_wait<2>();
    else
        krn_copy_wait<3>();
}

/* This thread's packs of row n, which is the oldest that was asked for; asks for the next one. */
template <typename A, int TENSORS, int PACKS>
static __device__ __forceinline__ void krn_ahead_take(krn_ahead *a, uint4 got[TENSORS][PACKS],
                                                      const A *const from[TENSORS], int n)
{
    constexpr bool AHEAD = krn_reads_ahead(PACKS, krn_pack<A>::N);
    if constexpr (AHEAD)
        krn_ahead_wait(a->stages);
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        if (!krn_ahead_there(a, n, p))
            continue;
#pragma unroll
        for (int t = 0; t < TENSORS; t++)
            got[t][p] =
                AHEAD ? krn_load16(a->slots + a->stage + (t * PACKS + p) * KRN_TEAM_SLOTS_BYTES)
                      : krn_load16(from[t] + (n * a->C + p * a->step));
    }
    if constexpr (AHEAD)
        krn_ahead_ask<A, TENSORS, PACKS>(a, from, n + a->stages * a->teams);
}

/* SUMS sums over the team, the same in each of its threads: halves of a warp, then warps in
 * ascending order. All threads of the block call it. scratch: the turns alternate. */
template <int SUMS>
static __device__ __forceinline__ void krn_team_sums(float sum[SUMS], float *scratch, int turn,
                                                     int team)
{
#pragma unroll
    for (int away = 16; away; away >>= 1) {
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            sum[i] += krn_shuffle_xor(sum[i], away);
    }
    int warps = team / 32, first = krn_warp() / warps * warps;
    float *mine = scratch + turn * 16 * SUMS;
    if (krn_lane() == 0) {
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            mine[krn_warp() * SUMS + i] = sum[i];
    }
    krn_sync();
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        sum[i] = mine[first * SUMS + i];
#pragma unroll 4
    for (int warp = 1; warp < warps; warp++) {
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            sum[i] += mine[(first + warp) * SUMS + i];
    }
}

/* Adds the V sums of all teams to those of the first, in ascending order. space: V floats for each
 * thread of the block, in shared memory; with one team it is not touched. */
template <int V>
static __device__ __forceinline__ void krn_team_fold(float sum[V], float *space, int team,
                                                     int teams)
{
    if (teams == 1)
        return;
    int threads = (int)blockDim.x, at = (int)threadIdx.x;
    krn_sync();
#pragma unroll
    for (int i = 0; i < V; i += 4)
        krn_store_pack(space + (i / 4 * threads + at) * 4, sum + i);
    krn_sync();
    if (at >= team)
        return;
    for (int k = 1; k < teams; k++) {
#pragma unroll
        for (int i = 0; i < V; i += 4) {
            float other[4];
            krn_load_pack(space + (i / 4 * threads + k * team + at) * 4, other);
#pragma unroll
            for (int j = 0; j < 4; j++)
                sum[i + j] += other[j];
        }
    }
}

#endif
