// The outer shape of a model file: magic, format version, a table of sections, the sections. Every byte is covered: the
// table has its own checksum, each section one, and the padding between them must be zero. docs/format.md has the
// layout byte by byte.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mge::serial {

using Bytes = std::span<const uint8_t>;

/// 0x89 and the line ends show a file that went through a text-mode or 7-bit transfer.
inline constexpr uint8_t kMagic[8] = {0x89, 'M', 'G', 'E', '\r', '\n', 0x1a, '\n'};
inline constexpr uint32_t kFormatVersion = 1;
inline constexpr size_t kAlign = 64;

/// No dimension and no integer attribute in a file is larger, so that products of two of them fit 64 bits wherever ops
/// compute with them.
inline constexpr int64_t kMaxInteger = int64_t{1} << 31;

/// Numbers are fixed by the files that exist.
enum class SectionKind : uint32_t {
  Graph = 1,       // FlatBuffers: Model
  Weights = 2,     // raw constants and initial values of vars
  Tests = 3,       // FlatBuffers: Tests
  TestData = 4,    // raw
  Preprocess = 5,  // FlatBuffers: Preprocess
  Quant = 6,       // reserved, like the next three
  PackedWeights = 7,
  Kernels = 8,
  Plan = 9,
};
/// A reader that does not know a section with this flag must refuse the file; others may be skipped.
inline constexpr uint32_t kSectionRequired = 1;

struct Section {
  uint32_t kind = 0, flags = 0;
  uint64_t offset = 0, size = 0, checksum = 0;
};
static_assert(sizeof(Section) == 32);

struct Header {
  uint8_t magic[8];
  uint32_t version, n_sections;
  uint64_t file_size;
  uint64_t checksum;  // of this header without this field, then the table
};
static_assert(sizeof(Header) == 32);

/// Checks everything named above; an Env error that starts with `who` otherwise. Sections of unknown kind that are not
/// required are verified and left in the list.
std::vector<Section> open_container(Bytes file, std::string_view who);

/// The models of a file to which others were appended, the first one first. What is no such file comes back whole.
std::vector<Bytes> split_models(Bytes file);

/// The first bytes are those of a graph in one of MegEngine's own formats, or of one with test cases.
bool is_original_graph(Bytes file);
/// "a MegEngine v2 graph file …" when the first bytes belong to another format we know; empty otherwise.
std::string describe_foreign(Bytes file);

/// A section to be written: its bytes as a list of pieces, so that weights are never copied together.
struct SectionData {
  SectionKind kind;
  uint32_t flags = 0;
  std::vector<Bytes> pieces;
};
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void write(Bytes bytes) = 0;
};
void write_container(std::span<const SectionData> sections, Sink& sink);

inline uint64_t align_up(uint64_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

}  // namespace mge::serial
