/*
 * Owns what a member's run takes of this host beside training, memory and disk, and what it says of it.
 * One idea: the anchor's share and the member's are one sum, in which nothing that grows with the model
 * is left out. Refuses to decide where things go: the trainer does, which plans the memory.
 */
#include "atom/pool/run_inner.h"

#include "atom/base/size.h"
#include "gossip/member/size.h"

static gsp_member_facts member_of(const pool_host_facts *f, bool on_disk)
{
    return (gsp_member_facts){.codec = (gsp_codec)f->codec,
                              .floats = f->floats,
                              .longest = pool_longest(f->floats, f->fragments),
                              .audits = f->audits,
                              .on_disk = on_disk};
}

uint64_t pool_host_bytes(const pool_host_facts *f, bool on_disk)
{
    const gsp_member_facts member = member_of(f, on_disk);
    return pool_anchor_host_bytes(f->floats, f->fragments, f->sync, on_disk) +
           gsp_member_host_bytes(&member);
}

static pool_host_facts facts_of(const pool_run *r, uint64_t n_floats)
{
    return (pool_host_facts){.floats = n_floats,
                             .fragments = pool_fragments(n_floats, (uint32_t)r->settings.fragments),
                             .codec = r->settings.codec,
                             .sync = pool_settings_sync(&r->settings),
                             .audits = r->settings.audit_percent > 0};
}

uint64_t pool_run_host_bytes(const pool_run *r, uint64_t n_floats, bool on_disk)
{
    const pool_host_facts facts = facts_of(r, n_floats);
    return pool_host_bytes(&facts, on_disk);
}

uint64_t pool_run_disk_bytes(const pool_run *r, uint64_t n_floats, bool on_disk)
{
    const pool_host_facts facts = facts_of(r, n_floats);
    const gsp_member_facts member = member_of(&facts, on_disk);
    return pool_anchor_disk_bytes(n_floats, facts.fragments, facts.sync, on_disk) +
           gsp_member_disk_bytes(&member);
}

/* After sums come steps that each makes alone: all of it stays in memory. */
static bool stays(const pool_run *r)
{
    return pool_settings_sync(&r->settings) == POOL_SYNC_DENSE_FIRST;
}

void pool_run_seam(const pool_run *r, train_seam *seam)
{
    /* Who makes a pool does not know yet how long the vector is. Short ones have little to hold. */
    static const uint64_t LONG = 1ull << 32;
    const gsp_manifest *m = r->life ? gsp_pool_manifest(r->life) : NULL;
    uint64_t floats = 0;
    for (uint32_t f = 0; m && f < m->n_fragments; f++)
        floats += m->n_floats[f];
    floats = floats ? floats : LONG;
    bool sums = pool_settings_sums(&r->settings);
    seam->host_bytes_per_float = (double)pool_run_host_bytes(r, floats, false) / (double)floats;
    seam->least_bytes_per_float =
        stays(r) ? 0 : (double)pool_run_host_bytes(r, floats, true) / (double)floats;
    seam->shared = sums;
}

void pool_run_read_room(const pool_run *r, pool_run_room *out)
{
    uint64_t n = trainer_floats(r->t);
    out->on_disk = trainer_seam_on_disk(r->t);
    out->host_bytes = pool_run_host_bytes(r, n, false);
    out->least_host_bytes = stays(r) ? out->host_bytes : pool_run_host_bytes(r, n, true);
    out->disk_bytes = pool_run_disk_bytes(r, n, out->on_disk);
    out->joiner_bytes = pool_anchor_state_bytes(n, pool_settings_sync(&r->settings));
}

void pool_run_say_memory(const pool_run *r, uint64_t n_floats)
{
    char host[24], least[24], disk[24], state[24];
    uint64_t bytes = pool_run_host_bytes(r, n_floats, false);
    uint64_t on_disk = stays(r) ? bytes : pool_run_host_bytes(r, n_floats, true);
    uint64_t joins = pool_anchor_state_bytes(n_floats, pool_settings_sync(&r->settings));
    atom_size_text(bytes, host);
    atom_size_text(pool_run_disk_bytes(r, n_floats, false), disk);
    atom_size_text(joins, state);
    if (on_disk >= bytes) /* the disk's buffers take more than a small model */
        pool_note(
            &r->hooks,
            "in addition to the trainer, the pool takes %s of this host's memory and %s of its "
            "disk; a newcomer downloads %s",
            host, disk, state);
    else
        pool_note(
            &r->hooks,
            "in addition to the trainer, the pool takes %s of this host's memory (or %s with its "
            "anchor on disk) and %s of its disk; a newcomer downloads %s",
            host, atom_size_text(on_disk, least), disk, state);
}

void pool_run_say_tier(const pool_run *r)
{
    char host[24], least[24];
    uint64_t n = trainer_floats(r->t);
    if (trainer_seam_on_disk(r->t))
        pool_note(
            &r->hooks,
            "anchor: on disk in %s/pool, together with %s; the pool takes %s of memory instead "
            "of %s",
            r->dir,
            pool_settings_sums(&r->settings) ? "moments and gradient sum" : "the outer momentum",
            atom_size_text(pool_run_host_bytes(r, n, true), least),
            atom_size_text(pool_run_host_bytes(r, n, false), host));
}
