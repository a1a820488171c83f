// index_get, index_set, index_incr and the two ops that look at values. Equal places are served in order: the CPU's
// bits.
#include "kernel/cuda/written.h"
#include "op/index/indexing.h"
#include "op/index/multi_index.h"

namespace mge::cuda {
namespace {

void push_axes(Words& w, const Shape& sizes, const int64_t* strides) {
  w.push_back(sizes.rank);
  for (int i = 0; i < kMaxRank; ++i) w.push_back(i < sizes.rank ? sizes[i] : 1);
  for (int i = 0; i < kMaxRank; ++i) w.push_back(i < sizes.rank ? strides[i] : 0);
}

struct Geometry {
  MultiIndexGeom g;
  Layout x;  // strides of x
  int64_t count, inners;
  Geometry(const KernelArgs& a, size_t first) {
    SmallVec<Shape, kMaxRank> shapes;
    for (size_t i = first; i < a.in.size(); ++i) shapes.push_back(a.in[i].shape);
    g = multi_index_geom(a.op->name.c_str(), a.as<MultiIndexAttrs>(), a.in[0].shape, {shapes.data(), shapes.size()});
    x = Layout::contiguous(a.in[0].shape);
    count = g.index.numel();
    inners = 1;
    for (int64_t ax : g.inner_axes) inners *= a.in[0].shape[static_cast<int>(ax)];
  }
  void push(Words& w, const Shape& of, const Ints& axes) const {
    Shape sizes;
    int64_t strides[kMaxRank];
    for (int64_t ax : axes) {
      strides[sizes.rank] = x.stride[ax];
      sizes.push_back(of[static_cast<int>(ax)]);
    }
    push_axes(w, sizes, strides);
  }
};

// Element offsets in x of every position of the indices.
RefPtr<Storage> find_places(const KernelArgs& a, const Geometry& geo, size_t first) {
  RefPtr<Storage> place = engine().scratch(a, static_cast<size_t>(geo.count) * 8);
  const auto& at = a.as<MultiIndexAttrs>();
  Word* error = engine().error_words(
      a, [op = a.op->name](const Word* w) { throw_bad_index(op.c_str(), "index", w[1], -w[2], w[2], w[3]); });
  const size_t tensors = a.in.size() - first;
  Words w{geo.count, address(place->ptr), address(error), static_cast<Word>(tensors)};
  for (size_t t = 0; t < 8; ++t) w.push_back(t < tensors ? address(a.in[first + t].ptr) : 0);
  for (size_t t = 0; t < 8; ++t) w.push_back(t < tensors ? a.in[0].shape[static_cast<int>(at.axes[t])] : 1);
  for (size_t t = 0; t < 8; ++t) w.push_back(t < tensors ? geo.x.stride[at.axes[t]] : 0);
  for (size_t t = 0; t < 8; ++t) {
    int64_t strides[kMaxRank] = {};
    if (t < tensors) {
      const Shape& s = a.in[first + t].shape;
      const Layout own = Layout::contiguous(s);
      const int shift = geo.g.index.rank - s.rank;
      for (int d = 0; d < s.rank; ++d) strides[d + shift] = s[d] == 1 ? 0 : own.stride[d];
    }
    push_axes(w, geo.g.index, strides);
  }
  engine().launch(a, written("mge_places", "index", {}, "#define MGE_PLACES"), cover(geo.count), {w.data(), w.size()});
  return place;
}

// `chains`: the kernel asks which positions name the same place.
void move(const KernelArgs& a, const char* kernel, size_t first, const void* from, DType t, bool chains,
          const char* define = "#define MGE_MOVES") {
  const Geometry geo(a, first);
  const int64_t total = geo.g.result.numel();
  if (total == 0) return;
  RefPtr<Storage> place = find_places(a, geo, first), links;
  int64_t *next = nullptr, *head = nullptr;
  if (chains) {
    links = engine().scratch(a, static_cast<size_t>(geo.count) * 16);
    next = static_cast<int64_t*>(links->ptr);
    head = next + geo.count;
    engine().launch(a, written("mge_chains", "index", {}, "#define MGE_CHAINS"), cover(geo.count * 32, 128),
                    {geo.count, address(place->ptr), address(next), address(head)});
  }
  Words w{total,         geo.count,           geo.inners,    address(a.out[0].ptr),
          address(from), address(place->ptr), address(next), address(head)};
  geo.push(w, a.in[0].shape, geo.g.outer_axes);
  geo.push(w, a.in[0].shape, geo.g.inner_axes);
  engine().launch(a, written(kernel, "index", {{"T", t}}, define), cover(total), {w.data(), w.size()});
}

void run_get(const KernelArgs& a) { move(a, "mge_index_get", 1, a.in[0].ptr, carrier(a.in[0].dtype), false); }
void run_get_last(const KernelArgs& a) { move(a, "mge_index_get_last", 1, a.in[0].ptr, carrier(a.in[0].dtype), true); }
void run_set(const KernelArgs& a) {
  if (a.out[0].ptr != a.in[0].ptr) copy_on_device(a, a.in[0], a.out[0]);
  move(a, "mge_index_set", 2, a.in[1].ptr, carrier(a.in[0].dtype), true);
}
void run_incr(const KernelArgs& a) {
  if (a.out[0].ptr != a.in[0].ptr) copy_on_device(a, a.in[0], a.out[0]);
  const DType t = a.in[0].dtype;
  move(a, "mge_index_incr", 2, a.in[1].ptr, t, true,
       t == DType::I32   ? "#define MGE_MOVES\n#define MGE_SUM i64"
       : t == DType::F64 ? "#define MGE_MOVES\n#define MGE_SUM double"
                         : "#define MGE_MOVES\n#define MGE_SUM float");
}
const char* refuse_incr(const KernelArgs& a) {
  const DType t = a.in[0].dtype;
  if (t != a.in[1].dtype) return "operands of several dtypes";
  return is_float(t) || t == DType::I32 ? nullptr : "needs floating point or int32";
}
const char* refuse_count(const KernelArgs& a) { return a.in.size() > 10 ? "more than 8 indices" : refuse_packed(a); }

void run_wrap_index(const KernelArgs& a) {
  const auto& at = a.as<WrapIndexAttrs>();
  const int64_t n = a.in[0].numel(), low = at.negative ? -at.size : 0;
  if (n == 0) return;
  Word* error = engine().error_words(a, [who = at.who, what = at.what, low, size = at.size](const Word* w) {
    MGE_CHECK(!w[1], Value, "{}: {} must be whole numbers; got {} at position {}.", who, what,
              std::bit_cast<double>(w[2]), w[3]);
    throw_bad_index(who.c_str(), what.c_str(), w[2], low, size, w[3]);
  });
  engine().launch(a, written("mge_wrap_index", "index", {{"T", a.in[0].dtype}}, "#define MGE_CHECKS"), cover(n),
                  {n, address(a.in[0].ptr), address(a.out[0].ptr), 0, address(error), at.size, low, 0, 0});
}
void run_check_range(const KernelArgs& a) {
  const auto& at = a.as<CheckRangeAttrs>();
  const int64_t n = a.in[0].numel();
  if (n == 0) return;
  Word* error = engine().error_words(a, [at](const Word* w) {
    fail(ErrorKind::Value, "{}: {} must lie in {}..{}; got {} at position {}.{}{}", at.who, at.what, at.low, at.high,
         std::bit_cast<double>(w[2]), w[3], at.way_out.empty() ? "" : " ", at.way_out);
  });
  engine().launch(
      a, written("mge_check_range", "index", {{"T", a.in[0].dtype}}, "#define MGE_CHECKS"), cover(n),
      {n, address(a.in[0].ptr), 0, address(a.out[0].ptr), address(error), 0, 0, bits_of(at.low), bits_of(at.high)});
}
const char* refuse_not_number(const KernelArgs& a) {
  return a.in[0].dtype <= DType::F64 ? nullptr : "this dtype has no kernels on the GPU";
}

}  // namespace

void register_cuda_index(KernelRegistry& r) {
  add(r, "index_get", {.name = "nvrtc_index_get", .refuse = refuse_count, .run = run_get});
  add(r, "index_get_last", {.name = "nvrtc_index_get_last", .refuse = refuse_count, .run = run_get_last});
  add(r, "index_set", {.name = "nvrtc_index_set", .refuse = refuse_count, .run = run_set, .flags = kInPlace0});
  add(r, "index_incr", {.name = "nvrtc_index_incr", .refuse = refuse_incr, .run = run_incr, .flags = kInPlace0});
  add(r, "wrap_index", {.name = "nvrtc_wrap_index", .refuse = refuse_not_number, .run = run_wrap_index});
  add(r, "check_range",
      {.name = "nvrtc_check_range", .refuse = refuse_not_number, .run = run_check_range, .flags = kInPlace0});
}

}  // namespace mge::cuda
