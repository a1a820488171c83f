// Calls of every function of include/lite-c in any order with anything: handles that are right, of the other kind, dead
// or invented, null pointers, numbers that no enum has, sizes from 0 to SIZE_MAX. Sizes that describe the caller's own
// memory are true: nothing can check those. Callbacks call back. `threads` does the same from several threads at once.
#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "core/pool.h"
#include "fuzz.h"
#include "lite-c/global_c.h"
#include "lite-c/network_c.h"
#include "lite-c/tensor_c.h"
#include "lite_functions.h"

namespace fuzz {
namespace {

constexpr size_t kPool = 64 << 20;

/// Handles that all threads of a case share.
class Handles {
 public:
  void add(void* h) {
    if (!h) return;
    const std::lock_guard lock(mutex_);
    all_.push_back(h);
    if (all_.size() > 48) {
      gone_.push_back(all_[4]);
      all_.erase(all_.begin() + 4);
    }
  }
  void* any(Rng& rng) {
    const std::lock_guard lock(mutex_);
    if (rng.one_in(16)) return nullptr;
    if (rng.one_in(24)) return reinterpret_cast<void*>(rng.of<uintptr_t>({1, 16, 0x1010, 0xdeadbee0, UINTPTR_MAX}));
    if (all_.empty()) return nullptr;
    // The newest are likelier to be of use.
    return rng.one_in(2) ? rng.in(all_) : all_[all_.size() - 1 - rng.below(std::min<size_t>(all_.size(), 4))];
  }
  void destroy() {
    std::vector<void*> all;
    {
      const std::lock_guard lock(mutex_);
      all.swap(all_);
      all.insert(all.end(), gone_.begin(), gone_.end());
      gone_.clear();
    }
    for (void* h : all) {
      LITE_destroy_tensor(h);
      LITE_destroy_network(h);
    }
  }

 private:
  std::mutex mutex_;
  std::vector<void*> all_, gone_;
};

Handles g_handles;
const std::vector<Seed>* g_seeds = nullptr;
std::string g_folder;
std::atomic<uint64_t> g_number{0};  // of callbacks, each of which has its own numbers
std::atomic<int> g_depth{0};
uint64_t g_case_seed = 0;
char g_memory[1 << 16];  // outlives every network that was told of it

void inside_a_callback();

int async_callback() { return inside_a_callback(), g_number % 7 == 0; }
int async_with_data(void*) { return inside_a_callback(), g_number % 7 == 0; }
int io_callback(const LiteIO* ios, const LiteTensor* tensors, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    (void)std::strlen(ios[i].name);
    LiteLayout l;
    ok(LITE_get_tensor_layout(tensors[i], &l), "LITE_get_tensor_layout");
  }
  return inside_a_callback(), g_number % 7 == 0;
}
int io_with_data(const LiteIO* ios, const LiteTensor* t, size_t n, void*) { return io_callback(ios, t, n); }
int affinity(int) { return g_number++ % 5 == 0; }
void* allocate(LiteDeviceType, int, size_t bytes, size_t align) {
  if (g_number++ % 11 == 0) return nullptr;
  if (bytes > kPool) return nullptr;
  return std::aligned_alloc(align, (bytes + align - 1) / align * align);
}
void release(LiteDeviceType, int, void* p) { std::free(p); }
size_t decrypt(const void* in, size_t n, const uint8_t*, size_t, const void* out) {
  if (out) std::memcpy(const_cast<void*>(out), in, n);
  return n;
}
size_t decrypt_badly(const void*, size_t n, const uint8_t*, size_t, const void* out) { return out ? n / 2 : n * 2; }
int parse_info(const void*, size_t, const char*, LiteConfig* c, LiteNetworkIO*, int* device, size_t* threads, int*,
               int*) {
  const uint64_t k = g_number++;
  if (k % 3 == 0) c->options.graph_opt_level = static_cast<int>(k % 11);
  if (k % 4 == 0) *threads = k % 300;
  if (k % 5 == 0) *device = -3;
  return k % 6 == 0;
}

class Caller {
 public:
  explicit Caller(Rng rng) : rng_(rng) {}

