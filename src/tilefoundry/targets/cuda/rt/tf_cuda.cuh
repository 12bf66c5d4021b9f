// What emitted kernels call: memory accesses, conversions, arithmetic, synchronisation.
// Each function is one instruction or a few; PTX ISA names are in the comments.
#pragma once

#ifndef __CUDACC_RTC__
#include <stdint.h>
#else
typedef unsigned char uint8_t;
typedef signed char int8_t;
typedef unsigned short uint16_t;
typedef short int16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;
#endif

#define TF __device__ __forceinline__

// A tensor map as the driver encodes it (CUtensorMap).
struct alignas(64) TensorMap {
    uint64_t words[16];
};

// Index arithmetic, of 32 bits or 64: division and remainder round down.

template <class A, class B>
TF constexpr auto tf_div(A a, B b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
template <class A, class B>
TF constexpr auto tf_mod(A a, B b) { return a - tf_div(a, b) * b; }
template <class A, class B>
TF constexpr auto tf_min(A a, B b) { return a < b ? a : b; }
template <class A, class B>
TF constexpr auto tf_max(A a, B b) { return a > b ? a : b; }

template <int B, int M, int S>
TF constexpr int tf_swizzle(int byte) {
    return byte ^ ((byte & (((1 << B) - 1) << (M + S))) >> S);
}

// One lane of a whole warp, always the same.
TF bool tf_elect() {
    uint32_t chosen;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "elect.sync _|p, 0xffffffff;\n"
        "selp.b32 %0, 1, 0, p;\n"
        "}"
        : "=r"(chosen));
    return chosen;
}

TF uint32_t tf_shared(const void *at) { return (uint32_t)__cvta_generic_to_shared(at); }
// The same, asked for once: the compiler reads a register of the system for it in every turn of a
// loop else, and waits for that before each barrier.
TF uint32_t tf_shared_start(const void *at) {
    uint32_t start = tf_shared(at);
    asm("" : "+r"(start));
    return start;
}

// Words of a thread's arrays from and to memory, BYTES at once.

template <class T>
TF T tf_as(uint32_t word);
template <>
TF uint32_t tf_as(uint32_t word) { return word; }
template <>
TF float tf_as(uint32_t word) { return __uint_as_float(word); }
template <>
TF int tf_as(uint32_t word) { return (int)word; }
TF uint32_t tf_word(uint32_t x) { return x; }
TF uint32_t tf_word(float x) { return __float_as_uint(x); }
TF uint32_t tf_word(int x) { return (uint32_t)x; }

template <int BYTES, class T>
TF void tf_load(T *to, const void *from) {
    if constexpr (BYTES == 16) {
        uint4 v = *(const uint4 *)from;
        to[0] = tf_as<T>(v.x), to[1] = tf_as<T>(v.y), to[2] = tf_as<T>(v.z), to[3] = tf_as<T>(v.w);
    } else if constexpr (BYTES == 8) {
        uint2 v = *(const uint2 *)from;
        to[0] = tf_as<T>(v.x), to[1] = tf_as<T>(v.y);
    } else {
        to[0] = tf_as<T>(*(const uint32_t *)from);
    }
}

template <int BYTES, class T>
TF void tf_store(void *to, const T *from) {
    if constexpr (BYTES == 16)
        *(uint4 *)to = make_uint4(tf_word(from[0]), tf_word(from[1]), tf_word(from[2]), tf_word(from[3]));
    else if constexpr (BYTES == 8)
        *(uint2 *)to = make_uint2(tf_word(from[0]), tf_word(from[1]));
    else
        *(uint32_t *)to = tf_word(from[0]);
}

template <int COUNT, class T>
TF void tf_fill(T *to, T value) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) to[i] = value;
}

// Elements of a word, widened; words from widened elements, rounded to nearest even.
// 8-bit floats saturate.

