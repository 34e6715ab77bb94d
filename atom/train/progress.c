/*
 * Owns the progress line. One idea: on a terminal one line is
 * redrawn at most ten times a second, anywhere else a plain line is printed every logging_steps.
 * Refuses stdout: results belong there.
 */
#include "atom/train/progress.h"

#include "atom/base/clock.h"
#include "atom/base/machine.h"
#include "atom/base/size.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const double SMOOTHING = 0.95;
static const double REDRAW_SECONDS = 0.1;

static bool is_terminal(FILE *file)
{
    const char *term = getenv("TERM");
    return isatty(fileno(file)) && term && *term && strcmp(term, "dumb") != 0;
}

train_progress train_progress_make(FILE *file, int terminal, int64_t first_step, int64_t max_steps,
                                   int64_t logging_steps)
{
    return (train_progress){.file = file,
                            .terminal = terminal < 0 ? file && is_terminal(file) : terminal > 0,
                            .first_step = first_step,
                            .max_steps = max_steps,
                            .logging_steps = logging_steps < 1 ? 1 : logging_steps,
                            .started_seconds = atom_clock_seconds(),
                            .val_loss = -1};
}

/* The moving average starts at 0; dividing by 1 - 0.95^n takes that bias out. */
static double unbiased(const train_progress *p, double ema)
{
    return p->seen ? ema / (1 - pow(SMOOTHING, (double)p->seen)) : 0;
}

double train_progress_step_seconds(const train_progress *p)
{
    return unbiased(p, p->ema_seconds);
}

double train_progress_tokens_per_second(const train_progress *p)
{
    return p->ema_seconds > 0 ? p->ema_tokens / p->ema_seconds : 0;
}

