#include "kernel/cuda/cudnn_plan.h"

#include "base/error.h"
#include "kernel/cuda/library.h"

namespace mge::cuda {

const Dnn& dnn() {
  static const Dnn* table = [] {
    auto* t = new Dnn;
#define MGE_DNN_LOAD(name, arguments) t->name = reinterpret_cast<int(*) arguments>(cudnn().symbol(#name));
    MGE_CUDNN(MGE_DNN_LOAD)
#undef MGE_DNN_LOAD
    return t;
  }();
  return *table;
}

namespace {

void check_dnn(int status, const char* what, int attribute = 0) {
  MGE_CHECK(status == 0, Env, "cuDNN: {} ({}) failed with status {}.", what, attribute, status);
}

constexpr int64_t kMostWorkspace = int64_t{1} << 30;

int type_of(DType t) {
  return t == DType::F32   ? CUDNN_DATA_FLOAT
         : t == DType::F64 ? CUDNN_DATA_DOUBLE
         : t == DType::F16 ? CUDNN_DATA_HALF
                           : CUDNN_DATA_BFLOAT16;
}

std::unique_ptr<Descriptor> tensor(const ConvKey& k, int64_t id, const int64_t (&d)[4]) {
  auto t = std::make_unique<Descriptor>(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const int64_t row_major[] = {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1};
  const int64_t last[] = {d[1] * d[2] * d[3], 1, d[3] * d[1], d[1]};
  t->set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type_of(k.dtype));
  t->set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, d);
  t->set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, k.channels_last ? last : row_major);
  t->set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  t->set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, k.alignment);
  t->finalize();
  return t;
}

// Engines that compute float32 in less (TF32), or whose results may differ from run to run, are left out.
bool fits(const Descriptor& config, DType t) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  int64_t count = 0;
  if (dnn().cudnnBackendGetAttribute(config.raw, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                     &engine.raw) != 0)
    return false;
  int notes[32];
  count = 0;
  if (dnn().cudnnBackendGetAttribute(engine.raw, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, 32,
                                     &count, notes) != 0)
    return false;
  const bool exact = t == DType::F32 || t == DType::F64;
  for (int64_t i = 0; i < count; ++i) {
    if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return false;
    if (notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
        notes[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
      return false;
    if (exact && t == DType::F32 && notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE) return false;
  }
  return true;
}

}  // namespace

Descriptor::Descriptor(int kind) {
  check_dnn(dnn().cudnnBackendCreateDescriptor(kind, &raw), "cudnnBackendCreateDescriptor", kind);
}
Descriptor::~Descriptor() {
  if (raw) dnn().cudnnBackendDestroyDescriptor(raw);
}
void Descriptor::set(int attribute, int type, int64_t count, const void* values) {
  check_dnn(dnn().cudnnBackendSetAttribute(raw, attribute, type, count, values), "cudnnBackendSetAttribute", attribute);
}
void Descriptor::finalize() { check_dnn(dnn().cudnnBackendFinalize(raw), "cudnnBackendFinalize"); }

ConvPlan::ConvPlan(const ConvKey& k, DnnHandle handle) {
  const ConvGeom& g = k.g;
  auto keep = [&](std::unique_ptr<Descriptor> d) -> Descriptor& { return *parts.emplace_back(std::move(d)); };
  const Descriptor& x = keep(tensor(k, 1, {g.n, g.c, g.h, g.w}));
  const Descriptor& w = keep(tensor(k, 2, {g.o, g.c / g.groups, g.kh, g.kw}));
  const Descriptor& y = keep(tensor(k, 3, {g.n, g.o, g.oh, g.ow}));

  Descriptor& conv = keep(std::make_unique<Descriptor>(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR));
  const bool wide = k.dtype == DType::F64;
  const int64_t stride[] = {g.sh, g.sw}, pad[] = {g.ph, g.pw}, dilate[] = {g.dh, g.dw};
  conv.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, wide ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
  conv.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, int{CUDNN_CROSS_CORRELATION});
  conv.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, int64_t{2});
  conv.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilate);
  conv.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
  conv.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
  conv.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
  conv.finalize();

  // By role: the kind of descriptor, its first attribute, and its three tensors in the order of the attributes.
  struct Form {
    int kind, alpha;
    const Descriptor* tensors[3];
  };
  const Form forms[] = {{CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                         {&w, &x, &y}},
                        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                         {&w, &x, &y}},
                        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                         {&w, &x, &y}}};
  const Form& form = forms[static_cast<int>(k.role)];
  Descriptor& op = keep(std::make_unique<Descriptor>(form.kind));
  const float one = 1, zero = 0;
  const double one64 = 1, zero64 = 0;
  op.set(form.alpha, wide ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT, 1, wide ? static_cast<const void*>(&one64) : &one);
  op.set(form.alpha + 1, wide ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT, 1,
         wide ? static_cast<const void*>(&zero64) : &zero);
  op.set(form.alpha + 2, conv);
  for (int i = 0; i < 3; ++i) op.set(form.alpha + 3 + i, *form.tensors[i]);
  op.finalize();

  Descriptor& graph = keep(std::make_unique<Descriptor>(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, op);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  graph.finalize();

  for (int mode : {int{CUDNN_HEUR_MODE_A}, int{CUDNN_HEUR_MODE_FALLBACK}}) {
    Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
    if (dnn().cudnnBackendFinalize(heuristic.raw) != 0) continue;
    constexpr int kMost = 24;
    std::unique_ptr<Descriptor> configs[kMost];
    DnnDescriptor raw[kMost];
    for (int i = 0; i < kMost; ++i) {
      configs[i] = std::make_unique<Descriptor>(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      raw[i] = configs[i]->raw;
    }
    int64_t found = 0;
    if (dnn().cudnnBackendGetAttribute(heuristic.raw, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                       kMost, &found, raw) != 0)
      continue;
    for (int64_t i = 0; i < found && i < kMost; ++i) {
      if (!fits(*configs[i], k.dtype)) continue;
      auto p = std::make_unique<Descriptor>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      p->set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
      p->set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, *configs[i]);
      if (dnn().cudnnBackendFinalize(p->raw) != 0) continue;  // this engine cannot do it after all
      int64_t count = 0;
      dnn().cudnnBackendGetAttribute(p->raw, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                     &workspace);
      if (workspace > kMostWorkspace) continue;
      plan = std::move(p);
      parts.push_back(std::move(configs[i]));
      return;
    }
  }
}

}  // namespace mge::cuda
