/*
 * Pickles of torch.save, read without running anything: a small machine that knows numbers, texts,
 * tuples, lists, dicts, and of all that a pickle may name only what a table of tensors is made of.
 *
 * What Python would call is told by name and refused, so a hostile file gets nothing done. Protocols
 * 2 to 5, as far as PyTorch writes them. Work and memory are bounded by the length of the pickle and
 * by FILE_PICKLE_VALUES_MAX.
 *
 * Ownership: a file_pickle owns all its values; file_pickle_free. Thread: no shared state.
 * Errors: ATOM_E_FORMAT for what is damaged, ATOM_E_UNSUPPORTED names what is not a tensor's;
 * ATOM_E_RESOURCE. Source: CPython's pickletools.py; torch/serialization.py, torch/_utils.py.
 */
#ifndef ATOM_FILE_PICKLE_H
#define ATOM_FILE_PICKLE_H

#include "atom/file/safetensors.h"

enum { FILE_PICKLE_VALUES_MAX = 1 << 22 };

typedef enum file_pickle_kind {
    FILE_PICKLE_NONE,
    FILE_PICKLE_BOOL,    /* number */
    FILE_PICKLE_INT,     /* number */
    FILE_PICKLE_REAL,    /* its value is kept nowhere */
    FILE_PICKLE_TEXT,    /* text, without NULs inside */
    FILE_PICKLE_TUPLE,   /* items */
    FILE_PICKLE_LIST,    /* items */
    FILE_PICKLE_DICT,    /* items: key, value, key, value, ... */
    FILE_PICKLE_GLOBAL,  /* number: its row in the table of what is known */
    FILE_PICKLE_STORAGE, /* text: its key; number: how many elements; dtype */
    FILE_PICKLE_TENSOR,  /* items: storage, first element, sizes, strides, and more */
    FILE_PICKLE_MARK
} file_pickle_kind;

typedef struct file_pickle_value {
    file_pickle_kind kind;
    file_dtype dtype;
    int64_t number;
    char *text;
    struct file_pickle_value **items;
    size_t n, room;
} file_pickle_value;

typedef struct file_pickle {
    const char *path; /* of the file, for messages; the caller's */
    file_pickle_value **values;
    size_t n_values, values_room;
    file_pickle_value **stack, **memo;
    size_t depth, stack_room, n_memo, memo_room;
} file_pickle;

/*
 * One pickle from the start of `bytes`; *used: how long it is. *root belongs to p, which may be used
 * for several pickles, one after another. Free p, also after a failure.
 */
ATOM_MUST atom_status file_pickle_load(file_pickle *p, const void *bytes, size_t n, size_t *used,
                                       const file_pickle_value **root);
void file_pickle_free(file_pickle *p);
/* Of a dict: what stands under a text; NULL if nothing does. */
const file_pickle_value *file_pickle_get(const file_pickle_value *dict, const char *key);
/* "a dict", "a number": for messages. */
const char *file_pickle_kind_name(file_pickle_kind kind);

#endif
