/*
 * Mappings from routers that are made here: a NAT-PMP gateway and a UPnP device on loopback, with
 * their leases, their moods and the end of the mapping; and a network without either.
 */
#include "gossip/net/portmap.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { PORT = 4400, GIVEN = 51234, NATPMP_PORT = 5351 };

typedef struct router {
    int fd;
    uint16_t port;
    pthread_t thread;
    const char *_Atomic ip;    /* changed while it serves */
    uint16_t conflict;         /* UPnP: this port outside is taken; 0: none */
    bool permanent;            /* UPnP: always */
    atomic_int mapped, ended;  /* requests of each kind */
    atomic_int outer, lease_s; /* of the last mapping */
    atomic_bool stop;
} router;

static void put16(uint8_t *at, uint32_t x)
{
    at[0] = (uint8_t)(x >> 8);
    at[1] = (uint8_t)x;
}

static void *natpmp(void *arg)
{
    router *r = arg;
    uint8_t in[64];
    struct sockaddr_in from;
    socklen_t bytes = sizeof from;
    ssize_t n;
    while ((n = recvfrom(r->fd, in, sizeof in, 0, (struct sockaddr *)&from, &bytes)) > 0 &&
           !r->stop) {
        uint8_t out[16] = {0, (uint8_t)(128 + in[1])};
        size_t size = in[1] == 0 ? 12 : 16;
        if (in[1] == 0) {
            struct in_addr ip;
            inet_pton(AF_INET, r->ip, &ip);
            memcpy(out + 8, &ip, 4);
        } else if (in[1] == 2 && n == 12) {
            bool end = memcmp(in + 8, "\0\0\0\0", 4) == 0;
            memcpy(out + 8, in + 4, 2);
            put16(out + 10, end ? 0 : GIVEN);
            memcpy(out + 12, in + 8, 4);
            r->lease_s = in[8] << 24 | in[9] << 16 | in[10] << 8 | in[11];
            (void)(end ? r->ended++ : r->mapped++);
        }
        sendto(r->fd, out, size, 0, (struct sockaddr *)&from, bytes);
    }
    return NULL;
}

/* ---- a UPnP device: just enough HTTP ---- */

static const char description[] =
    "<?xml version=\"1.0\"?><root xmlns=\"urn:schemas-upnp-org:device-1-0\"><device><deviceType>"
    "urn:schemas-upnp-org:device:InternetGatewayDevice:1</deviceType><deviceList><device>"
    "<deviceType>urn:schemas-upnp-org:device:WANDevice:1</deviceType><deviceList><device>"
    "<deviceType>urn:schemas-upnp-org:device:WANConnectionDevice:1</deviceType><serviceList>"
    "<service><serviceType>urn:schemas-upnp-org:service:WANIPConnection:1</serviceType>"
    "<serviceId>urn:upnp-org:serviceId:WANIPConn1</serviceId><controlURL>/control</controlURL>"
    "<eventSubURL>/event</eventSubURL><SCPDURL>/scpd</SCPDURL></service></serviceList></device>"
    "</deviceList></device></deviceList></device></root>";

static void reply(int fd, int code, const char *body)
{
    char head[200];
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 %d OK\r\nContent-Type: text/xml\r\nContent-Length: %zu\r\n"
                     "Connection: close\r\n\r\n",
                     code, strlen(body));
    if (write(fd, head, (size_t)n) < 0 || write(fd, body, strlen(body)) < 0)
        return;
}

static int number_in(const char *text, const char *tag)
{
    const char *at = strstr(text, tag);
    return at ? atoi(at + strlen(tag)) : -1;
}

static void soap(router *r, int fd, const char *request)
{
    char body[400];
    int error = 0;
    if (strstr(request, "#AddPortMapping")) {
        int lease = number_in(request, "<NewLeaseDuration>");
        int outer = number_in(request, "<NewExternalPort>");
        error = r->conflict && outer == r->conflict ? 718 : r->permanent && lease != 0 ? 725 : 0;
        if (!error) {
            r->outer = outer;
            r->lease_s = lease;
            r->mapped++;
        }
    } else if (strstr(request, "#DeletePortMapping")) {
        r->ended++;
    }
    if (error)
        snprintf(body, sizeof body,
                 "<s:Envelope><s:Body><s:Fault><detail><UPnPError><errorCode>%d</errorCode>"
                 "</UPnPError></detail></s:Fault></s:Body></s:Envelope>",
                 error);
    else
        snprintf(body, sizeof body,
                 "<s:Envelope><s:Body><u:R><NewExternalIPAddress>%s</NewExternalIPAddress></u:R>"
                 "</s:Body></s:Envelope>",
                 r->ip);
    reply(fd, error ? 500 : 200, body);
}

static void *upnp(void *arg)
{
    router *r = arg;
    int fd;
    while ((fd = accept(r->fd, NULL, NULL)) >= 0 && !r->stop) {
        char in[8192] = "";
        size_t used = 0;
        ssize_t n;
        const char *body = NULL;
        while (used < sizeof in - 1 && (n = read(fd, in + used, sizeof in - 1 - used)) > 0) {
            used += (size_t)n;
            in[used] = 0;
            body = strstr(in, "\r\n\r\n");
            int wanted = number_in(in, "Content-Length: ");
            if (body && (wanted < 0 || used >= (size_t)(body + 4 - in) + (size_t)wanted))
                break;
        }
        if (strncmp(in, "GET", 3) == 0)
            reply(fd, 200, description);
        else
            soap(r, fd, in);
        close(fd);
    }
    return NULL;
}

