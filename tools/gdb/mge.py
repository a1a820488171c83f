"""gdb pretty-printers for what tensors are made of and for the IR, and the command `mge-graph`.

(gdb) source tools/gdb/mge.py        # or once, in ~/.gdbinit, with the whole path
(gdb) print x                        # float32[2,3] = {0, 1, 2, 3, 4, 5}
(gdb) mge-graph g                    # the nodes of an ir::Graph, one line each

They read memory and call nothing in the program, so core files and stopped threads are fine. `set print elements`
limits how much of a tensor is shown. Types come from the debug information: build with -g (the preset dev has -g1,
lines only).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import gdb
import gdb.printing

# By src/core/dtype.h: how gdb's Python unpacks one element; absent: only the type is shown.
FORMATS = {
    "Bool": "?",
    "U8": "B",
    "I8": "b",
    "U16": "H",
    "I16": "h",
    "I32": "i",
    "I64": "q",
    "F16": "e",
    "F32": "f",
    "F64": "d",
}
FORMATS |= {"QU8": "B", "QI8": "b", "QI16": "h", "QI32": "i"}
NAMES = {"Bool": "bool", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "C64": "complex64"}
NAMES |= {f"U{bits}": f"uint{bits}" for bits in (8, 16)} | {f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)}
NAMES |= {f"QU{bits}": f"quint{bits}" for bits in (4, 8)} | {f"QI{bits}": f"qint{bits}" for bits in (1, 4, 8, 16, 32)}


def enum_name(value: gdb.Value) -> str:
    return str(value).rpartition("::")[2]


def dims(shape: gdb.Value) -> list[int]:
    rank = int(shape["rank"])
    return [int(shape["d"][i]) for i in range(rank)] if rank <= 8 else []


def shape_text(shape: gdb.Value) -> str:
    if int(shape["rank"]) > 8:
        return f"<not a shape: rank {int(shape['rank'])}>"
    return "[" + ",".join(map(str, dims(shape))) + "]"


def type_text(dtype: gdb.Value, shape: gdb.Value, quant: gdb.Value) -> str:
    name = NAMES.get(enum_name(dtype), enum_name(dtype))
    if float(quant["scale"]) != 0:
        name += "(per channel)" if int(quant["list"]) else f"({float(quant['scale']):g},{int(quant['zero_point'])})"
    return name + shape_text(shape)


def meta_text(meta: gdb.Value) -> str:
    return type_text(meta["dtype"], meta["shape"], meta["quant"])


def string(value: gdb.Value) -> str:
    """A std::string, by the layout of libstdc++."""
    text = value["_M_dataplus"]["_M_p"].string("utf-8", "replace", int(value["_M_string_length"]))
    return str(text)


def elements(data: gdb.Value, dtype: gdb.Value, shape: gdb.Value, layout: gdb.Value) -> str:
    """ " = {1, 2, …}" in logical order; empty when it cannot be read."""
    code, size = FORMATS.get(enum_name(dtype)), dims(shape)
    if code is None or int(data) == 0:
        return ""
    limit, width, total = int(gdb.parameter("print elements") or 200), struct.calcsize(code), 1
    for n in size:
        total *= n
    shown = []
    for flat in range(min(total, limit)):
        at, rest = 0, flat
        for axis in reversed(range(len(size))):
            at += rest % size[axis] * int(layout["stride"][axis])
            rest //= size[axis]
        try:
            memory = gdb.selected_inferior().read_memory(int(data) + at * width, width)
        except gdb.MemoryError:
            return f" = <cannot read {int(data):#x}>"
        item = struct.unpack("<" + code, memory.tobytes())[0]
        shown.append(f"{item:g}" if isinstance(item, float) else str(item))
    return " = {" + ", ".join(shown) + (", …}" if total > limit else "}")


def pointee(ref: gdb.Value) -> gdb.Value:
    """What a RefPtr points at; a null gdb.Value pointer stays one."""
    return ref["p_"]


def small_vec(vec: gdb.Value) -> list[gdb.Value]:
    return [vec["data_"][i] for i in range(int(vec["size_"]))]


def std_vector(vec: gdb.Value) -> list[gdb.Value]:
    first, last = vec["_M_impl"]["_M_start"], vec["_M_impl"]["_M_finish"]
    return [first[i] for i in range(int(last - first))]


def deque_at(deque: gdb.Value, index: int) -> gdb.Value:
    """An element of a std::deque, by the layout of libstdc++: chunks of 512 bytes, or of one larger element."""
    start, item = deque["_M_impl"]["_M_start"], deque.type.strip_typedefs().template_argument(0)
    per_chunk = max(1, 512 // item.sizeof)
    index += int(start["_M_cur"] - start["_M_first"])
    return start["_M_node"][index // per_chunk][index % per_chunk]


def value_text(graph: gdb.Value, index: int) -> str:
    name = string(deque_at(graph["values_"], index)["name"])
    return f"%{name}" if name else f"%{index}"


def typed(graph: gdb.Value, index: int) -> str:
    return f"{value_text(graph, index)}: {meta_text(deque_at(graph['values_'], index)['meta'])}"


def node_line(graph: gdb.Value, node: gdb.Value) -> str:
    results = [typed(graph, int(v)) for v in small_vec(node["outputs"])]
    operands = ", ".join(value_text(graph, int(v)) for v in small_vec(node["inputs"]))
    loc = std_vector(graph["locs_"])[int(node["loc"])]
    where = f"  # {string(loc['file'])}:{int(loc['line'])}" if string(loc["file"]) else ""
    return f"{', '.join(results)} = {string(node['op'].dereference()['name'])}({operands}){where}"


def graph_lines(graph: gdb.Value) -> Iterator[str]:
    for kind, values in (("input", graph["inputs_"]), ("var", graph["vars_"])):
        for entry in std_vector(values):
            index = int(entry if kind == "input" else entry["in"])
            yield f"{kind} {typed(graph, index)}"
    at = int(graph["head_"])
    while at >= 0:
        node = deque_at(graph["nodes_"], at)
        yield node_line(graph, node)
        at = int(node["next"])
    for output in std_vector(graph["outputs_"]):
        yield f"output {string(output['name'])} = {value_text(graph, int(output['value']))}"


def eager_value_text(value: gdb.Value) -> str:
    meta, buffer = value["meta"], value["buffer"]
    state, storage, text = enum_name(value["state"]["_M_i"]), pointee(buffer["storage"]), meta_text(meta)
    if state != "Ready" or int(storage) == 0:
        return f"{text} {state}"
    size = struct.calcsize(FORMATS.get(enum_name(meta["dtype"]), "B"))
    data = storage["ptr"].cast(gdb.lookup_type("char").pointer()) + int(buffer["layout"]["offset"]) * size
    return text + elements(data, meta["dtype"], meta["shape"], buffer["layout"])


def tensor_text(tensor: gdb.Value) -> str:
    value = pointee(tensor["value"])
    return eager_value_text(value.dereference()) if int(value) else "<empty>"


def layout_text(layout: gdb.Value) -> str:
    strides = ",".join(str(int(layout["stride"][i])) for i in range(8))
    return f"offset {int(layout['offset'])} strides [{strides}], as many of them as the shape has dims"


def tensor_arg_text(arg: gdb.Value) -> str:
    text = type_text(arg["dtype"], arg["shape"], arg["quant"])
    strides = ",".join(str(int(arg["layout"]["stride"][i])) for i in range(len(dims(arg["shape"]))))
    return f"{text} strides [{strides}]" + elements(arg["ptr"], arg["dtype"], arg["shape"], arg["layout"])


def ir_value_text(value: gdb.Value) -> str:
    name, kind = string(value["name"]), enum_name(value["kind"])
    return f"{kind} {f'%{name}: ' if name else ''}{meta_text(value['meta'])}" + (" erased" if value["erased"] else "")


def ir_node_text(node: gdb.Value) -> str:
    op = string(node["op"].dereference()["name"]) if int(node["op"]) else "<no op>"
    ids = [",".join(f"%{int(v)}" for v in small_vec(node[side])) for side in ("outputs", "inputs")]
    return f"{ids[0]} = {op}({ids[1]})" + (" erased" if node["erased"] else "")


def graph_text(graph: gdb.Value) -> str:
    return f"graph {string(graph['name_'])}: {int(graph['live_'])} nodes; `mge-graph` lists them"


def ref_text(ref: gdb.Value) -> str:
    target = pointee(ref)
    return f"{int(target):#x} -> {target.dereference().format_string()}" if int(target) else "null"


TEXTS: dict[str, Callable[[gdb.Value], str]] = {
    "mge::Shape": shape_text,
    "mge::Layout": layout_text,
    "mge::Meta": meta_text,
    "mge::TensorArg": tensor_arg_text,
    "mge::Value": eager_value_text,
    "mge::Tensor": tensor_text,
    "mge::ir::Value": ir_value_text,
    "mge::ir::Node": ir_node_text,
    "mge::ir::Graph": graph_text,
}


class Text:
    """A printer of one line."""

    def __init__(self, value: gdb.Value, text: Callable[[gdb.Value], str]) -> None:
        self.value, self.text = value, text

    def to_string(self) -> str:
        return self.text(self.value)


class SmallVec:
    """mge::SmallVec<T, N> as the list it is."""

    def __init__(self, value: gdb.Value) -> None:
        self.value = value

    def to_string(self) -> str:
        return f"SmallVec of {int(self.value['size_'])}"

    def children(self) -> Iterator[tuple[str, gdb.Value]]:
        return ((f"[{i}]", item) for i, item in enumerate(small_vec(self.value)))

    def display_hint(self) -> str:
        return "array"


def printer(value: gdb.Value) -> Text | SmallVec | None:
    name = str(value.type.strip_typedefs().unqualified().name or "")
    if name in TEXTS:
        return Text(value, TEXTS[name])
    if name.startswith("mge::SmallVec<"):
        return SmallVec(value)
    if name.startswith("mge::RefPtr<"):
        return Text(value, ref_text)
    return None


class PrintGraph(gdb.Command):
    """mge-graph EXPRESSION: the inputs, nodes and outputs of an mge::ir::Graph, one line each."""

    def __init__(self) -> None:
        super().__init__("mge-graph", gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION)

    def invoke(self, argument: str, _from_tty: bool) -> None:
        value = gdb.parse_and_eval(argument)
        if value.type.strip_typedefs().code in (gdb.TYPE_CODE_PTR, gdb.TYPE_CODE_REF):
            value = value.referenced_value()
        if str(value.type.strip_typedefs().unqualified().name) != "mge::ir::Graph":
            raise gdb.GdbError(f"mge-graph: {argument} is a {value.type}, not an mge::ir::Graph.")
        for line in graph_lines(value):
            print(line)


gdb.pretty_printers[:] = [p for p in gdb.pretty_printers if getattr(p, "__name__", "") != "printer"] + [printer]
PrintGraph()
