#include "jit/interp/lower.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#ifdef MGE_WITH_SIMD
#include "kernel/simd/elementwise/rows.h"
#endif

namespace mge::interp {
namespace {

bool is_narrow_float(DType t) { return t == DType::F16 || t == DType::BF16; }

RowFn cast_row(DType from, DType to) {
  static const OpDef& cvt = OpRegistry::global().get("typecvt");
  return row_of(cvt, from, to);
}

// The dtype that decides which row is used: of the values, not of a condition.
DType value_dtype(const FusedStep& s, const FusedRegion& r) { return r.dtype_of(s.args.back()); }

class Lowering {
 public:
  explicit Lowering(const std::string& text) : region_(FusedRegion::parse(text)) { out_.region = text; }

  Lowered run() {
    find_last_uses();
    place_.resize(region_.steps.size());
    for (size_t k = 0; k < region_.steps.size() && !out_.refusal; ++k) step(k);
    // All registers together stay well inside a 32 KB first-level cache, beside the rows that stream through.
    int64_t fit = 16384 / (8 * std::max(out_.registers, 1));
    out_.tile = std::clamp<int64_t>(fit / 64 * 64, 256, 1024);
    return std::move(out_);
  }

 private:
  void find_last_uses() {
    last_.assign(region_.steps.size(), 0);
    for (size_t k = 0; k < region_.steps.size(); ++k)
      for (int a : region_.steps[k].args)
        if (a < 0) last_[static_cast<size_t>(-1 - a)] = k;
  }
  int16_t new_register() {
    if (free_.empty()) return static_cast<int16_t>(out_.registers++);
    int16_t r = free_.back();
    free_.pop_back();
    return r;
  }
  Operand operand(int arg) const {
    if (arg >= 0) return {static_cast<int16_t>(arg), -1};
    return {-1, place_[static_cast<size_t>(-1 - arg)]};
  }
  void call(RowFn fn, std::initializer_list<Operand> in, int16_t out) { call(fn, in.begin(), in.size(), out); }
  void call(RowFn fn, const Operand* in, size_t n, int16_t out) {
    if (!fn) {
      out_.refusal = "a step has no row function";
      return;
    }
    RowCall c;
    c.fn = fn;
    c.n_in = static_cast<uint8_t>(n);
    std::copy_n(in, n, c.in);
    c.out = out;
    out_.calls.push_back(c);
  }

  // float16 and bfloat16 are computed in float32 and rounded after every step, as the single ops do.
  void step(size_t k) {
    const FusedStep& s = region_.steps[k];
    bool last = k + 1 == region_.steps.size();
    DType t = value_dtype(s, region_);
    bool cvt = s.op->name == "typecvt";
    bool narrow = is_narrow_float(t) && !cvt;
    Operand in[3];
    SmallVec<int16_t, 4> temps;
    if (s.args.size() > 3) {
      out_.refusal = "a step has more than three operands";
      return;
    }
    for (size_t i = 0; i < s.args.size(); ++i) {
      in[i] = operand(s.args[i]);
      if (narrow && region_.dtype_of(s.args[i]) == t) {
        int16_t wide = new_register();
        call(cast_row(t, DType::F32), {in[i]}, wide);
        in[i] = {-1, wide};
        temps.push_back(wide);
      }
    }
    bool widened_out = narrow && s.dtype == t;
    RowFn fn = narrow ? row_of(*s.op, DType::F32, widened_out ? DType::F32 : s.dtype) : row_of(*s.op, t, s.dtype);
    if (widened_out) {
      int16_t wide = new_register();
      temps.push_back(wide);
      call(fn, in, s.args.size(), wide);
      int16_t out = last ? int16_t{-1} : new_register();
      call(cast_row(DType::F32, t), {{-1, wide}}, out);
      place_[k] = out;
    } else {
      // Taken before the operands are given back: a row may not write over an operand of another element size.
      int16_t out = last ? int16_t{-1} : new_register();
      call(fn, in, s.args.size(), out);
      place_[k] = out;
    }
    for (int16_t r : temps) free_.push_back(r);
    for (size_t i = 0; i < s.args.size(); ++i) {
      if (s.args[i] >= 0) continue;
      auto from = static_cast<size_t>(-1 - s.args[i]);
      bool again = false;  // the same value twice among the operands is freed once
      for (size_t j = 0; j < i; ++j) again |= s.args[j] == s.args[i];
      if (last_[from] == k && !again) free_.push_back(place_[from]);
    }
  }

  FusedRegion region_;
  Lowered out_;
  std::vector<size_t> last_;
  std::vector<int16_t> place_, free_;
};

}  // namespace

RowFn row_of(const OpDef& op, DType in, DType out) {
#ifdef MGE_WITH_SIMD
  if (RowFn fn = find_row(op, in, out)) return fn;
#endif
  // The scalar body reads and writes its compute type, which is the memory type of these only.
  bool plain = in == DType::F32 || in == DType::F64 || in == DType::I64 || in == DType::Bool;
  if (!op.scalar || !plain || out != (op.scalar->bool_out ? DType::Bool : in)) return nullptr;
  return op.scalar->row[static_cast<int>(compute_of(in))];
}

const Lowered& lowered(const AttrsBase* attrs) {
  const std::string& region = attrs_as<FusedAttrs>(attrs).region;
  using Cache = std::unordered_multimap<uint64_t, const Lowered*>;
  static std::mutex mutex;
  static Cache* shared = new Cache;  // leaked with its entries: kernels may run during static destruction
  static thread_local Cache local;   // no lock on the way of a run
  auto look = [&](const Cache& c) -> const Lowered* {
    auto [b, e] = c.equal_range(attrs->hash());
    for (; b != e; ++b)
      if (b->second->region == region) return b->second;
    return nullptr;
  };
  if (auto* l = look(local)) return *l;
  std::lock_guard<std::mutex> lock(mutex);
  const Lowered* l = look(*shared);
  if (!l) {
    l = new Lowered(Lowering(region).run());
    shared->emplace(attrs->hash(), l);
  }
  local.emplace(attrs->hash(), l);
  return *l;
}

}  // namespace mge::interp
