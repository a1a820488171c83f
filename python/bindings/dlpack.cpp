// DLPack both ways, without a copy. The structs are the exchange format's ABI (DLPack 0.8 and 1.0).
#include <algorithm>
#include <cstring>

#include "common.h"
#include "cuda.h"
#include "eager/dispatch.h"
#include "kernel/layouts.h"
#include "op/index/indexing.h"

namespace mge::py {
namespace {

struct DLDevice {
  int32_t type, id;
};
struct DLType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLType dtype;
  int64_t *shape, *strides;  // strides in elements; null = contiguous
  uint64_t byte_offset;
};
struct DLManaged {
  DLTensor tensor;
  void* context;
  void (*deleter)(DLManaged*);
};
struct DLManagedVersioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(DLManagedVersioned*);
  uint64_t flags;
  DLTensor tensor;
};
constexpr int32_t kCpu = 1, kCuda = 2, kPinnedHost = 3;
constexpr uint8_t kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kComplex = 5, kBool = 6;
constexpr const char *kFresh = "dltensor", *kUsed = "used_dltensor", *kFresh1 = "dltensor_versioned",
                     *kUsed1 = "used_dltensor_versioned";

struct TypeRow {
  DType ours;
  uint8_t code, bits;
};
constexpr TypeRow kTypes[] = {
    {DType::F32, kFloat, 32}, {DType::F16, kFloat, 16}, {DType::F64, kFloat, 64}, {DType::BF16, kBfloat, 16},
    {DType::I8, kInt, 8},     {DType::I16, kInt, 16},   {DType::I32, kInt, 32},   {DType::I64, kInt, 64},
    {DType::U8, kUInt, 8},    {DType::U16, kUInt, 16},  {DType::Bool, kBool, 8},  {DType::C64, kComplex, 64},
};

// What an exported capsule keeps alive.
struct Export {
  DLManaged managed;
  RefPtr<Storage> storage;
  int64_t shape[kMaxRank], strides[kMaxRank];
  Stream* home = nullptr;  // of memory on a GPU
  uintptr_t stream = 0;    // the other side's
  ~Export() {
    if (home) wait_for_raw(*home, stream);  // what is enqueued there may still use the memory
  }
};

void drop_capsule(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, kFresh)) return;  // somebody took it over
  auto* m = static_cast<DLManaged*>(PyCapsule_GetPointer(capsule, kFresh));
  m->deleter(m);
}

DType dtype_of(const DLType& t) {
  MGE_CHECK(t.lanes == 1, Type, "from_dlpack: vector elements are not supported; got {} lanes.", t.lanes);
  for (auto& row : kTypes)
    if (row.code == t.code && row.bits == t.bits) return row.ours;
  fail(ErrorKind::Type,
       "from_dlpack: element type code {} of {} bits has no dtype here; convert it to float32 or int32 first.", t.code,
       t.bits);
}

// Memory of the other side as a tensor; `release` is run when the last user is gone, or at once on an error.
TensorPtr adopt(const DLTensor& t, std::function<void()> release) {
  struct Guard {
    std::function<void()>* fn;
    ~Guard() {
      if (fn) (*fn)();
    }
  } guard{&release};
  const bool gpu = t.device.type == kCuda;
  MGE_CHECK(
      gpu || t.device.type == kCpu || t.device.type == kPinnedHost, Value,
      "from_dlpack: the tensor is on device type {}; memory of the CPU and of CUDA devices can be shared. Copy it "
      "to the CPU first.",
      t.device.type);
  MGE_CHECK(t.ndim >= 0 && t.ndim <= kMaxRank, Value, "from_dlpack: at most {} dimensions are supported; got {}.",
            kMaxRank, t.ndim);
  Meta m;
  m.dtype = dtype_of(t.dtype);
  m.cn = gpu ? CompNode::get("gpu" + std::to_string(t.device.id)) : CompNode::default_node();
  for (int i = 0; i < t.ndim; ++i) m.shape.push_back(t.shape[i]);
  check_shape("from_dlpack", m.shape);
  Buffer b;
  b.layout = Layout::contiguous(m.shape);
  for (int i = 0; i < t.ndim && t.strides && m.shape.numel(); ++i) b.layout.stride[i] = t.strides[i];
  const Reach reach = reach_of(m.shape, b.layout);
  const auto size = static_cast<int64_t>(dtype_size(m.dtype));
  b.layout.offset = -reach.low;
  char* data = static_cast<char*>(t.data) + t.byte_offset + reach.low * size;
  const auto bytes = static_cast<size_t>((reach.high - reach.low) * size);
  if (!gpu && reinterpret_cast<uintptr_t>(data) % static_cast<size_t>(size)) {  // kernels read words: a copy
    b.storage = allocate_storage({}, bytes);
    std::memcpy(b.storage->ptr, data, bytes);
  } else {
    guard.fn = nullptr;
    b.storage = wrap_storage(data, bytes, /*writable=*/false, std::move(release));
  }
  if (gpu) {
    // The other side may use the memory again when our work is done, not when the last tensor is gone.
    b.storage->device = m.cn->device;
    b.storage->home = m.cn->queue;
    b.storage->owner = [owner = std::move(b.storage->owner), home = m.cn->queue] { call_behind(*home, owner); };
  }
  if (gpu || !m.cn->queue) return tensor_from_buffer(m, std::move(b));
  Meta host = m;  // others share host memory; a tensor on another device gets a copy
  host.cn = nullptr;
  return tensor_from_host(m, make_contiguous(host, b));
}

