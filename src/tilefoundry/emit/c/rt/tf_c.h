/* Vectors of TF_LANES elements for programs that TileFoundry emits for CPUs.
 *
 * C11 with the vector extensions of GCC and Clang; intrinsics only where a width of the
 * machine has one instruction for what a loop over lanes would do. A 16-bit or 8-bit float
 * is held as its bits and computed in f32; every conversion to it rounds to the nearest,
 * halves to even.
 *
 * Error of the f32 functions, in units of the last place of the exact result (held by
 * tests/build/test_math.py): exp 2, exp2 2 (1.2 of 8 lanes,
 * 1.1 of 16), log 3, log2 3, tanh 4, erf 4, sigmoid 4, silu 5
 * (and 2^-140), softplus 4; gelu 4 of x. sqrt and rsqrt (a root, a division) round each step; sin,
 * cos, pow and all f64 functions are the C library's, lane by lane.
 */
#ifndef TF_C_H
#define TF_C_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* affinity, for tf_pin.h */
#endif
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef float f32;
typedef double f64;
typedef uint16_t f16;
typedef uint16_t bf16;
typedef uint8_t fp8e4m3;
typedef uint8_t fp8e5m2;
typedef int64_t i64;
typedef int32_t i32;
typedef int16_t i16;
typedef int8_t i8;
typedef uint8_t u8;
typedef uint8_t b8; /* a truth value: 0 or 1 */

#define TF_VECTOR(type, name) typedef type name __attribute__((vector_size(sizeof(type) * TF_LANES)))
TF_VECTOR(f32, f32v);
TF_VECTOR(f64, f64v);
TF_VECTOR(uint16_t, f16v);
TF_VECTOR(uint16_t, bf16v);
TF_VECTOR(uint8_t, fp8e4m3v);
TF_VECTOR(uint8_t, fp8e5m2v);
TF_VECTOR(i64, i64v);
TF_VECTOR(i32, i32v);
TF_VECTOR(uint32_t, u32v);
TF_VECTOR(i16, i16v);
TF_VECTOR(i8, i8v);
TF_VECTOR(u8, u8v);
TF_VECTOR(u8, b8v);
#undef TF_VECTOR

#define TF static inline __attribute__((always_inline, unused))
#define TF_EACH for (int l = 0; l < TF_LANES; l++)
/* The end of a step of a loop that is written out several times: its accesses stay in it. Compilers
 * gather the prefetches of all steps at the first, more than a core can have under way. */
#define TF_STEP_END __asm__ volatile("" ::: "memory")

/* Integers of indices: floor division and its remainder, by positive divisors. */
TF long tf_div(long a, long b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
TF long tf_mod(long a, long b) { return a - tf_div(a, b) * b; }
TF long tf_min(long a, long b) { return a < b ? a : b; }
TF long tf_max(long a, long b) { return a > b ? a : b; }

/* Memory: whole vectors at any address; lanes [lo, hi) of one; one element for all lanes. */
#define TF_MEMORY(t)                                                                        \
    TF t##v tf_splat_##t(t x) { return x - (t##v){0}; }                                     \
    TF t##v tf_load_##t(const t *p) { t##v r; memcpy(&r, p, sizeof r); return r; }          \
    TF void tf_store_##t(t *p, t##v x) { memcpy(p, &x, sizeof x); }                         \
    TF t##v tf_load_part_##t(const t *p, long lo, long hi, t fill) {                        \
        if (lo <= 0 && hi >= TF_LANES) return tf_load_##t(p);                               \
        t##v r = tf_splat_##t(fill);                                                        \
        for (long l = tf_max(lo, 0); l < tf_min(hi, TF_LANES); l++) r[l] = p[l];            \
        return r;                                                                           \
    }                                                                                       \
    TF void tf_store_part_##t(t *p, t##v x, long lo, long hi) {                             \
        if (lo <= 0 && hi >= TF_LANES) { tf_store_##t(p, x); return; }                      \
        for (long l = tf_max(lo, 0); l < tf_min(hi, TF_LANES); l++) p[l] = x[l];            \
    }
TF_MEMORY(f32)
TF_MEMORY(f64)
TF_MEMORY(f16)
TF_MEMORY(bf16)
TF_MEMORY(fp8e4m3)
TF_MEMORY(fp8e5m2)
TF_MEMORY(i64)
TF_MEMORY(i32)
TF_MEMORY(i16)
TF_MEMORY(i8)
TF_MEMORY(u8)
TF_MEMORY(b8)
#undef TF_MEMORY

