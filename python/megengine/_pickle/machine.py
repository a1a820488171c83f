"""The opcodes of pickle, protocols 0 to 5, over a table of names.

What keeps a file from doing harm, beside the table:

- Lengths are compared with the bytes that are left before anything is allocated, and copies of what a file gives once
  count against its size, so memory stays in proportion to the file.
- Every container has a height, and one too high is an error: C code that follows nested objects (hashing, freeing) has
  a stack of fixed size.
- What is hashed is a tree of plain values of bounded size, so no method of a class runs and no key takes forever.
"""

from __future__ import annotations

import codecs
import math
import pickle
import struct
from collections import deque
from collections.abc import Callable
from io import BytesIO, FileIO
from itertools import islice
from typing import IO, Any, NoReturn

#: Containers within containers; checkpoints nest some ten deep.
MAX_DEPTH = 1000
#: Things that are begun and not yet ended; graphs of modules are long chains of objects that hold each other.
MAX_MARKS = 100_000
#: By how much, in all, containers may grow higher after another one holds them, as objects that hold each other do.
MAX_LATE = 100_000
#: Values in one key: the hash of a tuple is computed anew for each time that it occurs in another.
MAX_KEY = 100_000
#: What a machine may copy beyond a few times the bytes that it read.
FREE_BYTES = 1 << 16
#: Data of arrays from this size on is let go as soon as the array is made.
LARGE = 1 << 10
#: Bytes of the file's beginning that are kept, to say what it is.
HEAD = 32
#: Bytes read at once from files of unknown length.
CHUNK = 16 << 20

SCALARS = frozenset((type(None), bool, int, float, complex, str, bytes, bytearray))


class Refused(pickle.UnpicklingError):
    """The file asks for what this loader does not do."""


class Damaged(pickle.UnpicklingError):
    """The bytes make no sense."""


class CutShort(Damaged, EOFError):
    """The bytes end before the object does."""


#: The value of names that stand for no data.
NOT_DATA = object()


class Global:
    """What a file may name.

    Args:
        text: the name as the file has it.
        value: what the name stands for where it is data.
        make: called as ``make(machine, args)`` where the file calls the name.
    """

    __slots__ = ("make", "text", "value")

    def __init__(self, text: str, value: Any, make: Callable[[Machine, tuple[Any, ...]], Any] | None = None) -> None:
        self.text, self.value, self.make = text, value, make


class Pending:
    """An object whose value follows in a later BUILD; the built one takes its place."""

    __slots__ = ("memo_keys",)

    def __init__(self) -> None:
        self.memo_keys: list[int] = []

    def build(self, machine: Machine, state: Any) -> Any:
        """The object itself."""
        raise NotImplementedError

    def value(self) -> Any:
        """The object where no state came."""
        raise NotImplementedError


class Info:
    """What a machine knows of a container that it made."""

    __slots__ = ("cyclic", "flat", "height", "held", "obj", "weight")

    def __init__(self, obj: Any, height: int, weight: float, cyclic: bool, flat: bool) -> None:
        self.obj = obj  # alive, so that its id stays its own
        self.height = height  # 1 and that of the highest thing in it
        self.weight = weight  # as a key: the values in it; infinite for what is no key
        self.cyclic = cyclic  # it may hold itself: it is freed without recursion
        self.flat = flat  # nothing follows what it holds, so its height is that of an empty one
        self.held = False  # by another container


_GONE = object()


