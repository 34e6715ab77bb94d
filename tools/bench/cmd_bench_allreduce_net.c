/*
 * Owns the hosts of atom bench allreduce: one network namespace per peer, one bridge between them.
 * Its one idea: the namespaces have no names, so that they are gone when the last process in them
 * is, however it ends. It refuses to touch the network that the program was started in.
 */
#include "tools/bench/bench_allreduce.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Runs "ip ..." or "tc ..."; its complaint goes to stderr. */
static atom_status call(const char *fmt, ...) ATOM_PRINTF(1, 2);
static atom_status call(const char *fmt, ...)
{
    char line[256], *word[40], *save = NULL;
    va_list args;
    int n = 0, code = 0;
    pid_t pid;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    char said[256];
    snprintf(said, sizeof said, "%s", line);
    for (char *w = strtok_r(line, " ", &save); w && n < 39; w = strtok_r(NULL, " ", &save))
        word[n++] = w;
    word[n] = NULL;
    int error = posix_spawnp(&pid, word[0], NULL, NULL, word, environ);
    if (error)
        return atom_fail(ATOM_E_UNSUPPORTED, "%s: %s; install iproute2", word[0], strerror(error));
    while (waitpid(pid, &code, 0) < 0 && errno == EINTR)
        ;
    if (code != 0)
        return atom_fail(ATOM_E_RUNTIME, "'%s' failed", said);
    return ATOM_OK;
}

static void put_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = write(fd, text, strlen(text));
        (void)n;
        close(fd);
    }
}

atom_status allreduce_net_enter(const char *directory)
{
    char map[64];
    unsigned uid = geteuid(), gid = getegid();
    setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
    int flags = CLONE_NEWNET | CLONE_NEWNS | (uid ? CLONE_NEWUSER : 0);
    if (unshare(flags) != 0)
        return atom_fail(
            ATOM_E_UNSUPPORTED,
            "network namespaces are not allowed here (%s); run as root, in a container "
            "with CAP_SYS_ADMIN, or without --rate and --rtt",
            strerror(errno));
    if (uid) {
        put_file("/proc/self/setgroups", "deny");
        snprintf(map, sizeof map, "0 %u 1", uid);
        put_file("/proc/self/uid_map", map);
        snprintf(map, sizeof map, "0 %u 1", gid);
        put_file("/proc/self/gid_map", map);
    }
    /* The peers' memory is in RAM: they share one machine's disk, which real peers do not. */
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", directory, "tmpfs", 0, "mode=0700,size=90%") != 0)
        return atom_fail_errno(errno, "%s: a file system in memory", directory);
    ATOM_TRY(call("ip link set lo up"));
    ATOM_TRY(call("ip link add hub type bridge"));
    return call("ip link set hub up");
}

/* A rate for what leaves through a device; with half the round trip where one is asked for. */
static atom_status shape(const allreduce_plan *plan, uint32_t i, const char *device,
                         double delay_ms)
{
    atom_status st = ATOM_OK;
    double mbit = plan->mbit[i];
    /* Four milliseconds: on a busy machine the kernel comes late, and what the bucket cannot hold
     * then is lost to all, iperf3 too. */
    double burst = mbit * 500 > 16384 ? mbit * 500 : 16384;
    double queue_ms = 50 + plan->rtt_ms;
    if (mbit > 0) {
        ATOM_TRY(
            call("tc qdisc add dev %s root handle 1: tbf rate %.0fbit burst %.0f latency %.0fms",
                 device, mbit * 1e6, burst, queue_ms));
        /* What TCP hands over as one piece must fit into the bucket, or tbf cuts it into packets,
         * which took this machine's time where a real link's card takes its own. */
        ATOM_TRY(call("ip link set dev %s gso_max_size %.0f", device,
                      burst / 2 < 65536 ? burst / 2 : 65536));
    }
    if (delay_ms > 0) {
        st = call("tc qdisc add dev %s %s netem delay %.1fms limit 100000", device,
                  mbit > 0 ? "parent 1:1" : "root", delay_ms);
        if (st != ATOM_OK)
            return atom_fail(ATOM_E_UNSUPPORTED,
                             "this kernel has no netem: no --rtt here (tests/net delays packets in "
                             "a process of its own)");
    }
    return ATOM_OK;
}

atom_status allreduce_net_link(const allreduce_plan *plan, uint32_t i, pid_t pid)
{
    char device[16];
    snprintf(device, sizeof device, "port%u", i);
    ATOM_TRY(call("ip link add %s type veth peer name wire netns %d", device, (int)pid));
    ATOM_TRY(call("ip link set %s master hub up", device));
    return shape(plan, i, device, 0);
}

atom_status allreduce_net_leave(void)
{
    if (unshare(CLONE_NEWNET) != 0)
        return atom_fail_errno(errno, "a network namespace");
    return ATOM_OK;
}

atom_status allreduce_net_up(const allreduce_plan *plan, uint32_t i)
{
    ATOM_TRY(call("ip addr add 10.77.0.%u/24 dev wire", i + 1));
    ATOM_TRY(call("ip link set lo up"));
    ATOM_TRY(call("ip link set wire up"));
    /* What most hosts have, whatever this one was set to. A kernel that does not allow it here
     * (tcp_allowed_congestion_control) refuses; the report names what was in use. */
    put_file("/proc/sys/net/ipv4/tcp_congestion_control", "cubic");
    return shape(plan, i, "wire", plan->rtt_ms / 2);
}

/* One of TCP's counters in /proc/net/snmp, by its place behind "Tcp:". */
static uint64_t tcp_counter(int place)
{
    char line[512];
    uint64_t value = 0;
    FILE *f = fopen("/proc/self/net/snmp", "r");
    while (f && fgets(line, sizeof line, f)) {
        char *save = NULL, *word = strtok_r(line, " ", &save);
        if (!word || strcmp(word, "Tcp:") != 0)
            continue;
        for (int k = 0; word && k < place; k++)
            word = strtok_r(NULL, " ", &save);
        value = word ? strtoull(word, NULL, 10) : 0; /* 0 in the line of names */
    }
    if (f)
        fclose(f);
    return value;
}

enum { TCP_OUT_SEGMENTS = 11, TCP_RESENT_SEGMENTS = 12, HEADERS_BYTES = 14 + 20 + 32 };

void allreduce_net_bytes(uint64_t *sent, uint64_t *received)
{
    char line[512];
    unsigned long long packets = 0;
    FILE *f = fopen("/proc/self/net/dev", "r");
    *sent = *received = 0;
    while (f && fgets(line, sizeof line, f)) {
        unsigned long long x[10];
        char *at = strchr(line, ':'), *name = line + strspn(line, " ");
        if (!at || sscanf(at + 1, "%llu %llu %llu %llu %llu %llu %llu %llu %llu %llu", &x[0], &x[1],
                          &x[2], &x[3], &x[4], &x[5], &x[6], &x[7], &x[8], &x[9]) != 10)
            continue;
        if (strncmp(name, "lo:", 3) == 0)
            continue;
        *received += x[0];
        *sent += x[8];
        packets += x[9];
    }
    if (f)
        fclose(f);
    /* The device counts what the kernel hands over as one piece once; its rate counts the headers
     * of every segment, as a wire would. */
    uint64_t segments = tcp_counter(TCP_OUT_SEGMENTS);
    if (segments > packets)
        *sent += (segments - packets) * HEADERS_BYTES;
}

uint64_t allreduce_net_resent(void)
{
    return tcp_counter(TCP_RESENT_SEGMENTS);
}
