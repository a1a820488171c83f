#include "pass/pipeline.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/features.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "op/in_build.h"
#include "pass/arithmetic.h"
#include "pass/canonicalise.h"
#include "pass/constant_fold.h"
#include "pass/cse.h"
#include "pass/dce.h"
#include "pass/fuse_batch_norm.h"
#include "pass/fuse_conv_epilogue.h"
#include "pass/fuse_grain.h"
#include "pass/fuse_matmul_epilogue.h"
#include "pass/fuse_preprocess.h"
#include "pass/half_io.h"
#include "pass/move_casts.h"
#include "pass/move_transposes.h"
#include "pass/remove_dropout.h"
#include "pass/write_out.h"

namespace mge::pass {
namespace {

struct Pass {
  const char* name;
  int level;  // runs at this opt_level and above
  bool (*run)(Graph& g, const PipelineOptions& opt);
};

// A pass that makes an op; nothing in a build without it.
template <size_t n>
struct Text {
  char chars[n];
  consteval Text(const char (&text)[n]) { std::copy_n(text, n, chars); }
};
template <Text op, bool (*run)(Graph&)>
bool only_with(Graph& g, const PipelineOptions&) {
  if constexpr (in_build(op.chars)) return run(g);
  return false;
}

bool fold(Graph& g, const PipelineOptions& o) {
  return has("constant_fold") && o.evaluate && constant_fold(g, o.evaluate);
}

bool fuse_regions(Graph& g, const PipelineOptions& o) {
  if (!in_build("fused") || !has("fuse_elementwise") || !o.can_fuse) return false;
  if (o.graph_opt.jit_fuse_reduce != Switch::Off) return fuse_elementwise(g, o.can_fuse);
  return fuse_elementwise(g, [&](const OpDef& op, const AttrsBase* attrs, std::span<const DType> in, DType out) {
    return !op.is(kReduction) && o.can_fuse(op, attrs, in, out);
  });
}

// None of these changes a bit of any result unless `rewrites` or `inference` name it (docs/numerics.md). Those of level
// 1 hold whatever sizes the graph is bound to later: a file is made of what they leave.
constexpr Pass kPasses[] = {
    {"dce", 1, [](Graph& g, const PipelineOptions&) { return dce(g); }},
    // Before folding: the statistics of a batch norm become small constant expressions.
    {"write_out", 2, [](Graph& g, const PipelineOptions&) { return has("write_out") && write_out(g); }},
    {"constant_fold", 1, fold},
    {"canonicalise", 1,
     [](Graph& g, const PipelineOptions& o) { return has("canonicalise") && canonicalise(g, o.opt_level >= 2); }},
    // Before arithmetic, which makes products of divisions by a power of two.
    {"fuse_grain", 2,
     [](Graph& g, const PipelineOptions& o) { return has("fuse_grain") && fuse_grain(g, true, o.graph_opt.rewrites); }},
    // After canonicalise: constants stand on the right.
    {"arithmetic", 1,
     [](Graph& g, const PipelineOptions& o) {
       return has("arithmetic") && arithmetic(g, o.opt_level >= 2, o.graph_opt.rewrites);
     }},
    // What the rules made of constants.
    {"constant_fold", 1, fold},
    // After folding: equal constants appear there.
    {"cse", 1, [](Graph& g, const PipelineOptions&) { return has("cse") && cse(g); }},
    {"move_casts", 2, [](Graph& g, const PipelineOptions&) { return has("move_casts") && move_casts(g); }},
    // Before fusion, which ends at transpositions; cse, which runs before, would not find what it makes twice.
    {"move_transposes", 2,
     [](Graph& g, const PipelineOptions& o) {
       return has("graph_options") && o.graph_opt.jit_fuse_dimshuffle == Switch::On && move_transposes(g);
     }},
    // Before elementwise fusion, which would swallow what they take.
    {"fuse_batch_norm", 2, only_with<"batch_norm_fused", fuse_batch_norm>},
    {"fuse_conv_epilogue", 2, only_with<"conv2d_fused", fuse_conv_epilogue>},
    {"fuse_matmul_epilogue", 2, only_with<"matmul_fused", fuse_matmul_epilogue>},
    {"fuse_elementwise", 2, fuse_regions},
    {"dce", 1, [](Graph& g, const PipelineOptions&) { return dce(g); }},
};

bool half(Graph& g, const PipelineOptions& o) {
  const InferenceOptions& i = o.inference;
  if (!has("half_io")) return false;  // refused where it is asked for
  if (!i.f16_io_comp && !i.f16_io_f32_comp && !i.bf16_io) return false;
  return half_io(g, i.bf16_io ? DType::BF16 : DType::F16);
}

// Once, on a graph that is to be shipped; each looks at its own option. What it does not name stays as it was written.
constexpr Pass kInference[] = {
    {"dce", 1, [](Graph& g, const PipelineOptions&) { return dce(g); }},
    {"remove_dropout", 1,
     [](Graph& g, const PipelineOptions& o) {
       return has("graph_options") && o.inference.rewrites & kRemoveDropout && remove_dropout(g);
     }},
    // A batch norm becomes the scale that arithmetic takes into the weights before it.
    {"write_out", 1,
     [](Graph& g, const PipelineOptions& o) {
       return has("graph_options") && o.inference.rewrites & kFoldBatchNorm && write_out_batch_norms(g);
     }},
    {"constant_fold", 1, fold},
    {"fuse_grain", 1,
     [](Graph& g, const PipelineOptions& o) {
       return has("fuse_grain") && o.inference.fuse_grain && fuse_grain(g, false, o.inference.rewrites);
     }},
    {"arithmetic", 1,
     [](Graph& g, const PipelineOptions& o) {
       return has("arithmetic") && o.inference.rewrites && arithmetic(g, false, o.inference.rewrites);
     }},
    // Before half_io: the table takes the steps as they were written, in float32.
    {"fuse_preprocess", 1,
     [](Graph& g, const PipelineOptions& o) {
       return has("fuse_preprocess") && o.inference.fuse_preprocess && o.evaluate && fuse_preprocess(g, o.evaluate);
     }},
    {"half_io", 1, half},
    // After half_io: weights become 16 bits wide.
    {"constant_fold", 1, fold},
    {"cse", 1, [](Graph& g, const PipelineOptions&) { return has("cse") && cse(g); }},
    {"dce", 1, [](Graph& g, const PipelineOptions&) { return dce(g); }},
};

/// What MGE_DUMP_IR asks for; a Value error where that is nothing.
struct Dumps {
  bool all = false;
  std::vector<std::string_view> names;