template <int LANE>
TF float tf_bf16_at(uint32_t word) {
    return __uint_as_float(LANE ? word & 0xffff0000u : word << 16);
}
template <int LANE>
TF float tf_f16_at(uint32_t word) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((uint16_t)(word >> (16 * LANE))));
    return x;
}
template <int LANE>
TF float tf_fp8e4m3_at(uint32_t word) {
    uint32_t both;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(both) : "h"((uint16_t)(word >> (8 * LANE) & 0xff)));
    return tf_f16_at<0>(both);
}
template <int LANE>
TF float tf_fp8e5m2_at(uint32_t word) {
    uint32_t both;
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(both) : "h"((uint16_t)(word >> (8 * LANE) & 0xff)));
    return tf_f16_at<0>(both);
}
template <int LANE>
TF int tf_i8_at(uint32_t word) { return (int8_t)(word >> (8 * LANE)); }
template <int LANE>
TF int tf_u8_at(uint32_t word) { return (uint8_t)(word >> (8 * LANE)); }
template <int LANE>
TF int tf_i16_at(uint32_t word) { return (int16_t)(word >> (16 * LANE)); }

TF uint32_t tf_pack_bf16(float lo, float hi) {
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(hi), "f"(lo));
    return word;
}
TF uint32_t tf_pack_f16(float lo, float hi) {
    uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(hi), "f"(lo));
    return word;
}
TF uint32_t tf_pack_fp8e4m3(float a, float b, float c, float d) {
    uint16_t lo, hi;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(lo) : "f"(b), "f"(a));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(hi) : "f"(d), "f"(c));
    return lo | (uint32_t)hi << 16;
}
TF uint32_t tf_pack_fp8e5m2(float a, float b, float c, float d) {
    uint16_t lo, hi;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(lo) : "f"(b), "f"(a));
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(hi) : "f"(d), "f"(c));
    return lo | (uint32_t)hi << 16;
}
TF uint32_t tf_pack_i8(int a, int b, int c, int d) {
    return (a & 0xff) | (b & 0xff) << 8 | (c & 0xff) << 16 | (uint32_t)(d & 0xff) << 24;
}
TF uint32_t tf_pack_u8(int a, int b, int c, int d) { return tf_pack_i8(a, b, c, d); }
TF uint32_t tf_pack_i16(int lo, int hi) { return (lo & 0xffff) | (uint32_t)(hi & 0xffff) << 16; }

TF uint32_t tf_join(uint32_t lo, uint32_t hi) { return lo | hi << 16; }
TF uint32_t tf_join(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    return a | b << 8 | c << 16 | d << 24;
}
template <int BITS, int LANE>
TF uint32_t tf_part(uint32_t word) { return word >> (BITS * LANE) & ((1u << BITS) - 1); }
template <int BITS, int LANE>
TF void tf_put(uint32_t &word, uint32_t element) {
    constexpr uint32_t mask = ((1u << BITS) - 1) << (BITS * LANE);
    word = (word & ~mask) | (element << (BITS * LANE) & mask);
}

TF int tf_to_i32(float x) { return (int)x; }
TF int tf_to_i32(double x) { return (int)x; }
TF int64_t tf_to_i64(float x) { return (int64_t)x; }
TF int64_t tf_to_i64(double x) { return (int64_t)x; }

// Two 16-bit floats at once. The result is that of f32 rounded once: 24 bits hold twice the
// significand and two more.

#define TF_PACKED(name, op, type)                                                  \
    TF uint32_t tf_##name##_##type(uint32_t a, uint32_t b) {                       \
        uint32_t word;                                                             \
        asm(op " %0, %1, %2;" : "=r"(word) : "r"(a), "r"(b));                      \
        return word;                                                               \
    }
TF_PACKED(add, "add.rn.f16x2", f16)
TF_PACKED(sub, "sub.rn.f16x2", f16)
TF_PACKED(mul, "mul.rn.f16x2", f16)
TF_PACKED(add, "add.rn.bf16x2", bf16)
TF_PACKED(sub, "sub.rn.bf16x2", bf16)
TF_PACKED(mul, "mul.rn.bf16x2", bf16)
TF_PACKED(minimum, "min.NaN.f16x2", f16)
TF_PACKED(maximum, "max.NaN.f16x2", f16)
TF_PACKED(minimum, "min.NaN.bf16x2", bf16)
TF_PACKED(maximum, "max.NaN.bf16x2", bf16)

