// Graph -> Program: layouts and views, kernels, copies, in-place reuse, memory plan, argument blocks. In that order,
// because the layout of a value never depends on where it is put.
#include <algorithm>
#include <climits>

#include "base/features.h"
#include "core/mapped.h"
#include "ir/builder.h"
#include "ir/verify.h"
#include "kernel/cost.h"
#include "op/shape/shape_ops.h"
#include "plan/layouts.h"
#include "plan/memory.h"
#include "plan/program_impl.h"
#include "plan/recompute.h"
#include "plan/refusals.h"
#include "plan/schedule.h"

namespace mge {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

constexpr int kForever = INT_MAX;

using Impl = Program::Impl;

struct Compiler {
  Impl& p;
  ir::Graph& g;
  std::vector<int> merged;     // per buffer: the buffer it was folded into, or itself
  std::vector<int64_t> shift;  // per buffer: where in that one, in bytes
  struct Copy {
    int value;  // as ArgRef::value says it
    Place at;
  };
  std::vector<SmallVec<Copy, 2>> copies_of;  // per graph value: in other layouts
  Orders orders;

  int home_of(const Meta& m) {
    const Device device = device_of(m);
    Stream* queue = queue_of(m);
    for (size_t h = 0; h < p.homes.size(); ++h)
      if (p.homes[h].device == device && p.homes[h].queue == queue) return static_cast<int>(h);
    p.homes.push_back({device, queue});
    return static_cast<int>(p.homes.size() - 1);
  }

  int new_buffer(Where where, int index, const Meta& m, int first) {
    PlanBuffer b;
    b.where = where;
    b.index = index;
    b.bytes = m.bytes();
    b.first = b.last = first;
    b.home = home_of(m);
    p.buffers.push_back(b);
    return static_cast<int>(p.buffers.size() - 1);
  }

  void put(ValueId v, int buffer, const Layout& l, int ready) {
    p.place[v] = {buffer, l};
    p.ready[v] = ready;
  }

  // A constant in the memory of its device.
  static RefPtr<Storage> bring(const Meta& m, const ir::Constant& c) {
    Buffer host = allocate_for_host(m);
    std::copy_n(static_cast<const char*>(c.data()), m.bytes(), static_cast<char*>(host.storage->ptr));
    Buffer there = to_device(m, host);
    wait_for(*there.work);
    return there.storage;
  }

  // Constants that sit at an offset no layout can express are moved.
  void place_sources() {
    for (size_t i = 0; i < g.inputs().size(); ++i) {
      ValueId v = g.inputs()[i];
      Layout l = Layout::contiguous(g.meta(v).shape);
      if (!p.opt.input_layouts.empty()) l = p.opt.input_layouts[i];
      l.offset = 0;
      p.input_buffer.push_back(new_buffer(Where::Input, static_cast<int>(i), g.meta(v), -1));
      put(v, p.input_buffer.back(), l, 0);
    }
    for (size_t i = 0; i < g.vars().size(); ++i) {
      ValueId v = g.vars()[i].in;
      p.var_buffer.push_back(new_buffer(Where::Var, static_cast<int>(i), g.meta(v), -1));
      put(v, p.var_buffer.back(), Layout::contiguous(g.meta(v).shape), 0);
    }
    for (auto& c : g.constants()) {
      if (c.value == kNone) continue;
      const Meta& m = g.meta(c.value);
      MGE_CHECK(c.storage, Value,
                "compile: constant {} of graph {} has no data; the text it was read from left it out.", m.str(),
                g.name());
      RefPtr<Storage> s = c.storage;
      size_t size = std::max<size_t>(dtype_size(m.dtype), 1), offset = c.offset;
      if (queue_of(m)) {
        s = bring(m, c);
        offset = 0;
      } else if (offset % size || (is_packed(m.dtype) && offset)) {  // elements count from there
        s = allocate_storage({}, m.bytes());
        std::copy_n(static_cast<const char*>(c.data()), m.bytes(), static_cast<char*>(s->ptr));
        offset = 0;
      }
      p.consts.push_back(s);
      Layout l = Layout::contiguous(m.shape);
      l.offset = static_cast<int64_t>(offset / size);
      put(c.value, new_buffer(Where::Const, static_cast<int>(p.consts.size() - 1), m, -1), l, 0);
      p.report.const_bytes += m.bytes();
    }
  }

