/*
 * Owns device specs: machines that are described, not present. One idea: a spec holds vendors'
 * figures and assumptions, each with its source beside it, and the rates we plan with are products
 * of the two. Refuses figures without a source.
 */
#include "partition/json.h"
#include "partition/specs.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/base/nearest.h"

#include <stdio.h>
#include <string.h>

enum { SOURCE_BYTES_MAX = 512 };

/* Where a spec does not say it: our attention, bf16, on cards whose tensor cores have one speed only. */
static const double ATTENTION_FRACTION = 0.6;

typedef enum figure {
    F_DEVICE_BYTES,
    F_RESERVED_BYTES,
    F_PEAK_FP32,
    F_PEAK_BF16,
    F_SUSTAINED_FP32,
    F_SUSTAINED_BF16,
    F_PEAK_DEVICE,
    F_SUSTAINED_DEVICE,
    F_LINK,
    F_LINK_FRACTION,
    F_LINK_BOTH,
    F_COPY_LATENCY,
    F_LAUNCH,
    F_HOST_BYTES,
    F_HOST_RATE,
    F_CORES,
    F_ATTENTION, /* optional, and the last */
    F_N
} figure;

static const struct {
    const char *key;
    double low, high;
    double real; /* no device has less but 0: the figure is in another unit */
    const char *unit;
} figures[F_N] = {
    [F_DEVICE_BYTES] = {"device_bytes", 1, 1e18, 1e6, "bytes: 24 GB are 24e9"},
    [F_RESERVED_BYTES] = {"reserved_bytes", 0, 1e18, 1e6, "bytes: 1 GB is 1e9"},
    [F_PEAK_FP32] = {"peak_flops_fp32", 0, 1e21, 1e6, "operations a second: 80 TFLOP/s are 80e12"},
    [F_PEAK_BF16] = {"peak_flops_bf16", 0, 1e21, 1e6, "operations a second: 80 TFLOP/s are 80e12"},
    [F_SUSTAINED_FP32] = {"sustained_fraction_fp32", 0, 1},
    [F_SUSTAINED_BF16] = {"sustained_fraction_bf16", 0, 1},
    [F_PEAK_DEVICE] = {"peak_device_bytes_per_second", 1, 1e21, 1e6,
                       "bytes a second: 900 GB/s are 900e9"},
    [F_SUSTAINED_DEVICE] = {"sustained_fraction_device", 1e-3, 1},
    [F_LINK] = {"link_bytes_per_second", 1, 1e21, 1e6, "bytes a second: 32 GB/s are 32e9"},
    [F_LINK_FRACTION] = {"link_fraction", 1e-3, 1},
    [F_LINK_BOTH] = {"link_fraction_both", 1e-3, 1},
    [F_COPY_LATENCY] = {"copy_latency_seconds", 0, 1},
    [F_LAUNCH] = {"launch_seconds", 0, 1},
    [F_HOST_BYTES] = {"host_bytes", 1, 1e18, 1e6, "bytes: 64 GB are 64e9"},
    [F_HOST_RATE] = {"host_bytes_per_second", 1, 1e21, 1e6, "bytes a second: 40 GB/s are 40e9"},
    [F_CORES] = {"cores", 1, 1 << 20},
    [F_ATTENTION] = {"attention_fraction", 1e-3, 1},
};

/* 24 for 24 GB would be a device of 24 bytes, and a plan for that one. */
static atom_status check_unit(const part_in *one, figure f, double value)
{
    char said[160];
    if (value == 0 || value >= figures[f].real)
        return ATOM_OK;
    snprintf(said, sizeof said, "%g is too little for any device; it counts %s", value,
             figures[f].unit);
    return part_in_wrong(one, "value", said);
}

static atom_status read_figures(const part_in *top, double values[F_N])
{
    static const char *const own[] = {"value", "source", NULL};
    const char *keys[F_N] = {NULL}; /* all but the last, which is optional */
    const char *const optional[] = {figures[F_ATTENTION].key, NULL};
    char source[SOURCE_BYTES_MAX];
    part_in all, one;
    values[F_ATTENTION] = ATTENTION_FRACTION;
    for (int i = 0; i < F_ATTENTION; i++)
        keys[i] = figures[i].key;
    ATOM_TRY(part_in_child(top, "figures", &all));
    ATOM_TRY(part_in_keys(&all, keys, optional));
    for (int i = 0; i < F_N; i++) {
        if (!json_object_get(all.object, figures[i].key))
            continue;
        ATOM_TRY(part_in_child(&all, figures[i].key, &one));
        ATOM_TRY(part_in_keys(&one, own, NULL));
        ATOM_TRY(part_in_f64(&one, "value", figures[i].low, figures[i].high, &values[i]));
        ATOM_TRY(check_unit(&one, (figure)i, values[i]));
        ATOM_TRY(part_in_text(&one, "source", source, sizeof source));
    }
    return ATOM_OK;
}

