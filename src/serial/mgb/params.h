// The parameter tables of MegEngine's model files: one row each with the number it has in the union, its name and its
// fields in slot order. Reader and writer share the rows, so no table is typed twice and none is generated.
//   Param p = {.table = find_table("Pooling"), .fields = {{"window_h", int64_t{3}}}};
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "compat/params.h"

namespace mge::serial::mgb {

/// How a field lies in its table.
enum class Slot : char {
  U32 = 'u',  // also enums
  I32 = 'i',
  U64 = 'q',
  F32 = 'f',
  F64 = 'd',
  Bool = 'b',
  Type = 't',   // a byte: the number of a dtype
  Ints = 'I',   // [i32]
  Steps = 'A',  // AxisAddRemove: [struct {i8 method, i32 axis}]
  Items = 'X',  // IndexDescMaskDump: [struct {i8 axis, bool begin, end, step, idx}]
  DType = 'D',  // the whole table is a dtype
};

struct ParamField {
  std::string_view name;
  Slot slot;
  double value;  // the default
};
struct ParamTable {
  int number;  // in the union
  std::string_view name;
  std::vector<ParamField> fields;
};

struct Param {
  const ParamTable* table = nullptr;
  std::vector<compat::NamedParam> fields;  // a reader gives all of them, a writer those that differ from the defaults
};

/// Null when there is none of this number.
const ParamTable* table_at(int number);
/// An internal error when there is none.
const ParamTable& table_named(std::string_view name);

/// Numbers of dtypes in files. -1 and false where the other side has no such type.
int dtype_number(DType t);
bool dtype_from_number(int n, DType* out);

/// The registered name as files write it: XXH64 of the name, with its final NUL byte (`versioned`), or without it and
/// without "V<digit>".
uint64_t type_id(std::string_view name, bool versioned);

}  // namespace mge::serial::mgb