  static TensorArg arg_of(const Meta& m, const Layout& l) {
    TensorArg t;
    t.dtype = m.dtype;
    t.shape = m.shape;
    t.layout = l;
    t.quant = m.quant;
    return t;
  }

  void push_arg(const Meta& m, const Place& at, int value) {
    p.args.push_back(arg_of(m, at.layout));
    p.refs.push_back({value, at.buffer, at.layout.offset * static_cast<int64_t>(dtype_size(m.dtype))});
  }

  int now() const { return static_cast<int>(p.code.size()); }
  void touch(int buffer) { p.buffers[buffer].last = std::max(p.buffers[buffer].last, now()); }

  // One copy per layout serves all readers of the value. That of a constant is made now, any other by an instruction.
  Place copy_to(NodeId n, ValueId v, const Layout& want, int* copy_value) {
    const Meta& m = g.meta(v);
    for (const Copy& c : copies_of[v])
      if (c.at.layout.same_strides(m.shape, want)) {
        *copy_value = c.value;
        return c.at;
      }
    *copy_value = -2 - p.n_copies++;
    Place at{-1, want};
    at.layout.offset = 0;
    if (p.buffers[p.place[v].buffer].where == Where::Const && !queue_of(m))
      convert(v, *copy_value, at);
    else
      emit_copy(n, v, *copy_value, at);
    copies_of[v].push_back({*copy_value, at});
    return at;
  }
  void convert(ValueId v, int copy_value, Place& at) {
    const Meta& m = g.meta(v);
    Buffer from{p.consts[p.buffers[p.place[v].buffer].index], p.place[v].layout};
    p.consts.push_back(relayout(m, from, at.layout).storage);
    at.buffer = new_buffer(Where::Const, static_cast<int>(p.consts.size() - 1), m, -1);
    p.converted.push_back({copy_value, v, at});
    ++p.report.converted;
    p.report.converted_bytes += m.bytes();
    p.report.const_bytes += m.bytes();
  }
  void emit_copy(NodeId n, ValueId v, int copy_value, Place& at) {
    const Meta& m = g.meta(v);
    if (at.buffer < 0) at.buffer = new_buffer(Where::Arena, -1, m, now());
    Instr c;
    c.node = n;
    c.home = c.from = home_of(m);
    c.first_arg = static_cast<uint32_t>(p.args.size());
    c.n_in = c.n_out = 1;
    touch(p.place[v].buffer);
    touch(at.buffer);
    push_arg(m, p.place[v], v);
    push_arg(m, at, copy_value);
    p.code.push_back(c);
    ++p.report.copies;
    p.report.copy_bytes += m.bytes();
  }

  // The one op whose result may be elsewhere than its input.
  bool lower_move(NodeId n) {
    const ir::Node& x = g.node(n);
    if (x.inputs.size() != 1 || x.outputs.empty() || queue_of(g.meta(x.inputs[0])) == queue_of(g.meta(x.outputs[0])))
      return false;
    ValueId from = x.inputs[0], to = x.outputs[0];
    Place at = p.place[from];
    int value = from;
    const Layout plain = Layout::contiguous(g.meta(from).shape);
    if (!at.layout.same_strides(g.meta(from).shape, plain)) at = copy_to(n, from, plain, &value);
    Instr c;
    c.node = n;
    c.from = home_of(g.meta(from));
    c.home = home_of(g.meta(to));
    c.first_arg = static_cast<uint32_t>(p.args.size());
    c.n_in = c.n_out = 1;
    touch(at.buffer);
    push_arg(g.meta(from), at, value);
    put(to, new_buffer(Where::Arena, -1, g.meta(to), now()), plain, now() + 1);
    push_arg(g.meta(to), p.place[to], to);
    p.code.push_back(c);
    return true;
  }

  bool lower_view(const ir::Node& x) {
    if (!x.op->view) return false;
    const Place& in = p.place[x.inputs[0]];
    Layout l;
    if (!x.op->view({x.attrs.get(), g.meta(x.inputs[0]).shape, in.layout, g.meta(x.outputs[0]).shape, &l}))
      return false;
    put(x.outputs[0], in.buffer, l, p.ready[x.inputs[0]]);
    ++p.report.views;
    return true;
  }

