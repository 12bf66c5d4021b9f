/* (x * x + x) * x on half floats, one pass: each operation in float, rounded to half. */
#include <stddef.h>
#include <stdint.h>

#if defined(__F16C__)
#include <immintrin.h>

static inline __m256 rounded(__m256 v) {
    return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

static void eight(const uint16_t *in, uint16_t *out) {
    __m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)in));
    __m256 a = rounded(_mm256_mul_ps(x, x));
    __m256 b = rounded(_mm256_add_ps(a, x));
    __m128i y = _mm256_cvtps_ph(_mm256_mul_ps(b, x), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128((__m128i *)out, y);
}
#else
static void eight(const uint16_t *in, uint16_t *out) {
    for (int i = 0; i < 8; ++i) {
        union { uint16_t bits; _Float16 value; } v = {in[i]};
        float x = v.value;
        _Float16 a = (_Float16)(x * x);
        _Float16 b = (_Float16)((float)a + x);
        v.value = (_Float16)((float)b * x);
        out[i] = v.bits;
    }
}
#endif

/* n counts elements and is a multiple of 8. */
void chain(const uint16_t *in, uint16_t *out, ptrdiff_t n) {
#pragma omp parallel for schedule(static)
    for (ptrdiff_t i = 0; i < n; i += 8) eight(in + i, out + i);
}
