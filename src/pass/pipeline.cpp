#include "pass/pipeline.h"

#include <cstdio>
#include <cstdlib>

#include "ir/text.h"
#include "ir/verify.h"
#include "pass/constant_fold.h"
#include "pass/cse.h"
#include "pass/dce.h"
#include "pass/fuse_conv_epilogue.h"
#include "pass/write_out.h"

namespace mge::pass {
namespace {

struct Pass {
  const char* name;
  int level;  // runs at this opt_level and above
  bool (*run)(Graph& g, const PipelineOptions& opt);
};

// None of these changes a bit of any result. One that might would be marked here, off by default, and named in
// docs/numerics.md.
constexpr Pass kPasses[] = {
    {"dce", 1, [](Graph& g, const PipelineOptions&) { return dce(g); }},
    // Before folding: the statistics of a batch norm become small constant expressions.
    {"write_out", 2, [](Graph& g, const PipelineOptions&) { return write_out(g); }},
    {"constant_fold", 1, [](Graph& g, const PipelineOptions& o) { return o.evaluate && constant_fold(g, o.evaluate); }},
    // After folding: equal constants appear there.
    {"cse", 1, [](Graph& g, const PipelineOptions&) { return cse(g); }},
    // Before elementwise fusion, which would swallow the epilogue.
    {"fuse_conv_epilogue", 2, [](Graph& g, const PipelineOptions&) { return fuse_conv_epilogue(g); }},
    {"fuse_elementwise", 2,
     [](Graph& g, const PipelineOptions& o) { return o.can_fuse && fuse_elementwise(g, o.can_fuse); }},
    {"dce", 1, [](Graph& g, const PipelineOptions&) { return dce(g); }},
};

bool dump_wanted(std::string_view pass) {
  const char* env = std::getenv("MGE_DUMP_IR");
  if (!env) return false;
  std::string_view s = env;
  if (s == "all") return true;
  if (s.substr(0, 6) != "after:") return false;
  for (s.remove_prefix(6); !s.empty();) {
    size_t comma = s.find(',');
    if (s.substr(0, comma) == pass) return true;
    if (comma == std::string_view::npos) break;
    s.remove_prefix(comma + 1);
  }
  return false;
}

void dump(const Graph& g, const char* pass) {
  if (dump_wanted(pass)) std::fprintf(stderr, "# after %s\n%s", pass, ir::print(g, {.types = true}).c_str());
}

}  // namespace

void optimize(Graph& g, const PipelineOptions& opt) {
  MGE_CHECK(opt.opt_level >= 0 && opt.opt_level <= 3, Value, "opt_level: expected 0 to 3; got {}.", opt.opt_level);
  // What goes by shapes sees those of the call; a graph for any sizes is bound first (ir/bind.h).
  MGE_ASSERT(opt.opt_level < 2 || !g.is_sized(), "graph {} is optimised before its sizes are bound", g.name());
  dump(g, "trace");
  for (const Pass& p : kPasses) {
    if (opt.opt_level < p.level) continue;
    [[maybe_unused]] bool changed = false;
    try {
      changed = p.run(g, opt);
#ifdef MGE_DEBUG_CHECKS
      if (changed) ir::verify(g);
#endif
    } catch (const Error& e) {
      fail(ErrorKind::Internal, "pass {}: {}", p.name, e.text());
    }
    dump(g, p.name);
  }
}

std::vector<std::string_view> pass_names(int opt_level) {
  std::vector<std::string_view> out;
  for (auto& p : kPasses)
    if (opt_level >= p.level) out.push_back(p.name);
  return out;
}

}  // namespace mge::pass
