/*
 * export_gguf DIR TYPE FILE: what `atom export` does, for gguf_oracle.py. TYPE is GGUF's number.
 */
#include "atom/export/export.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    atom_status st = export_gguf(argv[1], NULL, (file_gguf_type)atoi(argv[2]), argv[3], true);
    if (st != ATOM_OK)
        fprintf(stderr, "export_gguf: %s\n", atom_fail_message());
    return atom_status_exit_code(st);
}
