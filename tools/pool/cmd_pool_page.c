/*
 * Owns the page that shows a pool. One idea: it is one more program that asks the control socket,
 * like `atom pool status`; the trainer does not know of it. Refuses everything but GET, and
 * a Host that is a name.
 */
#include "tools/pool/cmd_pool_page.h"
#include "tools/pool/cmd_pool_series.h"

#include "atom/atom.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

extern const unsigned char pool_page[]; /* cmd_pool_page.html, by the build */
extern const size_t pool_page_bytes;

enum { EVENTS_BYTES = 64 * 1024, TEXT_BYTES = 128 * 1024 };

struct pool_web {
    struct MHD_Daemon *daemon;
    char *directory, *events, *steps_path;
    char url[96], host[80];
    pool_series rounds, steps;
};

/* ---- answers ---- */

typedef struct reply {
    unsigned code;
    const char *type;
    char *text; /* ours; or NULL and */
    const char *fixed;
    size_t bytes;
} reply;

static reply of_text(unsigned code, const char *type, char *text)
{
    if (!text)
        return (reply){.code = 503, .type = "text/plain", .fixed = "no memory\n", .bytes = 10};
    return (reply){.code = code, .type = type, .text = text, .bytes = strlen(text)};
}

static char *copy(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *out = atom_alloc(bytes, 1);
    if (out)
        memcpy(out, text, bytes);
    return out;
}

static reply of_json(json_t *value)
{
    char *dumped = value ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    reply r = of_text(200, "application/json", dumped ? copy(dumped) : NULL);
    free(dumped);
    return r;
}

static atom_status ask_status(const pool_web *w, char **text)
{
    return gsp_control_ask(w->directory, "{\"do\":\"status\"}", 5, text);
}

static reply status_of(const pool_web *w)
{
    char *text = NULL;
    if (ask_status(w, &text) != ATOM_OK)
        return of_text(503, "text/plain; charset=utf-8", copy(atom_fail_message()));
    return of_text(200, "application/json", text);
}

static reply events_of(const pool_web *w)
{
    uint64_t size = 0;
    int fd = pool_series_open(w->events, &size);
    char *text = atom_alloc(EVENTS_BYTES + 1, 1);
    size_t used = 0;
    if (fd >= 0 && text) {
        off_t from = size > EVENTS_BYTES ? (off_t)(size - EVENTS_BYTES) : 0;
        ssize_t n;
        while (used < EVENTS_BYTES &&
               (n = pread(fd, text + used, EVENTS_BYTES - used, from + (off_t)used)) > 0)
            used += (size_t)n;
        const char *first = from ? memchr(text, '\n', used) : NULL;
        size_t cut = first ? (size_t)(first + 1 - text) : 0;
        memmove(text, text + cut, used - cut);
        used -= cut;
    }
    if (fd >= 0)
        close(fd);
    if (text)
        text[used] = 0;
    return of_text(200, "application/jsonl", text);
}

/* ---- Prometheus ---- */

typedef struct text {
    char *at;
    size_t used;
} text;

static void say(text *t, const char *fmt, ...) ATOM_PRINTF(2, 3);
static void say(text *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    size_t room = TEXT_BYTES - t->used;
    int n = vsnprintf(t->at + t->used, room, fmt, args);
    va_end(args);
    if (n > 0 && (size_t)n < room)
        t->used += (size_t)n;
    t->at[t->used] = 0;
}

static void gauge(text *t, const json_t *status, const char *key, const char *kind,
                  const char *name, const char *help)
{
    const json_t *value = json_object_get(status, key);
    if (json_is_number(value))
        say(t, "# HELP atom_pool_%s %s\n# TYPE atom_pool_%s %s\natom_pool_%s %.17g\n", name, help,
            name, kind, name, json_number_value(value));
}

static void per_peer(text *t, const json_t *peers, const char *key, const char *kind,
                     const char *name, const char *help)
{
    const json_t *peer;
    size_t i;
    say(t, "# HELP atom_pool_peer_%s %s\n# TYPE atom_pool_peer_%s %s\n", name, help, name, kind);
    json_array_foreach(peers, i, peer)
    {
        const json_t *value = json_object_get(peer, key);
        const char *id = json_string_value(json_object_get(peer, "key"));
        if (id && strlen(id) < 100 && !strpbrk(id, "\"\\\n"))
            say(t, "atom_pool_peer_%s{key=\"%s\"} %.17g\n", name, id,
                json_is_boolean(value) ? json_is_true(value) : json_number_value(value));
    }
}

