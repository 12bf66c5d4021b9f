/* Apple's matrix coprocessor for programs that TileFoundry emits.
 *
 * TF_AMX(op, operand) is one instruction: a word that names x0, and the operand there. The
 * model keeps X, Y and Z in memory and reads the same 64 bits of operand; it is used off
 * Apple's machines and where TF_MODEL is defined.
 */
#ifndef TF_APPLE_H
#define TF_APPLE_H

enum { TF_LDX = 0, TF_LDY = 1, TF_LDZ = 4, TF_STZ = 5, TF_LDZI = 6, TF_STZI = 7,
       TF_FMA32 = 12, TF_FMA16 = 15 };

#if defined(__APPLE__) && defined(__aarch64__) && !defined(TF_MODEL)
#define TF_AMX(op, operand)                                                            \
    do {                                                                               \
        register uint64_t tf_x0 __asm__("x0") = (operand);                             \
        __asm__ volatile(".inst %c0" : : "i"(0x00201000 | (op) << 5), "r"(tf_x0) : "memory"); \
    } while (0)
#define TF_AMX_BEGIN __asm__ volatile("nop\n\tnop\n\tnop\n\t.inst 0x00201220" : : : "memory")
#define TF_AMX_END __asm__ volatile("nop\n\tnop\n\tnop\n\t.inst 0x00201221" : : : "memory")
#else
typedef struct { uint8_t x[512], y[512], z[64][64]; } tf_amx_state;
#define TF_AMX_BEGIN tf_amx_state tf_amx = {{0}, {0}, {{0}}}
#define TF_AMX_END (void)tf_amx
#define TF_AMX(op, operand) tf_amx_do(&tf_amx, op, operand)

TF float tf_amx_half(const uint8_t *file, unsigned at) {
    uint16_t h = (uint16_t)(file[at & 511] | file[(at + 1) & 511] << 8);
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
    union { uint32_t u; float f; } r = {rest << 13};
    r.f *= 0x1p112f;
    if (rest >= 0x7c00) r.u |= 0x7f800000;
    r.u |= sign;
    return r.f;
}
TF float tf_amx_single(const uint8_t *file, unsigned at) {
    union { uint32_t u; float f; } r = {0};
    for (int n = 0; n < 4; n++) r.u |= (uint32_t)file[(at + n) & 511] << (8 * n);
    return r.f;
}
/* Rounded once: to odd in f32 first, so that the second rounding sees what was lost. */
TF uint16_t tf_amx_to_half(double d) {
    union { float f; uint32_t u; } s = {(float)d};
    if (!isnan(d) && (double)s.f != d && isfinite(s.f)) {
        if (fabs((double)s.f) > fabs(d)) s.u--;
        s.u |= 1;
    }
    uint32_t sign = s.u & 0x80000000, m = s.u & 0x7fffffff, h;
    if (m > 0x7f800000) h = 0x7e00;
    else if (m >= 0x477ff000) h = 0x7c00;
    else if (m < 0x38800000) h = (uint32_t)rintf(fabsf(s.f) * 0x1p24f);
    else h = (m - 0x38000000 + 0xfff + ((m >> 13) & 1)) >> 13;
    return (uint16_t)(h | sign >> 16);
}
TF float tf_amx_fma(float x, float y, float z, uint64_t operand) {
    int no_z = operand >> 27 & 1, no_y = operand >> 28 & 1, no_x = operand >> 29 & 1;
    if (no_x && no_y) return no_z ? 0.0f : z;
    if (no_x || no_y) { float one = no_x ? y : x; return no_z ? one : one + z; }
    return no_z ? x * y : __builtin_fmaf(x, y, z);
}
TF void tf_amx_fma32(tf_amx_state *s, uint64_t operand) {
    unsigned y = operand & 0x1ff, x = operand >> 10 & 0x1ff, row = operand >> 20 & 0x3f;
    int vector = operand >> 63 & 1;
    for (unsigned j = 0; j < (vector ? 1 : 16); j++)
        for (unsigned i = 0; i < 16; i++) {
            uint8_t *at = s->z[vector ? row : 4 * j + (row & 3)] + 4 * i;
            float z;
            memcpy(&z, at, 4);
            z = tf_amx_fma(tf_amx_single(s->x, x + 4 * i), tf_amx_single(s->y, y + 4 * (vector ? i : j)), z, operand);
            memcpy(at, &z, 4);
        }
}
/* Outer products of halves, into f32 in pairs of rows (bit 62) or into halves. */
TF void tf_amx_fma16(tf_amx_state *s, uint64_t operand) {
    unsigned y = operand & 0x1ff, x = operand >> 10 & 0x1ff, row = operand >> 20 & 1;
    int wide = operand >> 62 & 1, no_z = operand >> 27 & 1, no_xy = operand >> 28 & 3;
    for (unsigned j = 0; j < 32; j++)
        for (unsigned i = 0; i < 32; i++) {
            float a = tf_amx_half(s->x, x + 2 * i), b = tf_amx_half(s->y, y + 2 * j);
            if (wide) {
                uint8_t *at = s->z[2 * j + i % 2] + 4 * (i / 2);
                float z;
                memcpy(&z, at, 4);
                z = tf_amx_fma(a, b, z, operand);
                memcpy(at, &z, 4);
            } else {
                uint8_t *at = s->z[2 * j + row] + 2 * i;
                double z = tf_amx_half(at, 0), p = (double)a * b;
                if (no_xy) p = no_xy == 3 ? 0 : no_xy == 2 ? b : a;
                uint16_t h = tf_amx_to_half(no_z ? p : p + z);
                memcpy(at, &h, 2);
            }
        }
}
TF void tf_amx_do(tf_amx_state *s, int op, uint64_t operand) {
    uint8_t *p = (uint8_t *)(uintptr_t)(operand & 0x00ffffffffffffff);
    unsigned row = operand >> 56 & 0x3f;
    switch (op) {
    case TF_LDX: memcpy(s->x + 64 * (row & 7), p, 64); break;
    case TF_LDY: memcpy(s->y + 64 * (row & 7), p, 64); break;
    case TF_LDZ: memcpy(s->z[row], p, 64); break;
    case TF_STZ: memcpy(p, s->z[row], 64); break;
    case TF_LDZI: case TF_STZI: /* halves of a pair of rows: even elements in the even row */
        for (unsigned i = 0; i < 16; i++) {
            uint8_t *z = s->z[(row & 0x3e) + i % 2] + 32 * (row & 1) + 4 * (i / 2);
            if (op == TF_LDZI) memcpy(z, p + 4 * i, 4);
            else memcpy(p + 4 * i, z, 4);
        }
        break;
    case TF_FMA32: tf_amx_fma32(s, operand); break;
    case TF_FMA16: tf_amx_fma16(s, operand); break;
    }
}
#endif

#endif