/* "2:05", "1:02:05", "3d 4h" */
static char *time_text(double seconds, char buf[32])
{
    long long s = seconds > 0 && seconds < 1e12 ? (long long)(seconds + 0.5) : 0;
    if (s >= 86400)
        snprintf(buf, 32, "%lldd %lldh", s / 86400, s / 3600 % 24);
    else if (s >= 3600)
        snprintf(buf, 32, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(buf, 32, "%lld:%02lld", s / 60, s % 60);
    return buf;
}

/* "834", "8.1k", "1.23M" */
static char *rate_text(double rate, char buf[32])
{
    if (rate < 1000)
        snprintf(buf, 32, rate < 10 ? "%.1f" : "%.0f", rate);
    else if (rate < 1e6)
        snprintf(buf, 32, "%.1fk", rate / 1e3);
    else
        snprintf(buf, 32, "%.2fM", rate / 1e6);
    return buf;
}

static char *mfu_text(double mfu, char buf[32])
{
    if (mfu >= 0)
        snprintf(buf, 32, "%.1f%%", 100 * mfu);
    else
        snprintf(buf, 32, "n/a");
    return buf;
}

static const char *bar_text(const train_progress *p, int64_t step, char buf[24])
{
    unsigned percent = 0;
    if (p->max_steps > 0 && step > 0)
        percent = step < p->max_steps ? (unsigned)(100 * step / p->max_steps) : 100u;
    snprintf(buf, 24, "%3u%% [..........]", percent % 1000);
    memset(buf + 6, '#', percent / 10);
    return buf;
}

/* What a narrow terminal has no room for, the first to go first: so what remains and how fast it goes
 * are seen on any. */
enum { WITHOUT_MEMORY = 1, WITHOUT_MFU, WITHOUT_RATE, WITHOUT_NORM };

static void append(char *buf, size_t bytes, const char *word, const char *text)
{
    size_t n = strlen(buf);
    snprintf(buf + n, bytes - n, " %s %s", word, text);
}

static int compose(const train_progress *p, const train_step_metrics *s, int without, char *buf,
                   size_t bytes)
{
    char text[32], bar[24];
    double left = (double)(p->max_steps - s->step) * train_progress_step_seconds(p);
    bool ends = p->max_steps > 0, bars = p->terminal && ends;
    text[0] = 0;
    if (ends)
        snprintf(text, sizeof text, "/%lld", (long long)p->max_steps);
    snprintf(buf, bytes, "%s%sstep %lld%s loss %.4f", bars ? bar_text(p, s->step, bar) : "",
             bars ? " " : "", (long long)s->step, text, s->loss);
    snprintf(text, sizeof text, "%.3f", p->val_loss);
    if (p->val_loss >= 0)
        append(buf, bytes, "val", text);
    snprintf(text, sizeof text, "%.3g", s->grad_norm);
    if (without < WITHOUT_NORM)
        append(buf, bytes, "norm", text);
    snprintf(text, sizeof text, "%.3g", s->learning_rate);
    if (without < WITHOUT_RATE)
        append(buf, bytes, "lr", text);
    append(buf, bytes, rate_text(train_progress_tokens_per_second(p), text), "tok/s");
    if (without < WITHOUT_MFU)
        append(buf, bytes, "mfu", mfu_text(s->mfu, text));
    if (without < WITHOUT_MEMORY) {
        append(buf, bytes, "device", atom_size_text(s->device_bytes, text));
        append(buf, bytes, "host", atom_size_text(s->host_bytes, text));
    }
    if (ends)
        append(buf, bytes, "eta", time_text(left, text));
    return (int)strlen(buf);
}

char *train_progress_text(const train_progress *p, const train_step_metrics *s, int columns,
                          char *buf, size_t bytes)
{
    int n = compose(p, s, 0, buf, bytes);
    for (int without = 1; p->terminal && columns > 0 && n > columns && without <= WITHOUT_NORM;
         without++)
        n = compose(p, s, without, buf, bytes);
    if (p->terminal && columns > 0 && n > columns && (size_t)columns < bytes)
        buf[columns] = 0;
    return buf;
}

static int columns_of(FILE *file)
{
    struct winsize size = {0};
    if (ioctl(fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col - 1;
    return 79;
}

void train_progress_step(train_progress *p, const train_step_metrics *s)
{
    char text[512];
    p->seen++;
    p->ema_seconds = SMOOTHING * p->ema_seconds + (1 - SMOOTHING) * s->seconds;
    p->ema_tokens = SMOOTHING * p->ema_tokens + (1 - SMOOTHING) * (double)s->step_tokens;
    if (!p->file)
        return;
    bool last = p->max_steps > 0 && s->step >= p->max_steps;
    if (!p->terminal) {
        if (s->step % p->logging_steps == 0 || last || p->seen == 1)
            fprintf(p->file, "%s\n", train_progress_text(p, s, 0, text, sizeof text));
        return;
    }
    double now = atom_clock_seconds();
    if (!last && p->drawn && now - p->drawn_seconds < REDRAW_SECONDS)
        return;
    fprintf(p->file, "\r%s\x1b[K",
            train_progress_text(p, s, columns_of(p->file), text, sizeof text));
    fflush(p->file);
    p->drawn = true;
    p->drawn_seconds = now;
}

void train_progress_note(train_progress *p, const char *fmt, ...)
{
    va_list args;
    if (!p->file)
        return;
    if (p->drawn)
        fputs("\r\x1b[K", p->file);
    va_start(args, fmt);
    vfprintf(p->file, fmt, args);
    va_end(args);
    fputc('\n', p->file);
    fflush(p->file);
    p->drawn = false;
}

static void report_validation(train_progress *p, const train_report *r)
{
    char of[24] = "";
    p->val_loss = r->loss;
    if (p->max_steps > 0)
        snprintf(of, sizeof of, "/%lld", (long long)p->max_steps);
    train_progress_note(p, "step %lld%s val loss %.4f", (long long)r->step, of, r->loss);
}

void train_progress_report(train_progress *p, const train_report *r, uint64_t device_bytes)
{
    const train_step_metrics m = {
        .step = r->step,
        .loss = r->loss,
        .grad_norm = r->grad_norm,
        .learning_rate = r->learning_rate,
        .seconds = r->seconds,
        .step_tokens = (uint64_t)llround(r->tokens_per_second * r->seconds),
        .tokens = (uint64_t)r->tokens_seen,
        .mfu = r->mfu > 0 ? r->mfu : -1,
        .device_bytes = device_bytes,
        .host_bytes = atom_vm_peak_bytes(),
    };
    if (r->validation)
        report_validation(p, r);
    else
        train_progress_step(p, &m);
}

void train_progress_end(train_progress *p)
{
    if (p->file && p->drawn)
        fputc('\n', p->file);
    p->drawn = false;
}
