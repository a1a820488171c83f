// What a compiled program is made of, for people and tools: each buffer with its place and lifetime, each instruction
// with its operands, estimate and line. Times are instruction indices.
//   for (auto& b : program->info().buffers) if (b.kind == "arena") draw(b.first, b.last, b.address, b.bytes);
#pragma once
#include <string>
#include <vector>

#include "core/meta.h"

namespace mge {

struct ProgramInfo {
  struct Value {
    int value = -1;  // of the graph; -1: a copy in another layout
    std::string name;
    int node = -1;  // that computes it; -1: it comes from outside
    Meta meta;
    std::string order = "row-major";  // or channels-last, strided: how it lies in memory
  };
  struct Buffer {
    std::string kind;  // arena, workspace, input, var, const, output
    std::string device;
    size_t address = 0;  // in the arena of its device
    size_t bytes = 0;
    int first = -1, last = -1;  // inclusive; -1: before the run; the number of instructions: it outlives the run
    int donor = -1;             // the var whose memory an output takes over when nobody else holds it
    std::vector<Value> values;  // several: views of it, and results that overwrite operands, in order
  };
  struct Operand {
    int buffer = -1;
    Meta meta;
    std::string order = "row-major";
  };
  struct Instr {
    std::string op, kernel, location, device;
    int node = -1;
    double ns = 0, flops = 0;  // estimates
    std::vector<Operand> inputs, outputs;
    int workspace = -1;  // buffer
  };
  std::vector<Buffer> buffers;
  std::vector<Instr> instructions;
};

}  // namespace mge
