#include "kernel/cost.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/cost.h"
#include "kernel/layouts.h"

namespace mge::cost {
namespace {

// A library call takes some 3 us longer than one of ours: finding the primitive, reordering, waking. Threads share the
// arithmetic but not that, so it takes this much of it, on one core, to make the call worth its while.
constexpr double kLibraryCall = 20'000;

// Of F(2x2, 3x3): a tile needs 16 multiply-adds for each pair of channels instead of 36. Transforms cost what moving so
// many bytes does.
constexpr double kSavedFlops = 2 * (36 - 16);
struct Transforms {
  double tile;    // a tile of one channel, in or out
  double filter;  // a filter
};
// The adjoints compete with a library that has no weights to bring into order, the forward pass with the product over
// pixels, which has. NOTE(perf): us on one core, pixels against tiles, 7x7 (16 tiles): 512 channels 2830/2340, 256
// 640/500, 64 41/35, with weights brought into order before 2040/1220, 505/304, 34/23; 16 channels on 56x56: 260/133.
constexpr Transforms kForward{16, 38}, kAdjoint{40, 120};
// Of F(4x4, 3x3): 36 multiply-adds for 16 outputs, where four tiles of 2x2 take 64.
constexpr double kSavedFlops4 = 2 * (64 - 36);
// NOTE(perf): us on one core, 2x2 against 4x4, weights in order: 256 channels on 14x14 922/715, 512 3760/3117.
constexpr double kTileBytes4 = 16;   // more than four tiles of one channel
constexpr double kPointBytes4 = 54;  // what the points of a filter are more than those of 2x2

// Points are 16/9 or 4 times as large as the weight they are made of. A few more tiles than this are worked on in
// blocks, each of which would make them anew. NOTE(perf): one core of Zen 5, points kept against taps kept:
// ResNet-50 25.2 ms, 200 MB/26.0 ms, 147 MB; ResNet-18 7.6 ms, 137 MB/8.4 ms, 93 MB; a vector of filters takes 100
// cycles (4x4), 50 (2x2).
constexpr int64_t kTilesAtOnce = 56;

// What a library's adjoint moves for each weight, which it wants in another order: read, allocated, written, read.
constexpr double kReorderBytes = 4 * 4;

}  // namespace

bool library_pays(double flops, double gain) { return sums_ns(flops) >= kLibraryCall / gain; }

bool library_pays_for_rows(int64_t rows, double flops) {
  // NOTE(perf): GFLOP/s on 2 cores with AVX-512, simd against oneDNN: 16x1024x1024 179/158, 1024x512x512 223/222, but
  // 8x1024x1024 94/122; on one core 128x1536x512 102/105, 128x2048x512 106/101, 128x512x2048 99/106. Ours has a path of
  // its own up to 4 rows, fills its tiles from 13 on, and takes weights that were packed before.
  return rows >= 5 && rows <= 12 && library_pays(flops, 1.0 / 2);
}

int64_t winograd_largest() {
  static const int64_t largest = [] {
    const char* text = std::getenv("MGE_WINOGRAD");
    const std::string_view given = text ? text : "4";
    if (given == "0" || given == "2") return given[0] - '0';
    if (given != "4")
      std::fprintf(stderr,
                   "megengine: MGE_WINOGRAD: expected 4, 2 or 0 (no transformed tiles); got '%s'. It is not used.\n",
                   text);
    return 4;
  }();
  return largest;
}

bool winograd_can(const ConvGeom& g) {
  return winograd_largest() >= 2 && g.kh == 3 && g.kw == 3 && g.sh * g.sw == 1 && g.dh * g.dw == 1 && g.groups == 1 &&
         g.ph <= 2 && g.pw <= 2 && g.c > 0 && g.o > 0 && g.c % 16 == 0 && g.o % 16 == 0 && !g.empty();
}

bool winograd_pays(const ConvGeom& g, ConvRole role) {
  if (!winograd_can(g)) return false;
  const Transforms& t = role == ConvRole::Forward ? kForward : kAdjoint;
  const double c = static_cast<double>(g.c), o = static_cast<double>(g.o);
  const auto tiles = static_cast<double>(g.n * ((g.oh + 1) / 2) * ((g.ow + 1) / 2));
  // A tile is worth its own transforms, and there are enough of them for those of the weight.
  if (sums_ns(kSavedFlops * c * o) < move_ns(t.tile * (c + o))) return false;
  return sums_ns(kSavedFlops * tiles) >= move_ns(t.filter);
}

bool winograd4_pays(const ConvGeom& g) {
  if (winograd_largest() < 4 || !winograd_can(g)) return false;
  const double c = static_cast<double>(g.c), o = static_cast<double>(g.o);
  const auto tiles = static_cast<double>(g.n * ((g.oh + 3) / 4) * ((g.ow + 3) / 4));
  if (sums_ns(kSavedFlops4 * c * o) < move_ns(kTileBytes4 * (c + o))) return false;
  return sums_ns(kSavedFlops4 * tiles) >= move_ns(kPointBytes4);
}

bool winograd_keeps_taps(const ConvGeom& g, int64_t side) {
  const int64_t tiles = g.n * ((g.oh + side - 1) / side) * ((g.ow + side - 1) / side), points = (side + 2) * (side + 2);
  return tiles <= kTilesAtOnce && points * g.c * g.o * int64_t{sizeof(float)} > machine().l2;
}

bool lines_can(const ConvGeom& g) { return g.groups == 1 && g.c > 0 && g.o > 0 && !g.empty(); }

bool lines_pays(const ConvGeom& g) {
  // Fewer channels leave most of a line or of a panel empty, and small images are as well off in planes.
  return lines_can(g) && g.c >= 16 && g.o >= 16 && library_pays(g.flops(), 1);
}

bool first_can(const ConvGeom& g) { return g.groups == 1 && g.c > 0 && g.c <= 4 && g.o > 0 && !g.empty(); }

bool first_pays(const ConvGeom& g) { return first_can(g) && g.o >= 16 && g.ow >= 8 && library_pays(g.flops(), 1); }

int64_t product_longest_sum(const ConvGeom& g) {
  return g.kh * g.kw == 1 ? 1 << 14 : g.sh * g.sw > 1 ? 1 << 12 : 1 << 10;
}

bool product_pays(const ConvGeom& g, ConvRole role) {
  if (g.groups != 1 || g.empty()) return false;
  const int64_t pixels = g.n * g.oh * g.ow, weight_bytes = 4 * g.o * g.c * g.kh * g.kw;
  if (role == ConvRole::WeightGrad && pixels > product_longest_sum(g)) return false;
  const bool strided = g.sh * g.sw > 1, one_tap = g.kh * g.kw == 1, plain = one_tap && !strided && g.ph + g.pw == 0;
  // A weight that stays in the second cache is reordered in no time; one of a single tap, whose product needs no
  // patches, need only be large beside what else is there.
  if (weight_bytes < (plain ? machine().l2 / 8 : machine().l2)) return false;
  // The part of the library's speed that a product falls short of: with more taps for a pixel the library reads the
  // image less often. NOTE(perf): GFLOP/s on 2 cores of the product against oneDNN. Weights, batch 16: 512 3x3 on 7x7
  // 193/121, 512 3x3 s2 on 14x14 179/90, 1024 to 2048 1x1 s2 192/157, 256 to 1024 1x1 on 14x14 192/144; data: 512 to
  // 2048 1x1 on 7x7 207/148; but 256 3x3 on 14x14 173/220.
  double shortfall = 1.0 / 4;
  if (plain)
    shortfall = 1.0 / 128;
  else if (strided && (one_tap || role == ConvRole::WeightGrad))
    shortfall = 1.0 / 32;
  else if (role == ConvRole::WeightGrad)
    shortfall = 1.0 / 8;
  return sums_ns(2 * static_cast<double>(pixels) * shortfall) <= move_ns(kReorderBytes);
}

int64_t recurrence_rows(int64_t batch, int64_t weight_bytes, int64_t parts) {
  constexpr int64_t kLeast = 8;  // rows in a block: fewer leave multiply-adds waiting for loads
  auto blocks = [&](int64_t wanted, int64_t least) {
    return std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, batch / least));
  };
  // As many as leave each thread weights that stay in its second cache.
  const int64_t half = machine().l2 / 2,
                kept = blocks(parts / std::max<int64_t>(1, (weight_bytes + half - 1) / half), kLeast);
  // Or as many as have rows enough to hide the way of all weights from further away: a row is half an operation for
  // each byte. NOTE(perf): 256 units, one core of Zen 5, weights of 1 MiB, second cache 1 MiB: 214 GFLOP/s with 32
  // rows, 207 with 16, 193 with 8.
  constexpr double kThirdCache = 3;  // as fast as memory, times
  const double rate = machine().gbytes * (weight_bytes <= machine().l3 / 2 ? kThirdCache : 1);
  return std::max(kept, blocks(parts, std::max(kLeast, static_cast<int64_t>(std::ceil(2 * machine().gflops / rate)))));
}

