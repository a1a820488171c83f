// No memory: every allocation of loading and running a model fails once, alone or with those that follow, or the pool
// has no more to give. The call says so, the next one works, and results are those of a machine that has memory.
#include <algorithm>
#include <cstring>

#include "core/pool.h"
#include "fuzz.h"
#include "lite-c/global_c.h"
#include "lite-c/network_c.h"
#include "lite-c/tensor_c.h"
#include "lite/crypt/crypt.h"

namespace fuzz {
namespace {

/// How a case takes memory away: once, at the allocation `at`, with `more` behind it; or by a limit of the pool.
struct Plan {
  uint64_t at = 0, more = 0;
  size_t pool = 0;  // bytes that are left; 0: no limit
};

class Scenario {
 public:
  Scenario(const Seed& seed, const Plan& plan) : seed_(seed), plan_(plan) {}

  /// The bytes of all outputs.
  Bytes run(Rng rng) {
    mge::Pool& pool = mge::Pool::of({});
    Bytes model = seed_.cryption.empty() ? seed_.bytes : lite::encrypt(seed_.cryption, seed_.bytes);
    Bytes out;
    out.reserve(1 << 20);  // what is short is the library's memory, not ours
    const uint64_t begun = allocations();
    if (plan_.at) fail_allocation(plan_.at, plan_.more);
    if (plan_.pool) pool.set_limit(pool.stats().allocated + plan_.pool);
    LiteConfig c = *default_config();
    if (rng.one_in(3)) c.options.graph_opt_level = static_cast<int>(rng.below(4));
    if (rng.one_in(4)) c.options.comp_node_seq_record_level = 1;
    if (rng.one_in(4)) c.options.weight_preprocess = 1;
    if (rng.one_in(4)) c.options.async_exec_level = 4;  // on a thread of its own
    if (!seed_.cryption.empty()) c.bare_model_cryption_name = seed_.cryption.c_str();
    step("LITE_make_network_config", [&] { return LITE_make_network_config(&net_, c); });
    const bool loads = step(
        "LITE_load_model_from_mem", [&] { return LITE_load_model_from_mem(net_, model.data(), model.size()); }, true);
    if (loads) run_twice(&out);
    // Nothing may be needed to let go of things.
    if (plan_.more) fail_allocation(1, UINT64_MAX / 2);
    const int status = LITE_destroy_network(net_);
    fail_allocation(0);
    if (status) finding("LITE_destroy_network needs memory");
    pool.set_limit(0);
    count_ = allocations() - begun;
    return out;
  }
  uint64_t count() const { return count_; }
  /// A run that failed has told that it had changed the state of the model (ADR 0050).
  bool assigned() const { return assigned_; }
  bool verbose = false;
  int failures() const { return failures_; }

 private:
  void run_twice(Bytes* out) {
    size_t n = 0;
    step("LITE_get_all_input_name", [&] { return LITE_get_all_input_name(net_, &n, nullptr); });
    for (size_t i = 0; i < n; ++i) {
      const char* name = nullptr;
      LiteTensor t;
      void* p = nullptr;
      size_t bytes = 0;
      step("LITE_get_input_name", [&] { return LITE_get_input_name(net_, i, &name); });
      step("LITE_get_io_tensor", [&] { return LITE_get_io_tensor(net_, name, LITE_INPUT, &t); });
      step("LITE_get_tensor_memory", [&] { return LITE_get_tensor_memory(t, &p); });
      step("LITE_get_tensor_total_size_in_byte", [&] { return LITE_get_tensor_total_size_in_byte(t, &bytes); });
      std::memset(p, 0, bytes);
    }
    for (int k = 0; k < 2; ++k) {
      step("LITE_forward and LITE_wait", [&] { return LITE_forward(net_) || LITE_wait(net_) ? -1 : 0; });
    }
    step("LITE_get_all_output_name", [&] { return LITE_get_all_output_name(net_, &n, nullptr); });
    for (size_t i = 0; i < n; ++i) {
      const char* name = nullptr;
      LiteTensor t;
      void* p = nullptr;
      size_t bytes = 0;
      step("LITE_get_output_name", [&] { return LITE_get_output_name(net_, i, &name); });
      step("LITE_get_io_tensor", [&] { return LITE_get_io_tensor(net_, name, LITE_OUTPUT, &t); });
      step("LITE_get_tensor_memory", [&] { return LITE_get_tensor_memory(t, &p); });
      step("LITE_get_tensor_total_size_in_byte", [&] { return LITE_get_tensor_total_size_in_byte(t, &bytes); });
      out->insert(out->end(), static_cast<uint8_t*>(p), static_cast<uint8_t*>(p) + bytes);
    }
  }

