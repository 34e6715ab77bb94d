/*
 * Owns how a share of a batch changes. One idea, which TCP has of a congestion window: a lease that is
 * late once was a little too large, so its share stays a little below that for a while. A member that
 * is late twice in a row stood still, for whatever reason, and its share has nothing to do with it. It is
 * asked for little until it brings that, and then for twice as much each time until it has what it had.
 * It refuses to forgive twice in a short time: that is what a member does that withholds on purpose.
 */
#include "atom/pool/share.h"

enum {
    /* Parts of itself by which a share changes: */
    GROWTH = 32, /* in time */
    DRIFT = 512, /* in time, not long after it was late */
    CUT = 5,     /* late */
    STOP = 4,    /* late again: what is left */
    AGAIN = 2,   /* so many versions after it was late, late again is twice in a row */
    SURE = 12    /* versions in time that make a share proven */
};

pool_share pool_share_first(const gsp_key *key, bool returns)
{
    return (pool_share){.key = *key, .share = returns ? POOL_SHARE_MAX : POOL_SHARE_BEFORE};
}

bool pool_share_valid(const pool_share *s, bool returns)
{
    bool plain = s->phase == POOL_SHARE_STEADY && s->proven == 0;
    return s->share >= POOL_SHARE_MIN && s->share <= POOL_SHARE_MAX && s->hold <= POOL_SHARE_HOLD &&
           (returns || plain) && s->phase < POOL_SHARE_PHASES && s->proven <= POOL_SHARE_MAX &&
           (s->phase == POOL_SHARE_STEADY || (s->proven > 0 && s->hold > 0));
}

static bool is_again(const pool_share *s)
{
    return s->hold + AGAIN > POOL_SHARE_HOLD;
}

static void settle(pool_share *s)
{
    s->phase = POOL_SHARE_STEADY;
    s->proven = 0;
    s->hold = POOL_SHARE_HOLD;
}

/* After a lease that came late a share stays below what was too much for a while: near it, all wait
 * for that member. What is late twice in a row is far too much. */
static void steady(pool_share *s, bool late)
{
    bool again = is_again(s);
    if (late) {
        s->share -= again ? s->share / 2 : s->share / CUT;
        s->hold = POOL_SHARE_HOLD;
    } else {
        s->share += s->share / (s->hold ? DRIFT : GROWTH);
        s->hold -= s->hold > 0;
    }
}

static void steady_or_stopped(pool_share *s, bool late)
{
    if (late && is_again(s) && s->proven) {
        s->phase = POOL_SHARE_STOPPED;
        s->share /= STOP;
        s->hold = POOL_SHARE_HOLD;
        return;
    }
    bool first = late && !is_again(s);
    s->proven = first && s->hold + SURE <= POOL_SHARE_HOLD ? s->share : 0;
    steady(s, late);
}

static void rise(pool_share *s)
{
    s->phase = POOL_SHARE_RETURNING;
    s->share = 2 * s->share < s->proven ? 2 * s->share : s->proven;
    if (s->share == s->proven)
        settle(s);
}

/* Where it is asked for nothing it is asked again after a while, and no sooner, since each time somebody
 * else has to make up for it. */
static void stopped(pool_share *s, const pool_share_news *news)
{
    if (--s->hold == 0)
        settle(s);
    else if (news->late)
        s->share /= STOP;
    else if (news->leased == 0)
        s->share += s->share / GROWTH;
    else
        rise(s);
}

/* Half of what was late was in time. */
static void returning(pool_share *s, bool late)
{
    if (!late) {
        rise(s);
        return;
    }
    s->share /= 2;
    settle(s);
}

void pool_share_learn(pool_share *s, const pool_share_news *news)
{
    /* A lease that was planned before the first was late tells nothing more. */
    if (news->late && news->delayed && s->hold == POOL_SHARE_HOLD)
        s->hold--;
    else if (!news->returns)
        steady(s, news->late);
    else if (s->phase == POOL_SHARE_STEADY)
        steady_or_stopped(s, news->late);
    else if (s->phase == POOL_SHARE_STOPPED)
        stopped(s, news);
    else
        returning(s, news->late);
    s->share = s->share < POOL_SHARE_MIN ? POOL_SHARE_MIN : s->share;
    s->share = s->share > POOL_SHARE_MAX ? POOL_SHARE_MAX : s->share;
}
