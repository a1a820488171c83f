#include "lite/tensor.h"

#include <algorithm>
#include <cstring>

#include "kernel/copy.h"
#include "lite/convert.h"
#include "lite/error.h"
#include "lite/tensor_impl.h"

namespace lite {

// For programs of C++14, where the header's is a declaration alone.
constexpr uint32_t Layout::MAXDIM __attribute__((used));

namespace {

void check_device(LiteDeviceType type) {
  MGE_CHECK(type == LITE_CPU || type == LITE_DEVICE_DEFAULT, NotImplemented,
            "lite: there are no tensors on device type {}: this library runs on the CPU; use LITE_CPU.",
            static_cast<int>(type));
}

std::shared_ptr<Tensor::Impl> make_impl(LiteDeviceType type, int id, int stream, const Layout& layout, bool pinned) {
  return guarded([&] {
    check_device(type);
    auto impl = std::make_shared<Tensor::Impl>();
    impl->device_id = id;
    impl->stream_id = stream;
    impl->pinned = pinned;
    impl->set_layout(layout);
    return impl;
  });
}

mge::DType dtype_of_size(size_t bytes) {
  switch (bytes) {
    case 1:
      return mge::DType::U8;
    case 2:
      return mge::DType::U16;
    case 4:
      return mge::DType::I32;
    default:
      return mge::DType::I64;
  }
}

mge::TensorArg as_bytes(mge::TensorArg a) {
  const auto size = static_cast<int64_t>(mge::dtype_size(a.dtype));
  for (int i = 0; i < a.shape.rank; ++i) a.layout.stride[i] *= size;
  a.layout.stride[a.shape.rank] = 1;
  a.shape.push_back(size);
  a.dtype = mge::DType::U8;
  return a;
}

// Memory of the program's own may begin anywhere; kernels move words.
void move_values(const mge::TensorArg& src, const mge::TensorArg& dst) {
  const auto places = reinterpret_cast<uintptr_t>(src.ptr) | reinterpret_cast<uintptr_t>(dst.ptr);
  if (places % mge::dtype_size(src.dtype))
    mge::copy_strided(as_bytes(src), as_bytes(dst));
  else
    mge::copy_strided(src, dst);
}

// start:end:step of an axis as in Python, and in MegEngine, where the sizes of the interface carry negative numbers,
// too: those count from the end, a bound behind it is the end, a negative step goes backwards.
struct PySlice {
  int64_t start, end, step, count;
  bool fits;  // nothing begins before the first element
};
PySlice py_slice(size_t start, size_t end, size_t step, int64_t size) {
  const auto given = [size](size_t v) {
    const auto n = static_cast<int64_t>(v);
    return n < 0 ? n + size : n;
  };
  PySlice c{given(start), given(end), static_cast<int64_t>(step), 0, false};
  c.fits = c.step != 0 && c.start >= 0 && (c.end >= 0 || c.step < 0);
  if (!c.fits) return {static_cast<int64_t>(start), static_cast<int64_t>(end), c.step, 0, false};
  if (c.step > 0) {
    c.end = std::min(c.end, size);
    c.count = c.start < c.end ? (c.end - c.start - 1) / c.step + 1 : 0;
  } else {
    c.start = std::min(c.start, size - 1);
    c.end = std::max<int64_t>(c.end, -1);
    c.count = c.start > c.end ? (c.end - c.start + 1) / c.step + 1 : 0;
  }
  return c;
}

// Every function of Tensor: one thread at a time, and errors as lite::Error.
template <class F>
auto locked(const std::shared_ptr<Tensor::Impl>& impl, F&& body) -> decltype(body()) {
  return guarded([&] {
    std::lock_guard lock(impl->mutex);
    return body();
  });
}
template <class F>
void locked(const std::shared_ptr<Tensor::Impl>& a, const std::shared_ptr<Tensor::Impl>& b, F&& body) {
  guarded([&] {
    if (a == b) {
      std::lock_guard lock(a->mutex);
      return body();
    }
    std::scoped_lock lock(a->mutex, b->mutex);
    body();
  });
}

}  // namespace

void Tensor::Impl::make_contiguous() {
  int64_t s = 1;
  for (size_t i = layout.ndim; i-- > 0;) {
    stride[i] = s;
    s *= static_cast<int64_t>(layout.shapes[i]);
  }
}

void Tensor::Impl::set_layout(const Layout& l) {
  check_layout(l);
  if (l == layout && memory) return;  // a view stays a view
  size_t need = layout_bytes(l);
  if (memory && (need > memory->bytes || !whole())) {
    memory.reset();  // of the library or of the program: who sets a layout that is too large for it gives other memory
  }
  layout = l;
  offset = 0;
  make_contiguous();
}

void* Tensor::Impl::ptr() {
  MGE_CHECK(layout.ndim > 0, Value, "lite: the tensor has no layout yet. Call set_layout first.");
  if (!memory) {
    auto m = std::make_shared<Memory>();
    m->bytes = layout_bytes(layout);
    m->storage = mge::allocate_storage({}, std::max<size_t>(m->bytes, 1));
    m->ptr = m->storage->ptr;
    std::memset(m->ptr, 0, m->bytes);
    memory = std::move(m);
  }
  return static_cast<char*>(memory->ptr) + offset;
}

bool Tensor::Impl::contiguous() const {
  int64_t s = 1;
  for (size_t i = layout.ndim; i-- > 0;) {
    if (layout.shapes[i] > 1 && stride[i] != s) return false;
    s *= static_cast<int64_t>(layout.shapes[i]);
  }
  return true;
}

void Tensor::Impl::adopt(void* p, size_t bytes) {
  MGE_CHECK(layout.ndim > 0, Value,
            "lite: reset needs a layout. Call set_layout first, or give the layout with the memory.");
  MGE_CHECK(p, Value, "lite: reset got a null pointer.");
  size_t need = layout_bytes(layout);
  MGE_CHECK(bytes >= need, Value, "lite: {} bytes of memory cannot hold a tensor {} of {} bytes.", bytes,
            layout_text(layout), need);
  auto m = std::make_shared<Memory>();
  m->ptr = p;
  m->bytes = bytes;
  adopt(std::move(m));
}

void Tensor::Impl::adopt(std::shared_ptr<Memory> m) {
  memory = std::move(m);
  offset = 0;
  make_contiguous();
}

mge::TensorArg Tensor::Impl::arg() {
  mge::TensorArg a;
  a.ptr = ptr();
  a.dtype = dtype_of_size(layout.get_elem_size());
  a.shape = to_shape(layout, -1);
  for (size_t i = 0; i < layout.ndim; ++i) a.layout.stride[i] = stride[i];
  return a;
}

void Tensor::Impl::copy_from(Impl& src) {
  MGE_CHECK(src.layout.ndim > 0, Value, "lite: copy_from: the source has no layout, so nothing to copy.");
  if (&src == this) return;
  if (whole() || !memory) {
    set_layout(src.layout);
  } else {
    MGE_CHECK(layout == src.layout, Value, "lite: copy_from: a view keeps its layout {}; it cannot take {}.",
              layout_text(layout), layout_text(src.layout));
  }
  // Views of one memory may overlap: then the source is copied to its own memory first.
  const std::pair<const char*, const char*> from = src.extent(), to = extent();
  if (from.first < to.second && to.first < from.second) {
    Impl aside;
    aside.set_layout(src.layout);
    move_values(src.arg(), aside.arg());
    return move_values(aside.arg(), arg());
  }
  move_values(src.arg(), arg());
}

std::pair<const char*, const char*> Tensor::Impl::extent() {
  const auto* begin = static_cast<const char*>(ptr());
  int64_t first = 0, last = 0;  // elements; the first lies before `begin` where an axis goes backwards
  for (size_t i = 0; i < layout.ndim; ++i) {
    if (layout.shapes[i] == 0) return {begin, begin};
    const int64_t way = static_cast<int64_t>(layout.shapes[i] - 1) * stride[i];
    (way < 0 ? first : last) += way;
  }
  const auto size = static_cast<int64_t>(layout.get_elem_size());
  return {begin + first * size, begin + (last + 1) * size};
}

Tensor::Tensor() : Tensor(LITE_CPU) {}
Tensor::Tensor(LiteDeviceType type, bool pinned) : impl_(make_impl(type, 0, 0, {}, pinned)) {}
Tensor::Tensor(LiteDeviceType type, const Layout& layout, bool pinned) : impl_(make_impl(type, 0, 0, layout, pinned)) {}
Tensor::Tensor(int id, LiteDeviceType type, const Layout& layout, bool pinned)
    : impl_(make_impl(type, id, 0, layout, pinned)) {}
Tensor::Tensor(int id, int stream, LiteDeviceType type, bool pinned) : impl_(make_impl(type, id, stream, {}, pinned)) {}
Tensor::Tensor(LiteBackend, LiteDeviceType type, int id, const Layout& layout, bool pinned)
    : impl_(make_impl(type, id, 0, layout, pinned)) {}
Tensor::Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tensor::Tensor(const Tensor&) = default;
Tensor& Tensor::operator=(const Tensor&) = default;
Tensor::~Tensor() = default;

LiteDeviceType Tensor::get_device_type() const { return impl_->device_type; }
int Tensor::get_device_id() const { return impl_->device_id; }
Layout Tensor::get_layout() const {
  return locked(impl_, [&] { return impl_->layout; });
}
bool Tensor::is_pinned_host() const { return impl_->pinned; }
size_t Tensor::get_tensor_total_size_in_byte() const {
  return locked(impl_, [&] { return layout_bytes(impl_->layout); });
}
bool Tensor::is_continue_memory() const {
  return locked(impl_, [&] { return impl_->contiguous(); });
}
void Tensor::update_from_implement() {}

void* Tensor::get_memory_ptr() const {
  return locked(impl_, [&] { return impl_->ptr(); });
}

void* Tensor::get_memory_ptr(const std::vector<size_t>& idx) const {
  return locked(impl_, [&] {
    const Layout& l = impl_->layout;
    MGE_CHECK(idx.size() <= l.ndim, Index, "lite: an index of {} dimensions for a tensor {}.", idx.size(),
              layout_text(l));
    int64_t at = 0;
    for (size_t i = 0; i < idx.size(); ++i) {
      MGE_CHECK(idx[i] < l.shapes[i], Index, "lite: index {} of axis {} is outside of {}.", idx[i], i, layout_text(l));
      at += static_cast<int64_t>(idx[i]) * impl_->stride[i];
    }
    return static_cast<void*>(static_cast<char*>(impl_->ptr()) + at * static_cast<int64_t>(l.get_elem_size()));
  });
}

void Tensor::set_layout(const Layout& layout) {
  locked(impl_, [&] { impl_->set_layout(layout); });
}

void Tensor::reset(void* data, size_t bytes) {
  locked(impl_, [&] { impl_->adopt(data, bytes); });
}

void Tensor::reset(void* data, const Layout& layout) {
  locked(impl_, [&] {
    MGE_CHECK(data, Value, "lite: reset got a null pointer.");
    check_layout(layout);
    impl_->memory.reset();
    impl_->set_layout(layout);
    impl_->adopt(data, layout_bytes(layout));
  });
}

void Tensor::reshape(const std::vector<int>& shape) {
  locked(impl_, [&] {
    const Layout& old = impl_->layout;
    MGE_CHECK(shape.size() >= 1 && shape.size() <= Layout::MAXDIM, Value,
              "lite: reshape takes 1 to {} dimensions; got {}.", Layout::MAXDIM, shape.size());
    MGE_CHECK(impl_->contiguous(), Value,
              "lite: a tensor whose memory is not contiguous cannot be reshaped. Copy it first.");
    Layout l;
    l.data_type = old.data_type;
    l.ndim = shape.size();
    size_t known = 1;
    int open = -1;
    for (size_t i = 0; i < shape.size(); ++i) {
      MGE_CHECK(shape[i] >= -1 && !(shape[i] == -1 && open >= 0), Value,
                "lite: reshape takes dimensions of 0 or more and at most one -1; got {} at {}.", shape[i], i);
      if (shape[i] == -1)
        open = static_cast<int>(i);
      else
        known *= l.shapes[i] = static_cast<size_t>(shape[i]);
    }
    size_t n = layout_elements(old);
    if (open >= 0 && known > 0) l.shapes[open] = n / known;
    check_layout(l);
    MGE_CHECK(layout_elements(l) == n, Value, "lite: cannot reshape {} ({} elements) to {} ({}).", layout_text(old), n,
              layout_text(l), layout_elements(l));
    impl_->layout = l;
    int64_t s = 1;
    for (size_t i = l.ndim; i-- > 0; s *= static_cast<int64_t>(l.shapes[i])) impl_->stride[i] = s;
  });
}

std::shared_ptr<Tensor> Tensor::slice(const std::vector<size_t>& start, const std::vector<size_t>& end,
                                      const std::vector<size_t>& step) {
  return locked(impl_, [&] {
    const Layout& l = impl_->layout;
    MGE_CHECK(start.size() == end.size() && start.size() <= l.ndim && (step.empty() || step.size() == start.size()),
              Value, "lite: slice needs as many starts as ends (and steps), at most {} for {}; got {}, {} and {}.",
              l.ndim, layout_text(l), start.size(), end.size(), step.size());
    impl_->ptr();
    auto out = std::make_shared<Impl>(*impl_);
    for (size_t i = 0; i < start.size(); ++i) {
      const auto size = static_cast<int64_t>(l.shapes[i]);
      const PySlice cut = py_slice(start[i], end[i], step.empty() ? 1 : step[i], size);
      MGE_CHECK(cut.fits, Value, "lite: slice [{}:{}:{}] of axis {} does not fit {}.", cut.start, cut.end, cut.step, i,
                layout_text(l));
      if (cut.count > 0)
        out->offset += static_cast<size_t>(cut.start * impl_->stride[i] * static_cast<int64_t>(l.get_elem_size()));
      out->layout.shapes[i] = static_cast<size_t>(cut.count);
      if (cut.count > 1) out->stride[i] = impl_->stride[i] * cut.step;
    }
    return TensorAccess::make(std::move(out));
  });
}

void Tensor::fill_zero() {
  locked(impl_, [&] {
    if (impl_->contiguous()) {
      void* p = impl_->ptr();
      std::memset(p, 0, layout_bytes(impl_->layout));
      return;
    }
    Impl zeros;
    zeros.set_layout(impl_->layout);
    move_values(zeros.arg(), impl_->arg());
  });
}

void Tensor::copy_from(const Tensor& src) {
  locked(impl_, src.impl_, [&] { impl_->copy_from(*src.impl_); });
}

void Tensor::share_memory_with(const Tensor& src) {
  locked(impl_, src.impl_, [&] {
    src.impl_->ptr();
    impl_->layout = src.impl_->layout;
    impl_->memory = src.impl_->memory;
    impl_->offset = src.impl_->offset;
    std::copy(std::begin(src.impl_->stride), std::end(src.impl_->stride), impl_->stride);
  });
}

std::shared_ptr<Tensor> concat_tensors(const std::vector<const Tensor*>& tensors, int dim, LiteDeviceType device,
                                       int device_id) {
  MGE_CHECK(!tensors.empty(), Value, "lite: concat needs at least one tensor.");
  check_device(device);
  std::vector<Tensor::Impl*> all;
  for (const Tensor* t : tensors) all.push_back(&TensorAccess::impl(*t));
  const TensorLocks locks(TensorLocks::List(all.begin(), all.end()));
  Tensor::Impl& first = TensorAccess::impl(*tensors[0]);
  Layout l = first.layout;
  MGE_CHECK(dim >= 0 && static_cast<size_t>(dim) < l.ndim, Index, "lite: concat along axis {} of {}.", dim,
            layout_text(l));
  size_t total = 0;
  for (const Tensor* t : tensors) {
    Layout x = t->get_layout();
    size_t along = static_cast<size_t>(dim) < x.ndim ? x.shapes[dim] : 0;
    x.shapes[dim] = l.shapes[dim];
    MGE_CHECK(x == l, Value, "lite: concat along axis {}: {} does not fit {}.", dim, layout_text(t->get_layout()),
              layout_text(l));
    total += along;
  }
  l.shapes[dim] = total;
  auto out = std::make_shared<Tensor::Impl>();
  out->device_id = device_id == -1 ? first.device_id : device_id;
  out->set_layout(l);
  mge::TensorArg dst = out->arg();
  char* base = static_cast<char*>(dst.ptr);
  size_t at = 0;
  for (const Tensor* t : tensors) {
    mge::TensorArg src = TensorAccess::impl(*t).arg();
    dst.shape = src.shape;
    dst.ptr = base + at * static_cast<size_t>(out->stride[dim]) * l.get_elem_size();
    move_values(src, dst);
    at += static_cast<size_t>(src.shape[dim]);
  }
  return TensorAccess::make(std::move(out));
}

std::shared_ptr<Tensor> TensorUtils::concat(const std::vector<Tensor>& tensors, int dim, LiteDeviceType device,
                                            int device_id) {
  return guarded([&] {
    std::vector<const Tensor*> list;
    for (const Tensor& t : tensors) list.push_back(&t);
    return concat_tensors(list, dim, device, device_id);
  });
}

}  // namespace lite
