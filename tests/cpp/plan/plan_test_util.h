// Buffers from numbers, and back.
#pragma once
#include <gmock/gmock.h>

#include <cstring>

#include "ir/text.h"
#include "plan/oracle.h"
#include "plan/program.h"

namespace mge {

inline Buffer random_buffer(const Meta& m, uint32_t seed) {
  Buffer b = allocate_buffer(m);
  for (int64_t i = 0; i < m.shape.numel(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    if (m.dtype == DType::F32)
      static_cast<float*>(b.storage->ptr)[i] = static_cast<float>(seed >> 8) / static_cast<float>(1 << 23) - 1.0f;
    else if (m.dtype == DType::I32)
      static_cast<int32_t*>(b.storage->ptr)[i] = static_cast<int32_t>(seed >> 24) % 3;
    else
      std::memset(b.storage->ptr, 0, m.bytes());
  }
  return b;
}

inline Buffer allocate_copy(const Meta& m, const Buffer& b) {
  Buffer from = make_contiguous(m, b), to = allocate_buffer(m);
  std::memcpy(to.storage->ptr, from.data(m.dtype), m.bytes());
  return to;
}

inline Buffer floats(std::initializer_list<float> v) {
  Meta m;
  m.shape = Shape{static_cast<int64_t>(v.size())};
  Buffer b = allocate_buffer(m);
  std::copy(v.begin(), v.end(), static_cast<float*>(b.storage->ptr));
  return b;
}

inline std::vector<float> read(const Meta& m, const Buffer& b) {
  Buffer c = make_contiguous(m, b);
  auto* p = static_cast<const float*>(c.data(m.dtype));
  return {p, p + m.shape.numel()};
}
inline std::vector<float> out(const Program& p, size_t i) { return read(p.output_meta(i), p.output(i)); }
inline std::vector<float> var(const Program& p, size_t i) { return read(p.var_meta(i), p.var(i)); }

inline std::string error_of(const std::function<void()>& f, ErrorKind kind) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(kind)) << e.text();
    return e.text();
  }
  return "no error";
}

}  // namespace mge
