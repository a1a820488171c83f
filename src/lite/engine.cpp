#include "lite/engine.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "jit/interp/interp.h"
#include "op/shape/shape_ops.h"
#include "pass/pipeline.h"
#include "plan/evaluate.h"

namespace lite {
namespace {

using mge::Buffer;
using mge::Graph;
using mge::Meta;

// Programs own their arenas; a caller that sends every shape under the sun must not fill the memory.
constexpr size_t kMaxPrograms = 8;

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
  if (!opt_.outputs.empty()) graph_.keep_outputs(opt_.outputs);
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
