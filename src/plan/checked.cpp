// The checked executor: slow, and loud about the first wrong byte.
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/features.h"
#include "kernel/copy.h"
#include "op/elementwise/fused.h"
#include "plan/oracle.h"
#include "plan/program_impl.h"

namespace mge {
namespace {

constexpr int kPoison = 0xAA, kCanary = 0xC5;

double half_to_double(uint16_t h) {
  int e = h >> 10 & 31, m = h & 1023;
  double v = e == 31 ? (m ? NAN : INFINITY) : e ? std::ldexp(1024 + m, e - 25) : std::ldexp(m, -24);
  return h & 0x8000 ? -v : v;
}

double element(const void* p, DType t, int64_t i) {
  auto at = [&](auto v) {
    std::memcpy(&v, static_cast<const char*>(p) + i * static_cast<int64_t>(sizeof v), sizeof v);
    return v;
  };
  switch (t) {
    case DType::F32:
      return at(float{});
    case DType::F64:
      return at(double{});
    case DType::F16:
      return half_to_double(at(uint16_t{}));
    case DType::BF16: {
      uint32_t u = static_cast<uint32_t>(at(uint16_t{})) << 16;
      float f;
      std::memcpy(&f, &u, 4);
      return f;
    }
    case DType::I64:
      return static_cast<double>(at(int64_t{}));
    case DType::I32:
      return at(int32_t{});
    case DType::I16:
      return at(int16_t{});
    case DType::I8:
      return at(int8_t{});
    case DType::U16:
      return at(uint16_t{});
    default:
      return at(uint8_t{});
  }
}

bool has_canary(const PlanBuffer& b) { return b.where == Where::Arena || (b.where == Where::Output && b.donor < 0); }

}  // namespace

namespace {

void order_as_asked(CompileOptions& opt) {
  const char* env = std::getenv("MGE_MEMORY_ORDER");
  if (!env || !*env) return;
  require("layouts", "MGE_MEMORY_ORDER");
  const std::string_view word = env;
  MGE_CHECK(word == "cost" || word == "channels-last" || word == "local", Value,
            "MGE_MEMORY_ORDER: expected cost, channels-last or local; got '{}'.", word);
  opt.orders = word == "cost" ? OrderTarget::Cost : word == "local" ? OrderTarget::Local : OrderTarget::ChannelsLast;
}

}  // namespace

void check_as_asked(CompileOptions& opt) {
  order_as_asked(opt);
  const char* env = std::getenv("MGE_CHECK_PROGRAMS");
  if (!env) return;
  require("checks", "MGE_CHECK_PROGRAMS");
  std::string_view left = env;
  while (!left.empty()) {
    const size_t comma = left.find(',');
    const std::string_view word = left.substr(0, comma);
    left.remove_prefix(comma == left.npos ? left.size() : comma + 1);
    if (word == "memory" || word == "all") opt.poison = true;
    if (word == "nan" || word == "all") opt.check_nan = true;
    if (word == "oracle" || word == "all") opt.compare_oracle = true;
    MGE_CHECK(word.empty() || word == "memory" || word == "nan" || word == "oracle" || word == "all", Value,
              "MGE_CHECK_PROGRAMS: '{}' is not a check; got '{}'. There are memory, nan, oracle and all, separated by "
              "commas.",
              word, env);
  }
}

// Each step of a fused op as an op of its own, so that the one that makes the first NaN is found.
void unfuse(ir::Graph& g) {
  for (ir::NodeId n : g.order()) {
    const ir::Node& x = g.node(n);
    auto* fused = fused_region(x.attrs.get());
    if (!fused) continue;
    const FusedRegion& r = *fused;
    const bool one_each = x.origins.size() == r.steps.size();
    std::vector<ir::ValueId> made;
    for (size_t k = 0; k < r.steps.size(); ++k) {
      SmallVec<ir::ValueId, 3> in;
      for (int a : r.steps[k].args) in.push_back(a >= 0 ? x.inputs[a] : made[static_cast<size_t>(-1 - a)]);
      const ir::NodeId step = g.add_node(*r.steps[k].op, r.steps[k].attrs, {in.data(), in.size()}, x.loc, n);
      made.push_back(g.node(step).outputs[0]);
      for (size_t o = 0; o < x.origins.size(); ++o)
        if (!one_each || o == k) g.add_origin(step, ir::Origin(g.origin(x.origins[o])));
    }
    for (size_t o = 0; o < x.outputs.size(); ++o)
      g.replace_all_uses(x.outputs[o], r.outputs.empty() ? made.back() : made[static_cast<size_t>(-1 - r.outputs[o])]);
    g.erase(n);
  }
}

void Program::Impl::poison_all() const {
  for (auto& h : homes) std::memset(h.arena->ptr, kPoison, h.arena->bytes);
  for (size_t b = 0; b < buffers.size(); ++b)
    if (buffers[b].where == Where::Output && has_canary(buffers[b]))
      std::memset(out_storage[b]->ptr, kPoison, out_storage[b]->bytes);
}

void Program::Impl::before_instr(size_t i) const {
  if (!opt.poison) return;
  for (size_t b = 0; b < buffers.size(); ++b)
    if (has_canary(buffers[b]) && buffers[b].first == static_cast<int>(i) &&
        (buffers[b].where == Where::Output || !patches[b].empty() || code[i].workspace == static_cast<int>(b)))
      std::memset(static_cast<char*>(base_of(static_cast<int>(b))) + buffers[b].bytes, kCanary, kCanaryBytes);
}

void Program::Impl::after_instr(size_t i) const {
  const Instr& c = code[i];
  const std::string& op = c.args.op->name;
  auto check_canary = [&](int b) {
    if (!has_canary(buffers[b])) return;
    auto* z = static_cast<const unsigned char*>(base_of(b)) + buffers[b].bytes;
    for (size_t k = 0; k < kCanaryBytes; ++k)
      MGE_ASSERT(z[k] == kCanary, "{}: kernel {} wrote past the end of a buffer of {} bytes", op,
                 c.kernel ? c.kernel->name : "copy_strided", buffers[b].bytes);
  };
  size_t n_args = size_t{c.n_in} + c.n_out;
  if (opt.poison) {
    for (size_t a = 0; a < n_args; ++a) check_canary(refs[c.first_arg + a].buffer);
    if (c.workspace >= 0) check_canary(c.workspace);
  }
  if (opt.check_nan) {
    for (size_t o = 0; o < c.n_out; ++o) {
      const TensorArg& t = c.args.out[o];
      if (!is_float(t.dtype)) continue;
      for (int64_t k = 0, n = t.numel(); k < n; ++k) {
        double v = element(t.ptr, t.dtype, k);
        MGE_CHECK(std::isfinite(v), Value, "{}: result {} is {} at element {} of {} (kernel {}).", op, o, v, k,
                  t.shape.str(), c.kernel ? c.kernel->name : "copy_strided");
      }
    }
  }
  if (opt.poison) {
    auto kill = [&](int b) {
      if (buffers[b].where == Where::Arena && buffers[b].last == static_cast<int>(i))
        std::memset(base_of(b), kPoison, buffers[b].bytes + kCanaryBytes);
    };
    for (size_t a = 0; a < n_args; ++a) kill(refs[c.first_arg + a].buffer);
    if (c.workspace >= 0) kill(c.workspace);
  }
}

void Program::Impl::compare_with_oracle() const {
  OracleResult r = interpret(graph, in, oracle_vars);
  auto compare = [&](const std::string& name, ir::ValueId v, const Buffer& got, const Buffer& want) {
    const Meta& m = graph.meta(v);
    Buffer a = make_contiguous(m, got), b = make_contiguous(m, want);
    for (int64_t k = 0, n = m.shape.numel(); k < n; ++k) {
      double x = element(a.data(m.dtype), m.dtype, k), y = element(b.data(m.dtype), m.dtype, k);
      bool same = x == y || (std::isnan(x) && std::isnan(y));
      bool close = is_float(m.dtype) && std::abs(x - y) <= opt.oracle_atol + opt.oracle_rtol * std::abs(y);
      if (same || close) continue;
      ir::NodeId n_id = graph.value(v).producer;
      const std::string text =
          format("program {}: '{}' differs from the reference interpreter at element {} of {}: {} instead of {}.",
                 graph.name(), name, k, m.str(), x, y);
      if (n_id == ir::kNone) throw Error(ErrorKind::Assertion, text);
      throw ir::explained(ir::tell(graph, n_id), ErrorKind::Assertion, text);
    }
  };
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    ir::ValueId v = graph.outputs()[i].value;
    compare(graph.outputs()[i].name, v, buffer_of(v), r.outputs[i]);
  }
  for (size_t i = 0; i < graph.vars().size(); ++i)
    if (ir::ValueId v = graph.vars()[i].out; v != ir::kNone)
      compare(graph.value(graph.vars()[i].in).name, v, buffer_of(v), r.vars[i]);
}

}  // namespace mge