class Machine:
    """Runs one pickle.

    Args:
        file: an object with ``read`` and ``readline``.
        find: gives the ``Global`` for a module and a name.
        build: called as ``build(machine, object, state)`` for objects that get a state.
        encoding: of strings of Python 2; ``"bytes"`` leaves them bytes.
    """

    def __init__(
        self,
        file: IO[bytes],
        find: Callable[[str, str], Global],
        build: Callable[[Machine, Any, Any], None],
        encoding: str = "ASCII",
    ) -> None:
        self._file = file
        self._find = find
        self._build = build
        self._encoding = encoding
        self._frame: BytesIO | None = None
        self._length = _bytes_left(file)
        self._seen = 0  # bytes taken from the file
        self._spent = 0  # bytes of copies
        self._late = 0
        self._op = 0
        self.head = b""  # the first bytes of the file
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._infos: dict[int, Info] = {}

    def load(self) -> Any:
        """The object of the file.

        Raises:
            pickle.UnpicklingError: ``Refused`` or ``Damaged``. Beside it only what the making of a tensor raises, which
                is about devices.
        """
        try:
            while True:
                self._op = code = self.read(1)[0]
                if code == _STOP:
                    return self._result()
                op = _OPS.get(code)
                if op is None:
                    self._unknown(code)
                op(self)
        except pickle.UnpicklingError:
            raise
        except (TypeError, AttributeError, LookupError, ValueError, OverflowError, struct.error) as e:
            if isinstance(e, RuntimeError):  # the engine's own classes, about a device
                raise
            what = "something is missing" if isinstance(e, IndexError) else str(e)
            raise Damaged(f"opcode {bytes([self._op])!r}: {what:.200}") from e

    @property
    def position(self) -> int:
        """Bytes used up."""
        ahead = len(self._frame.getbuffer()) - self._frame.tell() if self._frame is not None else 0
        return self._seen - ahead

    def _result(self) -> Any:
        if self._marks or len(self._stack) != 1:
            raise Damaged("it ends with more or less than one object")
        result = [self._stack.pop()]
        self.settle(result)
        return result[0]

    def _unknown(self, code: int) -> NoReturn:
        if code in _REFUSED:
            raise Refused(f"the file has {_REFUSED[code]}, which nothing that megengine.save writes has")
        raise Damaged(f"{bytes([code])!r} is no opcode")

    # ---- bytes

    def read(self, n: int) -> bytes:
        """The next ``n`` bytes."""
        if self._frame is not None:
            data = self._frame.read(n)
            if len(data) == n:
                return data
            if data:
                raise Damaged("a value goes past the end of its frame")
            self._frame = None
        return self._read_file(n)

    def _read_file(self, n: int) -> bytes:
        left = None if self._length is None else self._length - self._seen
        if left is not None and n > left:
            raise CutShort(f"{n} more bytes should follow, {left} are there")
        parts: list[bytes] = []
        got = 0
        while got < n:
            part = self._file.read(n - got if left is not None else min(n - got, CHUNK))
            if not part:
                raise CutShort(f"{n} more bytes should follow, {got} are there")
            parts.append(part)
            got += len(part)
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self._note(data)
        return data

    def _note(self, data: bytes) -> None:
        self._seen += len(data)
        if len(self.head) < HEAD:
            self.head += data[: HEAD - len(self.head)]

    def line(self) -> bytes:
        """The bytes up to the end of the line."""
        if self._frame is not None:
            data = self._frame.readline()
            if data:
                if data[-1] != 10:
                    raise Damaged("a line goes past the end of its frame")
                return data[:-1]
            self._frame = None
        data = self._file.readline()
        self._note(data)
        if data[-1:] != b"\n":
            raise CutShort("a line has no end")
        return data[:-1]

    def begin_frame(self) -> None:
        """Read a frame: bytes that the opcodes which follow are read from."""
        (n,) = struct.unpack("<Q", self.read(8))
        if self._frame is not None and self._frame.read(1):
            raise Damaged("a frame begins inside another one")
        self._frame = BytesIO(self._read_file(n))

    def spend(self, n: int) -> None:
        """Count ``n`` bytes of memory for something made of what was read before."""
        self._spent += n
        if self._spent > 4 * self._seen + FREE_BYTES:
            raise Damaged("its objects are many times larger than the file")

    # ---- containers

    def settle(self, items: list[Any]) -> tuple[int, float]:
        """Make values of the things that a container is to hold; the height of the highest, and their weight."""
        height, weight = 0, 0.0
        for i, x in enumerate(items):
            weight += 1
            if type(x) in SCALARS:
                continue
            if type(x) is Global:
                if x.value is NOT_DATA:
                    raise Refused(f"the file has the function {x.text} as a value")
                items[i] = x.value
                continue
            if isinstance(x, Pending):
                items[i] = x = x.value()
            info = self._infos.get(id(x))
            if info is not None:
                info.held = True
                weight += info.weight
                if info.height > height:
                    height = info.height
        return height, weight

    def own(
        self, obj: Any, height: int = 0, weight: float = math.inf, *, cyclic: bool = False, flat: bool = False
    ) -> Any:
        """Keep books on a new container that holds things up to ``height``.

        Args:
            obj: the container.
            height: of the highest thing in it.
            weight: as a key.
            cyclic: it may come to hold itself.
            flat: an object of a class of ours that nothing follows: it is hashed and compared by identity and freed
                without recursion, so a chain of such objects may be as long as the file.
        """
        self._infos[id(obj)] = info = Info(obj, 0, weight, cyclic, flat)
        self._raise(info, height + 1)
        return obj

    def grow(self, obj: Any, items: list[Any]) -> None:
        """Say that a container is about to hold these as well."""
        height, _ = self.settle(items)
        info = self._infos.get(id(obj))
        if info is None:
            raise Damaged(f"it puts something into a {type(obj).__name__}")
        self._raise(info, height + 1)

    def height(self, obj: Any) -> int:
        """How deep a container nests; 0 for what is none."""
        info = self._infos.get(id(obj))
        return 0 if info is None else info.height

    def weigh(self, obj: Any, parts: list[Any]) -> None:
        """Let an object be a key that counts as much as its parts."""
        found = [self._infos.get(id(p)) for p in parts]
        self._infos[id(obj)].weight = 1 + sum(1.0 if i is None else i.weight for i in found)

    def _raise(self, info: Info, height: int) -> None:
        if info.flat:
            info.height = 1
            return
        if height <= info.height:
            return
        if info.held:
            if not info.cyclic:
                raise Refused(f"a {type(info.obj).__name__} of the file holds itself")
            self._late += height - info.height
        if height > MAX_DEPTH or self._late > MAX_LATE:
            raise Refused(f"objects are nested more than {MAX_DEPTH} deep")
        info.height = height

    def check_keys(self, keys: list[Any]) -> None:
        """Refuse what would take its time to hash, or would run a method of a class."""
        for key in keys:
            if type(key) in SCALARS:
                continue
            info = self._infos.get(id(key))
            if info is not None and info.weight > MAX_KEY:
                raise Refused(f"a key of the file is a {type(key).__name__}, or too large")

    def forget(self, *used: Any) -> None:
        """Let go of what was copied, so that a file of many arrays is not in memory twice."""
        for key in tuple(islice(reversed(self._memo), 12)):
            if any(self._memo[key] is u for u in used):
                self._memo[key] = _GONE  # its number stays taken
        for u in used:
            self._infos.pop(id(u), None)

    # ---- the stack

    def push(self, x: Any) -> None:
        """Put something on the stack."""
        self._stack.append(x)

    def pop(self) -> Any:
        """Take the last thing from the stack."""
        return self._stack.pop()

    def top(self) -> Any:
        """The last thing on the stack, which stays there."""
        return self._stack[-1]

    def mark(self) -> None:
        """Begin a list of things."""
        if len(self._marks) > MAX_MARKS:
            raise Refused(f"objects are nested more than {MAX_MARKS} deep")
        self._marks.append(self._stack)
        self._stack = []

    def pop_mark(self) -> list[Any]:
        """The things since the last mark."""
        items = self._stack
        self._stack = self._marks.pop()
        return items

    def pop_any(self) -> None:
        """Drop the last thing, or a mark where there is none."""
        if self._stack:
            self._stack.pop()
        else:
            self.pop_mark()

    def put(self, key: int) -> None:
        """Remember the last thing by a number."""
        if key < 0:
            raise Damaged("a negative number in the memo")
        x = self._memo[key] = self._stack[-1]
        if isinstance(x, Pending):
            x.memo_keys.append(key)

    def memoize(self) -> None:
        """Remember the last thing by the next number."""
        self.put(len(self._memo))

    def get(self, key: int) -> None:
        """Put a remembered thing on the stack."""
        x = self._memo.get(key, _GONE)
        if x is _GONE:
            raise Damaged(f"it refers to object {key}, which is not there")
        self._stack.append(x)

    # ---- making things

    def make_tuple(self, items: list[Any]) -> None:
        """Push a tuple."""
        height, weight = self.settle(items)
        self.push(self.own(tuple(items), height, weight) if items else ())

    def make_list(self, items: list[Any]) -> None:
        """Push a list."""
        height, _ = self.settle(items)
        self.push(self.own(items, height, cyclic=True))

    def make_dict(self, items: list[Any]) -> None:
        """Push a dict."""
        self.push(self.own({}, cyclic=True))
        self.set_items(items)

    def make_set(self) -> None:
        """Push an empty set."""
        self.push(self.own(set(), cyclic=True))

    def make_frozenset(self, items: list[Any]) -> None:
        """Push a frozenset."""
        height, weight = self.settle(items)
        self.check_keys(items)
        self.push(self.own(frozenset(items), height, weight))

    def append(self, items: list[Any]) -> None:
        """Add to the list or deque on the stack."""
        target = self.top()
        if type(target) not in (list, deque):
            raise Damaged(f"it appends to a {type(target).__name__}")
        self.grow(target, items)
        target.extend(items)

    def add(self, items: list[Any]) -> None:
        """Add to the set on the stack."""
        target = self.top()
        if type(target) is not set:
            raise Damaged(f"it adds to a {type(target).__name__} as if to a set")
        self.grow(target, items)
        self.check_keys(items)
        target.update(items)

    def set_items(self, items: list[Any]) -> None:
        """Set keys and values of the dict on the stack."""
        target = self.top()
        if not isinstance(target, dict) or len(items) % 2:
            raise Damaged(f"it sets items of a {type(target).__name__}")
        self.grow(target, items)
        keys = items[::2]
        self.check_keys(keys)
        for key, value in zip(keys, items[1::2]):
            target[key] = value

    def call(self, what: Any, args: Any) -> None:
        """Push what a name makes of ``args``."""
        if type(what) is not Global or what.make is None or type(args) is not tuple:
            raise Refused(f"the file wants to call {what.text if type(what) is Global else type(what).__name__}")
        self.push(what.make(self, args))

    def find(self, module: Any, name: Any) -> None:
        """Push what a module and a name stand for."""
        if type(module) is not str or type(name) is not str:
            raise Damaged("a name that is no text")
        self.push(self._find(module, name))

    def build(self) -> None:
        """Give the thing below it the state on the stack."""
        state = [self.pop()]
        target = self.top()
        if isinstance(target, Pending):
            self.settle(state)
            built = target.build(self, state[0])
            self._stack[-1] = built
            for key in target.memo_keys:
                if self._memo[key] is target:
                    self._memo[key] = built
            return
        self.grow(target, state)
        self._build(self, target, state[0])

    def text(self, data: bytes) -> str | bytes:
        """A string of Python 2."""
        return data if self._encoding == "bytes" else data.decode(self._encoding)


