#include "serial/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "base/error.h"
#include "core/mapped.h"

namespace mge::serial {
namespace {

// Below this a file is read: it costs nothing, and whoever overwrites the file in place cannot pull pages from under
// us.
constexpr size_t kMapFrom = 1 << 20;

[[noreturn]] void fail_errno(const char* what, const std::string& path) {
  MGE_FAIL_ENV("{}: cannot {}: {}.", path, what, std::strerror(errno));
}

struct Closer {
  int fd;
  ~Closer() { ::close(fd); }
};

}  // namespace

File open_file(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_errno("open", path);
  Closer closer{fd};
  struct stat st;
  if (::fstat(fd, &st) != 0) fail_errno("look at", path);
  if (S_ISDIR(st.st_mode)) MGE_FAIL_ENV("{}: this is a folder, not a model file.", path);
  if (!S_ISREG(st.st_mode)) MGE_FAIL_ENV("{}: not a regular file; load its bytes from memory instead.", path);
  auto size = static_cast<size_t>(st.st_size);
  if (size >= kMapFrom) {
    void* p = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p != MAP_FAILED) {
      std::shared_ptr<const void> owner(p, [size](const void* q) {
        forget_mapped(q);
        ::munmap(const_cast<void*>(q), size);
      });
      note_mapped(p, size);
      return {{static_cast<const uint8_t*>(p), size}, std::move(owner), true};
    }
  }
  auto align = std::align_val_t(kAlign);
  std::shared_ptr<void> owner(::operator new(size + 1, align), [align](void* q) { ::operator delete(q, align); });
  size_t got = 0;
  while (got < size) {
    ssize_t n = ::read(fd, static_cast<char*>(owner.get()) + got, size - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("read", path);
    if (n == 0) break;  // shrank meanwhile: the container check says so
    got += static_cast<size_t>(n);
  }
  Bytes bytes(static_cast<const uint8_t*>(owner.get()), got);
  return {bytes, std::move(owner), false};
}

}  // namespace mge::serial
