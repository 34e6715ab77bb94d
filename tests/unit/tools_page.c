/*
 * The page of a pool over a real connection: what each address answers, and who is refused; and the
 * series that it is drawn from, which are thinned while their files grow.
 */
#include "tools/pool/cmd_pool_page.h"
#include "tools/pool/cmd_pool_series.h"

#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

const unsigned char pool_page[] = "<html>the page</html>"; /* the build makes the real one */
const size_t pool_page_bytes = sizeof pool_page - 1;

static void must(atom_status st)
{
    if (st != ATOM_OK)
        fail_msg("%s", atom_fail_message());
}

/* --- a browser ------------------------------------------------------------------------------------ */

/* All that comes back; good until the next request. host NULL: the page's own. */
static const char *ask(const pool_web *web, const char *method, const char *path, const char *host)
{
    static char all[300000];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char own[80], request[400];
    const char *url = pool_web_url(web);
    size_t used = 0;
    ssize_t n;
    assert_int_equal(strncmp(url, "http://127.0.0.1:", 17), 0);
    assert_int_equal(url[strlen(url) - 1], '/');
    snprintf(own, sizeof own, "%.*s", (int)strlen(url) - 8, url + 7);
    at.sin_port = htons((uint16_t)atoi(own + 10));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    snprintf(request, sizeof request, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
             method, path, host ? host : own);
    assert_int_equal(write(fd, request, strlen(request)), strlen(request));
    while (used < sizeof all - 1 && (n = read(fd, all + used, sizeof all - 1 - used)) > 0)
        used += (size_t)n;
    all[used] = 0;
    close(fd);
    return all;
}

static const char *get(const pool_web *web, const char *path)
{
    return ask(web, "GET", path, NULL);
}

/* An answer with this code, a header line that has `type`, and this text. */
static void is_answer(const char *all, int code, const char *type, const char *wanted)
{
    char first[32];
    const char *body = strstr(all, "\r\n\r\n");
    snprintf(first, sizeof first, "HTTP/1.1 %d ", code);
    if (strncmp(all, first, strlen(first)) != 0 || !body)
        fail_msg("not %s: %.300s", first, all);
    if (!strstr(all, type))
        fail_msg("not %s: %.300s", type, all);
    assert_string_equal(body + 4, wanted);
}

/* --- the page ------------------------------------------------------------------------------------- */

static char *answer_status(void *context, const char *request)
{
    (void)context;
    assert_string_equal(request, "{\"do\":\"status\"}");
    return atom_strdup("{\"applied\":7,\"certified_tokens\":1000,\"bytes_out\":5,\"members\":[{"
                       "\"key\":\"ab\",\"up\":"
                       "true,\"on_roster\":false,\"applied\":6,\"tokens\":40,\"brought\":3},{"
                       "\"key\":\"a\\\"b\"}]}");
}

/* A FIFO that nobody writes to has nothing to say, and the page does not wait for it. */
static void no_files(void **state)
{
    static const char *const paths[] = {"/events.jsonl", "/rounds.json", "/steps.json"};
    scratch place;
    pool_web *web = NULL;
    (void)state;
    scratch_open(&place);
    assert_int_equal(mkfifo(scratch_path(&place, "events.jsonl"), 0600), 0);
    assert_int_equal(mkfifo(scratch_path(&place, "metrics.jsonl"), 0600), 0);
    must(pool_web_open(place.dir, place.dir, "127.0.0.1:0", &web));
    alarm(60); /* or this would wait as well */
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        is_answer(get(web, paths[i]), 200, "application/json", i == 0 ? "" : "[]");
    alarm(0);
    pool_web_close(&web);
    scratch_close(&place);
}