  /// A call that fails must say so; then memory is there again, and the same call works. `refusable`: or says why not.
  template <class Call>
  bool step(const char* name, const Call& call, bool refusable = false) {
    doing(name);
    const int status = call();
    if (status == 0) return true;
    fail_allocation(0);
    mge::Pool::of({}).set_limit(0);
    ok(status, name);
    ++failures_;
    const std::string first = LITE_get_last_error();
    assigned_ |= first.find("were assigned") != std::string::npos;
    if (verbose) std::fprintf(stderr, "  %s: %s\n", name, first.c_str());
    if (call() == 0) return true;
    const bool memory = std::string(LITE_get_last_error()).find("memory") != std::string::npos;
    if (!refusable || memory)
      finding(std::string(name) + " does not work again after '" + first + "': " + LITE_get_last_error());
    return false;
  }

  const Seed& seed_;
  Plan plan_;
  LiteNetwork net_ = nullptr;
  uint64_t count_ = 0;
  int failures_ = 0;
  bool assigned_ = false;
};

}  // namespace

void memory(const Options& opt, Counts* counts) {
  std::vector<Seed> seeds = load_seeds(opt);
  std::erase_if(seeds, [](const Seed& s) { return s.bytes.size() > 15'000; });
  mge::Pool& pool = mge::Pool::of({});
  struct Known {
    Bytes output;
    uint64_t allocations = 0;
    size_t pool = 0;
  };
  std::map<std::pair<size_t, size_t>, Known> known;
  for (uint64_t i = opt.first; i < opt.first + opt.cases; ++i) {
    begin_case(i, 60);
    Rng rng(opt.seed, i);
    const size_t k = rng.below(seeds.size()), way = rng.below(24);
    Known& want = known[{k, way}];
    if (!want.allocations) {  // the first time also makes what the process keeps
      for (int n = 0; n < 2; ++n) {
        const size_t before = pool.stats().allocated;
        pool.reset_peak();
        Scenario plain(seeds[k], {});
        const Bytes output = plain.run(Rng(1, way));
        want.output.assign(output.begin(), output.end());
        want.allocations = plain.count() + 1;
        want.pool = pool.stats().max_allocated - before;
      }
    }
    Plan plan;
    if (rng.one_in(4) && want.pool > 64)
      plan.pool = rng.below(want.pool / 64) * 64 + 64;
    else
      plan = {1 + rng.below(want.allocations), rng.of<uint64_t>({0, 0, 0, 1, 5, 1u << 30})};
    const size_t before = pool.stats().allocated;
    Scenario s(seeds[k], plan);
    s.verbose = opt.verbose;
    if (opt.verbose)
      std::fprintf(stderr, "%s way %zu: allocation %zu of %zu and %zu more, pool %zu of %zu\n", seeds[k].name.c_str(),
                   way, static_cast<size_t>(plan.at), static_cast<size_t>(want.allocations),
                   static_cast<size_t>(plan.more), plan.pool, want.pool);
    const Bytes got = s.run(Rng(1, way));
    if (got != want.output && !s.assigned()) {
      size_t at = 0;
      while (at < got.size() && at < want.output.size() && got[at] == want.output[at]) ++at;
      finding(seeds[k].name + ": other results after memory was short, from byte " + std::to_string(at) + " of " +
              std::to_string(got.size()) + " and " + std::to_string(want.output.size()));
    }
    // A thread of the team that worked for the first time keeps its scratch: what leaks does so every time.
    for (size_t held = before, again = 0; pool.stats().allocated > held; ++again) {
      if (again == 16) finding(seeds[k].name + ": memory of the pool was not given back");
      held = pool.stats().allocated;
      Scenario(seeds[k], plan).run(Rng(1, way));
    }
    ++(*counts)["cases"];
    (*counts)["failed calls"] += s.failures();
    (*counts)["without effect"] += s.failures() == 0;
    if (i % 512 == 511) {
      doing("looking for leaks of the last 512");
      check_leaks();
    }
  }
}

}  // namespace fuzz
