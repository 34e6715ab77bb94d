/* Any bytes as the description of a pool, and as a matrix: refused with a line, or hosts with names
 * of their own and a network whose every number is what place_check may look at. */
#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "atom/plan/pool_net.h"

#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N = 3 };

static void connect(const plan_pool_file *file)
{
    const plan_pool_change changes[] = {{.more = -1, .faster = 1}, {.more = 0, .faster = 2}};
    plan_pool_net *net = NULL;
    for (int k = 0; k < 2 && plan_pool_hosts(file) < 64; k++) {
        atom_status st = plan_pool_net_open(file, &changes[k], &net);
        ATOM_ASSERT(st == ATOM_OK || st == ATOM_E_USAGE);
        if (st != ATOM_OK)
            return;
        ATOM_ASSERT(net->n == plan_pool_hosts(file) + (uint32_t)k);
        for (uint32_t i = 0; i < net->n * net->n; i++)
            ATOM_ASSERT(net->rate[i] > 0 && net->delay[i] >= 0 && isfinite(net->delay[i]));
        for (uint32_t i = 0; i < net->n; i++)
            for (uint32_t j = 0; j < i; j++)
                ATOM_ASSERT(k || strcmp(net->name[i], net->name[j]) != 0);
        plan_pool_net_close(&net);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = atom_strndup((const char *)data, size);
    double cells[N * N];
    plan_pool_file *file = NULL;
    ATOM_ASSERT(text);
    atom_status st = plan_pool_file_parse("fuzz", (const char *)data, size, &file);
    ATOM_ASSERT(st == ATOM_OK || st == ATOM_E_USAGE);
    if (st == ATOM_OK && !file->mbit_csv)
        connect(file);
    plan_pool_file_close(&file);
    st = plan_pool_matrix_parse("fuzz.csv", text, N, 1, cells);
    ATOM_ASSERT(st == ATOM_OK || st == ATOM_E_USAGE);
    atom_free(text);
    ATOM_ASSERT(atom_mem_read().live_blocks == 0);
    return 0;
}
