// What the decoders of the two formats share.
#pragma once
#include "serial/mgb/decode.h"
#include "serial/mgb/mgb1_generated.h"

namespace mge::serial::mgb {

struct Damage {
  const std::string& who;
  [[noreturn]] void operator()(const std::string& what) const;
};
/// The buffer that tables lie in.
struct Span {
  const char *begin, *end;
  const Damage& damaged;
  Decoded* owner = nullptr;
};

/// A field of a table whose vtable was checked; null when it is absent, an error when it does not fit the buffer.
const char* field_at(const Span& s, const void* table, int slot, size_t size);
Param read_param(const Span& s, int number, const void* table);
compat::TypeParam read_type(const Span& s, const void* table);  // a null table: open
Meta read_meta(const Span& s, const flatbuffers::Vector<uint32_t>* shape, const void* dtype);
/// Rows of few bits start at whole bytes.
size_t stored_bytes(const Meta& m);
/// The value of a tensor as the graph uses it: of a compressed file (Config.has_compression) the first byte says how.
/// 0: the bytes follow; 1, 2: f32 stride, f32 base, then u8 or u16 each, and a value is stride * that + base.
Bytes value_bytes(const Span& s, const Meta& m, Bytes stored);
/// Lists that lie in the buffer once each have no more entries together than it has bytes; offsets that point to one
/// list again and again would make a small file large.
void count_entries(const Span& s, size_t* total, size_t n);

/// Takes the graph off the front of `bytes`.
File decode1(Decoded& owner, Bytes* bytes, const Damage& damaged);

}  // namespace mge::serial::mgb