static void pages(void **state)
{
    static const char events[] =
        "{\"event\":\"joined\",\"version\":1}\n"
        "{\"event\":\"certified\",\"version\":2,\"contributors\":3,\"roster\":4,\"tokens\":50,"
        "\"round_s\":0.5,\"time\":9}\n";
    static const char steps[] = "{\"tokens\":64,\"loss\":2.5,\"time\":3,\"grad_norm\":0.5}\n";
    scratch place;
    pool_web *web = NULL;
    gsp_control *control = NULL;
    (void)state;
    scratch_open(&place);
    must(pool_web_open(place.dir, place.dir, "127.0.0.1:0", &web));
    is_answer(get(web, "/"), 200, "Content-Type: text/html", "<html>the page</html>");
    is_answer(get(web, "/rounds.json"), 200, "Content-Type: application/json", "[]");
    is_answer(get(web, "/events.jsonl"), 200, "Content-Type: application/jsonl", "");
    is_answer(get(web, "/nothing"), 404, "text/plain", "no such page\n");
    is_answer(ask(web, "DELETE", "/", NULL), 405, "text/plain", "only GET\n");
    static const char *const names[] = {
        "example.org",     "example.org:80", "",           "[::1", "[::1]x", "10.0.0.1.nip.io",
        "localhost.org:1", "[example.org]",  "127.0.0.1x", "::1"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        is_answer(ask(web, "GET", "/", names[i]), 403, "text/plain",
                  "not this host; call it by its address, or localhost\n");
    /* Whoever listens on all addresses is called by any of them, and a tunnel has another port. */
    static const char *const hosts[] = {"192.0.2.7:9000", "[2001:db8::7]:9000", "[::1]",
                                        "localhost:1",    "LOCALHOST",          "127.0.0.1"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        is_answer(ask(web, "GET", "/", hosts[i]), 200, "text/html", "<html>the page</html>");
    assert_int_equal(strncmp(get(web, "/status.json"), "HTTP/1.1 503 ", 13), 0);
    assert_non_null(strstr(get(web, "/metrics"), "\natom_pool_up 0\n"));
    assert_null(strstr(get(web, "/metrics"), "atom_pool_peer_up"));
    char local[80];
    snprintf(local, sizeof local, "localhost%s", strrchr(pool_web_url(web), ':'));
    local[strlen(local) - 1] = 0; /* the / at the end */
    const char *page = ask(web, "GET", "/", local);
    is_answer(page, 200, "X-Content-Type-Options: nosniff", "<html>the page</html>");
    assert_non_null(strstr(page, "Cache-Control: no-store"));
    assert_non_null(strstr(page, "frame-ancestors 'none'"));

    scratch_write(&place, "events.jsonl", events, sizeof events - 1);
    scratch_write(&place, "metrics.jsonl", steps, sizeof steps - 1);
    must(gsp_control_open(place.dir, answer_status, NULL, &control));
    is_answer(get(web, "/events.jsonl"), 200, "application/jsonl", events);
    is_answer(
        get(web, "/rounds.json"), 200, "application/json",
        "[{\"version\":2.0,\"contributors\":3.0,\"roster\":4.0,\"tokens\":50.0,\"round_s\":0.5,"
        "\"wall_s\":9.0}]");
    is_answer(get(web, "/steps.json"), 200, "application/json",
              "[{\"tokens\":64.0,\"loss\":2.5,\"wall_s\":3.0,\"grad_norm\":0.5}]");
    assert_non_null(strstr(get(web, "/status.json"), "\r\n\r\n{\"applied\":7,"));
    const char *said = get(web, "/metrics");
    static const char *const lines[] = {"# TYPE atom_pool_version counter\natom_pool_version 7\n",
                                        "\natom_pool_up 1\n",
                                        "\natom_pool_tokens_certified_total 1000\n",
                                        "\natom_pool_sent_bytes_total 5\n",
                                        "\natom_pool_peer_up{key=\"ab\"} 1\n",
                                        "\natom_pool_peer_on_roster{key=\"ab\"} 0\n",
                                        "\natom_pool_peer_version{key=\"ab\"} 6\n",
                                        "\natom_pool_peer_tokens_total{key=\"ab\"} 40\n",
                                        "\natom_pool_peer_samples_certified_total{key=\"ab\"} 3\n"};
    assert_int_equal(strncmp(said, "HTTP/1.1 200 ", 13), 0);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(said, lines[i]))
            fail_msg("no %s in %s", lines[i], said);
    assert_null(strstr(said, "a\"b")); /* no key of a member */
    assert_null(strstr(said, "received_bytes"));
    gsp_control_close(&control);
    pool_web_close(&web);
    assert_null(web);
    assert_int_equal(pool_web_open(place.dir, place.dir, "192.0.2.1:80", &web), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "name another address with --listen"));
    scratch_close(&place);
}

/* Of many events the last, from the beginning of a line. */
static void many_events(void **state)
{
    enum { LINES = 3000 };
    scratch place;
    pool_web *web = NULL;
    char line[64];
    (void)state;
    scratch_open(&place);
    FILE *f = fopen(scratch_path(&place, "events.jsonl"), "w");
    assert_non_null(f);
    for (int i = 0; i < LINES; i++)
        fprintf(f, "{\"event\":\"a certain event\",\"number\":%d}\n", i);
    fclose(f);
    must(pool_web_open(place.dir, place.dir, "127.0.0.1:0", &web));
    const char *body = strstr(get(web, "/events.jsonl"), "\r\n\r\n");
    assert_non_null(body);
    body += 4;
    size_t n = strlen(body);
    assert_true(n <= 64 * 1024 && n > 64 * 1024 - 64);
    assert_int_equal(body[0], '{');
    snprintf(line, sizeof line, "\"number\":%d}\n", LINES - 1);
    assert_string_equal(body + n - strlen(line), line);
    pool_web_close(&web);
    scratch_close(&place);
}

/* --- series --------------------------------------------------------------------------------------- */

static void put(const char *path, const char *how, int from, int to)
{
    FILE *f = fopen(path, how);
    assert_non_null(f);
    for (int i = from; i < to; i++)
        fprintf(f, "{\"event\":\"%s\",\"x\":%d,\"y\":%d}\n", i % 10 == 9 ? "other" : "this", i, -i);
    fclose(f);
}