static reply metrics_of(const pool_web *w)
{
    char *line = NULL;
    text t = {.at = atom_alloc(TEXT_BYTES, 1)};
    if (!t.at)
        return of_text(503, "", NULL);
    json_t *s = ask_status(w, &line) == ATOM_OK ? json_loads(line, 0, NULL) : NULL;
    const json_t *peers = json_object_get(s, "members");
    atom_free(line);
    say(&t,
        "# HELP atom_pool_up Whether the host answers.\n# TYPE atom_pool_up gauge\n"
        "atom_pool_up %d\n",
        s != NULL);
    gauge(&t, s, "applied", "counter", "version", "Newest version applied on this host.");
    gauge(&t, s, "certified_tokens", "counter", "tokens_certified_total",
          "Tokens that the pool has certified.");
    gauge(&t, s, "certified_samples", "counter", "samples_certified_total", "Samples certified.");
    gauge(&t, s, "tokens", "counter", "tokens_trained_total", "Tokens trained on this host.");
    gauge(&t, s, "bytes_out", "counter", "sent_bytes_total", "Bytes sent on the wire.");
    gauge(&t, s, "bytes_in", "counter", "received_bytes_total", "Bytes received.");
    gauge(&t, s, "faults", "counter", "refused_total",
          "Messages and connections of strangers "
          "that were refused.");
    gauge(&t, s, "unanswered", "counter", "unanswered_total",
          "Questions left unanswered because members ask too often.");
    if (peers) {
        per_peer(&t, peers, "up", "gauge", "up", "Whether there is a link to it.");
        per_peer(&t, peers, "on_roster", "gauge", "on_roster", "Whether it is a member.");
        per_peer(&t, peers, "applied", "counter", "version", "Newest version it has applied.");
        per_peer(&t, peers, "tokens", "counter", "tokens_total", "Tokens it has trained.");
        per_peer(&t, peers, "brought", "counter", "samples_certified_total",
                 "Samples it has contributed, as counted in certificates.");
    }
    json_decref(s);
    return of_text(200, "text/plain; version=0.0.4; charset=utf-8", t.at);
}

/* ---- serving ---- */

static reply look_up(pool_web *w, const char *path)
{
    if (strcmp(path, "/") == 0)
        return (reply){.code = 200,
                       .type = "text/html; charset=utf-8",
                       .fixed = (const char *)pool_page,
                       .bytes = pool_page_bytes};
    if (strcmp(path, "/status.json") == 0)
        return status_of(w);
    if (strcmp(path, "/rounds.json") == 0) {
        pool_series_read(&w->rounds);
        return of_json(pool_series_json(&w->rounds));
    }
    if (strcmp(path, "/steps.json") == 0) {
        pool_series_read(&w->steps);
        return of_json(pool_series_json(&w->steps));
    }
    if (strcmp(path, "/events.jsonl") == 0)
        return events_of(w);
    if (strcmp(path, "/metrics") == 0)
        return metrics_of(w);
    return (reply){.code = 404, .type = "text/plain", .fixed = "no such page\n", .bytes = 13};
}

/* A name that somebody else's page was given for our address is not ours. An address is nobody's name, and
 * whoever looks from elsewhere, or through a tunnel, names another one or another port than we do. */
static bool own_host(const char *host)
{
    static const char local[] = "localhost";
    char name[INET6_ADDRSTRLEN + 2];
    struct in6_addr at;
    const char *rest = host ? strchr(*host == '[' ? host : "", ']') : NULL;
    size_t n = !host ? 0 : rest ? (size_t)(rest + 1 - host) : strcspn(host, ":");
    if (n == 0 || n >= sizeof name || (host[n] && host[n] != ':'))
        return false;
    snprintf(name, sizeof name, "%.*s", (int)(rest ? n - 2 : n), host + (rest != NULL));
    return rest ? inet_pton(AF_INET6, name, &at) == 1
                : inet_pton(AF_INET, name, &at) == 1 || strcasecmp(name, local) == 0;
}

