"""Random calls of Lite's C functions: any order, handles dead and invented, numbers out of range, null pointers."""

from __future__ import annotations

import ctypes
import os
import random
import tempfile

from _common import DATA, limit_memory


def main(budget: int, seed: int = 0) -> dict[str, int]:
    limit_memory()
    from megenginelite import base, struct

    rng = random.Random(seed)
    lib = base.lib
    folder = tempfile.mkdtemp()
    model = (DATA / "lite" / "net_v1.mge").read_bytes()
    handles: list[int | None] = [None, 1, 0x1000, 0xDEADBEE0]
    scratch = ctypes.create_string_buffer(1 << 16)  # memory that any pointer may point at
    callback = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: rng.choice((0, 0, 1)))

    def number() -> int:
        return rng.choice((0, 1, 2, 3, 7, 8, -1, 255, 256, 1 << 16, (1 << 31) - 1, -(1 << 31), rng.randrange(1 << 20)))

    def size() -> ctypes.c_size_t:
        return ctypes.c_size_t(number())

    def text() -> bytes | None:
        return rng.choice((b"data", b"bias", b"logits", b"prob", b"", b"\xff\xfe", b"x" * 300, None))

    def handle() -> ctypes.c_void_p:
        return ctypes.c_void_p(rng.choice(handles))

    def out() -> ctypes.c_void_p:
        return ctypes.c_void_p(rng.choice((None, ctypes.addressof(scratch), ctypes.addressof(scratch))))

    def layout() -> struct.LiteLayout:
        dims = [rng.choice((0, 1, 2, 3, 8, 1 << 20, 1 << 40)) for _ in range(rng.randrange(8))]
        made = struct.LiteLayout([d if d <= 8 or rng.random() < 0.05 else 8 for d in dims], "float32")
        made.data_type = rng.choice((0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 99))
        if rng.random() < 0.05:
            made.ndim = number() & 0xFFFF
        return made

    def config() -> struct.LiteConfig:
        made = struct.LiteConfig()
        made.device_type = rng.choice((0, 0, 0, 1, 2, 99))
        made.options.graph_opt_level = rng.choice((0, 1, 2, 3, 77))
        return made

    def sizes() -> object:
        return rng.choice((None, (ctypes.c_size_t * 8)(*[rng.randrange(4) for _ in range(8)])))

    def data() -> tuple[object, ctypes.c_size_t]:
        given = bytearray(model)
        if rng.random() < 0.3:
            given[rng.randrange(len(given))] ^= 1 << rng.randrange(8)
        cut = rng.choice((len(given), len(given), rng.randrange(len(given)), 0))
        return ctypes.create_string_buffer(bytes(given), len(given)), ctypes.c_size_t(cut)

    path = os.path.join(folder, "f").encode()
    network = ("get_device_id", "get_stream_id", "is_cpu_inplace_mode", "get_cpu_threads_number", "get_device_type")
    tensor = ("get_tensor_layout", "get_tensor_total_size_in_byte", "get_tensor_device_type", "is_memory_continue")
    calls = {
        **{name: lambda: (handle(), out()) for name in (*network, *tensor, "get_tensor_device_id", "is_pinned_host")},
        "forward": lambda: (handle(),),
        "wait": lambda: (handle(),),
        "destroy_network": lambda: (handle(),),
        "destroy_tensor": lambda: (handle(),),
        "load_model_from_mem": lambda: (handle(), *data()),
        "load_model_from_path": lambda: (handle(), rng.choice((str(DATA / "lite/net_v1.mge").encode(), text()))),
        "shared_weight_with_network": lambda: (handle(), handle()),
        "get_io_tensor": lambda: (handle(), text(), number() & 3, out()),
        "get_input_name": lambda: (handle(), size(), out()),
        "get_output_name": lambda: (handle(), size(), out()),
        "get_all_input_name": lambda: (handle(), out(), out()),
        "set_cpu_inplace_mode": lambda: (handle(),),
        "set_cpu_threads_number": lambda: (handle(), size()),
        "set_device_id": lambda: (handle(), number()),
        "set_stream_id": lambda: (handle(), number()),
        "set_network_algo_policy": lambda: (handle(), number()),
        "set_network_algo_workspace_limit": lambda: (handle(), size()),
        "set_async_callback": lambda: (handle(), rng.choice((None, callback))),
        "enable_io_txt_dump": lambda: (handle(), rng.choice((None, b"", path))),
        "set_tensor_layout": lambda: (handle(), layout()),
        "tensor_fill_zero": lambda: (handle(),),
        "tensor_copy": lambda: (handle(), handle()),
        "tensor_share_memory_with": lambda: (handle(), handle()),
        "tensor_reshape": lambda: (handle(), rng.choice((None, (ctypes.c_int * 8)(*range(-1, 7)))), number() & 7),
        "tensor_slice": lambda: (handle(), sizes(), sizes(), sizes(), ctypes.c_size_t(number() & 7), out()),
        "get_tensor_memory": lambda: (handle(), out()),
        "get_tensor_memory_with_index": lambda: (handle(), sizes(), ctypes.c_size_t(number() & 7), out()),
        "tensor_concat": lambda: (
            (ctypes.c_void_p * 4)(*[rng.choice(handles) for _ in range(4)]),
            rng.randrange(-1, 5),
            number(),
            rng.choice((0, 99)),
            number(),
            out(),
        ),
        "get_model_io_info_by_path": lambda: (text(), config(), out()),
        "set_log_level": lambda: (rng.choice((3, 3, 99)),),
        "try_coalesce_all_free_memory": lambda: (),
    }
    for function in calls:
        getattr(lib, "LITE_" + function).argtypes = None  # anything goes
    counted = {"calls": 0, "refused": 0}
    for _ in range(budget):
        counted["calls"] += 1
        made = ctypes.c_void_p()
        name = rng.choice(("make_network_config", "make_tensor", *calls, *calls))
        if name == "make_network_config":
            rc = lib.LITE_make_network_config(ctypes.byref(made), config())
        elif name == "make_tensor":
            desc = struct.LiteTensorDesc(0, layout(), rng.choice((0, 0, 99)), number())
            rc = lib.LITE_make_tensor(desc, ctypes.byref(made))
        else:
            ctypes.memset(scratch, 0, 8)
            rc = getattr(lib, "LITE_" + name)(*calls[name]())
            if rc == 0 and name in ("get_io_tensor", "tensor_slice", "tensor_concat"):
                made.value = int.from_bytes(scratch[:8], "little")
        if made.value:
            handles.append(made.value)
        if len(handles) > 40:
            old = ctypes.c_void_p(handles.pop(rng.randrange(4, len(handles))))
            lib.LITE_destroy_tensor(old)
            lib.LITE_destroy_network(old)
        if rc != 0:
            counted["refused"] += 1
            assert rc == -1 and lib.LITE_get_last_error(), f"{name}: status {rc} without a text"
    return counted
