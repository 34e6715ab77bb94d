/*
 * Owns the process that reads a Parquet file. One idea: it first says how many rows there are, so that
 * the data is whole only when it has written as many and has ended well. Refuses everything else: what
 * came before a death is never taken for the file.
 */
#include "atom/text/parquet.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/base/printable.h"
#include "atom/text/parquet_script.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { SAID_BYTES = 1024 };

struct text_parquet {
    char *name;   /* the file's path, for messages */
    char *python; /* the program */
    pid_t pid;    /* 0: it has ended, or was never there */
    int out, err; /* what it writes; -1: closed */
    uint64_t bytes;
    uint64_t rows, seen; /* that it promised; that have begun to come */
    bool inside;         /* a row whose line has not ended */
    char said[SAID_BYTES + 1];
    size_t said_n; /* the last of its stderr */
};

/* The columns that are asked for: every key of a line that chat.c or choices.c looks at. */
static const char *const keys[] = {"text",          "messages",
                                   "conversations", "instruction",
                                   "input",         "output",
                                   "system",        "history",
                                   "prompt",        "completion",
                                   "tools",         "documents",
                                   "weight",        "chosen",
                                   "rejected",      "question",
                                   "choices",       "answer",
                                   "answerKey",     "ctx",
                                   "endings",       "label",
                                   "goal",          "sol1",
                                   "sol2",          "chat_template_kwargs"};
enum { KEYS = sizeof keys / sizeof *keys };

/* Those for whose sake a line is refused, so that a row is refused like the same line of JSONL; a file that has
 * nothing else is not data. */
static const char *const beside[] = {"image",   "images",    "video",     "videos",   "audio",
                                     "audios",  "functions", "context",   "response", "kto_tag",
                                     "passage", "article",   "paragraph", "story",    "support",
                                     "hint",    "lecture"};
enum { BESIDE = sizeof beside / sizeof *beside };

atom_status text_parquet_check(const char *path, uint64_t bytes)
{
    char head[256] = "", tail[4] = "";
    size_t n = bytes < sizeof head ? (size_t)bytes : sizeof head;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return atom_fail_errno(errno, "cannot open %s", path);
    int error = atom_fd_read(fd, 0, head, n);
    if (error == 0 && bytes >= sizeof tail)
        error = atom_fd_read(fd, bytes - sizeof tail, tail, sizeof tail);
    close(fd);
    if (error)
        return atom_fail_errno(error, "cannot read %s", path);
    if (atom_is_lfs_pointer(head, n))
        return atom_fail_lfs(path);
    if (memcmp(head, "PAR", 3) != 0)
        return atom_fail(ATOM_E_FORMAT,
                         "%s is named .parquet but is not Parquet (it does not start with PAR1); "
                         "rename it, or copy it again",
                         path);
    if (bytes < 12 || memcmp(head, tail, sizeof tail) != 0)
        return atom_fail(ATOM_E_FORMAT,
                         "%s is incomplete (it does not end with PAR1); copy or download it again",
                         path);
    return ATOM_OK;
}

/* ---- the process ---- */