/* Transpositions of words in memory: the word at (row, column) of the source, which has rows
 * `from_step` words apart, goes to word `row` of group `column`, groups `to_step` apart.
 *
 * Rows are vectors. Zipping the first half of 2^p vectors with the second half p times weaves
 * them: the words of a column become neighbours. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector) && TF_LANES == 16
#define TF_LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define TF_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif __has_builtin(__builtin_shufflevector) && TF_LANES == 8
#define TF_LOW 0, 8, 1, 9, 2, 10, 3, 11
#define TF_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#elif __has_builtin(__builtin_shufflevector) && TF_LANES == 4
#define TF_LOW 0, 4, 1, 5
#define TF_HIGH 2, 6, 3, 7
#endif
#endif
#define TF_TURN_ONE_BY_ONE(bits)                                                            \
    TF void tf_turn_slow_##bits(char *to, long to_step, const char *from, long from_step,   \
                                long rows, long columns) {                                  \
        for (long c = 0; c < columns; c++)                                                  \
            for (long r = 0; r < rows; r++)                                                 \
                memcpy(to + (c * to_step + r) * (bits / 8), from + (r * from_step + c) * (bits / 8), bits / 8); \
    }
TF_TURN_ONE_BY_ONE(8)
TF_TURN_ONE_BY_ONE(16)
TF_TURN_ONE_BY_ONE(32)
TF_TURN_ONE_BY_ONE(64)
#undef TF_TURN_ONE_BY_ONE
/* The first n words of a vector. */
#define TF_STORE_FIRST(bits, v) TF void tf_store_first_##bits(char *p, v x, long n) { memcpy(p, &x, n * (bits / 8)); }
TF_STORE_FIRST(8, u8v)
TF_STORE_FIRST(16, f16v)
#if defined(__AVX512F__) && TF_LANES == 16
TF void tf_store_first_32(char *p, u32v x, long n) { _mm512_mask_storeu_epi32(p, (__mmask16)((1u << n) - 1), (__m512i)x); }
#else
TF_STORE_FIRST(32, u32v)
#endif
#if defined(__AVX512F__) && TF_LANES == 8
TF void tf_store_first_64(char *p, i64v x, long n) { _mm512_mask_storeu_epi64(p, (__mmask8)((1u << n) - 1), (__m512i)x); }
#else
TF_STORE_FIRST(64, i64v)
#endif
#undef TF_STORE_FIRST
#if defined(TF_LOW)
#define TF_TURN(bits, v)                                                                    \
    TF void tf_weave_##bits(v *x, int rows) {                                               \
        v y[TF_LANES];                                                                      \
        _Pragma("GCC unroll 4") for (int stage = rows; stage > 1; stage /= 2) {             \
            _Pragma("GCC unroll 16") for (int r = 0; r < rows / 2; r++) {                   \
                y[2 * r] = __builtin_shufflevector(x[r], x[r + rows / 2], TF_LOW);          \
                y[2 * r + 1] = __builtin_shufflevector(x[r], x[r + rows / 2], TF_HIGH);     \
            }                                                                               \
            _Pragma("GCC unroll 16") for (int r = 0; r < rows; r++) x[r] = y[r];            \
        }                                                                                   \
    }                                                                                       \
    TF void tf_turn_##bits(void *into, long to_step, const void *out_of, long from_step,    \
                           long rows, long columns) {                                       \
        enum { B = bits / 8, L = TF_LANES };                                                \
        char *to = into;                                                                    \
        const char *from = out_of;                                                          \
        int packed = rows == to_step && (rows == 2 || rows == 4 || rows == 8) && rows < L;  \
        v x[L];                                                                             \
        long c = 0;                                                                         \
        for (; c + L <= columns; c += L)                                                    \
            if (packed) {                                                                   \
                _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++)                      \
                    memcpy(&x[r], from + (r * from_step + c) * B, sizeof(v));               \
                tf_weave_##bits(x, (int)rows);                                              \
                memcpy(to + c * rows * B, x, rows * sizeof(v));                             \
            } else for (long r0 = 0; r0 < rows; r0 += L) {                                  \
                long n = tf_min(rows - r0, L);                                              \
                _Pragma("GCC unroll 16") for (int r = 0; r < L; r++)                        \
                    if (r < n) memcpy(&x[r], from + ((r0 + r) * from_step + c) * B, sizeof(v)); \
                    else x[r] = (v){0};                                                     \
                tf_weave_##bits(x, L);                                                      \
                _Pragma("GCC unroll 16") for (int r = 0; r < L; r++) {                      \
                    char *p = to + ((c + r) * to_step + r0) * B;                            \
                    if (n == L) memcpy(p, &x[r], sizeof(v));                                \
                    else tf_store_first_##bits(p, x[r], n);                                 \
                }                                                                           \
            }                                                                               \
        tf_turn_slow_##bits(to + c * to_step * B, to_step, from + c * B, from_step, rows, columns - c); \
    }
#else
#define TF_TURN(bits, v)                                                                    \
    TF void tf_turn_##bits(void *into, long to_step, const void *out_of, long from_step,    \
                           long rows, long columns) {                                       \
        tf_turn_slow_##bits(into, to_step, out_of, from_step, rows, columns);               \
    }
#endif
TF_TURN(8, u8v)
TF_TURN(16, f16v)
TF_TURN(32, u32v)
TF_TURN(64, i64v)
#undef TF_TURN

