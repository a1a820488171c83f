#include "lite/engine.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "base/features.h"
#include "core/fork.h"
#include "jit/interp/interp.h"
#include "lite/algo_cache.h"
#include "op/in_build.h"
#include "pass/dce.h"
#include "pass/pipeline.h"
#include "plan/evaluate.h"
#include "plan/oracle.h"
#include "serial/mgb/read.h"

namespace lite {
namespace {

using mge::Buffer;
using mge::Graph;
using mge::Meta;

void output_every_value(Graph& g) {
  int i = 0;
  for (auto n : g.order())
    for (auto v : g.node(n).outputs) {
      std::string name = g.value(v).name.empty() ? mge::format("var{}", i) : g.value(v).name;
      g.add_output(std::move(name), v);
      ++i;
    }
}

// Of all engines of a model; goes with the last of them. They may outlive the model, at whose address there is another
// one then.
std::shared_ptr<mge::PreparedWeights> prepared_weights(const std::shared_ptr<const mge::serial::LoadedModel>& model) {
  struct Known {
    std::mutex mutex;
    std::vector<std::pair<std::weak_ptr<const mge::serial::LoadedModel>, std::weak_ptr<mge::PreparedWeights>>> all;
  };
  static auto* known = new Known;  // leaked: other threads may load while the process ends
  const std::lock_guard lock(known->mutex);
  std::erase_if(known->all, [](auto& entry) { return entry.first.expired() || entry.second.expired(); });
  for (auto& [of, weights] : known->all)
    if (of.lock() == model)
      if (auto found = weights.lock()) return found;
  auto made = std::make_shared<mge::PreparedWeights>();
  known->all.emplace_back(model, made);
  return made;
}

// A policy holds for its network alone: while its thread compiles, or runs op by op.
struct Policy : std::optional<mge::KernelPolicy> {
  Policy(uint32_t strategy, size_t workspace) {
    if (mge::has("fast_run") && (strategy != mge::kHeuristic || workspace != SIZE_MAX)) emplace(strategy, workspace);
  }
};

}  // namespace

mge::serial::ReadOptions read_options() {
  mge::serial::ReadOptions o;
#if MGE_ORIGINAL_FILES
  o.foreign = mge::serial::mgb::read;
  o.evaluate = mge::kernel_evaluator();
#endif
  return o;
}

Engine::Engine(std::shared_ptr<const mge::serial::LoadedModel> model, const EngineOptions& opt)
    : model_(std::move(model)), opt_(opt), prepared_(prepared_weights(model_)), graph_(model_->graph.clone()) {
  if (!opt_.outputs.empty()) graph_.keep_outputs(opt_.outputs);
  if (mge::has("value_dumps") && opt_.every_value) output_every_value(graph_);
  mge::pass::dce(graph_);
  if (opt_.opt_level > 0) mge::pass::optimize_for_inference(graph_, passes(1));
  if (opt_.device) graph_.place(opt_.device);
  for (auto& v : graph_.vars()) {
    const mge::ir::Value& value = graph_.value(v.in);
    auto& given = model_->info.var_values;
    auto it = std::find_if(given.begin(), given.end(), [&](auto& t) { return t.name == value.name; });
    MGE_CHECK(it != given.end(), Value, "lite: var '{}' {} has no initial value in the model. Dump it with its state.",
              value.name, value.meta.str());
    Buffer b = mge::allocate_for_host(value.meta);  // a copy: runs write into it, and networks may share the model
    if (value.meta.bytes()) std::memcpy(b.storage->ptr, it->data(), value.meta.bytes());
    vars_.push_back(mge::to_device(value.meta, std::move(b)));
  }
}

mge::pass::PipelineOptions Engine::passes(int level) const {
  mge::pass::PipelineOptions o;
  o.opt_level = level;
  if (mge::has("constant_fold") || mge::has("fuse_preprocess")) o.evaluate = mge::kernel_evaluator();
  if constexpr (mge::in_build("fused")) o.can_fuse = mge::interp_can_fuse;
  o.inference = opt_.inference;
  if (opt_.jit_level == 1) o.graph_opt.jit_fuse_reduce = mge::pass::Switch::Off;
  return o;
}

mge::RefPtr<mge::Program> Engine::compile(Graph bound) {
  uint32_t strategy = opt_.strategy;
  if ((strategy & mge::kProfile) && opt_.tune_once && std::exchange(tuned_, true)) strategy |= mge::kHeuristic;
  const mge::ForkWaits waits;
  const Policy policy(strategy, opt_.workspace);
  if constexpr (mge::in_build("fused")) mge::install_interp();
  mge::pass::optimize(bound, passes(opt_.opt_level));
  if (mge::has("fuse_elementwise") && opt_.jit_level && opt_.opt_level < 2)
    mge::pass::run_pass("fuse_elementwise", bound, passes(2));
  mge::CompileOptions o;
  o.record = opt_.record_level;
  o.share_memory = opt_.share_memory;
  const mge::pass::LayoutTarget target = opt_.inference.layout;
  o.weight_preprocess = opt_.inference.weight_preprocess || mge::pass::wants_packed_weights(target);
  if (mge::pass::wants_channels_last(target)) o.orders = mge::OrderTarget::ChannelsLast;
  o.prepared_mapped = prepared_;
  auto p = mge::Program::compile(bound, o);
  if (mge::has("checks") && opt_.verify && opt_.record_level < 2)
    mge::verify_program(*p);  // level 2 keeps no graph to compare with
  if (mge::has("profiling") && watched_) p->watch(true);
  if (mge::has("fast_run") && (strategy & mge::kProfile)) sync_cache_file();
  return p;
}

void Engine::forget_programs() {
  MGE_CHECK(!dropped_, Assertion,
            "lite: how kernels are chosen cannot change any more: comp_node_seq_record_level 2 has dropped the graph.");
  parts_.clear();
  inputs_.clear();
  current_ = nullptr;
  tuned_ = false;
}
void Engine::set_strategy(uint32_t strategy, int64_t shared_batch) {
  forget_programs();
  opt_.strategy = strategy;
  opt_.shared_batch = shared_batch;
}
void Engine::set_workspace(size_t bytes) {
  forget_programs();
  opt_.workspace = bytes;
}

// A program for the shared batch is compiled first, so that its kernels are measured with it; other batches find them.
void Engine::measure_shared_batch(const std::vector<Meta>& inputs) {
  if (!mge::has("fast_run") || !opt_.shared_batch || !(opt_.strategy & mge::kProfile) ||
      (opt_.strategy & mge::kHeuristic) || sizes_vary())
    return;
  std::vector<Meta> shared = inputs;
  int64_t batch = -1;
  for (Meta& m : shared) {
    if (m.shape.rank == 0) continue;
    if (batch < 0) batch = m.shape[0];
    if (m.shape[0] == batch) m.shape[0] = opt_.shared_batch;
  }
  parts_[0].program(shared);
}

void Engine::watch(bool on) {
  watched_ = on;
  for (auto& p : programs()) p->watch(on);
}

std::vector<mge::RefPtr<mge::Program>> Engine::latest() const {
  std::vector<mge::RefPtr<mge::Program>> out;
  for (auto& part : parts_)
    if (auto made = part.programs(); !made.empty()) out.push_back(made.front());
  return out;
}

std::vector<mge::RefPtr<mge::Program>> Engine::programs() const {
  std::vector<mge::RefPtr<mge::Program>> out;
  for (auto& part : parts_)
    for (auto& p : part.programs()) out.push_back(p);
  return out;
}

void Engine::prepare(const std::vector<Meta>& given) {
  auto same_inputs = [&] {
    return std::equal(given.begin(), given.end(), inputs_.begin(), inputs_.end(),
                      [](const Meta& a, const Meta& b) { return a.same_type(b); });
  };
  if (current_ && same_inputs()) return;
  std::vector<Meta> inputs = given;
  for (Meta& m : inputs) m.cn = opt_.device;
  if (parts_.empty()) {
    stages_ = mge::split(graph_);
    for (auto& part : stages_.parts)
      parts_.emplace_back(std::move(part.graph), [this](Graph g) { return compile(std::move(g)); });
    const std::vector<bool>& host = stages_.parts[0].host;
    reads_inputs_ = std::find(host.begin(), host.end(), true) != host.end();
    measure_shared_batch(inputs);
  }
  MGE_CHECK(!opt_.record_level || !sizes_vary(), Value,
            "lite: comp_node_seq_record_level {} needs sizes that follow from those of the inputs; in this model they "
            "depend on values. Use level 0.",
            opt_.record_level);
  inputs_ = inputs;
  outputs_.clear();
  current_ = nullptr;
  if (sizes_vary()) return;
  current_ = parts_[0].program(inputs);
  if (opt_.const_shape) parts_[0].drop_graph();
  for (size_t i = 0; i < current_->n_outputs(); ++i) outputs_.push_back(current_->output_meta(i));
}

namespace {

Buffer on_host(const Meta& m, const Buffer& b) { return mge::make_contiguous(m, mge::to_host(m, b)); }

// The numbers that the sizes of a part depend on.
std::vector<mge::ir::KnownInput> known_inputs(const mge::Stage& part, const std::vector<Meta>& metas,
                                              const std::vector<Buffer>& slots) {
  std::vector<mge::ir::KnownInput> out;
  for (size_t i = 0; i < part.in.size(); ++i) {
    if (!part.host[i]) continue;
    const auto slot = static_cast<size_t>(part.in[i]);
    Buffer b = mge::make_contiguous(metas[slot], mge::to_host(metas[slot], slots[slot]));
    const size_t offset = static_cast<size_t>(b.layout.offset) * mge::dtype_size(metas[slot].dtype);
    out.push_back({i, {metas[slot], b.storage, offset}});
  }
  return out;
}

}  // namespace

std::vector<Buffer> Engine::run_parts(std::vector<Buffer> inputs) {
  std::vector<Buffer> slots(stages_.n_slots);
  std::vector<Meta> metas(stages_.n_slots);
  for (size_t i = 0; i < inputs.size(); ++i) {
    slots[i] = std::move(inputs[i]);
    metas[i] = inputs_[i];
  }
  for (size_t i = 0; i < vars_.size(); ++i) {
    slots[inputs_.size() + i] = vars_[i];
    metas[inputs_.size() + i] = graph_.meta(graph_.vars()[i].in);
  }
  for (size_t k = 0; k < parts_.size(); ++k) {
    const mge::Stage& part = stages_.parts[k];
    std::vector<Meta> in;
    for (int s : part.in) in.push_back(metas[static_cast<size_t>(s)]);
    mge::RefPtr<mge::Program> p = parts_[k].program(in, known_inputs(part, metas, slots));
    for (size_t i = 0; i < part.in.size(); ++i) p->bind_input(i, slots[static_cast<size_t>(part.in[i])]);
    p->run();
    for (size_t i = 0; i < part.out.size(); ++i) {
      const auto slot = static_cast<size_t>(part.out[i]);
      metas[slot] = p->output_meta(i);
      slots[slot] = p->output(i);
    }
    p->release_buffers();
  }
  for (size_t i = 0; i < vars_.size(); ++i)
    if (stages_.commits[i] >= 0) vars_[i] = slots[static_cast<size_t>(stages_.commits[i])];
  std::vector<Buffer> out;
  outputs_.clear();
  for (int s : stages_.outputs) {
    outputs_.push_back(metas[static_cast<size_t>(s)]);
    out.push_back(on_host(outputs_.back(), slots[static_cast<size_t>(s)]));
  }
  return out;
}

std::vector<Buffer> Engine::run(std::vector<Buffer> inputs) {
  if (opt_.device)
    for (size_t i = 0; i < inputs.size(); ++i)
      inputs[i] = mge::to_device(inputs_[i], mge::make_contiguous(inputs_[i], inputs[i]));
  if (parts_.size() > 1) return run_parts(std::move(inputs));
  if (reads_inputs_) {
    current_ = parts_[0].program(inputs_, known_inputs(stages_.parts[0], inputs_, inputs));
    outputs_.clear();
    for (size_t i = 0; i < current_->n_outputs(); ++i) outputs_.push_back(current_->output_meta(i));
  }
  mge::Program& p = *current_;
  if (mge::has("checks") && opt_.dynamic_alloc) {
    const Policy policy(opt_.strategy, opt_.workspace);
    mge::OracleResult r = mge::interpret(p.graph(), inputs, vars_, false);
    vars_ = std::move(r.vars);
    std::vector<Buffer> out;
    for (size_t i = 0; i < p.n_outputs(); ++i) out.push_back(on_host(p.output_meta(i), r.outputs[i]));
    return out;
  }
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
  std::vector<Buffer> out;
  out.reserve(p.n_outputs());
  p.run();
  for (size_t i = 0; i < p.n_outputs(); ++i) out.push_back(on_host(p.output_meta(i), p.output(i)));
  if (opt_.record_level == 2 && !dropped_) drop_graph();
  return out;
}

void Engine::drop_graph() {
  dropped_ = true;
  parts_[0].drop_graph();
  graph_.drop_nodes();
  model_ = nullptr;
}

}  // namespace lite
