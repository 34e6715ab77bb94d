/*
 * Owns the matrix products of the CUDA backend, over cuBLASLt (blas_product.h). One idea: each shape
 * gets one algorithm, chosen once per machine by measurement and kept in a file (algos.h), so that
 * bits never depend on a plan, a run or a moment. Refuses algorithms that add in an order of their
 * own (atomics), TF32, and shapes the library has nothing for: those go to plain.cu.
 *
 * ATOM_CUDA_BLAS = first (no measuring), bare (no fused gelu and sums), plain (never the library):
 * for comparisons and for doubts. Each has its own file.
 */
#include "kernels/cuda/algos.h"
#include "kernels/cuda/blas_lt.h"
#include "kernels/cuda/blas_product.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/plain.h"

#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CARDS_MAX = 16,
    PRODUCTS_MAX = 1024,
    TRIED_MAX = 8,
    ROUNDS = 3,
    REPEATS_MAX = 32,
    MESSAGE_MAX = 256
};
/* A measurement: at least so long, after the card has left its idle clock, and what is not clearly
 * faster than the library's own first choice is not chosen. */
static const double MEASURED_MS = 0.2, WARM_MS = 50, CLEARLY = 0.98;
static const uint64_t SUMS_BYTES = KRN_LT_SUMS_BYTES;

/* Cards of one kind; each computes on a thread of its own, open and close are on another. A handle
 * is of one card; algorithms are the same for all of them. */
static struct {
    pthread_mutex_t lock;
    int users;
    char identity[256];
    bool first_only, bare, plain_only, warm, told_again;
    double bytes_per_second; /* of the card's memory: what a separate pass costs */
    cublasLtHandle_t handles[CARDS_MAX];
    krn_algos *algos;
    krn_lt_product *products;
    uint32_t n;
    char failure[MESSAGE_MAX];
} lib = {.lock = PTHREAD_MUTEX_INITIALIZER};

uint64_t krn_cuda_matmul_workspace(void)
{
    return KRN_LT_BYTES + SUMS_BYTES;
}

/* Of the calling thread's card; NULL: it is not open. */
static cublasLtHandle_t handle(void)
{
    int card = 0;
    (void)cudaGetDevice(&card);
    return card >= 0 && card < CARDS_MAX ? lib.handles[card] : NULL;
}

static void failed(const char *what, int code, const krn_lt_shape *s)
{
    if (lib.failure[0])
        return;
    snprintf(lib.failure, sizeof lib.failure,
             "cuBLASLt: %s failed with status %d for a %lldx%lldx%lld product", what, code,
             (long long)s->m, (long long)s->n, (long long)s->k);
}

bool krn_cuda_blas_failed(char *out, size_t bytes)
{
    if (!lib.failure[0])
        return false;
    snprintf(out, bytes, "%s", lib.failure);
    lib.failure[0] = '\0';
    return true;
}

/* --- choosing an algorithm -------------------------------------------------------------------- */

/* cuBLASLt 13.1 on sm_90 was seen to leave out what k has beyond whole tiles where it splits k
 * (facebookexperimental/triton 2767): no splits unless k is of whole tiles. The library is asked for
 * none, so that others take their places in the list, and what it offers is looked at all the same. */
static bool may_split(const krn_lt_product *p)
{
    return p->s.k % 128 == 0;
}

static bool sums_all_of_k(const krn_lt_product *p, const cublasLtMatmulAlgo_t *algo)
{
    int32_t splits = 0;
    size_t bytes = 0;
    if (may_split(p))
        return true;
    return cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits,
                                                sizeof splits, &bytes) == CUBLAS_STATUS_SUCCESS &&
           splits <= 1;
}

