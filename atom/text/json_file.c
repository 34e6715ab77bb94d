/*
 * Owns how JSON files are written: indented by two, keys in the order they were put. Refuses
 * nothing.
 */
#include "atom/text/json_file.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"

atom_status text_json_save(json_t *root, const char *path)
{
    size_t flags = JSON_INDENT(2);
    size_t bytes = root ? json_dumpb(root, NULL, 0, flags) : 0;
    char *text = bytes ? atom_alloc(bytes + 1, 1) : NULL;
    bool whole = text && json_dumpb(root, text, bytes, flags) == bytes;
    json_decref(root);
    atom_status st = ATOM_OK;
    if (whole) {
        text[bytes] = '\n';
        st = atom_file_write(path, text, bytes + 1);
    } else {
        st = atom_fail_memory(path, bytes);
    }
    atom_free(text);
    return st;
}

bool text_json_starved(const json_error_t *error)
{
    return error->text[0] == 0 || json_error_code(error) == json_error_out_of_memory;
}
