#include "kernel/onednn/openmp.h"

#include <dlfcn.h>
#include <dnnl.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "base/team.h"

namespace mge::onednn {
namespace {

// ---- what OpenMP is asked, answered by our team

// The part of a region that this thread runs.
struct Part {
  int id = 0, count = 1;
};
thread_local Part tls_part;
thread_local int tls_parts = 1;  // of Entered

// Numbers of threads are only names of parts here: whoever is free runs the next one. That is right for every kernel
// that does not make its parts wait for each other, and those that do (weight gradients, batch norm, plain gemm) are
// never used with several parts.
struct Region {
  void (*fn)(void*) = nullptr;
  void* data = nullptr;
  int count = 1, most = 1;
  Part outer;         // what its leader ran before
  bool open = false;  // the team works on it
  void operator()(int id) const {
    const Entered entered(most);
    const InRegion inside;
    const Part part = std::exchange(tls_part, {id, count});
    fn(data);
    tls_part = part;
  }
};

// The regions that this thread leads, inner ones last; those run here part after part, and so does one that finds the
// team with another thread.
struct Leader {
  std::vector<Region> regions;
  Region shared;  // what the team works on
  FunctionRef<void(int)> task = shared;
  std::optional<InRegion> inside;
};
thread_local Leader tls_leader;

void region_start(void (*fn)(void*), void* data, unsigned threads) {
  Leader& l = tls_leader;
  Region r{fn, data, threads ? static_cast<int>(threads) : tls_parts, tls_parts, tls_part};
  if (!in_region() && r.count > 1) {
    l.shared = r;
    r.open = Team::get().open(r.count, std::min(r.count, num_threads()), l.task, true);
    l.inside.emplace();
  }
  l.regions.push_back(r);
  tls_part = {0, r.count};
}

void region_end() {
  Leader& l = tls_leader;
  const Region r = l.regions.back();
  l.regions.pop_back();
  tls_part = r.outer;
  if (r.open)
    Team::get().close();
  else
    for (int id = 1; id < r.count; ++id) r(id);
  if (l.regions.empty()) l.inside.reset();
}

struct Answers {
  int (*max_threads)();
  int (*in_parallel)();
  int (*num_threads)();
  int (*thread_num)();
  void (*start)(void (*)(void*), void*, unsigned);
  void (*end)();
};
constexpr Answers kOurs = {
    [] { return tls_parts; },
    [] { return static_cast<int>(in_region()); },
    [] { return tls_part.count; },
    [] { return tls_part.id; },
    region_start,
    region_end,
};
thread_local const Answers* tls_answers = &kOurs;

// ---- the functions by their OpenMP names

int omp_max_threads() { return tls_answers->max_threads(); }
int omp_in_parallel() { return tls_answers->in_parallel(); }
int omp_num_threads() { return tls_answers->num_threads(); }
int omp_thread_num() { return tls_answers->thread_num(); }
void parallel_start(void (*fn)(void*), void* data, unsigned threads) { tls_answers->start(fn, data, threads); }
void parallel_end() { tls_answers->end(); }
void parallel(void (*fn)(void*), void* data, unsigned threads, unsigned) {
  tls_answers->start(fn, data, threads);
  fn(data);
  tls_answers->end();
}
void barrier() {
  if (omp_num_threads() == 1) return;
  std::fprintf(stderr, "megengine: a oneDNN kernel waits inside a parallel region, which the team does not support.\n");
  std::abort();
}

// A loop with a static schedule: without a chunk one range per part, with one they go round.
struct Loop {
  long next, end, step, chunk, stride;
};
thread_local Loop tls_loop;
bool loop_next(long* first, long* last) {
  Loop& l = tls_loop;
  if (l.step > 0 ? l.next >= l.end : l.next <= l.end) return false;
  *first = l.next;
  *last = l.step > 0 ? std::min(l.end, l.next + l.chunk) : std::max(l.end, l.next + l.chunk);
  l.next += l.stride;
  return true;
}
bool loop_start(long begin, long end, long step, long chunk, long* first, long* last) {
  const long parts = omp_num_threads(), id = omp_thread_num();
  const long count =
      step > 0 ? std::max(0L, (end - begin + step - 1) / step) : std::max(0L, (begin - end - step - 1) / -step);
  const long each = chunk > 0 ? chunk : std::max(1L, (count + parts - 1) / parts);
  tls_loop = {begin + id * each * step, end, step, each * step, parts * each * step};
  return loop_next(first, last);
}
void loop_end() {}

struct Import {
  const char* name;
  void* ours;
  bool needed;
};
template <class F>
void* address(F* f) {
  return reinterpret_cast<void*>(f);
}
const Import kImports[] = {
    {"omp_get_max_threads", address(omp_max_threads), true},
    {"omp_in_parallel", address(omp_in_parallel), true},
    {"omp_get_num_threads", address(omp_num_threads), true},
    {"omp_get_thread_num", address(omp_thread_num), true},
    {"GOMP_parallel_start", address(parallel_start), false},  // compilers before GCC 4.9
    {"GOMP_parallel_end", address(parallel_end), false},
    {"GOMP_parallel", address(parallel), false},
    {"GOMP_barrier", address(barrier), false},
    {"GOMP_loop_static_start", address(loop_start), false},
    {"GOMP_loop_static_next", address(loop_next), false},
    {"GOMP_loop_end_nowait", address(loop_end), false},
    {"GOMP_loop_end", address(barrier), false},
};

// ---- the import table of the library that oneDNN is

struct Object {
  ElfW(Addr) base = 0;
  const ElfW(Dyn) * dynamic = nullptr;
  ElfW(Addr) relro = 0;
  size_t relro_bytes = 0;
};

int find_object(dl_phdr_info* info, size_t, void* found) {
  auto* o = static_cast<Object*>(found);
  if (info->dlpi_addr != o->base) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& p = info->dlpi_phdr[i];
    if (p.p_type == PT_DYNAMIC) o->dynamic = reinterpret_cast<const ElfW(Dyn)*>(o->base + p.p_vaddr);
    if (p.p_type == PT_GNU_RELRO) o->relro = o->base + p.p_vaddr, o->relro_bytes = p.p_memsz;
  }
  return 1;
}

#if defined(__x86_64__)
constexpr bool is_import(unsigned long type) { return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT; }
#elif defined(__aarch64__)
constexpr bool is_import(unsigned long type) { return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT; }
#else
constexpr bool is_import(unsigned long) { return false; }
#endif

// f(name, slot) for every function or object that the library imports.
template <class F>
void each_import(const Object& o, F f) {
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
  const ElfW(Rela) * tables[2] = {};
  size_t bytes[2] = {};
  auto at = [&](ElfW(Addr) a) { return a < o.base ? a + o.base : a; };  // some loaders leave them relative
  for (auto* d = o.dynamic; d->d_tag != DT_NULL; ++d) switch (d->d_tag) {
      case DT_SYMTAB:
        symbols = reinterpret_cast<const ElfW(Sym)*>(at(d->d_un.d_ptr));
        break;
      case DT_STRTAB:
        names = reinterpret_cast<const char*>(at(d->d_un.d_ptr));
        break;
      case DT_JMPREL:
        tables[0] = reinterpret_cast<const ElfW(Rela)*>(at(d->d_un.d_ptr));
        break;
      case DT_PLTRELSZ:
        bytes[0] = d->d_un.d_val;
        break;
      case DT_RELA:
        tables[1] = reinterpret_cast<const ElfW(Rela)*>(at(d->d_un.d_ptr));
        break;
      case DT_RELASZ:
        bytes[1] = d->d_un.d_val;
        break;
      default:
        break;
    }
  if (!symbols || !names) return;
  for (int t = 0; t < 2; ++t)
    for (size_t i = 0; tables[t] && i < bytes[t] / sizeof(ElfW(Rela)); ++i) {
      const ElfW(Rela)& r = tables[t][i];
      if (is_import(ELF64_R_TYPE(r.r_info)))
        f(names + symbols[ELF64_R_SYM(r.r_info)].st_name, reinterpret_cast<void**>(o.base + r.r_offset));
    }
}

using Enter = const void* (*)(const void*);
Enter g_enter = nullptr;

const char* bind() {
  Dl_info where;
  if (!dladdr(address(dnnl_version), &where) || !where.dli_fname || !std::strstr(where.dli_fname, "libdnnl"))
    return "it is not the library libdnnl";  // another library's copy has an OpenMP of its own
  Object o{.base = reinterpret_cast<ElfW(Addr)>(where.dli_fbase)};
  dl_iterate_phdr(find_object, &o);
  if (!o.dynamic) return "its import table cannot be found";
  int needed = 0, found = 0, regions = 0;
  const char* unknown = nullptr;
  void** first = nullptr;
  each_import(o, [&](const char* name, void** slot) {
    for (const Import& i : kImports)
      if (!std::strcmp(i.name, name)) {
        found += i.needed;
        regions += !std::strcmp(name, "GOMP_parallel") || !std::strcmp(name, "GOMP_parallel_end");
        if (i.needed && !first) first = slot;
        return;
      }
    if (!std::strncmp(name, "omp_", 4) || !std::strncmp(name, "GOMP_", 5) || !std::strncmp(name, "__kmpc_", 7))
      unknown = name;
  });
  for (const Import& i : kImports) needed += i.needed;
  if (found < needed || !regions || unknown) return "it uses OpenMP in a way this build does not know";
  // Another library of ours may have been here first; then its functions answer, and it is told who is asking.
  if (Dl_info other; dladdr(*first, &other) && other.dli_fname)
    if (void* library = dlopen(other.dli_fname, RTLD_LAZY | RTLD_NOLOAD)) {
      auto enter = reinterpret_cast<Enter>(dlsym(library, "mge_onednn_enter"));
      Dl_info from;
      const bool theirs = enter && dladdr(address(enter), &from) && from.dli_fbase == other.dli_fbase;
      dlclose(library);
      if (theirs) return g_enter = enter, nullptr;
    }
  const auto page = static_cast<ElfW(Addr)>(sysconf(_SC_PAGESIZE));
  const ElfW(Addr) begin = o.relro / page * page, end = (o.relro + o.relro_bytes) / page * page;
  auto* memory = reinterpret_cast<void*>(begin);
  if (end > begin && mprotect(memory, end - begin, PROT_READ | PROT_WRITE)) return "its import table is read-only";
  each_import(o, [](const char* name, void** slot) {
    for (const Import& i : kImports)
      if (!std::strcmp(i.name, name)) __atomic_store_n(slot, i.ours, __ATOMIC_RELEASE);
  });
  if (end > begin) mprotect(memory, end - begin, PROT_READ);
  return nullptr;
}

}  // namespace

const char* bind_openmp() {
  static const char* const why = bind();
  return why;
}

// Exported, so that another library of ours in this process finds it.
extern "C" [[gnu::visibility("default"), gnu::used]] const void* mge_onednn_enter(const void* answers) {
  return std::exchange(tls_answers, static_cast<const Answers*>(answers));
}

Entered::Entered(int parts)
    : before_((g_enter ? g_enter : mge_onednn_enter)(&kOurs)), parts_before_(std::exchange(tls_parts, parts)) {}
Entered::~Entered() {
  tls_parts = parts_before_;
  (g_enter ? g_enter : mge_onednn_enter)(before_);
}

}  // namespace mge::onednn
