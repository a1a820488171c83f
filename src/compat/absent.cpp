// Classes that have no rule, with the reason that apply gives.
#include "compat/op_class.h"

namespace mge::compat {
namespace {

MGE_COMPAT_ENUM(CollectiveMode, "CollectiveComm", "Mode", REDUCE_SUM, BROADCAST, ALL_GATHER, REDUCE_SCATTER_SUM,
                ALL_REDUCE_SUM, ALL_REDUCE_MAX, ALL_REDUCE_MIN, ALL_REDUCE_PROD, GATHER, SCATTER, ALL_TO_ALL)

struct Collective {
  CollectiveMode mode = CollectiveMode::REDUCE_SUM;
  std::string key;
  int64_t nr_devices = 0, rank = 0;
  bool is_root = false, local_grad = false;
  std::string addr;
  int64_t port = 0;
  TypeParam dtype;
  std::string backend, comp_node;
  static constexpr auto fields() {
    using P = Collective;
    return field_list("mode", &P::mode, "key", &P::key, "nr_devices", &P::nr_devices, "rank", &P::rank, "is_root",
                      &P::is_root, "local_grad", &P::local_grad, "addr", &P::addr, "port", &P::port, "dtype", &P::dtype,
                      "backend", &P::backend, "comp_node", &P::comp_node);
  }
};
struct RemoteSend {
  std::string key, addr;
  int64_t port = 0, rank_to = 0;
  std::string backend;
  static constexpr auto fields() {
    using P = RemoteSend;
    return field_list("key", &P::key, "addr", &P::addr, "port", &P::port, "rank_to", &P::rank_to, "backend",
                      &P::backend);
  }
};
struct RemoteRecv {
  std::string key, addr;
  int64_t port = 0, rank_from = 0;
  NodeParam cn;
  Ints shape{};
  TypeParam dtype;
  std::string backend;
  static constexpr auto fields() {
    using P = RemoteRecv;
    return field_list("key", &P::key, "addr", &P::addr, "port", &P::port, "rank_from", &P::rank_from, "cn", &P::cn,
                      "shape", &P::shape, "dtype", &P::dtype, "backend", &P::backend);
  }
};
struct Precision {
  int64_t precision = 1;
  static constexpr auto fields() { return field_list("precision", &Precision::precision); }
};
struct Extern {
  Rows output_shapes;
  std::string name;
  Bytes data;
  int64_t data_len = 0;
  Ints output_dtypes{};
  static constexpr auto fields() {
    using P = Extern;
    return field_list("output_shapes", &P::output_shapes, "name", &P::name, "data", &P::data, "data_len", &P::data_len,
                      "output_dtypes", &P::output_dtypes);
  }
};
MGE_COMPAT_ENUM(RelayoutMode, "RelayoutFormat", "Mode", NHWC_NHWCD4, NHWCD4_NHWC, NHWC_NHWCD4I, NCHW_NHWCD4,
                NCHW_NHWCD4I, NHWCD4I_NCHW, NHWCD4_NCHW, INTER_WEIGHT_DENSE, INTER_WEIGHT_DENSEI, INTER_WEIGHT_GROUP,
                INTER_WEIGHT_GROUPI, INTER_WEIGHT_CHAN, INTER_WEIGHT_CHANI, INTER_WEIGHT_DENSEI_DOT,
                INTER_WEIGHT_GROUPI_DOT, NCHW4_CHWN4, CHWN4_NCHW4, NCHW_NCHW88_CONV_DENSE_WEIGHT,
                NCHW_NCHW88_CONV_CHAN_WEIGHT, NCHW_NCHW88_CONV_GROUP_WEIGHT, NCHW_NCHW88, NCHW88_NCHW,
                NCHW_NCHW4_IC_SMALL, NCHW_NCHW4_IC_SMALL_CONV_DENSE_WEIGHT, NCHW_NCHW4, NCHW4_NCHW, NCHW_NCHW4_WEIGHT,
                NCHW_NCHW64, NCHW64_NCHW, NCHW_NHWC, NHWC_NCHW, NHWCD4I_NHWC)
struct Relayout {
  RelayoutMode mode = RelayoutMode::NHWC_NHWCD4;
  int64_t oc = 0, group = 1;
  static constexpr auto fields() {
    return field_list("mode", &Relayout::mode, "oc", &Relayout::oc, "group", &Relayout::group);
  }
};
struct Engine {
  Bytes buf;
  int64_t buf_size = 0;
  static constexpr auto fields() { return field_list("buf", &Engine::buf, "buf_size", &Engine::buf_size); }
};
struct CambriconEngine : Engine {
  std::string symbol;
  bool tensor_dim_mutable = false;
  static constexpr auto fields() {
    using P = CambriconEngine;
    return std::tuple_cat(Engine::fields(),
                          field_list("symbol", &P::symbol, "tensor_dim_mutable", &P::tensor_dim_mutable));
  }
};

}  // namespace

void add_absent(Table& t) {
  const char *processes = "it arrives with the distributed package",
             *vendor = "it needs a vendor's library, which this build does not have";
  t.add_absent<Collective>("CollectiveComm", processes);
  t.add_absent<RemoteSend>("RemoteSend", processes);
  t.add_absent<RemoteRecv>("RemoteRecv", processes);
  t.add_absent<Precision>("NvOf", vendor, "NvOf@1");
  t.add_absent<Relayout>("RelayoutFormat", "blocked layouts of files have no rule yet", "RelayoutFormatV1@1");
  t.leave_to_files();
  t.add_absent<Extern>("ExternOpr", "foreign operators have no interface yet", "ExternCOprRunner@1");
  t.add_absent<Engine>("TensorRTRuntime", vendor, "TensorRTRuntimeOpr@1");
  t.add_absent<Engine>("AtlasRuntime", vendor, "AtlasRuntimeOpr@1");
  t.add_absent<Engine>("MagicMindRuntime", vendor, "MagicMindRuntimeOpr@1");
  t.add_absent<CambriconEngine>("CambriconRuntime", vendor, "CambriconRuntimeOpr@1");
}

}  // namespace mge::compat
