// Command lines of load_and_run and mge-lite, in this process: flags of their tables and others, values of every kind,
// files that are models, parts of models, or nothing of the sort. The exit status is small, and 1 or 2 comes with a
// text.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/pool.h"
#include "fuzz.h"
#include "lite-c/global_c.h"
#include "lite/run/session.h"

int load_and_run_main(int argc, char** argv);  // their main functions, under these names in this build
int mge_lite_main(int argc, char** argv);

namespace fuzz {
namespace {

constexpr size_t kPool = 48 << 20;

/// What both programs print goes into a file while this lives.
class Redirected {
 public:
  explicit Redirected(const std::string& path) {
    std::fflush(stdout);
    std::fflush(stderr);
    const int to = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int k = 0; k < 2; ++k) {
      kept_[k] = ::dup(k + 1);
      ::dup2(to, k + 1);
    }
    ::close(to);
  }
  ~Redirected() {
    std::fflush(stdout);
    std::fflush(stderr);
    for (int k = 0; k < 2; ++k) {
      ::dup2(kept_[k], k + 1);
      ::close(kept_[k]);
    }
  }
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;

 private:
  int kept_[2];
};

struct Line {
  std::vector<std::string> words;
  int run(int (*main)(int, char**)) {
    std::vector<char*> argv;
    for (auto& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    return main(static_cast<int>(words.size()), argv.data());
  }
};

// What would only take time, or belongs to a person at the machine.
bool unwanted(std::string_view name) {
  for (std::string_view n : {"wait_gdb", "fitting", "thread", "seconds"})
    if (name == n) return true;
  return false;
}

}  // namespace

void programs(const Options& opt, Counts* counts) {
  const std::vector<Seed> seeds = load_seeds(opt);
  const std::string folder = opt.folder + "/work";
  std::filesystem::create_directories(folder);
  const std::string model = folder + "/model.mge", other = folder + "/other", says = opt.folder + "/says";
  const auto flags = lite::load_and_run_flags();
  auto value = [&](const lite::FlagDef* d, Rng& rng) -> std::string {
    const std::string_view name = d ? d->name : "";
    if (d && d->kind == lite::FlagKind::Int)
      return rng.of<std::string>({"0", "1", "1", "2", "3", "-1", "", "x", "99999999999999999999", "2 ", "1e3"});
    if (d && d->kind == lite::FlagKind::Number)
      return rng.of<std::string>({"0", "1", "0.5", "-1", "nan", "inf", "x", ""});
    if (d && d->kind == lite::FlagKind::Bool) return rng.of<std::string>({"true", "0", "maybe", ""});
    if (d && (d->kind == lite::FlagKind::File || d->kind == lite::FlagKind::Folder))
      return rng.of<std::string>({folder + "/out", folder + "/out", model, other, folder, "/dev/null/at/all", ""});
    if (name.find("input") != name.npos || rng.one_in(3))
      return rng.of<std::string>({"data:" + other, other, "data:[[1,2],[3,4]]", "[1", "data:0.5;bias:1", ";;", ":",
                                  "data:", "{2,1,8,8}", "data={2,1,4,4}", "data:rgb:" + other, "x:" + model,
                                  std::string(200, '[')});
    return rng.of<std::string>(
        {"", "x", "AES_default", "RC4_default", "0102", model, "a,b,c", "%s%n", std::string(300, 'y')});
  };
  for (uint64_t i = opt.first; i < opt.first + opt.cases; ++i) {
    begin_case(i, 60);
    Rng rng(opt.seed, i);
    const Seed& seed = seeds[rng.below(seeds.size())];
    Bytes b = rng.one_in(3) ? mutate(seeds, seed, rng) : seed.bytes;
    write_file(model, b);
    Bytes some;
    if (rng.one_in(3)) {
      some = seeds[rng.below(seeds.size())].bytes;
      some.resize(std::min<size_t>(some.size(), rng.below(2000)));
    } else {
      const std::string text = rng.of<std::string>(
          {"[1,2,3]", "{\"data\": {\"shape\": [2,1,8,8], \"raw\": [1]}}", "{",
           "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1, 8, 8), }",
           "P6\n8 8\n255\n", "BM", "\x89PNG\r\n\x1a\n", "\xff\xd8\xff\xe0", "--iter 1\n--flagfile other\n",
           "graph g(%x: f32[2]) { %y = relu %x } returns(%y)"});
      some.assign(text.begin(), text.end());
      for (size_t n = rng.below(200); n > 0; --n) some.push_back(static_cast<uint8_t>(rng.one_in(2) ? 0 : rng()));
    }
    write_file(other, some);
    const bool first = rng.one_in(2);
    Line line;
    auto add_flags = [&](std::span<const lite::FlagDef> table, size_t n) {
      for (; n > 0; --n) {
        const lite::FlagDef& d = table[rng.below(table.size())];
        if (unwanted(d.name)) continue;
        std::string name = d.name;
        if (rng.one_in(20)) name[rng.below(name.size())] = static_cast<char>('a' + rng.below(26));
        if (rng.one_in(12)) name = "no" + name;
        const bool bare = d.kind == lite::FlagKind::Bool ? !rng.one_in(6) : rng.one_in(16);
        if (bare)
          line.words.push_back("--" + name);
        else if (rng.one_in(2))
          line.words.push_back("--" + name + "=" + value(&d, rng));
        else
          line.words.insert(line.words.end(), {"--" + name, value(&d, rng)});
      }
    };
    if (first) {
      line.words = {"load_and_run"};
      if (!rng.one_in(20)) line.words.push_back(rng.one_in(20) ? other : model);
      line.words.insert(line.words.end(), {"--iter", "1", "--warmup_iter", "0"});
      add_flags(flags, rng.below(5));
    } else {
      static const char* const kCommands[] = {"info",  "verify",  "needs", "show", "make",
                                              "strip", "encrypt", "pack",  "nope"};
      line.words = {"mge-lite", rng.in(kCommands)};
      if (line.words[1] == "make") {
        line.words.insert(line.words.end(), {other, folder + "/made.mge", rng.of<std::string>({"0", "1", "2", "x"})});
      } else {
        if (!rng.one_in(20)) line.words.push_back(rng.one_in(16) ? other : model);
        if (!rng.one_in(20)) line.words.push_back(folder + "/made");
        if (line.words[1] == "info" || line.words[1] == "verify" || line.words[1] == "show") line.words.resize(3);
      }
      static constexpr const char* kFlags[] = {"json",          "threads", "cryption", "key",     "info",
                                               "info_cryption", "cache",   "help",     "version", "zzz"};
      for (size_t n = rng.below(4); n > 0; --n) {
        const std::string name = rng.in(kFlags);
        line.words.push_back("--" + name);
        if (rng.one_in(2) && name != "json" && name != "help" && name != "version")
          line.words.back() +=
              "=" + rng.of<std::string>({"1", "2", "AES_default", "RC4_default", "NONE", "x", "0a0b", other, ""});
      }
    }
    if (opt.verbose) {
      for (auto& w : line.words) std::fprintf(stderr, "%s ", w.c_str());
      std::fprintf(stderr, "  (%s)\n", seed.name.c_str());
    }
    mge::Pool& pool = mge::Pool::of({});
    pool.set_limit(0);
    pool.set_limit(pool.stats().allocated + kPool);
    doing(first ? "load_and_run" : "mge-lite");
    int status;
    {
      const Redirected to(says);
      status = line.run(first ? load_and_run_main : mge_lite_main);
    }
    pool.set_limit(0);
    LITE_set_log_level(ERROR);
    std::ifstream f(says, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(f), {}};
    if (opt.verbose) std::fprintf(stderr, "  %d %s\n", status, text.substr(0, 600).c_str());
    if (status < 0 || status > 2) finding("exit status " + std::to_string(status));
    if (status && text.empty()) finding("a failure without a text");
    if (text.find("internal error") != std::string::npos) finding(text);
    ++(*counts)["cases"];
    ++(*counts)[status ? "refused" : "done"];
    if (rng.one_in(16))
      for (auto& e : std::filesystem::directory_iterator(folder)) std::filesystem::remove_all(e.path());
  }
}

}  // namespace fuzz
