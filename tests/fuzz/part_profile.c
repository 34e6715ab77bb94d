/* part_profile_parse, part_rates_parse and part_device_parse on any bytes: refuse with words, or read what writes
 * back. */
#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "partition/json.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look_at(const part_profile *p)
{
    char *text = NULL, *again = NULL;
    part_profile *back = NULL;
    ATOM_ASSERT(p->n_nodes > 0 && part_device_check(&p->device) == ATOM_OK);
    ATOM_ASSERT(part_profile_json(p, &text) == ATOM_OK);
    ATOM_ASSERT(part_profile_parse("again", text, strlen(text), &back) == ATOM_OK);
    ATOM_ASSERT(part_profile_json(back, &again) == ATOM_OK && strcmp(text, again) == 0);
    atom_free(text);
    atom_free(again);
    part_profile_close(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    part_profile *profile = NULL;
    part_device device;
    if (part_profile_parse("fuzz", (const char *)data, size, &profile) == ATOM_OK)
        look_at(profile);
    else
        ATOM_ASSERT(!profile && strncmp(atom_fail_message(), "fuzz", 4) == 0);
    part_profile_close(&profile);
    if (part_rates_parse("fuzz", (const char *)data, size, &device) == ATOM_OK)
        ATOM_ASSERT(part_device_check(&device) == ATOM_OK);
    if (part_device_parse("fuzz", (const char *)data, size, &device) == ATOM_OK)
        ATOM_ASSERT(part_device_check(&device) == ATOM_OK);
    ATOM_ASSERT(atom_mem_read().live_blocks == 0);
    return 0;
}
