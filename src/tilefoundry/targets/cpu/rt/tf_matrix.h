/* Matrix instructions of x86 for programs that TileFoundry emits for CPUs.
 *
 * Each has a portable model, used where the compiler may not use the instruction or where
 * TF_MODEL is defined. Products and sums are rounded where the Software Developer's Manual
 * says that the instruction rounds.
 */
#ifndef TF_MATRIX_H
#define TF_MATRIX_H

/* VDPBF16PS: the product of the high halves is added first, then that of the low ones. */
TF f32v tf_dot_bf16(u32v a, u32v b, f32v c) {
#if defined(__AVX512BF16__) && TF_LANES == 16 && !defined(TF_MODEL)
    return (f32v)_mm512_dpbf16_ps((__m512)c, (__m512bh)a, (__m512bh)b);
#else
    f32v high = (f32v)(a & 0xffff0000) * (f32v)(b & 0xffff0000);
    f32v low = (f32v)(a << 16) * (f32v)(b << 16);
    return c + high + low;
#endif
}

/* VPDPBUSD: four products of an unsigned and a signed byte, added without saturation. */
TF i32v tf_dot_u8i8(u32v a, u32v b, i32v c) {
#if defined(__AVX512VNNI__) && TF_LANES == 16 && !defined(TF_MODEL)
    return (i32v)_mm512_dpbusd_epi32((__m512i)c, (__m512i)a, (__m512i)b);
#elif defined(__AVXVNNI__) && TF_LANES == 8 && !defined(TF_MODEL)
    return (i32v)_mm256_dpbusd_avx_epi32((__m256i)c, (__m256i)a, (__m256i)b);
#else
    for (int byte = 0; byte < 4; byte++) {
        i32v x = (i32v)(a >> (8 * byte) & 0xff);
        c += x * ((i32v)(b << (24 - 8 * byte)) >> 24);
    }
    return c;
#endif
}

/* AMX tiles: 8 of 16 rows of 64 bytes. Numbers of tiles are constants. */
#if defined(__AMX_TILE__) && !defined(TF_MODEL)
#include <sys/syscall.h>
#include <unistd.h>
typedef struct { uint8_t palette, start, zero[14]; uint16_t width[16]; uint8_t rows[16]; } tf_tile_config;
/* Asks the system for the tile registers (arch_prctl, ARCH_REQ_XCOMP_PERM of XTILEDATA), then
 * makes the first `count` tiles full ones. */
TF void tf_tiles_begin(int count) {
    static int asked;
    if (!asked) asked = 1 + (int)syscall(SYS_arch_prctl, 0x1023, 18);
    tf_tile_config config __attribute__((aligned(64))) = {.palette = 1};
    for (int n = 0; n < count; n++) config.width[n] = 64, config.rows[n] = 16;
    __asm__ volatile("" : : "m"(config)); /* GCC's intrinsic says that it reads 8 bytes */
    _tile_loadconfig(&config);
}
#define TF_TILES_BEGIN(count) tf_tiles_begin(count)
#define TF_TILES_END _tile_release()
#define TF_TILE_LOAD(t, p, stride) _tile_loadd(t, p, stride)
#define TF_TILE_STORE(t, p, stride) _tile_stored(t, p, stride)
#define TF_TILE_ZERO(t) _tile_zero(t)
#define TF_TDPBF16PS(c, a, b) _tile_dpbf16ps(c, a, b)
#define TF_TDPBUSD(c, a, b) _tile_dpbusd(c, a, b)
#define TF_TDPBSSD(c, a, b) _tile_dpbssd(c, a, b)
#define TF_TDPBSUD(c, a, b) _tile_dpbsud(c, a, b)
#define TF_TDPBUUD(c, a, b) _tile_dpbuud(c, a, b)
#else
typedef struct { uint8_t row[16][64]; } tf_tile;
TF void tf_tile_load(tf_tile *t, const void *p, long stride) {
    for (int r = 0; r < 16; r++) memcpy(t->row[r], (const char *)p + r * stride, 64);
}
TF void tf_tile_store(const tf_tile *t, void *p, long stride) {
    for (int r = 0; r < 16; r++) memcpy((char *)p + r * stride, t->row[r], 64);
}
TF float tf_bf16_at(const tf_tile *t, int row, int column) {
    uint16_t half;
    memcpy(&half, &t->row[row][2 * column], 2);
    union { uint32_t u; float f; } x = {(uint32_t)half << 16};
    return x.f;
}
/* Even and odd products are summed apart, joined, and the join is added to C. */
TF void tf_tdpbf16ps(tf_tile *c, const tf_tile *a, const tf_tile *b) {
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++) {
            float even = 0, odd = 0, old;
            for (int k = 0; k < 16; k++) {
                even = __builtin_fmaf(tf_bf16_at(a, m, 2 * k), tf_bf16_at(b, k, 2 * n), even);
                odd = __builtin_fmaf(tf_bf16_at(a, m, 2 * k + 1), tf_bf16_at(b, k, 2 * n + 1), odd);
            }
            memcpy(&old, &c->row[m][4 * n], 4);
            old += even + odd;
            memcpy(&c->row[m][4 * n], &old, 4);
        }
}
TF void tf_tdpb(tf_tile *c, const tf_tile *a, const tf_tile *b, int a_signed, int b_signed) {
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++) {
            uint32_t sum;
            memcpy(&sum, &c->row[m][4 * n], 4);
            for (int k = 0; k < 64; k++) {
                uint8_t x = a->row[m][k], y = b->row[k / 4][4 * n + k % 4];
                sum += (uint32_t)((a_signed ? (int8_t)x : x) * (b_signed ? (int8_t)y : y));
            }
            memcpy(&c->row[m][4 * n], &sum, 4);
        }
}
#define TF_TILES_BEGIN(count) tf_tile tf_tiles[count]; memset(tf_tiles, 0, sizeof tf_tiles)
#define TF_TILES_END (void)tf_tiles
#define TF_TILE_LOAD(t, p, stride) tf_tile_load(&tf_tiles[t], p, stride)
#define TF_TILE_STORE(t, p, stride) tf_tile_store(&tf_tiles[t], p, stride)
#define TF_TILE_ZERO(t) memset(&tf_tiles[t], 0, sizeof(tf_tile))
#define TF_TDPBF16PS(c, a, b) tf_tdpbf16ps(&tf_tiles[c], &tf_tiles[a], &tf_tiles[b])
#define TF_TDPBUSD(c, a, b) tf_tdpb(&tf_tiles[c], &tf_tiles[a], &tf_tiles[b], 0, 1)
#define TF_TDPBSSD(c, a, b) tf_tdpb(&tf_tiles[c], &tf_tiles[a], &tf_tiles[b], 1, 1)
#define TF_TDPBSUD(c, a, b) tf_tdpb(&tf_tiles[c], &tf_tiles[a], &tf_tiles[b], 1, 0)
#define TF_TDPBUUD(c, a, b) tf_tdpb(&tf_tiles[c], &tf_tiles[a], &tf_tiles[b], 0, 0)
#endif

#endif
