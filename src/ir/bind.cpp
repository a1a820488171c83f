#include "ir/bind.h"

#include <cstring>
#include <unordered_map>

#include "base/features.h"
#include "ir/builder.h"
#include "ir/explain.h"

namespace mge::ir {
namespace {

// Null where no model of the build has it.
const OpDef* shape_of() {
  static const OpDef* op = OpRegistry::global().registered("shape_of");
  return op;
}

class Binder {
 public:
  Binder(Graph& g, const Evaluator& evaluate) : g_(g), evaluate_(evaluate) {}

  void know(ValueId v, ConstTensor t) { known_[v] = std::move(t); }

  void run() {
    for (NodeId n : g_.order()) {
      try {
        if (has("sizes")) bind_sizes(n);
        g_.infer(n);
        if ((has("sizes") && fold(n)) || drop_if_same(n)) continue;
      } catch (const Error&) {
        if (has("sizes")) check_guards(false);  // the reason behind it
        rethrow(tell(g_, n));
      }
    }
    if (has("sizes")) check_guards(true);
    g_.drop_guards();
  }

 private:
  const ConstTensor* known(ValueId v) {
    auto it = known_.find(v);
    if (it != known_.end()) return &it->second;
    const Constant* c = g_.constant_of(v);
    if (!c || !c->storage || !is_handful(g_.meta(v))) return nullptr;
    return &(known_[v] = {g_.meta(v), c->storage, c->offset});
  }

  void bind_sizes(NodeId n) {
    const Node& x = g_.node(n);
    if (x.sizes.empty()) return;
    g_.bind_node(n, sized_attrs(x, {x.sizes.data(), x.sizes.size()}, [&](ValueId v) { return known(v); }));
  }

  // Handfuls of numbers that are known become constants.
  bool fold(NodeId n) {
    const Node& x = g_.node(n);
    if (x.op == shape_of()) {
      const Shape& s = g_.meta(x.inputs[0]).shape;
      int32_t sizes[kMaxRank];
      for (int i = 0; i < s.rank; ++i) sizes[i] = static_cast<int32_t>(s[i]);
      become_constant(x.outputs[0], g_.add_constant_copy(g_.meta(x.outputs[0]), sizes));
      g_.erase(n);
      return true;
    }
    if (takes_token(*x.op) || x.inputs.empty()) return false;
    std::vector<ConstTensor> in, out;
    for (ValueId v : x.inputs) {
      const ConstTensor* t = known(v);
      if (!t) return false;
      in.push_back(*t);
    }
    for (ValueId v : x.outputs) {
      if (!is_handful(g_.meta(v))) return false;
      out.push_back({g_.meta(v), nullptr, 0});
    }
    evaluate_(*x.op, x.attrs.get(), in, out);
    for (size_t i = 0; i < out.size(); ++i)
      become_constant(x.outputs[i], g_.add_constant(out[i].meta, out[i].storage, out[i].offset));
    g_.erase(n);
    return true;
  }

  void become_constant(ValueId v, ValueId c) {
    note("sizes");
    g_.replace_all_uses(v, c);
    known(c);
  }

  // What keeps every size is there for calls with other ones.
  bool drop_if_same(NodeId n) {
    static const OpDef* const kMayKeep[] = {OpRegistry::global().registered("reshape"),
                                            OpRegistry::global().registered("broadcast_to"),
                                            OpRegistry::global().registered("sum_to")};
    const Node& x = g_.node(n);
    if (x.op != kMayKeep[0] && x.op != kMayKeep[1] && x.op != kMayKeep[2]) return false;
    if (x.op == kMayKeep[2]) note("decompose");  // at other sizes, if not at these
    if (g_.meta(x.inputs[0]).same_type(g_.meta(x.outputs[0]))) {
      if (g_.escapes(x.outputs[0])) return false;  // a result is a value of its own
      g_.replace_all_uses(x.outputs[0], x.inputs[0]);
      g_.erase(n);
      return true;
    }
    return has("decompose") && x.op == kMayKeep[2] && decompose_node(g_, n);
  }

