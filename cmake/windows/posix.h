// POSIX for MinGW, as much as Lite uses, declared before every source. Definitions: posix.cpp, which alone sees
// <windows.h> and its macros.
#pragma once
#ifdef __cplusplus
#include <direct.h>
#include <dirent.h>
#include <fcntl.h>
#include <io.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>

// Files are opened without translation of line ends, and children inherit none of them.
#define O_CLOEXEC (_O_NOINHERIT | _O_BINARY)
#define O_NOFOLLOW 0
#define O_NONBLOCK 0
#define O_DIRECTORY 0
#define LOCK_SH 1
#define LOCK_EX 2
#define LOCK_NB 4
#define LOCK_UN 8
#define F_DUPFD_CLOEXEC 1030
#define AT_FDCWD (-100)
#define AT_EACCESS 0x200
#define EDQUOT 10069
#define CPU_SETSIZE 64
#define _SC_PAGESIZE 30
#define _SC_PHYS_PAGES 85
#define _SC_AVPHYS_PAGES 86
#define SYS_gettid 186

using sigset_t = int;
inline int sigfillset(sigset_t*) { return 0; }
inline int mkdir(const char* path, mode_t) { return _mkdir(path); }

extern "C" {
int flock(int fd, int how);
int fsync(int fd);
int rename_over(const char* from, const char* to);
int fchmod(int fd, mode_t mode);
inline int fchown(int, int, int) { return 0; }
inline int geteuid() { return 0; }
inline int getegid() { return 0; }
int fcntl(int fd, int command, int least);
inline int dirfd(DIR*) { return -1; }
int openat(int folder, const char* path, int flags);
int unlinkat(int folder, const char* path, int flags);
int faccessat(int folder, const char* path, int mode, int flags);
inline ssize_t readlink(const char*, char*, size_t) { return -1; }
ssize_t pread(int fd, void* to, size_t bytes, off_t at);
long sysconf(int name);
long syscall(int name);
}

// GCC does not align the stack of Windows for registers of 32 and 64 bytes, so kernels that spill them would crash.
#define HWY_BROKEN_TARGETS (HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL | HWY_AVX3_ZEN4 | HWY_AVX3_SPR)

// Cores by the mask of the process; a machine of more than 64 shows those of one group.
struct cpu_set_t {
  unsigned long long bits;
};
#define CPU_ALLOC(n) (new cpu_set_t{0})
#define CPU_ALLOC_SIZE(n) sizeof(cpu_set_t)
#define CPU_FREE(set) delete (set)
#define CPU_COUNT_S(bytes, set) __builtin_popcountll((set)->bits)
#define CPU_ZERO(set) ((set)->bits = 0)
#define CPU_SET(i, set) ((set)->bits |= 1ull << (i))
extern "C" int sched_getaffinity(int pid, size_t bytes, cpu_set_t* set);
extern "C" int sched_setaffinity(int pid, size_t bytes, const cpu_set_t* set);
#endif