// Elements of 64 bits become the dtypes Tensors have.
TensorPtr narrowed(TensorPtr t) {
  DType want = t->meta().dtype == DType::F64   ? DType::F32
               : t->meta().dtype == DType::I64 ? DType::I32
                                               : t->meta().dtype;
  if (want == t->meta().dtype) return t;
  if (want == DType::I32)
    t = apply1(OpRegistry::global().get("check_range"),
               make_attrs(CheckRangeAttrs{INT32_MIN, INT32_MAX, "from_dlpack", "int64 data",
                                          "Tensor(np.from_dlpack(x), dtype=\"int64\") keeps it."}),
               {t.get()});
  const OpDef& cast = OpRegistry::global().get("typecvt");
  NamedAttr a{"dtype", want};
  return apply1(cast, cast.schema.build("from_dlpack", {&a, 1}), {t.get()});
}

}  // namespace

PyObject* to_dlpack(PyObject* o, uintptr_t stream) {
  MGE_PY_TRY
  MGE_CHECK(is_tensor(o), Type, "to_dlpack: needs a Tensor; got {}.", Py_TYPE(o)->tp_name);
  Tensor& t = *tensor_of(o);
  const Meta& m = t.meta();
  const TypeRow* row = std::find_if(std::begin(kTypes), std::end(kTypes), [&](auto& r) { return r.ours == m.dtype; });
  MGE_CHECK(row != std::end(kTypes), Type, "to_dlpack: dtype {} has no DLPack type; cast it with astype first.",
            dtype_name(m.dtype));
  const bool gpu = m.cn && m.cn->device.kind == DeviceKind::Cuda;
  Obj array;
  if (!gpu) array = check(to_numpy(t));  // waits for the value and lets a trace know that the host reads it
  Buffer b = make_contiguous(m, gpu ? device_buffer(t) : read_buffer(t));
  if (b.work) wait_for(*b.work);
  auto* e = new Export;
  if (gpu) {
    e->home = m.cn->queue;
    e->stream = stream;
  }
  e->storage = b.storage;
  for (int i = 0; i < m.shape.rank; ++i) {
    e->shape[i] = m.shape[i];
    e->strides[i] = b.layout.stride[i];
  }
  const DLDevice device = gpu ? DLDevice{kCuda, m.cn->device.index} : DLDevice{kCpu, 0};
  e->managed.tensor = {b.data(m.dtype), device, m.shape.rank, {row->code, row->bits, 1}, e->shape, e->strides, 0};
  e->managed.context = e;
  e->managed.deleter = [](DLManaged* managed) { delete static_cast<Export*>(managed->context); };
  PyObject* capsule = PyCapsule_New(&e->managed, kFresh, drop_capsule);
  if (!capsule) delete e;
  return capsule;
  MGE_PY_CATCH(nullptr)
}

PyObject* from_dlpack(PyObject*, PyObject* capsule) {
  MGE_PY_TRY
  if (PyCapsule_IsValid(capsule, kFresh1)) {
    auto* m = static_cast<DLManagedVersioned*>(PyCapsule_GetPointer(capsule, kFresh1));
    MGE_CHECK(m->major == 1, Value, "from_dlpack: version {}.{} of the format is not known here.", m->major, m->minor);
    if (PyCapsule_SetName(capsule, kUsed1)) return nullptr;
    return wrap(narrowed(adopt(m->tensor, [m] {
      if (m->deleter) m->deleter(m);
    })));
  }
  MGE_CHECK(PyCapsule_IsValid(capsule, kFresh), Type,
            "from_dlpack: needs a DLPack capsule that nobody has used yet, or an object with __dlpack__; got {}.",
            PyCapsule_CheckExact(capsule) ? "a used or foreign capsule" : Py_TYPE(capsule)->tp_name);
  auto* m = static_cast<DLManaged*>(PyCapsule_GetPointer(capsule, kFresh));
  if (PyCapsule_SetName(capsule, kUsed)) return nullptr;
  return wrap(narrowed(adopt(m->tensor, [m] {
    if (m->deleter) m->deleter(m);
  })));
  MGE_PY_CATCH(nullptr)
}

}  // namespace mge::py