static void shut(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static atom_status fail_missing(const text_parquet *p, const char *what)
{
    return atom_fail(
        ATOM_E_UNSUPPORTED,
        "%s: atom reads Parquet with Python's pyarrow, but %s: %s; install it: python3 -m venv "
        "~/pyarrow && ~/pyarrow/bin/pip install pyarrow && export "
        "ATOM_PYTHON=~/pyarrow/bin/python3 (or convert the file to .jsonl)",
        p->name, p->python, what);
}

/* Starts it on a file, or without one. */
static atom_status start(text_parquet *p, const char *path)
{
    const char *argv[KEYS + BESIDE + 6] = {p->python, "-c", text_parquet_script, path};
    posix_spawn_file_actions_t actions;
    int out[2] = {-1, -1}, err[2] = {-1, -1}, error = 0;
    pid_t pid;
    if (path) {
        memcpy(argv + 4, keys, sizeof keys);
        argv[4 + KEYS] = "--";
        memcpy(argv + 5 + KEYS, beside, sizeof beside);
    }
    if (pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)
        error = errno;
    p->out = out[0];
    p->err = err[0];
    if (!error)
        error = posix_spawn_file_actions_init(&actions);
    if (error) {
        shut(&out[1]);
        shut(&err[1]);
        return atom_fail_errno(error, "%s: no pipes to read it by", p->name);
    }
    error = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
    if (!error)
        error =
            posix_spawnp(&pid, p->python, &actions, NULL, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    shut(&out[1]);
    shut(&err[1]);
    if (error == ENOMEM || error == EAGAIN)
        return atom_fail_errno(error, "%s: cannot start %s", p->name, p->python);
    if (error)
        return fail_missing(p, strerror(error));
    p->pid = pid;
    return ATOM_OK;
}

void text_parquet_close(text_parquet **parquet)
{
    text_parquet *p = *parquet;
    if (!p)
        return;
    shut(&p->out);
    shut(&p->err);
    if (p->pid > 0) {
        kill(p->pid, SIGKILL);
        while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    atom_free(p->name);
    atom_free(p->python);
    atom_free(p);
    *parquet = NULL;
}

/* Keeps the last of what it says. */
static void hear(text_parquet *p)
{
    char more[SAID_BYTES];
    ssize_t n = read(p->err, more, sizeof more);
    if (n < 0 && errno == EINTR)
        return;
    if (n <= 0) {
        shut(&p->err);
        return;
    }
    size_t keep = SAID_BYTES - (size_t)n < p->said_n ? SAID_BYTES - (size_t)n : p->said_n;
    memmove(p->said, p->said + p->said_n - keep, keep);
    memcpy(p->said + keep, more, (size_t)n);
    p->said_n = keep + (size_t)n;
}

/* Its last line that is not empty. */
static const char *last_words(text_parquet *p)
{
    size_t n = p->said_n;
    while (n && strchr("\r\n ", p->said[n - 1]))
        n--;
    p->said[n] = 0;
    for (char *at = p->said; at < p->said + n; at++)
        *at = *at ? *at : '?';
    const char *line = strrchr(p->said, '\n');
    atom_make_printable(p->said);
    return line ? line + 1 : p->said;
}

/* How it ended, when its stdout has. */
static atom_status end(text_parquet *p)
{
    int how = 0;
    while (p->err >= 0)
        hear(p);
    while (waitpid(p->pid, &how, 0) < 0)
        if (errno != EINTR)
            return atom_fail_errno(errno, "%s: cannot wait for %s", p->name, p->python);
    p->pid = 0;
    const char *words = last_words(p);
    unsigned long long seen = p->seen, rows = p->rows;
    if (WIFSIGNALED(how))
        return atom_fail(ATOM_E_RUNTIME,
                         "%s: %s, which reads it, was ended by signal %d (%s) after row %llu of "
                         "%llu; is memory short, or the file damaged?",
                         p->name, p->python, WTERMSIG(how), strsignal(WTERMSIG(how)), seen, rows);
    switch (WEXITSTATUS(how)) {
    case 0:
        break;
    case TEXT_PARQUET_BAD_FILE:
        return atom_fail(ATOM_E_FORMAT, "%s%s", p->name, words);
    case TEXT_PARQUET_NO_MEMORY:
        return atom_fail(ATOM_E_RESOURCE, "%s: %s has no memory to read it: %s", p->name, p->python,
                         words);
    case TEXT_PARQUET_NO_PYARROW:
        return fail_missing(p, words);
    default:
        return atom_fail(ATOM_E_RUNTIME,
                         "%s: %s, which reads it, ended with code %d after row %llu of %llu: %s",
                         p->name, p->python, WEXITSTATUS(how), seen, rows, words);
    }
    if (seen != rows)
        return atom_fail(ATOM_E_RUNTIME, "%s: %s, which reads it, gave %llu of its %llu rows",
                         p->name, p->python, seen, rows);
    return ATOM_OK;
}

/* Up to `want` bytes of its stdout, while its stderr is heard, lest it wait for us to do so. */
static atom_status take(text_parquet *p, char *data, size_t want, size_t *got)
{
    *got = 0;
    for (;;) {
        struct pollfd both[] = {{.fd = p->out, .events = POLLIN}, {.fd = p->err, .events = POLLIN}};
        ssize_t n = poll(both, 2, -1);
        if (n > 0 && both[1].revents)
            hear(p);
        if (n > 0 && both[0].revents)
            n = read(p->out, data, want);
        else if (n > 0)
            continue;
        if (n >= 0) {
            *got = (size_t)n;
            return ATOM_OK;
        }
        if (errno != EINTR)
            return atom_fail_errno(errno, "%s: cannot read from %s", p->name, p->python);
    }
}

/* Its first line without the end; *n < bytes - 1. */
static atom_status take_line(text_parquet *p, char *line, size_t bytes)
{
    size_t n = 0, got = 1;
    while (n + 1 < bytes && got && (n == 0 || line[n - 1] != '\n')) {
        ATOM_TRY(take(p, line + n, 1, &got));
        n += got;
    }
    if (!got)
        ATOM_TRY(end(p));
    if (n == 0 || line[n - 1] != '\n')
        return atom_fail(ATOM_E_RUNTIME, "%s: %s is not a usable Python; name one in ATOM_PYTHON",
                         p->name, p->python);
    line[n - 1] = 0;
    return ATOM_OK;
}

static atom_status open_process(const char *name, const char *path, text_parquet **out)
{
    const char *python = getenv("ATOM_PYTHON");
    text_parquet *p = atom_alloc(1, sizeof *p);
    if (!p)
        return atom_fail_memory(name, sizeof *p);
    *out = p;
    p->out = p->err = -1;
    p->name = atom_strdup(name);
    p->python = atom_strdup(python && *python ? python : "python3");
    if (!p->name || !p->python)
        return atom_fail_memory(name, strlen(name));
    return start(p, path);
}

atom_status text_parquet_open(const char *path, text_parquet **out)
{
    text_parquet *p = NULL;
    struct stat info;
    char line[24], *after;
    atom_status st;
    if (stat(path, &info) < 0)
        return atom_fail_errno(errno, "cannot read %s", path);
    ATOM_TRY_CLEAN(open_process(path, path, &p));
    p->bytes = (uint64_t)info.st_size;
    ATOM_TRY_CLEAN(take_line(p, line, sizeof line));
    p->rows = strtoull(line, &after, 10);
    if (*after || line[0] < '0' || line[0] > '9')
        ATOM_TRY_CLEAN(
            atom_fail(ATOM_E_RUNTIME, "%s: %s did not say how many rows it has", path, p->python));
    *out = p;
    return ATOM_OK;
cleanup:
    text_parquet_close(&p);
    return st;
}

atom_status text_parquet_version(char out[32])
{
    text_parquet *p = NULL;
    char line[32] = "";
    atom_status st = open_process("parquet", NULL, &p);
    if (st == ATOM_OK)
        st = take_line(p, line, sizeof line);
    text_parquet_close(&p);
    if (st == ATOM_OK) {
        atom_make_printable(line);
        memcpy(out, line, sizeof line);
    }
    return st;
}

/* ---- rows ---- */

static void count_rows(text_parquet *p, const char *data, size_t n)
{
    for (size_t at = 0; at < n;) {
        const char *newline = memchr(data + at, '\n', n - at);
        p->seen += !p->inside;
        p->inside = !newline;
        at = newline ? (size_t)(newline - data) + 1 : n;
    }
}

atom_status text_parquet_read(text_parquet *p, char *data, size_t want, size_t *got)
{
    *got = 0;
    if (p->pid == 0)
        return ATOM_OK;
    ATOM_TRY(take(p, data, want, got));
    if (*got == 0)
        return end(p);
    count_rows(p, data, *got);
    return ATOM_OK;
}

uint64_t text_parquet_used(const text_parquet *p)
{
    if (p->seen >= p->rows)
        return p->bytes;
    return (uint64_t)((double)p->bytes * (double)p->seen / (double)p->rows);
}