def _bytes_left(file: IO[bytes]) -> int | None:
    """How much there is to read, where the file can tell."""
    if not isinstance(getattr(file, "raw", file), (FileIO, BytesIO)):
        return None  # what unpacks on the way reads everything to find its end
    try:
        here = file.tell()
        end = file.seek(0, 2)
        file.seek(here)
    except OSError:  # a pipe
        return None
    return end - here if end > here else None


# ---- the opcodes


def _number(fmt: str) -> Callable[[Machine], Any]:
    s = struct.Struct(fmt)
    return lambda m: s.unpack(m.read(s.size))[0]


_u1, _u2, _u4, _u8 = map(_number, ("<B", "<H", "<I", "<Q"))
_i4, _f8 = _number("<i"), _number(">d")


def _length(m: Machine) -> int:
    n: int = _i4(m)
    if n < 0:
        raise Damaged("a negative length")
    return n


def _utf8(m: Machine, n: int) -> str:
    return m.read(n).decode("utf-8", "surrogatepass")


def _long(m: Machine, n: int) -> int:
    return int.from_bytes(m.read(n), "little", signed=True)


def _int_line(m: Machine) -> int | bool:
    line = m.line()
    return {b"00": False, b"01": True}[line] if line in (b"00", b"01") else int(line)