/* Choice by a mask of all ones or zeros per lane; NaN goes through minimum and maximum. */
TF f32v tf_pick_f32(i32v m, f32v a, f32v b) { return (f32v)(((i32v)a & m) | ((i32v)b & ~m)); }
TF f64v tf_pick_f64(i64v m, f64v a, f64v b) { return (f64v)(((i64v)a & m) | ((i64v)b & ~m)); }
TF i64v tf_pick_i64(i64v m, i64v a, i64v b) { return (a & m) | (b & ~m); }
TF i32v tf_pick_i32(i32v m, i32v a, i32v b) { return (a & m) | (b & ~m); }
TF i16v tf_pick_i16(i16v m, i16v a, i16v b) { return (a & m) | (b & ~m); }
TF i8v tf_pick_i8(i8v m, i8v a, i8v b) { return (a & m) | (b & ~m); }
TF u8v tf_pick_u8(i8v m, u8v a, u8v b) { return (a & (u8v)m) | (b & ~(u8v)m); }
TF bf16v tf_pick_bits16(i16v m, bf16v a, bf16v b) { return (a & (bf16v)m) | (b & ~(bf16v)m); }
/* The machine's own answer is its second operand where one is NaN: only the first is left. */
TF f32v tf_minimum_f32(f32v a, f32v b) {
#if defined(__AVX__) && TF_LANES == 8
    return tf_pick_f32(a != a, a, (f32v)_mm256_min_ps((__m256)a, (__m256)b));
#elif defined(__AVX512F__) && TF_LANES == 16
    __mmask16 real = _mm512_cmp_ps_mask((__m512)b, (__m512)b, _CMP_ORD_Q);
    return (f32v)_mm512_mask_min_ps((__m512)b, real, (__m512)b, (__m512)a);
#else
    return tf_pick_f32((a < b) | (a != a), a, b);
#endif
}
TF f32v tf_maximum_f32(f32v a, f32v b) {
#if defined(__AVX__) && TF_LANES == 8
    return tf_pick_f32(a != a, a, (f32v)_mm256_max_ps((__m256)a, (__m256)b));
#elif defined(__AVX512F__) && TF_LANES == 16
    __mmask16 real = _mm512_cmp_ps_mask((__m512)b, (__m512)b, _CMP_ORD_Q);
    return (f32v)_mm512_mask_max_ps((__m512)b, real, (__m512)b, (__m512)a);
#else
    return tf_pick_f32((a > b) | (a != a), a, b);
#endif
}
/* The other where one is NaN. VRANGEPS answers so; what VMINPS and VMAXPS answer is their second
 * operand, which is right where the first is NaN. */
TF f32v tf_fmin_f32(f32v a, f32v b) {
#if defined(__AVX__) && TF_LANES == 8
    return tf_pick_f32(b != b, a, (f32v)_mm256_min_ps((__m256)a, (__m256)b));
#elif defined(__AVX512DQ__) && TF_LANES == 16
    return (f32v)_mm512_range_ps((__m512)a, (__m512)b, 4);
#else
    return tf_pick_f32((a < b) | (b != b), a, b);
#endif
}
TF f32v tf_fmax_f32(f32v a, f32v b) {
#if defined(__AVX__) && TF_LANES == 8
    return tf_pick_f32(b != b, a, (f32v)_mm256_max_ps((__m256)a, (__m256)b));
#elif defined(__AVX512DQ__) && TF_LANES == 16
    return (f32v)_mm512_range_ps((__m512)a, (__m512)b, 5);
#else
    return tf_pick_f32((a > b) | (b != b), a, b);
#endif
}
TF f64v tf_fmin_f64(f64v a, f64v b) { return tf_pick_f64((a < b) | (b != b), a, b); }
TF f64v tf_fmax_f64(f64v a, f64v b) { return tf_pick_f64((a > b) | (b != b), a, b); }
TF f64v tf_minimum_f64(f64v a, f64v b) { return tf_pick_f64((a < b) | (a != a), a, b); }
TF f64v tf_maximum_f64(f64v a, f64v b) { return tf_pick_f64((a > b) | (a != a), a, b); }
#define TF_INTEGER(t)                                                                       \
    TF t##v tf_minimum_##t(t##v a, t##v b) { return tf_pick_##t(a < b, a, b); }             \
    TF t##v tf_maximum_##t(t##v a, t##v b) { return tf_pick_##t(a > b, a, b); }             \
    TF t##v tf_abs_##t(t##v a) { return tf_pick_##t(a < 0, -a, a); }                        \
    TF t##v tf_floor_div_##t(t##v a, t##v b) {                                              \
        t##v r;                                                                             \
        TF_EACH { t q = a[l] / b[l]; r[l] = q - (t)((a[l] % b[l] != 0) && ((a[l] < 0) != (b[l] < 0))); } \
        return r;                                                                           \
    }                                                                                       \
    TF t##v tf_remainder_##t(t##v a, t##v b) { return a - tf_floor_div_##t(a, b) * b; }
TF_INTEGER(i64)
TF_INTEGER(i32)
TF_INTEGER(i16)
TF_INTEGER(i8)
TF_INTEGER(u8)
#undef TF_INTEGER
TF f32v tf_abs_f32(f32v a) { return (f32v)((i32v)a & 0x7fffffff); }
TF f64v tf_abs_f64(f64v a) { return (f64v)((i64v)a & INT64_MAX); }

/* What one machine instruction does to a whole vector. */
TF f32v tf_fma_f32(f32v a, f32v b, f32v c) {
#if defined(__FMA__) && TF_LANES == 8
    return (f32v)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__FMA__) && TF_LANES == 4
    return (f32v)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c);
#elif defined(__AVX512F__) && TF_LANES == 16
    return (f32v)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#else
    f32v r;
    TF_EACH r[l] = __builtin_fmaf(a[l], b[l], c[l]);
    return r;
