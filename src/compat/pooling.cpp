// Pooling and windows.
#include "op/pool/pool.h"

#include <array>

#include "compat/enums.h"
#include "compat/windows.h"

namespace mge::compat {
namespace {

struct Pooling : Policy {
  PoolMode mode = PoolMode::MAX;
  int64_t pad_h = 0, pad_w = 0, stride_h = 2, stride_w = 2, window_h = 2, window_w = 2;
  Format format = Format::NCHW;
  static constexpr auto fields() {
    using P = Pooling;
    return std::tuple_cat(
        field_list("mode", &P::mode, "pad_h", &P::pad_h, "pad_w", &P::pad_w, "stride_h", &P::stride_h, "stride_w",
                   &P::stride_w, "window_h", &P::window_h, "window_w", &P::window_w, "format", &P::format),
        policy_fields());
  }
};
struct AdaptivePooling {
  PoolMode mode = PoolMode::MAX;
  Format format = Format::NCHW;
  Ints shape{};
  static constexpr auto fields() {
    using P = AdaptivePooling;
    return field_list("mode", &P::mode, "format", &P::format, "shape", &P::shape);
  }
};
struct Neighbours {
  int64_t pad_h = 0, pad_w = 0, stride_h = 1, stride_w = 1, dilate_h = 1, dilate_w = 1, window_h = 3, window_w = 3;
  static constexpr auto fields() {
    using P = Neighbours;
    return field_list("pad_h", &P::pad_h, "pad_w", &P::pad_w, "stride_h", &P::stride_h, "stride_w", &P::stride_w,
                      "dilate_h", &P::dilate_h, "dilate_w", &P::dilate_w, "window_h", &P::window_h, "window_w",
                      &P::window_w);
  }
  Window window() const { return {window_h, window_w, pad_h, pad_w, stride_h, stride_w, dilate_h, dilate_w}; }
};
struct NeighboursBack : Neighbours {
  int64_t out_h = 0, out_w = 0;
  static constexpr auto fields() {
    using P = NeighboursBack;
    return std::tuple_cat(field_list("out_h", &P::out_h, "out_w", &P::out_w), Neighbours::fields());
  }
};

bool is_byte(const Val& x) { return is_int(x.dtype()) && dtype_size(x.dtype()) == 1; }

/// 8-bit integers go through float32 unharmed and come back as what they were.
Val pooled(const Val& x, PoolMode mode, Ints kernel, Ints stride, Ints pad) {
  if (mode == PoolMode::MAX) {
    Val y = emit("max_pool2d", {x}, PoolAttrs{std::move(kernel), std::move(stride), std::move(pad)});
    return is_byte(x) ? cast(y, x.dtype()) : y;
  }
  Val y = emit("avg_pool2d", {x},
               AvgPoolAttrs{std::move(kernel), std::move(stride), std::move(pad), mode == PoolMode::AVERAGE});
  return is_byte(x) ? cast(unary("round", y), x.dtype()) : y;
}

void check_format(const char* who, Format f) {
  MGE_CHECK(f == Format::NCHW, NotImplemented, "{}: format must be NCHW; got {}.", who, name_of(f));
}

void pooling(Emitter&, const Pooling& p, In in, Out& out) {
  check_format("Pooling", p.format);
  out.push_back(pooled(in[0], p.mode, {p.window_h, p.window_w}, {p.stride_h, p.stride_w}, {p.pad_h, p.pad_w}));
}

void adaptive_pooling(Emitter&, const AdaptivePooling& p, In in, Out& out) {
  check_format("AdaptivePooling", p.format);
  const SizeValues wanted = sizes_operand("AdaptivePooling", in, 1, p.shape);
  const Ints& size = wanted.now;
  const Shape x = now(in[0]);
  MGE_CHECK(x.rank == 4, Value, "AdaptivePooling: the input needs 4 dimensions (N, C, H, W); got {}.", x.str());
  MGE_CHECK(size.size() == 1 || size.size() == 2, Value, "AdaptivePooling: the shape is (height, width); got {} sizes.",
            size.size());
  const int64_t oh = size[0], ow = size.back();
  MGE_CHECK(0 < oh && oh <= x[2] && 0 < ow && ow <= x[3], Value,
            "AdaptivePooling: the output ({}, {}) must be at least 1 and at most the input ({}, {}).", oh, ow, x[2],
            x[3]);
  const int64_t sh = x[2] / oh, sw = x[3] / ow;
  const Ints kernel{x[2] - (oh - 1) * sh, x[3] - (ow - 1) * sw}, stride{sh, sw};
  const PoolMode mode = p.mode == PoolMode::MAX ? PoolMode::MAX : PoolMode::AVERAGE_COUNT_EXCLUDE_PADDING;
  const bool varies = in[0].em->any_size(in[0]);
  if (!varies && !wanted.operand) return out.push_back(pooled(in[0], mode, kernel, stride, {0, 0}));
  // Windows are as large as the sizes make them.
  const Val image = varies ? slice(in[0].em->size_operand(in[0]), 0, 2, 4)
                           : int_table(wanted.operand, std::array{x[2], x[3]}, Shape{2});
  auto table = [&](int64_t h, int64_t w) { return int_table(image, std::array{h, w}, Shape{2}); };
  const Val left = wanted.operand ? cast(wanted.operand, DType::I32) : table(oh, ow);
  const Val steps = binary("floor_div", image, left);
  const Val windows = image - steps * (wanted.operand ? left - scalar_like(left, 1) : table(oh - 1, ow - 1));
  auto attrs = [&]<class A>(A a) {
    return make_attrs(std::move(a), {{field_index<A>("kernel"), SizeOperand::kWhole, windows.p},
                                     {field_index<A>("stride"), SizeOperand::kWhole, steps.p}});
  };
  const Val& given = in[0];
  const Val y = mode == PoolMode::MAX
                    ? given.em->emit1("max_pool2d", {given}, attrs(PoolAttrs{kernel, stride, {0, 0}}))
                    : given.em->emit1("avg_pool2d", {given}, attrs(AvgPoolAttrs{kernel, stride, {0, 0}, false}));
  out.push_back(is_byte(given) ? cast(mode == PoolMode::MAX ? y : unary("round", y), given.dtype()) : y);
}

void images_to_neighbours(Emitter&, const Neighbours& p, In in, Out& out) {
  out.push_back(sliding_window("Images2Neibs", in[0], p.window()));
}
void neighbours_to_images(Emitter&, const NeighboursBack& p, In in, Out& out) {
  out.push_back(add_windows("SlidingWindowTranspose", in[0], p.out_h, p.out_w, p.window()));
}

}  // namespace

void add_pooling(Table& t) {
  t.add<Pooling, pooling>("Pooling", {1, 1}, "PoolingV1@1");
  t.add<AdaptivePooling, adaptive_pooling>("AdaptivePooling", {1, 2}, "AdaptivePoolingV1@1");
  t.add<Neighbours, images_to_neighbours>("Images2Neibs", {1, 1}, "Images2Neibs@1");
  t.add<NeighboursBack, neighbours_to_images>("SlidingWindowTranspose", {1, 1}, "SlidingWindowTranspose@1");
}

}  // namespace mge::compat