def _string_line(m: Machine) -> str | bytes:
    line = m.line().strip()
    if len(line) < 2 or line[:1] not in (b"'", b'"') or line[:1] != line[-1:]:
        raise Damaged("a string without its quotes")
    data: Any = codecs.escape_decode(line[1:-1])[0]
    return m.text(data)


def _proto(m: Machine) -> None:
    version = _u1(m)
    if version > pickle.HIGHEST_PROTOCOL:
        raise Refused(f"the file has pickle protocol {version}, this Python knows {pickle.HIGHEST_PROTOCOL}")


def _reduce(m: Machine) -> None:
    args = m.pop()
    m.call(m.pop(), args)


def _newobj_ex(m: Machine) -> None:
    kwargs, args, cls = m.pop(), m.pop(), m.pop()
    if type(kwargs) is not dict or kwargs:
        raise Refused("the file makes an object with keyword arguments")
    m.call(cls, args)


def _stack_global(m: Machine) -> None:
    name, module = m.pop(), m.pop()
    m.find(module, name)


def _setitem(m: Machine) -> None:
    value, key = m.pop(), m.pop()
    m.set_items([key, value])


def _last(n: int) -> Callable[[Machine], None]:
    return lambda m: m.make_tuple([m.pop() for _ in range(n)][::-1])


def _push(read: Callable[[Machine], Any]) -> Callable[[Machine], None]:
    return lambda m: m.push(read(m))


