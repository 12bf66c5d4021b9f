/* The tile unit in portable C: nobody has made one. */
#ifndef RILL_H
#define RILL_H

typedef struct {
    uint8_t strip[8][4][64], sum[4][16][64] __attribute__((aligned(64)));
} rill_unit;

#define RILL_BEGIN rill_unit rill = {{{{0}}}, {{{0}}}}
#define RILL_END (void)rill

static inline float rill_f32(const rill_unit *u, int strip, int row, int n) {
    float x;
    memcpy(&x, u->strip[strip][row] + 4 * n, 4);
    return x;
}
static inline void rill_rows(uint8_t (*to)[64], const void *from, long apart, int rows) {
    for (int r = 0; r < rows; r++) memcpy(to[r], (const char *)from + r * apart, 64);
}
static inline void rill_out(const uint8_t (*from)[64], void *to, long apart, int rows) {
    for (int r = 0; r < rows; r++) memcpy((char *)to + r * apart, from[r], 64);
}
#define rill_load(n, from, apart) rill_rows(rill.strip[n], from, apart, 4)
#define rill_load_sum(n, from, apart) rill_rows(rill.sum[n], from, apart, 16)
#define rill_store_sum(n, to, apart) rill_out((const uint8_t (*)[64])rill.sum[n], to, apart, 16)
#define rill_clear(n) memset(rill.sum[n], 0, sizeof rill.sum[n])

#endif
