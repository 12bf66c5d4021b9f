/* Measures one CPU: clock, bandwidth of each memory, multiply-add throughput.
 *
 * tf_probe CPUS REPS [MEMORY OWN BYTES]...
 *
 * CPUS: processor numbers joined by commas, one thread on each of the first n of them; MEMORY:
 * a name; OWN: 1 if each processor has its own; BYTES that each thread reads, half of them source
 * and half of them destination of a copy; the last one lies behind all caches. One line for each figure on stdout:
 *
 *     KIND NAME THREADS VALUE
 *
 * clock in Hz; read and pages (reads), copy, move, stream and flow (copies) in bytes/s (a copy counts
 * what it reads and what it writes); fma in flop/s, dot and tile in op/s: a multiply-add counts two.
 */
#define _GNU_SOURCE
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __linux__
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#define IN_REGISTER "+v"
#elif defined(__aarch64__)
#define IN_REGISTER "+w"
#else
#define IN_REGISTER "+m"
#endif

#if defined(__AVX512F__)
#define WIDTH 64
#elif defined(__AVX2__)
#define WIDTH 32
#else
#define WIDTH 16
#endif

#define MOST 1024
#define SECONDS 0.004
typedef float vf32 __attribute__((vector_size(WIDTH)));
typedef double vf64 __attribute__((vector_size(WIDTH)));
typedef uint64_t vec __attribute__((vector_size(WIDTH)));

static int cpus[MOST], count, reps;
static char *buffers[MOST];
static size_t size;

static void pin(int thread) {
#ifdef __linux__
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpus[thread], &set);
    sched_setaffinity(0, sizeof set, &set);
#endif
}

/* ---- what a thread does `times` times; each returns the operations or bytes of one time */

static double clock_work(long times) {
#if defined(__x86_64__)
    uint64_t x = 3;
    for (long i = 0; i < times; i++) {
        /* 16 dependent 64-bit multiplications: three clocks each on every x86-64 core since 2008 */
#define MUL "imul %0, %0\n\t"
        __asm__ volatile(MUL MUL MUL MUL MUL MUL MUL MUL MUL MUL MUL MUL MUL MUL MUL MUL : "+r"(x));
    }
    return 16 * 3;
#elif defined(__aarch64__)
    uint64_t x = 3;
    for (long i = 0; i < times; i++) {
        /* 16 dependent additions of a register to itself: one clock each */
#define DOUBLED "add %0, %0, %0\n\t"
        __asm__ volatile(DOUBLED DOUBLED DOUBLED DOUBLED DOUBLED DOUBLED DOUBLED DOUBLED DOUBLED DOUBLED
                         DOUBLED DOUBLED DOUBLED DOUBLED DOUBLED DOUBLED : "+r"(x));
    }
    return 16;
#else
    (void)times;
    return 0;
#endif
}

/* Twelve independent chains: more than two units times four clocks need, and they fit into
 * sixteen registers beside the factors. Variables of their own stay in registers. */
#define CHAINS 12
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define KEPT                                                                                 \
    __asm__ volatile(""                                                                      \
                     : IN_REGISTER(x0), IN_REGISTER(x1), IN_REGISTER(x2), IN_REGISTER(x3),   \
                       IN_REGISTER(x4), IN_REGISTER(x5), IN_REGISTER(x6), IN_REGISTER(x7),   \
                       IN_REGISTER(x8), IN_REGISTER(x9), IN_REGISTER(x10), IN_REGISTER(x11))
#define SET(C) x##C = a + (float)C;
#define CLEAR(C) x##C = a ^ a;
#define ADD(C) x##C = x##C * m + a;

static double fma_f32(long times) {
    vf32 x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, m = {0}, a = {0};
    m += 0.999f, a += 1e-3f;
    EACH(SET)
    for (long i = 0; i < times; i++) {
        EACH(ADD)
        KEPT;
    }
    return 2.0 * CHAINS * (WIDTH / sizeof(float));
}

static double fma_f64(long times) {
    vf64 x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, m = {0}, a = {0};
    m += 0.999, a += 1e-3;
    EACH(SET)
    for (long i = 0; i < times; i++) {
        EACH(ADD)
        KEPT;
    }
    return 2.0 * CHAINS * (WIDTH / sizeof(double));
}

#if defined(__AVX512BF16__)
#define ZERO(C) x##C = _mm512_setzero_ps();
#define DOT(C) x##C = _mm512_dpbf16_ps(x##C, a, b);
static double dot_bf16(long times) {
    __m512 x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11;
    __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f80), b = a;
    EACH(ZERO)
    for (long i = 0; i < times; i++) {
        EACH(DOT)
        KEPT;
    }
    return 2.0 * CHAINS * 32;
}
#endif