static enum MHD_Result serve(void *context, struct MHD_Connection *to, const char *path,
                             const char *method, const char *version, const char *data,
                             size_t *bytes, void **seen)
{
    pool_web *w = context;
    static const char elsewhere[] = "not this host; call it by its address, or localhost\n";
    static int once;
    (void)version;
    (void)data;
    if (!*seen) { /* the head is here, the body is not */
        *seen = &once;
        return MHD_YES;
    }
    *bytes = 0;
    reply r;
    if (strcmp(method, "GET") != 0)
        r = (reply){.code = 405, .type = "text/plain", .fixed = "only GET\n", .bytes = 9};
    else if (!own_host(MHD_lookup_connection_value(to, MHD_HEADER_KIND, "Host")))
        r = (reply){
            .code = 403, .type = "text/plain", .fixed = elsewhere, .bytes = sizeof elsewhere - 1};
    else
        r = look_up(w, path);
    struct MHD_Response *response = MHD_create_response_from_buffer(
        r.bytes, (void *)(r.text ? r.text : (char *)(uintptr_t)r.fixed), MHD_RESPMEM_MUST_COPY);
    atom_free(r.text);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", r.type);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "Content-Security-Policy",
                            "default-src 'self'; script-src 'unsafe-inline'; style-src "
                            "'unsafe-inline'; frame-ancestors 'none'");
    enum MHD_Result done = MHD_queue_response(to, r.code, response);
    MHD_destroy_response(response);
    return done;
}

/* A socket of our own: microhttpd would not say why it cannot listen. */
static atom_status listen_at(const char *where, int *out)
{
    gsp_address address;
    struct sockaddr_storage at;
    socklen_t bytes = 0;
    int one = 1;
    ATOM_TRY(gsp_address_parse(where, &address));
    bytes = gsp_address_to_socket(&address, &at);
    int fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return atom_fail_errno(errno, "%s", where);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&at, bytes) != 0 || listen(fd, 16) != 0) {
        int why = errno;
        close(fd);
        return atom_fail(ATOM_E_USAGE, "%s: %s; name another address with --listen", where,
                         strerror(why));
    }
    *out = fd;
    return ATOM_OK;
}

static void name_it(pool_web *w, int fd)
{
    struct sockaddr_storage at = {0};
    socklen_t bytes = sizeof at;
    gsp_address address;
    if (getsockname(fd, (struct sockaddr *)&at, &bytes) == 0 &&
        gsp_address_from_socket(&at, &address))
        gsp_address_text(&address, w->host);
    snprintf(w->url, sizeof w->url, "http://%s/", w->host);
}

atom_status pool_web_open(const char *directory, const char *run, const char *listen,
                          pool_web **out)
{
    atom_status st = ATOM_OK;
    int fd = -1;
    pool_web *w = atom_alloc(1, sizeof *w);
    if (!w)
        return atom_fail_memory("a page", sizeof *w);
    w->directory = copy(directory);
    w->events = atom_path_join(directory, "events.jsonl");
    w->steps_path = atom_path_join(run, "metrics.jsonl");
    if (!w->directory || !w->events || !w->steps_path)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 4096));
    w->rounds =
        (pool_series){.path = w->events,
                      .event = "certified",
                      .key = {"version", "contributors", "roster", "tokens", "round_s", "time"},
                      .name = {NULL, NULL, NULL, NULL, NULL, "wall_s"}};
    w->steps = (pool_series){.path = w->steps_path,
                             .key = {"tokens", "loss", "time", "grad_norm"},
                             .name = {NULL, NULL, "wall_s"}};
    ATOM_TRY_CLEAN(listen_at(listen, &fd));
    name_it(w, fd);
    w->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, serve, w,
                                 MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, 16u,
                                 MHD_OPTION_CONNECTION_TIMEOUT, 10u,
                                 MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)32768, MHD_OPTION_END);
    if (!w->daemon) {
        close(fd);
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_RESOURCE, "cannot start a web server at %s", listen));
    }
    *out = w;
    return ATOM_OK;
cleanup:
    pool_web_close(&w);
    return st;
}

void pool_web_close(pool_web **web)
{
    pool_web *w = *web;
    if (!w)
        return;
    if (w->daemon)
        MHD_stop_daemon(w->daemon);
    atom_free(w->directory);
    atom_free(w->events);
    atom_free(w->steps_path);
    atom_free(w);
    *web = NULL;
}

const char *pool_web_url(const pool_web *web)
{
    return web->url;
}