#endif
}
TF f64v tf_fma_f64(f64v a, f64v b, f64v c) {
#if defined(__FMA__) && TF_LANES == 4 && !defined(TF_MODEL)
    return (f64v)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif defined(__AVX512F__) && TF_LANES == 8 && !defined(TF_MODEL)
    return (f64v)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#else
    f64v r;
    TF_EACH r[l] = __builtin_fma(a[l], b[l], c[l]);
    return r;
#endif
}
TF f32v tf_sqrt_f32(f32v x) {
#if defined(__AVX__) && TF_LANES == 8
    return (f32v)_mm256_sqrt_ps((__m256)x);
#elif defined(__AVX512F__) && TF_LANES == 16
    return (f32v)_mm512_sqrt_ps((__m512)x);
#else
    f32v r;
    TF_EACH r[l] = sqrtf(x[l]);
    return r;
#endif
}
/* To the nearest integer, halves to even: adding 2^23 leaves no fraction. */
TF f32v tf_rint_f32(f32v x) {
    f32v big = (f32v)(((i32v)x & (int32_t)0x80000000) | 0x4b000000);
    return tf_pick_f32(tf_abs_f32(x) < 0x1p23f, (f32v)((i32v)((x + big) - big) | ((i32v)x & (int32_t)0x80000000)), x);
}
TF f32v tf_floor_f32(f32v x) {
    f32v r = tf_rint_f32(x);
    return (f32v)((i32v)tf_pick_f32(r > x, r - 1.0f, r) | ((i32v)x & (int32_t)0x80000000));
}
TF f32v tf_ceil_f32(f32v x) { return -tf_floor_f32(-x); }

/* Conversions. */
#define tf_to(t, x) __builtin_convertvector(x, t##v)
TF f32v tf_bf16_to_f32(bf16v x) {
#if defined(__AVX2__) && TF_LANES == 8
    return (f32v)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)x), 16);
#elif defined(__AVX512BW__) && TF_LANES == 16
    /* each word above a word of zeros: one instruction where widening and shifting are two */
    const i32v above = {0, 1 << 16, 2 << 16, 3 << 16, 4 << 16, 5 << 16, 6 << 16, 7 << 16, 8 << 16,
                        9 << 16, 10 << 16, 11 << 16, 12 << 16, 13 << 16, 14 << 16, 15 << 16};
    return (f32v)_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, (__m512i)above, _mm512_castsi256_si512((__m256i)x));
#elif defined(__AVX512F__) && TF_LANES == 16
    return (f32v)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)x), 16);
#else
    return (f32v)(tf_to(i32, x) << 16);
#endif
}
TF bf16v tf_f32_to_bf16(f32v x) {
#if defined(__AVX512BF16__) && defined(__AVX512DQ__) && TF_LANES == 16
    /* the instruction takes numbers below the normal ones for 0: only where there are none */
    if (__builtin_expect(_mm512_fpclass_ps_mask((__m512)x, 0x20) == 0, 1))
        return (bf16v)_mm512_cvtneps_pbh((__m512)x);
#endif
    u32v u = (u32v)x;
    u32v r = (u + (((u >> 16) & 1) + 0x7fff)) >> 16;
    r = (u32v)tf_pick_f32(x != x, (f32v)((u32v){0} + 0x7fc0), (f32v)r);
#if defined(__AVX512F__) && TF_LANES == 16
    return (bf16v)_mm512_cvtepi32_epi16((__m512i)r);
#elif defined(__AVX2__) && TF_LANES == 8
    __m256i wide = (__m256i)r;
    return (bf16v)_mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
#else
    return __builtin_convertvector(r, bf16v);
#endif
}
/* Two at once: one instruction of the machine. What it makes 0 is looked at again. */
TF void tf_f32_to_bf16_pair(bf16v *x, bf16v *y, f32v a, f32v b) {
#if defined(__AVX512BF16__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && TF_LANES == 16
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a);
    __mmask32 zeros = _mm512_testn_epi16_mask(both, _mm512_set1_epi16(0x7fff));
    if (__builtin_expect(zeros == 0, 1) || __builtin_expect((_mm512_fpclass_ps_mask((__m512)a, 0x20) |
                                                             _mm512_fpclass_ps_mask((__m512)b, 0x20)) == 0, 1)) {
        *x = (bf16v)_mm512_castsi512_si256(both);
        *y = (bf16v)_mm512_extracti64x4_epi64(both, 1);
        return;
    }
#endif
    *x = tf_f32_to_bf16(a);
    *y = tf_f32_to_bf16(b);
}
TF f32v tf_f16_to_f32(f16v x) {
#if defined(__F16C__) && TF_LANES == 8
    return (f32v)_mm256_cvtph_ps((__m128i)x);
#elif defined(__AVX512F__) && TF_LANES == 16
    return (f32v)_mm512_cvtph_ps((__m256i)x);
#else
    f32v r;
    TF_EACH {
        uint32_t s = (uint32_t)(x[l] & 0x8000) << 16, m = x[l] & 0x7fff;
        union { uint32_t u; float f; } b = {m << 13};
        b.f *= 0x1p112f;
        if (m >= 0x7c00) b.u |= 0x7f800000;
        b.u |= s;
        r[l] = b.f;
    }
    return r;
#endif
}
TF f16v tf_f32_to_f16(f32v x) {
#if defined(__F16C__) && TF_LANES == 8
    return (f16v)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__AVX512F__) && TF_LANES == 16
    return (f16v)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT);
#else
    f16v r;
    TF_EACH {
        union { float f; uint32_t u; } b = {x[l]}, one;
        uint32_t s = b.u & 0x80000000, m = b.u & 0x7fffffff, h;
        if (m > 0x7f800000) h = 0x7e00;
        else if (m >= 0x477ff000) h = 0x7c00;
        else if (m < 0x38800000) { /* below the smallest normal: align by adding a half */
            one.u = m;
            one.f += 0.5f;
            h = one.u - 0x3f000000;
        } else h = (m - 0x38000000 + 0xfff + ((m >> 13) & 1)) >> 13;
        r[l] = (uint16_t)(h | s >> 16);
    }
    return r;
