/*
 * The local part of atom pool selftest: addresses, kernel limits, clock, disk. One idea: each
 * finding is a number that was read now, and each fix is a line that can be pasted. Refuses to
 * change anything.
 */
#include "tools/pool/cmd_pool_selftest.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/timex.h>
#include <unistd.h>

pool_finding *pool_find(pool_findings *to, const char *name, pool_state state)
{
    if (to->n == POOL_FINDINGS_MAX)
        to->n--; /* the last one is overwritten: there are a dozen in all */
    pool_finding *f = &to->finding[to->n++];
    *f = (pool_finding){.name = name, .state = state};
    return f;
}

void pool_finding_say(pool_finding *f, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(f->text, sizeof f->text, fmt, args);
    va_end(args);
}

void pool_finding_fix(pool_finding *f, const char *fmt, ...)
{
    va_list args;
    size_t used = strlen(f->fix);
    if (used && used + 1 < sizeof f->fix)
        f->fix[used++] = '\n';
    va_start(args, fmt);
    vsnprintf(f->fix + used, sizeof f->fix - used, fmt, args);
    va_end(args);
}

pool_reach pool_reach_of(const gsp_address *address)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    static const uint8_t one[16] = {[15] = 1};
    const uint8_t *ip = address->ip, *v4 = ip + 12;
    if (memcmp(ip, mapped, sizeof mapped) == 0) {
        if (v4[0] == 127 || (v4[0] == 169 && v4[1] == 254) || v4[0] == 0)
            return POOL_HERE;
        if (v4[0] == 100 && (v4[1] & 0xc0) == 64)
            return POOL_SHARED;
        bool is_private =
            v4[0] == 10 || (v4[0] == 172 && (v4[1] & 0xf0) == 16) || (v4[0] == 192 && v4[1] == 168);
        return is_private ? POOL_PRIVATE : POOL_GLOBAL;
    }
    if (memcmp(ip, one, sizeof one) == 0 || (ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80))
        return POOL_HERE;
    return (ip[0] & 0xe0) == 0x20 ? POOL_GLOBAL : POOL_PRIVATE;
}

static int by_reach(const void *a, const void *b)
{
    int order = (int)pool_reach_of(b) - (int)pool_reach_of(a);
    return order ? order : memcmp(a, b, sizeof(gsp_address));
}

