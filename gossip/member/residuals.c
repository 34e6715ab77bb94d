/*
 * Owns what encoding lost. One idea: on disk nothing is copied when a contribution was included; the
 * part's other place counts from then on. Refuses to let a contribution that was not included change
 * anything.
 */
#include "gossip/member/residuals.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void gsp_residuals_open(gsp_residuals *r, const gsp_terms *terms, const char *directory)
{
    *r = (gsp_residuals){.terms = terms, .directory = directory};
}

void gsp_residuals_forget(gsp_residuals *r)
{
    for (uint32_t f = 0; f < GSP_FRAGMENTS_MAX; f++) {
        atom_free(r->now[f]);
        r->now[f] = NULL;
        if (r->disk[f].file)
            close(r->disk[f].file - 1);
        memset(&r->disk[f], 0, sizeof r->disk[f]);
    }
}

void gsp_residuals_close(gsp_residuals *r)
{
    gsp_residuals_forget(r);
    atom_free(r->lost);
    atom_free(r->room);
    r->lost = r->room = NULL;
}

/* ---- room ---- */

static atom_status take(float **at, uint64_t n)
{
    if (!*at)
        *at = atom_alloc(n ? n : 1, sizeof **at);
    return *at ? ATOM_OK : atom_fail_memory("what an encoding loses", n * sizeof **at);
}

/* Two places for each float, zero. */
static atom_status make_file(gsp_residuals *r, uint32_t f)
{
    if (r->disk[f].file)
        return ATOM_OK;
    char *path = atom_path_join(r->directory, "lost-XXXXXX");
    if (!path)
        return atom_fail_memory("a path", 256);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    atom_free(path);
    if (fd < 0 || ftruncate(fd, (off_t)(2 * r->terms->n_floats[f] * sizeof(float))) != 0) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        return atom_fail_errno(error, "cannot make a file in %s", r->directory);
    }
    r->disk[f].file = fd + 1;
    return ATOM_OK;
}

atom_status gsp_residuals_begin(gsp_residuals *r, uint64_t version)
{
    const gsp_terms *t = r->terms;
    uint32_t f = gsp_terms_fragment(t, version);
    uint64_t most = 0;
    if (r->directory) {
        uint64_t part = gsp_terms_floats_max(t);
        ATOM_TRY(take(&r->lost, part));
        ATOM_TRY(take(&r->room, part));
        return make_file(r, f);
    }
    for (uint32_t k = 0; k < t->n_fragments; k++)
        most = t->n_floats[k] > most ? t->n_floats[k] : most;
    ATOM_TRY(take(&r->lost, most));
    return take(&r->now[f], t->n_floats[f]);
}

/* ---- a part ---- */

static bool bit(const uint32_t *bits, uint32_t part)
{
    return bits[part / 32] >> part % 32 & 1;
}

static void set(uint32_t *bits, uint32_t part, bool second)
{
    bits[part / 32] &= ~(1u << part % 32);
    bits[part / 32] |= (uint32_t)second << part % 32;
}

static uint64_t place_of(const gsp_residuals *r, uint32_t f, uint64_t first, bool second)
{
    return (first + (second ? r->terms->n_floats[f] : 0)) * sizeof(float);
}

atom_status gsp_residuals_look(gsp_residuals *r, uint64_t version, uint32_t part, const float **now,
                               float **lost)
{
    uint32_t f = gsp_terms_fragment(r->terms, version);
    uint64_t first, n = gsp_terms_floats(r->terms, version, part, &first);
    if (!r->directory) {
        *now = r->now[f] + first;
        *lost = r->lost + first;
        return ATOM_OK;
    }
    *now = r->room;
    *lost = r->lost;
    uint64_t at = place_of(r, f, first, bit(r->disk[f].now, part));
    int error = atom_fd_read(r->disk[f].file - 1, at, r->room, n * sizeof *r->room);
    return error ? atom_fail_errno(error, "cannot read what encoding rounded away, in %s",
                                   r->directory)
                 : ATOM_OK;
}

atom_status gsp_residuals_keep(gsp_residuals *r, uint64_t version, uint32_t part)
{
    uint32_t f = gsp_terms_fragment(r->terms, version);
    uint64_t first, n = gsp_terms_floats(r->terms, version, part, &first);
    if (!r->directory)
        return ATOM_OK;
    bool second = !bit(r->disk[f].now, part);
    set(r->disk[f].made, part, second);
    int error = atom_fd_write(r->disk[f].file - 1, place_of(r, f, first, second), r->lost,
                              n * sizeof *r->lost);
    return error ? atom_fail_errno(error, "cannot write what encoding rounded away, in %s",
                                   r->directory)
                 : ATOM_OK;
}

void gsp_residuals_included(gsp_residuals *r, uint64_t version, uint32_t part)
{
    uint32_t f = gsp_terms_fragment(r->terms, version);
    uint64_t first, n = gsp_terms_floats(r->terms, version, part, &first);
    if (r->directory)
        set(r->disk[f].now, part, bit(r->disk[f].made, part));
    else
        memcpy(r->now[f] + first, r->lost + first, n * sizeof *r->lost);
}
