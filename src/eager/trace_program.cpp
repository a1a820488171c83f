// The programs of a recording: its segments for host mode, the whole of it for replay.
#include "eager/trace.h"
#include "plan/evaluate.h"

namespace mge {
namespace {

pass::CanFuse g_can_fuse;

Buffer contiguous_of(Value& v) {
  wait(v);
  return make_contiguous(v.meta, v.buffer);
}

}  // namespace

void Recording::run_segment(size_t index) {
  Segment& s = segments_[index];
  if (s.begin == s.end) return;
  uint64_t key = 0;
  for (uint32_t v : s.in) {
    MGE_ASSERT(vars_[v].value, "trace: variable {} has no value", v);
    key = vars_[v].value->meta.hash(key);
  }
  RefPtr<Program>& p = s.programs[key];
  if (!p) p = compile(segment_graph(s));
  for (size_t i = 0; i < s.in.size(); ++i) p->bind_input(i, contiguous_of(*vars_[s.in[i]].value));
  p->run();
  for (size_t i = 0; i < s.out.size(); ++i) {
    Value& v = *vars_[s.out[i]].value;
    v.buffer = p->output(i);
    v.set_ready();
  }
  p->release_buffers();
}

// ---- graphs

std::string Recording::var_name(uint32_t v) const {
  const Var& var = vars_[v];
  if (var.arg >= 0) return format("arg_{}", var.arg);
  auto it = names_.find(var.cell.get());
  if (it != names_.end() && !it->second.empty()) return it->second;
  return format("v{}", v);
}

void Recording::add_ops(ir::Graph& g, size_t begin, size_t end, std::vector<ir::ValueId>& ids) const {
  std::unordered_map<LocId, ir::LocId> forward, backward;
  for (size_t i = begin; i < end; ++i) {
    const Op& op = ops_[i];
    auto& known = op.backward ? backward : forward;
    auto it = known.find(op.loc);
    if (it == known.end()) {
      Place p = location_place(op.loc);
      ir::LocId loc = p.file.empty() ? ir::kNoLoc : g.loc(p.file, p.line, p.function, op.backward ? "backward" : "");
      it = known.emplace(op.loc, loc).first;
    }
    SmallVec<ir::ValueId, 6> in;
    for (uint32_t v : op.in) in.push_back(ids[v]);
    ir::NodeId n = g.add_node(*op.op, op.attrs, {in.data(), in.size()}, it->second);
    g.set_rerun(n, op.rerun);
    for (size_t k = 0; k < op.out.size(); ++k) ids[op.out[k]] = g.node(n).outputs[k];
  }
}

ir::Graph Recording::segment_graph(const Segment& s) const {
  ir::Graph g("segment");
  std::vector<ir::ValueId> ids(vars_.size(), ir::kNone);
  for (uint32_t v : s.in) ids[v] = g.add_input(format("v{}", v), vars_[v].value->meta);
  add_ops(g, s.begin, s.end, ids);
  for (uint32_t v : s.out) g.add_output(format("o{}", v), ids[v]);
  return g;
}

ir::Graph Recording::graph(const Export& e) {
  MGE_CHECK(state_ == State::Recorded, Env, "trace: nothing was recorded; call the traced function first.");
  ir::Graph g("main");
  std::vector<ir::ValueId> ids(vars_.size(), ir::kNone);
  std::unordered_map<std::string, int> taken;
  auto unique = [&](std::string name) {
    int n = taken[name]++;
    return n ? format("{}[{}]", name, n) : name;
  };
  for (size_t i = 0; i < n_args_; ++i) {
    std::string name = i < e.arg_names.size() ? e.arg_names[i] : var_name(static_cast<uint32_t>(i));
    ids[i] = g.add_input(unique(name), vars_[i].meta);
  }
  std::unordered_map<const Tensor*, size_t> var_index;
  for (uint32_t v : captured_) {
    Var& var = vars_[v];
    if (is_constant(v, e)) {
      ValuePtr now = var.fixed ? var.fixed : var.cell->value;
      Buffer b = contiguous_of(*now);
      size_t offset = static_cast<size_t>(b.layout.offset) * dtype_size(now->meta.dtype);
      ids[v] = g.add_constant(now->meta, b.storage, offset, var_name(v));
    } else {
      var_index[var.cell.get()] = g.vars().size();
      ids[v] = g.add_var(unique(var_name(v)), var.meta);
    }
  }
  add_ops(g, 0, ops_.size(), ids);
  for (size_t i = 0; i < results_.size(); ++i)
    g.add_output(i < e.result_names.size() ? e.result_names[i] : format("out{}", i), ids[results_[i]]);
  for (auto& c : commits_) {
    if (c.arg >= 0 && e.replay) g.add_output(format("arg{}", c.arg), ids[c.var]);
    if (auto it = var_index.find(c.cell.get()); it != var_index.end()) g.commit(it->second, ids[c.var]);
  }
  return g;
}

bool Recording::is_constant(uint32_t v, const Export& e) const {
  const Var& var = vars_[v];
  if (var.constant || !e.as_constants) return var.constant;
  // State that a call assigns (running statistics, random state) is no constant of a replay.
  auto assigned = [&](const Commit& c) { return c.cell == var.cell; };
  return !e.replay || std::none_of(commits_.begin(), commits_.end(), assigned);
}

pass::PipelineOptions pipeline_options(int opt_level) {
  pass::PipelineOptions o;
  o.opt_level = opt_level;
  o.evaluate = kernel_evaluator();
  o.can_fuse = g_can_fuse;
  return o;
}

void set_fusion(pass::CanFuse can_fuse) { g_can_fuse = std::move(can_fuse); }

RefPtr<Program> Recording::compile(ir::Graph g) const {
  pass::optimize(g, pipeline_options(opt_.opt_level));
  return Program::compile(g);
}

std::vector<Tensor*> Recording::captured() const {
  std::vector<Tensor*> out;
  for (uint32_t v : captured_)
    if (!vars_[v].constant) out.push_back(vars_[v].cell.get());
  return out;
}

std::string Recording::report() const {
  std::string s;
  if (whole_) s += whole_->report().str() + "\n" + whole_->dump();
  for (auto& seg : segments_)
    for (auto& [key, p] : seg.programs) s += p->report().str() + "\n" + p->dump();
  return s;
}

// ---- replay

std::vector<TensorPtr> Recording::replay(std::span<Tensor* const> args) {
  MGE_CHECK(state_ == State::Recorded, Env, "trace: nothing was recorded.");
  MGE_CHECK(!cut_, Env, "trace: the recording holds the first part of the call only; run the function.");
  MGE_CHECK(!active_tracer(), Env, "trace: a traced function cannot be called inside another one.");
  check_arguments(args, true);
  if (!whole_) {
    Export e;
    e.as_constants = opt_.capture_as_const;
    e.replay = true;
    ir::Graph g = graph(e);
    whole_vars_.clear();
    for (uint32_t v : captured_)
      if (!is_constant(v, e)) whole_vars_.push_back(v);
    MGE_ASSERT(whole_vars_.size() == g.vars().size(), "trace: {} vars for {} captured tensors", g.vars().size(),
               whole_vars_.size());
    whole_ = compile(std::move(g));
  }
  Program& p = *whole_;
  // All that can fail comes first: from the first bind_var on the program owns the state.
  std::vector<Buffer> state;
  for (size_t i = 0; i < whole_vars_.size(); ++i) {
    const Var& var = vars_[whole_vars_[i]];
    Tensor& cell = *var.cell;
    if (!cell.meta().same_type(var.meta))
      mismatch("tensors not equals",
               format("a captured tensor changed from {} to {}", var.meta.str(), cell.meta().str()), 0);
    state.push_back(contiguous_of(*cell.value));
  }
  for (size_t i = 0; i < args.size(); ++i) p.bind_input(i, contiguous_of(*args[i]->value));
  for (size_t i = 0; i < whole_vars_.size(); ++i) {
    Value& now = *vars_[whole_vars_[i]].cell->value;
    // When nobody else looks, the update may happen in place.
    if (p.graph().vars()[i].out != ir::kNone && now.ref_count() == 1) now.buffer = {};
    p.bind_var(i, std::move(state[i]));
  }
  auto put_back = [&] {
    for (size_t i = 0; i < whole_vars_.size(); ++i) {
      Tensor& cell = *vars_[whole_vars_[i]].cell;
      if (p.graph().vars()[i].out == ir::kNone) continue;
      ValuePtr v = make_ref<Value>();
      v->meta = cell.meta();
      v->buffer = p.var(i);
      v->set_ready();
      cell.value = std::move(v);
      cell.links.clear();
    }
  };
  try {
    p.run();
  } catch (...) {
    put_back();
    p.release_buffers();
    throw;
  }
  std::vector<TensorPtr> out;
  for (size_t i = 0; i < results_.size(); ++i) out.push_back(tensor_from_buffer(p.output_meta(i), p.output(i)));
  put_back();
  size_t next = results_.size();
  for (auto& c : commits_)
    if (c.arg >= 0) {
      Tensor& cell = *args[static_cast<size_t>(c.arg)];
      cell.value = tensor_from_buffer(p.output_meta(next), p.output(next))->value;
      cell.links.clear();
      ++next;
    }
  p.release_buffers();
  return out;
}

}  // namespace mge
