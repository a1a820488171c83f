#include "base/write_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

namespace mge {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class WriteFile : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/mge_write_XXXXXX";
    dir_ = ::mkdtemp(name);
  }
  void TearDown() override { fs::remove_all(dir_); }
  std::string at(const std::string& name) const { return dir_ + "/" + name; }
  static std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  size_t temporaries() const {
    size_t n = 0;
    for (auto& e : fs::directory_iterator(dir_)) n += e.path().filename().string().starts_with(".mge-");
    return n;
  }
  static FileError error_of(const std::function<void()>& f) {
    try {
      f();
    } catch (const FileError& e) {
      return e;
    }
    return {0, "", "no error"};
  }
  std::string dir_;
};

TEST_F(WriteFile, ReplacesOnCommitOnly) {
  replace_file(at("a"), "old");
  {
    FileWriter f(at("a"));
    f.write("new, but not all");
    EXPECT_EQ(read(at("a")), "old");
    EXPECT_EQ(temporaries(), 1u);
  }
  EXPECT_EQ(read(at("a")), "old");
  replace_file(at("a"), "head", " tail", 5);
  EXPECT_EQ(read(at("a")), "head tail");
  EXPECT_EQ(temporaries(), 0u);
}

TEST_F(WriteFile, KeepsModeAndFollowsLinks) {
  const mode_t umask_before = ::umask(027);
  replace_file(at("fresh"), "x");
  ::umask(umask_before);
  struct stat st {};
  ASSERT_EQ(::stat(at("fresh").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0640u);
  ASSERT_EQ(::chmod(at("fresh").c_str(), 0751), 0);
  fs::create_directory(at("sub"));
  fs::create_symlink("../fresh", at("sub/link"));
  fs::create_symlink("sub/link", at("chain"));
  replace_file(at("chain"), "y");
  ASSERT_EQ(::stat(at("fresh").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0751u);
  EXPECT_EQ(read(at("fresh")), "y");
  EXPECT_TRUE(fs::is_symlink(at("chain")));
  fs::create_symlink("sub/later", at("dangling"));
  replace_file(at("dangling"), "z");
  EXPECT_EQ(read(at("sub/later")), "z");
}

TEST_F(WriteFile, LongestNamesWork) {
  const std::string name(255, 'n');
  replace_file(at(name), "x");
  EXPECT_EQ(read(at(name)), "x");
}

TEST_F(WriteFile, MappedFilesKeepTheirBytes) {
  replace_file(at("w"), std::string(1 << 16, 'a'));
  const int fd = ::open(at("w").c_str(), O_RDONLY);
  auto* p = static_cast<const char*>(::mmap(nullptr, 1 << 16, PROT_READ, MAP_PRIVATE, fd, 0));
  ASSERT_NE(p, MAP_FAILED);
  ::close(fd);
  replace_file(at("w"), "b");
  EXPECT_EQ(p[0], 'a');
  EXPECT_EQ(p[(1 << 16) - 1], 'a');
  ::munmap(const_cast<char*>(p), 1 << 16);
}

TEST_F(WriteFile, PipesAndDevicesAreWrittenAsTheyAre) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = read(at("pipe")); });
  replace_file(at("pipe"), "through");
  reader.join();
  EXPECT_EQ(got, "through");
  replace_file("/dev/null", "x");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(error_of([] { replace_file("/dev/full", "x"); }).code(), ENOSPC);
  // An open file, which is what /dev/stdout leads to: the name of it must not go to another.
  std::ofstream(at("out")) << "printed\n";
  const int fd = ::open(at("out").c_str(), O_WRONLY | O_APPEND);
  struct stat before {
  }, after{};
  ::fstat(fd, &before);
  replace_file("/proc/self/fd/" + std::to_string(fd), "dumped\n");
  ::stat(at("out").c_str(), &after);
  ::close(fd);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(read(at("out")), "printed\ndumped\n");
}

