// What posix.h, sys/mman.h, sys/random.h and dlfcn.h declare, by Windows. Compiled by MinGW-w64; not run anywhere yet.
#define RtlGenRandom SystemFunction036
// clang-format off
#include <windows.h>
#include <ntsecapi.h>
// clang-format on

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdio>
#include <string>

namespace {

HANDLE handle_of(int fd) { return reinterpret_cast<HANDLE>(_get_osfhandle(fd)); }
int done(BOOL ok) {
  if (ok) return 0;
  errno = GetLastError() == ERROR_LOCK_VIOLATION ? EWOULDBLOCK : EIO;
  return -1;
}
thread_local std::string t_error;

}  // namespace

extern "C" {

int flock(int fd, int how) {
  OVERLAPPED at{};
  at.OffsetHigh = 0x7fffffff;  // far beyond the end, since a locked range cannot be read by others here
  if (how & LOCK_UN) return done(UnlockFileEx(handle_of(fd), 0, 1, 0, &at));
  const DWORD flags = (how & LOCK_EX ? LOCKFILE_EXCLUSIVE_LOCK : 0) | (how & LOCK_NB ? LOCKFILE_FAIL_IMMEDIATELY : 0);
  return done(LockFileEx(handle_of(fd), flags, 0, 1, 0, &at));
}
int fsync(int fd) { return _commit(fd); }
int rename_over(const char* from, const char* to) { return done(MoveFileExA(from, to, MOVEFILE_REPLACE_EXISTING)); }
int fchmod(int, mode_t) { return 0; }  // files here have no such modes
int fcntl(int fd, int, int) { return _dup(fd); }
int openat(int, const char*, int) { return errno = ENOSYS, -1; }  // so leftovers of other processes stay
int unlinkat(int, const char*, int) { return errno = ENOSYS, -1; }
int faccessat(int, const char* path, int mode, int) { return _access(path, mode & 6); }
ssize_t pread(int fd, void* to, size_t bytes, off_t at) {
  const long long before = _lseeki64(fd, 0, SEEK_CUR);
  if (before < 0 || _lseeki64(fd, at, SEEK_SET) < 0) return -1;
  const int got = _read(fd, to, static_cast<unsigned>(bytes < 1u << 30 ? bytes : 1u << 30));
  _lseeki64(fd, before, SEEK_SET);
  return got;
}
long sysconf(int name) {
  SYSTEM_INFO system;
  GetSystemInfo(&system);
  MEMORYSTATUSEX memory{};
  memory.dwLength = sizeof memory;
  GlobalMemoryStatusEx(&memory);
  if (name == _SC_PAGESIZE) return static_cast<long>(system.dwPageSize);
  const auto bytes = name == _SC_PHYS_PAGES ? memory.ullTotalPhys : memory.ullAvailPhys;
  return static_cast<long>(bytes / system.dwPageSize);
}
long syscall(int) { return static_cast<long>(GetCurrentThreadId()); }

int sched_getaffinity(int, size_t, cpu_set_t* set) {
  DWORD_PTR process = 0, system = 0;
  if (!GetProcessAffinityMask(GetCurrentProcess(), &process, &system)) return -1;
  set->bits = process;
  return 0;
}
int sched_setaffinity(int, size_t, const cpu_set_t* set) {
  return SetThreadAffinityMask(GetCurrentThread(), static_cast<DWORD_PTR>(set->bits)) ? 0 : -1;
}

void* mmap(void*, size_t bytes, int access, int flags, int fd, long long offset) {
  if (flags & MAP_ANONYMOUS) {
    void* p = VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    return p ? p : MAP_FAILED;
  }
  if (access != PROT_READ) return MAP_FAILED;
  HANDLE mapping = CreateFileMappingA(handle_of(fd), nullptr, PAGE_READONLY, 0, 0, nullptr);
  if (!mapping) return MAP_FAILED;
  void* p = MapViewOfFile(mapping, FILE_MAP_READ, static_cast<DWORD>(offset >> 32), static_cast<DWORD>(offset), bytes);
  CloseHandle(mapping);  // the view keeps it
  return p ? p : MAP_FAILED;
}
int munmap(void* p, size_t) {
  MEMORY_BASIC_INFORMATION about{};
  if (!VirtualQuery(p, &about, sizeof about)) return -1;
  return done(about.Type == MEM_MAPPED ? UnmapViewOfFile(p) : VirtualFree(p, 0, MEM_RELEASE));
}
int madvise(void*, size_t, int) { return -1; }  // nothing was done
int memfd_create(const char*, unsigned) { return -1; }
ssize_t getrandom(void* to, size_t bytes, unsigned) {
  return RtlGenRandom(to, static_cast<ULONG>(bytes)) ? static_cast<ssize_t>(bytes) : -1;
}

void* dlopen(const char* path, int) {
  HMODULE library = LoadLibraryA(path);
  if (!library) t_error = "Windows error " + std::to_string(GetLastError());
  return reinterpret_cast<void*>(library);
}
void* dlsym(void* library, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(reinterpret_cast<HMODULE>(library), name));
}
int dlclose(void* library) { return done(FreeLibrary(reinterpret_cast<HMODULE>(library))); }
const char* dlerror() { return t_error.c_str(); }

}  // extern "C"
