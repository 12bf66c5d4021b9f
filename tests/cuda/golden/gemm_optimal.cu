// GEMM_OPTIMAL, emitted by TileFoundry for nvidia.h200_sxm.
#include "tf_cuda.cuh"

TF void wgmma_m64n256k16_bf16_bt(float *d, uint64_t a, uint64_t b, int adds) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
        "}, %128, %129, p, 1, 1, 0, 1;\n"
        "}"
        : 
          "+f"(d[0]), "+f"(d[1]), "+f"(d[64]), "+f"(d[65]), "+f"(d[2]), "+f"(d[3]), "+f"(d[66]), "+f"(d[67]),
          "+f"(d[4]), "+f"(d[5]), "+f"(d[68]), "+f"(d[69]), "+f"(d[6]), "+f"(d[7]), "+f"(d[70]), "+f"(d[71]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[72]), "+f"(d[73]), "+f"(d[10]), "+f"(d[11]), "+f"(d[74]), "+f"(d[75]),
          "+f"(d[12]), "+f"(d[13]), "+f"(d[76]), "+f"(d[77]), "+f"(d[14]), "+f"(d[15]), "+f"(d[78]), "+f"(d[79]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[80]), "+f"(d[81]), "+f"(d[18]), "+f"(d[19]), "+f"(d[82]), "+f"(d[83]),
          "+f"(d[20]), "+f"(d[21]), "+f"(d[84]), "+f"(d[85]), "+f"(d[22]), "+f"(d[23]), "+f"(d[86]), "+f"(d[87]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[88]), "+f"(d[89]), "+f"(d[26]), "+f"(d[27]), "+f"(d[90]), "+f"(d[91]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[92]), "+f"(d[93]), "+f"(d[30]), "+f"(d[31]), "+f"(d[94]), "+f"(d[95]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[96]), "+f"(d[97]), "+f"(d[34]), "+f"(d[35]), "+f"(d[98]), "+f"(d[99]),
          "+f"(d[36]), "+f"(d[37]), "+f"(d[100]), "+f"(d[101]), "+f"(d[38]), "+f"(d[39]), "+f"(d[102]), "+f"(d[103]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[104]), "+f"(d[105]), "+f"(d[42]), "+f"(d[43]), "+f"(d[106]), "+f"(d[107]),
          "+f"(d[44]), "+f"(d[45]), "+f"(d[108]), "+f"(d[109]), "+f"(d[46]), "+f"(d[47]), "+f"(d[110]), "+f"(d[111]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[112]), "+f"(d[113]), "+f"(d[50]), "+f"(d[51]), "+f"(d[114]), "+f"(d[115]),
          "+f"(d[52]), "+f"(d[53]), "+f"(d[116]), "+f"(d[117]), "+f"(d[54]), "+f"(d[55]), "+f"(d[118]), "+f"(d[119]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[120]), "+f"(d[121]), "+f"(d[58]), "+f"(d[59]), "+f"(d[122]), "+f"(d[123]),
          "+f"(d[60]), "+f"(d[61]), "+f"(d[124]), "+f"(d[125]), "+f"(d[62]), "+f"(d[63]), "+f"(d[126]), "+f"(d[127])
        : "l"(a), "l"(b), "r"(adds));
}

