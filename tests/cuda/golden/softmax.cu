// Softmax, emitted by TileFoundry for nvidia.h200_sxm.
#include "tf_cuda.cuh"

#ifndef SOFTMAX_RESIDENT
#define SOFTMAX_RESIDENT 2  // CTAs on one SM: fewer where registers would spill
#endif
extern "C" __global__ void __launch_bounds__(256, SOFTMAX_RESIDENT)
softmax(const uint16_t *__restrict__ x, uint16_t *__restrict__ out)
{
    const int tid = threadIdx.x;
    const int warp = __shfl_sync(0xffffffff, tid / 32, 0);
    const int block = (int)blockIdx.x;
    const int warp_2 = warp;
    const int lane = tid % 32;
    #pragma unroll 1
    for (int task = block, task_turn = 0; task < 1024; task += 264, task_turn++) {
        uint32_t held[32];  // Tensor[(8, 2048), "bf16", (8 @ warp, 8, 32 @ lane, 8), "rmem"]
        // held = tf.reshard(x[row:row + WARPS, :], (WARPS @ t.warp, PER, 32 @ t.lane, VEC), "rmem")
        {
            const uint16_t *x_at = x + lane * 8 + warp_2 * 2048 + task * 16384;
            #pragma unroll
            for (int i = 0; i < 8; i++) {
                tf_load<16>(&held[i * 4], x_at + i * 256);
            }
        }
        float wide[64];  // Tensor[(8, 2048), "f32", (8 @ warp, 8, 32 @ lane, 8), "rmem"]
        // wide = tf.cast(held, "f32")
        {
            #pragma unroll
            for (int i = 0; i < 32; i++) {
                wide[i * 2] = tf_bf16_at<0>(held[i]);
                wide[i * 2 + 1] = tf_bf16_at<1>(held[i]);
            }
        }
        float reduce[1];  // Tensor[(8, 1), "f32", (8 @ warp, 1) @ {lane @ P("max")}, "rmem"]
        // most = tf.reshard(tf.reduce(wide, (1,), True, "max"), (WARPS @ t.warp, 1))
        {
            float total_0 = wide[0];
            float total_1 = wide[1];
            float total_2 = wide[2];
            float total_3 = wide[3];
            #pragma unroll
            for (int i = 0; i < 15; i++) {
                total_0 = tf_maximum(total_0, wide[i * 4 + 4]);
                total_1 = tf_maximum(total_1, wide[i * 4 + 5]);
                total_2 = tf_maximum(total_2, wide[i * 4 + 6]);
                total_3 = tf_maximum(total_3, wide[i * 4 + 7]);
            }
            const float total = (tf_maximum((tf_maximum(total_0, total_1)), (tf_maximum(total_2, total_3))));
            reduce[0] = total;
        }
        float most[1];  // Tensor[(8, 1), "f32", (8 @ warp, 1), "rmem"]
        // most = tf.reshard(tf.reduce(wide, (1,), True, "max"), (WARPS @ t.warp, 1))
        {
            float terms[1];
            terms[0] = reduce[0];
            terms[0] = tf_maximum(terms[0], __shfl_xor_sync(0xffffffff, terms[0], 16));
            terms[0] = tf_maximum(terms[0], __shfl_xor_sync(0xffffffff, terms[0], 8));
            terms[0] = tf_maximum(terms[0], __shfl_xor_sync(0xffffffff, terms[0], 4));
            terms[0] = tf_maximum(terms[0], __shfl_xor_sync(0xffffffff, terms[0], 2));
            terms[0] = tf_maximum(terms[0], __shfl_xor_sync(0xffffffff, terms[0], 1));
            most[0] = terms[0];
        }
        float sub[64];  // Tensor[(8, 2048), "f32", (8 @ warp, 8, 32 @ lane, 8), "rmem"]
        // power = tf.exp(wide - most)
        {
            #pragma unroll
            for (int i = 0; i < 64; i++) {
                sub[i] = wide[i] - most[0];
            }
        }
        float power[64];  // Tensor[(8, 2048), "f32", (8 @ warp, 8, 32 @ lane, 8), "rmem"]
        // power = tf.exp(wide - most)
        {
            #pragma unroll
            for (int i = 0; i < 64; i++) {
                power[i] = tf_exp(sub[i]);
            }
        }
        float reduce_2[1];  // Tensor[(8, 1), "f32", (8 @ warp, 1) @ {lane @ P("sum")}, "rmem"]
        // total = tf.reshard(tf.reduce(power, (1,), True, "sum"), (WARPS @ t.warp, 1))
        {
            float total_0 = power[0];
            float total_1 = power[1];
            float total_2 = power[2];
            float total_3 = power[3];
            #pragma unroll
            for (int i = 0; i < 15; i++) {
                total_0 = total_0 + power[i * 4 + 4];
                total_1 = total_1 + power[i * 4 + 5];
                total_2 = total_2 + power[i * 4 + 6];
                total_3 = total_3 + power[i * 4 + 7];
            }
            const float total = ((total_0 + total_1) + (total_2 + total_3));
            reduce_2[0] = total;
        }
        float total[1];  // Tensor[(8, 1), "f32", (8 @ warp, 1), "rmem"]
        // total = tf.reshard(tf.reduce(power, (1,), True, "sum"), (WARPS @ t.warp, 1))
        {
            float terms[1];
            terms[0] = reduce_2[0];
            terms[0] = terms[0] + __shfl_xor_sync(0xffffffff, terms[0], 16);
            terms[0] = terms[0] + __shfl_xor_sync(0xffffffff, terms[0], 8);
            terms[0] = terms[0] + __shfl_xor_sync(0xffffffff, terms[0], 4);
            terms[0] = terms[0] + __shfl_xor_sync(0xffffffff, terms[0], 2);
            terms[0] = terms[0] + __shfl_xor_sync(0xffffffff, terms[0], 1);
            total[0] = terms[0];
        }
        float div[64];  // Tensor[(8, 2048), "f32", (8 @ warp, 8, 32 @ lane, 8), "rmem"]
        // out = tf.insert_slice(out, tf.cast(power / total, "bf16"), (row, 0))
        {
            #pragma unroll
            for (int i = 0; i < 64; i++) {
                div[i] = tf_divide(power[i], total[0]);
            }
        }
        uint32_t cast[32];  // Tensor[(8, 2048), "bf16", (8 @ warp, 8, 32 @ lane, 8), "rmem"]
        // out = tf.insert_slice(out, tf.cast(power / total, "bf16"), (row, 0))
        {
            #pragma unroll
            for (int i = 0; i < 32; i++) {
                cast[i] = tf_pack_bf16(div[i * 2], div[i * 2 + 1]);
            }
        }
        // out = tf.insert_slice(out, tf.cast(power / total, "bf16"), (row, 0))
        {
            uint16_t *out_at = out + lane * 8 + warp_2 * 2048 + task * 16384;
            #pragma unroll
            for (int i = 0; i < 8; i++) {
                tf_store<16>(out_at + i * 256, &cast[i * 4]);
            }
        }
    }
}
