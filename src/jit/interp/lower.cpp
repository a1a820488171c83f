#include "jit/interp/lower.h"

#include <algorithm>
#include <memory>
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
  explicit Lowering(Attrs attrs, bool rows = false, uint32_t row_inputs = 0)
      : region_(attrs_as<FusedRegion>(attrs.get())), rows_(rows) {
    out_.attrs = std::move(attrs);
    out_.row_inputs = row_inputs;
    if (region_.staged() && !rows) out_.refusal = "steps read what was reduced";
  }

  Lowered run() {
    if (rows_) find_rows();
    place_.resize(region_.steps.size());
    find_last_uses();
    find_targets();
    for (size_t k = 0; k < region_.steps.size() && !out_.refusal; ++k)
      if (static_cast<int>(k) != out_.reduction) step(k);
    finish_targets();
    // All registers together stay well inside a 32 KB first-level cache, beside the rows that stream through.
    int64_t fit = 16384 / (8 * std::max(out_.registers, 1));
    out_.tile = std::clamp<int64_t>(fit / 64 * 64, 256, 1024);
    return std::move(out_);
  }

 private:
  // A step has one value for each row when all that it reads has, or when it reduces.
  void find_rows() {
    for (auto& s : region_.steps) {
      bool row = true;
      for (int a : s.args) row &= is_row(a);
      row_step_.push_back(row || s.op->is(kReduction));
    }
  }
  bool is_row(int arg) const {
    return rows_ && (arg >= 0 ? out_.row_inputs >> arg & 1 : row_step_[static_cast<size_t>(-1 - arg)]);
  }
  void find_last_uses() {
    last_.assign(region_.steps.size(), 0);
    last_input_use_ = -1;
    out_.reduction = rows_ ? -1 : region_.reduction();
    for (size_t k = 0; k < region_.steps.size(); ++k)
      for (int a : region_.steps[k].args)
        if (a < 0)
          last_[static_cast<size_t>(-1 - a)] = k;
        else if (static_cast<int>(k) != out_.reduction)
          last_input_use_ = static_cast<int>(k);
  }
  void find_targets() {
    for (size_t o = 0; o < region_.outputs.size(); ++o) {
      int k = -1 - region_.outputs[o];
      if (k == out_.reduction)
        out_.reduced_output = static_cast<int>(o);
      else
        out_.targets.push_back({k, region_.dtype_of(region_.outputs[o]), {}, is_row(region_.outputs[o])});
    }
    if (out_.reduction >= 0) {
      int read = region_.steps[static_cast<size_t>(out_.reduction)].args[0];
      out_.targets.push_back({-1 - read, region_.dtype_of(read), {}, false});
    }
    if (out_.targets.size() > 16) out_.refusal = "more than 16 results";
  }
  // A result is written where it goes only when no input is read after it: an input may be in the same memory.
  int direct_target(size_t k) const {
    if (static_cast<int>(k) < last_input_use_) return -1;
    for (size_t t = 0; t < out_.targets.size(); ++t)
      if (out_.targets[t].step == static_cast<int>(k)) return static_cast<int>(t);
    return -1;
  }
  void finish_targets() {
    for (size_t t = 0; t < out_.targets.size() && !out_.refusal; ++t) {
      Target& x = out_.targets[t];
      Operand at = operand(-1 - x.step);
      if (at.kind != Operand::Target || at.index != static_cast<int>(t)) x.from = at;
    }
  }
  bool is_target(size_t k) const {
    for (auto& t : out_.targets)
      if (t.step == static_cast<int>(k)) return true;
    return false;
  }

  Operand new_register(DType t, bool row) {
    int16_t r = static_cast<int16_t>(out_.registers);
    if (free_.empty()) {
      ++out_.registers;
    } else {
      r = free_.back();
      free_.pop_back();
    }
    return {Operand::Register, r, row, static_cast<uint8_t>(dtype_size(t))};
  }
  Operand new_place(size_t k) {
    const int code = -1 - static_cast<int>(k), t = direct_target(k);
    const DType type = region_.dtype_of(code);
    if (t < 0) return new_register(type, is_row(code));
    return {Operand::Target, static_cast<int16_t>(t), is_row(code), static_cast<uint8_t>(dtype_size(type))};
  }
  Operand operand(int arg) const {
    if (arg < 0) return place_[static_cast<size_t>(-1 - arg)];
    return {Operand::Input, static_cast<int16_t>(arg), is_row(arg),
            static_cast<uint8_t>(dtype_size(region_.dtype_of(arg)))};
  }
  void call(RowFn fn, std::initializer_list<Operand> in, Operand out) { call(fn, in.begin(), in.size(), out); }
  void call(RowFn fn, const Operand* in, size_t n, Operand out) {
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
    DType t = value_dtype(s, region_);
    bool cvt = s.op->name == "typecvt";
    bool narrow = is_narrow_float(t) && !cvt && !s.op->is(kReduction);
    Operand in[3];
    SmallVec<Operand, 4> temps;
    if (s.args.size() > 3) {
      out_.refusal = "a step has more than three operands";
      return;
    }
    for (size_t i = 0; i < s.args.size(); ++i) {
      in[i] = operand(s.args[i]);
      if (narrow && region_.dtype_of(s.args[i]) == t) {
        Operand wide = new_register(DType::F32, in[i].per_row);
        call(cast_row(t, DType::F32), {in[i]}, wide);
        in[i] = wide;
        temps.push_back(wide);
      }
    }
    bool widened_out = narrow && s.dtype == t;
    RowFn fn = narrow ? row_of(*s.op, DType::F32, widened_out ? DType::F32 : s.dtype) : row_of(*s.op, t, s.dtype);
    if (s.op->is(kReduction)) {
      place_[k] = new_place(k);
      RowCall c;
      c.n_in = 1;
      c.in[0] = in[0];
      c.out = place_[k];
      c.reduces = true;
      c.mode = parse_reduce_mode(attrs_as<ReduceAttrs>(s.attrs.get()).mode);
      out_.calls.push_back(c);
    } else if (widened_out) {
      Operand wide = new_register(DType::F32, is_row(-1 - static_cast<int>(k)));
      temps.push_back(wide);
      call(fn, in, s.args.size(), wide);
      place_[k] = new_place(k);
      call(cast_row(DType::F32, t), {wide}, place_[k]);
    } else {
      // Taken before the operands are given back: a row may not write over an operand of another element size.
      place_[k] = new_place(k);
      call(fn, in, s.args.size(), place_[k]);
    }
    for (Operand r : temps) free_.push_back(r.index);
    for (size_t i = 0; i < s.args.size(); ++i) {
      if (s.args[i] >= 0) continue;
      auto from = static_cast<size_t>(-1 - s.args[i]);
      bool again = false;  // the same value twice among the operands is freed once
      for (size_t j = 0; j < i; ++j) again |= s.args[j] == s.args[i];
      if (last_[from] == k && !again && !is_target(from)) free_.push_back(place_[from].index);
    }
  }

  const FusedRegion& region_;
  const bool rows_;
  std::vector<bool> row_step_;
  Lowered out_;
  int last_input_use_ = -1;  // the last step that reads one
  std::vector<size_t> last_;
  std::vector<Operand> place_;
  std::vector<int16_t> free_;
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

