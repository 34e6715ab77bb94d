/*
 * oneDNN 2 and 3 under one set of names: descriptors are structures in 2 (Debian 12) and handles in 3 (Debian 13,
 * Ubuntu 24.04). Statuses are oneDNN's.
 */
#ifndef KERNELS_CPU_ONEDNN_H
#define KERNELS_CPU_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>

#include <stddef.h>

/* In 3 the compiled code for AVX2 that takes blocked fp32 is wrong from 1024 rows on, or reads what is not there (seen in
 * 3.7.2, brg_matmul:avx2). Whether 3 is good at them elsewhere nobody has tried. */
enum { ONEDNN_BAD_BLOCKS = DNNL_VERSION_MAJOR >= 3 };

#if DNNL_VERSION_MAJOR >= 3

/* Of two dimensions; onednn_desc_free. */
static inline dnnl_status_t onednn_desc(const dnnl_dims_t dims, dnnl_data_type_t type,
                                        dnnl_format_tag_t tag, dnnl_memory_desc_t *out)
{
    return dnnl_memory_desc_create_with_tag(out, 2, dims, type, tag);
}

/* One that was never made is fine. */
static inline void onednn_desc_free(dnnl_memory_desc_t *desc)
{
    if (*desc)
        dnnl_memory_desc_destroy(*desc);
    *desc = NULL;
}

static inline dnnl_status_t onednn_product(dnnl_engine_t engine, const dnnl_memory_desc_t *a,
                                           const dnnl_memory_desc_t *b, const dnnl_memory_desc_t *c,
                                           dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
    return dnnl_matmul_primitive_desc_create(out, engine, *a, *b, NULL, *c, attr);
}

/* What scratch a primitive needs; onednn_desc_free. */
static inline dnnl_status_t onednn_scratch(dnnl_primitive_desc_t primitive, dnnl_memory_desc_t *out)
{
    return dnnl_memory_desc_clone(
        out, dnnl_primitive_desc_query_md(primitive, dnnl_query_scratchpad_md, 0));
}

static inline size_t onednn_bytes(const dnnl_memory_desc_t *desc)
{
    return dnnl_memory_desc_get_size(*desc);
}

static inline dnnl_status_t onednn_memory(const dnnl_memory_desc_t *desc, dnnl_engine_t engine,
                                          dnnl_memory_t *out)
{
    return dnnl_memory_create(out, *desc, engine, DNNL_MEMORY_NONE);
}

#else

static inline dnnl_status_t onednn_desc(const dnnl_dims_t dims, dnnl_data_type_t type,
                                        dnnl_format_tag_t tag, dnnl_memory_desc_t *out)
{
    return dnnl_memory_desc_init_by_tag(out, 2, dims, type, tag);
}

static inline void onednn_desc_free(dnnl_memory_desc_t *desc)
{
    (void)desc;
}

static inline dnnl_status_t onednn_product(dnnl_engine_t engine, const dnnl_memory_desc_t *a,
                                           const dnnl_memory_desc_t *b, const dnnl_memory_desc_t *c,
                                           dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
    dnnl_matmul_desc_t matmul;
    dnnl_status_t st = dnnl_matmul_desc_init(&matmul, a, b, NULL, c);
    return st == dnnl_success ? dnnl_primitive_desc_create(out, &matmul, attr, engine, NULL) : st;
}

static inline dnnl_status_t onednn_scratch(dnnl_primitive_desc_t primitive, dnnl_memory_desc_t *out)
{
    const dnnl_memory_desc_t *md =
        dnnl_primitive_desc_query_md(primitive, dnnl_query_scratchpad_md, 0);
    if (!md)
        return dnnl_runtime_error;
    *out = *md;
    return dnnl_success;
}

static inline size_t onednn_bytes(const dnnl_memory_desc_t *desc)
{
    return dnnl_memory_desc_get_size(desc);
}

static inline dnnl_status_t onednn_memory(const dnnl_memory_desc_t *desc, dnnl_engine_t engine,
                                          dnnl_memory_t *out)
{
    return dnnl_memory_create(out, desc, engine, DNNL_MEMORY_NONE);
}

#endif

#endif
