#include "lite/run/fitting.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include "base/error.h"
#include "base/write_file.h"
#include "lite/convert.h"
#include "lite/error.h"
#include "lite/global.h"
#include "lite/pack_model.h"
#include "lite/run/json.h"
#include "lite/run/session.h"
#include "megengine/version.h"

namespace lite {
namespace {

using Clock = std::chrono::steady_clock;
using OptionSet = std::vector<std::string>;  // flags to turn on; "name=value" for the others

constexpr int kWarmups = 3, kRuns = 10;
constexpr std::chrono::seconds kBudget(10);
constexpr double kGain = 0.98;  // less than this is noise

// Layout switches and --layout_transform are not among them: layouts are chosen in any case.
const OptionSet kFirst[] = {{}, {"weight_preprocess"}, {"fast_run"}, {"weight_preprocess", "fast_run"}};
const OptionSet kSecond[] = {{"enable_fuse_preprocess"}, {"record_comp_seq"}, {"const_shape"}};

std::string text_of(const OptionSet& set) {
  std::string s = "--cpu";
  for (const std::string& o : set) s += " --" + o;
  return s;
}

Flags with(const Flags& base, const OptionSet& set) {
  Flags f = base;
  for (const std::string& o : set) {
    const size_t equals = o.find('=');
    f.set(o.substr(0, equals), equals == std::string::npos ? "true" : o.substr(equals + 1));
  }
  return f;
}

/// Milliseconds of a run; nothing when the set cannot be used, which is told.
std::optional<double> try_set(const Flags& base, const OptionSet& set) {
  const auto deadline = Clock::now() + kBudget;
  try {
    const Flags f = with(base, set);
    check_flags(f);
    Session s(f);
    const bool stored = !f.given("input") && f.integer("batch_size") <= 0 && !s.tests().empty();
    stored ? s.feed(s.tests()[0].inputs) : s.feed(s.given_inputs());
    double sum = 0;
    for (int i = 0; i < kWarmups + kRuns; ++i) {
      const auto begin = Clock::now();
      s.net(0).forward();
      s.net(0).wait();
      if (i >= kWarmups) sum += std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
      MGE_CHECK(Clock::now() < deadline, Env, "took longer than {} s", kBudget.count());
    }
    std::printf("fitting: %-50s avg_time=%.3f ms\n", text_of(set).c_str(), sum / kRuns);
    return sum / kRuns;
  } catch (...) {
    std::printf("fitting: %-50s passed over: %s\n", text_of(set).c_str(), current_error_text().c_str());
    return {};
  }
}

std::string io_json(const std::vector<IoSlot>& slots) {
  JsonList out;
  for (const IoSlot& s : slots) {
    const Layout l = s.tensor->get_layout();
    JsonWriter io, shape;
    for (size_t i = 0; i < std::min<size_t>(l.ndim, 4); ++i)
      shape.number("dim" + std::to_string(i), static_cast<double>(l.shapes[i]));
    io.member("name", s.io.name);
    io.flag("is_host", s.io.is_host);
    io.member("io_type", "value");
    io.member("dtype", dtype_text(l.data_type));
    if (l.ndim <= 4) io.raw("shape", shape.str());
    out.add(io.str());
  }
  return out.str();
}

/// What a packed model says of itself, so that it is loaded with these options.
std::string info_json(Session& s) {
  const Options& o = s.impl().config.options;
  JsonWriter options, device, io, all;
  options.flag("weight_preprocess", o.weight_preprocess);
  options.flag("fuse_preprocess", o.fuse_preprocess);
  options.flag("const_shape", o.const_shape);
  options.number("jit_level", o.jit_level);
  options.number("comp_node_seq_record_level", o.comp_node_seq_record_level);
  options.number("graph_opt_level", o.graph_opt_level);
  options.number("async_exec_level", o.async_exec_level);
  device.member("type", "CPU");
  device.number("device_id", 0);
  device.number("number_threads", static_cast<double>(s.impl().threads));
  device.flag("enable_inplace_model", s.impl().inplace);
  io.raw("inputs", io_json(s.impl().inputs));
  io.raw("outputs", io_json(s.impl().outputs));
  all.member("name", "packed_model");
  all.flag("valid", true);
  all.member("version", MGE_VERSION_STRING);
  all.flag("has_compression", false);
  all.member("backend", "MGE");
  all.raw("device", device.str());
  all.raw("options", options.str());
  all.raw("IO", io.str());
  return all.str();
}

void pack(const Flags& f, const OptionSet& best) {
  const Flags chosen = with(f, best);
  Session s(chosen);
  const std::string& path = f.text("dump_fitting_model");
  const std::string info = path + ".info.json";
  mge::replace_file(info, info_json(s));
  std::string cache;
  if (chosen.on("fast_run")) dump_persistent_cache(cache = path + ".cache");
  ModelPacker packer(f.positional()[0], path, info, cache);
  packer.set_header(f.text("bare_model_cryption").empty() ? "NONE" : f.text("bare_model_cryption"));
  packer.pack_model();
  std::remove(info.c_str());
  if (!cache.empty()) std::remove(cache.c_str());
  std::printf("fitting: wrote %s\n", path.c_str());
}

}  // namespace

int fit(const Flags& flags) {
  Flags base = flags;
  for (const char* one : {"iter", "warmup_iter"}) base.set(one, "1");
  std::optional<double> best_time;
  OptionSet best;
  auto consider = [&](const OptionSet& set) {
    const std::optional<double> t = try_set(base, set);
    if (t && (!best_time || *t < *best_time * kGain)) best_time = t, best = set;
  };
  for (const OptionSet& set : kFirst) consider(set);
  if (!best_time) {
    std::fprintf(stderr, "load_and_run: --fitting: no set of options runs this model.\n");
    return 1;
  }
  const OptionSet first = best;
  for (const OptionSet& more : kSecond) {
    OptionSet set = first;
    set.insert(set.end(), more.begin(), more.end());
    consider(set);
  }
  std::printf("the best options:\n%s\n", text_of(best).c_str());
  if (flags.given("dump_fitting_model")) pack(flags, best);
  return 0;
}

}  // namespace lite
