// Attacks on Lite, each a number of cases that a seed and a number repeat (main.cpp says how). A case must end with
// results or with an error code and a text; a crash, a hang, a text without code or an internal error is a finding.
#pragma once
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace fuzz {

using Bytes = std::vector<uint8_t>;

/// SplitMix64: one word of state, so that every case begins its own.
class Rng {
 public:
  Rng(uint64_t seed, uint64_t number) : state_(seed * 0x9e3779b97f4a7c15u + number * 0xd1342543de82ef95u) { (*this)(); }
  uint64_t operator()() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  size_t below(size_t n) { return n ? (*this)() % n : 0; }
  bool one_in(size_t n) { return below(n) == 0; }
  template <class T>
  T of(std::initializer_list<T> some) {
    return some.begin()[below(some.size())];
  }
  template <class C>
  auto& in(C& some) {
    return some[below(std::size(some))];
  }

 private:
  uint64_t state_;
};

struct Options {
  uint64_t seed = 1, first = 0, cases = 1000;
  std::string folder;              // for what is written
  std::vector<std::string> seeds;  // files, and folders of them
  bool verbose = false;
};

using Counts = std::map<std::string, long>;

/// The case that is under way: told when the process dies of it. It may compute for `seconds`; 0: it is over.
void begin_case(uint64_t number, int seconds = 20);
/// What the case does at the moment, for the same purpose. A text that stays.
void doing(const char* what);
[[noreturn]] void finding(const std::string& text);
/// Holds the status of a C function to its promise: 0, or -1 with a code and a text, which must not be an internal
/// error. Returns whether it was 0.
bool ok(int status, const char* function);

/// The allocator (memory.cpp): more than these bytes in all, or in one piece, are refused.
void limit_memory(size_t bytes);
/// The n-th allocation from now on fails, and `more` after it; 0: none does.
void fail_allocation(uint64_t n, uint64_t more = 0);
uint64_t allocations();
/// Reports what nobody points to any more; false where this build cannot tell.
bool check_leaks();

/// Files to begin with: those of Options, and every one that loads also in our own format.
struct Seed {
  std::string name, cryption;
  Bytes bytes;
};
std::vector<Seed> load_seeds(const Options& opt);
Bytes mutate(const std::vector<Seed>& seeds, const Seed& seed, Rng& rng);
void write_file(const std::string& path, const Bytes& bytes);

// The attacks.
void files(const Options& opt, Counts* counts);
void calls(const Options& opt, Counts* counts);
void threads(const Options& opt, Counts* counts);
void memory(const Options& opt, Counts* counts);
void programs(const Options& opt, Counts* counts);
/// Functions of include/lite-c that `calls` never calls; empty, or the table has to grow.
std::string missing_functions();

}  // namespace fuzz
