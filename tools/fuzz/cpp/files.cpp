// Changed model files through all of Lite: loaded, looked at, run, run again with other shapes.
#include <algorithm>
#include <cstring>

#include "core/pool.h"
#include "fuzz.h"
#include "lite-c/global_c.h"
#include "lite-c/network_c.h"
#include "lite-c/tensor_c.h"

namespace fuzz {
namespace {

constexpr size_t kPool = 48 << 20;

LiteConfig some_config(const Seed& seed, Rng& rng) {
  LiteConfig c = *default_config();
  LiteOptions& o = c.options;
  if (!seed.cryption.empty()) c.bare_model_cryption_name = seed.cryption.c_str();
  if (rng.one_in(40)) c.bare_model_cryption_name = rng.of({"AES_default", "RC4_default", "SIMPLE_FAST_RC4_default"});
  if (rng.one_in(3)) o.graph_opt_level = static_cast<int>(rng.below(4));
  if (rng.one_in(6)) o.comp_node_seq_record_level = static_cast<int>(rng.below(3));
  if (rng.one_in(6)) o.jit_level = static_cast<int>(rng.below(3));
  if (rng.one_in(6)) o.weight_preprocess = 1;
  if (rng.one_in(12)) o.const_shape = 1;
  if (rng.one_in(12)) o.force_dynamic_alloc = 1;
  if (rng.one_in(12)) o.force_output_dynamic_alloc = 1;
  if (rng.one_in(12)) o.enable_nchw44 = 1;
  if (rng.one_in(12)) o.enable_nchw88 = 1;
  if (rng.one_in(40)) c.has_compression = 1;
  return c;
}

/// Numbers that fit an index, any bytes, or zeros.
void fill(LiteTensor t, Rng& rng) {
  size_t bytes = 0;
  void* p = nullptr;
  LiteLayout l;
  if (!ok(LITE_get_tensor_total_size_in_byte(t, &bytes), "LITE_get_tensor_total_size_in_byte")) return;
  if (!ok(LITE_get_tensor_layout(t, &l), "LITE_get_tensor_layout")) return;
  if (bytes > kPool / 2 || !ok(LITE_get_tensor_memory(t, &p), "LITE_get_tensor_memory")) return;
  auto* b = static_cast<uint8_t*>(p);
  const size_t kind = rng.below(4);
  if (kind == 0) {
    for (size_t i = 0; i < bytes; ++i) b[i] = static_cast<uint8_t>(rng());
  } else if (kind == 1) {
    std::memset(b, 0, bytes);
  } else {
    const size_t word = l.data_type == LITE_FLOAT ? 4 : 1;
    for (size_t i = 0; i + word <= bytes; i += word) {
      const float x = static_cast<float>(rng.below(64)) / 16 - 2;
      if (word == 4)
        std::memcpy(b + i, &x, 4);
      else
        b[i] = static_cast<uint8_t>(i % 4 ? 0 : rng.below(3));
    }
  }
}

void look_at_outputs(LiteNetwork net) {
  size_t n = 0;
  if (!ok(LITE_get_all_output_name(net, &n, nullptr), "LITE_get_all_output_name")) return;
  std::vector<const char*> names(n);
  ok(LITE_get_all_output_name(net, &n, names.data()), "LITE_get_all_output_name");
  uint64_t sum = 0;
  for (const char* name : names) {
    LiteTensor t;
    size_t bytes = 0;
    void* p = nullptr;
    if (!ok(LITE_get_io_tensor(net, name, LITE_OUTPUT, &t), "LITE_get_io_tensor")) continue;
    if (!ok(LITE_get_tensor_total_size_in_byte(t, &bytes), "LITE_get_tensor_total_size_in_byte")) continue;
    if (bytes > kPool / 2 || !ok(LITE_get_tensor_memory(t, &p), "LITE_get_tensor_memory")) continue;
    for (size_t i = 0; i < bytes; ++i) sum += static_cast<uint8_t*>(p)[i];
  }
  volatile uint64_t used = sum;
  (void)used;
}

/// Returns whether a run came to its end.
bool run(LiteNetwork net, Rng& rng, bool other_shapes) {
  size_t n = 0;
  if (!ok(LITE_get_all_input_name(net, &n, nullptr), "LITE_get_all_input_name")) return false;
  for (size_t i = 0; i < n; ++i) {
    const char* name = nullptr;
    LiteTensor t;
    if (!ok(LITE_get_input_name(net, i, &name), "LITE_get_input_name")) continue;
    if (!ok(LITE_get_io_tensor(net, name, LITE_INPUT, &t), "LITE_get_io_tensor")) continue;
    LiteLayout l;
    if (other_shapes && rng.one_in(2) && ok(LITE_get_tensor_layout(t, &l), "LITE_get_tensor_layout")) {
      if (l.ndim) l.shapes[rng.below(l.ndim)] = rng.below(10);
      if (rng.one_in(8)) l.ndim = 1 + rng.below(7);
      ok(LITE_set_tensor_layout(t, l), "LITE_set_tensor_layout");
    }
    fill(t, rng);
  }
  doing("forward");
  if (!ok(LITE_forward(net), "LITE_forward") || !ok(LITE_wait(net), "LITE_wait")) return false;
  look_at_outputs(net);
  return true;
}

void one_file(const Options& opt, const std::vector<Seed>& seeds, const Seed& seed, uint64_t i, Rng& rng,
              Counts* counts) {
  const std::string path = opt.folder + "/model";
  Bytes b = mutate(seeds, seed, rng);
  if (opt.verbose) {
    std::fprintf(stderr, "case %llu: %s\n", static_cast<unsigned long long>(i), seed.name.c_str());
    write_file("/tmp/mge_fuzz_case", b);
  }
  const LiteConfig config = some_config(seed, rng);
  ++(*counts)["cases"];
  if (rng.one_in(32)) {
    doing("io info");
    static LiteNetworkIO io;
    if (ok(LITE_get_model_io_info_by_memory(b.data(), b.size(), config, &io), "LITE_get_model_io_info_by_memory"))
      for (size_t k = 0; k < io.input_size; ++k) (void)std::strlen(io.inputs[k].name);
  }
  LiteNetwork net = nullptr;
  if (!ok(LITE_make_network_config(&net, config), "LITE_make_network_config")) return;
  if (rng.one_in(8)) ok(LITE_set_cpu_threads_number(net, 2), "LITE_set_cpu_threads_number");
  doing("load");
  bool loaded;
  if (rng.one_in(4)) {
    write_file(path, b);
    loaded = ok(LITE_load_model_from_path(net, path.c_str()), "LITE_load_model_from_path");
  } else {
    loaded = ok(LITE_load_model_from_mem(net, b.data(), b.size()), "LITE_load_model_from_mem");
  }
  if (opt.verbose) std::fprintf(stderr, "  %s\n", loaded ? "loaded" : LITE_get_last_error());
  ++(*counts)[loaded ? "loaded" : "refused"];
  if (loaded) {
    Bytes().swap(b);  // the network must not need them
    const char* info = nullptr;
    int size = 0;
    ok(LITE_get_model_extra_info(net, &info, &size), "LITE_get_model_extra_info");
    (*counts)["ran"] += run(net, rng, false);
    if (rng.one_in(3)) (*counts)["ran again"] += run(net, rng, true);
    if (rng.one_in(60)) {
      doing("memory info");
      ok(LITE_get_static_memory_alloc_info(net, opt.folder.c_str()), "LITE_get_static_memory_alloc_info");
    }
  } else if (rng.one_in(8) && seed.cryption.empty()) {  // another model may be tried
    Bytes good = seed.bytes;
    ok(LITE_load_model_from_mem(net, good.data(), good.size()), "LITE_load_model_from_mem");
  }
  doing("destroy");
  if (!ok(LITE_destroy_network(net), "LITE_destroy_network")) finding("a network that cannot be destroyed");
}

}  // namespace

void files(const Options& opt, Counts* counts) {
  const std::vector<Seed> seeds = load_seeds(opt);
  // Small files are chosen more often: a change is likelier to be one of the graph.
  std::vector<size_t> often;
  for (size_t i = 0; i < seeds.size(); ++i)
    for (size_t k = 0; k < (seeds[i].bytes.size() < 12'000 ? 4u : seeds[i].bytes.size() < 40'000 ? 2u : 1u); ++k)
      often.push_back(i);
  (*counts)["seeds"] = static_cast<long>(seeds.size());
  mge::Pool& pool = mge::Pool::of({});
  auto left_by = [&](uint64_t i, Counts* c) {
    const size_t before = pool.stats().allocated;
    begin_case(i);
    Rng rng(opt.seed, i);
    const Seed& seed = seeds[often[rng.below(often.size())]];
    pool.set_limit(before + kPool);
    one_file(opt, seeds, seed, i, rng, c);
    pool.set_limit(0);
    return pool.stats().allocated > before;
  };
  for (uint64_t i = opt.first; i < opt.first + opt.cases; ++i) {
    // What the process keeps for later it keeps once.
    Counts again;
    if (left_by(i, counts) && left_by(i, &again) && left_by(i, &again)) finding("memory of the pool is not given back");
  }
}

}  // namespace fuzz
