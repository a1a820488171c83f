#include "lite/run/verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

#include "base/error.h"
#include "ir/bind.h"
#include "ir/text.h"
#include "jit/interp/interp.h"
#include "lite/engine.h"
#include "lite/run/dump.h"
#include "plan/evaluate.h"
#include "plan/oracle.h"

namespace lite {
namespace {

using mge::Buffer;
using mge::Graph;
using mge::Meta;
using mge::serial::LoadedModel;
using mge::serial::TensorData;

// Rounding of an op may differ from its reference; more than this is another result.
constexpr double kRounding = 1e-4;

const TensorData& find(const std::vector<TensorData>& list, const std::string& name) {
  for (const TensorData& t : list)
    if (t.name == name) return t;
  mge::fail(mge::ErrorKind::Value, "verify: the test case has no value for input '{}'.", name);
}

Buffer buffer_of(const TensorData& t) {
  Buffer b = mge::allocate_buffer(t.meta);
  if (t.meta.bytes()) std::memcpy(b.storage->ptr, t.data(), t.meta.bytes());
  return b;
}

std::vector<Buffer> inputs_of(const Graph& g, const std::vector<TensorData>& given, std::vector<Meta>* metas) {
  std::vector<Buffer> out;
  for (auto v : g.inputs()) {
    const TensorData& t = find(given, g.value(v).name);
    Meta m = t.meta;
    if (g.meta(v).shape.rank == 0) m.shape = {};
    m.dtype = g.meta(v).dtype;  // quantised numbers travel as plain ones
    out.push_back(buffer_of({t.name, m, t.storage, t.offset}));
    metas->push_back(m);
  }
  return out;
}

struct Values {
  std::vector<Meta> metas;
  std::vector<Buffer> buffers;
};

/// Every result of the graph, op by op, by the kernels a program would use.
Values run_plainly(Engine& e, const std::vector<Meta>& metas, std::vector<Buffer> in) {
  e.prepare(metas);
  Values out;
  out.buffers = e.run(std::move(in));
  for (size_t i = 0; i < out.buffers.size(); ++i) out.metas.push_back(e.output_meta(i));
  return out;
}

/// The same by the reference kernels; empty where sizes depend on values.
std::vector<Buffer> run_reference(const Engine& e, const std::vector<Meta>& metas, const std::vector<Buffer>& in) {
  if (e.sizes_vary()) return {};
  Graph g = e.graph().clone();
  mge::ir::bind(g, metas, {}, mge::kernel_evaluator());
  std::vector<Buffer> vars;
  for (auto& v : g.vars()) vars.push_back(buffer_of(find(e.model()->info.var_values, g.value(v.in).name)));
  std::vector<Buffer> out = mge::interpret(g, in, vars).outputs;
  for (size_t i = 0; i < out.size(); ++i) out[i] = mge::make_contiguous(g.meta(g.outputs()[i].value), out[i]);
  return out;
}

Difference between(const Meta& m, const Buffer& got, const Buffer& want, double allowed) {
  const TensorData t{"", m, want.storage, static_cast<size_t>(want.layout.offset) * mge::dtype_size(m.dtype)};
  return compare(m, got.data(m.dtype), t, allowed);
}

/// The optimised program of the part of the graph that value `v` needs.
Buffer run_optimised(const LoadedModel& model, mge::ir::ValueId v, const std::vector<Meta>& metas,
                     std::vector<Buffer> in, int opt_level) {
  auto part = std::make_shared<LoadedModel>();
  part->graph = model.graph.clone();
  part->info.var_values = model.info.var_values;
  part->info.metadata = model.info.metadata;
  const std::string name = "value of mge-lite verify";
  part->graph.add_output(name, v);
  Engine e(part, {.opt_level = opt_level, .outputs = {name}});
  e.prepare(metas);
  return e.run(std::move(in)).at(0);
}

/// From the line of the instruction in the program's text: "  3 simd_max_pool2d  ...   %3 = max_pool2d %2".
std::string kernel_of(const Engine& e, mge::ir::NodeId n) {
  const std::string node = mge::ir::print_node(e.graph(), n);
  const std::string mark = "   " + node.substr(0, node.find(" = ") + 3) + e.graph().node(n).op->name;
  for (auto& p : e.programs()) {
    std::istringstream lines(p->dump());
    for (std::string line; std::getline(lines, line);) {
      if (line.find(mark) == std::string::npos) continue;
      std::string number, kernel;
      std::istringstream(line) >> number >> kernel;
      return kernel;
    }
  }
  return "";
}

}  // namespace

std::string Difference::text(double allowed) const {
  if (!types.empty()) return types;
  if (identical) return "identical";
  std::string s = mge::format("maximum error {:.3g}, allowed {:.3g}", worst, allowed);
  return ok ? s : s + mge::format(": element {} is {:.9g}, expected {:.9g}", at, got, want);
}

Difference compare(const Meta& m, const void* got, const TensorData& want, double max_error) {
  Difference d;
  // A scalar of the graph is [1] in files of the original.
  const bool same = m.dtype == want.meta.dtype &&
                    (m.shape == want.meta.shape || (m.shape.rank + want.meta.shape.rank == 1 && m.shape.numel() == 1 &&
                                                    want.meta.shape.numel() == 1));
  if (!same) {
    d.ok = d.identical = false;
    d.types = mge::format("is {}, expected {}", m.str(), want.meta.str());
    return d;
  }
  if (m.bytes() == 0 || std::memcmp(got, want.data(), m.bytes()) == 0) return d;
  d.identical = false;
  for (int64_t i = 0; i < m.shape.numel(); ++i) {
    const double a = element_value(m.dtype, got, i), b = element_value(m.dtype, want.data(), i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    double e = std::fabs(a - b) / std::max(std::min(std::fabs(a), std::fabs(b)), 1.0);
    if (!(e < INFINITY)) e = INFINITY;
    if (d.at < 0 || e > d.worst) d.worst = e, d.at = i, d.got = a, d.want = b;
  }
  d.ok = max_error > 0 && d.worst <= max_error;
  return d;
}

std::string OpDifference::text() const {
  if (found == Found::Nothing)
    return "every op gives what its reference kernel gives: the case was recorded from another computation";
  std::string s = mge::format("op {} -> '{}' {}", op, value, meta.str());
  if (!location.empty()) s += " at " + location;
  s += found == Found::Kernel ? mge::format(": kernel {} differs from the reference kernel: ", kernel)
                              : std::string(": the optimised program up to it differs from the op alone: ");
  return s + difference.text(kRounding);
}

OpDifference first_different_op(const std::shared_ptr<const LoadedModel>& model, const mge::serial::TestCase& test,
                                int opt_level) {
  Engine plain(model, {.opt_level = 0, .every_value = true});
  const Graph& g = plain.graph();
  std::vector<Meta> metas;
  const std::vector<Buffer> in = inputs_of(g, test.inputs, &metas);
  const Values values = run_plainly(plain, metas, in);
  const std::vector<Buffer> reference = run_reference(plain, metas, in);

  auto describe = [&](size_t i, OpDifference::Found found, Difference d) {
    const mge::ir::Output& o = g.outputs()[i];
    const mge::ir::NodeId n = g.value(o.value).producer;
    return OpDifference{found,           g.node(n).op->name, o.name, kernel_of(plain, n), g.location_of(n).str(),
                        values.metas[i], std::move(d)};
  };
  const size_t first = model->graph.outputs().size();  // those after the real outputs are every result, in order
  for (size_t i = first; i < values.buffers.size() && !reference.empty(); ++i)
    if (Difference d = between(values.metas[i], values.buffers[i], reference[i], kRounding); !d.ok && !d.identical)
      return describe(i, OpDifference::Found::Kernel, std::move(d));
  for (size_t i = first; i < values.buffers.size(); ++i) {
    const Buffer got = run_optimised(*model, g.outputs()[i].value, metas, in, opt_level);
    if (Difference d = between(values.metas[i], got, values.buffers[i], kRounding); !d.ok && !d.identical)
      return describe(i, OpDifference::Found::Optimised, std::move(d));
  }
  return {};
}

}  // namespace lite