  void check_guards(bool all) {
    for (const Guard& x : g_.guards()) {
      const ConstTensor* t = known(x.value);
      if (!t && !all) continue;
      const bool holds =
          t && x.want.size() == t->meta.bytes() &&
          std::memcmp(static_cast<const char*>(t->storage->ptr) + t->offset, x.want.data(), x.want.size()) == 0;
      if (holds) continue;
      Error e(ErrorKind::Value,
              "the recorded program read a size as a number, or decided by one, so it holds for the sizes it was "
              "recorded with; got others. Compute with x.shape without int(), or record it with these sizes.");
      e.set_location(g_.location(x.loc).str());
      throw e;
    }
  }

  Graph& g_;
  const Evaluator& evaluate_;
  std::unordered_map<ValueId, ConstTensor> known_;
};

}  // namespace

int64_t integer_at(const ConstTensor& t, int64_t i) {
  const char* p =
      static_cast<const char*>(t.storage->ptr) + t.offset + static_cast<size_t>(i) * dtype_size(t.meta.dtype);
  auto read = [p]<class T>(T v) {
    std::memcpy(&v, p, sizeof v);
    return static_cast<int64_t>(v);
  };
  switch (t.meta.dtype) {
    case DType::I64:
      return read(int64_t{});
    case DType::I32:
      return read(int32_t{});
    case DType::I16:
      return read(int16_t{});
    case DType::U16:
      return read(uint16_t{});
    case DType::I8:
      return read(int8_t{});
    case DType::U8:
    case DType::Bool:
      return read(uint8_t{});
    default:
      fail(ErrorKind::Value, "bind: sizes are integers; got {}.", t.meta.str());
  }
}

Attrs sized_attrs(const Node& x, std::span<const SizeUse> sizes, const KnownValue& known) {
  std::vector<NamedAttr> values = x.attrs->values();
  for (const SizeUse& s : sizes) {
    const ConstTensor* t = known(s.value);
    MGE_CHECK(t, Value, "{}: attribute '{}' depends on values that are not computed before the graph runs.", x.op->name,
              values[static_cast<size_t>(s.field)].name);
    AttrValue& v = values[static_cast<size_t>(s.field)].value;
    const int64_t count = t->meta.shape.numel();
    if (s.element == SizeOperand::kWhole && v.index() == 4) {
      Ints ints;
      for (int64_t i = 0; i < count; ++i) ints.push_back(integer_at(*t, i));
      v = std::move(ints);
      continue;
    }
    MGE_CHECK(count == 1, Value, "{}: one size is needed; got {} of them.", x.op->name, count);
    if (auto* list = std::get_if<Ints>(&v)) {
      MGE_CHECK(s.element >= 0 && static_cast<size_t>(s.element) < list->size(), Value,
                "{}: there is no element {} in attribute '{}'.", x.op->name, s.element,
                values[static_cast<size_t>(s.field)].name);
      (*list)[static_cast<size_t>(s.element)] = integer_at(*t, 0);
    } else {
      v = integer_at(*t, 0);
    }
  }
  return x.op->schema.build(x.op->name, values);
}

bool is_handful(const Meta& m) { return m.shape.rank <= 2 && m.shape.numel() <= 64 && m.dtype <= DType::F64; }

void bind(Graph& g, std::span<const Meta> inputs, std::span<const KnownInput> known, const Evaluator& evaluate) {
  MGE_CHECK(inputs.size() == g.inputs().size(), Value, "bind: {} inputs for a graph of {}.", inputs.size(),
            g.inputs().size());
  for (size_t i = 0; i < inputs.size(); ++i) g.set_input_meta(i, inputs[i]);
  Binder b(g, evaluate);
  for (auto& k : known) b.know(g.inputs()[k.input], k.value);
  b.run();
  g.check_commits();
}

}  // namespace mge::ir
