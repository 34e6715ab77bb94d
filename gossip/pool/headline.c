/*
 * Owns the sentence that says how far a host has come. Its one idea: it is written by one thread
 * and copied under a lock, so nobody waits for the network to read it. It refuses to take back a
 * refusal.
 */
#include "gossip/pool/headline.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void gsp_headline_open(gsp_headline *s)
{
    *s = (gsp_headline){.now = GSP_POOL_SEEKING};
    (void)pthread_mutex_init(&s->lock, NULL);
}

void gsp_headline_close(gsp_headline *s)
{
    pthread_mutex_destroy(&s->lock);
}

static void say(gsp_headline *s, gsp_pool_stage now, const char *fmt, va_list args)
{
    char text[GSP_POOL_WHY_BYTES];
    vsnprintf(text, sizeof text, fmt, args);
    pthread_mutex_lock(&s->lock);
    s->now = now;
    memcpy(s->text, text, sizeof text);
    pthread_mutex_unlock(&s->lock);
}

void gsp_headline_say(gsp_headline *s, gsp_pool_stage now, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say(s, now, fmt, args);
    va_end(args);
}

void gsp_headline_refuse(gsp_headline *s, gsp_pool_stage now, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say(s, now, fmt, args);
    va_end(args);
    s->refused = true;
}

atom_status gsp_headline_check(const gsp_headline *s)
{
    return s->refused ? atom_fail(ATOM_E_RUNTIME, "%s", s->text) : ATOM_OK;
}

gsp_pool_stage gsp_headline_read(gsp_headline *s, char text[GSP_POOL_WHY_BYTES])
{
    pthread_mutex_lock(&s->lock);
    gsp_pool_stage now = s->now;
    memcpy(text, s->text, sizeof s->text);
    pthread_mutex_unlock(&s->lock);
    return now;
}
