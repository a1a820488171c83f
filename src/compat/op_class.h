// The table of op classes.
//   const OpClass& c = get("Reduce");
//   auto params = c.build({{{"mode", std::string("MAX")}, {"axis", int64_t{1}}}});
//   std::vector<Val> out = run(em, c, params.get(), in);
#pragma once
#include "compat/params.h"
#include "op/emitter.h"
#include "op/in_build.h"

namespace mge::compat {

/// What a call does besides computing its outputs. The caller carries it out: rules have no state.
enum class Effect : uint8_t {
  None,
  Generator,  // one more input: the state of a random generator; one more output: the state after the call
  Replace,    // the output is the new value of the first input
};

/// A type of the original's model files: the registered name and the version that a v2 file writes beside it.
struct FileType {
  std::string_view name;
  int version;
};

struct OpClass {
  std::string_view name;
  std::vector<Field> fields;    // in the order of positional arguments
  int min_in = 0, max_in = -1;  // -1: any number; the state of a generator is not counted
  Effect effect = Effect::None;
  std::string_view absent;  // why there is no rule; empty: there is one
  bool in_python = true;    // otherwise a type of model files alone
  bool uncast = false;      // composed of products that mixed precision leaves alone: they only promote
  std::vector<FileType> files;
  std::shared_ptr<const void> (*make)(std::span<const ParamValue>) = nullptr;
  void (*rule)(Emitter&, const void*, std::span<const Val>, std::vector<Val>&) = nullptr;

  /// Parameters from named values, the others at their defaults; unknown names and wrong kinds are Type errors.
  std::shared_ptr<const void> build(std::span<const NamedParam> given) const;
  /// From all values in the order of `fields`.
  std::shared_ptr<const void> build_in_order(std::span<const ParamValue> values) const;
};

std::span<const OpClass> op_classes();
const OpClass* find(std::string_view name);
/// Value error that lists the classes when unknown.
const OpClass& get(std::string_view name);
/// The class that a type of a model file stands for; null for types that are no op (inputs, constants) or not known.
const OpClass* find_file_type(std::string_view name, int version);

/// The classes that `run` was called for since the start of the process.
std::vector<std::string_view> classes_run();
/// Emits what the class means. An empty Val is an output that was not asked for. NotImplemented for a class without a
/// rule.
std::vector<Val> run(Emitter& em, const OpClass& c, const void* params, std::span<const Val> in);

/// Collects the rows of a family: t.add<Params, rule>("Convolution", {2, 2}, "ConvolutionV2@1 Convolution@2").
/// Classes that are not in this build are left out, as ops are (op/in_build.h).
class Table {
 public:
  struct Arity {
    int min, max;
  };
  struct Name {
    const char* text;
    bool here;
    consteval Name(const char* name) : text(name), here(class_in_build(name)) {}
  };
  template <class P, void (*kRule)(Emitter&, const P&, std::span<const Val>, std::vector<Val>&)>
  MGE_INLINED void add(Name name, Arity n, std::string_view files = {}, Effect effect = Effect::None) {
    added_ = name.here;
    if (name.here)
      row(name.text, detail::fields_of<P>(), n, files, effect, detail::build<P>,
          [](Emitter& em, const void* p, std::span<const Val> in, std::vector<Val>& out) {
            kRule(em, *static_cast<const P*>(p), in, out);
          });
  }
  template <class P>
  MGE_INLINED void add_absent(Name name, std::string_view why, std::string_view files = {}) {
    added_ = name.here;
    if (!name.here) return;
    row(name.text, detail::fields_of<P>(), {0, -1}, files, Effect::None, detail::build<P>, nullptr);
    classes.back().absent = why;
  }
  /// A type of model files that has no class in Python.
  template <class P, void (*kRule)(Emitter&, const P&, std::span<const Val>, std::vector<Val>&)>
  MGE_INLINED void add_file_type(Name name, Arity n, std::string_view files) {
    add<P, kRule>(name, n, files);
    leave_to_files();
  }
  /// Of the class added last.
  void leave_uncast() {
    if (added_) classes.back().uncast = true;
  }
  void leave_to_files() {
    if (added_) classes.back().in_python = false;
  }
  std::vector<OpClass> classes;

 private:
  bool added_ = false;

  void row(std::string_view name, std::vector<Field> fields, Arity n, std::string_view files, Effect effect,
           decltype(OpClass::make) make, decltype(OpClass::rule) rule);
};

void add_elemwise(Table& t);
void add_math(Table& t);
void add_convolution(Table& t);
void add_deformable(Table& t);
void add_pooling(Table& t);
void add_normalization(Table& t);
void add_shapes(Table& t);
void add_indexing(Table& t);
void add_selection(Table& t);
void add_making(Table& t);
void add_vision(Table& t);
void add_colours(Table& t);
void add_random(Table& t);
void add_recurrent(Table& t);
void add_training(Table& t);
void add_quantisation(Table& t);
void add_absent(Table& t);

}  // namespace mge::compat