namespace {

// NOTE(perf): nanoseconds on one core with AVX-512 (100 operations and 6.25 bytes per ns), 16 to 144 channels of 7x7 to
// 112x112. Of 4 bytes: a copy along memory 0.1, one across it by blocks 0.14, a read across it inside an elementwise
// kernel 0.4 to 0.9. Of a result of a 3x3 window: along channels 0.4 to 0.6; along rows 0.6, and 2.3 where the window
// skips columns, and 13 for each row. So here: parts of the time that memory would take, and operations.
constexpr double kAlong = 5.0 / 32, kAcross = 7.0 / 32, kReadAcross = 25.0 / 32;
constexpr double kBetween = 1.0 / 2;
constexpr double kWindowLast = 50, kWindowRow = 50, kWindowSkips = 230, kRow = 1300;

}  // namespace

double copy_ns(double bytes, bool across) { return move_ns(bytes) * (across ? kAcross : kAlong); }
double read_across_ns(double bytes) { return move_ns(bytes) * kReadAcross; }

double windows_ns(const KernelArgs& a) {
  const Shape &x = a.in[0].shape, &y = a.out[0].shape;
  const auto values = static_cast<double>(y.numel());
  // Vectors of 16 channels, the last partly empty.
  if (in_channels_last(a.in[0]))
    return sums_ns(values * kWindowLast) * static_cast<double>((y[1] + 15) / 16 * 16) / static_cast<double>(y[1]);
  const bool skips = x[3] > y[3] + y[3] / 2;
  return sums_ns(values * (skips ? kWindowSkips : kWindowRow) + kRow * values / static_cast<double>(y[3]));
}

// A smaller one is mostly there when the next op comes to read it: 28x28 of 192 channels gain nothing.
bool between_pays(double bytes) { return bytes > static_cast<double>(machine().l2); }
double between_ns(double bytes) { return move_ns(bytes * kBetween); }
double band_bytes() { return static_cast<double>(machine().l2) / 4; }

double run_ns(const KernelArgs& a) {
  if (a.op->is(kEffect)) return kWaitNs;
  const Costs& c = costs();
  auto n = [](const TensorArg& t) { return static_cast<double>(t.numel()); };
  double values = 0;
  for (auto& t : a.in) values += n(t);
  for (auto& t : a.out) values += n(t);
  if (a.op->is(kComputeBound) && !a.in.empty()) {
    // [m,k] x [k,n] -> [m,n]: the root of the product of the sizes is the number of multiply-adds. A convolution takes
    // some more, by the side of its window.
    return c.value * values + c.fma * std::sqrt(n(a.in[0]) * n(a.in[a.in.size() > 1 ? 1 : 0]) * n(a.out[0]));
  }
  return values * (a.op->is(kElementwise) || a.op->is(kReduction) || a.op->is(kView) ? c.value : c.step);
}

}  // namespace mge::cost
