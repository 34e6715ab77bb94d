/*
 * Owns results in memory. Its one idea: whoever lags is served from disk, so memory holds two
 * versions and no more. It refuses to drop a result that a vote of mine may name.
 */
#include "gossip/member/recent_results.h"

#include <string.h>

static gsp_blob *row_find(const gsp_recent_row row, const gsp_hash *hash)
{
    for (uint32_t k = 0; k < GSP_HELD_MAX; k++)
        if (row[k] && gsp_hash_equal(&row[k]->root, hash))
            return row[k];
    return NULL;
}

static void row_clear(gsp_recent_row row)
{
    for (uint32_t k = 0; k < GSP_HELD_MAX; k++)
        gsp_blob_close(&row[k]);
}

bool gsp_recent_needs(const gsp_agree *a, uint32_t part, const gsp_hash *hash)
{
    return gsp_hash_equal(&a->round.known[part].hash, hash) ||
           (a->has_pending &&
            gsp_hash_equal(&a->pending.as.propose.proposal.part[part].hash, hash)) ||
           (a->record.voted && gsp_hash_equal(&a->record.proposal.part[part].hash, hash));
}

bool gsp_recent_wants_unsaid(const gsp_recent *h, uint32_t ballot, uint32_t part)
{
    return h->unsaid[part].ballot != ballot || h->unsaid[part].n < GSP_HELD_UNSAID_MAX;
}

void gsp_recent_count_unsaid(gsp_recent *h, uint32_t ballot, uint32_t part)
{
    if (h->unsaid[part].ballot != ballot)
        h->unsaid[part].n = 0;
    h->unsaid[part].ballot = ballot;
    h->unsaid[part].n++;
}

gsp_blob **gsp_recent_place(gsp_recent *h, const gsp_agree *agree, uint64_t version, uint32_t part,
                            const gsp_hash *hash)
{
    bool fresh = version != agree->certified;
    gsp_blob **row = fresh ? h->fresh[part] : h->certified[part], **place = NULL;
    for (uint32_t k = 0; k < GSP_HELD_MAX; k++)
        if (row[k] && gsp_hash_equal(&row[k]->root, hash))
            return &row[k];
    for (uint32_t k = 0; k < GSP_HELD_MAX; k++) {
        if (!row[k])
            return &row[k];
        if (!fresh || !gsp_recent_needs(agree, part, &row[k]->root))
            place = &row[k];
    }
    if (place)
        gsp_blob_close(place);
    return place;
}

gsp_blob *gsp_recent_fresh(const gsp_recent *h, uint32_t part, const gsp_hash *hash)
{
    return row_find(h->fresh[part], hash);
}

static gsp_blob *from_disk(const gsp_recent *h, uint32_t part, const gsp_hash *hash)
{
    uint64_t bytes;
    gsp_hash leaf;
    if (!gsp_results_find(h->results, part, hash, &bytes))
        return NULL;
    gsp_blob *b = gsp_blob_open(bytes, hash);
    if (!b)
        return NULL;
    if (gsp_results_read(h->results, part, hash, b->memory) == ATOM_OK) {
        gsp_merkle_leaf(part, b->data, b->bytes, &leaf);
        b->whole = gsp_hash_equal(&leaf, hash);
    }
    if (!b->whole)
        gsp_blob_close(&b);
    return b;
}

gsp_blob *gsp_recent_find(gsp_recent *h, uint32_t part, const gsp_hash *hash)
{
    gsp_blob *b = NULL;
    if (part >= GSP_PARTS_MAX || gsp_hash_none(hash))
        return NULL;
    if ((b = row_find(h->fresh[part], hash)) && b->whole)
        return b;
    if ((b = row_find(h->certified[part], hash)) && b->whole)
        return b;
    for (uint32_t k = 0; k < GSP_HELD_OLD; k++)
        if (h->old[k] && gsp_hash_equal(&h->old[k]->root, hash))
            return h->old[k];
    if ((b = from_disk(h, part, hash))) {
        gsp_blob **place = &h->old[h->old_turn++ % GSP_HELD_OLD];
        gsp_blob_close(place);
        *place = b;
    }
    return b;
}

bool gsp_recent_has(const gsp_recent *h, uint32_t part, const gsp_hash *hash, uint64_t *bytes)
{
    const gsp_blob *b = NULL;
    if (part >= GSP_PARTS_MAX || gsp_hash_none(hash))
        return false;
    if (((b = row_find(h->fresh[part], hash)) && b->whole) ||
        ((b = row_find(h->certified[part], hash)) && b->whole)) {
        *bytes = b->bytes;
        return true;
    }
    return gsp_results_find(h->results, part, hash, bytes);
}

bool gsp_recent_recall(gsp_recent *h, const gsp_agree *agree, uint32_t part, const gsp_hash *hash)
{
    gsp_blob *b = from_disk(h, part, hash);
    gsp_blob **place = b ? gsp_recent_place(h, agree, agree->certified + 1, part, hash) : NULL;
    if (!place) {
        gsp_blob_close(&b);
        return false;
    }
    gsp_blob_close(place);
    *place = b;
    return true;
}

atom_status gsp_recent_keep(gsp_recent *h, const gsp_agree *agree, uint64_t version, uint32_t part,
                            const gsp_blob *b)
{
    ATOM_TRY(gsp_results_put(h->results, version, part, &b->root, b->data, b->bytes));
    /* One by one: to free a whole version at once takes long, when everybody waits for what comes
     * next. */
    if (version == agree->certified + 1 && agree->applied == agree->certified)
        row_clear(h->certified[part]);
    return ATOM_OK;
}

atom_status gsp_recent_sync(gsp_recent *h, const gsp_record *record)
{
    if (!record->voted)
        return ATOM_OK;
    for (uint32_t p = 0; p < record->proposal.n_parts; p++) {
        const gsp_hash *hash = &record->proposal.part[p].hash;
        const gsp_blob *b = gsp_recent_find(h, p, hash);
        if (b)
            ATOM_TRY(gsp_results_put(h->results, record->version, p, hash, b->data, b->bytes));
    }
    return gsp_results_sync(h->results, record->version);
}

void gsp_recent_rotate(gsp_recent *h, bool next)
{
    memset(h->unsaid, 0, sizeof h->unsaid);
    for (uint32_t p = 0; p < GSP_PARTS_MAX; p++) {
        row_clear(h->certified[p]);
        if (!next)
            row_clear(h->fresh[p]);
        memcpy(h->certified[p], h->fresh[p], sizeof h->certified[p]);
        memset(h->fresh[p], 0, sizeof h->fresh[p]);
    }
}

atom_status gsp_recent_open(gsp_recent *h, const char *directory, uint32_t keep)
{
    *h = (gsp_recent){0};
    return gsp_results_open(directory, keep, &h->results);
}

void gsp_recent_close(gsp_recent *h)
{
    gsp_recent_rotate(h, false);
    for (uint32_t k = 0; k < GSP_HELD_OLD; k++)
        gsp_blob_close(&h->old[k]);
    gsp_results_close(&h->results);
}
