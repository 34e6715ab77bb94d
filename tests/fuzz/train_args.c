/* Any words as a command line of atom train; newlines separate them. */
#include "atom/base/assert.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/train/config.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { WORDS = 40 };
    opt_command command = train_command;
    train_config c;
    opt_parsed parsed;
    char *argv[WORDS], *save = NULL, *text = NULL;
    int argc = 0;
    char *words = atom_strndup((const char *)data, size);
    ATOM_ASSERT(words);
    command.config_file = false; /* opens no files */
    atom_log_set_level(ATOM_LOG_ERROR);
    for (char *w = strtok_r(words, "\n", &save); w && argc < WORDS; w = strtok_r(NULL, "\n", &save))
        argv[argc++] = w;
    if (opt_parse(&command, argc, argv, &c, &parsed) == ATOM_OK) {
        ATOM_ASSERT(opt_print_json(&command, &c, &text) == ATOM_OK);
        atom_free(text);
    }
    opt_free(&command, &c);
    atom_free(words);
    return 0;
}