#if defined(__AVX512VNNI__)
#define DOT8(C) x##C = _mm512_dpbusd_epi32(x##C, a, b);
static double dot_i8(long times) {
    __m512i x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, a = _mm512_set1_epi8(3), b = a;
    EACH(CLEAR)
    for (long i = 0; i < times; i++) {
        EACH(DOT8)
        KEPT;
    }
    return 2.0 * CHAINS * 64;
}
#endif

#if defined(__AMX_TILE__) && defined(__linux__)
static int tiles_allowed(void) {
    /* Linux, Documentation/arch/x86/xstate.rst: ARCH_REQ_XCOMP_PERM for XTILE_DATA */
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}

static void tiles_configured(void) {
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } __attribute__((packed)) config;
    memset(&config, 0, sizeof config);
    config.palette = 1;
    for (int t = 0; t < 8; t++) config.bytes[t] = 64, config.rows[t] = 16;
    __asm__ volatile("" : : "m"(config)); /* GCC's intrinsic says that it reads 8 bytes */
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
}

#if defined(__AMX_BF16__)
static double tile_bf16(long times) {
    tiles_configured();
    for (long i = 0; i < times; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    return 4 * 2.0 * 16 * 16 * 32;
}
#endif

#if defined(__AMX_INT8__)
static double tile_i8(long times) {
    tiles_configured();
    for (long i = 0; i < times; i++) {
        _tile_dpbusd(0, 4, 6);
        _tile_dpbusd(1, 4, 7);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
    }
    _tile_release();
    return 4 * 2.0 * 16 * 16 * 64;
}
#endif
#endif

#define TAKE(C) x##C |= from[j + C];
static double read_work(long times) {
    const vec *from = (const vec *)buffers[omp_get_thread_num()];
    vec a = {0};
    size_t n = size / sizeof(vec) / CHAINS * CHAINS;
    vec x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11;
    EACH(CLEAR)
    for (long i = 0; i < times; i++) {
        for (size_t j = 0; j < n; j += CHAINS) {
            EACH(TAKE)
            KEPT;
        }
        __asm__ volatile("" ::: "memory");
    }
    return (double)n * sizeof(vec);
}

#define HOLD(C) vec x##C = from[j + C];
#define GIVE(C) to[j + C] = x##C;
static double copy_work(long times) {
    const vec *from = (const vec *)buffers[omp_get_thread_num()];
    size_t n = size / 2 / sizeof(vec) / CHAINS * CHAINS;
    vec *to = (vec *)from + n;
    for (long i = 0; i < times; i++) {
        for (size_t j = 0; j < n; j += CHAINS) {
            EACH(HOLD)
            EACH(GIVE)
        }
        __asm__ volatile("" ::: "memory");
    }
    return 2.0 * n * sizeof(vec);
}

/* The library's copy: past the caches where it is large. */
static double move_work(long times) {
    char *x = buffers[omp_get_thread_num()];
    for (long i = 0; i < times; i++) {
        memcpy(x + size / 2, x, size / 2);
        __asm__ volatile("" ::: "memory");
    }
    return 2.0 * (size / 2);
}

/* SIDE pages side by side: each has a prefetcher of its own. */
#define PAGE 4096
#define SIDE 4
static double pages_work(long times) {
    const char *from = buffers[omp_get_thread_num()];
    size_t n = size / (SIDE * PAGE) * (SIDE * PAGE);
    vec x[SIDE][2];
    memset(x, 0, sizeof x);
    for (long i = 0; i < times; i++) {
        for (size_t b = 0; b < n; b += SIDE * PAGE)
            for (size_t j = b; j < b + PAGE; j += 2 * sizeof(vec))
                for (int p = 0; p < SIDE; p++)
                    for (int v = 0; v < 2; v++)
                        x[p][v] |= *(const vec *)(from + j + p * PAGE + v * sizeof(vec));
        __asm__ volatile("" ::: "memory");
    }
    __asm__ volatile("" : : "m"(x));
    return (double)n;
}

/* The same copied, by stores past the caches: the destination is not read first. */
#if defined(__AVX512F__)
#define PAST(p, v) _mm512_stream_si512((void *)(p), (__m512i)(v))
#elif defined(__AVX2__)
#define PAST(p, v) _mm256_stream_si256((void *)(p), (__m256i)(v))
#elif defined(__x86_64__)
#define PAST(p, v) _mm_stream_si128((void *)(p), (__m128i)(v))
#endif
#if defined(PAST)
static double past_work(long times, size_t side) {
    const char *from = buffers[omp_get_thread_num()];
    size_t n = size / 2 / (SIDE * PAGE) * (SIDE * PAGE);
    char *to = (char *)from + n;
    for (long i = 0; i < times; i++) {
        for (size_t b = 0; b < n; b += side * PAGE)
            for (size_t j = b; j < b + PAGE; j += sizeof(vec)) {
                for (size_t p = 0; p < side; p++)
                    PAST(to + j + p * PAGE, *(const vec *)(from + j + p * PAGE));
                __asm__ volatile("" ::: "memory"); /* prefetchers see this order */
            }
        _mm_sfence();
    }
    return 2.0 * n;
}
static double stream_work(long times) { return past_work(times, SIDE); }
static double flow_work(long times) { return past_work(times, 1); }
#endif

typedef double work(long times);

static double thread_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

/* Seconds of `times` times on `threads` threads; `each` is what one thread's time does. What a
 * processor does alone is timed by the processor time of the slowest thread, so that other
 * processes do not count; what is shared is timed by the clock on the wall. */
static double run(work *f, int threads, long times, double *each, int alone) {
    double begin = 0, end = 0, amount = 0, slowest = 0;
#pragma omp parallel num_threads(threads)
    {
        pin(omp_get_thread_num());
        f(1);
#pragma omp barrier
#pragma omp master
        begin = omp_get_wtime();
#pragma omp barrier
        double from = thread_seconds(), mine = f(times), took = thread_seconds() - from;
#pragma omp critical
        if (took > slowest) slowest = took;
#pragma omp barrier
#pragma omp master
        end = omp_get_wtime(), amount = mine;
    }
    *each = amount;
    return alone ? slowest : end - begin;
}

static void measure(const char *kind, const char *name, work *f, int threads, int scaled,
                    int alone) {
    double each = 0, took = 0;
    long times = 1;
    for (;;) {
        took = run(f, threads, times, &each, alone);
        for (int r = 0; r < 2; r++) { /* an interrupted run is no measure of how long one takes */
            double again = run(f, threads, times, &each, alone);
            if (again < took) took = again;
        }
        if (took >= SECONDS / 2 || each == 0 || times > (1L << 40)) break;
        times = took > SECONDS / 16 ? (long)(times * SECONDS / took) + 1 : times * 8;
    }
    for (int r = 0; r < reps && each > 0; r++) {
        took = run(f, threads, times, &each, alone);
        printf("%s %s %d %.9g\n", kind, name, threads, each * times * (scaled ? threads : 1) / took);
        fflush(stdout);
    }
}

static int next(int threads) {
    return threads == count ? count + 1 : threads * 2 < count ? threads * 2 : count;
}

int main(int argc, char **argv) {
    if (argc < 3 || argc % 3) return 2;
    for (char *word = strtok(argv[1], ","); word && count < MOST; word = strtok(NULL, ","))
        cpus[count++] = atoi(word);
    reps = atoi(argv[2]);
    omp_set_dynamic(0);
    for (int t = 1; t <= count; t = next(t)) measure("clock", "core", clock_work, t, 0, 1);
    for (int t = 1; t <= count; t = next(t)) {
        measure("fma", "f32", fma_f32, t, 1, 1);
        measure("fma", "f64", fma_f64, t, 1, 1);
#if defined(__AVX512BF16__)
        measure("dot", "bf16", dot_bf16, t, 1, 1);
#endif
#if defined(__AVX512VNNI__)
        measure("dot", "i8", dot_i8, t, 1, 1);
#endif
#if defined(__AMX_TILE__) && defined(__linux__)
        if (tiles_allowed()) {
#if defined(__AMX_BF16__)
            measure("tile", "bf16", tile_bf16, t, 1, 1);
#endif
#if defined(__AMX_INT8__)
            measure("tile", "i8", tile_i8, t, 1, 1);
#endif
        }
#endif
    }
    for (int a = 3; a + 2 < argc; a += 3) {
        int own = atoi(argv[a + 1]);
        size = strtoull(argv[a + 2], NULL, 10) / 4096 * 4096;
        for (int t = 1; t <= count; t = next(t)) {
            int failed = 0;
#pragma omp parallel num_threads(t)
            {
                int me = omp_get_thread_num();
                pin(me);
                buffers[me] = aligned_alloc(4096, size);
                if (buffers[me]) memset(buffers[me], 1, size); /* its pages lie near it */
                else failed = 1;
            }
            if (!failed) {
                measure("read", argv[a], read_work, t, 1, own);
                measure("copy", argv[a], copy_work, t, 1, own);
                measure("move", argv[a], move_work, t, 1, own);
                if (!own) measure("pages", argv[a], pages_work, t, 1, own);
#if defined(PAST)
                if (a + 5 >= argc) measure("stream", argv[a], stream_work, t, 1, own);
                if (a + 5 >= argc) measure("flow", argv[a], flow_work, t, 1, own);
#endif
            }
            for (int me = 0; me < t; me++) free(buffers[me]);
        }
    }
    return 0;
}