static part_device make_device(const double v[F_N])
{
    return (part_device){
        .modelled = true,
        .isa = "none",
        .cores = (uint32_t)v[F_CORES],
        .device_bytes = (uint64_t)v[F_DEVICE_BYTES] - (uint64_t)v[F_RESERVED_BYTES],
        .host_bytes = (uint64_t)v[F_HOST_BYTES],
        .flops_fp32 = v[F_PEAK_FP32] * v[F_SUSTAINED_FP32],
        .flops_bf16 = v[F_PEAK_BF16] * v[F_SUSTAINED_BF16],
        .peak_flops_fp32 = v[F_PEAK_FP32],
        .peak_flops_bf16 = v[F_PEAK_BF16],
        .device_bytes_per_second = v[F_PEAK_DEVICE] * v[F_SUSTAINED_DEVICE],
        .h2d_bytes_per_second = v[F_LINK] * v[F_LINK_FRACTION],
        .d2h_bytes_per_second = v[F_LINK] * v[F_LINK_FRACTION],
        .h2d_both_bytes_per_second = v[F_LINK] * v[F_LINK_BOTH],
        .d2h_both_bytes_per_second = v[F_LINK] * v[F_LINK_BOTH],
        .copy_latency_seconds = v[F_COPY_LATENCY],
        .host_bytes_per_second = v[F_HOST_RATE],
        .launch_seconds = v[F_LAUNCH],
        .attention_fraction = v[F_ATTENTION],
    };
}

atom_status part_device_parse(const char *file, const char *text, size_t bytes, part_device *out)
{
    static const char *const keys[] = {"atom_device", "name", "figures", NULL};
    json_t *root = NULL;
    part_in in = {.file = file};
    part_device d;
    double values[F_N];
    char name[sizeof d.name];
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(atom_json_parse(file, text, bytes, 0, &root));
    in.object = root;
    ATOM_TRY_CLEAN(part_in_version(&in, "atom_device", 1));
    ATOM_TRY_CLEAN(part_in_keys(&in, keys, NULL));
    ATOM_TRY_CLEAN(part_in_text(&in, "name", name, sizeof name));
    ATOM_TRY_CLEAN(read_figures(&in, values));
    if (values[F_RESERVED_BYTES] >= values[F_DEVICE_BYTES])
        ATOM_TRY_CLEAN(
            atom_fail(ATOM_E_FORMAT, "%s: reserved_bytes leaves nothing of device_bytes", file));
    d = make_device(values);
    memcpy(d.name, name, sizeof name);
    json_decref(root);
    *out = d;
    return ATOM_OK;
cleanup:
    json_decref(root);
    return st;
}

const char *part_device_text(const char *name)
{
    for (const part_spec *s = part_specs; s->name; s++)
        if (strcmp(s->name, name) == 0)
            return s->text;
    return NULL;
}

/* Says which names there are, and which of them was probably meant. */
ATOM_MUST static atom_status unknown(const char *name)
{
    char all[512] = "";
    size_t n = 0, used = 0;
    for (; part_spec_names[n]; n++) {
        int more =
            snprintf(all + used, sizeof all - used, "%s%s", n ? ", " : "", part_spec_names[n]);
        used += more > 0 && (size_t)more < sizeof all - used ? (size_t)more : 0;
    }
    const char *near = atom_did_you_mean(name, part_spec_names, n);
    return atom_fail(ATOM_E_USAGE, "no device spec or file \"%s\"%s%s%s; built in: %s", name,
                     near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "", all);
}

atom_status part_device_spec(const char *name_or_path, part_device *out)
{
    const char *built_in = part_device_text(name_or_path);
    char *text = NULL;
    uint64_t bytes = 0;
    if (built_in)
        return part_device_parse(name_or_path, built_in, strlen(built_in), out);
    if (!atom_path_exists(name_or_path))
        return unknown(name_or_path);
    atom_status st = atom_file_read(name_or_path, PART_FILE_BYTES_MAX, &text, &bytes);
    if (st == ATOM_OK)
        st = part_device_parse(name_or_path, text, bytes, out);
    atom_free(text);
    return st;
}

const char *const *part_device_names(void)
{
    return part_spec_names;
}