  // A constant operand in the order of its kernel, if the kernel has one and it is asked for.
  const void* prepared(const Kernel& k, const KernelArgs& args, std::span<const ValueId> inputs,
                       std::span<const Place> at) {
    const auto i = static_cast<size_t>(k.prepare.operand);
    if (!k.prepare.bytes || i >= at.size()) return nullptr;
    const PlanBuffer& from = p.buffers[at[i].buffer];
    const Meta& m = g.meta(inputs[i]);
    if (from.where != Where::Const || queue_of(m)) return nullptr;
    const void* data =
        static_cast<char*>(p.consts[from.index]->ptr) + at[i].layout.offset * static_cast<int64_t>(dtype_size(m.dtype));
    const bool mapped = p.opt.prepared_mapped && is_mapped(data, m.bytes());
    if (!mapped && !p.opt.weight_preprocess) return nullptr;
    const size_t bytes = k.prepare.bytes(args);
    if (!bytes) return nullptr;
    SmallVec<TensorArg, 6> in(args.in.begin(), args.in.end());
    in[i].ptr = const_cast<void*>(data);
    KernelArgs with = args;
    with.in = {in.data(), in.size()};
    if (mapped) {
      p.prepared.push_back(p.opt.prepared_mapped->get(k, with, bytes));
      drop_mapped(data, m.bytes());
    } else {
      p.prepared.push_back(PreparedWeights().get(k, with, bytes));
    }
    p.report.prepared_bytes += bytes;
    return p.prepared.back()->ptr;
  }

  // False: there is no kernel, and the op is to run as its parts.
  bool lower_kernel(NodeId n) {
    const ir::Node& x = g.node(n);
    SmallVec<TensorArg, 6> in, out;
    for (ValueId v : x.inputs) in.push_back(arg_of(g.meta(v), p.place[v].layout));
    for (ValueId v : x.outputs) out.push_back(arg_of(g.meta(v), Layout::contiguous(g.meta(v).shape)));
    KernelArgs args{x.op, x.attrs.get(), {in.data(), in.size()}, {out.data(), out.size()}, nullptr};
    args.device = device_of(g.meta(x.outputs[0])).kind;
    Choice none;  // the call eager makes, with the same arguments: same bits
    const Kernel* chosen = KernelRegistry::global().choose(args, &none);
    if (!chosen && has("decompose") && x.op->decompose) return false;
    if (!chosen) fail_no_kernel(args, none);
    const Kernel& k = *chosen;
    ask_layouts(k, args, orders.of(n), in.data(), out.data());

    SmallVec<Place, 6> at;
    SmallVec<int, 6> value;
    for (size_t i = 0; i < in.size(); ++i) {
      ValueId v = x.inputs[i];
      at.push_back(p.place[v]);
      value.push_back(v);
      if (!at[i].layout.same_strides(in[i].shape, in[i].layout)) at[i] = copy_to(n, v, in[i].layout, &value[i]);
    }
    Instr c;
    c.kernel = &k;
    c.home = c.from = home_of(g.meta(x.outputs[0]));
    c.node = n;
    c.first_arg = static_cast<uint32_t>(p.args.size());
    c.n_in = static_cast<uint16_t>(in.size());
    c.n_out = static_cast<uint16_t>(out.size());
    for (size_t i = 0; i < in.size(); ++i) {
      touch(at[i].buffer);
      push_arg(g.meta(x.inputs[i]), at[i], value[i]);
    }
    for (size_t o = 0; o < out.size(); ++o) {
      ValueId v = x.outputs[o];
      put(v, new_buffer(Where::Arena, -1, g.meta(v), now()), out[o].layout, now() + 1);
      push_arg(g.meta(v), p.place[v], v);
    }
    args.prepared = c.args.prepared = prepared(k, args, {x.inputs.data(), x.inputs.size()}, {at.data(), at.size()});
    if (size_t bytes = k.workspace ? k.workspace(args) : 0) {
      Meta m;
      m.dtype = DType::U8;
      m.shape = Shape{static_cast<int64_t>(bytes)};
      m.cn = g.meta(x.outputs[0]).cn;
      c.workspace = new_buffer(Where::Arena, -1, m, now());
      p.report.workspace_bytes = std::max(p.report.workspace_bytes, bytes);
    }
    p.code.push_back(c);
    return true;
  }

