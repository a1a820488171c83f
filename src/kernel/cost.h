// Which of several ways to compute is expected to be faster: small comparisons of two times on one core, in the
// constants of the machine (base/machine.h). Kernels ask in `avoid`. The answers depend on sizes and machine alone,
// never on the number of threads (docs/adr/0025-machine-constants.md).
//   if (!cost::library_pays(g.flops(), 1)) return "small; simd is faster";
#pragma once
#include "base/machine.h"
#include "kernel/kernel.h"
#include "op/conv/conv.h"

namespace mge::cost {

/// Nanoseconds on one core: of arithmetic in a tiled product, and of bytes that pass through memory.
inline double sums_ns(double flops) { return flops / machine().gflops; }
inline double move_ns(double bytes) { return bytes / machine().gbytes; }

/// Whether a library's kernel that saves `gain` of the time our own takes makes up for calling it.
bool library_pays(double flops, double gain);
/// The same for rows times a transposed matrix, by the number of rows.
bool library_pays_for_rows(int64_t rows, double flops);

/// Convolutions, and their adjoints, that are best computed by transformed tiles (kernel/simd/conv/conv2d_last.h).
/// `can` be, by their geometry; and are worth the transforms.
bool winograd_can(const ConvGeom& g);
/// Outputs a side of the largest tiles that are used: 4, or what MGE_WINOGRAD says, 2 or 0 (none), for the whole
/// process (docs/adr/0054-tiles-of-4x4.md).
int64_t winograd_largest();
bool winograd_pays(const ConvGeom& g, ConvRole role);
/// The same for tiles of 4x4 outputs, of the forward pass.
bool winograd4_pays(const ConvGeom& g);
/// Whether a forward pass with tiles of `side` outputs keeps a weight as taps, which take no more memory than it, and
/// makes its points on the way, each time: where they would not stay in the second cache, and the tiles are few enough
/// to be worked on together, so that it is done once. The bits are the same.
bool winograd_keeps_taps(const ConvGeom& g, int64_t side);

/// Forward convolutions that are computed as one product over pixels (kernel/simd/conv/conv2d_last.h).
bool lines_can(const ConvGeom& g);
bool lines_pays(const ConvGeom& g);

/// Forward convolutions of images of few channels that are computed from planes into channels-last memory.
bool first_can(const ConvGeom& g);
bool first_pays(const ConvGeom& g);

/// Adjoints best computed as one matrix product over all pixels (kernel/simd/conv/conv2d_last.h): many weights, few
/// pixels. longest_sum: more pixels would lose digits.
int64_t product_longest_sum(const ConvGeom& g);
bool product_pays(const ConvGeom& g, ConvRole role);

/// Into how many blocks the rows of a recurrent layer's batch are cut, where `parts` threads are worth it and its
/// recurrent weight has so many bytes: each step reads all of it for each block. Fewer blocks than parts are cut by
/// units, too, and then threads exchange the state after each step. The bits are the same.
int64_t recurrence_rows(int64_t batch, int64_t weight_bytes, int64_t parts);

/// Nanoseconds on one core that memory orders cost (plan/layouts.h), of tensors that lie in a cache: a copy along
/// memory or, by blocks, across it, and reading across it inside of an elementwise kernel.
double copy_ns(double bytes, bool across);
double read_across_ns(double bytes);
/// What a copy takes beside its bytes.
inline constexpr double kCopyCallNs = 400;
/// A kernel whose windows each see one channel, with the order of its input: along channels, or along rows.
double windows_ns(const KernelArgs& a);

/// Ops that run band by band (plan/bands.h): whether a result of so many bytes is worth it, what is saved when it
/// stays in the second cache, and how much of that bands may fill.
bool between_pays(double bytes);
double between_ns(double bytes);
double band_bytes();

/// How long a kernel runs on one core, as far as the sizes tell: good for an order of magnitude.
double run_ns(const KernelArgs& a);
/// What takes longer is worth letting other threads of the interpreter run, which costs a tenth of a microsecond.
inline constexpr double kLongNs = 10'000;
/// What a kernel that waits for other processes counts for.
inline constexpr double kWaitNs = 10'000'000;
/// No kernel on tensors smaller than this each takes so long. A power of two.
inline constexpr size_t kFewBytes = 4096;

}  // namespace mge::cost