// Arithmetic in f32 and f64. NaN goes through minima and maxima.

TF float tf_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
TF double tf_fma(double a, double b, double c) { return __fma_rn(a, b, c); }
TF float tf_minimum(float a, float b) {
    float r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
TF float tf_maximum(float a, float b) {
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
TF double tf_minimum(double a, double b) { return a != a ? a : b != b ? b : fmin(a, b); }
TF double tf_maximum(double a, double b) { return a != a ? a : b != b ? b : fmax(a, b); }
TF float tf_fmin(float a, float b) { return fminf(a, b); }
TF float tf_fmax(float a, float b) { return fmaxf(a, b); }
TF double tf_fmin(double a, double b) { return fmin(a, b); }
TF double tf_fmax(double a, double b) { return fmax(a, b); }
TF int tf_minimum(int a, int b) { return min(a, b); }
TF int tf_maximum(int a, int b) { return max(a, b); }
TF int64_t tf_minimum(int64_t a, int64_t b) { return a < b ? a : b; }
TF int64_t tf_maximum(int64_t a, int64_t b) { return a > b ? a : b; }

// a / b: a times the reciprocal of b as a sum of two numbers, which the compiler keeps for all
// that is divided by it: within 0.51 units in the last place, or one of the smallest numbers.
// The first number is below the reciprocal, so that the second has its sign and infinities come
// out right; divisors far from 1 are scaled, so that both are normal.
TF float tf_divide(float a, float b) {
    const float far = 18446744073709551616.0f, size = fabsf(b);
    const float scale = size < 1.0f / far ? far : size > far ? 1.0f / far : 1.0f;
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b * scale));
    const float hi = r * 0.99999976f, rest = fmaf(-b * scale, hi, 1.0f);
    const float lo = rest == rest ? hi * rest : hi;
    const float n = a * scale;
    return fmaf(n, hi, n * lo);
}
TF double tf_divide(double a, double b) { return a / b; }

// 2^x: ex2.approx, relative error 2^-22; results below 2^-126 are 0.
TF float tf_exp2(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
TF double tf_exp2(double x) { return exp2(x); }
// e^x = 2^(x log2 e), the product's rounding error given back: relative error 2^-21.5. The
// product is rounded down and its error saturated to 0..1, NaN to 0: infinities come out right.
TF float tf_exp(float x) {
    const float t = __fmul_rd(x, 1.4426950408889634f);
    float lost;
    asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(lost) : "f"(x), "f"(1.4426950408889634f), "f"(-t));
    return tf_exp2(t) * fmaf(lost, 0.6931471805599453f, 1.0f);
}
TF double tf_exp(double x) { return exp(x); }
TF float tf_rsqrt(float x) { return rsqrtf(x); }
TF double tf_rsqrt(double x) { return rsqrt(x); }

#define TF_CALL(name, single, twice)                     \
    TF float tf_##name(float x) { return single(x); }    \
    TF double tf_##name(double x) { return twice(x); }
TF_CALL(sqrt, sqrtf, sqrt)
TF_CALL(log, logf, log)
TF_CALL(log2, log2f, log2)
TF_CALL(ceil, ceilf, ceil)
TF_CALL(floor, floorf, floor)
TF_CALL(rint, rintf, rint)
TF_CALL(tanh, tanhf, tanh)
TF_CALL(erf, erff, erf)
TF_CALL(sin, sinf, sin)
TF_CALL(cos, cosf, cos)
TF_CALL(abs, fabsf, fabs)
TF int tf_abs(int x) { return abs(x); }
TF int64_t tf_abs(int64_t x) { return x < 0 ? -x : x; }
TF int tf_floor(int x) { return x; }
TF int tf_ceil(int x) { return x; }
TF int tf_rint(int x) { return x; }
TF float tf_pow(float a, float b) { return powf(a, b); }
TF double tf_pow(double a, double b) { return pow(a, b); }
template <class T>
TF T tf_sigmoid(T x) { return T(1) / (T(1) + exp(-x)); }
template <class T>
TF T tf_silu(T x) { return x / (T(1) + exp(-x)); }
template <class T>
TF T tf_softplus(T x) { return x > T(20) ? x : log1p(exp(x)); }
template <class T>
TF T tf_gelu(T x) { return T(0.5) * x * (T(1) + erf(x * T(0.70710678118654752))); }
template <class T>
TF T tf_gelu_tanh(T x) {
    return T(0.5) * x * (T(1) + tanh(T(0.79788456080286536) * (x + T(0.044715) * x * x * x)));
}

