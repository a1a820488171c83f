// A model that does its own pre-processing: it takes the bytes of an image of any size (make_models.py makes one).
//   image classifier.mge photo.ppm
#include <sstream>

#include "common.h"

static void run(const std::string& model, const std::string& image) {
  // A binary PPM: "P6 width height 255", then one byte each of red, green and blue.
  std::vector<char> file = read_file(image);
  std::istringstream head(std::string(file.data(), std::min<size_t>(file.size(), 64)));
  std::string kind;
  size_t width = 0, height = 0, most = 0;
  head >> kind >> width >> height >> most;
  const size_t begin = static_cast<size_t>(head.tellg()) + 1;
  if (kind != "P6" || most != 255 || file.size() < begin + width * height * 3)
    throw std::runtime_error(image + " is no binary PPM");

  auto net = std::make_shared<lite::Network>();
  net->load_model(model);
  lite::Layout layout = net->get_input_tensor(0)->get_layout();
  layout.shapes[1] = height;
  layout.shapes[2] = width;
  net->get_input_tensor(0)->reset(file.data() + begin, layout);  // uint8 [1,height,width,3]
  net->forward();
  net->wait();
  std::shared_ptr<lite::Tensor> y = net->get_output_tensor(0);
  std::printf("%s\n", describe(net->get_output_name(0), y->get_layout(), y->get_memory_ptr()).c_str());
}

int main(int argc, char** argv) { return run_example(argc, argv, "image MODEL PHOTO.ppm", run); }
