/*
 * Owns the process of one pool. One idea: it never outlives us unnoticed: it waits until its number is
 * on disk, and the kernel ends it when we end. Refuses to listen to another process than its own.
 */
#include "atom/host/child.h"

#include "atom/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char NOTIFY[] = "NOTIFY_SOCKET=", ERROR_MARK[] = "atom: error: ";

static void shut(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* A socket with a name that the kernel chose, and the line of the environment that says it. */
static atom_status open_ear(int *fd, char *line, size_t bytes)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    socklen_t n = sizeof at.sun_family;
    int on = 1;
    *fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool good = *fd >= 0 && setsockopt(*fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0 &&
                bind(*fd, (struct sockaddr *)&at, n) == 0;
    n = sizeof at;
    if (!good || getsockname(*fd, (struct sockaddr *)&at, &n) != 0)
        return atom_fail_errno(errno, "a socket to hear a member from");
    int name = (int)(n - offsetof(struct sockaddr_un, sun_path)) - 1;
    snprintf(line, bytes, "%s@%.*s", NOTIFY, name, at.sun_path + 1);
    return ATOM_OK;
}

/* Our environment with another line for the service manager; atom_free. */
static char **environment(char *notify)
{
    size_t n = 0, kept = 0;
    while (environ[n])
        n++;
    char **all = atom_alloc(n + 2, sizeof *all);
    for (size_t i = 0; all && i < n; i++)
        if (strncmp(environ[i], NOTIFY, sizeof NOTIFY - 1) != 0)
            all[kept++] = environ[i];
    if (all) {
        all[kept++] = notify;
        all[kept] = NULL;
    }
    return all;
}

/* In the new process: nothing but system calls. */
static _Noreturn void become(char *const *argv, char *const *env, pid_t parent, int go, int out,
                             int err)
{
    char word;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    (void)setpgid(0, 0); /* Ctrl-C is ours alone */
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != parent || null < 0 ||
        dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
        dup2(err, STDERR_FILENO) < 0 || read(go, &word, 1) != 1)
        _exit(126);
    execve(argv[0], argv, env);
    _exit(127);
}