uint32_t pool_addresses(gsp_address *out, uint32_t n_max)
{
    gsp_address all[64];
    struct ifaddrs *list = NULL;
    uint32_t n = 0;
    if (getifaddrs(&list) != 0)
        return 0;
    for (const struct ifaddrs *a = list; a && n < 64; a = a->ifa_next) {
        struct sockaddr_storage s = {0};
        if (!a->ifa_addr || !(a->ifa_flags & IFF_UP))
            continue;
        bool v4 = a->ifa_addr->sa_family == AF_INET, v6 = a->ifa_addr->sa_family == AF_INET6;
        if (!v4 && !v6)
            continue;
        memcpy(&s, a->ifa_addr, v4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
        if (gsp_address_from_socket(&s, &all[n]) && pool_reach_of(&all[n]) != POOL_HERE)
            n++;
    }
    freeifaddrs(list);
    qsort(all, n, sizeof *all, by_reach);
    n = n < n_max ? n : n_max;
    memcpy(out, all, n * sizeof *out);
    return n;
}

/* The address without its port. */
static const char *host_text(const gsp_address *address, char buf[GSP_ADDRESS_TEXT_BYTES])
{
    gsp_address_text(address, buf);
    char *colon = strrchr(buf, ':');
    if (colon)
        *colon = 0;
    return buf;
}

static bool ufw_is_on(void)
{
    char *text = NULL;
    uint64_t bytes = 0;
    bool on = false;
    if (atom_path_exists("/etc/ufw/ufw.conf") &&
        atom_file_read("/etc/ufw/ufw.conf", 1 << 16, &text, &bytes) == ATOM_OK)
        on = strstr(text, "ENABLED=yes") != NULL;
    atom_free(text);
    return on;
}

static void fix_firewall(pool_finding *f, uint16_t port)
{
    if (ufw_is_on())
        pool_finding_fix(f, "sudo ufw allow %u/tcp", port);
    else if (atom_path_exists("/usr/bin/firewall-cmd"))
        pool_finding_fix(
            f, "sudo firewall-cmd --permanent --add-port=%u/tcp && sudo firewall-cmd --reload",
            port);
    else if (!atom_path_exists("/usr/sbin/iptables") && atom_path_exists("/usr/sbin/nft"))
        pool_finding_fix(
            f,
            "if a firewall runs here: sudo nft insert rule inet filter input tcp dport %u accept",
            port);
    else
        pool_finding_fix(
            f,
            "if a firewall runs here: sudo iptables -I INPUT -p tcp --dport %u -j ACCEPT; "
            "sudo ip6tables -I INPUT -p tcp --dport %u -j ACCEPT",
            port, port);
}

/* Is the address that the peer saw one of ours? */
static bool is_ours(const gsp_address *seen, const gsp_address *ours, uint32_t n)
{
    bool found = pool_reach_of(seen) == POOL_HERE;
    for (uint32_t i = 0; i < n; i++)
        found |= gsp_address_same_host(seen, &ours[i]);
    return found;
}

static void guess_nat(pool_findings *to, uint16_t port, const gsp_probe_result *peer,
                      const gsp_address *ours, uint32_t n)
{
    char seen[GSP_ADDRESS_TEXT_BYTES], mine[GSP_ADDRESS_TEXT_BYTES] = "this host";
    bool nat =
        peer ? !is_ours(&peer->seen, ours, n) : n == 0 || pool_reach_of(&ours[0]) != POOL_GLOBAL;
    bool known = peer && peer->dialled;
    pool_finding *f = pool_find(to, "reachable", POOL_GOOD);
    if (n)
        host_text(&ours[n - 1], mine); /* the most private one is what the router knows */
    if (known && peer->reachable) {
        pool_finding_say(f, "yes: the peer could connect to %s%s",
                         gsp_address_text(&peer->seen, seen), nat ? ", through a NAT" : "");
        return;
    }
    f->state = POOL_NOTE;
    if (known)
        pool_finding_say(f, "no: the peer sees this host at %s and could not connect there (%s)%s",
                         gsp_address_text(&peer->seen, seen), peer->why,
                         nat ? "; there is a NAT" : "");
    else if (nat)
        pool_finding_say(f, "unknown; there is probably a NAT, because no address of this host "
                            "is global");
    else
        pool_finding_say(
            f, "unknown, but likely unless a firewall prevents it, because an address of this "
               "host is global");
    if (!known)
        pool_finding_fix(f, "to find out, run atom pool selftest --serve on another host, then "
                            "here: atom pool selftest --via TICKET");
    fix_firewall(f, port);
    if (nat)
        pool_finding_fix(f, "in the router: forward TCP port %u to %s port %u", port, mine, port);
    pool_finding_fix(
        f, "this host can take part anyway, over connections that it opens itself, but it will "
           "not sum any part for the others");
}

void pool_check_addresses(pool_findings *to, uint16_t port, const gsp_probe_result *peer)
{
    static const char *const names[] = {"local", "private", "shared by the provider", "global"};
    gsp_address ours[16];
    char text[GSP_ADDRESS_TEXT_BYTES];
    uint32_t n = pool_addresses(ours, 16), global_v4 = 0, global_v6 = 0;
    pool_finding *f = pool_find(to, "addresses", n ? POOL_GOOD : POOL_NOTE);
    if (!n)
        pool_finding_say(f, "only loopback: this host can only talk to itself");
    for (uint32_t i = 0; i < n; i++) {
        pool_reach reach = pool_reach_of(&ours[i]);
        host_text(&ours[i], text);
        bool v6 = strchr(text, '[') != NULL;
        global_v4 += reach == POOL_GLOBAL && !v6;
        global_v6 += reach == POOL_GLOBAL && v6;
        size_t used = strlen(f->text);
        snprintf(f->text + used, sizeof f->text - used, "%s%s (%s)", i ? ", " : "", text,
                 names[reach]);
    }
    f = pool_find(to, "ipv6", global_v6 ? POOL_GOOD : POOL_NOTE);
    pool_finding_say(f,
                     global_v6 ? "yes; most NATs do not get in its way"
                               : "no global IPv6 address%s; with one, port forwarding is often "
                                 "not needed",
                     global_v4 ? ", but a global IPv4 address" : "");
    guess_nat(to, port, peer, ours, n);
}

/* The third number of a line like "4096 131072 6291456"; the only one where there is one. */
static uint64_t sysctl_max(const char *name)
{
    char path[128];
    uint64_t value[3] = {0};
    int n = 0;
    snprintf(path, sizeof path, "/proc/sys/net/%s", name);
    FILE *file = fopen(path, "r");
    while (file && n < 3 && fscanf(file, "%lu", &value[n]) == 1)
        n++;
    if (file)
        fclose(file);
    return n ? value[n - 1] : 0;
}

/*
 * The kernel's autotuning may grow a socket's buffers up to these. Half of a buffer is payload, so
 * one stream of bandwidth x round trip wants twice as much.
 */
void pool_check_buffers(pool_findings *to, double bytes_per_s, double rtt_s)
{
    enum { PLENTY = 32 << 20 };
    bool measured = bytes_per_s > 0 && rtt_s > 0;
    double need = measured ? 2 * bytes_per_s * rtt_s : 2 * 12.5e6 * 0.1; /* 100 Mbit/s, 100 ms */
    uint64_t in = sysctl_max("ipv4/tcp_rmem"), out = sysctl_max("ipv4/tcp_wmem");
    uint64_t least = in < out ? in : out;
    pool_finding *f = pool_find(to, "tcp buffers", POOL_GOOD);
    pool_finding_say(
        f,
        "up to %s in, %s out: one stream carries about %.0f Mbit/s if a round trip takes 100 "
        "ms%s",
        cli_size(in), cli_size(out), (double)least / 2 / 0.1 * 8e-6,
        measured ? "" : " (the connection to the peer was not measured)");
    if (least && (double)least < need) {
        f->state = POOL_NOTE;
        pool_finding_fix(f, "sudo sysctl -w net.ipv4.tcp_rmem=\"4096 131072 %d\"", PLENTY);
        pool_finding_fix(f, "sudo sysctl -w net.ipv4.tcp_wmem=\"4096 65536 %d\"", PLENTY);
        pool_finding_fix(f, "to make this permanent, write both lines without 'sudo sysctl -w' to "
                            "/etc/sysctl.d/60-atom.conf");
    }
    if (sysctl_max("ipv4/tcp_moderate_rcvbuf") == 0) {
        f = pool_find(to, "autotuning", POOL_NOTE);
        pool_finding_say(f, "off: buffers never grow");
        pool_finding_fix(f, "sudo sysctl -w net.ipv4.tcp_moderate_rcvbuf=1");
    }
    char control[32], known[256];
    atom_net_setting("ipv4/tcp_congestion_control", control, sizeof control);
    atom_net_setting("ipv4/tcp_available_congestion_control", known, sizeof known);
    f = pool_find(to, "congestion control", POOL_GOOD);
    pool_finding_say(f, "%s; lost packets %s", control[0] ? control : "unknown",
                     strcmp(control, "bbr") == 0 ? "do not slow it much"
                                                 : "slow it on long "
                                                   "distances");
    if (strcmp(control, "bbr") != 0 && measured && rtt_s > 0.03) {
        f->state = POOL_NOTE;
        if (!strstr(known, "bbr"))
            pool_finding_fix(f, "sudo modprobe tcp_bbr");
        pool_finding_fix(f, "sudo sysctl -w net.ipv4.tcp_congestion_control=bbr");
    }
    f = pool_find(to, "plain buffers", POOL_GOOD);
    uint64_t rmem = sysctl_max("core/rmem_max"), wmem = sysctl_max("core/wmem_max");
    pool_finding_say(f, "up to %s in, %s out; they matter only for --transport plain",
                     cli_size(rmem), cli_size(wmem));
    if (rmem < 4 << 20 || wmem < 4 << 20)
        pool_finding_fix(f, "for --transport plain: sudo sysctl -w net.core.rmem_max=4194304 "
                            "net.core.wmem_max=4194304");
}

void pool_check_clock(pool_findings *to, const gsp_probe_result *peer)
{
    struct timex t = {0};
    int state = adjtimex(&t);
    pool_finding *f = pool_find(to, "clock", POOL_GOOD);
    double off = peer ? peer->clock_off_s : 0;
    bool kept = state >= 0 && !(t.status & STA_UNSYNC);
    if (peer)
        pool_finding_say(f, "%+.3f s to the peer's; %s", off,
                         kept ? "kept right by a time service" : "no time service keeps it right");
    else
        pool_finding_say(f, "%s",
                         kept ? "kept right by a time service" : "no time service keeps it right");
    if (off > GSP_SKEW_SECONDS || off < -GSP_SKEW_SECONDS)
        f->state = POOL_BAD; /* admissions and handshakes forgive five minutes */
    else if (!kept)
        f->state = POOL_NOTE;
    if (f->state != POOL_GOOD)
        pool_finding_fix(f, "sudo timedatectl set-ntp true || sudo apt-get install -y chrony");
}

void pool_check_files(pool_findings *to)
{
    enum { ENOUGH = 4096 }; /* 32 peers, a few streams each, about ten descriptors a stream */
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    pool_finding *f = pool_find(to, "open files", POOL_GOOD);
    pool_finding_say(f, "at most %llu", (unsigned long long)limit.rlim_max);
    if (limit.rlim_max >= ENOUGH)
        return;
    f->state = POOL_NOTE;
    pool_finding_fix(f, "ulimit -Hn %d, or LimitNOFILE=%d in the service's unit", ENOUGH, ENOUGH);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds that a vote takes to be safe on the disk: the median of a few; below 0: it cannot. */
static double sync_seconds(const char *dir)
{
    enum { TRIES = 9 };
    double took[TRIES];
    static const char page[4096];
    char *path = atom_format("%s/.atom-selftest-XXXXXX", dir);
    int fd = path ? mkstemp(path) : -1;
    bool right = fd >= 0;
    if (right)
        unlink(path);
    for (int i = 0; i < TRIES && right; i++) {
        double start = atom_clock_seconds();
        right = pwrite(fd, page, sizeof page, 0) == (ssize_t)sizeof page && fdatasync(fd) == 0;
        took[i] = atom_clock_seconds() - start;
    }
    if (fd >= 0)
        close(fd);
    atom_free(path);
    if (!right)
        return -1;
    qsort(took, TRIES, sizeof *took, by_value);
    return took[TRIES / 2];
}

void pool_check_disk(pool_findings *to, const char *dir)
{
    static const uint64_t LITTLE = 1ull << 30, NOTHING = 64ull << 20;
    uint64_t left;
    pool_finding *f = pool_find(to, "disk", POOL_GOOD);
    double took = sync_seconds(dir);
    if (took < 0 || !atom_dir_free_bytes(dir, &left)) {
        f->state = POOL_BAD;
        to->short_of_disk = errno == ENOSPC || errno == EDQUOT;
        pool_finding_say(f, "%s cannot be written: %s", dir, strerror(errno));
        pool_finding_fix(f, "name another directory with --dir, or free some space");
        return;
    }
    pool_finding_say(f, "%s free in %s; writing a vote safely takes %s", cli_size(left), dir,
                     cli_seconds(took));
    if (left < NOTHING) {
        f->state = POOL_BAD;
        to->short_of_disk = true;
    } else if (left < LITTLE || took > 0.1) {
        f->state = POOL_NOTE;
    }
    if (f->state != POOL_GOOD)
        pool_finding_fix(f, left < LITTLE
                                ? "free some space: state and votes need a little, a model needs "
                                  "its size"
                                : "put the pool's directory on a faster disk (--dir)");
}
