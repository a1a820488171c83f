// A cheap test that nothing has changed of what a note was made of: the pointers that were followed are followed again.
//   Watch w;
//   if (w.add_note(note) && note_holds(note)) ...;     // from now on, as long as w.holds(), so does the note
// It sees more than the note does (any reassignment, also by an equal value), never less; what it cannot see at all
// (sets, arrays, objects with slots) is not watched.
#pragma once
#include <vector>

#include "common.h"

namespace mge::py {

class Watch {
 public:
  Watch() = default;
  Watch(Watch&&) = default;
  Watch& operator=(Watch&&) = default;

  /// False: something in it cannot be watched.
  bool add_note(PyObject* note);
  /// A value and what it refers to, in the way of notes.
  bool add(PyObject* o, bool deep);
  bool holds() const;
  /// The values that it keeps, for the garbage collector.
  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  enum class Kind : uint8_t { Item, Cell, Dict, List, Function, Class, Object };
  struct Step {
    Kind kind;
    PyObject* of;  // kept by refs_
    size_t first;  // in refs_: what was found, in an order of its own for each kind
    size_t n;
    uint32_t version = 0;
  };
  void push(Kind kind, PyObject* of, std::initializer_list<PyObject*> found, uint32_t version = 0);
  bool value(PyObject* o, bool deep, int depth);
  bool owner(PyObject* o, PyObject* says);
  size_t list_items(PyObject* dict);
  bool items(PyObject* dict, bool deep, int depth);
  bool object(PyObject* o, bool deep, int depth);
  bool function(PyObject* f, bool deep, int depth);
  bool code_and_defaults(PyObject* f, bool deep, int depth);
  bool class_of(PyTypeObject* type);
  bool seen(PyObject* o) const;

  std::vector<Step> steps_;
  std::vector<Obj> refs_;
};

}  // namespace mge::py