#endif
}
/* Arithmetic of halves: in f32 and rounded once, or by the machine's own, to the same bits. */
#if defined(__AVX512FP16__) && defined(__AVX512VL__) && TF_LANES == 16
#define TF_HALF(name, sign) \
    TF f16v tf_##name##_f16(f16v a, f16v b) { return (f16v)_mm256_##name##_ph((__m256h)a, (__m256h)b); }
#elif defined(__AVX512FP16__) && defined(__AVX512VL__) && TF_LANES == 8
#define TF_HALF(name, sign) \
    TF f16v tf_##name##_f16(f16v a, f16v b) { return (f16v)_mm_##name##_ph((__m128h)a, (__m128h)b); }
#else
#define TF_HALF(name, sign) \
    TF f16v tf_##name##_f16(f16v a, f16v b) { return tf_f32_to_f16(tf_f16_to_f32(a) sign tf_f16_to_f32(b)); }
#endif
TF_HALF(add, +)
TF_HALF(sub, -)
TF_HALF(mul, *)
#undef TF_HALF
/* 8-bit floats: exponent bias and mantissa bits are parameters. e4m3 has no infinity: what is
 * too large becomes the largest, as in torch. */
TF float tf_small_to_f32(unsigned x, int mantissa, int bias) {
    unsigned m = x & 0x7f, e = m >> mantissa, f = m & ((1u << mantissa) - 1);
    float r = e ? ldexpf((float)((1u << mantissa) | f), (int)e - bias - mantissa)
                : ldexpf((float)f, 1 - bias - mantissa);
    if (mantissa == 3 ? m == 0x7f : m > 0x7c) r = NAN;
    else if (mantissa == 2 && m == 0x7c) r = INFINITY;
    return x & 0x80 ? -r : r;
}
TF unsigned tf_f32_to_small(float x, int mantissa, int bias, float most) {
    unsigned s = signbit(x) ? 0x80 : 0, nan = 0x7f, over = mantissa == 3 ? 0x7e : 0x7c;
    float a = fabsf(x);
    if (a != a) return s | nan;
    if (a == 0) return s;
    int e;
    frexpf(a, &e);
    e = e - 1 < 1 - bias ? 1 - bias : e - 1;
    float unit = ldexpf(1, e - mantissa), q = rintf(a / unit) * unit;
    if (q > most) return s | over;
    frexpf(q, &e);
    if (q < ldexpf(1, 1 - bias)) return s | (unsigned)(q / ldexpf(1, 1 - bias - mantissa));
    e -= 1;
    return s | ((unsigned)(e + bias) << mantissa | ((unsigned)ldexpf(q, mantissa - e) & ((1u << mantissa) - 1)));
}
TF f32v tf_fp8e4m3_to_f32(fp8e4m3v x) { f32v r; TF_EACH r[l] = tf_small_to_f32(x[l], 3, 7); return r; }
TF f32v tf_fp8e5m2_to_f32(fp8e5m2v x) { f32v r; TF_EACH r[l] = tf_small_to_f32(x[l], 2, 15); return r; }
TF fp8e4m3v tf_f32_to_fp8e4m3(f32v x) { fp8e4m3v r; TF_EACH r[l] = (u8)tf_f32_to_small(x[l], 3, 7, 448.0f); return r; }
TF fp8e5m2v tf_f32_to_fp8e5m2(f32v x) { fp8e5m2v r; TF_EACH r[l] = (u8)tf_f32_to_small(x[l], 2, 15, 57344.0f); return r; }

/* e^r for |r| <= 0.3467: least squares at Chebyshev nodes, weighted to an even error of 3.1e-9. */
TF f32v tf_exp_core(f32v r) {
    f32v p = tf_fma_f32(r, tf_splat_f32(1.38145592e-3f), tf_splat_f32(8.36873520e-3f));
    p = tf_fma_f32(p, r, tf_splat_f32(4.16683890e-2f));
    p = tf_fma_f32(p, r, tf_splat_f32(1.66665211e-1f));
    p = tf_fma_f32(p, r, tf_splat_f32(4.99999940e-1f));
    p = tf_fma_f32(p, r, tf_splat_f32(1.0f));
    return tf_fma_f32(p, r, tf_splat_f32(1.0f));
}
/* p * 2^n for integers |n| <= 252: in two steps, so that results below the normal ones are
 * right. */
TF f32v tf_scale(f32v p, f32v n) {
#if defined(__AVX512F__) && TF_LANES == 16
    return (f32v)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    i32v e = tf_to(i32, n), half = e >> 1;
    return p * (f32v)((half + 127) << 23) * (f32v)((e - half + 127) << 23);
#endif
}
/* x between lo and hi; NaN stays, and through what follows: a NaN times any scale is one. */
TF f32v tf_between(f32v x, float lo, float hi) {
#if defined(__AVX__) && TF_LANES == 8
    return (f32v)_mm256_max_ps(_mm256_set1_ps(lo), _mm256_min_ps(_mm256_set1_ps(hi), (__m256)x));
#elif defined(__AVX512F__) && TF_LANES == 16
    return (f32v)_mm512_max_ps(_mm512_set1_ps(lo), _mm512_min_ps(_mm512_set1_ps(hi), (__m512)x));
#else
    x = tf_pick_f32(x > hi, tf_splat_f32(hi), x);
    return tf_pick_f32(x < lo, tf_splat_f32(lo), x);
#endif
}
/* The nearest integer of |x| < 2^22, from what is added to it: halves to even. */
#define TF_MAGIC 12582912.0f
#if defined(__AVX512DQ__) && TF_LANES == 16
/* What is out of range has a rest without meaning, which is cut to [-0.36, 0.36] (of a NaN, too):
 * 2^n alone is then 0, infinite or NaN. */
