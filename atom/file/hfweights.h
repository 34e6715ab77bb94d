/*
 * What the files of hfdir share among themselves: hfnames.c, hfweights.c, hfshards.c,
 * hfweights_write.c, ownweights.c, ownbuffers.c.
 */
#ifndef ATOM_FILE_HFWEIGHTS_H
#define ATOM_FILE_HFWEIGHTS_H

#include "atom/file/hfdir.h"
#include "atom/file/safetensors.h"

/* Elements of the buffer through which tensors pass: 1 MiB. */
enum { FILE_BAND_ELEMENTS = 1 << 18 };

enum { FILE_NAME_MAX = GRAPH_STORED_NAME_MAX };

/* One tensor of a file: a run of a parameter's rows, all of them but for fused ones. */
typedef struct file_slice {
    char name[FILE_NAME_MAX]; /* without prefix */
    uint32_t param;
    uint64_t first, elements; /* within the parameter */
    uint32_t rank;
    uint64_t dims[4]; /* as the file has them */
    bool transposed;
    /* GPT-NeoX's q, k and v: the file has rows of q, k and v of each head together, atom all of q, all of k,
     * all of v; 0: rows are in one order. */
    uint64_t heads;
    const graph_stored *runs; /* of somebody's own model: its n_runs runs in the order of `from`, in
                                 place of first; of the graph */
    uint32_t n_runs;
    const graph_buffer *buffer; /* where files are written: it is this, and of no parameter */
} file_slice;

/* hfnames.c: the tensors of a graph, parameter by parameter. Free with atom_free. */
ATOM_MUST atom_status file_slices(const graph *g, file_slice **out, uint32_t *n);
/* "transformer.", "model." or "gpt_neox.": what stands before all names but the head's. */
const char *file_prefix(const graph *g);
/* A tensor's name without prefix, as a slice has it. */
const char *file_inner_name(const graph *g, const char *name);
/* "lm_head" or "embed_out": the module of the head. */
const char *file_head(const graph *g);
/* Is it the head, or a tensor of it? name: without prefix. */
bool file_is_head(const graph *g, const char *name);
/* file_slice.heads of all rows of a parameter, an adapter's B and magnitudes included. */
uint64_t file_heads_apart(const graph *g, uint32_t param);
/* A slice is so many runs of equal size, which may have other places here than in the file: run i of the file
 * is here run file_slice_run(s, i), and run i here is there run file_slice_run_there(s, i). */
uint64_t file_slice_runs(const file_slice *s);
uint64_t file_slice_run(const file_slice *s, uint64_t i);
uint64_t file_slice_run_there(const file_slice *s, uint64_t i);
/* ownweights.c: all numbers of somebody's own model from a directory. */
ATOM_MUST atom_status file_own_read(const char *dir, const graph *g, file_vector vector);
/* ownbuffers.c. How many buffers one model may have: they stay in memory. */
enum { FILE_BUFFERS_MAX = 1 << 14 };
/* Sorts a filled table and gives it to g, which has its names of parameters; `path` is for messages. */
ATOM_MUST atom_status file_buffers_set(const char *path, graph *g, graph_buffers *buffers);
/* Its bytes by type, rank and dims; false where nothing has such a size. */
bool file_buffer_size(graph_buffer *b);
/* Their data, of a model that a config.json in dir described, from the weights there, else from
 * buffers.safetensors. NULL-safe. */
ATOM_MUST atom_status file_buffers_read(const char *dir, graph *g);
/* A tensor of a file against the model's buffer of its name. */
ATOM_MUST atom_status file_buffer_check(const file_safetensors *file, const file_tensor *t,
                                        const graph_buffer *b);
ATOM_MUST atom_status file_buffer_declare(file_st_writer *w, const graph_buffer *b);
/* No weights: name is without prefix. */
bool file_is_buffer(const char *name);

/* hfshards.c: the files of a directory by name, as hfdir.h has it for file_weights_read. */
typedef struct file_shards {
    const char *dir;      /* the caller's */
    struct json_t *index; /* NULL: there is one file and no index */
    const char **names;
    size_t n;
} file_shards;

/* How a tensor was met so far. */
enum { SEEN = 1, SEEN_AS_HEAD = 2 };

typedef struct weights_reader {
    const graph *g;
    file_vector vector;
    file_safetensors *file; /* the one that is open now */
    float *buffer;          /* a band of a tensor */
    uint64_t buffer_elements;
    float *whole; /* a transposed slice, the largest there is */
    file_slice *slices;
    uint32_t n_slices;
    uint8_t *seen; /* by slice */
    file_shards shards;
    size_t at, met_in;               /* the shard that is open; where the embedding was met */
    char met_as[FILE_NAME_MAX + 16]; /* its name there */
} weights_reader;

/* Opens none of them: a model may have more than a process may have open. Free it, also after a
 * failure. */
ATOM_MUST atom_status file_shards_list(const char *dir, file_shards *out);
void file_shards_free(file_shards *shards);
/* File i, which must hold what the index says. Close *file, also after a failure. */
ATOM_MUST atom_status file_shards_open_one(const file_shards *shards, size_t i,
                                           file_safetensors **file);
/* hfshards.c: opens the one file or all shards of a directory, checked against the index. After a failure, too, close each of the *n
 * (some may be NULL) and free the list. */
ATOM_MUST atom_status file_shards_open(const char *dir, file_safetensors ***files, uint32_t *n);
/* A tensor of a file against what config.json says of it. */
ATOM_MUST atom_status file_check_shape(const file_safetensors *file, const file_tensor *t,
                                       const file_slice *slice);
/* Checks the text of an index by itself; for fuzzing. */
ATOM_MUST atom_status file_index_check(const char *path, const char *text, size_t bytes);
/* Elements of the largest slice that is stored transposed; at least 1. */
uint64_t file_largest_transposed(const file_slice *slices, uint32_t n);

#endif
