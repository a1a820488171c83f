// Weights of convolutions between the order users see, [outs, channels, taps], and the blocked ones of oneDNN, for the
// blocks that its own reordering is slow at.
#pragma once
#include <cstdint>

namespace mge::simd {

/// dst[c / block * channel_step + t * tap_step + o * out_step + c % block]; a partial last block is filled with zeros.
/// block is a multiple of 16.
struct InputBlocks {
  int64_t outs, channels, taps, block, channel_step, tap_step, out_step;
};
void pack_input_blocks(const InputBlocks& b, const float* weight, float* dst);

/// weight[o, c, t] from src[o / 16 * out_step + c / 16 * channel_step + t * tap_step + c % 16 * 16 + o % 16].
struct SquareBlocks {
  int64_t outs, channels, taps, out_step, channel_step, tap_step;
};
void unpack_square_blocks(const SquareBlocks& b, const float* src, float* weight);

}  // namespace mge::simd
