#include "lite/engine.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/error.h"
#include "jit/interp/interp.h"
#include "op/shape_ops.h"
#include "pass/pipeline.h"
#include "plan/evaluate.h"

namespace lite {
namespace {

using mge::Buffer;
using mge::Graph;
using mge::Meta;
using mge::ir::kNone;

// Programs own their arenas; a caller that sends every shape under the sun must not fill the memory.
constexpr size_t kMaxPrograms = 8;

// The graph with only some of its outputs. Nodes that became useless go with the dead-code pass.
Graph with_outputs(const Graph& g, const std::vector<std::string>& names) {
  Graph out(g.name());
  std::unordered_map<mge::ir::ValueId, mge::ir::ValueId> to;
  for (auto v : g.inputs()) to[v] = out.add_input(g.value(v).name, g.meta(v));
  for (auto& v : g.vars()) to[v.in] = out.add_var(g.value(v.in).name, g.meta(v.in));
  for (auto& c : g.constants())
    if (c.value != kNone) to[c.value] = out.add_constant(g.meta(c.value), c.storage, c.offset, g.value(c.value).name);
  for (auto n : g.order()) {
    const mge::ir::Node& node = g.node(n);
    mge::SmallVec<mge::ir::ValueId, 6> in;
    for (auto v : node.inputs) in.push_back(to.at(v));
    auto copy = out.add_node(*node.op, node.attrs, {in.data(), in.size()}, out.loc(g.location(node.loc)));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      to[node.outputs[i]] = out.node(copy).outputs[i];
      out.set_name(out.node(copy).outputs[i], g.value(node.outputs[i]).name);
    }
  }
  for (auto& o : g.outputs())
    if (std::find(names.begin(), names.end(), o.name) != names.end()) out.add_output(o.name, to.at(o.value));
  for (size_t i = 0; i < g.vars().size(); ++i)
    if (g.vars()[i].out != kNone) out.commit(i, to.at(g.vars()[i].out));
  return out;
}

int64_t row_elements(const mge::Shape& s) {
  int64_t n = 1;
  for (int i = 1; i < s.rank; ++i) n *= s[i];
  return n;
}

// A trace of flatten(x, 1) on a batch of 4 holds reshape {shape=[4,64]}. A reshape that leaves the first dimension
// alone says the same with -1 there, and then holds for every batch size.
void free_batch_of_reshapes(Graph& g) {
  for (auto n : g.order()) {
    const mge::ir::Node& node = g.node(n);
    if (node.op->name != "reshape") continue;
    const mge::Shape& from = g.meta(node.inputs[0]).shape;
    mge::ShapeAttrs attrs = mge::attrs_as<mge::ShapeAttrs>(node.attrs.get());
    bool fixed = attrs.shape.size() > 0 && std::find(attrs.shape.begin(), attrs.shape.end(), -1) == attrs.shape.end();
    if (!fixed || from.rank == 0 || attrs.shape[0] != from[0]) continue;
    int64_t row = row_elements(from);
    if (row == 0 || row != row_elements(mge::to_shape(attrs.shape))) continue;
    attrs.shape[0] = -1;
    mge::ir::ValueId in = node.inputs[0], old = node.outputs[0];
    auto fresh = g.add_node(*node.op, mge::make_attrs(std::move(attrs)), {&in, 1}, node.loc, n);
    g.replace_all_uses(old, g.node(fresh).outputs[0]);
    g.erase(n);
  }
}

void output_every_value(Graph& g) {
  int i = 0;
  for (auto n : g.order())
    for (auto v : g.node(n).outputs) {
      std::string name = g.value(v).name.empty() ? mge::format("var{}", i) : g.value(v).name;
      g.add_output(std::move(name), v);
      ++i;
    }
}

}  // namespace

Engine::Engine(std::shared_ptr<const mge::serial::LoadedModel> model, const EngineOptions& opt)
    : model_(std::move(model)), opt_(opt), graph_(model_->graph.clone()) {
  if (!opt_.outputs.empty()) graph_ = with_outputs(graph_, opt_.outputs);
  if (opt_.every_value) output_every_value(graph_);
  for (auto& v : graph_.vars()) {
    const mge::ir::Value& value = graph_.value(v.in);
    auto& given = model_->info.var_values;
    auto it = std::find_if(given.begin(), given.end(), [&](auto& t) { return t.name == value.name; });
    MGE_CHECK(it != given.end(), Value, "lite: var '{}' {} has no initial value in the model. Dump it with its state.",
              value.name, value.meta.str());
    Buffer b = mge::allocate_buffer(value.meta);  // a copy: runs write into it, and networks may share the model
    if (value.meta.bytes()) std::memcpy(b.storage->ptr, it->data(), value.meta.bytes());
    vars_.push_back(std::move(b));
  }
}

mge::RefPtr<mge::Program> Engine::compile(const std::vector<Meta>& inputs) const {
  mge::install_interp();
  Graph g = graph_.clone();
  bool changed = false;
  for (size_t i = 0; i < inputs.size(); ++i) changed |= !inputs[i].same_type(g.meta(g.inputs()[i]));
  if (changed) {
    free_batch_of_reshapes(g);
    for (size_t i = 0; i < inputs.size(); ++i) g.set_input_meta(i, inputs[i]);
    g.infer_all();
  }
  mge::pass::PipelineOptions passes;
  passes.opt_level = opt_.opt_level;
  passes.evaluate = mge::kernel_evaluator();
  passes.can_fuse = mge::interp_can_fuse;
  mge::pass::optimize(g, passes);
  return mge::Program::compile(g);
}

void Engine::prepare(const std::vector<Meta>& inputs) {
  auto same = [&](const Compiled& c) {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!inputs[i].same_type(c.inputs[i])) return false;
    return true;
  };
  if (current_ && same(*current_)) return;
  auto it = std::find_if(programs_.begin(), programs_.end(), same);
  if (it == programs_.end()) {
    Compiled fresh{inputs, compile(inputs)};
    current_ = nullptr;
    if (programs_.size() >= kMaxPrograms) programs_.pop_back();
    programs_.push_front(std::move(fresh));
  } else {
    programs_.splice(programs_.begin(), programs_, it);
  }
  current_ = &programs_.front();
}

std::vector<Buffer> Engine::run(std::vector<Buffer> inputs) {
  mge::Program& p = *current_->program;
  for (size_t i = 0; i < inputs.size(); ++i) p.bind_input(i, std::move(inputs[i]));
  for (size_t i = 0; i < vars_.size(); ++i) p.bind_var(i, std::move(vars_[i]));
  // Vars come back whatever happens: a failed run must not leave the network without its state.
  struct TakeBack {
    mge::Program& p;
    std::vector<Buffer>& vars;
    ~TakeBack() {
      for (size_t i = 0; i < vars.size(); ++i) vars[i] = p.var(i);
      p.release_buffers();
    }
  } back{p, vars_};
  p.run();
  std::vector<Buffer> out;
  for (size_t i = 0; i < p.n_outputs(); ++i) out.push_back(mge::make_contiguous(p.output_meta(i), p.output(i)));
  return out;
}

}  // namespace lite