static atom_status spawn(host_child *c, char *const *argv, char *const *env)
{
    int go[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};
    pid_t parent = getpid(), pid = -1;
    if (pipe2(go, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0)
        pid = fork();
    if (pid == 0) {
        close(go[1]); /* else it would wait for itself when we die */
        become(argv, env, parent, go[0], out[1], err[1]);
    }
    int error = errno;
    shut(&go[0]);
    shut(&out[1]);
    shut(&err[1]);
    c->go = go[1];
    c->out = out[0];
    c->err = err[0];
    if (pid < 0)
        return atom_fail_errno(error, "cannot start a process for a pool");
    (void)fcntl(c->out, F_SETFL, O_NONBLOCK);
    (void)fcntl(c->err, F_SETFL, O_NONBLOCK);
    host_process_read(pid, &c->process);
    c->process.pid = pid; /* even where /proc is not there */
    return ATOM_OK;
}

atom_status host_child_start(host_child *c, char *const *argv, host_log_fn *log, void *ctx)
{
    char notify[sizeof(struct sockaddr_un) + sizeof NOTIFY];
    char **env = NULL;
    atom_status st;
    *c = (host_child){.hear = -1, .out = -1, .err = -1, .go = -1, .log = log, .ctx = ctx};
    ATOM_TRY_CLEAN(open_ear(&c->hear, notify, sizeof notify));
    env = environment(notify);
    if (!env)
        ATOM_TRY_CLEAN(atom_fail_memory("an environment", 0));
    ATOM_TRY_CLEAN(spawn(c, argv, env));
cleanup:
    atom_free(env);
    if (st != ATOM_OK) {
        shut(&c->hear);
        shut(&c->out);
        shut(&c->err);
        shut(&c->go);
    }
    return st;
}

void host_child_go(host_child *c)
{
    ssize_t n = write(c->go, "g", 1);
    (void)n; /* it has died: its end will be heard */
    shut(&c->go);
}

void host_child_signal(const host_child *c, int number)
{
    if (c->process.pid > 0)
        kill((pid_t)c->process.pid, number);
}

/* ---- what it says ---- */

static void hear_datagrams(host_child *c, host_child_news *news)
{
    for (;;) {
        char text[512], room[CMSG_SPACE(sizeof(struct ucred))];
        struct iovec piece = {text, sizeof text - 1};
        struct msghdr m = {
            .msg_iov = &piece, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
        ssize_t n = recvmsg(c->hear, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n < 0)
            return;
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        struct ucred who = {0};
        if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_CREDENTIALS)
            memcpy(&who, CMSG_DATA(h), sizeof who);
        text[n] = 0;
        if (who.pid != (pid_t)c->process.pid)
            continue;
        if (strstr(text, "STATUS=training"))
            news->said = HOST_SAID_COMPUTES;
        else if (strstr(text, "STATUS=resting"))
            news->said = HOST_SAID_RESTS;
    }
}

static void take_line(host_child *c)
{
    bool error = strncmp(c->line, ERROR_MARK, sizeof ERROR_MARK - 1) == 0;
    c->line[c->line_bytes] = 0;
    if (c->line_bytes && (error || !c->why_is_error)) {
        snprintf(c->why, sizeof c->why, "%.*s", HOST_WHY_BYTES - 1,
                 error ? c->line + sizeof ERROR_MARK - 1 : c->line);
        c->why_is_error = error;
    }
    if (c->line_bytes)
        c->log(c->ctx, c->line);
    c->line_bytes = 0;
}

static void hear_log(host_child *c)
{
    char text[4096];
    ssize_t n;
    while ((n = read(c->err, text, sizeof text)) > 0)
        for (ssize_t i = 0; i < n; i++) {
            if (text[i] == '\n' || text[i] == '\r' || c->line_bytes + 1 >= sizeof c->line)
                take_line(c);
            if (text[i] != '\n' && text[i] != '\r')
                c->line[c->line_bytes++] = text[i];
        }
}

/* Its output's end is the summary; what does not fit is dropped, and is no summary. */
static void hear_summary(host_child *c)
{
    char text[4096];
    ssize_t n;
    while ((n = read(c->out, text, sizeof text)) > 0) {
        size_t fits = sizeof c->summary - c->summary_bytes;
        memcpy(c->summary + c->summary_bytes, text, (size_t)n < fits ? (size_t)n : fits);
        c->summary_bytes += (size_t)n < fits ? (size_t)n : fits;
    }
}

static bool says_done(const host_child *c)
{
    json_t *o = json_loadb(c->summary, c->summary_bytes, 0, NULL);
    double step = json_number_value(json_object_get(o, "pool_step"));
    double steps = json_number_value(json_object_get(o, "pool_steps"));
    json_decref(o);
    return steps > 0 && step >= steps;
}

/* Has it ended? Then everything that it left to read is read, and the pipes are closed. */
static void look_for_end(host_child *c, host_child_news *news)
{
    int how = 0;
    pid_t got = waitpid((pid_t)c->process.pid, &how, WNOHANG);
    if (got == 0 || (got < 0 && errno == EINTR))
        return;
    hear_datagrams(c, news);
    hear_log(c);
    take_line(c);
    hear_summary(c);
    news->exited = true;
    news->code = got > 0 && WIFEXITED(how) ? WEXITSTATUS(how) : -1;
    news->signal = got > 0 && WIFSIGNALED(how) ? WTERMSIG(how) : 0;
    news->done = says_done(c);
    c->process = (host_process){0};
    shut(&c->hear);
    shut(&c->out);
    shut(&c->err);
    shut(&c->go);
}

void host_child_hear(host_child *c, int timeout_ms, host_child_news *news)
{
    *news = (host_child_news){0};
    if (!c->process.pid) {
        (void)poll(NULL, 0, timeout_ms);
        return;
    }
    struct pollfd p[] = {{.fd = c->hear, .events = POLLIN}, {.fd = c->err, .events = POLLIN}};
    if (poll(p, 2, timeout_ms) > 0 && (p[1].revents & POLLHUP))
        (void)poll(NULL, 0, 20); /* it is about to end: no reason to spin */
    hear_datagrams(c, news);
    hear_log(c);
    hear_summary(c);
    look_for_end(c, news);
}
