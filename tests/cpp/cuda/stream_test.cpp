// Devices, streams, memory and failures, over a driver that is not one (mock_driver.cpp).
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "core/pool.h"
#include "kernel/capture.h"
#include "kernel/cuda/api.h"
#include "kernel/cuda/devices.h"
#include "kernel/run.h"

namespace mge {
namespace {

using testing::HasSubstr;

struct Mock {
  void* library = nullptr;
  template <class F>
  F* get(const char* name) {
    return reinterpret_cast<F*>(dlsym(library, name));
  }
  void kernel(const char* name, void (*fn)(void**)) {
    get<void(const char*, void (*)(void**))>("mock_kernel")(name, fn);
  }
  void delay(int64_t us) { get<void(int64_t)>("mock_delay")(us); }
};
Mock& mock() {
  static auto* m = [] {
    setenv("MGE_CUDA_DRIVER", MGE_MOCK_DRIVER, 1);
    cuda::offer_devices({});
    auto* mock = new Mock{dlopen(MGE_MOCK_DRIVER, RTLD_NOW)};
    return mock;
  }();
  return *m;
}

const CompNode* gpu(const char* name = "gpu0") {
  mock();
  return CompNode::get(name);
}

Explain plain() {
  return [](std::exception_ptr p) {
    try {
      std::rethrow_exception(p);
    } catch (const Error& e) {
      return std::make_shared<const ExecError>(e.kind(), e.text() + " in add at train.py:3");
    }
  };
}

cuda::CUfunction kernel(const char* name, void (*fn)(void**)) {
  mock().kernel(name, fn);
  cuda::CUlibrary l = nullptr;
  cuda::CUkernel k = nullptr;
  cuda::check(cuda::driver().cuLibraryLoadData(&l, "", nullptr, nullptr, 0, nullptr, nullptr, 0), "load");
  cuda::check(cuda::driver().cuLibraryGetKernel(&k, l, name), "get");
  return reinterpret_cast<cuda::CUfunction>(k);
}

RefPtr<Storage> host_of(std::initializer_list<int64_t> v) {
  auto s = allocate_storage({}, v.size() * 8);
  std::copy(v.begin(), v.end(), static_cast<int64_t*>(s->ptr));
  return s;
}

void add_one(void** a) { ++**static_cast<int64_t**>(a[0]); }
void alarm(void** a) {
  auto* words = *static_cast<int64_t**>(a[0]);
  words[1] = 42;
  words[0] = 1;
}

void run(Work& w, cuda::CUfunction f, void* argument, unsigned threads = 1) {
  void* args[] = {&argument, nullptr};
  cuda::launch(w, f, {1}, {threads}, 0, args);
}

TEST(Cuda, NamesCountAndProperties) {
  EXPECT_EQ(gpu()->physical, "gpu0:0");
  EXPECT_EQ(gpu()->device.kind, DeviceKind::Cuda);
  EXPECT_EQ(device_count("gpu"), 2);
  EXPECT_EQ(cuda::properties(1).name, "Mock GPU");
  EXPECT_EQ(cuda::driver_version(), 13000);
  EXPECT_NE(gpu("gpu0:1")->queue, gpu()->queue);
  try {
    CompNode::get("gpu2");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("the highest is 1"));
  }
}

TEST(Cuda, ValuesGoUpAndComeDown) {
  Stream* s = gpu()->queue;
  for (size_t bytes : {8ul, 4096ul, 5ul << 20, 70ul << 20}) {
    auto host = allocate_storage({}, bytes), back = allocate_storage({}, bytes);
    auto* words = static_cast<unsigned char*>(host->ptr);
    for (size_t i = 0; i < bytes; ++i) words[i] = static_cast<unsigned char>(i * 7);
    auto there = allocate_storage(gpu()->device, bytes, s);
    EXPECT_FALSE(host_readable(*there));
    OpenWork up(s->open({}, nullptr, {}));
    up->copy(there, 0, host, 0, bytes);
    RefPtr<Work> done = up.close();
    OpenWork down(s->open({}, nullptr, {}));
    down->copy(back, 0, there, 0, bytes);
    wait_for(*down.close());
    EXPECT_EQ(std::memcmp(host->ptr, back->ptr, bytes), 0) << bytes;
  }
}

TEST(Cuda, AReadIsInPlaceForWhoeverWaitsBehindIt) {
  Stream* s = gpu()->queue;
  auto there = allocate_storage(gpu()->device, 8, s);
  auto host = host_of({5}), back = host_of({0});
  OpenWork w(s->open({}, "program", plain()));
  w->copy(there, 0, host, 0, 8);
  w->copy(back, 0, there, 0, 8);
  OpenWork mark(s->open({}, nullptr, {}));
  wait_for(*mark.close());
  EXPECT_EQ(*static_cast<int64_t*>(back->ptr), 5);
}

TEST(Cuda, WorkIsInOrderAndLate) {
  Stream* s = gpu()->queue;
  auto f = kernel("add_one", add_one);
  auto there = allocate_storage(gpu()->device, 8, s);
  auto host = host_of({0});
  mock().delay(2000);
  {
    OpenWork w(s->open({}, nullptr, {}));
    w->copy(there, 0, host, 0, 8);
  }
  RefPtr<Work> last;
  for (int i = 0; i < 40; ++i) {
    OpenWork w(s->open({}, "add", plain()));
    run(*w.get(), f, there->ptr);
    last = w.close();
  }
  EXPECT_FALSE(last->wait_for(std::chrono::milliseconds(0)));
  mock().delay(0);
  Work* after = last.get();
  auto back = host_of({0});
  OpenWork w(s->open({&after, 1}, nullptr, {}));
  w->copy(back, 0, there, 0, 8);
  wait_for(*w.close());
  EXPECT_EQ(*static_cast<int64_t*>(back->ptr), 40);
  EXPECT_TRUE(last->wait_for(std::chrono::milliseconds(0)));
}

TEST(Cuda, StreamsMeetWhereAsked) {
  Stream *a = gpu()->queue, *b = gpu("gpu0:1")->queue;
  auto f = kernel("add_one", add_one);
  auto there = allocate_storage(gpu()->device, 8, a);
  auto host = host_of({0}), back = host_of({0});
  mock().delay(3000);
  OpenWork up(a->open({}, nullptr, {}));
  up->copy(there, 0, host, 0, 8);
  up.close();
  OpenWork w(a->open({}, "add", plain()));
  run(*w.get(), f, there->ptr);
  RefPtr<Work> done = w.close();
  mock().delay(0);
  Work* after = done.get();
  OpenWork down(b->open({&after, 1}, nullptr, {}));
  down->copy(back, 0, there, 0, 8);
  wait_for(*down.close());
  EXPECT_EQ(*static_cast<int64_t*>(back->ptr), 1);
}

TEST(Cuda, AnAlarmFailsTheWorkAndWhatComesAfterOnAllStreams) {
  Stream *a = gpu()->queue, *b = gpu("gpu0:1")->queue;
  auto f = kernel("alarm", alarm);
  OpenWork w(a->open({}, "gather", plain()));
  int64_t* words = cuda::error_words(
      *w.get(), [](const int64_t* at) { fail(ErrorKind::Index, "gather: index {} is out of range.", at[1]); });
  run(*w.get(), f, words);
  RefPtr<Work> bad = w.close();
  Work* after = bad.get();
  OpenWork behind(b->open({&after, 1}, "add", plain()));
  RefPtr<Work> late = behind.close();
  Work* after2 = late.get();
  OpenWork third(a->open({&after2, 1}, "add", plain()));
  RefPtr<Work> later = third.close();
  while (!later->wait_for(std::chrono::milliseconds(50))) continue;
  ASSERT_TRUE(later->error());
  EXPECT_EQ(later->error(), bad->error());
  EXPECT_EQ(late->error(), bad->error());
  EXPECT_THAT(bad->error()->text, HasSubstr("index 42 is out of range. in add at train.py:3"));
  OpenWork fine(a->open({}, "add", plain()));
  wait_for(*fine.close());
}

TEST(Cuda, WorkIsRecordedOnceAndRunAgain) {
  Stream* s = gpu()->queue;
  auto add = kernel("add_one", add_one), bad = kernel("alarm", alarm);
  const Capture* capture = capture_of(DeviceKind::Cuda);
  ASSERT_TRUE(capture);
  auto there = allocate_storage(gpu()->device, 8, s);
  auto host = host_of({0}), back = host_of({0});
  auto value = [&] {
    OpenWork down(s->open({}, nullptr, {}));
    down->copy(back, 0, there, 0, 8);
    wait_for(*down.close());
    return *static_cast<int64_t*>(back->ptr);
  };
  OpenWork up(s->open({}, nullptr, {}));
  up->copy(there, 0, host, 0, 8);
  up.close();
  OpenWork w(s->open({}, "program", plain()));
  ASSERT_TRUE(capture->begin(*w.get()));
  for (int i = 0; i < 3; ++i) run(*w.get(), add, there->ptr);
  EXPECT_EQ(value(), 0);  // what others enqueue meanwhile is not recorded
  auto recording = capture->end(*w.get());
  ASSERT_TRUE(recording);
  w.close();
  EXPECT_EQ(value(), 0);
  for (int i = 0; i < 4; ++i) {
    OpenWork again(s->open({}, "program", plain()));
    capture->replay(*again.get(), recording);
  }
  EXPECT_EQ(value(), 12);
  // An error is told by the run it happens in.
  OpenWork second(s->open({}, "program", plain()));
  ASSERT_TRUE(capture->begin(*second.get()));
  run(*second.get(), bad,
      cuda::error_words(*second.get(), [](const int64_t* at) { fail(ErrorKind::Index, "index {}.", at[1]); }));
  recording = capture->end(*second.get());
  wait_for(*second.close());
  for (int i = 0; i < 2; ++i) {
    OpenWork failing(s->open({}, "program", plain()));
    capture->replay(*failing.get(), recording);
    EXPECT_THROW(wait_for(*failing.close()), Error);
  }
  // A copy from the host is not for recordings.
  OpenWork third(s->open({}, "program", plain()));
  ASSERT_TRUE(capture->begin(*third.get()));
  third->copy(there, 0, host, 0, 8);
  EXPECT_FALSE(capture->end(*third.get()));
}

TEST(Cuda, ARefusedLaunchSaysWhatWasAsked) {
  auto f = kernel("add_one", add_one);
  OpenWork w(gpu()->queue->open({}, "add", plain()));
  try {
    run(*w.get(), f, nullptr, 2048);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("1x1x1 blocks of 2048x1x1 threads"));
  }
}

