#include <map>

#include "op/shape/shape_ops.h"
#include "plan/program_impl.h"

namespace mge {
namespace {

// Memory as contents: which write each byte range holds. Ranges of one space never overlap.
class Contents {
 public:
  void write(int64_t lo, int64_t hi, int tag) {
    if (lo >= hi) return;
    cut(lo);
    cut(hi);
    ranges_.erase(ranges_.lower_bound(lo), ranges_.lower_bound(hi));
    ranges_[lo] = {hi, tag};
  }
  bool holds(int64_t lo, int64_t hi, int tag) const {
    while (lo < hi) {
      auto it = ranges_.upper_bound(lo);
      if (it == ranges_.begin()) return false;
      --it;
      if (it->second.first <= lo || it->second.second != tag) return false;
      lo = it->second.first;
    }
    return true;
  }

 private:
  void cut(int64_t at) {
    auto it = ranges_.lower_bound(at);
    if (it == ranges_.begin()) return;
    --it;
    if (it->second.first <= at) return;
    ranges_[at] = it->second;
    it->second.first = at;
  }
  std::map<int64_t, std::pair<int64_t, int>> ranges_;  // lo -> (hi, tag)
};

struct Span {
  int space;
  int64_t lo, hi;
  bool meets(const Span& o) const { return space == o.space && lo < o.hi && o.lo < hi; }
  bool operator==(const Span&) const = default;
};

// Whether operand `i` lies in the result at the very place where the instruction, a concat, would copy it to.
bool is_part(const Program::Impl& p, const Instr& c, size_t i, int64_t offset) {
  const ir::Node& x = p.graph.node(c.node);
  if (x.op->name != "concat") return false;
  const TensorArg &a = p.args[c.first_arg + i], &y = p.args[c.first_arg + c.n_in];
  const int axis = normalize_axis("concat", attrs_as<AxisAttrs>(x.attrs.get()).axis, y.shape.rank);
  int64_t before = 0;
  for (size_t k = 0; k < i; ++k) before += p.args[c.first_arg + k].shape[axis];
  return a.layout.same_strides(a.shape, y.layout) &&
         offset == before * y.layout.stride[axis] * static_cast<int64_t>(dtype_size(y.dtype));
}

}  // namespace

void verify_program(const Program& prog) {
  const Program::Impl& p = *prog.impl_;
  const ir::Graph& g = p.graph;
  std::map<int, Contents> memory;
  std::vector<int> tag(g.n_values(), -1), copy_tag(static_cast<size_t>(p.n_copies), -1);
  auto tag_of = [&](int value) -> int& { return value >= 0 ? tag[value] : copy_tag[-2 - value]; };
  int next_tag = 0;

  // Spaces up to 0 are the arenas; a donated output shares the space of its var, which is the case that could go wrong.
  auto span_of = [&](int buffer, int64_t byte_offset, const Shape& s, const Layout& l, DType t) {
    const PlanBuffer& b = p.buffers[buffer];
    int64_t size = static_cast<int64_t>(dtype_size(t)), lo = byte_offset, hi = byte_offset;
    if (s.numel() > 0) {
      for (int i = 0; i < s.rank; ++i) (l.stride[i] < 0 ? lo : hi) += l.stride[i] * (s[i] - 1) * size;
      hi += size;
    }
    int64_t limit = static_cast<int64_t>(b.bytes);
    if (b.where != Where::Const && b.where != Where::Input)
      MGE_ASSERT(lo >= 0 && hi <= limit, "program {}: bytes {}..{} leave buffer {} of {}", g.name(), lo, hi, buffer,
                 limit);
    int space = b.where == Where::Arena ? -b.home : 1 + (b.donor >= 0 ? p.var_buffer[b.donor] : buffer);
    int64_t base = b.where == Where::Arena ? static_cast<int64_t>(b.offset) : 0;
    if (b.where == Where::Arena)
      MGE_ASSERT(base + hi <= static_cast<int64_t>(p.homes[b.home].bytes), "program {}: buffer {} leaves the arena",
                 g.name(), buffer);
    return Span{space, base + lo, base + hi};
  };
  auto span_of_value = [&](ir::ValueId v) {
    const Place& at = p.place[v];
    const Meta& m = g.meta(v);
    return span_of(at.buffer, at.layout.offset * static_cast<int64_t>(dtype_size(m.dtype)), m.shape, at.layout,
                   m.dtype);
  };
  auto define_source = [&](ir::ValueId v) {
    Span s = span_of_value(v);
    tag[v] = next_tag++;
    memory[s.space].write(s.lo, s.hi, tag[v]);
  };
  for (ir::ValueId v : g.inputs()) define_source(v);
  for (auto& v : g.vars()) define_source(v.in);
  for (auto& c : g.constants())
    if (c.value != ir::kNone) define_source(c.value);
  for (auto& c : p.converted) {
    const Meta& m = g.meta(c.of);
    const Span s = span_of(c.at.buffer, 0, m.shape, c.at.layout, m.dtype);
    memory[s.space].write(s.lo, s.hi, tag_of(c.copy) = next_tag++);
  }

  struct Open {  // an effect that goes on: nobody writes what it works on, nobody reads its results
    size_t instr;
    SmallVec<Span, 6> reads, writes;
  };
  std::vector<Open> open;
  auto meet = [](const SmallVec<Span, 6>& a, const SmallVec<Span, 6>& b) {
    for (auto& x : a)
      for (auto& y : b)
        if (x.meets(y)) return true;
    return false;
  };

  auto run_instr = [&](size_t t) {
    const Instr& c = p.code[t];
    const std::string& op = g.node(c.node).op->name;
    SmallVec<Span, 6> reads, writes;
    std::erase_if(open, [&](const Open& o) { return p.code[o.instr].join <= static_cast<int>(t); });
    for (size_t i = 0; i < size_t{c.n_in} + c.n_out; ++i) {
      const ArgRef& r = p.refs[c.first_arg + i];
      const TensorArg& a = p.args[c.first_arg + i];
      (i < c.n_in ? reads : writes).push_back(span_of(r.buffer, r.offset, a.shape, a.layout, a.dtype));
      if (i >= c.n_in) continue;
      MGE_ASSERT(tag_of(r.value) >= 0 && memory[reads[i].space].holds(reads[i].lo, reads[i].hi, tag_of(r.value)),
                 "program {}: instruction {} ({}) reads operand {} (value %{}) from memory that holds something else",
                 g.name(), t, op, i, r.value);
    }
    for (size_t o = 0; o < writes.size(); ++o) {
      for (size_t i = 0; i < reads.size(); ++i) {
        const bool allowed = c.kernel && ((reads[i] == writes[o] && c.kernel->in_place(o, i)) ||
                                          is_part(p, c, i, reads[i].lo - writes[o].lo));
        MGE_ASSERT(allowed || !reads[i].meets(writes[o]),
                   "program {}: instruction {} ({}) writes result {} over operand {}", g.name(), t, op, o, i);
      }
      for (size_t q = 0; q < o; ++q)
        MGE_ASSERT(!writes[q].meets(writes[o]), "program {}: instruction {} ({}) writes two results to one place",
                   g.name(), t, op);
    }
    if (c.workspace >= 0) {
      const PlanBuffer& b = p.buffers[c.workspace];
      Span w{-b.home, static_cast<int64_t>(b.offset), static_cast<int64_t>(b.offset + b.bytes)};
      for (auto& s : reads)
        MGE_ASSERT(!s.meets(w), "program {}: instruction {} ({}) has its workspace over an operand", g.name(), t, op);
      for (auto& s : writes)
        MGE_ASSERT(!s.meets(w), "program {}: instruction {} ({}) has its workspace over a result", g.name(), t, op);
      memory[w.space].write(w.lo, w.hi, next_tag++);
    }
    SmallVec<Span, 6> changed = writes;
    if (c.workspace >= 0) {
      const PlanBuffer& b = p.buffers[c.workspace];
      changed.push_back({-b.home, static_cast<int64_t>(b.offset), static_cast<int64_t>(b.offset + b.bytes)});
    }
    for (auto& o : open)
      MGE_ASSERT(!meet(changed, o.reads) && !meet(changed, o.writes) && !meet(reads, o.writes),
                 "program {}: instruction {} ({}) works on memory of instruction {}, which still goes on", g.name(), t,
                 op, o.instr);
    if (c.domain >= 0) open.push_back({t, reads, writes});
    for (size_t o = 0; o < writes.size(); ++o) {
      tag_of(p.refs[c.first_arg + c.n_in + o].value) = next_tag;
      memory[writes[o].space].write(writes[o].lo, writes[o].hi, next_tag++);
    }
  };

  // The graph says what each value is; the instructions say what is done. A node without an instruction is a view.
  size_t t = 0;
  for (ir::NodeId n = g.first(); n != ir::kNone; n = g.node(n).next) {
    const ir::Node& x = g.node(n);
    bool ran = false;
    for (; t < p.code.size() && p.code[t].node == n; ++t) {
      run_instr(t);
      ran |= p.code[t].kernel != nullptr || p.code[t].home != p.code[t].from;
    }
    if (ran) continue;
    MGE_ASSERT(x.op->view && x.outputs.size() == 1, "program {}: node {} ({}) has no instruction", g.name(), n,
               x.op->name);
    tag[x.outputs[0]] = tag[x.inputs[0]];
  }
  MGE_ASSERT(t == p.code.size(), "program {}: instruction {} is out of order", g.name(), t);

  // In a chain all instructions are at work at once: none writes what another one reads or writes, but what it is
  // given.
  for (const Chain& chain : p.chains)
    for (int i = chain.first; i < chain.first + chain.count; ++i)
      for (int j = chain.first; j < chain.first + chain.count; ++j) {
        const Instr &c = p.code[i], &other = p.code[j];
        auto span = [&](const Instr& x, size_t a) {
          const ArgRef& r = p.refs[x.first_arg + a];
          const TensorArg& t = p.args[x.first_arg + a];
          return span_of(r.buffer, r.offset, t.shape, t.layout, t.dtype);
        };
        for (size_t a = 0; i != j && a < size_t{other.n_in} + other.n_out; ++a)
          MGE_ASSERT((j == i + 1 && a == 0) || !span(c, c.n_in).meets(span(other, a)),
                     "program {}: instructions {} and {} of a chain work on the same memory", g.name(), i, j);
      }

  auto intact = [&](ir::ValueId v, const char* what) {
    Span s = span_of_value(v);
    MGE_ASSERT(p.buffers[p.place[v].buffer].where != Where::Arena, "program {}: {} %{} lies in the arena", g.name(),
               what, v);
    MGE_ASSERT(memory[s.space].holds(s.lo, s.hi, tag[v]), "program {}: {} %{} is overwritten before the end", g.name(),
               what, v);
  };
  for (auto& o : g.outputs()) intact(o.value, "output");
  for (auto& v : g.vars())
    if (v.out != ir::kNone) intact(v.out, "commit");
}

}  // namespace mge
