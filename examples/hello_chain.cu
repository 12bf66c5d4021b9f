// (x * x + x) * x on half floats: 256 CTAs, each thread 8 consecutive values a row, 16 bytes
// a load. The _rn forms keep the compiler from fusing, so every operation rounds as PyTorch's.
#include <cuda_fp16.h>

union Eight {
    uint4 packed;
    __half2 pairs[4];
};

__global__ void chain(const __half *__restrict__ in, __half *__restrict__ out) {
    const int rows = 512, columns = 2048;
    const int first = blockIdx.y * rows, column = blockIdx.x * 64 + threadIdx.x * 8;
    for (int row = threadIdx.y; row < rows; row += blockDim.y) {
        const long at = (long)(first + row) * columns + column;
        Eight values;
        values.packed = *reinterpret_cast<const uint4 *>(in + at);
#pragma unroll
        for (int pair = 0; pair < 4; ++pair) {
            const __half2 x = values.pairs[pair];
            const __half2 a = __hmul2_rn(x, x);
            const __half2 b = __hadd2_rn(a, x);
            values.pairs[pair] = __hmul2_rn(b, x);
        }
        *reinterpret_cast<uint4 *>(out + at) = values.packed;
    }
}

// grid.x cuts the columns, grid.y the rows; returns CUDA's error code.
extern "C" int launch(const void *in, void *out, void *stream) {
    chain<<<dim3(32, 8), dim3(8, 32), 0, (cudaStream_t)stream>>>((const __half *)in,
                                                                 (__half *)out);
    return (int)cudaGetLastError();
}
