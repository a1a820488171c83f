#include "base/write_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

namespace mge {
namespace {

// .mge-<kernel>-<random>.part: the kernel that runs tells whose locks can be seen, the rest never repeats. It does not
// hold the target's name, which may already be as long as names can be.
constexpr std::string_view kPrefix = ".mge-", kSuffix = ".part";
constexpr size_t kDigits = 16;
constexpr size_t kNameLength = kPrefix.size() + 8 + 1 + kDigits + kSuffix.size();
// A writer under another kernel (a shared disk) is not known to be dead before its file has been left alone so long.
constexpr time_t kForeignPatience = 24 * 3600;
constexpr int kMostLinks = 40;

struct Descriptor {
  int fd;
  explicit Descriptor(int f) : fd(f) {}
  Descriptor(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

uint64_t random_bits() {
  uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) == sizeof bits) return bits;
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);  // O_EXCL decides in any case
  return static_cast<uint64_t>(t.tv_nsec) * 0x9e3779b97f4a7c15ull ^ static_cast<uint64_t>(::getpid()) << 32;
}

// Locks are seen by everyone under one kernel, containers included.
const std::string& kernel_id() {
  static const std::string id = [] {
    char text[8] = {};
    Descriptor f(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
    const bool known = f.fd >= 0 && ::read(f.fd, text, sizeof text) == sizeof text;
    return known ? std::string(text, sizeof text) : std::string();
  }();
  return id;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash + 1);
}
std::string shown(const std::string& folder) {
  if (folder.empty()) return "the current folder";
  return "the folder " + (folder.size() > 1 ? folder.substr(0, folder.size() - 1) : folder);
}

bool is_ours(std::string_view name) {
  return name.size() == kNameLength && name.starts_with(kPrefix) && name.ends_with(kSuffix);
}

// Who writes holds a lock on his file, so one that can be locked has no writer any more.
void remove_stale(const std::string& folder) {
  DIR* dir = ::opendir(folder.empty() ? "." : folder.c_str());
  if (!dir) return;
  while (const dirent* e = ::readdir(dir)) {
    const std::string_view name = e->d_name;
    if (!is_ours(name)) continue;
    Descriptor f(::openat(::dirfd(dir), e->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat st {};
    if (f.fd < 0 || ::fstat(f.fd, &st) != 0 || !S_ISREG(st.st_mode)) continue;
    const bool here = !kernel_id().empty() && name.substr(kPrefix.size(), 8) == kernel_id();
    if (!here && ::time(nullptr) - st.st_mtime < kForeignPatience) continue;
    if (::flock(f.fd, LOCK_EX | LOCK_NB) == 0) ::unlinkat(::dirfd(dir), e->d_name, 0);
  }
  ::closedir(dir);
}

bool write_all(int fd, const void* data, size_t bytes) {
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd, p, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    p += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

// The file that a path leads to. True: it is an open file, as /dev/stdout, and not a name of its own.
bool follow_links(std::string* path) {
  for (int i = 0; i < kMostLinks; ++i) {
    if (path->starts_with("/proc/") || path->starts_with("/dev/fd/")) return true;
    char to[4096];
    const ssize_t n = ::readlink(path->c_str(), to, sizeof to);
    if (n <= 0 || n == sizeof to) return false;
    const std::string next(to, static_cast<size_t>(n));
    *path = next[0] == '/' ? next : folder_of(*path) + next;
  }
  return false;
}

// An open file of this process is written from where it stands, so that what is printed before and after stays.
int open_direct(const std::string& target, const std::string& path, bool regular) {
  for (std::string_view prefix : {"/proc/self/fd/", "/dev/fd/"})
    if (target.starts_with(prefix) && target.size() > prefix.size()) {
      char* end = nullptr;
      const long n = std::strtol(target.c_str() + prefix.size(), &end, 10);
      if (*end == 0) return ::fcntl(static_cast<int>(n), F_DUPFD_CLOEXEC, 0);
    }
  return ::open(path.c_str(), O_WRONLY | O_CLOEXEC | (regular ? O_APPEND : 0));
}

std::string reason_for(const std::string& path, int code) {
  const std::string folder = shown(folder_of(path));
  struct stat st {};
  switch (code) {
    case ENOENT:
      return folder + " does not exist. Make it first.";
    case ENOTDIR:
      return "a part of the path before the last is a file, not a folder. Choose another path.";
    case EISDIR:
      return "this is a folder. Give the name of a file in it.";
    case EACCES:
    case EPERM:
      if (::stat(path.c_str(), &st) == 0 && ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0)
        return "the file is read-only. Change its permissions or choose another path.";
      return "no permission to make a file in " + folder +
             ", and an old file is only replaced by a complete new one. Choose another folder, or write to an open "
             "file.";
    case EROFS:
      return "the disk is mounted read-only. Choose another folder.";
    case ENOSPC:
    case EDQUOT:
      return "the disk is full. Free some space or choose another folder; an old file is as it was.";
    case EFBIG:
      return "files may not become this large here (ulimit -f). Raise the limit; an old file is as it was.";
    case ENAMETOOLONG:
      return "the name is too long. Choose a shorter one.";
    case EBUSY:
      return "something is mounted on the file, so that no other can take its place. Choose another path, or write to "
             "an open file.";
    default:
      return std::string(std::strerror(code)) + ".";
  }
}

}  // namespace

FileError::FileError(int code, std::string path, std::string reason)
    : Error(ErrorKind::Env, format("{}: cannot write: {}", path, reason)),
      code_(code),
      path_(std::move(path)),
      reason_(std::move(reason)) {}

void fail_to_write(const std::string& path, int code) { throw FileError(code, path, reason_for(path, code)); }

FileWriter::FileWriter(std::string path) : path_(std::move(path)), target_(path_) {
  if (path_.empty()) throw FileError(ENOENT, path_, "the path is empty. Give the name of a file.");
  if (path_.find('\0') != std::string::npos) throw FileError(EINVAL, path_, "the path has a zero byte in it.");
  const bool open_file = follow_links(&target_);
  struct stat st {};
  const bool exists = ::stat(path_.c_str(), &st) == 0;
  if (exists && S_ISDIR(st.st_mode)) fail_to_write(path_, EISDIR);
  if (exists && (open_file || !S_ISREG(st.st_mode))) {
    fd_ = open_direct(target_, path_, S_ISREG(st.st_mode));
    if (fd_ < 0) fail_to_write(path_, errno);
    return;
  }
  if (exists && ::faccessat(AT_FDCWD, target_.c_str(), W_OK, AT_EACCESS) != 0) fail_to_write(path_, errno);
  if (target_.back() == '/') fail_to_write(path_, EISDIR);
  folder_ = folder_of(target_);
  if (exists) mode_ = st.st_mode & 07777;
  remove_stale(folder_);
  open_temporary();
  // Only root can give a file away; anybody else's becomes ours.
  if (exists && (st.st_uid != ::geteuid() || st.st_gid != ::getegid()))
    if (::fchown(fd_, st.st_uid, st.st_gid) != 0) return;
}

void FileWriter::open_temporary() {
  // Not more readable than what it replaces; its owner can always open it, to clean up.
  const mode_t mode = mode_ ? (mode_ & 0777) | 0600 : 0666;
  for (;;) {
    const std::string& kernel = kernel_id();
    temporary_ =
        format("{}{}{}-{:016x}{}", folder_, kPrefix, kernel.empty() ? "00000000" : kernel, random_bits(), kSuffix);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd_ < 0 && errno == EEXIST) continue;
    if (fd_ < 0) {
      const int code = errno;
      temporary_.clear();
      fail_to_write(path_, code);
    }
    // Somebody who cleans up may have been between these two calls. Where locks do not exist (ENOLCK, ENOTSUP) nobody
    // can lock the file to remove it either.
    int locked;
    while ((locked = ::flock(fd_, LOCK_EX)) != 0 && errno == EINTR) continue;
    struct stat st {};
    if (locked != 0 || (::fstat(fd_, &st) == 0 && st.st_nlink > 0)) return;
    ::close(std::exchange(fd_, -1));
  }
}

FileWriter::~FileWriter() { discard(); }

void FileWriter::discard() noexcept {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void FileWriter::write(const void* data, size_t bytes) {
  if (!write_all(fd_, data, bytes)) fail_to_write(path_, errno);
}

void FileWriter::commit() {
  MGE_ASSERT(fd_ >= 0, "{} is committed twice", path_);
  if (!temporary_.empty()) {
#ifdef _WIN32  // an open file cannot be renamed, and rename() takes no other file's place
    const bool written = ::fsync(fd_) == 0 && ::close(std::exchange(fd_, -1)) == 0;
    if (!written || ::rename_over(temporary_.c_str(), target_.c_str()) != 0) {
      const int code = errno;
      discard();
      fail_to_write(path_, code);
    }
    temporary_.clear();
    return;
#else
    if ((mode_ && ::fchmod(fd_, mode_) != 0) || ::fsync(fd_) != 0 ||
        ::rename(temporary_.c_str(), target_.c_str()) != 0) {
      const int code = errno;
      discard();
      fail_to_write(path_, code);
    }
    temporary_.clear();
    // The name is there; that it survives a loss of power is as much as can be asked for.
    Descriptor folder(::open(folder_.empty() ? "." : folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.fd >= 0) ::fsync(folder.fd);
#endif
  }
  if (::close(std::exchange(fd_, -1)) != 0) fail_to_write(path_, errno);
}

void replace_file(const std::string& path, std::string_view head, const void* data, size_t bytes) {
  FileWriter f(path);
  f.write(head);
  f.write(data, bytes);
  f.commit();
}

void append_file(const std::string& path, std::string_view text, bool lines) {
  Descriptor f(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (f.fd < 0) fail_to_write(path, errno);
  while (::flock(f.fd, LOCK_EX) != 0 && errno == EINTR) continue;
  char last = '\n';
  const off_t end = ::lseek(f.fd, 0, SEEK_END);
  if (end > 0 && ::pread(f.fd, &last, 1, end - 1) != 1) last = '\n';
  const std::string whole = (lines && last != '\n' ? "\n" : "") + std::string(text);
  if (!write_all(f.fd, whole.data(), whole.size())) {
    const int code = errno;
    const bool cut = end >= 0 && ::ftruncate(f.fd, end) == 0;  // nothing, rather than a part
    (void)cut;
    fail_to_write(path, code);
  }
}

}  // namespace mge
