/*
 * Owns one question: may this process use AMX tiles? Linux grants them per process, on request
 * (arch_prctl, Linux 5.16). oneDNN's opinion counts too, so that its variable DNNL_MAX_CPU_ISA
 * takes AMX from all of us together.
 */
#include "kernels/cpu/matmul.h"

#include <oneapi/dnnl/dnnl.h>

#include <pthread.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ARCH_REQUEST_PERMISSION = 0x1023, FEATURE_TILE_DATA = 18 };

typedef struct amx_answer {
    pthread_once_t once;
    bool usable;
} amx_answer;

static amx_answer answer = {PTHREAD_ONCE_INIT, false};

static void ask(void)
{
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    answer.usable = (isa & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx &&
                    syscall(SYS_arch_prctl, ARCH_REQUEST_PERMISSION, FEATURE_TILE_DATA) == 0;
}

bool krn_amx_usable(void)
{
    pthread_once(&answer.once, ask);
    return answer.usable;
}