/* Points as far apart as is said, up to the last. */
static void is_even(const pool_series *s, uint32_t n, double apart)
{
    assert_int_equal(s->n, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(s->point[i][0] == (double)i * apart);
        assert_true(s->point[i][1] == (double)i * -apart);
    }
}

static void a_run_is_thinned(void **state)
{
    scratch place;
    static pool_series s;
    (void)state;
    const char *path = scratch_path(scratch_open(&place), "metrics.jsonl");
    s = (pool_series){.path = path, .key = {"x", "y"}, .name = {NULL, "why"}};
    pool_series_read(&s); /* there is none */
    assert_int_equal(s.n, 0);
    put(path, "w", 0, POOL_SERIES_MAX);
    pool_series_read(&s);
    is_even(&s, POOL_SERIES_MAX, 1);
    pool_series_read(&s); /* nothing new */
    is_even(&s, POOL_SERIES_MAX, 1);
    put(path, "a", POOL_SERIES_MAX, POOL_SERIES_MAX + 1);
    pool_series_read(&s);
    is_even(&s, POOL_SERIES_MAX / 2 + 1, 2);
    put(path, "a", POOL_SERIES_MAX + 1, 3 * POOL_SERIES_MAX);
    pool_series_read(&s);
    is_even(&s, POOL_SERIES_MAX / 4 * 3, 4);
    put(path, "w", 0, 10); /* it began anew */
    pool_series_read(&s);
    is_even(&s, 10, 1);
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    fputs("{\"x\":1,\"z\":2}\nno JSON\n{\"x\":\"1\",\"y\":2}\n{\"x\":10,\"y\":", f);
    fflush(f);
    pool_series_read(&s); /* the last line is still being written */
    is_even(&s, 10, 1);
    fputs("-10}\n", f);
    fclose(f);
    pool_series_read(&s);
    is_even(&s, 11, 1);
    json_t *list = pool_series_json(&s);
    assert_int_equal(json_array_size(list), 11);
    assert_true(json_real_value(json_object_get(json_array_get(list, 10), "x")) == 10);
    assert_true(json_real_value(json_object_get(json_array_get(list, 10), "why")) == -10);
    assert_null(json_object_get(json_array_get(list, 10), "y"));
    json_decref(list);
    scratch_close(&place);
}

/* A diary goes on in a new file: what was in the old one stays. Other events are no points. */
static void a_diary_goes_on(void **state)
{
    scratch place;
    static pool_series s;
    (void)state;
    const char *path = scratch_path(scratch_open(&place), "events.jsonl");
    s = (pool_series){.path = path, .event = "this", .key = {"x", "y"}};
    put(path, "w", 0, 20);
    pool_series_read(&s);
    assert_int_equal(s.n, 18);
    put(path, "w", 20, 25);
    pool_series_read(&s);
    assert_int_equal(s.n, 23);
    assert_true(s.point[8][0] == 8 && s.point[9][0] == 10);
    assert_true(s.point[17][0] == 18 && s.point[18][0] == 20 && s.point[22][0] == 24);
    scratch_close(&place);
}

/* Lines that are no points do not count when points are thinned: nine of ten are points here. */
static void a_diary_is_thinned_by_its_points(void **state)
{
    scratch place;
    static pool_series s;
    (void)state;
    const char *path = scratch_path(scratch_open(&place), "events.jsonl");
    s = (pool_series){.path = path, .event = "this", .key = {"x"}};
    put(path, "w", 0, 10000);
    pool_series_read(&s);
    assert_int_equal(s.n, 9000 / 4);
    for (uint32_t i = 0; i < s.n; i++)
        assert_true(s.point[i][0] == 4 * i / 9 * 10 + 4 * i % 9);
    scratch_close(&place);
}

/* A line that is too long for us is passed over whole, and what follows it is read. */
static void a_long_line(void **state)
{
    enum { LONG = 40000 };
    scratch place;
    static pool_series s;
    static char fill[LONG + 1];
    (void)state;
    const char *path = scratch_path(scratch_open(&place), "metrics.jsonl");
    memset(fill, 'x', LONG);
    s = (pool_series){.path = path, .key = {"x", "y"}};
    put(path, "w", 0, 3);
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    fprintf(f, "{\"x\":1,\"y\":1,\"z\":\"%s\"}\n", fill);
    fclose(f);
    put(path, "a", 3, 5);
    pool_series_read(&s);
    is_even(&s, 5, 1);
    scratch_close(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages),
        cmocka_unit_test(no_files),
        cmocka_unit_test(many_events),
        cmocka_unit_test(a_run_is_thinned),
        cmocka_unit_test(a_diary_goes_on),
        cmocka_unit_test(a_long_line),
        cmocka_unit_test(a_diary_is_thinned_by_its_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
