// Mapped files and anonymous memory; a mapping goes as a whole.
#pragma once
#include <cstddef>
#define PROT_NONE 0
#define PROT_READ 1
#define PROT_WRITE 2
#define MAP_SHARED 1
#define MAP_PRIVATE 2
#define MAP_ANONYMOUS 32
#define MAP_NORESERVE 0
#define MAP_FAILED (reinterpret_cast<void*>(-1))
#define MADV_DONTNEED 4
#define MADV_REMOVE 9
#define MADV_HUGEPAGE 14
#define MFD_CLOEXEC 1
extern "C" {
void* mmap(void* at, size_t bytes, int access, int flags, int fd, long long offset);
int munmap(void* p, size_t bytes);
int madvise(void* p, size_t bytes, int advice);
int memfd_create(const char* name, unsigned flags);
}
