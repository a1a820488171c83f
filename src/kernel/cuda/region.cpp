#include "kernel/cuda/region.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <unordered_map>

#include "kernel/layouts.h"

namespace mge::cuda {

Nest make_nest(const Shape& shape, std::span<const TensorArg* const> operands) {
  Nest n;
  n.stride.resize(operands.size());
  for (int i = 0; i < shape.rank; ++i) {
    if (shape[i] == 1) continue;
    bool merge = n.rank > 0;
    int64_t step[32];
    for (size_t k = 0; k < operands.size(); ++k) {
      const TensorArg& t = *operands[k];
      const int ax = i - (shape.rank - t.shape.rank);
      step[k] = ax < 0 || t.shape[ax] == 1 ? 0 : t.layout.stride[ax];
      merge = merge && n.stride[k][static_cast<size_t>(n.rank - 1)] == step[k] * shape[i];
    }
    if (!merge) n.size[n.rank++] = 1;
    const auto at = static_cast<size_t>(n.rank - 1);
    n.size[at] *= shape[i];
    for (size_t k = 0; k < operands.size(); ++k) n.stride[k][at] = step[k];
  }
  if (n.rank == 0) {
    n.rank = 1, n.size[0] = 1;
    for (auto& s : n.stride) s[0] = 0;
    n.stride[0][0] = 1;
  }
  return n;
}

std::string operand_members(const FusedRegion& r, size_t results, int rank) {
  std::string s;
  const auto all = body_results(r);
  for (size_t o = 0; o < results; ++o) s += format("  {}* o{};\n", storage_type(r.dtype_of(all[o])), o);
  for (size_t i = 0; i < r.inputs.size(); ++i) s += format("  const {}* i{};\n", storage_type(r.inputs[i]), i);
  return s + format("  i64 size[{0}], stride[{1}][{0}];\n", rank, r.inputs.size() + 1);
}

void push_operands(Words& w, const KernelArgs& a, std::span<void* const> results, const Nest& n) {
  for (void* p : results) w.push_back(address(p));
  for (auto& t : a.in) w.push_back(address(t.ptr));
  for (int i = 0; i < n.rank; ++i) w.push_back(n.size[i]);
  for (auto& s : n.stride)
    for (int i = 0; i < n.rank; ++i) w.push_back(s[static_cast<size_t>(i)]);
}

namespace {

// "body(load(…), …, y0, …)"
std::string call_text(const FusedRegion& r, size_t results, const std::function<std::string(size_t)>& input) {
  std::string s = "body(";
  for (size_t i = 0; i < r.inputs.size(); ++i) s += "load(" + input(i) + "), ";
  for (size_t o = 0; o < results; ++o) s += format("{}y{}", o ? ", " : "", o);
  return s + ");\n";
}
std::string declare_results(const FusedRegion& r, size_t first, size_t last, const char* indent) {
  std::string s;
  const auto all = body_results(r);
  for (size_t o = first; o < last; ++o) s += format("{}{} y{};\n", indent, compute_type(r.dtype_of(all[o])), o);
  return s;
}
std::string stored(const FusedRegion& r, size_t o) {
  return format("Store<{}>::from(y{})", storage_type(r.dtype_of(body_results(r)[o])), o);
}

}  // namespace

std::string element_text(const FusedRegion& r, size_t written, size_t results, int rank, bool strided_results,
                         const char* index) {
  const auto all = body_results(r);
  std::string s = format("__device__ inline void element(const Args& a, {} at", index);
  for (size_t o = written; o < results; ++o) s += format(", {}& y{}", compute_type(r.dtype_of(all[o])), o);
  s += format(") {{\n  {} rest = at, q, d;\n  i64 po = 0", index);
  for (size_t i = 0; i < r.inputs.size(); ++i) s += format(", p{} = 0", i);
  s += ";\n";
  for (int i = rank - 1; i >= 0; --i) {
    if (i)
      s += format("  q = rest / {0}(a.size[{1}]), d = rest - q * {0}(a.size[{1}]), rest = q;\n", index, i);
    else
      s += "  d = rest;\n";
    s += format("  po += d * a.stride[0][{}];\n", i);
    for (size_t k = 0; k < r.inputs.size(); ++k) s += format("  p{} += d * a.stride[{}][{}];\n", k, k + 1, i);
  }
  s += declare_results(r, 0, written, "  ");
  s += "  " + call_text(r, results, [](size_t i) { return format("a.i{0}[p{0}]", i); });
  for (size_t o = 0; o < written; ++o)
    s += format("  a.o{}[{}] = {};\n", o, strided_results ? "po" : "i64(at)", stored(r, o));
  return s + "}\n";
}

namespace {

// `form` with $ for the operand's number and @ for the place.
std::string with_names(const char* form, size_t operand, const char* at) {
  std::string s;
  for (; *form; ++form) s += *form == '$' ? std::to_string(operand) : *form == '@' ? at : std::string(1, *form);
  return s;
}

// Every operand is one row or one value: elements are moved several at a time, and several packs, which lie together in
// a tile of the block, are read before the first is used, so that enough of them are on their way from memory.
std::string packed_text(const FusedRegion& r, const char* name, std::span<const bool> single, int pack, int flying,
                        const char* index) {
  const size_t results = r.outputs.size();
  std::string s = format("extern \"C\" __global__ void {}(const __grid_constant__ Args a) {{\n", name);
  s += format("  const {0} n = {0}(a.n), packs = n / {1}, step = {0}(thread_count());\n", index, pack);
  auto element = [&](const char* indent, const char* at, const char* from, const char* to) {
    s += declare_results(r, 0, results, indent);
    s += indent +
         call_text(r, results, [&](size_t i) { return single[i] ? format("*a.i{}", i) : with_names(from, i, at); });
    for (size_t o = 0; o < results; ++o) s += indent + with_names(to, o, at) + format(" = {};\n", stored(r, o));
  };
  s += format("  for ({0} p = {0}(blockIdx.x) * ({1} * blockDim.x) + threadIdx.x; p < packs; p += {1} * step) {{\n",
              index, flying);
  for (size_t i = 0; i < r.inputs.size(); ++i)
    if (!single[i]) s += format("    Pack<{}, {}> v{}[{}];\n", storage_type(r.inputs[i]), pack, i, flying);
  const std::string each = format(
      "#pragma unroll\n    for (int u = 0; u < {}; ++u) {{\n      const {} q = p + u * blockDim.x;\n", flying, index);
  s += each + "      if (q >= packs) continue;\n";
  for (size_t i = 0; i < r.inputs.size(); ++i)
    if (!single[i])
      s += format("      v{0}[u] = reinterpret_cast<const Pack<{1}, {2}>*>(a.i{0})[q];\n", i, storage_type(r.inputs[i]),
                  pack);
  s += "    }\n" + each + "      if (q >= packs) continue;\n";
  for (size_t o = 0; o < results; ++o)
    s += format("      Pack<{}, {}> w{};\n", storage_type(r.dtype_of(r.outputs[o])), pack, o);
  s += format("#pragma unroll\n      for (int k = 0; k < {}; ++k) {{\n", pack);
  element("        ", "k", "v$[u].v[@]", "w$.v[@]");
  s += "      }\n";
  for (size_t o = 0; o < results; ++o)
    s += format("      reinterpret_cast<Pack<{1}, {2}>*>(a.o{0})[q] = w{0};\n", o,
                storage_type(r.dtype_of(r.outputs[o])), pack);
  s += "    }\n";
  s += format("  }}\n  for ({0} at = packs * {1} + {0}(thread_number()); at < n; at += step) {{\n", index, pack);
  element("    ", "at", "a.i$[@]", "a.o$[@]");
  return s + "  }\n}\n";
}

// Rows that lie anywhere, each of whole packs; `single` inputs have one value for a row.
std::string rows_text(const FusedRegion& r, const char* name, std::span<const bool> single, int pack, int rank,
                      const char* index) {
  const size_t results = r.outputs.size();
  std::string s = format("extern \"C\" __global__ void {}(const __grid_constant__ Args a) {{\n", name);
  s += format("  for ({0} p = {0}(thread_number()); p < {0}(a.n) / {1}; p += {0}(thread_count())) {{\n", index, pack);
  s += format("    {} rest = p, q, d;\n    i64 po = 0", index);
  for (size_t i = 0; i < r.inputs.size(); ++i) s += format(", p{} = 0", i);
  s += ";\n";
  for (int i = rank - 1; i >= 0; --i) {
    const bool last = i == rank - 1;
    const std::string size =
        last ? format("({}(a.size[{}]) / {})", index, i, pack) : format("{}(a.size[{}])", index, i);
    s += i ? format("    q = rest / {0}, d = rest - q * {0}, rest = q;\n", size) : std::string("    d = rest;\n");
    const std::string times = last ? format(" * {}", pack) : std::string();
    s += format("    po += i64(d){} * a.stride[0][{}];\n", times, i);
    for (size_t k = 0; k < r.inputs.size(); ++k)
      s += format("    p{} += i64(d){} * a.stride[{}][{}];\n", k, times, k + 1, i);
  }
  for (size_t i = 0; i < r.inputs.size(); ++i)
    s += single[i] ? format("    const {1} v{0} = a.i{0}[p{0}];\n", i, storage_type(r.inputs[i]))
                   : format("    const auto v{0} = *reinterpret_cast<const Pack<{1}, {2}>*>(a.i{0} + p{0});\n", i,
                            storage_type(r.inputs[i]), pack);
  for (size_t o = 0; o < results; ++o)
    s += format("    Pack<{}, {}> w{};\n", storage_type(r.dtype_of(r.outputs[o])), pack, o);
  s += format("#pragma unroll\n    for (int k = 0; k < {}; ++k) {{\n", pack) + declare_results(r, 0, results, "      ");
  s += "      " + call_text(r, results, [&](size_t i) { return format(single[i] ? "v{}" : "v{}.v[k]", i); });
  for (size_t o = 0; o < results; ++o) s += format("      w{}.v[k] = {};\n", o, stored(r, o));
  s += "    }\n";
  for (size_t o = 0; o < results; ++o)
    s += format("    *reinterpret_cast<Pack<{1}, {2}>*>(a.o{0} + po) = w{0};\n", o,
                storage_type(r.dtype_of(r.outputs[o])), pack);
  return s + "  }\n}\n";
}

// Packs that a thread reads at once: short bodies wait for memory, long ones would only become longer.
int flying_of(const FusedRegion& r) {
  if (r.inputs.size() > 4 || r.steps.size() > 16) return 1;
  for (auto& s : r.steps)
    if (s.op->amp == Amp::High && s.op->scalar && s.op->scalar->domain == Domain::Float && s.op->name != "div")
      return 1;
  return r.inputs.size() > 2 ? 2 : 4;
}

}  // namespace

uint64_t region_number(const AttrsBase* region) {
  static std::mutex mutex;
  static auto* known = new std::unordered_multimap<uint64_t, std::pair<Attrs, uint64_t>>;
  std::lock_guard<std::mutex> lock(mutex);
  auto [b, e] = known->equal_range(region->hash());
  for (; b != e; ++b)
    if (attrs_equal(b->second.first.get(), region)) return b->second.second;
  const uint64_t number = known->size() + 1;
  known->emplace(region->hash(), std::pair(Attrs(region), number));
  return number;
}

void run_region(const KernelArgs& a, const FusedRegion& r, const Key& region_key, const char* name) {
  TensorArg out = a.out[0];
  const int64_t n = out.numel();
  if (n == 0) return;
  SmallVec<TensorArg, 8> in(a.in.begin(), a.in.end());
  if (!out.contiguous()) sort_axes_by_output(out, {in.data(), in.size()});
  SmallVec<const TensorArg*, 8> operands{&out};
  for (auto& t : in) operands.push_back(&t);
  const Nest nest = make_nest(out.shape, {operands.data(), operands.size()});

  // Packs along the innermost axis, where every operand has its elements together or one for all of it.
  const auto inner = static_cast<size_t>(nest.rank - 1);
  bool packed = nest.stride[0][inner] == 1, single[32] = {};
  size_t widest = 1;
  for (auto& t : a.out) widest = std::max(widest, dtype_size(t.dtype));
  for (size_t i = 0; i < in.size(); ++i) {
    single[i] = nest.stride[i + 1][inner] == 0;
    packed = packed && (single[i] || nest.stride[i + 1][inner] == 1);
    if (!single[i]) widest = std::max(widest, dtype_size(in[i].dtype));
  }
  int pack = static_cast<int>(16 / widest);
  auto aligned = [&](const TensorArg& t) {
    return reinterpret_cast<uintptr_t>(t.ptr) % (static_cast<size_t>(pack) * dtype_size(t.dtype)) == 0;
  };
  bool fits = nest.rank == 1 || nest.size[inner] % pack == 0;
  for (auto& t : a.out) fits = fits && aligned(t);
  for (size_t i = 0; i < in.size(); ++i) fits = fits && (single[i] || aligned(in[i]));
  for (size_t k = 0; k <= in.size(); ++k)
    for (size_t ax = 0; ax < inner && (k == 0 || !single[k - 1]); ++ax) fits = fits && nest.stride[k][ax] % pack == 0;
  if (packed && !fits) pack = 1, packed = nest.rank == 1;
  const bool row = packed && nest.rank == 1;

  const bool small = n < int64_t{1} << 31;
  const char* index = small ? "unsigned" : "i64";
  Key key = region_key;
  uint64_t singles = 0;
  for (size_t i = 0; i < in.size() && packed; ++i) singles |= uint64_t{single[i]} << i;
  key.push_back(packed ? static_cast<uint64_t>(pack) << 32 | singles : 0);
  key.push_back(static_cast<uint64_t>(nest.rank) << 1 | small);
  const size_t results = r.outputs.size();
  const int flying = flying_of(r);
  const Code& code = code_of(key, [&] {
    std::string s = "#include \"kernel/cuda/device/region.cuh\"\nstruct Args {\n  i64 n;\n" +
                    operand_members(r, results, nest.rank) + "};\n" + body_text(r);
    if (row)
      s += packed_text(r, name, {single, in.size()}, pack, flying, index);
    else if (packed)
      s += rows_text(r, name, {single, in.size()}, pack, nest.rank, index);
    else
      s += element_text(r, results, results, nest.rank, true, index) +
           format(
               "extern \"C\" __global__ void {0}(const __grid_constant__ Args a) {{\n"
               "  for ({1} at = {1}(thread_number()); at < {1}(a.n); at += {1}(thread_count())) element(a, at);\n}}\n",
               name, index);
    return new Code(name, std::move(s));
  });
  Words w{n};
  SmallVec<void*, 4> to;
  for (auto& t : a.out) to.push_back(t.ptr);
  push_operands(w, a, {to.data(), to.size()}, nest);
  const int64_t at_once = row ? pack * flying : packed ? pack : 1;
  engine().launch(a, code, cover((n + at_once - 1) / at_once), {w.data(), w.size()});
}

}  // namespace mge::cuda
