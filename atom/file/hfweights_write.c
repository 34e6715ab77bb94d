/*
 * Owns the way of weights out of the canonical vector into a model directory. One idea: the writer
 * says whose turn it is, and each tensor streams through a small buffer, transposed where Hugging
 * Face stores it so. Refuses to leave shards of an older save beside a new model.
 */
#include "atom/file/hfweights.h"

#include "atom/base/env.h"
#include "atom/base/mem.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static atom_status declare_all(file_st_writer *w, const graph *g)
{
    char name[GRAPH_NAME_MAX + 16];
    for (uint32_t i = 0; i < g->n_params; i++) {
        uint64_t dims[GRAPH_RANK_MAX] = {0};
        file_param_dims(&g->params[i], dims);
        snprintf(name, sizeof name, "transformer.%s", g->params[i].name);
        atom_status st = file_st_declare(w, name, FILE_F32, g->params[i].rank, dims);
        if (st != ATOM_OK)
            return st;
    }
    return ATOM_OK;
}

/* [out, in] in the vector -> [in, out] in the file, a band of file rows at a time. */
static atom_status write_transposed(file_st_writer *w, const graph_param *p, const float *in,
                                    float *buffer, uint64_t room)
{
    uint64_t rows = (uint64_t)p->dims[1], cols = (uint64_t)p->dims[0];
    for (uint64_t row = 0, band; row < rows; row += band) {
        band = room / cols;
        band = band < rows - row ? band : rows - row;
        for (uint64_t c = 0; c < cols; c++) {
            for (uint64_t k = 0; k < band; k++)
                buffer[k * cols + c] = in[c * rows + row + k];
        }
        atom_status st = file_st_write(w, buffer, band * cols * sizeof *buffer);
        if (st != ATOM_OK)
            return st;
    }
    return ATOM_OK;
}

static uint64_t band_elements(const graph *g)
{
    uint64_t most = FILE_BAND_ELEMENTS;
    for (uint32_t i = 0; i < g->n_params; i++) {
        if (file_param_transposed(&g->params[i]) && (uint64_t)g->params[i].dims[0] > most)
            most = (uint64_t)g->params[i].dims[0];
    }
    return most;
}

static atom_status write_plain(file_st_writer *w, const graph_param *p, file_vector vector,
                               float *buffer, uint64_t room)
{
    for (uint64_t at = 0, some; at < p->elements; at += some) {
        some = p->elements - at < room ? p->elements - at : room;
        atom_status st = vector.get(vector.ctx, p->offset + at, some, buffer);
        if (st == ATOM_OK)
            st = file_st_write(w, buffer, some * sizeof *buffer);
        if (st != ATOM_OK)
            return st;
    }
    return ATOM_OK;
}

static atom_status write_all(file_st_writer *w, const graph *g, file_vector vector)
{
    uint32_t i;
    atom_status st = ATOM_OK;
    uint64_t room = band_elements(g), largest = file_largest_transposed(g);
    float *buffer = atom_alloc((size_t)room, sizeof *buffer);
    float *whole = atom_alloc((size_t)largest, sizeof *whole);
    if (!buffer || !whole)
        st = atom_fail_memory("writing weights", (room + largest) * sizeof *buffer);
    while (st == ATOM_OK && file_st_next(w, &i)) {
        const graph_param *p = &g->params[i];
        if (!file_param_transposed(p)) {
            st = write_plain(w, p, vector, buffer, room);
            continue;
        }
        st = vector.get(vector.ctx, p->offset, p->elements, whole);
        if (st == ATOM_OK)
            st = write_transposed(w, p, whole, buffer, room);
    }
    atom_free(buffer);
    atom_free(whole);
    return st;
}

/* model-00001-of-00003.safetensors, model.safetensors.index.json */
static bool is_stale(const char *name)
{
    if (strcmp(name, "model.safetensors.index.json") == 0)
        return true;
    return strncmp(name, "model-", 6) == 0 && strspn(name + 6, "0123456789") == 5 &&
           strncmp(name + 11, "-of-", 4) == 0 && strspn(name + 15, "0123456789") == 5 &&
           strcmp(name + 20, ".safetensors") == 0;
}

static void remove_stale(const char *dir)
{
    DIR *list = opendir(dir);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        if (is_stale(entry->d_name))
            unlinkat(dirfd(list), entry->d_name, 0);
    }
    if (list)
        closedir(list);
}

atom_status file_weights_write(const char *dir, const graph *g, const float *vector)
{
    return file_weights_write_from(dir, g, file_vector_memory((float *)(uintptr_t)vector));
}

atom_status file_weights_write_from(const char *dir, const graph *g, file_vector vector)
{
    file_st_writer *w = NULL;
    atom_status st = ATOM_OK;
    char *path = atom_path_join(dir, "model.safetensors");
    if (!path)
        return atom_fail_memory("a path", strlen(dir));
    ATOM_TRY(file_st_create(path, &w));
    ATOM_TRY(declare_all(w, g));
    ATOM_TRY(file_st_begin(w));
    ATOM_TRY(write_all(w, g, vector));
    ATOM_TRY(file_st_finish(w));
    remove_stale(dir);
fail:
    file_st_writer_close(&w);
    atom_free(path);
    return st;
}