  // An op without a kernel here runs as its decomposition.
  void lower_all() {
    NodeId n = g.first();
    while (n != kNone) {
      bool whole = true;
      try {
        whole = (has("streams") && lower_move(n)) || lower_view(g.node(n)) || lower_kernel(n);
        if (has("decompose") && !whole) {
          note("decompose");
          NodeId before = g.node(n).prev;
          ir::decompose_node(g, n);
          grow();
          n = before == kNone ? g.first() : g.node(before).next;
        }
      } catch (const Error&) {
        ir::rethrow(ir::tell(g, n));
      }
      if (whole) n = g.node(n).next;
    }
  }
  // A decomposition may have added values and constants.
  void grow() {
    size_t old = p.place.size();
    p.place.resize(g.n_values());
    p.ready.resize(g.n_values());
    copies_of.resize(g.n_values());
    for (auto& c : g.constants()) {
      if (c.value == kNone || static_cast<size_t>(c.value) < old) continue;
      p.consts.push_back(queue_of(g.meta(c.value)) ? bring(g.meta(c.value), c) : c.storage);
      put(c.value, new_buffer(Where::Const, static_cast<int>(p.consts.size() - 1), g.meta(c.value), -1),
          Layout::contiguous(g.meta(c.value).shape), 0);
    }
  }

  void find_settled() {
    const Refusals may(g);
    for (int t = 0; t < now(); ++t)
      if (p.code[t].kernel && may.refuse(p.code[t].node)) p.settled = t;
    p.first_commit = now();
    for (auto& v : g.vars())
      if (v.out != kNone && p.ready[v.out] > 0) p.first_commit = std::min(p.first_commit, p.ready[v.out] - 1);
    p.first_commit = std::max(p.first_commit, p.settled);
  }

  void mark_escapes() {
    for (auto& o : g.outputs()) p.buffers[p.place[o.value].buffer].last = kForever;
    for (auto& v : g.vars())
      if (v.out != kNone) p.buffers[p.place[v.out].buffer].last = kForever;
  }

