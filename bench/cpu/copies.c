/* What memory gives: copies and reads of `bytes` bytes, shared among `threads` threads.
 *
 * copy_library: memcpy; copy_vectors: whole vectors, stored as programs do; copy_stream: vectors
 * stored past the caches, PAGES pages side by side. read_vectors: one stream for each thread;
 * read_pages: PAGES pages side by side. `bytes` is a multiple of 64 KiB times the threads.
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
#define MINE size_t part = bytes / omp_get_num_threads(), from = part * omp_get_thread_num()

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

void copy_stream(char *to, const char *x, size_t bytes, int threads) {
    SHARED(threads) {
        MINE;
        for (size_t b = from; b < from + part; b += PAGES * PAGE)
            for (size_t i = b; i < b + PAGE; i += WIDTH)
                for (int p = 0; p < PAGES; p++)
                    STREAM((vec *)(to + i + p * PAGE), *(const vec *)(x + i + p * PAGE));
#if defined(__AVX__)
        _mm_sfence();
#endif
    }
}

static void taken(const char *x, size_t part, size_t pages) {
    vec a[8];
    memset(a, 0, sizeof a);
    for (size_t b = 0; b < part; b += pages * PAGE)
        for (size_t i = b; i < b + PAGE; i += 8 / pages * WIDTH)
            for (size_t j = 0; j < 8; j++)
                a[j] |= *(const vec *)(x + i + j % (8 / pages) * WIDTH + j / (8 / pages) * PAGE);
    for (int j = 1; j < 8; j++) a[0] |= a[j];
    __asm__ volatile("" : : "m"(a[0]));
}

void read_vectors(char *to, const char *x, size_t bytes, int threads) {
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
