// Which hand-overs racecheck follows. Built with -DVARIANT=n; all but 7 and 10 are free of races by
// the PTX memory model. Two CTAs of a cluster write to their own shared memory and read the other's:
//  1 bar.sync, then one thread's fence.acq_rel.cluster and relaxed remote arrival
//  2 the same with arrive.release.cluster      3 an arrival of each thread
//  4 barrier.cluster                           6 as 1, written by the one thread that arrives
//  5 within a CTA: bar.sync, one thread arrives at an mbarrier, the others wait
//  7 nothing between (a race)
// A warp reads shared memory that another warp then overwrites:
//  8 __syncwarp, one lane arrives for its warp 9 an arrival of each lane
//  10 nothing between (a race)
// Compute Sanitizer 2025.3.1 on an H200 (driver 580.159.04) reports 7 and 10, and 8, which is free
// of races; all others are clean.
//
//     for v in 1 2 3 4 5 6 7 8 9 10; do nvcc -arch=sm_90a -DVARIANT=$v -o race race.cu &&
//     compute-sanitizer --tool racecheck --racecheck-report all ./race | grep -c Potential; done
#include <cstdint>
#include <cstdio>

__device__ uint32_t at(void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ void init(uint32_t bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ void arrive(uint32_t bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ void wait(uint32_t bar) {
    asm volatile(
        "{\n.reg .pred p;\nagain%=: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0;\n"
        "@!p bra again%=;\n}" ::"r"(bar) : "memory");
}
__device__ void meet() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

#if VARIANT < 8
__global__ void __cluster_dims__(2, 1, 1) kernel(float *out) {
    __shared__ float data[64];
    __shared__ alignas(8) uint64_t bar;
    const uint32_t b = at(&bar);
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    const int t = threadIdx.x;
    const uint32_t peer = rank ^ 1;
    if (t == 0) init(b, VARIANT == 3 ? 64 : 1);
    meet();
    if (VARIANT != 6) data[t] = t + rank;
    if (VARIANT == 6 && t == 0) {
        for (int i = 0; i < 64; i++) data[i] = i + rank;
    }
    if (VARIANT != 3 && VARIANT != 6 && VARIANT != 7) __syncthreads();
    if (VARIANT == 4) meet();
    if (VARIANT == 5 && t == 0) arrive(b);
    if (VARIANT == 1 || VARIANT == 6) {
        if (t == 0) {
            asm volatile("fence.acq_rel.cluster;" ::: "memory");
            asm volatile(
                "{\n.reg .b32 r;\nmapa.shared::cluster.u32 r, %0, %1;\n"
                "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [r];\n}" ::"r"(b), "r"(peer)
                : "memory");
        }
    }
    if (VARIANT == 3 || (VARIANT == 2 && t == 0)) {
        asm volatile(
            "{\n.reg .b32 r;\nmapa.shared::cluster.u32 r, %0, %1;\n"
            "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r];\n}" ::"r"(b), "r"(peer)
            : "memory");
    }
    if (VARIANT != 4 && VARIANT != 7) wait(b);
    uint32_t from = at(&data[(t + 37) % 64]);
    float v;
    if (VARIANT != 5) asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(from) : "r"(peer));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(from) : "memory");
    out[blockIdx.x * 64 + t] = v;
    meet();
}
#else
__global__ void kernel(float *out) {
    __shared__ float data[32];
    __shared__ alignas(8) uint64_t bar;
    const int t = threadIdx.x;
    if (t == 0) init(at(&bar), VARIANT == 9 ? 32 : 1);
    if (t < 32) data[t] = t;
    __syncthreads();
    if (t < 32) {
        out[t] = data[(t + 5) % 32];
        if (VARIANT == 8) __syncwarp();
        if (VARIANT == 9 || (VARIANT == 8 && t == 0)) arrive(at(&bar));
    } else {
        if (VARIANT != 10) wait(at(&bar));
        data[t - 32] = -t;
    }
    __syncthreads();
    out[32 + t] = data[t % 32];
}
#endif

int main() {
    float *out;
    cudaMalloc(&out, 512);
    kernel<<<VARIANT < 8 ? 2 : 1, 64>>>(out);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