  // An effect goes on beside the instructions that follow, up to the first that reads its result. Until then its memory
  // is its own: nothing else is put there, and no kernel writes over its operands.
  void let_effects_go_on() {
    if (!has("streams")) return;
    for (int t = 0; t < now(); ++t) {
      Instr& c = p.code[t];
      const ir::Node& x = g.node(c.node);
      if (!c.kernel || !x.op->is(kEffect) || !x.op->domain) continue;
      const std::string domain = x.op->domain(x.attrs.get());
      if (domain.empty()) continue;
      auto at = std::find(p.domains.begin(), p.domains.end(), domain);
      c.domain = static_cast<int>(at - p.domains.begin());
      if (at == p.domains.end()) p.domains.push_back(domain);
      c.join = t + 1;
      while (c.join < now() && !reads_result(p.code[c.join], c)) ++c.join;
      for (size_t i = 0; i < size_t{c.n_in} + c.n_out; ++i) {
        PlanBuffer& b = p.buffers[p.refs[c.first_arg + i].buffer];
        b.last = std::max(b.last, c.join);
      }
    }
  }
  // Instructions that are worth running band by band. All of what they work on is then there from the first to the
  // last.
  void find_chains() {
    if (!has("bands") || p.checked() || !p.opt.share_memory) return;
    for (int t = 0; t < now(); ++t) {
      int last = t;
      while (last + 1 < now() && last - t + 1 < kMostInChain && goes_on(last)) ++last;
      if (last == t) continue;
      Chain c{t, last - t + 1};
      std::vector<KernelArgs> args;
      for (int i = t; i <= last; ++i) args.push_back(args_of(p.code[i]));
      std::vector<ChainStage> stages;
      for (size_t i = 0; i < args.size(); ++i) stages.push_back({&args[i], c.kernel[i] = rows_of(*args[i].kernel), 0});
      if (!set_bands(stages, c)) continue;
      for (int i = t; i <= last; ++i) keep_for_chain(args[i - t], t, last, p.code[i]);
      p.code[t].chain = static_cast<int>(p.chains.size());
      p.chains.push_back(c);
      t = last;
    }
  }
  KernelArgs args_of(const Instr& c) const {
    const ir::Node& x = g.node(c.node);
    KernelArgs a{
        x.op, x.attrs.get(), {&p.args[c.first_arg], c.n_in}, {&p.args[c.first_arg + c.n_in], c.n_out}, nullptr};
    a.device = p.homes[c.home].device.kind;
    a.kernel = c.kernel;
    a.prepared = c.args.prepared;
    return a;
  }
  bool gives_rows(const Instr& c) const {
    return c.kernel && rows_of(*c.kernel) && c.n_in > 0 && c.n_out == 1 && c.workspace < 0 && c.domain < 0 &&
           c.home == c.from && !p.homes[c.home].queue;
  }
  // Whether nobody but the next instruction reads the result of this one, rows of an image too large for a cache.
  bool goes_on(int t) const {
    const Instr &c = p.code[t], &next = p.code[t + 1];
    if (!gives_rows(c) || !gives_rows(next) || c.home != next.home) return false;
    const ArgRef& made = p.refs[c.first_arg + c.n_in];
    const TensorArg& y = p.args[c.first_arg + c.n_in];
    if (p.refs[next.first_arg].value != made.value || made.value < 0) return false;
    const PlanBuffer& b = p.buffers[made.buffer];
    for (size_t i = 1; i < next.n_in; ++i)
      if (p.refs[next.first_arg + i].buffer == made.buffer) return false;
    if (b.where != Where::Arena || b.first != t || b.last != t + 1 || made.offset != 0 || y.shape.rank != 4 ||
        !y.layout.is_channels_last(y.shape) || y.numel() == 0)
      return false;
    note("bands");  // on a machine with another cache, if not here
    return cost::between_pays(static_cast<double>(b.bytes));
  }
  void keep_for_chain(const KernelArgs& a, int first, int last, Instr& c) {
    for (size_t i = 0; i < size_t{c.n_in} + c.n_out; ++i) {
      PlanBuffer& b = p.buffers[p.refs[c.first_arg + i].buffer];
      b.last = std::max(b.last, last);
      if (i >= c.n_in) b.first = std::min(b.first, first);
    }
    // A weight that was not brought into order when the program is compiled is in each run.
    if (const size_t bytes = c.kernel->prepare.bytes && !a.prepared ? c.kernel->prepare.bytes(a) : 0) {
      Meta m;
      m.dtype = DType::U8;
      m.shape = Shape{static_cast<int64_t>(bytes)};
      m.cn = g.meta(g.node(c.node).outputs[0]).cn;
      c.workspace = new_buffer(Where::Arena, -1, m, first);
      p.buffers[c.workspace].last = last;
      p.report.workspace_bytes = std::max(p.report.workspace_bytes, bytes);
    }
  }
  bool reads_result(const Instr& reader, const Instr& of) const {
    for (size_t i = 0; i < reader.n_in; ++i)
      for (size_t o = 0; o < of.n_out; ++o)
        if (p.refs[reader.first_arg + i].buffer == p.refs[of.first_arg + of.n_in + o].buffer) return true;
    return false;
  }

  int find(int b) const {
    while (merged[b] != b) b = merged[b];
    return b;
  }
  int64_t offset_of(int b) const {
    int64_t at = 0;
    for (; merged[b] != b; b = merged[b]) at += shift[b];
    return at;
  }

  // The other operands must not be in the memory that is overwritten.
  bool only_operand(const Instr& c, size_t i) const {
    int b = find(p.refs[c.first_arg + i].buffer);
    for (size_t j = 0; j < c.n_in; ++j)
      if (j != i && find(p.refs[c.first_arg + j].buffer) == b) return false;
    return true;
  }

