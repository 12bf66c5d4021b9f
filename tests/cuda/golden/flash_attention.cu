// FlashAttention, emitted by TileFoundry for nvidia.h200_sxm.
#include "tf_cuda.cuh"

TF void wgmma_m64n128k16_f16(float *d, uint64_t a, uint64_t b, int adds) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "{"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, %64, %65, p, 1, 1, 0, 0;\n"
        "}"
        : 
          "+f"(d[0]), "+f"(d[1]), "+f"(d[32]), "+f"(d[33]), "+f"(d[2]), "+f"(d[3]), "+f"(d[34]), "+f"(d[35]),
          "+f"(d[4]), "+f"(d[5]), "+f"(d[36]), "+f"(d[37]), "+f"(d[6]), "+f"(d[7]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[40]), "+f"(d[41]), "+f"(d[10]), "+f"(d[11]), "+f"(d[42]), "+f"(d[43]),
          "+f"(d[12]), "+f"(d[13]), "+f"(d[44]), "+f"(d[45]), "+f"(d[14]), "+f"(d[15]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[48]), "+f"(d[49]), "+f"(d[18]), "+f"(d[19]), "+f"(d[50]), "+f"(d[51]),
          "+f"(d[20]), "+f"(d[21]), "+f"(d[52]), "+f"(d[53]), "+f"(d[22]), "+f"(d[23]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[56]), "+f"(d[57]), "+f"(d[26]), "+f"(d[27]), "+f"(d[58]), "+f"(d[59]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[60]), "+f"(d[61]), "+f"(d[30]), "+f"(d[31]), "+f"(d[62]), "+f"(d[63])
        : "l"(a), "l"(b), "r"(adds));
}

TF void wgmma_m64n128k16_f16_rs_bt(float *d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, int adds) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "{"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n"
        "}"
        : 
          "+f"(d[0]), "+f"(d[1]), "+f"(d[32]), "+f"(d[33]), "+f"(d[2]), "+f"(d[3]), "+f"(d[34]), "+f"(d[35]),
          "+f"(d[4]), "+f"(d[5]), "+f"(d[36]), "+f"(d[37]), "+f"(d[6]), "+f"(d[7]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[40]), "+f"(d[41]), "+f"(d[10]), "+f"(d[11]), "+f"(d[42]), "+f"(d[43]),
          "+f"(d[12]), "+f"(d[13]), "+f"(d[44]), "+f"(d[45]), "+f"(d[14]), "+f"(d[15]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[48]), "+f"(d[49]), "+f"(d[18]), "+f"(d[19]), "+f"(d[50]), "+f"(d[51]),
          "+f"(d[20]), "+f"(d[21]), "+f"(d[52]), "+f"(d[53]), "+f"(d[22]), "+f"(d[23]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[56]), "+f"(d[57]), "+f"(d[26]), "+f"(d[27]), "+f"(d[58]), "+f"(d[59]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[60]), "+f"(d[61]), "+f"(d[30]), "+f"(d[31]), "+f"(d[62]), "+f"(d[63])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(adds));
}

