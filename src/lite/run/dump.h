// Writing values to files: text and binary dumps of every value of a graph, and .npy files.
#pragma once
#include <string>
#include <vector>

#include "core/meta.h"

namespace lite {

struct DumpedValue {
  int id;
  std::string name, op, location;
  mge::Meta meta;
  const void* data;                                      // contiguous
  std::vector<std::pair<int, std::string>> inputs = {};  // of its op: those that are dumped too, by id and name
  int opr = 0;                                           // number of its op
  bool moves = false;                                    // its size depends on values, so it has memory in a run only
};

/// Element `i` as a number; the real part of a complex one.
double element_value(mge::DType t, const void* data, int64_t i);
/// "[0.5, 1, ...]".
std::string first_values(const mge::Meta& m, const void* data, size_t max_values);
/// "[0.5, 1, ...]min=… max=… mean=… l2=… sd=…": the first values and what describes the rest.
std::string value_text(const mge::Meta& m, const void* data, size_t max_values);
/// One paragraph per value, as MegEngine writes them. `append` adds to the file.
void write_text_dump(const std::string& path, const std::vector<DumpedValue>& values, bool append);
/// <dir>/<id %06x> each: u32 name length, u32 dtype, u32 7, u32 shape[7], name, raw data. The folder is made when
/// missing.
void write_binary_dump(const std::string& dir, const std::vector<DumpedValue>& values);
/// One such file.
void write_binary_value(const std::string& path, const DumpedValue& value);
/// NumPy's format 1.0. bfloat16 is written as uint16, since NumPy has no such type.
void write_npy(const std::string& path, const mge::Meta& m, const void* data);
void make_folder(const std::string& dir);

}  // namespace lite