static int candidates(krn_lt_product *p, cublasLtMatmulHeuristicResult_t found[TRIED_MAX])
{
    cublasLtMatmulPreference_t want = NULL;
    uint32_t align = (uint32_t)p->s.align;
    uint32_t schemes =
        may_split(p) ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
    int n = 0, good = 0;
    if (cublasLtMatmulPreferenceCreate(&want) != CUBLAS_STATUS_SUCCESS)
        return 0;
    const struct {
        cublasLtMatmulPreferenceAttributes_t what;
        const void *value;
        size_t bytes;
    } set_to[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &KRN_LT_BYTES, sizeof KRN_LT_BYTES},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align, sizeof align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align, sizeof align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align, sizeof align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align, sizeof align},
    };
    bool ok = true;
    for (size_t i = 0; i < sizeof set_to / sizeof set_to[0]; i++)
        ok = ok && cublasLtMatmulPreferenceSetAttribute(want, set_to[i].what, set_to[i].value,
                                                        set_to[i].bytes) == CUBLAS_STATUS_SUCCESS;
    if (!ok || cublasLtMatmulAlgoGetHeuristic(handle(), p->desc, p->a, p->b, p->d, p->d, want,
                                              TRIED_MAX, found, &n) != CUBLAS_STATUS_SUCCESS)
        n = 0;
    for (int i = 0; i < n; i++) {
        if (found[i].state == CUBLAS_STATUS_SUCCESS && found[i].workspaceSize <= KRN_LT_BYTES &&
            sums_all_of_k(p, &found[i].algo))
            found[good++] = found[i];
    }
    (void)cublasLtMatmulPreferenceDestroy(want);
    return good;
}

/* Milliseconds of one of `repeats` products in a row with p's algorithm; < 0 where it does not
 * run. */
static double time_once(krn_lt_product *p, const krn_matmul *mm, void *d, void *workspace,
                        cudaStream_t stream, const cudaEvent_t mark[2], int repeats)
{
    float ms = 0;
    bool ok = cudaEventRecord(mark[0], stream) == cudaSuccess;
    for (int i = 0; ok && i < repeats; i++)
        ok = krn_lt_multiply(handle(), p, mm, d, workspace, stream) == CUBLAS_STATUS_SUCCESS;
    ok = ok && cudaEventRecord(mark[1], stream) == cudaSuccess &&
         cudaEventSynchronize(mark[1]) == cudaSuccess &&
         cudaEventElapsedTime(&ms, mark[0], mark[1]) == cudaSuccess;
    return ok ? (double)ms / repeats : -1;
}

/* Least milliseconds of the product with p's algorithm; < 0 where it does not run. */
static double time_of(krn_lt_product *p, const krn_matmul *mm, void *d, void *workspace,
                      cudaStream_t stream)
{
    cudaEvent_t mark[2] = {NULL, NULL};
    double least = -1;
    if (cudaEventCreate(&mark[0]) == cudaSuccess && cudaEventCreate(&mark[1]) == cudaSuccess) {
        double ms = time_once(p, mm, d, workspace, stream, mark, 1), warmed = 0; /* loads it, too */
        ms = ms < 0 ? ms : time_once(p, mm, d, workspace, stream, mark, 1);
        int repeats = ms > MEASURED_MS / REPEATS_MAX ? (int)(MEASURED_MS / ms) + 1 : REPEATS_MAX;
        while (ms >= 0 && !lib.warm && warmed < WARM_MS) {
            ms = time_once(p, mm, d, workspace, stream, mark, repeats);
            warmed += ms > 1e-3 ? ms * repeats : 1e-3;
        }
        lib.warm |= ms >= 0;
        for (int i = 0; i < ROUNDS && ms >= 0; i++) {
            ms = time_once(p, mm, d, workspace, stream, mark, repeats);
            least = least < 0 || ms < least ? ms : least;
        }
    }
    for (int i = 0; i < 2; i++) {
        if (mark[i])
            (void)cudaEventDestroy(mark[i]);
    }
    return least;
}