TEST(Cuda, ManyThreadsWaitAndEnqueue) {
  auto f = kernel("add_one", add_one);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t, f] {
      Stream* s = gpu(t % 2 ? "gpu0:1" : "gpu0")->queue;
      auto there = allocate_storage(gpu()->device, 8, s);
      auto host = host_of({0}), back = host_of({0});
      OpenWork up(s->open({}, nullptr, {}));
      up->copy(there, 0, host, 0, 8);
      up.close();
      for (int i = 0; i < 1500; ++i) {
        OpenWork w(s->open({}, "add", plain()));
        run(*w.get(), f, there->ptr);
        if (i % 100 == 0) wait_for(*w.close());
      }
      OpenWork down(s->open({}, nullptr, {}));
      down->copy(back, 0, there, 0, 8);
      wait_for(*down.close());
      EXPECT_EQ(*static_cast<int64_t*>(back->ptr), 1500);
    });
  for (auto& t : threads) t.join();
}

TEST(Cuda, MemoryIsAlignedLimitedAndGivenBack) {
  Pool& pool = Pool::of(gpu()->device);
  std::vector<RefPtr<Storage>> held;
  for (int i = 0; i < 4; ++i) {
    held.push_back(allocate_storage(gpu()->device, size_t{40} << 20, gpu()->queue));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(held.back()->ptr) % 4096, 0u);
  }
  EXPECT_GE(pool.stats().allocated, size_t{160} << 20);
  EXPECT_THROW(allocate_storage(gpu()->device, size_t{4} << 30, gpu()->queue), Error);
  pool.set_limit(pool.stats().allocated + 1024);
  EXPECT_THROW(allocate_storage(gpu()->device, 1 << 20, gpu()->queue), Error);
  pool.set_limit(0);
  held.clear();
  pool.trim();
  EXPECT_LT(pool.stats().reserved, size_t{40} << 20);
  auto [total, free] = Backend::of(DeviceKind::Cuda).memory(gpu()->device);
  EXPECT_EQ(total, size_t{1} << 30);
  EXPECT_LE(free, total);
}

