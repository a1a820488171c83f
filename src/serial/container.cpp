#include "serial/container.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "serial/xxh64.h"

namespace mge::serial {
namespace {

constexpr uint32_t kMaxSections = 64;
constexpr uint8_t kZeros[kAlign] = {};

struct Foreign {
  size_t at;
  std::string_view bytes;
  const char* what;
};
using namespace std::string_view_literals;
constexpr const char* kOldGraph =
    "The reader of those files is not part of this build; convert the model with mge-model, or dump it again.";
constexpr Foreign kForeign[] = {
    {0, "MGBS\0\0\0\0"sv, "a MegEngine v1 graph file (MGBS). "},
    {0, "MGBC\0\0\0\0"sv, "a MegEngine v1 graph file (MGBC). "},
    {8, "mgv2"sv, "a MegEngine v2 graph file. "},
    {8, "mge2"sv, "a MegEngine v2 draft graph file. "},
    {0, "mgbtest0"sv, "a MegEngine graph file with test cases (mgbtest0). "},
    {0, "mgb0001"sv, "a MegEngine file in the old proprietary format (mgb0001), which only its makers could read"},
    {0, "mgb0000a"sv, "a MegEngine file in the old proprietary format (mgb0000a), which only its makers could read"},
    {0, "packed_model"sv, "a packed Lite model; megenginelite and load_and_run read those"},
    {0, "PK\x03\x04"sv, "a zip archive (PyTorch .pt, NumPy .npz or similar), not a model of ours"},
    {0, "\x93NUMPY"sv, "a NumPy array (.npy), not a model"},
    {0, "GGUF"sv, "a GGUF file, not a model of ours"},
    {4, "TFL3"sv, "a TensorFlow Lite file, not a model of ours"},
    {0, "\x89HDF\r\n\x1a\n"sv, "an HDF5 file, not a model of ours"},
    {0, "\x1f\x8b"sv, "gzip-compressed; unpack it first"},
    {0, "\x28\xb5\x2f\xfd"sv, "zstd-compressed; unpack it first"},
    {0,
     "\x7f"
     "ELF"sv,
     "an ELF binary, not a model"},
};

bool has(Bytes file, size_t at, std::string_view bytes) {
  return file.size() >= at + bytes.size() && std::memcmp(file.data() + at, bytes.data(), bytes.size()) == 0;
}

void check_magic(Bytes file, std::string_view who) {
  if (file.empty()) MGE_FAIL_ENV("{}: the file is empty.", who);
  size_t n = std::min(file.size(), sizeof kMagic);
  if (std::memcmp(file.data(), kMagic, n) == 0) {
    if (file.size() < sizeof(Header)) MGE_FAIL_ENV("{}: cut off after {} bytes; copy it again.", who, file.size());
    return;
  }
  if (std::string what = describe_foreign(file); !what.empty()) MGE_FAIL_ENV("{}: this is {}.", who, what);
  if (has(file, 0, "\x89MGE"sv) || has(file, 1, "MGE"sv))
    MGE_FAIL_ENV("{}: the first bytes were changed, as a text-mode transfer does; copy it again as binary.", who);
  std::string hex;
  for (size_t i = 0; i < n; ++i) hex += format("{:02x} ", file[i]);
  MGE_FAIL_ENV("{}: not a model file; it starts with {}and a model starts with 89 4d 47 45.", who, hex);
}

}  // namespace

bool is_original_graph(Bytes file) {
  for (const Foreign& f : kForeign)
    if (has(file, f.at, f.bytes)) return std::string_view(f.what).ends_with(". ") && f.bytes != "mge2"sv;
  return false;
}

std::string describe_foreign(Bytes file) {
  for (const Foreign& f : kForeign) {
    if (!has(file, f.at, f.bytes)) continue;
    std::string what = f.what;
    if (what.ends_with(". ")) what += std::string_view(kOldGraph).substr(0, std::string_view(kOldGraph).size() - 1);
    return what;
  }
  if (file.size() >= 2 && file[0] == 0x80 && file[1] >= 2 && file[1] <= 5)
    return "a Python pickle (megengine.save writes those); load it with megengine.load. Models come from trace.dump";
  if (file.size() >= 3 && file[0] == 0x08 && file[1] <= 20 && (file[2] == 0x12 || file[2] == 0x3a))
    return "probably an ONNX file, not a model of ours";
  return {};
}

std::vector<Section> open_container(Bytes file, std::string_view who) {
  check_magic(file, who);
  Header h;
  std::memcpy(&h, file.data(), sizeof h);
  // Before the checksum: a newer format may lay out everything else differently.
  if (h.version > kFormatVersion)
    MGE_FAIL_ENV(
        "{}: file format {} is newer than this build, which reads up to {}. Update this runtime, or dump the model "
        "with the older version.",
        who, h.version, kFormatVersion);
  if (h.version == 0) MGE_FAIL_ENV("{}: damaged: file format 0 does not exist.", who);
  if (h.file_size > file.size())
    MGE_FAIL_ENV("{}: cut off: {} of {} bytes are there; copy it again.", who, file.size(), h.file_size);
  if (h.n_sections == 0 || h.n_sections > kMaxSections || sizeof h + h.n_sections * sizeof(Section) > file.size())
    MGE_FAIL_ENV("{}: damaged: a table of {} sections in {} bytes.", who, h.n_sections, file.size());

  size_t table_bytes = h.n_sections * sizeof(Section);
  Xxh64 sum;
  sum.update(file.first(offsetof(Header, checksum)));
  sum.update(file.subspan(sizeof h, table_bytes));
  if (sum.digest() != h.checksum)
    MGE_FAIL_ENV("{}: damaged: the header's checksum does not match; copy it again.", who);

  std::vector<Section> sections(h.n_sections);
  std::memcpy(sections.data(), file.data() + sizeof h, table_bytes);
  uint64_t end = sizeof h + table_bytes;
  for (size_t i = 0; i < sections.size(); ++i) {
    const Section& s = sections[i];
    if (s.offset != align_up(end) || s.offset > file.size() || s.size > file.size() - s.offset)
      MGE_FAIL_ENV("{}: damaged: section {} lies at {} with {} bytes in a file of {}.", who, i, s.offset, s.size,
                   file.size());
    for (uint64_t p = end; p < s.offset; ++p)
      if (file[p]) MGE_FAIL_ENV("{}: damaged: padding at byte {} is not zero.", who, p);
    if (xxh64(file.subspan(s.offset, s.size)) != s.checksum)
      MGE_FAIL_ENV("{}: damaged: the checksum of section {} (kind {}) does not match; copy it again.", who, i, s.kind);
    for (size_t j = 0; j < i; ++j)
      if (sections[j].kind == s.kind) MGE_FAIL_ENV("{}: damaged: two sections of kind {}.", who, s.kind);
    end = s.offset + s.size;
  }
  if (end != h.file_size || end != file.size())
    MGE_FAIL_ENV("{}: {} bytes follow the last section; a model ends at byte {}.", who, file.size() - end, end);
  return sections;
}

std::vector<Bytes> split_models(Bytes file) {
  std::vector<Bytes> out;
  for (;;) {
    Header h;
    if (file.size() > sizeof h && std::memcmp(file.data(), kMagic, sizeof kMagic) == 0) {
      std::memcpy(&h, file.data(), sizeof h);
      Bytes rest = h.file_size < file.size() ? file.subspan(h.file_size) : Bytes{};
      if (h.file_size > 0 && rest.size() >= sizeof kMagic && std::memcmp(rest.data(), kMagic, sizeof kMagic) == 0) {
        out.push_back(file.first(h.file_size));
        file = rest;
        continue;
      }
    }
    out.push_back(file);
    return out;
  }
}

void write_container(std::span<const SectionData> data, Sink& sink) {
  std::vector<Section> sections;
  uint64_t end = sizeof(Header) + data.size() * sizeof(Section);
  for (const SectionData& d : data) {
    Section s{static_cast<uint32_t>(d.kind), d.flags, align_up(end), 0, 0};
    Xxh64 sum;
    for (Bytes piece : d.pieces) {
      sum.update(piece);
      s.size += piece.size();
    }
    s.checksum = sum.digest();
    end = s.offset + s.size;
    sections.push_back(s);
  }
  Bytes table(reinterpret_cast<const uint8_t*>(sections.data()), sections.size() * sizeof(Section));
  Header h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.version = kFormatVersion;
  h.n_sections = static_cast<uint32_t>(sections.size());
  h.file_size = end;
  Bytes head(reinterpret_cast<const uint8_t*>(&h), sizeof h);
  Xxh64 sum;
  sum.update(head.first(offsetof(Header, checksum)));
  sum.update(table);
  h.checksum = sum.digest();

  sink.write(head);
  sink.write(table);
  uint64_t at = sizeof h + table.size();
  for (size_t i = 0; i < sections.size(); ++i) {
    sink.write({kZeros, static_cast<size_t>(sections[i].offset - at)});
    for (Bytes piece : data[i].pieces) sink.write(piece);
    at = sections[i].offset + sections[i].size;
  }
}

}  // namespace mge::serial
