/* Owns a count per key that starts anew with each window of time. One idea: nothing is ever
 * subtracted. It refuses to grow. */
#include "gossip/net/tally.h"

#include <string.h>

static void turn(gsp_tally *t, uint64_t now)
{
    uint64_t window = now / t->window_ns;
    if (window == t->window)
        return;
    t->window = window;
    t->all = 0;
    t->n = 0;
}

static gsp_tally_row *find(gsp_tally *t, const uint8_t *key)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (memcmp(t->row[i].key, key, GSP_TALLY_KEY_BYTES) == 0)
            return &t->row[i];
    return NULL;
}

static gsp_tally_row *make(gsp_tally *t, const uint8_t *key)
{
    gsp_tally_row *row = &t->row[0];
    if (t->n < GSP_TALLY_KEYS)
        row = &t->row[t->n++];
    else
        for (uint32_t i = 1; i < GSP_TALLY_KEYS; i++)
            row = t->row[i].used < row->used ? &t->row[i] : row;
    *row = (gsp_tally_row){0};
    memcpy(row->key, key, GSP_TALLY_KEY_BYTES);
    return row;
}

uint64_t gsp_tally_left(gsp_tally *t, const uint8_t *key, uint64_t now)
{
    turn(t, now);
    const gsp_tally_row *row = find(t, key);
    uint64_t used = row ? row->used : 0, own = t->each_max > used ? t->each_max - used : 0;
    uint64_t all = t->all_max > t->all ? t->all_max - t->all : 0;
    return own < all ? own : all;
}

bool gsp_tally_take(gsp_tally *t, const uint8_t *key, uint64_t amount, uint64_t now)
{
    if (amount > gsp_tally_left(t, key, now))
        return false;
    gsp_tally_row *row = find(t, key);
    row = row ? row : make(t, key);
    row->used += amount;
    t->all += amount;
    return true;
}

void gsp_tally_address(const gsp_address *from, uint8_t key[GSP_TALLY_KEY_BYTES])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    size_t bytes = memcmp(from->ip, mapped, sizeof mapped) == 0 ? 16 : 8;
    memset(key, 0, GSP_TALLY_KEY_BYTES);
    memcpy(key, from->ip, bytes);
}
