/* Any bytes as a configuration of atom train: refused with a line, or values that print as a file
 * which gives the same values. */
#include "atom/base/assert.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/train/config.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    train_config c, again;
    opt_parsed parsed;
    char *text = NULL, *second = NULL;
    atom_log_set_level(ATOM_LOG_ERROR);
    ATOM_ASSERT(opt_defaults(&train_command, &c, &parsed) == ATOM_OK);
    atom_status st = opt_read_text(&train_command, "fuzz", (const char *)data, size, &c, &parsed);
    ATOM_ASSERT(st == ATOM_OK || st == ATOM_E_USAGE);
    if (st == ATOM_OK) {
        ATOM_ASSERT(opt_print(&train_command, &c, &parsed, true, &text) == ATOM_OK);
        ATOM_ASSERT(opt_defaults(&train_command, &again, &parsed) == ATOM_OK);
        if (opt_read_text(&train_command, "again", text, strlen(text), &again, &parsed) != ATOM_OK)
            ATOM_ASSERT(!"what was printed must be readable");
        ATOM_ASSERT(opt_print(&train_command, &again, NULL, false, &second) == ATOM_OK);
        ATOM_ASSERT(c.seed == again.seed && c.learning_rate == again.learning_rate);
        ATOM_ASSERT(strcmp(c.model, again.model) == 0);
        atom_free(text);
        atom_free(second);
        train_config_free(&again);
    }
    train_config_free(&c);
    return 0;
}
