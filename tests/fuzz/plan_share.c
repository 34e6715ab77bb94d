/* Any bytes as the plan of a stranger: refused in a line, or a plan that was laid out within the
 * memory it was given, and timed by this host's profile. The first byte chooses what the host wants. */
#include "atom/base/assert.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/plan/device.h"
#include "atom/plan/share.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The graph of the seeds of part_plan. */
static graph *small_graph(void)
{
    static const graph_config config = {.name = "tiny",
                                        .vocab_size = 97,
                                        .positions = 16,
                                        .width = 24,
                                        .layers = 3,
                                        .heads = 2,
                                        .inner = 96,
                                        .epsilon = 1e-5f,
                                        .init_std = 0.02f};
    graph *plain = NULL, *fused = NULL;
    ATOM_ASSERT(graph_gpt2_build(&config, ATOM_F32, 2, 8, &plain) == ATOM_OK);
    ATOM_ASSERT(graph_fuse(plain, &fused) == ATOM_OK);
    graph_close(&plain);
    return fused;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    plan_workbench bench = {.card = -1, .table = krn_cpu_table(ATOM_F32)};
    part_profile *profile = NULL;
    part_plan *plan = NULL;
    uint8_t choice = size ? data[0] : 0;
    plan_request request = {.device_memory = choice & 1 ? 64u << 20 : 0,
                            .host_memory = 256u << 20,
                            .micro_batches = (choice >> 1 & 3) + 1,
                            .clip = choice >> 3 & 1,
                            .recompute = (choice >> 4 & 3) % 3 - 1};
    if (size == 0)
        return 0;
    atom_log_set_level(ATOM_LOG_ERROR);
    ATOM_ASSERT(atom_threads_open(1, &bench.threads) == ATOM_OK);
    bench.g = small_graph();
    const part_device device = plan_device_guess(&bench);
    ATOM_ASSERT(part_profile_model(bench.g, &device, &profile) == ATOM_OK);
    atom_status st =
        plan_accept(&bench, &request, profile, (const char *)data + 1, size - 1, &plan);
    if (st == ATOM_OK) {
        ATOM_ASSERT(plan->predicted_step_seconds > 0 && plan->predicted_step_seconds < 1e6);
        ATOM_ASSERT(plan->host_peak_bytes <= request.host_memory);
        ATOM_ASSERT(!request.device_memory || plan->device_peak_bytes <= request.device_memory);
        ATOM_ASSERT(plan->micro_batches == request.micro_batches && !plan->disk);
    } else {
        ATOM_ASSERT(!plan && atom_fail_message()[0]);
    }
    part_plan_close(&plan);
    part_profile_close(&profile);
    graph_close(&bench.g);
    atom_threads_close(&bench.threads);
    ATOM_ASSERT(atom_mem_read().live_blocks == 0);
    return 0;
}
