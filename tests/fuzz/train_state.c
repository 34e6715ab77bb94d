/* atom_state.json: any bytes are refused or give whole numbers that are not negative. */
#include "atom/train/checkpoint.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    train_state state;
    if (train_state_parse("fuzz", (const char *)data, size, &state) == ATOM_OK &&
        (state.step < 0 || state.samples < 0 || state.tokens_seen < 0 || state.sequence < 0))
        abort();
    return 0;
}