namespace {

// Made once for each region (and what else decides), then the same for the life of the process.
template <class T, class Make, class Same>
const T& cached(const AttrsBase* attrs, uint64_t more, const Make& make, const Same& same) {
  using Cache = std::unordered_multimap<uint64_t, const T*>;
  static std::mutex mutex;
  static Cache* shared = new Cache;  // leaked with its entries: kernels may run during static destruction
  static thread_local Cache local;   // no lock on the way of a run
  const uint64_t key = hash_mix(attrs->hash(), more);
  auto look = [&](const Cache& c) -> const T* {
    auto [b, e] = c.equal_range(key);
    for (; b != e; ++b)
      if (attrs_equal(b->second->attrs.get(), attrs) && same(*b->second)) return b->second;
    return nullptr;
  };
  if (auto* l = look(local)) return *l;
  std::lock_guard<std::mutex> lock(mutex);
  const T* l = look(*shared);
  if (!l) {
    auto made = std::make_unique<const T>(make());
    shared->emplace(key, made.get());
    l = made.release();
  }
  local.emplace(key, l);
  return *l;
}

Split make_split(Attrs attrs) {
  const auto& r = attrs_as<FusedRegion>(attrs.get());
  const int at = r.reduction();
  Split s;
  s.attrs = std::move(attrs);
  std::vector<int> code(r.steps.size());    // of a step, in its part
  std::vector<bool> after(r.steps.size());  // reads what was reduced
  FusedRegion parts[2];
  SmallVec<int, 8> ins[2];
  parts[1].inputs.push_back(r.dtype_of(-1 - at));
  auto input = [&](bool second, int i) {
    SmallVec<int, 8>& in = ins[second];
    auto* found = std::find(in.begin(), in.end(), i);
    const int k = static_cast<int>(found - in.begin());
    if (found == in.end()) {
      in.push_back(i);
      parts[second].inputs.push_back(r.inputs[static_cast<size_t>(i)]);
    }
    return k + second;
  };
  for (size_t k = 0; k < r.steps.size(); ++k) {
    const FusedStep& x = r.steps[k];
    for (int a : x.args) after[k] = after[k] || (a < 0 && (-1 - a == at || after[static_cast<size_t>(-1 - a)]));
    if (x.op->is(kReduction) && static_cast<int>(k) != at) s.refusal = "more than one reduction";
  }
  for (size_t k = 0; k < r.steps.size() && !s.refusal; ++k) {
    const FusedStep& x = r.steps[k];
    SmallVec<int, 3> args;
    for (int a : x.args) {
      const auto from = static_cast<size_t>(-1 - a);
      if (a < 0 && after[k] && !after[from] && -1 - a != at) {
        s.refusal = "a step reads what was reduced and what was not";
        return s;
      }
      args.push_back(a >= 0 ? input(after[k], a) : after[k] && -1 - a == at ? 0 : code[from]);
    }
    code[k] = parts[after[k]].add(*x.op, x.attrs, {args.data(), args.size()});
  }
  if (s.refusal) return s;
  for (size_t o = 0; o < r.outputs.size(); ++o) {
    const int k = -1 - r.outputs[o];
    const bool second = after[static_cast<size_t>(k)];
    if (k == at) s.reduced = static_cast<int>(s.before_out.size());
    (second ? s.after_out : s.before_out).push_back(static_cast<int>(o));
    parts[second].add_output(code[static_cast<size_t>(k)]);
  }
  if (s.after_out.empty()) s.refusal = "nothing that follows the reduction is a result";
  if (s.reduced < 0) {
    s.reduced = static_cast<int>(s.before_out.size());
    parts[0].add_output(code[static_cast<size_t>(at)]);
  }
  s.before = make_attrs(std::move(parts[0]));
  s.after = make_attrs(std::move(parts[1]));
  s.before_in = ins[0], s.after_in = ins[1];
  return s;
}

}  // namespace

const Lowered& lowered(const AttrsBase* attrs) {
  return cached<Lowered>(
      attrs, 0, [&] { return Lowering(Attrs(attrs)).run(); }, [](const Lowered&) { return true; });
}

const Lowered& lowered_rows(const AttrsBase* attrs, uint32_t row_inputs) {
  return cached<Lowered>(
      attrs, row_inputs + 1, [&] { return Lowering(Attrs(attrs), true, row_inputs).run(); },
      [&](const Lowered& l) { return l.row_inputs == row_inputs; });
}

const Split& split(const AttrsBase* attrs) {
  return cached<Split>(
      attrs, 0, [&] { return make_split(Attrs(attrs)); }, [](const Split&) { return true; });
}

}  // namespace mge::interp