  void reuse_in_place() {
    merged.resize(p.buffers.size());
    for (size_t b = 0; b < merged.size(); ++b) merged[b] = static_cast<int>(b);
    shift.assign(merged.size(), 0);
    if (!p.opt.in_place || !p.opt.share_memory) return;
    for (int t = 0; t < now(); ++t)
      if (p.code[t].kernel)
        for (size_t o = 0; o < p.code[t].n_out; ++o) reuse_operand(t, o);
  }
  // The first operand that the kernel may overwrite with result `o` and that nobody reads after this instruction.
  void reuse_operand(int t, size_t o) {
    const Instr& c = p.code[t];
    size_t out = c.first_arg + c.n_in + o;
    int result = p.refs[out].buffer, var = committed_var(p.refs[out].value);
    for (size_t i = 0; i < c.n_in; ++i) {
      const TensorArg &a = p.args[c.first_arg + i], &y = p.args[out];
      if (!c.kernel->in_place(o, i) || a.dtype != y.dtype || !(a.shape == y.shape) ||
          !a.layout.same_strides(a.shape, y.layout) || a.layout.offset != 0)
        continue;
      if (!only_operand(c, i) || taken_by_result(c, o, i)) continue;
      int b = find(p.refs[c.first_arg + i].buffer);
      PlanBuffer &from = p.buffers[b], &to = p.buffers[result];
      if (from.last != t) continue;  // read again later, or escapes
      if (from.where == Where::Var && from.index == var && to.last == kForever && t >= p.settled) {
        to.donor = var;
        ++p.report.donated_vars;
        return;
      }
      if (from.where != Where::Arena || from.home != to.home) continue;
      merged[result] = b;
      from.last = to.last;
      ++p.report.in_place;
      return;
    }
  }
  bool taken_by_result(const Instr& c, size_t o, size_t i) const {
    int b = find(p.refs[c.first_arg + i].buffer);
    for (size_t q = 0; q < o; ++q) {
      int r = p.refs[c.first_arg + c.n_in + q].buffer;
      if (find(r) == b || (p.buffers[r].donor >= 0 && p.var_buffer[p.buffers[r].donor] == b)) return true;
    }
    return false;
  }
  // Only a var whose new value is written by this very instruction may give its memory: if the run fails earlier, it is
  // whole.
  int committed_var(int value) const {
    int found = -1;
    for (size_t i = 0; i < g.vars().size(); ++i)
      if (g.vars()[i].out == value) {
        if (found >= 0) return -1;  // two vars get this value: it must be nobody's old memory
        found = static_cast<int>(i);
      }
    return found;
  }

  // What is joined is best made in its place. That keeps the whole result alive from its first part on, so it is undone
  // where memory would be more.
  void place_parts() {
    if (!p.opt.in_place || !p.opt.share_memory) return;
    const std::vector<PlanBuffer> before = p.buffers;
    const std::vector<int> was = merged;
    for (int t = 0; t < now(); ++t)
      if (p.code[t].kernel && g.node(p.code[t].node).op->name == "concat") place_parts_of(p.code[t], t);
    if (!p.report.parts || arena_bytes(p.buffers, merged) <= arena_bytes(before, was)) return;
    p.buffers = before;
    merged = was;
    p.report.parts = 0;
  }
  void place_parts_of(const Instr& c, int t) {
    const TensorArg& y = p.args[c.first_arg + c.n_in];
    const int result = find(p.refs[c.first_arg + c.n_in].buffer);
    const int axis = normalize_axis("concat", attrs_as<AxisAttrs>(g.node(c.node).attrs.get()).axis, y.shape.rank);
    const auto bytes = [](const TensorArg& a) { return a.numel() * static_cast<int64_t>(dtype_size(a.dtype)); };
    // Nothing but the axis between blocks: along it lies everything else, without gaps.
    if (is_packed(y.dtype) || y.layout.stride[axis] * y.shape[axis] != y.numel()) return;
    const PlanBuffer& to = p.buffers[result];
    if (to.where != Where::Arena || to.donor >= 0 || static_cast<int64_t>(to.bytes) != bytes(y) ||
        p.homes[to.home].device.kind != DeviceKind::Cpu)
      return;
    int64_t at = 0;
    for (size_t i = 0; i < c.n_in; ++i) {
      const TensorArg& a = p.args[c.first_arg + i];
      const ArgRef& r = p.refs[c.first_arg + i];
      const int64_t offset = at;
      at += bytes(a);
      const int b = find(r.buffer);
      const PlanBuffer& from = p.buffers[b];
      // All of a buffer, in the order of the result, that nobody reads or writes afterwards.
      if (from.where != Where::Arena || from.last != t || from.home != p.buffers[result].home || r.offset != 0 ||
          bytes(a) == 0 || static_cast<int64_t>(from.bytes) != bytes(a) || !a.layout.same_strides(a.shape, y.layout))
        continue;
      if (offset % static_cast<int64_t>(kMemAlign) || offset_of(r.buffer) != 0 || !only_operand(c, i)) continue;
      merged[b] = result;
      shift[b] = offset;
      p.buffers[result].first = std::min(p.buffers[result].first, from.first);
      ++p.report.parts;
    }
  }
  std::vector<MemInterval> intervals(const std::vector<PlanBuffer>& buffers, const std::vector<int>& into, int home,
                                     std::vector<size_t>* which = nullptr) const {
    std::vector<MemInterval> v;
    for (size_t b = 0; b < buffers.size(); ++b) {
      const PlanBuffer& x = buffers[b];
      if (x.where != Where::Arena || x.last == kForever || x.home != home || into[b] != static_cast<int>(b)) continue;
      const bool alone = !p.opt.share_memory;
      v.push_back({alone ? 0 : x.first, alone ? now() : x.last, x.bytes + (p.opt.poison ? kCanaryBytes : 0)});
      if (which) which->push_back(b);
    }
    return v;
  }
  size_t arena_bytes(const std::vector<PlanBuffer>& buffers, const std::vector<int>& into) const {
    size_t bytes = 0;
    for (size_t h = 0; h < p.homes.size(); ++h)
      bytes += plan_memory(intervals(buffers, into, static_cast<int>(h))).bytes;
    return bytes;
  }