  /// Function `which` of the table; returns whether it worked.
  bool call(size_t which) {
    const Row& row = table()[which];
    doing(row.name);
    made_ = nullptr;
    const int status = row.call(*this);
    if (row.plain) return true;
    if (made_) g_handles.add(made_);
    return ok(status, row.name);
  }
  bool any() { return call(rng_.below(table().size())); }
  bool by_name(const char* name) {
    for (size_t i = 0; i < table().size(); ++i)
      if (!std::strcmp(table()[i].name, name)) return call(i);
    finding(std::string("no function ") + name);
  }

  struct Row {
    const char* name;
    std::function<int(Caller&)> call;
    bool plain = false;  // returns no status
  };
  static const std::vector<Row>& table();

 private:
  void* handle() { return g_handles.any(rng_); }
  size_t size() {
    return rng_.of<size_t>({0, 1, 2, 3, 4, 5, 7, 8, 64, 512, 4096, 65536, size_t{1} << 31, size_t{1} << 40, SIZE_MAX});
  }
  int number() { return rng_.of({0, 0, 1, 1, 2, 3, 4, 5, 7, 8, -1, 255, 256, 65536, INT32_MAX, INT32_MIN}); }
  template <class E>
  E value(std::initializer_list<E> proper) {
    return rng_.one_in(5) ? static_cast<E>(number()) : rng_.of(proper);
  }
  LiteDeviceType device() { return value<LiteDeviceType>({LITE_CPU, LITE_CPU, LITE_DEVICE_DEFAULT}); }
  LiteBackend backend() { return value<LiteBackend>({LITE_DEFAULT}); }
  LiteTensorPhase phase() { return value<LiteTensorPhase>({LITE_IO, LITE_INPUT, LITE_OUTPUT}); }
  const char* text() {
    static const std::string long_text(300, 'x');
    return rng_.of<const char*>({"data", "data", "bias", "prob", "logits", "nope", "", "\xff\xfe%s%n", "x", nullptr,
                                 long_text.c_str(), "AES_default", "NONE"});
  }
  const char* path() {
    static thread_local std::string kept;
    kept = g_folder + "/" + std::to_string(rng_.below(3));
    return rng_.of<const char*>(
        {kept.c_str(), kept.c_str(), nullptr, "", "/dev/null/at/all", "/proc", g_folder.c_str()});
  }
  template <class T>
  T* out(T* p) {
    return rng_.one_in(12) ? nullptr : p;
  }
  LiteLayout layout() {
    LiteLayout l = default_layout;
    l.ndim = rng_.one_in(12) ? size() : rng_.below(8);
    for (auto& d : l.shapes) d = rng_.one_in(16) ? size() : rng_.below(9);
    if (rng_.one_in(3)) l = {{2, 1, 8, 8, 0, 0, 0}, 4, LITE_FLOAT};
    if (rng_.one_in(6))
      l.data_type = static_cast<LiteDataType>(rng_.of({0, 1, 2, 3, 4, 5, 6, 7, 8, 100, 101, 102, 103, 9, -1, 104}));
    return l;
  }
  LiteConfig config() {
    LiteConfig c = *default_config();
    auto* words = reinterpret_cast<int*>(&c.options);
    const size_t n = sizeof c.options / sizeof(int);
    if (rng_.one_in(2))
      for (size_t k = rng_.below(4); k > 0; --k)
        words[rng_.below(n)] = rng_.one_in(4) ? number() : rng_.of({0, 1, 1, 2});
    if (rng_.one_in(8)) c.device_type = device();
    if (rng_.one_in(8)) c.backend = backend();
    if (rng_.one_in(8)) c.device_id = number();
    if (rng_.one_in(12)) c.has_compression = number();
    if (rng_.one_in(8)) c.discrete_input_name = text();
    if (rng_.one_in(12)) c.bare_model_cryption_name = text();
    if (rng_.one_in(8)) c.auto_optimize_inference = number();
    return c;
  }
  LiteNetworkIO ios(LiteIO* some) {  // of 4
    for (int i = 0; i < 4; ++i) {
      some[i] = {rng_.one_in(16) ? nullptr : text(), number(), value<LiteIOType>({LITE_IO_VALUE, LITE_IO_SHAPE}),
                 layout()};
      if (!some[i].name && !rng_.one_in(4)) some[i].name = "data";
    }
    LiteNetworkIO io = *default_network_io();
    if (rng_.one_in(2)) io.inputs = some, io.input_size = rng_.below(3);
    if (rng_.one_in(2)) io.outputs = some + 2, io.output_size = rng_.below(3);
    if (rng_.one_in(16)) io = {nullptr, nullptr, rng_.below(2), rng_.below(2)};
    return io;
  }
  int load(void* network) {  // mostly the network that names fit
    const Seed& seed = rng_.one_in(2) ? g_seeds->front() : (*g_seeds)[rng_.below(g_seeds->size())];
    Bytes b = rng_.one_in(6) ? mutate(*g_seeds, seed, rng_) : seed.bytes;
    if (rng_.one_in(8)) b.resize(rng_.below(b.size() + 1));
    return LITE_load_model_from_mem(network, rng_.one_in(16) ? nullptr : b.data(), b.size());
  }
  const size_t* sizes() {
    for (auto& s : sizes_) s = rng_.one_in(8) ? size() : rng_.below(6);
    return rng_.one_in(10) ? nullptr : sizes_;
  }
  const size_t* more_sizes() {
    for (auto& s : more_) s = rng_.one_in(8) ? size() : rng_.below(6);
    return rng_.one_in(10) ? nullptr : more_;
  }
  const size_t* steps() {
    for (auto& s : steps_) s = rng_.one_in(8) ? size() : 1 + rng_.below(3);
    return rng_.one_in(3) ? nullptr : steps_;
  }
  template <class F>
  F callback(F f) {
    return rng_.one_in(8) ? nullptr : f;
  }