/* Milliseconds that the passes cost which the product leaves to kernels. */
static double left_ms(const krn_lt_shape *s, unsigned left)
{
    double each = (double)atom_dtype_bytes((atom_dtype)s->ab), bytes = 0;
    if (left & KRN_LEFT_GELU)
        bytes += 2.0 * each * (double)s->m * (double)s->n;
    if (left & KRN_LEFT_SUMS)
        bytes += each * (double)s->m * (double)s->k;
    return bytes == 0 ? 0 : 3e-3 + bytes / (0.8 * lib.bytes_per_second) * 1e3;
}

/* The fastest of the candidates into p; false where none runs. d: scratch of d's size or d. */
static bool fastest(krn_lt_product *p, const krn_matmul *mm, void *d, void *workspace,
                    cudaStream_t stream, double *ms)
{
    cublasLtMatmulHeuristicResult_t found[TRIED_MAX];
    int n = candidates(p, found), best = -1;
    for (int i = 0; i < n && d; i++) {
        p->algo = found[i].algo;
        double one = time_of(p, mm, d, workspace, stream);
        if (one >= 0 && (best < 0 || one < (best == 0 ? CLEARLY : 1) * *ms)) {
            best = i;
            *ms = one;
        }
    }
    if (!d && n > 0) {
        best = 0;
        *ms = 0;
    }
    if (best >= 0)
        p->algo = found[best].algo;
    return best >= 0;
}

static bool capturing(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
           status != cudaStreamCaptureStatusNone;
}

/* Whether a choice can be measured here, and outlives the process. */
static bool measures(cudaStream_t stream)
{
    return !lib.first_only && !lib.plain_only && krn_algos_kept(lib.algos) && !capturing(stream);
}

static uint64_t d_bytes(const krn_lt_shape *s)
{
    return (uint64_t)((s->m - 1) * s->ldd + s->n) * atom_dtype_bytes((atom_dtype)s->d_dtype);
}

/* Where candidates write. What a product adds to must be the same afterwards: they add to memory that the
 * card has to spare, or to d itself while the host keeps what was there. */
typedef struct target {
    void *d;     /* NULL: there is no memory for it anywhere */
    void *spare; /* of the card */
    void *kept;  /* on the host */
} target;

static bool copy(void *to, const void *from, uint64_t bytes, enum cudaMemcpyKind kind,
                 cudaStream_t stream)
{
    return cudaMemcpyAsync(to, from, bytes, kind, stream) == cudaSuccess &&
           cudaStreamSynchronize(stream) == cudaSuccess;
}

static target target_begin(const krn_lt_shape *s, const krn_matmul *mm, cudaStream_t stream)
{
    target t = {.d = mm->d};
    if (!mm->add)
        return t;
    if (cudaMalloc(&t.spare, d_bytes(s)) == cudaSuccess) {
        t.d = t.spare;
        return t;
    }
    t.spare = NULL;
    t.kept = atom_alloc(1, d_bytes(s));
    if (!t.kept || !copy(t.kept, mm->d, d_bytes(s), cudaMemcpyDeviceToHost, stream))
        t.d = NULL;
    return t;
}

static void target_end(const target *t, const krn_lt_shape *s, const krn_matmul *mm,
                       cudaStream_t stream)
{
    if (t->spare)
        (void)cudaFree(t->spare);
    if (t->kept && t->d && !copy(mm->d, t->kept, d_bytes(s), cudaMemcpyHostToDevice, stream))
        failed("what a product adds to", (int)cudaPeekAtLastError(), s);
    atom_free(t->kept);
}

/* Which epilogues to try: all in the product, or each left to a kernel. Ends with everything left.
 * The library's gelu is not accurate enough for f32, and wants rows of aux in whole 16 bytes. */
static int ways_of(const krn_lt_shape *s, unsigned ways[2])
{
    unsigned all = (s->aux ? KRN_LEFT_GELU : 0u) | (s->sums ? KRN_LEFT_SUMS : 0u);
    int n = 0;
    bool fits = !s->sums || (uint64_t)s->m * sizeof(float) <= SUMS_BYTES;
    fits = fits && (!s->aux || (s->ab == ATOM_BF16 && s->ldd % 8 == 0));
    if (all && !lib.bare && fits)
        ways[n++] = 0;
    ways[n++] = all;
    return n;
}

