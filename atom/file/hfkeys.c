/*
 * Owns how single keys of a config.json are taken: numbers with defaults, switches that must be what
 * the family has, a name. One idea: a key that is absent means the family's default, one that is
 * there must be understood. Refuses to know which keys there are.
 */
#include "atom/file/hfconfig.h"

#include "atom/base/nearest.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

atom_status file_not_supported(const char *path, const char *key, const char *why)
{
    return atom_fail(ATOM_E_UNSUPPORTED, "%s: %s: %s", path, key, why);
}

/* An integer under its GPT-2 name or the general one; `fallback` if neither is there. */
atom_status file_take_int(const char *path, const json_t *root, const char *key,
                          const char *general, int64_t fallback, int64_t *out)
{
    const json_t *own = atom_json_present(root, key),
                 *other = general ? atom_json_present(root, general) : NULL;
    if (own && other && !json_equal(own, other))
        return atom_fail(ATOM_E_FORMAT,
                         "%s: %s and %s are names of one number, but differ; leave out one of them",
                         path, key, general);
    if (general && !own)
        key = general;
    *out = fallback;
    return atom_json_present(root, key) ? atom_json_int(path, root, key, 1, INT64_MAX, out)
                                        : ATOM_OK;
}

atom_status file_take_real(const char *path, const json_t *root, const char *key, double fallback,
                           float *out)
{
    double number = fallback;
    if (atom_json_present(root, key))
        ATOM_TRY(atom_json_real(path, root, key, 0, (double)FLT_MAX, &number));
    *out = (float)number;
    return ATOM_OK;
}

/* Null is a key that is not there; but where that is true, transformers takes null for false. */
static atom_status refuse_null(const char *path, const json_t *root, const char *key, bool fallback)
{
    if (!fallback || !json_is_null(json_object_get(root, key)))
        return ATOM_OK;
    return atom_fail(ATOM_E_FORMAT, "%s: %s is null; it must be true or false", path, key);
}

atom_status file_take_flag(const char *path, const json_t *root, const char *key, bool fallback,
                           bool *out)
{
    const json_t *value = atom_json_present(root, key);
    ATOM_TRY(refuse_null(path, root, key, fallback));
    if (value && !json_is_boolean(value))
        return atom_fail(ATOM_E_FORMAT, "%s: %s must be true or false", path, key);
    *out = value ? json_is_true(value) : fallback;
    return ATOM_OK;
}

/* A switch that must be what GPT-2 has, if it is there at all. */
atom_status file_check_flag(const char *path, const json_t *root, const char *key, bool wanted)
{
    char why[96];
    bool said = wanted;
    ATOM_TRY(refuse_null(path, root, key, wanted));
    if (atom_json_present(root, key))
        ATOM_TRY(atom_json_flag(path, root, key, &said));
    if (said == wanted)
        return ATOM_OK;
    snprintf(why, sizeof why, "%s is not supported; only %s is", wanted ? "false" : "true",
             wanted ? "true" : "false");
    return file_not_supported(path, key, why);
}

atom_status file_check_plain(const char *path, const json_t *root)
{
    if (atom_json_present(root, "quantization_config"))
        return file_not_supported(path, "quantization_config", "dequantise the model first");
    if (json_object_size(atom_json_present(root, "pruned_heads")))
        return file_not_supported(path, "pruned_heads", "pruned models are not supported");
    ATOM_TRY(file_check_flag(path, root, "is_causal", true));
    return file_check_flag(path, root, "is_encoder_decoder", false);
}

bool file_is_neutral(const json_t *value, double neutral)
{
    return !value || json_is_false(value) ||
           (json_is_number(value) && json_number_value(value) == neutral) ||
           ((json_is_array(value) || json_is_object(value)) && json_array_size(value) == 0 &&
            json_object_size(value) == 0);
}

atom_status file_check_spelling(const char *path, const json_t *root, const char *const *names,
                                size_t n)
{
    const char *key, *meant;
    json_t *value;
    json_object_foreach((json_t *)root, key, value)
    {
        bool known = false;
        for (size_t i = 0; i < n && !known; i++)
            known = strcmp(key, names[i]) == 0;
        meant = known ? NULL : atom_did_you_mean(key, names, n);
        if (meant && !json_object_get(root, meant))
            return atom_fail(ATOM_E_FORMAT,
                             "%s: unknown key '%.64s', and there is no %s; did you mean %s?", path,
                             key, meant, meant);
    }
    return ATOM_OK;
}

void file_take_name(const json_t *root, graph_family family, char name[GRAPH_NAME_MAX])
{
    const char *text = json_string_value(atom_json_present(root, "_name_or_path"));
    const char *slash = text ? strrchr(text, '/') : NULL;
    const char *last = slash ? slash + 1 : text;
    size_t n = last ? strlen(last) : 0;
    bool plain =
        n && n < GRAPH_NAME_MAX && last[0] != '.' &&
        strspn(last, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
    snprintf(name, GRAPH_NAME_MAX, "%s", plain ? last : graph_family_name(family));
}

double file_neat(float value)
{
    char buf[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, (double)value);
        if (strtof(buf, NULL) == value)
            break;
    }
    return strtod(buf, NULL);
}