  Dumps() {
    const char* env = std::getenv("MGE_DUMP_IR");
    if (!env || !*env) return;
    require("graph_text", "MGE_DUMP_IR");
    std::string_view s = env;
    if (s == "all") {
      all = true;
      return;
    }
    MGE_CHECK(s.substr(0, 6) == "after:", Value, "MGE_DUMP_IR: expected all or after:<pass>,<pass>...; got '{}'.", s);
    for (s.remove_prefix(6);;) {
      const size_t comma = s.find(',');
      const std::string_view name = s.substr(0, comma);
      MGE_CHECK(known(name), Value, "MGE_DUMP_IR: there is no pass '{}'. There are trace (before any), {}, {}.", name,
                list(), kLayouts);
      names.push_back(name);
      if (comma == std::string_view::npos) break;
      s.remove_prefix(comma + 1);
    }
  }
  bool wanted(std::string_view pass) const { return all || std::ranges::find(names, pass) != names.end(); }

  static bool known(std::string_view name) {
    auto is = [&](const Pass& p) { return p.name == name; };
    return name == "trace" || name == kLayouts || std::ranges::any_of(kPasses, is) ||
           std::ranges::any_of(kInference, is);
  }
  static std::string list() {
    std::vector<std::string_view> seen;
    std::string s;
    auto add = [&](const Pass& p) {
      if (std::ranges::find(seen, p.name) != seen.end()) return;
      seen.push_back(p.name);
      s += (s.empty() ? "" : ", ") + std::string(p.name);
    };
    std::ranges::for_each(kPasses, add);
    std::ranges::for_each(kInference, add);
    return s;
  }
  static constexpr std::string_view kLayouts = "assign_layouts";  // printed by plan, which assigns them
};

void dump(const Dumps& dumps, const Graph& g, const char* pass) {
  if (has("graph_text") && dumps.wanted(pass))
    std::fprintf(stderr, "# after %s\n%s", pass, ir::print(g, {.types = true}).c_str());
}

void run(std::span<const Pass> passes, Graph& g, const PipelineOptions& opt) {
  const Dumps dumps;
  dump(dumps, g, "trace");
  for (const Pass& p : passes) {
    if (opt.opt_level < p.level) continue;
    try {
      const bool changed = p.run(g, opt);
      if (changed) note_feature(p.name);
#ifdef MGE_DEBUG_CHECKS
      if (changed) ir::verify(g);
#endif
    } catch (const Error& e) {
      fail(ErrorKind::Internal, "pass {}: {}", p.name, e.text());
    }
    dump(dumps, g, p.name);
  }
}

std::vector<std::string_view> names(std::span<const Pass> passes, int level) {
  std::vector<std::string_view> out;
  for (auto& p : passes)
    if (level >= p.level) out.push_back(p.name);
  return out;
}

}  // namespace

void optimize(Graph& g, const PipelineOptions& opt) {
  MGE_CHECK(opt.opt_level >= 0 && opt.opt_level <= 3, Value, "opt_level: expected 0 to 3; got {}.", opt.opt_level);
  // What goes by shapes sees those of the call; a graph for any sizes is bound first (ir/bind.h).
  MGE_ASSERT(opt.opt_level < 2 || !g.is_sized(), "graph {} is optimised before its sizes are bound", g.name());
  run(kPasses, g, opt);
}

void optimize_for_inference(Graph& g, const PipelineOptions& opt) { run(kInference, g, opt); }

bool run_pass(std::string_view name, Graph& g, const PipelineOptions& opt) {
  for (std::span<const Pass> list : {std::span<const Pass>(kPasses), std::span<const Pass>(kInference)})
    for (const Pass& p : list)
      if (p.name == name) return p.run(g, opt);
  fail(ErrorKind::Value, "run_pass: there is no pass '{}'. There are {}.", name, Dumps::list());
}

std::vector<std::string_view> pass_names(int opt_level) { return names(kPasses, opt_level); }
std::vector<std::string_view> inference_pass_names() { return names(kInference, 1); }

}  // namespace mge::pass