  void settle_buffers() {
    for (auto& r : p.refs) {
      r.offset += offset_of(r.buffer);
      r.buffer = find(r.buffer);
    }
    for (size_t v = 0; v < p.place.size(); ++v) {
      Place& at = p.place[v];
      if (at.buffer < 0) continue;
      if (const int64_t moved = offset_of(at.buffer))
        at.layout.offset += moved / static_cast<int64_t>(dtype_size(g.meta(static_cast<ValueId>(v)).dtype));
      at.buffer = find(at.buffer);
    }
    for (size_t b = 0; b < p.buffers.size(); ++b) {
      PlanBuffer& x = p.buffers[b];
      if (merged[b] == static_cast<int>(b) && x.where == Where::Arena && x.last == kForever) {
        x.where = Where::Output;
        p.out_buffers.push_back(static_cast<int>(b));
        p.report.output_bytes += x.bytes;
      }
    }
  }

  void plan_arena() {
    for (size_t h = 0; h < p.homes.size(); ++h) plan_arena_of(static_cast<int>(h));
  }
  void plan_arena_of(int home) {
    std::vector<size_t> which;
    const std::vector<MemInterval> v = intervals(p.buffers, merged, home, &which);
    for (size_t b : which) p.report.sum_bytes += p.buffers[b].bytes;
    MemPlan plan = plan_memory(v);
#ifdef MGE_DEBUG_CHECKS
    verify_mem_plan(v, plan);
#endif
    for (size_t i = 0; i < which.size(); ++i) p.buffers[which[i]].offset = plan.offset[i];
    p.homes[home].bytes = plan.bytes;
    p.homes[home].peak = plan.peak;
    p.report.arena_bytes += plan.bytes;
    p.report.lower_bound += plan.lower_bound;
    p.report.strategy = plan.strategy;
  }

  void resolve_arguments() {
    p.patches.resize(p.buffers.size());
    p.input_needed.assign(g.inputs().size(), now());
    for (int t = 0; t < now(); ++t) {
      Instr& c = p.code[t];
      const ir::Node& x = g.node(c.node);
      c.args.op = x.op;
      c.args.attrs = x.attrs.get();
      c.args.kernel = c.kernel;
      c.args.device = p.homes[c.home].device.kind;
      c.args.in = {&p.args[c.first_arg], c.n_in};
      c.args.out = {p.args.data() + c.first_arg + c.n_in, c.n_out};
      p.total_ns += c.ns = static_cast<float>(cost::run_ns(c.args));
      for (size_t i = 0; i < size_t{c.n_in} + c.n_out; ++i) {
        const ArgRef& r = p.refs[c.first_arg + i];
        p.patches[r.buffer].push_back({&p.args[c.first_arg + i], r.offset});
        const PlanBuffer& b = p.buffers[r.buffer];
        if (b.where == Where::Input) p.input_needed[b.index] = std::min(p.input_needed[b.index], t);
      }
    }
    for (size_t b = 0; b < p.buffers.size(); ++b)
      if (p.buffers[b].where == Where::Const) p.set_base(static_cast<int>(b), p.consts[p.buffers[b].index]->ptr);
  }