TF f32v tf_exp_f32(f32v x) {
    f32v n = tf_fma_f32(x, tf_splat_f32(1.44269504f), tf_splat_f32(TF_MAGIC)) - TF_MAGIC;
    f32v r = tf_fma_f32(n, tf_splat_f32(-0x1.62e4p-1f), x);
    r = tf_fma_f32(n, tf_splat_f32(-0x1.7f7d1cp-20f), r);
    r = (f32v)_mm512_range_ps((__m512)r, _mm512_set1_ps(0.36f), 2);
    return tf_scale(tf_exp_core(r), n);
}
/* x = k/16 + f, k whole, 0 <= f <= 1/16: 2^(k mod 16 / 16) by a table whose index is the low bits
 * of k, 2^f by a cubic fitted to 4.5e-9 relative, then 2 to the power of the rest: 1.1 units in the
 * last place. The index of what is out of range has no meaning, but its factor is from 1 to 2: the
 * power alone is then 0 or infinite. */
TF f32v tf_exp2_f32(f32v x) {
    const __m512 powers = {
        1.0f, 1.04427378f, 1.09050773f, 1.13878863f, 1.18920712f, 1.24185781f,
        1.29683955f, 1.35425555f, 1.41421356f, 1.47682615f, 1.54221083f, 1.61049033f,
        1.68179283f, 1.75625216f, 1.83400809f, 1.91520656f
    };
    __m512 k = _mm512_add_round_ps((__m512)x, _mm512_set1_ps(0x1.8p19f), _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    f32v t = (f32v)_mm512_permutexvar_ps((__m512i)k, powers);
    f32v f = (f32v)_mm512_reduce_ps((__m512)x, 4 << 4 | 1);
    f32v p = tf_fma_f32(f, tf_splat_f32(5.64146625e-2f), tf_splat_f32(2.40205107e-1f));
    p = tf_fma_f32(p, f, tf_splat_f32(6.93147255e-1f));
    return (f32v)_mm512_scalef_ps((__m512)tf_fma_f32(p, f * t, t), (__m512)x);
}
#else
TF f32v tf_exp_f32(f32v x) {
    f32v t = tf_between(x, -106.0f, 90.0f);
    f32v n = tf_fma_f32(t, tf_splat_f32(1.44269504f), tf_splat_f32(TF_MAGIC)) - TF_MAGIC;
    f32v r = tf_fma_f32(n, tf_splat_f32(-0x1.62e4p-1f), t);
    r = tf_fma_f32(n, tf_splat_f32(-0x1.7f7d1cp-20f), r);
    return tf_scale(tf_exp_core(r), n);
}
#if defined(__AVX2__) && TF_LANES == 8
/* x = k/8 + f, k whole, |f| <= 1/16: 2^(k mod 8 / 8) by a table whose index is the low bits of k,
 * 2^f by a cubic fitted to 2.7e-8 relative, then 2 to the power of the rest in two steps, as in
 * tf_scale: 1.2 units in the last place. What is added to x has eighths as its last place, and
 * twice the bias of exponents. */
TF f32v tf_exp2_f32(f32v x) {
    const __m256 powers = {
        1.0f, 1.09050773f, 1.18920712f, 1.29683955f, 1.41421356f, 1.54221083f, 1.68179283f, 1.83400809f
    };
    const float magic = 0x1.8p20f + 254;
    f32v v = tf_between(x, -152.0f, 130.0f), k = v + magic, f = v - (k - magic);
    f32v t = (f32v)_mm256_permutevar8x32_ps(powers, (__m256i)k);
    f32v p = tf_fma_f32(f, tf_splat_f32(5.54962233e-2f), tf_splat_f32(2.40257636e-1f));
    p = tf_fma_f32(p, f, tf_splat_f32(6.93147242e-1f));
    u32v e = (u32v)k >> 3, half = (u32v)k >> 4;
    return tf_fma_f32(p, f * t, t) * (f32v)(half << 23) * (f32v)((e - half) << 23);
}
#else
TF f32v tf_exp2_f32(f32v x) {
    f32v t = tf_between(x, -152.0f, 130.0f);
    f32v n = (t + TF_MAGIC) - TF_MAGIC;
    return tf_scale(tf_exp_core((t - n) * 0.693147181f), n);
}
#endif
#endif
/* x = 2^e * (1 + f), 1 + f between the roots of 1/2 and 2: ln(1 + f) = 2 atanh(s), s = f / (2 + f),
 * which is f - s * (f - 2 z * series), z = s^2. */
typedef struct { f32v e, f, tail; } tf_log_parts;
TF tf_log_parts tf_log_split(f32v x) {
    i32v tiny = x < 0x1p-126f;
    x = tf_pick_f32(tiny, x * 0x1p23f, x);
    i32v u = (i32v)x - 0x3f3504f3;
    i32v e = (u >> 23) - (tiny & 23);
    f32v f = (f32v)((u & 0x007fffff) + 0x3f3504f3) - 1.0f;
    f32v s = f / (2.0f + f), z = s * s;
    f32v p = tf_fma_f32(z, tf_splat_f32(2.0f / 11), tf_splat_f32(2.0f / 9));
    p = tf_fma_f32(p, z, tf_splat_f32(2.0f / 7));
    p = tf_fma_f32(p, z, tf_splat_f32(2.0f / 5));
    p = tf_fma_f32(p, z, tf_splat_f32(2.0f / 3));
    return (tf_log_parts){tf_to(f32, e), f, s * (p * z - f)};
}
TF f32v tf_log_ends(f32v x, f32v y) {
    y = tf_pick_f32(x == 0.0f, tf_splat_f32(-INFINITY), y);
    y = tf_pick_f32((x < 0.0f) | (x != x), tf_splat_f32(NAN), y);
    return tf_pick_f32(x == INFINITY, x, y);
}
TF f32v tf_log_f32(f32v x) {
    tf_log_parts p = tf_log_split(x);
    f32v low = tf_fma_f32(p.e, tf_splat_f32(0x1.7f7d1cp-20f), p.tail);
    return tf_log_ends(x, tf_fma_f32(p.e, tf_splat_f32(0x1.62e4p-1f), low + p.f));
}
TF f32v tf_log2_f32(f32v x) {
    tf_log_parts p = tf_log_split(x);
    /* log2(e) = 1.4375 + 0.00519504; the first product is exact to half a bit */
    f32v low = (p.f + p.tail) * 0.00519504089f + p.tail * 1.4375f;
    return tf_log_ends(x, p.e + tf_fma_f32(p.f, tf_splat_f32(1.4375f), low));
}
TF f32v tf_tanh_f32(f32v x) {
    f32v a = tf_abs_f32(x), z = x * x;
    f32v p = tf_fma_f32(z, tf_splat_f32(21844.0f / 6081075), tf_splat_f32(-1382.0f / 155925));
    p = tf_fma_f32(p, z, tf_splat_f32(62.0f / 2835));
    p = tf_fma_f32(p, z, tf_splat_f32(-17.0f / 315));
    p = tf_fma_f32(p, z, tf_splat_f32(2.0f / 15));
    p = tf_fma_f32(p, z, tf_splat_f32(-1.0f / 3));
    f32v small = tf_fma_f32(p * z, x, x);
    f32v big = 1.0f - 2.0f / (tf_exp_f32(a + a) + 1.0f);
    big = (f32v)((i32v)big | ((i32v)x & (int32_t)0x80000000));
    return tf_pick_f32(x == x, tf_pick_f32(a < 0.45f, small, big), x);
}
/* Up to 1: x times a polynomial in x^2. Above: 1 - e^-q(x - 2.5), q a polynomial close to
 * -ln erfc. Coefficients are least squares fits at Chebyshev nodes, in float64. */
TF f32v tf_erf_f32(f32v x) {
    f32v a = tf_abs_f32(x), z = x * x;
    f32v p = tf_fma_f32(z, tf_splat_f32(-9.67359319e-06f), tf_splat_f32(1.12682537e-04f));
    p = tf_fma_f32(p, z, tf_splat_f32(-8.48439639e-04f));
    p = tf_fma_f32(p, z, tf_splat_f32(5.22105349e-03f));
    p = tf_fma_f32(p, z, tf_splat_f32(-2.68654376e-02f));
    p = tf_fma_f32(p, z, tf_splat_f32(1.12837829e-01f));
    p = tf_fma_f32(p, z, tf_splat_f32(-3.76126379e-01f));
    p = tf_fma_f32(p, z, tf_splat_f32(1.12837923e+00f));
    f32v t = tf_pick_f32(a > 4.0f, tf_splat_f32(1.5f), a - 2.5f);
    f32v q = tf_fma_f32(t, tf_splat_f32(-1.61406160e-06f), tf_splat_f32(1.33093899e-05f));
    q = tf_fma_f32(q, t, tf_splat_f32(-7.73944266e-05f));
    q = tf_fma_f32(q, t, tf_splat_f32(4.20144555e-04f));
    q = tf_fma_f32(q, t, tf_splat_f32(-2.16516037e-03f));
    q = tf_fma_f32(q, t, tf_splat_f32(1.08585171e-02f));
    q = tf_fma_f32(q, t, tf_splat_f32(9.43893611e-01f));
    q = tf_fma_f32(q, t, tf_splat_f32(5.35268068e+00f));
    q = tf_fma_f32(q, t, tf_splat_f32(7.80681515e+00f));
    f32v big = 1.0f - tf_exp_f32(-q);
    big = (f32v)((i32v)big | ((i32v)x & (int32_t)0x80000000));
    return tf_pick_f32(x == x, tf_pick_f32(a < 1.0f, p * x, big), x);
}
TF f32v tf_rsqrt_f32(f32v x) { return 1.0f / tf_sqrt_f32(x); }
/* 1 / (1 + e^-x), below 0 as e^x / (1 + e^x): nothing overflows. */
TF f32v tf_sigmoid_f32(f32v x) {
    f32v e = tf_exp_f32(-tf_abs_f32(x));
    return tf_pick_f32(x < 0.0f, e, tf_splat_f32(1.0f)) / (1.0f + e);
}
TF f32v tf_silu_f32(f32v x) {
    f32v e = tf_exp_f32(-tf_abs_f32(x));
    return x * tf_pick_f32(x < 0.0f, e, tf_splat_f32(1.0f)) / (1.0f + e);
}
TF f32v tf_softplus_f32(f32v x) {
    f32v u = tf_exp_f32(x), w = u + 1.0f;
    return tf_pick_f32(x > 20.0f, x, tf_log_f32(w) + (u - (w - 1.0f)) / w);
}
TF f32v tf_gelu_f32(f32v x) { return 0.5f * x * (1.0f + tf_erf_f32(x * 0.707106781f)); }
TF f32v tf_gelu_tanh_f32(f32v x) {
    f32v inner = 0.797884561f * (x + 0.044715f * (x * x * x));
    return 0.5f * x * (1.0f + tf_tanh_f32(inner));
}

/* The C library's functions, lane by lane. */
#define TF_LIBRARY1(name, f, t) TF t##v tf_##name##_##t(t##v x) { t##v r; TF_EACH r[l] = f(x[l]); return r; }
#define TF_LIBRARY2(name, f, t) TF t##v tf_##name##_##t(t##v x, t##v y) { t##v r; TF_EACH r[l] = f(x[l], y[l]); return r; }
TF_LIBRARY1(sin, sinf, f32)
TF_LIBRARY1(cos, cosf, f32)
TF_LIBRARY2(pow, powf, f32)
TF_LIBRARY1(sqrt, sqrt, f64)
TF_LIBRARY1(rint, rint, f64)
TF_LIBRARY1(floor, floor, f64)
TF_LIBRARY1(ceil, ceil, f64)
TF_LIBRARY1(exp, exp, f64)
TF_LIBRARY1(exp2, exp2, f64)
TF_LIBRARY1(log, log, f64)
TF_LIBRARY1(log2, log2, f64)
TF_LIBRARY1(tanh, tanh, f64)
TF_LIBRARY1(erf, erf, f64)
TF_LIBRARY1(sin, sin, f64)
TF_LIBRARY1(cos, cos, f64)
TF_LIBRARY2(pow, pow, f64)
TF f64 tf_one_softplus(f64 x) { return x > 20 ? x : log1p(exp(x)); }
TF_LIBRARY1(softplus, tf_one_softplus, f64)
TF f32 tf_one_remainder(f32 x, f32 y) { f32 r = fmodf(x, y); return r != 0 && (r < 0) != (y < 0) ? r + y : r; }
TF f64 tf_wide_remainder(f64 x, f64 y) { f64 r = fmod(x, y); return r != 0 && (r < 0) != (y < 0) ? r + y : r; }
TF_LIBRARY2(remainder, tf_one_remainder, f32)
TF_LIBRARY2(remainder, tf_wide_remainder, f64)
#undef TF_LIBRARY1
#undef TF_LIBRARY2
/* The quotient's floor, from the exact remainder. */
TF f32 tf_one_floor_div(f32 x, f32 y) {
    if (y == 0) return x / y;
    f32 m = fmodf(x, y), q = (x - m) / y;
    if (m != 0 && (y < 0) != (m < 0)) q -= 1;
    if (q == 0) return copysignf(0, x / y);
    f32 f = floorf(q);
    return q - f > 0.5f ? f + 1 : f;
}
TF f64 tf_wide_floor_div(f64 x, f64 y) {
    if (y == 0) return x / y;
    f64 m = fmod(x, y), q = (x - m) / y;
    if (m != 0 && (y < 0) != (m < 0)) q -= 1;
    if (q == 0) return copysign(0, x / y);
    f64 f = floor(q);
    return q - f > 0.5 ? f + 1 : f;
}
TF f32v tf_floor_div_f32(f32v a, f32v b) { f32v r; TF_EACH r[l] = tf_one_floor_div(a[l], b[l]); return r; }
TF f64v tf_floor_div_f64(f64v a, f64v b) { f64v r; TF_EACH r[l] = tf_wide_floor_div(a[l], b[l]); return r; }
TF f64v tf_rsqrt_f64(f64v x) { return 1.0 / tf_sqrt_f64(x); }
TF f64v tf_sigmoid_f64(f64v x) { return 1.0 / (1.0 + tf_exp_f64(-x)); }
TF f64v tf_silu_f64(f64v x) { return x / (1.0 + tf_exp_f64(-x)); }
TF f64v tf_gelu_f64(f64v x) { return 0.5 * x * (1.0 + tf_erf_f64(x * 0.70710678118654752440)); }
TF f64v tf_gelu_tanh_f64(f64v x) {
    return 0.5 * x * (1.0 + tf_tanh_f64(0.79788456080286535588 * (x + 0.044715 * (x * x * x))));
}

/* 32 bits of each lane: neighbours along k, lowest first. */
TF u32v tf_splat_word(const void *p) { uint32_t w; memcpy(&w, p, 4); return w - (u32v){0}; }
TF u32v tf_load_words(const void *p) { u32v r; memcpy(&r, p, sizeof r); return r; }
TF u32v tf_words_2(u32v a, u32v b) { return a | b << 16; }
TF u32v tf_words_4(u32v a, u32v b, u32v c, u32v d) { return a | b << 8 | c << 16 | d << 24; }
#define tf_bits_16(x) __builtin_convertvector(x, u32v)
#define tf_bits_8(x) (__builtin_convertvector(x, u32v) & 0xff)

#endif