/* Slow, so it is not kept a secret. */
static void tell_plain(const char *key)
{
    char text[KRN_ALGO_KEY_MAX + 96];
    snprintf(text, sizeof text,
             "cuBLASLt has no algorithm for the product %s; a plain kernel computes it, slowly",
             key);
    krn_cuda_log(ATOM_LOG_WARN, text);
}

/* A new choice; *p is opened. Measured where measuring is possible and can be kept. */
static void choose(krn_lt_product *p, const krn_matmul *mm, void *workspace, cudaStream_t stream,
                   krn_algo *out)
{
    krn_lt_shape s = p->s;
    unsigned ways[2];
    int n = lib.plain_only ? 0 : ways_of(&s, ways);
    target to = {0};
    if (measures(stream))
        to = target_begin(&s, mm, stream);
    float *sums = (float *)(void *)((char *)workspace + KRN_LT_BYTES);
    double best = 0;
    bool have = false;
    for (int w = 0; w < n; w++) {
        krn_lt_product one;
        double ms = 0;
        if (have && !to.d)
            break; /* not measured: the first that the library offers */
        if (!krn_lt_open(&one, &s, ways[w]))
            continue;
        if (krn_lt_point(&one, mm, sums) && fastest(&one, mm, to.d, workspace, stream, &ms) &&
            (!have || ms + left_ms(&s, ways[w]) < best)) {
            krn_lt_close(p);
            *p = one;
            have = true;
            best = ms + left_ms(&s, ways[w]);
        } else
            krn_lt_close(&one);
    }
    target_end(&to, &s, mm, stream);
    (void)cudaGetLastError(); /* what a candidate refused is no fault of ours */
    p->plain = !have;
    if (!have && !lib.plain_only)
        tell_plain(out->key);
    p->left = have ? p->left : 0;
    out->left = p->left;
    out->plain = p->plain;
    out->seconds = !have || !to.d ? 0 : best > 0 ? best * 1e-3 : 1e-9;
    memcpy(out->word, &p->algo, sizeof out->word);
}

/* The kept choice, if the library still takes it. It looks at the alignment of addresses, too. */
static bool take(krn_lt_product *p, const krn_matmul *mm, float *sums, const krn_algo *kept)
{
    cublasLtMatmulHeuristicResult_t result;
    krn_lt_shape s = p->s;
    _Static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof kept->word, "an algorithm is 64 bytes");
    if (kept->plain) {
        p->plain = true;
        return true;
    }
    if (!krn_lt_open(p, &s, kept->left))
        return false;
    memcpy(&p->algo, kept->word, sizeof p->algo);
    if (krn_lt_point(p, mm, sums) &&
        cublasLtMatmulAlgoCheck(handle(), p->desc, p->a, p->b, p->d, p->d, &p->algo, &result) ==
            CUBLAS_STATUS_SUCCESS &&
        result.workspaceSize <= KRN_LT_BYTES)
        return true;
    krn_cuda_log(ATOM_LOG_WARN, "cuBLASLt does not accept an algorithm that was kept; choosing "
                                "again");
    krn_lt_close(p);
    return false;
}

static void tell_again(void)
{
    if (!lib.told_again)
        krn_cuda_log(
            ATOM_LOG_INFO,
            "note: some matrix products had got an algorithm without measuring, because no "
            "memory was left for that; they are measured now, so results may differ in their "
            "last bits from those of earlier runs");
    lib.told_again = true;
}

/* The kept choice, or a new one, which is kept. The file is locked. One that was not measured is made
 * again as soon as it can be, but not while a process lives: its bits stay what they are. */