/* False: the port is somebody else's. */
static bool start(router *r, int type, uint16_t port, void *(*run)(void *))
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    socklen_t bytes = sizeof at;
    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    r->fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    if (bind(r->fd, (struct sockaddr *)&at, sizeof at) != 0 ||
        (type == SOCK_STREAM && listen(r->fd, 8) != 0) ||
        getsockname(r->fd, (struct sockaddr *)&at, &bytes) != 0)
        return false;
    r->port = ntohs(at.sin_port);
    return pthread_create(&r->thread, NULL, run, r) == 0;
}

static void end(router *r, int type)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(r->port)};
    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    r->stop = true;
    if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0 && type == SOCK_DGRAM)
        (void)!write(fd, "x", 1);
    pthread_join(r->thread, NULL);
    close(fd);
    close(r->fd);
}

static gsp_portmap_status ask(const gsp_portmap_config *c, gsp_portmap **map)
{
    gsp_portmap_status s;
    assert_int_equal(gsp_portmap_open(c, map), ATOM_OK);
    gsp_portmap_wait(*map, 30);
    gsp_portmap_read(*map, &s);
    assert_true(s.asked);
    return s;
}

static void a_natpmp_gateway(void **state)
{
    (void)state;
    router r = {.ip = "203.0.113.7"};
    gsp_portmap *map = NULL;
    char text[GSP_ADDRESS_TEXT_BYTES];
    if (!start(&r, SOCK_DGRAM, NATPMP_PORT, natpmp))
        skip();
    gsp_portmap_config c = {.port = PORT, .lifetime_s = 2, .gateway = "127.0.0.1"};
    gsp_portmap_status s = ask(&c, &map);
    assert_int_equal(s.way, GSP_PORTMAP_NATPMP);
    assert_string_equal(gsp_address_text(&s.outside, text), "203.0.113.7:51234");
    assert_non_null(strstr(s.why, "203.0.113.7:51234"));
    for (int k = 0; k < 500 && r.mapped < 3; k++)
        usleep(20000); /* renewed at half of its time */
    assert_true(r.mapped >= 3);
    gsp_portmap_read(map, &s);
    assert_int_equal(s.changes, 1);
    gsp_portmap_close(&map);
    assert_int_equal(r.ended, 1);
    r.ip = "100.64.3.4"; /* the provider's own translation */
    s = ask(&c, &map);
    assert_int_equal(s.way, GSP_PORTMAP_NATPMP);
    assert_int_equal(s.outside.port, 0);
    assert_non_null(strstr(s.why, "100.64.3.4"));
    gsp_portmap_close(&map);
    end(&r, SOCK_DGRAM);
}

static void a_upnp_device(void **state)
{
    (void)state;
    char url[64], text[GSP_ADDRESS_TEXT_BYTES];
    for (int mood = 0; mood < 4; mood++) {
        const uint16_t wanted = mood == 3 ? UINT16_MAX : PORT;
        router r = {.ip = "198.51.100.9", .permanent = mood == 2};
        r.conflict = mood == 1 || mood == 3 ? wanted : 0;
        gsp_portmap *map = NULL;
        assert_true(start(&r, SOCK_STREAM, 0, upnp));
        snprintf(url, sizeof url, "http://127.0.0.1:%u/root.xml", r.port);
        gsp_portmap_config c = {.port = wanted, .description_url = url};
        gsp_portmap_status s = ask(&c, &map);
        if (mood == 3) { /* the last port is taken, and there is none behind it */
            assert_int_equal(s.way, GSP_PORTMAP_NONE);
            assert_int_equal(r.mapped, 0);
            gsp_portmap_close(&map);
            end(&r, SOCK_STREAM);
            continue;
        }
        assert_int_equal(s.way, GSP_PORTMAP_UPNP);
        gsp_address_text(&s.outside, text);
        assert_string_equal(text, mood == 1 ? "198.51.100.9:4401" : "198.51.100.9:4400");
        assert_int_equal(r.lease_s, mood == 2 ? 0 : 3600);
        gsp_portmap_close(&map);
        assert_int_equal(r.ended, 1);
        end(&r, SOCK_STREAM);
    }
}

static void no_router(void **state)
{
    (void)state;
    gsp_portmap *map = NULL;
    gsp_portmap_config c = {.port = PORT, .description_url = "http://127.0.0.1:1/none"};
    gsp_portmap_status s = ask(&c, &map);
    assert_int_equal(s.way, GSP_PORTMAP_NONE);
    assert_int_equal(s.changes, 0);
    assert_non_null(strstr(s.why, "forward it by hand"));
    gsp_portmap_close(&map);
    gsp_portmap_close(&map);
}

int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
/* The calendar is an hour ahead: whoever waits by it waits for an hour, as where it is set back meanwhile. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    int failed = __real_clock_gettime(clock, out);
    out->tv_sec += clock == CLOCK_REALTIME ? 3600 : 0;
    return failed;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_natpmp_gateway),
        cmocka_unit_test(a_upnp_device),
        cmocka_unit_test(no_router),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
