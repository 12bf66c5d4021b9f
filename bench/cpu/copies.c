/* What memory gives: copies and reads of `bytes` bytes, shared among `threads` threads.
 *
 * copy_library: memcpy; copy_vectors: whole vectors, stored as programs do; copy_stream: vectors
 * stored past the caches in order; copy_pages: the same with PAGES pages side by side. read_stream
 * and read_pages: reads in these orders. Which of them is the fastest depends on how a processor's
 * prefetchers follow addresses. `bytes` is a multiple of GRAIN.
 */
#include <omp.h>
#include <stddef.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define WIDTH 64
#define STREAM(p, v) _mm512_stream_si512((void *)(p), (__m512i)(v))
#elif defined(__AVX__)
#define WIDTH 32
#define STREAM(p, v) _mm256_stream_si256((void *)(p), (__m256i)(v))
#else
#define WIDTH 16
#define STREAM(p, v) (*(p) = (v))
#endif
#define PAGE 4096
#define PAGES 4
typedef long long vec __attribute__((vector_size(WIDTH)));

#define SHARED(threads) _Pragma("omp parallel num_threads(threads)")
#define GRAIN 65536
#define LESS(a, b) ((a) < (b) ? (a) : (b))
/* This thread's bytes: whole grains, of which the last threads may have fewer. */
#define MINE \
    size_t each = (bytes / GRAIN + omp_get_num_threads() - 1) / omp_get_num_threads() * GRAIN; \
    size_t from = LESS(each * omp_get_thread_num(), bytes), part = LESS(each, bytes - from)

void copy_library(char *to, const char *x, size_t bytes, int threads) {
    SHARED(threads) {
        MINE;
        memcpy(to + from, x + from, part);
    }
}

void copy_vectors(char *to, const char *x, size_t bytes, int threads) {
    SHARED(threads) {
        MINE;
        for (size_t i = from; i < from + part; i += 4 * WIDTH)
            for (int j = 0; j < 4; j++) *(vec *)(to + i + j * WIDTH) = *(const vec *)(x + i + j * WIDTH);
    }
}

/* A compiler may not take what follows before what is above: prefetchers see this order. */
#define ORDER __asm__ volatile("" : : : "memory")

static inline __attribute__((always_inline)) void streamed(
    char *to, const char *x, size_t part, size_t pages, size_t vectors
) {
    for (size_t b = 0; b < part; b += pages * PAGE)
        for (size_t i = b; i < b + PAGE; i += vectors * WIDTH)
            for (size_t p = 0; p < pages; p++) {
                for (size_t j = 0; j < vectors; j++)
                    STREAM((vec *)(to + i + p * PAGE) + j, ((const vec *)(x + i + p * PAGE))[j]);
                ORDER;
            }
#if defined(__AVX__)
    _mm_sfence();
#endif
}

void copy_stream(char *to, const char *x, size_t bytes, int threads) {
    SHARED(threads) {
        MINE;
        streamed(to + from, x + from, part, 1, 4);
    }
}

void copy_pages(char *to, const char *x, size_t bytes, int threads) {
    SHARED(threads) {
        MINE;
        streamed(to + from, x + from, part, PAGES, 64 / WIDTH);
    }
}

static inline __attribute__((always_inline)) void taken(const char *x, size_t part, size_t pages) {
    vec a[PAGES] = {{0}};
    for (size_t b = 0; b < part; b += pages * PAGE)
        for (size_t i = b; i < b + PAGE; i += PAGES / pages * WIDTH) {
            for (size_t j = 0; j < PAGES; j++)
                a[j] |= *(const vec *)(x + i + j % (PAGES / pages) * WIDTH + j / (PAGES / pages) * PAGE);
            ORDER;
        }
    vec all = a[0];
    for (int j = 1; j < PAGES; j++) all |= a[j];
    __asm__ volatile("" : : "m"(all));
}

void read_stream(char *to, const char *x, size_t bytes, int threads) {
    (void)to;
    SHARED(threads) {
        MINE;
        taken(x + from, part, 1);
    }
}

void read_pages(char *to, const char *x, size_t bytes, int threads) {
    (void)to;
    SHARED(threads) {
        MINE;
        taken(x + from, part, PAGES);
    }
}