static void settle(krn_lt_product *p, const krn_lt_shape *s, const krn_matmul *mm, void *workspace,
                   cudaStream_t stream)
{
    krn_algo algo = {.workspace_bytes = KRN_LT_BYTES}, old = {0};
    float *sums = (float *)(void *)((char *)workspace + KRN_LT_BYTES);
    memset(p, 0, sizeof *p);
    p->s = *s;
    krn_lt_key(s, algo.key);
    const krn_algo *kept = krn_algos_find(lib.algos, algo.key);
    if (kept)
        old = *kept;
    bool again = kept && krn_algo_is_makeshift(&old) && measures(stream);
    if (kept && !again && take(p, mm, sums, &old))
        return;
    memset(p, 0, sizeof *p);
    p->s = *s;
    choose(p, mm, workspace, stream, &algo);
    if (again && algo.seconds == 0) { /* in vain */
        krn_lt_close(p);
        memset(p, 0, sizeof *p);
        p->s = *s;
        if (take(p, mm, sums, &old))
            return;
        choose(p, mm, workspace, stream, &algo);
    } else if (again)
        tell_again();
    if (krn_algos_add(lib.algos, &algo) != ATOM_OK)
        failed("remembering an algorithm", 0, s);
}

static krn_lt_product *add_product(const krn_lt_shape *s, const krn_matmul *mm, void *workspace,
                                   cudaStream_t stream)
{
    if (lib.n == PRODUCTS_MAX) {
        failed("remembering one more shape", 0, s);
        return NULL;
    }
    cudaError_t before = cudaPeekAtLastError(); /* which choosing would clear */
    if (before != cudaSuccess)
        failed("a kernel before a product", (int)before, s);
    krn_lt_product *p = &lib.products[lib.n];
    krn_algos_lock(lib.algos);
    settle(p, s, mm, workspace, stream);
    krn_algos_unlock(lib.algos);
    lib.n++;
    return p;
}

static krn_lt_product *find(const krn_lt_shape *s)
{
    for (uint32_t i = 0; i < lib.n; i++) {
        if (memcmp(&lib.products[i].s, s, sizeof *s) == 0)
            return &lib.products[i];
    }
    return NULL;
}

/* --- the call --------------------------------------------------------------------------------- */

static void run(krn_ctx *cx, krn_lt_product *p, const krn_matmul *mm, void *workspace)
{
    cudaStream_t stream = (cudaStream_t)cx->native_stream;
    float *sums = (float *)(void *)((char *)workspace + KRN_LT_BYTES);
    krn_matmul call = *mm;
    if (mm->aux && (p->left & KRN_LEFT_GELU))
        call.d = mm->aux;
    bool ok = krn_lt_point(p, &call, sums);
    cublasStatus_t status = krn_lt_multiply(handle(), p, &call, call.d, workspace, stream);
    if (!ok || status != CUBLAS_STATUS_SUCCESS)
        failed("a matrix product", (int)status, &p->s);
    if (mm->sums && !(p->left & KRN_LEFT_SUMS))
        krn_cuda_add_to(cx, mm->sums, sums, mm->m);
}

unsigned krn_cuda_matmul(krn_ctx *cx, const krn_matmul *mm, void *workspace)
{
    if (mm->m == 0 || mm->n == 0)
        return 0;
    krn_lt_shape s = krn_lt_shape_of(mm);
    unsigned left = (mm->aux ? KRN_LEFT_GELU : 0u) | (mm->sums ? KRN_LEFT_SUMS : 0u);
    pthread_mutex_lock(&lib.lock);
    bool open = handle() != NULL;
    krn_lt_product *p = open ? find(&s) : NULL;
    if (!p && open)
        p = add_product(&s, mm, workspace, (cudaStream_t)cx->native_stream);
    if (p && p->plain)
        left = krn_cuda_plain_matmul(cx, mm);
    else if (p) {
        left = p->left;
        run(cx, p, mm, workspace);
    } else
        failed("a product without an open device", 0, &s);
    pthread_mutex_unlock(&lib.lock);
    return left;
}

/* --- life ------------------------------------------------------------------------------------- */

