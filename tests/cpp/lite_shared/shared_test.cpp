// What a user of liblite.so sees: public headers only, and exceptions that cross the library's border.
#include <gtest/gtest.h>
#ifndef _WIN32
#include <dlfcn.h>
#endif

#include <string>

#include "lite-c/global_c.h"
#include "lite/global.h"

namespace {

const std::string kPath = MGE_TEST_DATA "/lite/net_v1.mge";

TEST(LiteShared, CppApi) {
  lite::Network net;
  net.load_model(kPath);
  net.forward();
  net.wait();
  EXPECT_EQ(net.get_output_tensor(0)->get_layout().shapes[1], 5u);
  EXPECT_THROW(net.get_io_tensor("nope"), lite::Error);
  EXPECT_THROW(net.get_io_tensor("nope"), std::runtime_error);
  EXPECT_THROW(lite::Network().load_model("/nowhere"), lite::Error);
}

// Programs of C++14 that take its address link to the library's; whoever optimises the library sees nobody who does.
TEST(LiteShared, HasTheConstantOfTheHeader) {
#ifndef _WIN32
  const void* at = dlsym(RTLD_DEFAULT, "_ZN4lite6Layout6MAXDIME");
  ASSERT_NE(at, nullptr);
  EXPECT_EQ(*static_cast<const uint32_t*>(at), 7u);
#endif
}

TEST(LiteShared, CApi) {
  LiteNetwork net;
  ASSERT_EQ(LITE_make_network(&net, *default_config(), *default_network_io()), 0);
  ASSERT_EQ(LITE_load_model_from_path(net, kPath.c_str()), 0) << LITE_get_last_error();
  ASSERT_EQ(LITE_forward(net), 0);
  ASSERT_EQ(LITE_wait(net), 0);
  ASSERT_EQ(LITE_destroy_network(net), 0);
  EXPECT_EQ(LITE_forward(net), -1);
}

}  // namespace