TEST(Cuda, AForkedChildIsTold) {
  Stream* s = gpu()->queue;
  const pid_t child = fork();
  if (child == 0) {
    int rc = 1;
    try {
      s->open({}, "add", plain());
    } catch (const Error& e) {
      rc = std::strstr(e.what(), "forked process cannot use CUDA") ? 0 : 2;
    }
    _exit(rc);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  OpenWork w(s->open({}, "add", plain()));
  wait_for(*w.close());
}

// The last: the device does not come back.
TEST(Cuda, ZLostDeviceIsToldOnce) {
  Stream* s = gpu("gpu1")->queue;
  auto f = kernel("add_one", add_one);
  auto there = allocate_storage(gpu("gpu1")->device, 8, s);
  mock().get<void(int64_t, int)>("mock_break")(3, 700);
  std::vector<RefPtr<Work>> works;
  std::string refused;
  for (int i = 0; i < 30; ++i) try {
      OpenWork w(s->open({}, "add", plain()));
      run(*w.get(), f, there->ptr);
      works.push_back(w.close());
    } catch (const Error& e) {
      refused = e.what();
    }
  for (auto& w : works)
    while (!w->wait_for(std::chrono::milliseconds(50))) continue;
  auto e = works.back()->error();
  ASSERT_TRUE(e);
  EXPECT_THAT(e->text, HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_THAT(e->text, HasSubstr("in add at train.py:3"));
  EXPECT_THROW(s->open({}, "add", plain()), Error);
  s->drain();
  OpenWork mark(s->open({}, nullptr, {}));
  wait_for(*mark.close());  // nothing new to tell
  mock().get<void()>("mock_mend")();
}

}  // namespace
}  // namespace mge
