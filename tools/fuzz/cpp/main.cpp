// mge_fuzz_lite ATTACK [--cases N] [--seed S] [--first I] [--folder DIR] [--seeds FILE|DIR]...
// Runs cases I to I+N-1 of an attack: files, calls, threads, memory or programs. The same seed and number repeat a
// case, whatever came before it. Prints what it counted as one line of JSON; a process that dies says which case it
// was.
#include <dirent.h>
#include <execinfo.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>

#include "fuzz.h"
#include "lite-c/global_c.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
extern "C" void __sanitizer_set_death_callback(void (*callback)(void));
extern "C" void __sanitizer_print_stack_trace(void);
// Overridden by the environment. A request that is too large comes back as null, as from malloc.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "allocator_may_return_null=1:detect_leaks=1:handle_abort=1:malloc_context_size=12:quarantine_size_mb=64";
}
extern "C" __attribute__((visibility("default"))) const char* __ubsan_default_options() {
  return "print_stacktrace=1:halt_on_error=1:abort_on_error=1";
}
#endif

namespace fuzz {
namespace {

std::atomic<uint64_t> g_case{0};
std::atomic<const char*> g_doing{"nothing"};
const char* g_attack = "";
uint64_t g_seed = 0;

void say_case() {
  char text[400];
  const int n = std::snprintf(text, sizeof text, "CASE %s --seed %llu --first %llu --cases 1 (%s)\n", g_attack,
                              static_cast<unsigned long long>(g_seed), static_cast<unsigned long long>(g_case.load()),
                              g_doing.load());
  if (::write(2, text, static_cast<size_t>(n)) < 0) return;
}

void say(const char* text) {
  if (::write(2, text, std::strlen(text)) < 0) return;
}

void say_stack(int) {
  char text[60];
  std::snprintf(text, sizeof text, "thread %ld:\n", ::syscall(SYS_gettid));
  say(text);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  __sanitizer_print_stack_trace();
#else
  void* frames[48];
  ::backtrace_symbols_fd(frames, ::backtrace(frames, 48), 2);
#endif
}

// Of every thread, one after the other: each prints its own when it is told to.
void say_stacks() {
  std::signal(SIGUSR2, say_stack);
  DIR* tasks = ::opendir("/proc/self/task");
  while (const dirent* d = tasks ? ::readdir(tasks) : nullptr)
    if (const long id = std::atol(d->d_name)) {
      ::syscall(SYS_tgkill, ::getpid(), id, SIGUSR2);
      ::usleep(300'000);
    }
}

double cpu_seconds() {
  timespec t;
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// What others do to the machine makes a case slow and not wrong: it may compute for some seconds, and for a minute it
// may do nothing at all, counted each time that it could.
constexpr int kStill = 60;
std::atomic<double> g_end{0}, g_seen{0};
std::atomic<int> g_still{0};

void on_signal(int number) {
  const char* why = nullptr;
  if (number == SIGALRM) {
    const double now = cpu_seconds();
    g_still = now - g_seen.exchange(now) < 0.002 ? g_still + 1 : 0;
    if (now > g_end) why = "FINDING the case takes too long\n";
    if (g_still >= kStill) why = "FINDING the case stands still\n";
    if (!why) return;
    std::signal(SIGALRM, SIG_DFL);  // to print may hang, too
    ::alarm(60);
  }
  say_case();
  if (why) {
    say(why);
    say_stacks();
  }
  std::signal(SIGABRT, SIG_DFL);
  std::abort();
}

}  // namespace

void begin_case(uint64_t number, int seconds) {
  g_case = number;
  doing("begins");
  g_still = 0;
  if (g_end.exchange(seconds ? cpu_seconds() + seconds : 1e9) > 0 && seconds) return;
  itimerval t{};
  t.it_value.tv_sec = t.it_interval.tv_sec = seconds ? 1 : 0;
  ::setitimer(ITIMER_REAL, &t, nullptr);
}

void doing(const char* what) { g_doing = what; }

void finding(const std::string& text) {
  std::fprintf(stderr, "FINDING %s\n", text.c_str());
  std::abort();
}

bool ok(int status, const char* function) {
  if (status == 0) return true;
  const std::string text = LITE_get_last_error();
  if (status != -1) finding(std::string(function) + " returned " + std::to_string(status));
  if (text.empty()) finding(std::string(function) + ": an error without a text");
  if (LITE_get_last_error_code() == OK) finding(std::string(function) + ": an error without a code: " + text);
  for (const char* bad :
       {"internal error", "_M_", "::at", "std::", "bad_"})  // texts of the library tell nobody anything
    if (text.find(bad) != std::string::npos) finding(std::string(function) + ": " + text);
  return false;
}

}  // namespace fuzz

int main(int argc, char** argv) {
  using namespace fuzz;
  struct Attack {
    const char* name;
    void (*run)(const Options&, Counts*);
  };
  static constexpr Attack kAttacks[] = {
      {"files", files}, {"calls", calls}, {"threads", threads}, {"memory", memory}, {"programs", programs}};
  Options opt;
  const Attack* attack = nullptr;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (a == "--cases")
      opt.cases = std::strtoull(value, nullptr, 10), ++i;
    else if (a == "--seed")
      opt.seed = std::strtoull(value, nullptr, 10), ++i;
    else if (a == "--first")
      opt.first = std::strtoull(value, nullptr, 10), ++i;
    else if (a == "--folder")
      opt.folder = value, ++i;
    else if (a == "--seeds")
      opt.seeds.emplace_back(value), ++i;
    else if (a == "--verbose")
      opt.verbose = true;
    else
      for (const Attack& k : kAttacks)
        if (a == k.name) attack = &k;
  }
  if (!attack) {
    std::fprintf(stderr,
                 "usage: mge_fuzz_lite files|calls|threads|memory|programs [--cases N] [--seed S] [--first I]\n");
    return 2;
  }
  if (const std::string missing = missing_functions(); !missing.empty()) {
    std::fprintf(stderr, "tools/fuzz/cpp/calls.cpp never calls %s\n", missing.c_str());
    return 2;
  }
  g_attack = attack->name;
  g_seed = opt.seed;
  if (opt.seeds.empty()) opt.seeds = {MGE_TEST_DATA "/original", MGE_TEST_DATA "/lite"};
  for (std::string& s : opt.seeds) s = std::filesystem::absolute(s);
  const bool own = opt.folder.empty();
  if (own) {
    char name[] = "/tmp/mge_fuzz.XXXXXX";
    if (!::mkdtemp(name)) return 2;
    opt.folder = name;
  }
  std::filesystem::current_path(opt.folder);  // any word of a command line may become the name of a file
  std::signal(SIGALRM, on_signal);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  __sanitizer_set_death_callback(say_case);
#else
  for (int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) std::signal(s, on_signal);
#endif
  limit_memory(size_t{1} << 30);
  Counts counts;
  std::set_terminate([] {
    doing("std::terminate");
    std::abort();
  });
  attack->run(opt, &counts);
  begin_case(opt.first + opt.cases, 0);
  doing("looking for leaks");
  check_leaks();
  std::filesystem::current_path("/");
  if (own) std::filesystem::remove_all(opt.folder);
  std::string line;
  for (auto& [name, n] : counts) line += (line.empty() ? "" : ", ") + ("\"" + name + "\": ") + std::to_string(n);
  std::fprintf(stderr, "counted: {%s}\n", line.c_str());
  return 0;
}