// Quotients that round down, and the remainders that they leave, of the divisor's sign.
TF float tf_remainder(float a, float b) {
    const float r = fmodf(a, b);
    return r != 0.0f && (r < 0.0f) != (b < 0.0f) ? r + b : r;
}
TF double tf_remainder(double a, double b) {
    const double r = fmod(a, b);
    return r != 0.0 && (r < 0.0) != (b < 0.0) ? r + b : r;
}
TF float tf_floor_div(float a, float b) { return floorf(a / b); }
TF double tf_floor_div(double a, double b) { return floor(a / b); }
TF int tf_floor_div(int a, int b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
TF int64_t tf_floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
TF int tf_remainder(int a, int b) { return a - tf_floor_div(a, b) * b; }
TF int64_t tf_remainder(int64_t a, int64_t b) { return a - tf_floor_div(a, b) * b; }

// Synchronisation.

TF void tf_mbarrier_init(uint32_t at, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
TF void tf_mbarrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// The next slot of a ring; the phase changes where the ring begins anew.
template <int SLOTS> TF void tf_next(int &slot, int &phase) {
    slot = slot == SLOTS - 1 ? 0 : slot + 1;
    phase ^= slot == 0;
}
template <int SLOTS> TF int tf_ahead(int slot, int steps) {
    return slot < SLOTS - steps ? slot + steps : slot + steps - SLOTS;
}
TF void tf_mbarrier_wait(uint32_t at, int parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra over;\n"
        "bra again;\n"
        "over:\n"
        "}" ::"r"(at), "r"(parity)
        : "memory");
}
// For a barrier that other CTAs of the cluster arrive on, to see what they wrote; and to know that
// they have read, before this thread overwrites it.
#define TF_WAIT(NAME, SEM)                                                              \
    TF void tf_mbarrier_wait_##NAME(uint32_t at, int parity) {                          \
        asm volatile(                                                                   \
            "{\n"                                                                       \
            ".reg .pred done;\n"                                                        \
            "again:\n"                                                                  \
            "mbarrier.try_wait.parity." SEM ".cluster.shared::cta.b64 done, [%0], %1;\n" \
            "@done bra over;\n"                                                         \
            "bra again;\n"                                                              \
            "over:\n"                                                                   \
            "}" ::"r"(at), "r"(parity)                                                  \
            : "memory");                                                                \
    }
