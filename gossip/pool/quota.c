/*
 * Owns a month's count of bytes. One idea: a count, its month and nothing else is kept, so a new
 * month is a count of another name. Refuses to give back what was used because a clock went back.
 */
#include "gossip/pool/quota.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/base/size.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* A clock that was lost at a boot shows a time before the first pool, or is set within so long by whoever
 * can reach one. */
enum { FIRST_MONTH = 202611 };
static const double BELIEVED_S = 300;

uint32_t gsp_quota_month(double wall_s)
{
    time_t at = (time_t)wall_s;
    struct tm t;
    if (!localtime_r(&at, &t))
        return 0;
    return (uint32_t)(t.tm_year + 1900) * 100 + (uint32_t)t.tm_mon + 1;
}

double gsp_quota_ends(double wall_s)
{
    time_t at = (time_t)wall_s;
    struct tm t;
    if (!localtime_r(&at, &t))
        return wall_s;
    t = (struct tm){.tm_year = t.tm_year, .tm_mon = t.tm_mon + 1, .tm_mday = 1, .tm_isdst = -1};
    return (double)mktime(&t);
}

/* "month 202611\nup 1\ndown 2\n" and no more. */
static bool parse(const char *text, uint32_t *month, uint64_t *up, uint64_t *down)
{
    unsigned m;
    unsigned long long u, d;
    int end = 0;
    if (sscanf(text, "month %6u\nup %19llu\ndown %19llu\n%n", &m, &u, &d, &end) != 3 || !end ||
        text[end])
        return false;
    *month = m;
    *up = u;
    *down = d;
    return m % 100 >= 1 && m % 100 <= 12;
}

atom_status gsp_quota_load(const char *path, double wall_s, gsp_quota *q)
{
    char *text = NULL;
    uint64_t bytes, up, down;
    uint32_t month;
    atom_status st = ATOM_OK;
    q->month = gsp_quota_month(wall_s);
    q->up = q->down = 0;
    if (!atom_path_exists(path))
        return ATOM_OK;
    ATOM_TRY(atom_file_read(path, 4096, &text, &bytes));
    if (!parse(text, &month, &up, &down))
        st = atom_fail(ATOM_E_FORMAT,
                       "%s is damaged, so it is not known how much was used this month; it is "
                       "counted from zero",
                       path);
    else if (month >= q->month)
        *q = (gsp_quota){month, up, down, q->up_max, q->down_max, 0};
    atom_free(text);
    return st;
}

atom_status gsp_quota_save(const char *path, const gsp_quota *q)
{
    char text[128];
    int n = snprintf(text, sizeof text, "month %u\nup %llu\ndown %llu\n", q->month,
                     (unsigned long long)q->up, (unsigned long long)q->down);
    return atom_file_write(path, text, (size_t)n);
}

/* The clock says that the count's month has not begun. Either the clock is wrong now, or it was when the
 * count was made. The bytes are kept in both cases: they were sent at some time before now. */
static void clock_is_behind(gsp_quota *q, double wall_s, uint32_t month)
{
    if (q->behind_s == 0 || wall_s < q->behind_s)
        q->behind_s = wall_s;
    if (wall_s - q->behind_s < BELIEVED_S || month < FIRST_MONTH)
        return;
    q->month = month;
    q->behind_s = 0;
}

void gsp_quota_count(gsp_quota *q, double wall_s, uint64_t up, uint64_t down)
{
    uint32_t month = gsp_quota_month(wall_s);
    if (month > q->month) {
        q->month = month;
        q->up = q->down = 0;
    }
    if (month < q->month)
        clock_is_behind(q, wall_s, month);
    else
        q->behind_s = 0;
    q->up += up;
    q->down += down;
}

bool gsp_quota_has_spare(const gsp_quota *q)
{
    return (!q->up_max || q->up < q->up_max - q->up_max / 4) &&
           (!q->down_max || q->down < q->down_max - q->down_max / 4);
}

bool gsp_quota_spent(const gsp_quota *q)
{
    return (q->up_max && q->up >= q->up_max) || (q->down_max && q->down >= q->down_max);
}

static void part(char *text, size_t bytes, uint64_t used, uint64_t max, const char *what)
{
    char a[32], b[32];
    if (max)
        snprintf(text, bytes, "%s of %s %s", atom_size_text(used, a), atom_size_text(max, b), what);
    else
        snprintf(text, bytes, "%s %s", atom_size_text(used, a), what);
}

const char *gsp_quota_text(const gsp_quota *q, char *text, size_t bytes)
{
    char up[96], down[96];
    part(up, sizeof up, q->up, q->up_max, "sent");
    part(down, sizeof down, q->down, q->down_max, "received");
    snprintf(text, bytes, "%s, %s this month", up, down);
    return text;
}
