/*
 * What the files of config.json share: hfconfig.c (all families, GPT-2), hfconfig_llama.c,
 * hfconfig_neox.c, hfconfig_traits.c, hfconfig_rope.c, hfconfig_own.c, and hfkeys.c, which takes single keys for them.
 * `path` is for messages.
 */
#ifndef ATOM_FILE_HFCONFIG_H
#define ATOM_FILE_HFCONFIG_H

#include "atom/base/json.h"
#include "atom/file/hfdir.h"

/* ATOM_E_UNSUPPORTED: "path: key: why" */
atom_status file_not_supported(const char *path, const char *key, const char *why);
/* A whole number of at least 1, under its own name or the general one (NULL: none); `fallback` if
 * neither is there. */
ATOM_MUST atom_status file_take_int(const char *path, const json_t *root, const char *key,
                                    const char *general, int64_t fallback, int64_t *out);
/* A number of at least 0. */
ATOM_MUST atom_status file_take_real(const char *path, const json_t *root, const char *key,
                                     double fallback, float *out);
/* A switch; `fallback` if it is not there. Null is refused where that is true. */
ATOM_MUST atom_status file_take_flag(const char *path, const json_t *root, const char *key,
                                     bool fallback, bool *out);
/* A switch that must be what the family has, if it is there at all. */
ATOM_MUST atom_status file_check_flag(const char *path, const json_t *root, const char *key,
                                      bool wanted);
/* Refuses models that are quantised, pruned, or no decoders. */
ATOM_MUST atom_status file_check_plain(const char *path, const json_t *root);
/* Does the value say nothing: absent, false, empty, or the number that changes nothing? */
bool file_is_neutral(const json_t *value, double neutral);
/* Refuses a key that is none of the names, is nearly one of them, and stands where that one is absent:
 * otherwise a slip of the pen would be a default that nobody chose. names: those that are read, and
 * others that are well known. */
ATOM_MUST atom_status file_check_spelling(const char *path, const json_t *root,
                                          const char *const *names, size_t n);
/* The last word of _name_or_path where it is a plain name, else the family's. */
void file_take_name(const json_t *root, graph_family family, char name[GRAPH_NAME_MAX]);
/* The double whose shortest decimal is that of the float: 0.1f -> 0.1. */
double file_neat(float value);

/* Llama and its kin: numbers of `family` out of root, and ours over theirs into root. */
ATOM_MUST atom_status file_llama_take(const char *path, const json_t *root, graph_family family,
                                      graph_config *c);
ATOM_MUST atom_status file_llama_set(json_t *root, const graph_config *c, const file_ends *ends,
                                     bool kept);

/* GPT-NeoX, as those. */
ATOM_MUST atom_status file_neox_take(const char *path, const json_t *root, graph_family family,
                                     graph_config *c);
ATOM_MUST atom_status file_neox_set(json_t *root, const graph_config *c, const file_ends *ends,
                                    bool kept);
/* bos_token_id or eos_token_id where root has none; token -1: null. Returns whether memory ran out. */
int file_set_token(json_t *root, const char *key, int64_t token);

/* The part of all that depends on the family's row (hfconfig_traits.c). The last returns whether
 * memory ran out. */
/* Refuses keys of other families that change the mathematics. */
ATOM_MUST atom_status file_traits_check(const char *path, const json_t *root,
                                        const graph_traits *traits);
ATOM_MUST atom_status file_traits_take(const char *path, const json_t *root, graph_config *c);
int file_traits_set(json_t *root, const graph_config *c, bool kept);

/* The rotary embedding (hfconfig_rope.c), after the sizes. set returns whether memory ran out. */
ATOM_MUST atom_status file_rope_take(const char *path, const json_t *root, graph_config *c);
int file_rope_set(json_t *root, const graph_config *c);
/* partial_rotary_factor; NULL: memory ran out. */
json_t *file_rope_part(const graph_config *c);

/* Somebody's own model: the graph and its table of tensors out of root, and into it. */
ATOM_MUST atom_status file_own_take(const char *path, const json_t *root, graph_config *c);
ATOM_MUST atom_status file_own_set(json_t *root, const graph_config *c);

/* Bottlenecks (hfconfig_bottlenecks.c). names: the object whose model_type is the family's, root
 * itself for a model without them. take: after the family's own numbers. set: last, over what the
 * family wrote; returns whether memory ran out. */
const json_t *file_bottlenecks_names(const json_t *root);
ATOM_MUST atom_status file_bottlenecks_take(const char *path, const json_t *root, graph_config *c);
int file_bottlenecks_set(json_t *root, const graph_config *c);

#endif