extern "C" __global__ void __launch_bounds__(384, 1)
gemm(const uint16_t *__restrict__ a, const uint16_t *__restrict__ b, uint16_t *__restrict__ out, const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map, const __grid_constant__ TensorMap out_map)
{
    extern __shared__ __align__(1024) char smem[];
    const uint32_t shared = tf_shared_start(smem);
    const int tid = threadIdx.x;
    const int warp = __shfl_sync(0xffffffff, tid / 32, 0);
    if (tid == 0) tf_prefetch(a_map);
    if (tid == 0) tf_prefetch(b_map);
    if (tid == 0) tf_prefetch(out_map);
    const int persistent = (int)blockIdx.x;
    const int group = (warp - 4) / 4;
    const int lane8 = (tid - 128) / 4 % 8;
    const int lane4 = (tid - 128) % 4;
    const uint32_t lhs_ring_full = shared + 212992;
    const uint32_t lhs_ring_empty = shared + 213016;
    const uint32_t staged_dst_full = shared + 213040;
    const uint32_t staged_dst_empty = shared + 213048;
    if (warp == 0 && tf_elect()) {
        tf_mbarrier_init(lhs_ring_full, 1);
        tf_mbarrier_init(lhs_ring_full + 1 * 8, 1);
        tf_mbarrier_init(lhs_ring_full + 2 * 8, 1);
        tf_mbarrier_init(lhs_ring_empty, 2);
        tf_mbarrier_init(lhs_ring_empty + 1 * 8, 2);
        tf_mbarrier_init(lhs_ring_empty + 2 * 8, 2);
        tf_mbarrier_init(staged_dst_full, 8);
        tf_mbarrier_init(staged_dst_empty, 1);
        tf_mbarrier_init_fence();
    }
    tf_barrier<0, 384>();  // barriers initialised
    tf_overlap_wait();  // for the end of the kernel before this one
    tf_overlap_next();  // the next one may start, and wait
    if (warp < 4) {
        tf_fewer_registers<40>();  // warpgroups 0:1
        if (warp == 0) {
            #pragma unroll 1
            for (int task = persistent, task_turn = 0; task < 4352; task += 132, task_turn++) {
                #pragma unroll 1
                for (int k = 0, slot = (task_turn * 80) % 3, phase = ((task_turn * 80) / 3) % 2; k < 5120; k += 64, tf_next<3>(slot, phase)) {
                    tf_mbarrier_wait(lhs_ring_empty + slot * 8, phase ^ 1);  // lhs_ring, rhs_ring free
                    if (tf_elect()) {
                        tf_mbarrier_expect(lhs_ring_full + slot * 8, 49152);  // lhs_ring, rhs_ring filled
                        // lhs = tf.schedule((a[m:m + BM, k], lhs_ring), op=T.copy_async_tensor())
                        tf_tensor_load(shared + 98304 + slot * 16384, a_map, lhs_ring_full + slot * 8, k, (task / 1088) * 2048 + (task % 16) * 128);
                        // rhs = tf.schedule((b[k, n:n + BN], rhs_ring), op=T.copy_async_tensor())
                        tf_tensor_load(shared + slot * 32768, b_map, lhs_ring_full + slot * 8, 0, 0, ((task / 16) % 68) * 4, k / 16);
                    }
                }
                tf_mbarrier_wait(staged_dst_full, task_turn % 2);  // staged_dst filled
                if (tf_elect()) {
                    // tile = tf.schedule((staged, tile_dst), op=T.copy_async_tensor())
                    tf_tensor_store(out_map, shared + 147456, 0, (task / 1088) * 2048 + (task % 16) * 128, ((task / 16) % 68) * 4);
                    tf_bulk_commit();
                    tf_bulk_wait_read<0>();  // staged_dst free
                }
                if (tid == 0) tf_mbarrier_arrive(staged_dst_empty);  // staged_dst free
            }
            if (tf_elect()) {
                tf_bulk_wait<0>();  // stores complete
            }
        }
    }
    else {
        tf_more_registers<232>();  // warpgroups 1:3
        #pragma unroll 1
        for (int task = persistent, task_turn = 0; task < 4352; task += 132, task_turn++) {
            float acc[128];  // Tensor[(128, 256), "f32", ((2 @ group, 4 @ warp, 2, 8 @ lane8, 32, 4 @ lane4, 2), (16384, 16, 8, 1, 512, 128, 64)), "rmem"]
            #pragma unroll 1
            for (int k = 0, slot = (task_turn * 80) % 3, phase = ((task_turn * 80) / 3) % 2; k < 5120; k += 64, tf_next<3>(slot, phase)) {
                tf_mbarrier_wait(lhs_ring_full + slot * 8, phase);  // lhs_ring, rhs_ring filled
                tf_hold(acc);
                tf_wgmma_fence();
                // acc = tf.schedule((acc, lhs, rhs), op=T.tiled_mma(atom=wgmma), repeat=(2, 1, 4))
                {
                    const uint64_t a_tile = tf_descriptor(0x4000004000000000, shared + 98304 + slot * 16384 + group * 8192);
                    const uint64_t b_tile = tf_descriptor(0x4000004000800000, shared + slot * 32768);
                    wgmma_m64n256k16_bf16_bt(acc, a_tile, b_tile, k > 0);
                    wgmma_m64n256k16_bf16_bt(acc, a_tile + 2, b_tile + 512, 1);
                    wgmma_m64n256k16_bf16_bt(acc, a_tile + 4, b_tile + 1024, 1);
                    wgmma_m64n256k16_bf16_bt(acc, a_tile + 6, b_tile + 1536, 1);
                }
                tf_wgmma_commit();
                tf_wgmma_wait<1>();  // lhs_ring, rhs_ring read one iteration ago
                tf_hold(acc);
                if (k > 0) {
                    if (tid % 128 == 0) tf_mbarrier_arrive(lhs_ring_empty + tf_ahead<3>(slot, 2) * 8);  // lhs_ring, rhs_ring free
                }
            }
            tf_wgmma_wait<0>();  // lhs_ring, rhs_ring read
            tf_hold(acc);
            if (tid % 128 == 0) tf_mbarrier_arrive(lhs_ring_empty + ((task_turn * 80 + 1) % 3) * 8);  // lhs_ring, rhs_ring free
            uint32_t tile_out[64];  // Tensor[(128, 256), "bf16", ((2 @ group, 4 @ warp, 2, 8 @ lane8, 32, 4 @ lane4, 2), (16384, 16, 8, 1, 512, 128, 64)), "rmem"]
            // tile_out = tf.cast(acc, dtype="bf16")
            {
                #pragma unroll
                for (int i = 0; i < 64; i++) {
                    tile_out[i] = tf_pack_bf16(acc[i * 2], acc[i * 2 + 1]);
                }
            }
            tf_mbarrier_wait(staged_dst_empty, (task_turn + 1) % 2);  // staged_dst free
            // staged = tf.schedule((tile_out, staged_dst), op=T.copy())
            {
                const int row = tf_swizzle<3, 4, 3>(((tid - 128) & 7) * 128 + (((tid - 128) >> 3) & 3) * 16 + ((tid - 128) >> 5) * 2048);
                #pragma unroll
                for (int i = 0; i < 16; i++) {
                    tf_store_matrix(shared + 147456 + (row ^ ((i % 2) * 64 + (i / 2 % 4) * 16384 + (i / 8) * 1024)), tile_out[i * 4], tile_out[i * 4 + 1], tile_out[i * 4 + 2], tile_out[i * 4 + 3]);
                }
            }
            tf_proxy_fence();  // staged_dst filled
            __syncwarp();  // staged_dst filled
            if (tid % 32 == 0) tf_mbarrier_arrive(staged_dst_full);  // staged_dst filled
        }
    }
}
