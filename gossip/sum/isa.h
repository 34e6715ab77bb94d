/*
 * Compiles one loop for three instruction sets and chooses among them when it is called. The loop
 * is written once, as name_body(), without intrinsics. All three are compiled with
 * -ffp-contract=off, so they give the same bits.
 */
#ifndef GOSSIP_SUM_ISA_H
#define GOSSIP_SUM_ISA_H

#if defined(__clang__)
#define GSP_AVX512 "avx512f,avx512bw,avx512vl,avx512dq"
#else
#define GSP_AVX512 "avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512"
#endif

#define GSP_INLINE static inline __attribute__((always_inline))

/* Defines `type name params` from name_body. */
#define GSP_FOR_ISAS(type, name, params, args)                                                     \
    __attribute__((target(GSP_AVX512))) static type name##_avx512 params                           \
    {                                                                                              \
        return name##_body args;                                                                   \
    }                                                                                              \
    __attribute__((target("avx2"))) static type name##_avx2 params                                 \
    {                                                                                              \
        return name##_body args;                                                                   \
    }                                                                                              \
    static type name params                                                                        \
    {                                                                                              \
        if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&            \
            __builtin_cpu_supports("avx512dq"))                                                    \
            return name##_avx512 args;                                                             \
        if (__builtin_cpu_supports("avx2"))                                                        \
            return name##_avx2 args;                                                               \
        return name##_body args;                                                                   \
    }

#endif
