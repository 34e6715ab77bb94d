/*
 * Owns what a pool may ask of those who join it. One idea: a closed list of files and of what they
 * may weigh, so that a new kind of file is fetched by nobody until somebody adds it here. Refuses to
 * look at the disk: run_disk.c does.
 */
#include "atom/pool/asks.h"

#include "atom/base/size.h"
#include "atom/file/hfdir.h"
#include "atom/text/dataset.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    uint64_t bytes_max; /* as their readers have it */
} SMALL[] = {{"run.yml", OPT_FILE_BYTES_MAX},
             {"config.json", 1 << 25},
             {"buffers.safetensors", FILE_BUFFERS_FILE_MAX},
             {"tokenizer.json", 1 << 28},
             {"chat_template.jinja", 1 << 21}};

static atom_status check_small(const gsp_manifest_file *f)
{
    char size[24], most[24];
    for (size_t i = 0; i < sizeof SMALL / sizeof *SMALL; i++) {
        if (strcmp(SMALL[i].name, f->name) != 0)
            continue;
        if (f->bytes <= SMALL[i].bytes_max)
            return ATOM_OK;
        return atom_fail(ATOM_E_FORMAT,
                         "the pool's %s has %s, and no trainer reads more than %s of it; only "
                         "the pool's owner can correct that",
                         f->name, atom_size_text(f->bytes, size),
                         atom_size_text(SMALL[i].bytes_max, most));
    }
    return atom_fail(ATOM_E_FORMAT,
                     "the pool has a file '%s', which no trainer reads; only the pool's owner "
                     "can correct that",
                     f->name);
}

atom_status pool_asks_files(const gsp_manifest *m)
{
    for (uint32_t i = 0; i < m->n_files; i++) {
        const gsp_manifest_file *f = &m->file[i];
        if (!f->later)
            ATOM_TRY(check_small(f));
        else if (!text_is_dataset_file(f->name))
            return atom_fail(ATOM_E_FORMAT,
                             "the pool's data set has a file '%s', which no trainer reads; only "
                             "the pool's owner can correct that",
                             f->name);
    }
    return ATOM_OK;
}

atom_status pool_asks_settings(const gsp_manifest *m, pool_settings *s)
{
    static const char WHERE[] = "the pool's settings";
    opt_parsed parsed;
    ATOM_TRY(opt_defaults(&pool_options, s, &parsed));
    atom_status st =
        opt_read_foreign(&pool_options, WHERE, m->settings, strlen(m->settings), s, &parsed);
    if (st == ATOM_OK)
        st = pool_settings_check(s, NULL, WHERE, NULL);
    if (st != ATOM_OK)
        return atom_fail(st == ATOM_E_USAGE ? ATOM_E_FORMAT : st,
                         "%s: %s; only the pool's owner can correct that", WHERE,
                         atom_fail_message());
    bool clips = m->robust && pool_settings_sums(s);
    if (s->batch < 1 || s->fragments != (int64_t)m->n_fragments || m->clips_sums != clips ||
        (clips && s->dense_steps) || ((m->shares_return || m->passes_on) && !pool_settings_sums(s)) ||
        (m->drifts && pool_settings_sums(s)))
        return atom_fail(ATOM_E_FORMAT,
                         "%s contradict its manifest; only the pool's owner can correct that",
                         WHERE);
    if (s->steps < 1 || s->steps > INT64_MAX / s->batch)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: %lld steps with a batch of %lld samples are not a valid schedule; "
                         "only the pool's owner can correct that",
                         WHERE, (long long)s->steps, (long long)s->batch);
    if (s->dense_steps && (s->global_batch_size < 1 || pool_settings_dense(s) == 0 ||
                           pool_settings_dense(s) >= (uint64_t)(s->steps * s->batch)))
        return atom_fail(ATOM_E_FORMAT,
                         "%s: dense_steps \"%.40s\" with a global_batch_size of %lld leave "
                         "nothing to average; only the pool's owner can correct that",
                         WHERE, s->dense_steps, (long long)s->global_batch_size);
    return ATOM_OK;
}

atom_status pool_asks_config(const char *path)
{
    char first = 0;
    FILE *f = fopen(path, "rbe");
    bool object = f && fscanf(f, " %c", &first) == 1 && first == '{';
    if (f)
        fclose(f);
    return object ? ATOM_OK
                  : atom_fail(ATOM_E_FORMAT,
                              "%s is not a model's configuration; only the pool's owner can "
                              "correct that",
                              path);
}

static uint64_t bytes_of(const gsp_manifest *m, bool later)
{
    uint64_t bytes = 0; /* of 256 files, 2^53 each */
    for (uint32_t i = 0; i < m->n_files; i++)
        bytes += m->file[i].later == later ? m->file[i].bytes : 0;
    return bytes;
}

uint64_t pool_asks_small_bytes(const gsp_manifest *m)
{
    return bytes_of(m, false);
}

uint64_t pool_asks_data_bytes(const gsp_manifest *m)
{
    return bytes_of(m, true);
}