extern "C" __global__ void __launch_bounds__(384, 1)
attention(const uint16_t *__restrict__ q, const uint16_t *__restrict__ k, const uint16_t *__restrict__ v, uint16_t *__restrict__ out, const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map)
{
    extern __shared__ __align__(1024) char smem[];
    const uint32_t shared = tf_shared_start(smem);
    const int tid = threadIdx.x;
    const int warp = __shfl_sync(0xffffffff, tid / 32, 0);
    if (tid == 0) tf_prefetch(q_map);
    if (tid == 0) tf_prefetch(k_map);
    if (tid == 0) tf_prefetch(v_map);
    const int block = (int)blockIdx.x / 64;
    const int batch = (int)blockIdx.x / 32 % 2;
    const int head = (int)blockIdx.x % 32;
    const int group = warp / 4;
    const int g = (warp - 4) / 4;
    const int w = (warp - 4) % 4;
    const int l8 = (tid - 128) / 4 % 8;
    const int l4 = (tid - 128) % 4;
    const uint32_t q_tile_full = shared + 163840;
    const uint32_t k_ring_full = shared + 163848;
    const uint32_t k_ring_empty = shared + 163864;
    const uint32_t v_ring_full = shared + 163880;
    const uint32_t v_ring_empty = shared + 163896;
    if (warp == 0 && tf_elect()) {
        tf_mbarrier_init(q_tile_full, 1);
        tf_mbarrier_init(k_ring_full, 1);
        tf_mbarrier_init(k_ring_full + 1 * 8, 1);
        tf_mbarrier_init(k_ring_empty, 2);
        tf_mbarrier_init(k_ring_empty + 1 * 8, 2);
        tf_mbarrier_init(v_ring_full, 1);
        tf_mbarrier_init(v_ring_full + 1 * 8, 1);
        tf_mbarrier_init(v_ring_empty, 2);
        tf_mbarrier_init(v_ring_empty + 1 * 8, 2);
        tf_mbarrier_init_fence();
    }
    tf_barrier<0, 384>();  // barriers initialised
    tf_overlap_wait();  // for the end of the kernel before this one
    tf_overlap_next();  // the next one may start, and wait
    if (warp < 4) {
        tf_fewer_registers<40>();  // warpgroups 0:1
        if (warp == 0) {
            if (tf_elect()) {
                tf_mbarrier_expect(q_tile_full, 32768);  // q_tile filled
                // queries = tf.schedule((q[cta.batch, m:m + BM, cta.head, :], q_tile), op=T.copy_async_tensor())
                tf_tensor_load(shared + 131072, q_map, q_tile_full, 0, block * 128, 0, batch, head);
            }
            #pragma unroll 1
            for (int n_2 = 0; n_2 < block * 128 + 3712; n_2 += 128) {
                const int slot = (n_2 / 128) % 2;
                const int phase = ((n_2 / 256) + 1) % 2;
                tf_mbarrier_wait(k_ring_empty + slot * 8, phase);  // k_ring free
                if (tf_elect()) {
                    tf_mbarrier_expect(k_ring_full + slot * 8, 32768);  // k_ring filled
                    // keys = tf.schedule((k[cta.batch, n:n + BN, group, :], k_ring), op=T.copy_async_tensor())
                    tf_tensor_load(shared + slot * 32768, k_map, k_ring_full + slot * 8, 0, n_2, 0, batch, head / 4);
                }
                tf_mbarrier_wait(v_ring_empty + slot * 8, phase);  // v_ring free
                if (tf_elect()) {
                    tf_mbarrier_expect(v_ring_full + slot * 8, 32768);  // v_ring filled
                    // vals = tf.schedule((v[cta.batch, n:n + BN, group, :], v_ring), op=T.copy_async_tensor())
                    tf_tensor_load(shared + 65536 + slot * 32768, v_map, v_ring_full + slot * 8, 0, n_2, 0, batch, head / 4);
                }
            }
        }
    }
    else {
        tf_more_registers<232>();  // warpgroups 1:3
        float acc[64];  // Tensor[(128, 128), "f32", (2 @ g, 4 @ w, 2, 8 @ l8, 16, 4 @ l4, 2), "rmem"]
        float most[2];  // Tensor[(128, 1), "f32", (2 @ g, 4 @ w, 2, 8 @ l8, 1), "rmem"]
        int rows[2];  // Tensor[(128,), "i32", (2 @ g, 4 @ w, 2, 8 @ l8), "rmem"]
        float total[2];  // Tensor[(128, 1), "f32", (2 @ g, 4 @ w, 2, 8 @ l8, 1) @ {l4 @ P("sum")}, "rmem"]
        // acc = tf.zeros(Tensor[(BM, D), "f32", (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, D // 8, 4 @ use.l4, 2), "rmem"])
        tf_fill<64>(acc, 0.0f);
        float zeros[2];  // Tensor[(128, 1), "f32", (2 @ g, 4 @ w, 2, 8 @ l8, 1), "rmem"]
        // most = tf.full_like(tf.zeros(Tensor[(BM, 1), "f32", (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, 1), "rmem"]), MASKED)
        tf_fill<2>(zeros, 0.0f);
        // most = tf.full_like(tf.zeros(Tensor[(BM, 1), "f32", (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, 1), "rmem"]), MASKED)
        tf_fill<2>(most, -1.00000002e+30f);
        // total = tf.zeros(Tensor[(BM, 1), "f32", (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, 1) @ {use.l4 @ P("sum")}, "rmem"])
        tf_fill<2>(total, 0.0f);
        // rows = tf.arange(Tensor[(BM,), "i32", (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8), "rmem"], m + SHIFT)
        {
            #pragma unroll
            for (int i = 0; i < 2; i++) {
                rows[i] = (block * 128 + 3584) + (g * 64 + l8 + w * 16 + i * 8);
            }
        }
        float most_2[2];  // Tensor[(128, 1), "f32", (2 @ g, 4 @ w, 2, 8 @ l8, 1), "rmem"]
        // most = tf.full_like(tf.zeros(Tensor[(BM, 1), "f32", (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, 1), "rmem"]), MASKED)
        {
            #pragma unroll
            for (int i = 0; i < 2; i++) {
                most_2[i] = most[i];
            }
        }
        tf_mbarrier_wait(q_tile_full, 0);  // q_tile filled
        #pragma unroll 1
        for (int n_2 = 0; n_2 < block * 128 + 3712; n_2 += 128) {
            const int slot = (n_2 / 128) % 2;
            const int phase = (n_2 / 256) % 2;
            float higher[2];  // Tensor[(128, 1), "f32", (2 @ g, 4 @ w, 2, 8 @ l8, 1), "rmem"]
            float zero[64];  // Tensor[(128, 128), "f32", (2 @ g, 4 @ w, 2, 8 @ l8, 16, 4 @ l4, 2), "rmem"]
            tf_mbarrier_wait(k_ring_full + slot * 8, phase);  // k_ring filled
            tf_hold(zero);
            tf_wgmma_fence();
            // s = tf.schedule((zero, queries, tf.transpose(keys, (1, 0))), op=T.tiled_mma(atom=scores), repeat=(2, 1, D // 16))
            {
                const uint64_t a_tile = tf_descriptor(0x4000004000000000, shared + 131072 + g * 8192);
                const uint64_t b_tile = tf_descriptor(0x4000004000000000, shared + slot * 32768);
                wgmma_m64n128k16_f16(zero, a_tile, b_tile, 0);
                wgmma_m64n128k16_f16(zero, a_tile + 2, b_tile + 2, 1);
                wgmma_m64n128k16_f16(zero, a_tile + 4, b_tile + 4, 1);
                wgmma_m64n128k16_f16(zero, a_tile + 6, b_tile + 6, 1);
                wgmma_m64n128k16_f16(zero, a_tile + 1024, b_tile + 1024, 1);
                wgmma_m64n128k16_f16(zero, a_tile + 1026, b_tile + 1026, 1);
                wgmma_m64n128k16_f16(zero, a_tile + 1028, b_tile + 1028, 1);
                wgmma_m64n128k16_f16(zero, a_tile + 1030, b_tile + 1030, 1);
            }
            tf_wgmma_commit();
            int columns[32];  // Tensor[(128,), "i32", (16, 4 @ l4, 2), "rmem"]
            // columns = tf.arange(Tensor[(BN,), "i32", (BN // 8, 4 @ use.l4, 2), "rmem"], n)
            {
                #pragma unroll
                for (int i = 0; i < 32; i++) {
                    columns[i] = (n_2) + (l4 * 2 + i % 2 + (i / 2) * 8);
                }
            }
            bool cmp_le[64];  // Tensor[(128, 128), "bool", (2 @ g, 4 @ w, 2, 8 @ l8, 16, 4 @ l4, 2), "rmem"]
            // seen = tf.where(columns[None, :] <= rows[:, None], s * SCALE, MASKED)
            {
                #pragma unroll
                for (int i = 0; i < 64; i++) {
                    cmp_le[i] = columns[i % 32] <= rows[i / 32];
                }
            }
            tf_wgmma_wait<0>();  // k_ring free
            tf_hold(zero);
            tf_hold(acc);
            if (tid % 128 == 0) tf_mbarrier_arrive(k_ring_empty + slot * 8);  // k_ring free
            float mul[64];  // Tensor[(128, 128), "f32", (2 @ g, 4 @ w, 2, 8 @ l8, 16, 4 @ l4, 2), "rmem"]
            // seen = tf.where(columns[None, :] <= rows[:, None], s * SCALE, MASKED)
            {
                #pragma unroll
                for (int i = 0; i < 64; i++) {
                    mul[i] = zero[i] * 0.127517432f;
                }
            }
            float seen[64];  // Tensor[(128, 128), "f32", (2 @ g, 4 @ w, 2, 8 @ l8, 16, 4 @ l4, 2), "rmem"]
            // seen = tf.where(columns[None, :] <= rows[:, None], s * SCALE, MASKED)
            {
                #pragma unroll
                for (int i = 0; i < 64; i++) {
                    seen[i] = (cmp_le[i] ? mul[i] : -1.00000002e+30f);
                }
            }
            float reduce[2];  // Tensor[(128, 1), "f32", (2 @ g, 4 @ w, 2, 8 @ l8, 1) @ {l4 @ P("max")}, "rmem"]
            // here = tf.reshard(tf.reduce(seen, (1,), True, "max"), (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, 1))
            {
                float total_2_0 = seen[0];
                float total_2_1 = seen[1];
                float total_2_2 = seen[2];
                float total_2_3 = seen[3];
                #pragma unroll
                for (int i = 0; i < 7; i++) {
                    total_2_0 = tf_maximum(total_2_0, seen[i * 4 + 4]);
                    total_2_1 = tf_maximum(total_2_1, seen[i * 4 + 5]);
                    total_2_2 = tf_maximum(total_2_2, seen[i * 4 + 6]);
                    total_2_3 = tf_maximum(total_2_3, seen[i * 4 + 7]);
                }
                const float total_2 = (tf_maximum((tf_maximum(total_2_0, total_2_1)), (tf_maximum(total_2_2, total_2_3))));
                float total_3_0 = seen[32];
                float total_3_1 = seen[33];
                float total_3_2 = seen[34];
                float total_3_3 = seen[35];
                #pragma unroll
                for (int i = 0; i < 7; i++) {
                    total_3_0 = tf_maximum(total_3_0, seen[i * 4 + 36]);
                    total_3_1 = tf_maximum(total_3_1, seen[i * 4 + 37]);
                    total_3_2 = tf_maximum(total_3_2, seen[i * 4 + 38]);
                    total_3_3 = tf_maximum(total_3_3, seen[i * 4 + 39]);
                }
                const float total_3 = (tf_maximum((tf_maximum(total_3_0, total_3_1)), (tf_maximum(total_3_2, total_3_3))));
                reduce[0] = total_2;
                reduce[1] = total_3;
            }
            float here[2];  // Tensor[(128, 1), "f32", (2 @ g, 4 @ w, 2, 8 @ l8, 1), "rmem"]
            // here = tf.reshard(tf.reduce(seen, (1,), True, "max"), (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, 1))
            {
                float terms[2];
                #pragma unroll
                for (int i = 0; i < 2; i++) {
                    terms[i] = reduce[i];
                }
                #pragma unroll
                for (int i = 0; i < 2; i++) {
                    terms[i] = tf_maximum(terms[i], __shfl_xor_sync(0xffffffff, terms[i], 2));
                }
                #pragma unroll
                for (int i = 0; i < 2; i++) {
                    terms[i] = tf_maximum(terms[i], __shfl_xor_sync(0xffffffff, terms[i], 1));
                }
                #pragma unroll
                for (int i = 0; i < 2; i++) {
                    here[i] = terms[i];
                }
            }
            // higher = tf.maximum(most, here)
            {
                #pragma unroll
                for (int i = 0; i < 2; i++) {
                    higher[i] = tf_maximum(most_2[i], here[i]);
                }
            }
            float sub[64];  // Tensor[(128, 128), "f32", (2 @ g, 4 @ w, 2, 8 @ l8, 16, 4 @ l4, 2), "rmem"]
            // power = tf.exp2(seen - higher)
            {
                #pragma unroll
                for (int i = 0; i < 64; i++) {
                    sub[i] = seen[i] - higher[i / 32];
                }
            }
            float power[64];  // Tensor[(128, 128), "f32", (2 @ g, 4 @ w, 2, 8 @ l8, 16, 4 @ l4, 2), "rmem"]
            // power = tf.exp2(seen - higher)
            {
                #pragma unroll
                for (int i = 0; i < 64; i++) {
                    power[i] = tf_exp2(sub[i]);
                }
            }
            float sub_2[2];  // Tensor[(128, 1), "f32", (2 @ g, 4 @ w, 2, 8 @ l8, 1), "rmem"]
            // fade = tf.exp2(most - higher)
            {
                #pragma unroll
                for (int i = 0; i < 2; i++) {
                    sub_2[i] = most_2[i] - higher[i];
                }
            }
            float fade[2];  // Tensor[(128, 1), "f32", (2 @ g, 4 @ w, 2, 8 @ l8, 1), "rmem"]
            // fade = tf.exp2(most - higher)
            {
                #pragma unroll
                for (int i = 0; i < 2; i++) {
                    fade[i] = tf_exp2(sub_2[i]);
                }
            }
            float mul_2[2];  // Tensor[(128, 1), "f32", (2 @ g, 4 @ w, 2, 8 @ l8, 1) @ {l4 @ P("sum")}, "rmem"]
            // total = total * fade + tf.reduce(power, (1,), True, "sum")
            {
                #pragma unroll
                for (int i = 0; i < 2; i++) {
                    mul_2[i] = total[i] * fade[i];
                }
            }
            float reduce_2[2];  // Tensor[(128, 1), "f32", (2 @ g, 4 @ w, 2, 8 @ l8, 1) @ {l4 @ P("sum")}, "rmem"]
            // total = total * fade + tf.reduce(power, (1,), True, "sum")
            {
                float total_2_0 = power[0];
                float total_2_1 = power[1];
                float total_2_2 = power[2];
                float total_2_3 = power[3];
                #pragma unroll
                for (int i = 0; i < 7; i++) {
                    total_2_0 = total_2_0 + power[i * 4 + 4];
                    total_2_1 = total_2_1 + power[i * 4 + 5];
                    total_2_2 = total_2_2 + power[i * 4 + 6];
                    total_2_3 = total_2_3 + power[i * 4 + 7];
                }
                const float total_2 = ((total_2_0 + total_2_1) + (total_2_2 + total_2_3));
                float total_3_0 = power[32];
                float total_3_1 = power[33];
                float total_3_2 = power[34];
                float total_3_3 = power[35];
                #pragma unroll
                for (int i = 0; i < 7; i++) {
                    total_3_0 = total_3_0 + power[i * 4 + 36];
                    total_3_1 = total_3_1 + power[i * 4 + 37];
                    total_3_2 = total_3_2 + power[i * 4 + 38];
                    total_3_3 = total_3_3 + power[i * 4 + 39];
                }
                const float total_3 = ((total_3_0 + total_3_1) + (total_3_2 + total_3_3));
                reduce_2[0] = total_2;
                reduce_2[1] = total_3;
            }
            // total = total * fade + tf.reduce(power, (1,), True, "sum")
            {
                #pragma unroll
                for (int i = 0; i < 2; i++) {
                    total[i] = mul_2[i] + reduce_2[i];
                }
            }
            if (n_2 > 0) {
                if (tid % 128 == 0) tf_mbarrier_arrive(v_ring_empty + (((n_2 / 128) + 1) % 2) * 8);  // v_ring free
            }
            // acc = tf.schedule((acc * fade, tf.cast(power, "f16"), vals), op=T.tiled_mma(atom=values), repeat=(2, 1, BN // 16))
            {
                #pragma unroll
                for (int i = 0; i < 64; i++) {
                    acc[i] = acc[i] * fade[i / 32];
                }
            }
            uint32_t cast[32];  // Tensor[(128, 128), "f16", (2 @ g, 4 @ w, 2, 8 @ l8, 16, 4 @ l4, 2), "rmem"]
            // acc = tf.schedule((acc * fade, tf.cast(power, "f16"), vals), op=T.tiled_mma(atom=values), repeat=(2, 1, BN // 16))
            {
                #pragma unroll
                for (int i = 0; i < 32; i++) {
                    cast[i] = tf_pack_f16(power[i * 2], power[i * 2 + 1]);
                }
            }
            tf_mbarrier_wait(v_ring_full + slot * 8, phase);  // v_ring filled
            tf_hold(acc);
            tf_hold(cast);
            tf_wgmma_fence();
            // acc = tf.schedule((acc * fade, tf.cast(power, "f16"), vals), op=T.tiled_mma(atom=values), repeat=(2, 1, BN // 16))
            {
                const uint64_t b_tile = tf_descriptor(0x4000004004000000, shared + 65536 + slot * 32768);
                wgmma_m64n128k16_f16_rs_bt(acc, cast[0], cast[16], cast[1], cast[17], b_tile, 1);
                wgmma_m64n128k16_f16_rs_bt(acc, cast[2], cast[18], cast[3], cast[19], b_tile + 128, 1);
                wgmma_m64n128k16_f16_rs_bt(acc, cast[4], cast[20], cast[5], cast[21], b_tile + 256, 1);
                wgmma_m64n128k16_f16_rs_bt(acc, cast[6], cast[22], cast[7], cast[23], b_tile + 384, 1);
                wgmma_m64n128k16_f16_rs_bt(acc, cast[8], cast[24], cast[9], cast[25], b_tile + 512, 1);
                wgmma_m64n128k16_f16_rs_bt(acc, cast[10], cast[26], cast[11], cast[27], b_tile + 640, 1);
                wgmma_m64n128k16_f16_rs_bt(acc, cast[12], cast[28], cast[13], cast[29], b_tile + 768, 1);
                wgmma_m64n128k16_f16_rs_bt(acc, cast[14], cast[30], cast[15], cast[31], b_tile + 896, 1);
            }
            tf_wgmma_commit();
            // higher = tf.maximum(most, here)
            {
                #pragma unroll
                for (int i = 0; i < 2; i++) {
                    most_2[i] = higher[i];
                }
            }
        }
        tf_wgmma_wait<0>();  // v_ring read
        tf_hold(acc);
        if (tid % 128 == 0) tf_mbarrier_arrive(v_ring_empty + (block % 2) * 8);  // v_ring free
        float whole[2];  // Tensor[(128, 1), "f32", (2 @ g, 4 @ w, 2, 8 @ l8, 1), "rmem"]
        // whole = tf.reshard(total, (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, 1))
        {
            float terms[2];
            #pragma unroll
            for (int i = 0; i < 2; i++) {
                terms[i] = total[i];
            }
            #pragma unroll
            for (int i = 0; i < 2; i++) {
                terms[i] = terms[i] + __shfl_xor_sync(0xffffffff, terms[i], 2);
            }
            #pragma unroll
            for (int i = 0; i < 2; i++) {
                terms[i] = terms[i] + __shfl_xor_sync(0xffffffff, terms[i], 1);
            }
            #pragma unroll
            for (int i = 0; i < 2; i++) {
                whole[i] = terms[i];
            }
        }
        float div[64];  // Tensor[(128, 128), "f32", (2 @ g, 4 @ w, 2, 8 @ l8, 16, 4 @ l4, 2), "rmem"]
        // done = tf.reshape(tf.cast(acc / whole, "f16"), (1, BM, 1, D))
        {
            #pragma unroll
            for (int i = 0; i < 64; i++) {
                div[i] = tf_divide(acc[i], whole[i / 32]);
            }
        }
        uint32_t cast_2[32];  // Tensor[(128, 128), "f16", (2 @ g, 4 @ w, 2, 8 @ l8, 16, 4 @ l4, 2), "rmem"]
        // done = tf.reshape(tf.cast(acc / whole, "f16"), (1, BM, 1, D))
        {
            #pragma unroll
            for (int i = 0; i < 32; i++) {
                cast_2[i] = tf_pack_f16(div[i * 2], div[i * 2 + 1]);
            }
        }
        // out = tf.insert_slice(out, done, (cta.batch, m, cta.head, 0))
        {
            uint16_t *out_at = out + batch * 2097152 + block * 524288 + head * 128 + g * 262144 + l4 * 2 + l8 * 4096 + w * 65536;
            #pragma unroll
            for (int i = 0; i < 32; i++) {
                tf_store<4>(out_at + (i % 16) * 8 + (i / 16) * 32768, &cast_2[i]);
            }
        }
    }
}