TF_WAIT(cluster, "acquire")
TF_WAIT(read, "relaxed")
TF void tf_mbarrier_arrive(uint32_t at) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
// What this thread wrote, and what it knows that others wrote, before its next arrivals.
TF void tf_cluster_release() { asm volatile("fence.acq_rel.cluster;" ::: "memory"); }
// The same barrier of the cluster's CTA of number `rank`.
TF void tf_mbarrier_arrive_at(uint32_t at, int rank) {
    asm volatile(
        "{\n"
        ".reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [there];\n"
        "}" ::"r"(at), "r"(rank)
        : "memory");
}
TF void tf_cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
TF void tf_cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
TF void tf_cluster_barrier() {
    tf_cluster_arrive();
    tf_cluster_wait();
}
// The same place of the shared memory of the cluster's CTA of number `rank`.
TF const char *tf_peer(const char *at, int rank) {
    uint64_t there;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(at), "r"(rank));
    return (const char *)there;
}
TF void tf_mbarrier_expect(uint32_t at, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
TF void tf_async_arrive(uint32_t at) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at) : "memory");
}
template <int ID, int THREADS>
TF void tf_barrier() { asm volatile("bar.sync %0, %1;" ::"n"(ID), "n"(THREADS) : "memory"); }
template <int ID, int THREADS>
TF void tf_barrier_arrive() { asm volatile("bar.arrive %0, %1;" ::"n"(ID), "n"(THREADS) : "memory"); }
TF void tf_proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
TF void tf_wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
TF void tf_wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING>
TF void tf_wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory"); }
TF void tf_bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int PENDING>
TF void tf_bulk_wait() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(PENDING) : "memory"); }
template <int PENDING>
TF void tf_bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory"); }
TF void tf_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING>
TF void tf_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }
template <int COUNT>
TF void tf_more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT)); }
template <int COUNT>
TF void tf_fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT)); }

// griddepcontrol: a kernel that starts while the one before it in the stream ends.
TF void tf_overlap_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
TF void tf_overlap_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// Registers that an asynchronous product holds: the compiler may not move their uses past here.
template <int N>
TF void tf_hold(float (&words)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(words[i])::"memory");
}
template <int N>
TF void tf_hold(uint32_t (&words)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(words[i])::"memory");
}

// Registers whose further uses are computed from them anew.
TF void tf_renew(float &word) { asm volatile("" : "+f"(word)); }
TF void tf_renew(uint32_t &word) { asm volatile("" : "+r"(word)); }
TF void tf_renew(int &word) { asm volatile("" : "+r"(word)); }
TF void tf_renew(double &word) { asm volatile("" : "+d"(word)); }
TF void tf_renew(int64_t &word) { asm volatile("" : "+l"(word)); }
TF void tf_renew(bool &) {}
template <class T, int N>
TF void tf_renew(T (&words)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) tf_renew(words[i]);
}

// cp.async: BYTES of 4, 8 or 16; nothing is read where `inside` is false, and zeros are written.
template <int BYTES>
TF void tf_copy_async(uint32_t to, const void *from) {
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(BYTES) : "memory");
}
template <int BYTES>
TF void tf_copy_async(uint32_t to, const void *from, bool inside) {
    const int size = inside ? BYTES : 0;
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(size) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES), "r"(size) : "memory");
}

// cp.async.bulk.
TF void tf_bulk_load(uint32_t to, const void *from, int bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}
TF void tf_bulk_store(void *to, uint32_t from, int bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
}

// cp.async.bulk.tensor, 1 to 5 dimensions; a multicast to the CTAs of the cluster whose bits are
// set, to the same place and barrier in each.
#define TF_TENSOR(N, WORDS, CAST, STORED, ...)                                                      \
    TF void tf_tensor_load(uint32_t to, const TensorMap &map, uint32_t barrier, TF_ARGS_##N) {    \
        asm volatile("cp.async.bulk.tensor." #N "d.shared::cluster.global.mbarrier::complete_tx::bytes" \
                     " [%0], [%1, " WORDS "], [%2];" ::"r"(to), "l"(&map), "r"(barrier), __VA_ARGS__ : "memory"); \
    }                                                                                               \
    TF void tf_tensor_multicast(uint32_t to, const TensorMap &map, uint32_t barrier, int ctas, TF_ARGS_##N) { \
        asm volatile("cp.async.bulk.tensor." #N "d.shared::cluster.global.mbarrier::complete_tx::bytes" \
                     ".multicast::cluster [%0], [%1, " CAST "], [%2], %3;"                          \
                     ::"r"(to), "l"(&map), "r"(barrier), "h"((uint16_t)ctas), __VA_ARGS__ : "memory"); \
    }                                                                                               \
    TF void tf_tensor_store(const TensorMap &map, uint32_t from, TF_ARGS_##N) {                   \
        asm volatile("cp.async.bulk.tensor." #N "d.global.shared::cta.bulk_group [%0, " STORED "], [%1];" \
                     ::"l"(&map), "r"(from), __VA_ARGS__ : "memory");                               \
    }
