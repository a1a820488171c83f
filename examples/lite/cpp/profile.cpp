// Where the time and the memory go: profile.json (python -m megengine.tools.profile_analyze reads it) and a folder with
// the plan of memory (graph_info_analyze).
//   profile lenet.mge FOLDER
#include <chrono>

#include "common.h"

static void run(const std::string& model, const std::string& folder) {
  auto net = std::make_shared<lite::Network>();
  net->load_model(model);
  net->get_static_memory_alloc_info(folder);  // makes the folder
  net->enable_profile_performance(folder + "/profile.json");
  for (const std::string& name : net->get_all_input_name()) net->get_io_tensor(name, LITE_INPUT)->fill_zero();

  net->forward();  // the first run pays for memory
  net->wait();
  const int runs = 10;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < runs; ++i) {
    net->forward();
    net->wait();
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  std::printf("%.3f ms each; %s/profile.json, graph.json and StaticMemoryInfo.json\n", took.count() / runs,
              folder.c_str());
}

int main(int argc, char** argv) { return run_example(argc, argv, "profile MODEL FOLDER", run); }