static void read_doubts(void)
{
    const char *asked = getenv("ATOM_CUDA_BLAS");
    asked = asked ? asked : "";
    lib.first_only = strcmp(asked, "first") == 0;
    lib.bare = strcmp(asked, "bare") == 0;
    lib.plain_only = strcmp(asked, "plain") == 0;
}

static double memory_rate(void)
{
    int card = 0, khz = 0, bits = 0;
    (void)cudaGetDevice(&card);
    (void)cudaDeviceGetAttribute(&khz, cudaDevAttrMemoryClockRate, card);
    (void)cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, card);
    double rate = 2.0 * (double)khz * 1e3 * (double)bits / 8;
    return rate > 1e10 ? rate : 5e11; /* unknown: a middling card */
}

static void close_all(void)
{
    for (uint32_t i = 0; i < lib.n; i++)
        krn_lt_close(&lib.products[i]);
    lib.n = 0;
    atom_free(lib.products);
    lib.products = NULL;
    krn_algos_close(&lib.algos);
    for (int card = 0; card < CARDS_MAX; card++) {
        if (lib.handles[card])
            (void)cublasLtDestroy(lib.handles[card]);
        lib.handles[card] = NULL;
    }
}

static atom_status open_all(void)
{
    atom_status st;
    char *dir = NULL;
    char *identity = atom_format("%s cublasLt %zu%s%s%s", lib.identity, cublasLtGetVersion(),
                                 lib.first_only ? " first" : "", lib.bare ? " bare" : "",
                                 lib.plain_only ? " plain" : "");
    lib.bytes_per_second = memory_rate();
    lib.products = atom_alloc(PRODUCTS_MAX, sizeof *lib.products);
    if (!identity || !lib.products)
        ATOM_TRY_CLEAN(atom_fail_memory("matrix products", PRODUCTS_MAX * sizeof *lib.products));
    if (atom_cache_dir(&dir) != ATOM_OK)
        dir = NULL; /* choices then live as long as the process, unmeasured */
    ATOM_TRY_CLEAN(krn_algos_open(dir, identity, &lib.algos));
cleanup:
    atom_free(dir);
    atom_free(identity);
    if (st != ATOM_OK)
        close_all();
    return st;
}

/* The calling thread's card gets its handle. */
static atom_status open_card(void)
{
    int card = 0;
    (void)cudaGetDevice(&card);
    if (card < 0 || card >= CARDS_MAX)
        return atom_fail(ATOM_E_UNSUPPORTED, "device: card numbers go up to %d", CARDS_MAX - 1);
    if (lib.handles[card])
        return ATOM_OK;
    cublasStatus_t status = cublasLtCreate(&lib.handles[card]);
    if (status == CUBLAS_STATUS_SUCCESS)
        return ATOM_OK;
    lib.handles[card] = NULL;
    return atom_fail(ATOM_E_RUNTIME,
                     "cuBLASLt does not start (status %d); is its library the "
                     "one of the CUDA toolkit this program was built with?",
                     (int)status);
}

atom_status krn_cuda_blas_open(const char *identity)
{
    atom_status st = ATOM_OK;
    pthread_mutex_lock(&lib.lock);
    if (lib.users && strcmp(lib.identity, identity) != 0)
        st = atom_fail(ATOM_E_UNSUPPORTED,
                       "a process can compute on only one kind of card, and "
                       "%s is already open",
                       lib.identity);
    else if (!lib.users) {
        snprintf(lib.identity, sizeof lib.identity, "%s", identity);
        read_doubts();
        st = open_all();
    }
    if (st == ATOM_OK) {
        st = open_card();
        if (st != ATOM_OK && !lib.users)
            close_all();
    }
    lib.users += st == ATOM_OK;
    pthread_mutex_unlock(&lib.lock);
    return st;
}

void krn_cuda_blas_close(void)
{
    pthread_mutex_lock(&lib.lock);
    if (lib.users && --lib.users == 0)
        close_all();
    pthread_mutex_unlock(&lib.lock);
}
