/*
 * Owns the thinning of a growing file into a series. One idea: what was read is never read again,
 * so a page that is open for weeks costs nothing. Refuses lines beyond LINE_MAX.
 */
#include "tools/pool/cmd_pool_series.h"

#include "atom/atom.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_BYTES = 16 * 1024, READ_BYTES = 8 << 20 };

static void thin(pool_series *s)
{
    for (uint32_t i = 0; 2 * i < s->n; i++)
        memcpy(s->point[i], s->point[2 * i], sizeof s->point[i]);
    s->n = (s->n + 1) / 2;
    s->stride *= 2;
}

static void take(pool_series *s, const char *line, size_t bytes)
{
    double value[POOL_SERIES_KEYS] = {0};
    json_t *root = json_loadb(line, bytes, JSON_DECODE_INT_AS_REAL, NULL);
    const char *event = json_string_value(json_object_get(root, "event"));
    bool good = root && (!s->event || (event && strcmp(event, s->event) == 0));
    for (uint32_t k = 0; good && k < POOL_SERIES_KEYS && s->key[k]; k++) {
        const json_t *number = json_object_get(root, s->key[k]);
        good = json_is_number(number);
        value[k] = json_number_value(number);
    }
    json_decref(root);
    if (!good || s->lines++ % s->stride != 0)
        return;
    if (s->n == POOL_SERIES_MAX)
        thin(s);
    memcpy(s->point[s->n++], value, sizeof value);
}

int pool_series_open(const char *path, uint64_t *bytes)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -1;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode)) {
        *bytes = (uint64_t)about.st_size;
        return fd;
    }
    close(fd);
    return -1;
}

void pool_series_read(pool_series *s)
{
    uint64_t size = 0;
    int fd = pool_series_open(s->path, &size);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    char *line = atom_alloc(LINE_BYTES, 1);
    bool begun = s->stride != 0;
    if (fd >= 0 && !file)
        close(fd);
    if (!file || !line)
        goto end;
    bool shrank = size < s->offset;
    if (!begun || (shrank && !s->event)) {
        s->n = 0;
        s->lines = 0;
        s->stride = 1;
    }
    if (shrank)
        s->offset = 0; /* events go on in a new file; a run began anew */
    if (fseeko(file, (off_t)s->offset, SEEK_SET) != 0)
        goto end;
    for (uint64_t end = s->offset + READ_BYTES; s->offset < end;) {
        if (!fgets(line, LINE_BYTES, file))
            break;
        size_t bytes = strlen(line);
        if (bytes == 0 || (line[bytes - 1] != '\n' && bytes + 1 < LINE_BYTES))
            break; /* still being written */
        s->offset += bytes;
        if (line[bytes - 1] == '\n')
            take(s, line, bytes);
    }
end:
    atom_free(line);
    if (file)
        fclose(file);
}

json_t *pool_series_json(const pool_series *s)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < s->n; i++) {
        json_t *point = json_object();
        for (uint32_t k = 0; k < POOL_SERIES_KEYS && s->key[k]; k++)
            json_object_set_new(point, s->name[k] ? s->name[k] : s->key[k],
                                json_real(s->point[i][k]));
        json_array_append_new(list, point);
    }
    return list;
}