  Rng rng_;
  void* made_ = nullptr;
  size_t sizes_[8], more_[8], steps_[8];
};

#define FUNCTION(name, ...)                                                     \
  {                                                                             \
#name, []([[maybe_unused]] Caller & c) -> int { return name(__VA_ARGS__); } \
  }
#define STATEMENTS(name, ...)                    \
  {                                              \
#name, [](Caller & c) -> int { __VA_ARGS__ } \
  }
#define PLAIN(name, ...)                                   \
  {                                                        \
#name, [](Caller&) -> int { __VA_ARGS__; return 0; }, true \
  }

const std::vector<Caller::Row>& Caller::table() {
  static thread_local int n, m, k;
  static thread_local size_t z;
  static thread_local const char* text;
  static thread_local const char* names[64];
  static thread_local void* p;
  static thread_local LiteDeviceType d;
  static thread_local LiteLayout l;
  static thread_local LiteLogLevel level;
  static thread_local LiteNetworkIO info;
  static thread_local LiteIO some[4];
  static const std::vector<Row> rows = {
    // global_c.h
    FUNCTION(LITE_get_version, c.out(&n), c.out(&m), c.out(&k)),
    PLAIN(LITE_get_last_error_code, (void)LITE_get_last_error_code()),
    PLAIN(LITE_clear_last_error, LITE_clear_last_error();
          if (*LITE_get_last_error() || LITE_get_last_error_code() != OK) finding("an error that was cleared")),
    PLAIN(LITE_get_last_error, (void)std::strlen(LITE_get_last_error())),
    FUNCTION(LITE_get_device_count, c.device(), c.out(&z)),
    FUNCTION(LITE_try_coalesce_all_free_memory),
    FUNCTION(LITE_set_log_level, c.value<LiteLogLevel>({ERROR})),
    FUNCTION(LITE_get_log_level, c.out(&level)),
    FUNCTION(LITE_register_decryption_and_key, c.rng_.of<const char*>({"mine", "AES_default", nullptr, ""}),
             c.callback(c.rng_.one_in(2) ? decrypt : decrypt_badly),
             c.rng_.one_in(4) ? nullptr : reinterpret_cast<uint8_t*>(g_memory), c.rng_.below(40)),
    FUNCTION(LITE_update_decryption_or_key, c.rng_.of<const char*>({"mine", "other", nullptr, ""}),
             c.callback(c.rng_.one_in(2) ? decrypt : decrypt_badly),
             c.rng_.one_in(4) ? nullptr : reinterpret_cast<uint8_t*>(g_memory), c.rng_.below(40)),
    FUNCTION(LITE_register_parse_info_func, c.rng_.of<const char*>({"mine", "LITE_default", nullptr, ""}),
             c.callback(parse_info)),
    FUNCTION(LITE_set_loader_lib_path, c.path()),
    FUNCTION(LITE_set_persistent_cache, c.path(), c.number()),
    FUNCTION(LITE_dump_persistent_cache, c.path()),
    FUNCTION(LITE_set_tensor_rt_cache, c.path()),
    FUNCTION(LITE_dump_tensor_rt_cache),
    FUNCTION(LITE_register_memory_pair, c.handle(), c.handle(), c.size(), c.device(), c.backend()),
    FUNCTION(LITE_clear_memory_pair, c.handle(), c.handle(), c.device(), c.backend()),
    FUNCTION(LITE_lookup_physic_ptr, c.handle(), c.out(&p), c.device(), c.backend()),
    // network_c.h
    PLAIN(default_config, (void)default_config()->device_id),
    PLAIN(default_network_io, (void)default_network_io()->input_size),
    FUNCTION(LITE_make_default_network, c.out(&c.made_)),
    FUNCTION(LITE_make_network, c.out(&c.made_), c.config(), c.ios(some)),
    FUNCTION(LITE_make_network_config, c.out(&c.made_), c.config()),
    FUNCTION(LITE_destroy_network, c.handle()),
    STATEMENTS(LITE_load_model_from_mem, return c.load(c.handle());),
    FUNCTION(LITE_load_model_from_path, c.handle(), c.rng_.one_in(2) ? MGE_TEST_DATA "/lite/net_v1.mge" : c.path()),
    FUNCTION(LITE_shared_weight_with_network, c.handle(), c.handle()),
    FUNCTION(LITE_forward, c.handle()),
    FUNCTION(LITE_wait, c.handle()),
    FUNCTION(LITE_get_io_tensor, c.handle(), c.text(), c.phase(), c.out(&c.made_)),
    FUNCTION(LITE_get_discrete_tensor, c.handle(), c.text(), c.size(), c.phase(), c.out(&c.made_)),
    STATEMENTS(LITE_get_input_name, text = nullptr;
               const int rc = LITE_get_input_name(c.handle(), c.size(), c.out(&text));
               if (text)(void) std::strlen(text); return rc;),
    STATEMENTS(LITE_get_output_name, text = nullptr;
               const int rc = LITE_get_output_name(c.handle(), c.size(), c.out(&text));
               if (text)(void) std::strlen(text); return rc;),
    // As the header says: the count first, then the names.
    STATEMENTS(LITE_get_all_input_name, z = 0; void* h = c.handle();
               const int rc = LITE_get_all_input_name(h, c.out(&z), nullptr);
               return rc || z > 64 ? rc : LITE_get_all_input_name(h, c.out(&z), c.out(names));),
    STATEMENTS(LITE_get_all_output_name, z = 0; void* h = c.handle();
               const int rc = LITE_get_all_output_name(h, c.out(&z), nullptr);
               return rc || z > 64 ? rc : LITE_get_all_output_name(h, c.out(&z), c.out(names));),
    FUNCTION(LITE_is_cpu_inplace_mode, c.handle(), c.out(&n)),
    FUNCTION(LITE_get_cpu_threads_number, c.handle(), c.out(&z)),
    FUNCTION(LITE_get_device_id, c.handle(), c.out(&n)),
    FUNCTION(LITE_get_stream_id, c.handle(), c.out(&n)),
    FUNCTION(LITE_get_device_type, c.handle(), c.out(&d)),
    FUNCTION(LITE_get_model_extra_info, c.handle(), c.out(&text), c.out(&n)),
    FUNCTION(LITE_set_cpu_inplace_mode, c.handle()),
    FUNCTION(LITE_set_cpu_threads_number, c.handle(), c.rng_.of<size_t>({0, 1, 2, 2, 3, 257, SIZE_MAX})),
    FUNCTION(LITE_set_device_id, c.handle(), c.number()),
    FUNCTION(LITE_set_stream_id, c.handle(), c.number()),
    FUNCTION(LITE_use_tensorrt, c.handle()),
    FUNCTION(LITE_set_network_algo_policy, c.handle(),
             c.value<LiteAlgoSelectStrategy>({LITE_ALGO_HEURISTIC, LITE_ALGO_PROFILE, LITE_ALGO_REPRODUCIBLE,
                                              LITE_ALGO_PROFILE | LITE_ALGO_OPTIMIZED})),
    FUNCTION(LITE_set_network_algo_fastrun_config, c.handle(), static_cast<unsigned>(c.number()), c.number()),
    FUNCTION(LITE_set_network_algo_workspace_limit, c.handle(), c.size()),
    FUNCTION(LITE_set_async_callback, c.handle(), c.callback(async_callback)),
    FUNCTION(LITE_set_async_callback_with_userdata, c.handle(), c.callback(async_with_data), nullptr),
    FUNCTION(LITE_set_start_callback, c.handle(), c.callback(io_callback)),
    FUNCTION(LITE_set_start_callback_with_userdata, c.handle(), c.callback(io_with_data), nullptr),
    FUNCTION(LITE_set_finish_callback, c.handle(), c.callback(io_callback)),
    FUNCTION(LITE_set_finish_callback_with_userdata, c.handle(), c.callback(io_with_data), nullptr),
    FUNCTION(LITE_set_runtime_thread_affinity, c.handle(), c.callback(affinity)),
    FUNCTION(LITE_set_memory_allocator, c.handle(), c.callback(allocate), c.callback(release)),
    FUNCTION(LITE_share_runtime_memroy, c.handle(), c.handle()),
    FUNCTION(LITE_enable_profile_performance, c.handle(), c.path()),
    FUNCTION(LITE_enable_io_txt_dump, c.handle(), c.path()),
    FUNCTION(LITE_enable_io_bin_dump, c.handle(), c.path()),
    FUNCTION(LITE_get_static_memory_alloc_info, c.handle(), c.path()),
    FUNCTION(LITE_enable_global_layout_transform, c.handle()),
    FUNCTION(LITE_dump_layout_transform_model, c.handle(), c.path()),
    FUNCTION(LITE_get_model_io_info_by_path, c.rng_.one_in(2) ? MGE_TEST_DATA "/lite/net_v1.mge" : c.path(), c.config(),
             c.out(&info)),
    STATEMENTS(LITE_get_model_io_info_by_memory, const Seed& s = (*g_seeds)[c.rng_.below(g_seeds->size())];
               return LITE_get_model_io_info_by_memory(c.rng_.one_in(8) ? nullptr : s.bytes.data(),
                                                       c.rng_.below(s.bytes.size() + 1), c.config(), c.out(&info));),
    FUNCTION(LITE_extra_configure, c.handle(), {c.number()}),
    // tensor_c.h
    FUNCTION(LITE_make_tensor, {c.number(), c.layout(), c.device(), c.number()}, c.out(&c.made_)),
    FUNCTION(LITE_destroy_tensor, c.handle()),
    FUNCTION(LITE_set_tensor_layout, c.handle(), c.layout()),
    FUNCTION(LITE_reset_tensor_memory, c.handle(), c.out(g_memory + c.rng_.below(8)),
             std::min(c.size(), sizeof g_memory - 8)),
    STATEMENTS(
        LITE_reset_tensor, const LiteLayout l = c.layout(); size_t bytes = 16;
        for (size_t i = 0; i < l.ndim && i < LAYOUT_MAX_DIM; ++i) bytes =
            bytes > 1 << 20 || l.shapes[i] > 1 << 20 ? 1 << 21 : bytes * l.shapes[i];
        return LITE_reset_tensor(c.handle(), l, bytes > sizeof g_memory - 8 ? nullptr : g_memory + c.rng_.below(8));),
    STATEMENTS(LITE_tensor_reshape, int shape[8];
               for (int& s
                    : shape) s = c.rng_.one_in(3) ? c.number() : static_cast<int>(c.rng_.below(9)) - 1;
               return LITE_tensor_reshape(c.handle(), c.out(shape),
                                          c.rng_.one_in(8) ? c.number() : static_cast<int>(c.rng_.below(8)));),
    STATEMENTS(
        LITE_tensor_slice, const size_t* a = c.sizes(); const size_t* b = c.more_sizes(); const size_t* s = c.steps();
        return LITE_tensor_slice(c.handle(), a, b, s, c.rng_.one_in(8) ? c.size() : c.rng_.below(5), c.out(&c.made_));),
    FUNCTION(LITE_tensor_fill_zero, c.handle()),
    FUNCTION(LITE_tensor_copy, c.handle(), c.handle()),
    FUNCTION(LITE_tensor_share_memory_with, c.handle(), c.handle()),
    FUNCTION(LITE_get_tensor_memory, c.handle(), c.out(&p)),
    STATEMENTS(LITE_get_tensor_memory_with_index, const size_t* at = c.sizes();
               return LITE_get_tensor_memory_with_index(c.handle(), at, c.rng_.one_in(8) ? c.size() : c.rng_.below(5),
                                                        c.out(&p));),
    FUNCTION(LITE_get_tensor_total_size_in_byte, c.handle(), c.out(&z)),
    FUNCTION(LITE_get_tensor_layout, c.handle(), c.out(&l)),
    FUNCTION(LITE_get_tensor_device_type, c.handle(), c.out(&d)),
    FUNCTION(LITE_get_tensor_device_id, c.handle(), c.out(&n)),
    FUNCTION(LITE_is_pinned_host, c.handle(), c.out(&n)),
    FUNCTION(LITE_is_memory_continue, c.handle(), c.out(&n)),
    STATEMENTS(LITE_tensor_concat, void* list[4]; for (void*& h
                                                       : list) h = c.handle();
               if (c.rng_.one_in(2)) list[1] = list[2] = list[0]; return LITE_tensor_concat(
                   c.out(list), c.rng_.one_in(8) ? -(c.number() % 4) : static_cast<int>(c.rng_.below(5)), c.number(),
                   c.device(), c.number(), c.out(&c.made_));),
  };
  return rows;
}

void inside_a_callback() {
  if (g_depth.fetch_add(1) < 3) {
    Caller caller(Rng(g_case_seed, 1'000'000'007 + g_number++));
    for (int i = 0; i < 3; ++i) caller.any();
  }
  --g_depth;
}

void prepare(const Options& opt, std::vector<Seed>* seeds) {
  Options own = opt;
  *seeds = load_seeds(own);
  for (size_t i = 0; i < seeds->size(); ++i)  // the network whose names are known comes first
    if ((*seeds)[i].name == "net_v1.mge") std::swap((*seeds)[0], (*seeds)[i]);
  std::erase_if(*seeds, [](const Seed& s) { return s.bytes.size() > 15'000; });
  g_seeds = seeds;
  g_folder = opt.folder;
}

void begin(const Options& opt, uint64_t i) {
  begin_case(i, 60);
  g_case_seed = opt.seed * 1'000'003 + i;
  g_number = 0;
  mge::Pool& pool = mge::Pool::of({});
  pool.set_limit(0);
  pool.set_limit(pool.stats().allocated + kPool);
}

void end() {
  doing("destroying everything");
  g_handles.destroy();
  g_handles.destroy();  // and what callbacks made meanwhile
  mge::Pool::of({}).set_limit(0);
}

void begin_with_a_network(Caller& c) {
  c.by_name("LITE_make_network_config");
  c.by_name("LITE_load_model_from_path");
  c.by_name("LITE_get_io_tensor");
  c.by_name("LITE_get_io_tensor");
}

}  // namespace

std::string missing_functions() {
  std::set<std::string> there;
  for (auto& row : Caller::table()) there.insert(row.name);
  std::string missing;
  for (const char* name : kLiteFunctions)
    if (!there.count(name)) missing += (missing.empty() ? "" : ", ") + std::string(name);
  return missing;
}

void calls(const Options& opt, Counts* counts) {
  std::vector<Seed> seeds;
  prepare(opt, &seeds);
  (*counts)["functions"] = static_cast<long>(Caller::table().size());
  for (uint64_t i = opt.first; i < opt.first + opt.cases; ++i) {
    begin(opt, i);
    Caller caller(Rng(opt.seed, i));
    Rng rng(opt.seed + 77, i);
    if (!rng.one_in(4)) begin_with_a_network(caller);
    for (size_t n = 20 + rng.below(60); n > 0; --n) {
      const bool worked = caller.any();
      ++(*counts)["calls"];
      ++(*counts)[worked ? "worked" : "refused"];
    }
    end();
    ++(*counts)["cases"];
  }
}

void threads(const Options& opt, Counts* counts) {
  constexpr int kThreads = 4;
  std::vector<Seed> seeds;
  prepare(opt, &seeds);
  std::atomic<long> worked{0}, refused{0};
  for (uint64_t i = opt.first; i < opt.first + opt.cases; ++i) {
    begin(opt, i);
    std::vector<std::thread> all;
    for (int t = 0; t < kThreads; ++t)
      all.emplace_back([&, t] {
        Caller caller(Rng(opt.seed * kThreads + static_cast<uint64_t>(t), i));
        if (t % 2 == 0) begin_with_a_network(caller);
        for (int n = 0; n < 40; ++n) ++(caller.any() ? worked : refused);
      });
    for (auto& t : all) t.join();
    end();
    ++(*counts)["cases"];
  }
  (*counts)["calls"] = worked + refused;
  (*counts)["worked"] = worked;
  (*counts)["refused"] = refused;
}

}  // namespace fuzz