TEST_F(WriteFile, ErrorsNameThePathTheCauseAndTheWayOut) {
  FileError e = error_of([&] { replace_file(at("no/such/a.pkl"), "x"); });
  EXPECT_EQ(e.code(), ENOENT);
  EXPECT_EQ(std::string(e.what()),
            at("no/such/a.pkl") + ": cannot write: the folder " + at("no/such") + " does not exist. Make it first.");
  EXPECT_THAT(error_of([&] { replace_file(dir_, "x"); }).what(), HasSubstr("this is a folder"));
  EXPECT_THAT(error_of([&] { replace_file(dir_ + "/", "x"); }).what(), HasSubstr("this is a folder"));
  EXPECT_THAT(error_of([&] { replace_file("", "x"); }).what(), HasSubstr("the path is empty"));
  EXPECT_THAT(error_of([&] { replace_file(at(std::string(256, 'n')), "x"); }).what(), HasSubstr("name is too long"));
  replace_file(at("file"), "x");
  EXPECT_THAT(error_of([&] { replace_file(at("file/a"), "x"); }).what(), HasSubstr("is a file, not a folder"));
}

TEST_F(WriteFile, AFullDiskLeavesTheOldFile) {
  replace_file(at("a"), "old");
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit small{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &small);
    FileError e = error_of([&] { replace_file(at("a"), std::string(8192, 'n')); });
    ::_exit(e.code() == EFBIG && e.path() == at("a") && temporaries() == 0 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read(at("a")), "old");
}

TEST_F(WriteFile, KillsLoseNothingAndLeaveAlmostNothing) {
  const std::string versions[] = {std::string(200'000, 'a'), std::string(300'000, 'b')};
  replace_file(at("a"), versions[0]);
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (int k = 0;; ++k) replace_file(at("a"), versions[k % 2]);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200 + random() % 5000));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const std::string got = read(at("a"));
    ASSERT_TRUE(got == versions[0] || got == versions[1]) << i << ": " << got.size() << " bytes";
    ASSERT_LE(temporaries(), 1u);
  }
  replace_file(at("b"), "any write of the folder cleans up");
  EXPECT_EQ(temporaries(), 0u);
}

TEST_F(WriteFile, LivingWritersAreLeftAlone) {
  FileWriter f(at("a"));
  f.write("begun");
  for (int i = 0; i < 5; ++i) replace_file(at("b"), "another");
  EXPECT_EQ(temporaries(), 1u);
  f.write(" and ended");
  f.commit();
  EXPECT_EQ(read(at("a")), "begun and ended");
}

// Of another kernel (a shared disk) no lock is seen, so it is judged by its age alone.
TEST_F(WriteFile, FilesOfOtherMachinesAreRemovedWhenOld) {
  const std::string name = at(".mge-ffffffff-0123456789abcdef.part");
  std::ofstream(name) << "half";
  replace_file(at("a"), "x");
  EXPECT_TRUE(fs::exists(name));
  fs::last_write_time(name, fs::file_time_type::clock::now() - std::chrono::hours(25));
  std::ofstream(at(".mge-mine.part")) << "not ours";
  replace_file(at("a"), "x");
  EXPECT_FALSE(fs::exists(name));
  EXPECT_TRUE(fs::exists(at(".mge-mine.part")));
}

TEST_F(WriteFile, WritersAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) replace_file(at("a"), std::string(10'000, static_cast<char>('a' + t)));
    });
  for (auto& t : threads) t.join();
  const std::string got = read(at("a"));
  EXPECT_EQ(got, std::string(10'000, got[0]));
  EXPECT_EQ(temporaries(), 0u);
}

TEST_F(WriteFile, AppendBeginsAfterALineThatWasCutShort) {
  append_file(at("log"), "one\n");
  std::ofstream(at("log"), std::ios::app) << "cut sh";
  append_file(at("log"), "two\n");
  EXPECT_EQ(read(at("log")), "one\ncut sh\ntwo\n");
  EXPECT_THAT(error_of([&] { append_file(at("no/log"), "x"); }).what(), HasSubstr("does not exist"));
}

}  // namespace
}  // namespace mge