// The engine has the map at hand when the first copy asks for it.
TF void tf_prefetch(const TensorMap &map) { asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory"); }
#define TF_ARGS_1 int a
#define TF_ARGS_2 int a, int b
#define TF_ARGS_3 int a, int b, int c
#define TF_ARGS_4 int a, int b, int c, int d
#define TF_ARGS_5 int a, int b, int c, int d, int e
TF_TENSOR(1, "{%3}", "{%4}", "{%2}", "r"(a))
TF_TENSOR(2, "{%3, %4}", "{%4, %5}", "{%2, %3}", "r"(a), "r"(b))
TF_TENSOR(3, "{%3, %4, %5}", "{%4, %5, %6}", "{%2, %3, %4}", "r"(a), "r"(b), "r"(c))
TF_TENSOR(4, "{%3, %4, %5, %6}", "{%4, %5, %6, %7}", "{%2, %3, %4, %5}", "r"(a), "r"(b), "r"(c), "r"(d))
TF_TENSOR(5, "{%3, %4, %5, %6, %7}", "{%4, %5, %6, %7, %8}", "{%2, %3, %4, %5, %6}", "r"(a), "r"(b), "r"(c), "r"(d), "r"(e))

// ldmatrix and stmatrix: N matrices of 8 rows of 16 bytes.
#define TF_MATRIX(NAME, TRANS)                                                                      \
    TF void tf_load_##NAME(uint32_t &a, uint32_t at) {                                              \
        asm volatile("ldmatrix.sync.aligned.m8n8.x1" TRANS ".shared.b16 {%0}, [%1];" : "=r"(a) : "r"(at) : "memory"); \
    }                                                                                               \
    TF void tf_load_##NAME(uint32_t &a, uint32_t &b, uint32_t at) {                                 \
        asm volatile("ldmatrix.sync.aligned.m8n8.x2" TRANS ".shared.b16 {%0, %1}, [%2];"            \
                     : "=r"(a), "=r"(b) : "r"(at) : "memory");                                      \
    }                                                                                               \
    TF void tf_load_##NAME(uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d, uint32_t at) {       \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" TRANS ".shared.b16 {%0, %1, %2, %3}, [%4];"    \
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(at) : "memory");                    \
    }                                                                                               \
    TF void tf_store_##NAME(uint32_t at, uint32_t a) {                                              \
        asm volatile("stmatrix.sync.aligned.m8n8.x1" TRANS ".shared.b16 [%0], {%1};" ::"r"(at), "r"(a) : "memory"); \
    }                                                                                               \
    TF void tf_store_##NAME(uint32_t at, uint32_t a, uint32_t b) {                                  \
        asm volatile("stmatrix.sync.aligned.m8n8.x2" TRANS ".shared.b16 [%0], {%1, %2};" ::"r"(at), "r"(a), "r"(b) : "memory"); \
    }                                                                                               \
    TF void tf_store_##NAME(uint32_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {          \
        asm volatile("stmatrix.sync.aligned.m8n8.x4" TRANS ".shared.b16 [%0], {%1, %2, %3, %4};"    \
                     ::"r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");                         \
    }
TF_MATRIX(matrix, "")
TF_MATRIX(matrix_trans, ".trans")

// A matrix descriptor: the constant fields, and the start address in units of 16 bytes.
TF uint64_t tf_descriptor(uint64_t fields, uint32_t at) {
    return fields | (at >> 4 & 0x3fff);
}

// Units that meet through global memory: `count` of them add 1 each and wait for the others. The
// counter goes round in two meetings, so that it never overflows: who still waits in one keeps the
// next from ending.
TF void tf_meet(unsigned *counter, unsigned count) {
    __threadfence();
    const bool second = atomicInc(counter, 2 * count - 1) >= count;
    unsigned now;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    } while ((now >= count) == second);
    __threadfence();
}