_STOP = pickle.STOP[0]
_TABLE: dict[bytes, Callable[[Machine], Any]] = {
    pickle.PROTO: _proto,
    pickle.FRAME: Machine.begin_frame,
    pickle.MARK: Machine.mark,
    pickle.POP: Machine.pop_any,
    pickle.POP_MARK: Machine.pop_mark,
    # plain values
    pickle.NONE: _push(lambda m: None),
    pickle.NEWTRUE: _push(lambda m: True),
    pickle.NEWFALSE: _push(lambda m: False),
    pickle.INT: _push(_int_line),
    pickle.BININT: _push(_i4),
    pickle.BININT1: _push(_u1),
    pickle.BININT2: _push(_u2),
    pickle.LONG: _push(lambda m: int(m.line().removesuffix(b"L"))),
    pickle.LONG1: _push(lambda m: _long(m, _u1(m))),
    pickle.LONG4: _push(lambda m: _long(m, _length(m))),
    pickle.FLOAT: _push(lambda m: float(m.line())),
    pickle.BINFLOAT: _push(_f8),
    pickle.STRING: _push(_string_line),
    pickle.BINSTRING: _push(lambda m: m.text(m.read(_length(m)))),
    pickle.SHORT_BINSTRING: _push(lambda m: m.text(m.read(_u1(m)))),
    pickle.BINBYTES: _push(lambda m: m.read(_u4(m))),
    pickle.SHORT_BINBYTES: _push(lambda m: m.read(_u1(m))),
    pickle.BINBYTES8: _push(lambda m: m.read(_u8(m))),
    pickle.BYTEARRAY8: _push(lambda m: bytearray(m.read(_u8(m)))),
    pickle.UNICODE: _push(lambda m: m.line().decode("raw-unicode-escape")),
    pickle.BINUNICODE: _push(lambda m: _utf8(m, _u4(m))),
    pickle.SHORT_BINUNICODE: _push(lambda m: _utf8(m, _u1(m))),
    pickle.BINUNICODE8: _push(lambda m: _utf8(m, _u8(m))),
    # containers
    pickle.EMPTY_TUPLE: lambda m: m.make_tuple([]),
    pickle.TUPLE: lambda m: m.make_tuple(m.pop_mark()),
    pickle.TUPLE1: _last(1),
    pickle.TUPLE2: _last(2),
    pickle.TUPLE3: _last(3),
    pickle.EMPTY_LIST: lambda m: m.make_list([]),
    pickle.LIST: lambda m: m.make_list(m.pop_mark()),
    pickle.APPEND: lambda m: m.append([m.pop()]),
    pickle.APPENDS: lambda m: m.append(m.pop_mark()),
    pickle.EMPTY_DICT: lambda m: m.make_dict([]),
    pickle.DICT: lambda m: m.make_dict(m.pop_mark()),
    pickle.SETITEM: _setitem,
    pickle.SETITEMS: lambda m: m.set_items(m.pop_mark()),
    pickle.EMPTY_SET: Machine.make_set,
    pickle.ADDITEMS: lambda m: m.add(m.pop_mark()),
    pickle.FROZENSET: lambda m: m.make_frozenset(m.pop_mark()),
    # the memo
    pickle.PUT: lambda m: m.put(int(m.line())),
    pickle.BINPUT: lambda m: m.put(_u1(m)),
    pickle.LONG_BINPUT: lambda m: m.put(_u4(m)),
    pickle.MEMOIZE: Machine.memoize,
    pickle.GET: lambda m: m.get(int(m.line())),
    pickle.BINGET: lambda m: m.get(_u1(m)),
    pickle.LONG_BINGET: lambda m: m.get(_u4(m)),
    # names, and what is made of them
    pickle.GLOBAL: lambda m: m.find(m.line().decode(), m.line().decode()),
    pickle.STACK_GLOBAL: _stack_global,
    pickle.REDUCE: _reduce,
    pickle.NEWOBJ: _reduce,
    pickle.NEWOBJ_EX: _newobj_ex,
    pickle.BUILD: Machine.build,
}
_OPS = {op[0]: run for op, run in _TABLE.items()}
_REFUSED = {
    **dict.fromkeys((pickle.PERSID[0], pickle.BINPERSID[0]), "an object kept elsewhere"),
    **dict.fromkeys((pickle.EXT1[0], pickle.EXT2[0], pickle.EXT4[0]), "a name of the extension registry"),
    **dict.fromkeys((pickle.INST[0], pickle.OBJ[0]), "an object of a class of Python 2"),
    **dict.fromkeys((pickle.NEXT_BUFFER[0], pickle.READONLY_BUFFER[0]), "a buffer kept elsewhere"),
    pickle.DUP[0]: "an object put twice on the stack",
}