  void run() {
    p.place.resize(g.n_values());
    p.ready.resize(g.n_values());
    copies_of.resize(g.n_values());
    if (has("layouts")) orders = assign_layouts(g, p.opt.input_layouts, p.opt.orders);
    if ((p.report.reordered = orders.changed)) note("layouts");
    place_sources();
    lower_all();
    find_settled();
    mark_escapes();
    let_effects_go_on();
    find_chains();
    reuse_in_place();
    place_parts();
    settle_buffers();
    plan_arena();
    resolve_arguments();
    for (size_t h = 0; has("recompute") && h < p.homes.size(); ++h)
      p.report.recomputable_bytes += recomputable_bytes(p, static_cast<int>(h));
    p.report.instrs = now();
    p.in.resize(g.inputs().size());
    p.var.resize(g.vars().size());
    p.out_storage.resize(p.buffers.size());
    p.unbound_inputs = p.in.size();
  }
};

}  // namespace

// What the graph tells of memory is not all: kernels want more, and pieces do not fit together. So the aim is lowered
// by what the plan is too large.
RefPtr<Program> Program::compile(const ir::Graph& g, const CompileOptions& opt) {
  if (!has("recompute") || opt.recompute_to == CompileOptions::kComputeOnce)
    return compile_once(g, opt, CompileOptions::kComputeOnce);
  RefPtr<Program> best = compile_once(g, opt, CompileOptions::kComputeOnce);
  size_t aim = opt.recompute_to;
  for (int tries = 0; tries < 3 && best->report().arena_bytes > opt.recompute_to; ++tries) {
    RefPtr<Program> p = compile_once(g, opt, aim);
    const size_t bytes = p->report().arena_bytes, above = bytes > opt.recompute_to ? bytes - opt.recompute_to : 0;
    if (bytes < best->report().arena_bytes) best = p;
    if (!above || !aim) break;
    aim = aim > above ? aim - above : 0;
  }
  return best;
}

RefPtr<Program> Program::compile_once(const ir::Graph& g, const CompileOptions& opt, size_t recompute_to) {
  MGE_CHECK(opt.record >= 0 && opt.record <= 2, Value, "record level: expected 0, 1 or 2; got {}.", opt.record);
  MGE_ASSERT(opt.input_layouts.empty() || opt.input_layouts.size() == g.inputs().size(),
             "{} input layouts for {} inputs", opt.input_layouts.size(), g.inputs().size());
#ifdef MGE_DEBUG_CHECKS
  ir::verify(g);
#endif
  RefPtr<Program> prog(new Program);
  Program::Impl& p = *prog->impl_;
  p.graph = g.clone();
  p.opt = opt;
  check_as_asked(p.opt);
  if (has("checks") && p.opt.check_nan) unfuse(p.graph);
  if (has("order") && opt.reorder) {
    const ScheduleReport r = schedule_for_memory(p.graph);
    if ((p.report.reordered_bytes = r.before - r.after)) note("order");
  }
  if (has("recompute") && recompute_to != CompileOptions::kComputeOnce)
    p.again = recompute_for_memory(p.graph, recompute_to);
  p.report.recomputed = static_cast<int>(p.again.size());
  Compiler{p, p.graph, {}, {}, {}, {}}.run();
  p.dump_layouts();
#ifdef MGE_DEBUG_CHECKS
  verify_program(*prog);
#endif
  if (!opt.record) return prog;
  MGE_CHECK(p.homes.size() <= 1 && p.domains.empty(), Value,
            "record level {}: program {} runs on {} streams; one alone can be recorded. Use level 0.", opt.record,
            g.name(), p.homes.size() + p.domains.size());
  MGE_CHECK(opt.record == 1 || !p.opt.compare_oracle, Value,
            "record level 2: program {} is to be compared with the oracle, which needs its graph. Use level 1.",
            g.name());
  if (opt.record == 2) p.drop_graph();
  return prog;
}

}  // namespace mge
