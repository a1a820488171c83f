"""The rivals' half of ``lite.py``, run by an interpreter that has them (requirements-lite.txt): makes ONNX graphs of
the networks and runs them.

    python benchmarks/lite_onnx.py make resnet18 FOLDER           # resnet18.onnx, and what converters make of it
    python benchmarks/lite_onnx.py run PEER resnet18 FOLDER THREADS SECONDS
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from lite_nets import NETS, WIDTH, Array, Maker, given, read_given, write_given
from lite_run import report


class Onnx:
    """Builds an ONNX graph; values are names."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.rows = False  # values are matrices in a batch of one

    def constant(self, value: np.ndarray[Any, Any]) -> str:
        import onnx.numpy_helper

        name = f"w{len(self.weights)}"
        self.weights.append(onnx.numpy_helper.from_array(value, name))
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        import onnx.helper

        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(onnx.helper.make_node(kind, list(inputs), names, **attrs))
        return names if outputs > 1 else names[0]

    def conv(self, x: str, w: Array, bias: Array | None, stride: int, pad: int, groups: int) -> Any:
        more = [] if bias is None else [self.constant(bias)]
        shape = {"kernel_shape": w.shape[2:], "strides": [stride] * 2, "pads": [pad] * 4, "group": groups}
        return self.op("Conv", x, self.constant(w), *more, **shape)

    def batch_norm(self, x: str, scale: Array, shift: Array, mean: Array, var: Array) -> Any:
        return self.op("BatchNormalization", x, *map(self.constant, (scale, shift, mean, var)), epsilon=1e-5)

    def act(self, x: str, kind: str) -> Any:
        if kind == "relu":
            return self.op("Relu", x)
        if kind == "gelu":  # as exporters write it, and as all of them find it again
            half, one, root = (self.constant(np.array(v, np.float32)) for v in (0.5, 1, 2**0.5))
            return self.op("Mul", self.op("Mul", x, self.op("Add", self.op("Erf", self.op("Div", x, root)), one)), half)
        return self.op("Clip", x, *(self.constant(np.array(v, np.float32)) for v in (0, 6)))

    def max_pool(self, x: str, kernel: int, stride: int, pad: int) -> Any:
        return self.op("MaxPool", x, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)

    def add(self, x: str, y: str) -> Any:
        return self.op("Add", x, y)

    def concat(self, x: str, y: str) -> Any:
        return self.op("Concat", x, y, axis=1)

    def halves(self, x: str, channels: int) -> Any:
        return self.op("Split", x, self.constant(np.array([channels // 2] * 2)), outputs=2, axis=1)

    def shuffle(self, x: str, channels: int, size: int) -> Any:
        x = self.op("Reshape", x, self.constant(np.array([1, 2, channels // 2, size, size])))
        x = self.op("Transpose", x, perm=[0, 2, 1, 3, 4])
        return self.op("Reshape", x, self.constant(np.array([1, channels, size, size])))

    def mean(self, x: str) -> Any:
        return self.flatten(self.op("GlobalAveragePool", x))

    def flatten(self, x: str) -> Any:
        return self.op("Flatten", x, axis=1)

    def linear(self, x: str, w: Array, bias: Array) -> Any:
        if self.rows:  # Gemm takes matrices only
            return self.op("Add", self.op("MatMul", x, self.constant(np.ascontiguousarray(w.T))), self.constant(bias))
        return self.op("Gemm", x, self.constant(w), self.constant(bias), transB=1)

    def embed(self, x: str, table: Array, positions: Array) -> Any:
        self.rows = True
        return self.op("Add", self.op("Gather", self.constant(table), x, axis=0), self.constant(positions))

    def layer_norm(self, x: str, scale: Array, shift: Array) -> Any:
        return self.op("LayerNormalization", x, self.constant(scale), self.constant(shift), axis=-1, epsilon=1e-5)

    def attention(self, qkv: str, heads: int, mask: Array) -> Any:
        s, d = len(mask), WIDTH
        parts = self.op("Split", qkv, self.constant(np.array([d] * 3)), outputs=3, axis=2)
        split = self.constant(np.array([1, s, heads, d // heads]))
        q, k, v = (
            self.op("Transpose", self.op("Reshape", x, split), perm=perm)
            for x, perm in zip(parts, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
        )
        scale = self.constant(np.array((d // heads) ** -0.5, np.float32))
        scores = self.op("Add", self.op("Mul", self.op("MatMul", q, k), scale), self.constant(mask))
        y = self.op("Transpose", self.op("MatMul", self.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        return self.op("Reshape", y, self.constant(np.array([1, s, d])))

    def lstm(self, x: str, w: Array, state_w: Array, bias: Array, state_bias: Array) -> Any:
        def ordered(v: Array) -> str:  # i, f, g, o in ours; i, o, f, g here
            i, f, g, o = np.split(v, 4)
            return self.constant(np.concatenate([i, o, f, g])[None])

        both = np.stack([bias.reshape(4, -1), state_bias.reshape(4, -1)])[:, [0, 3, 1, 2]].reshape(1, -1)
        hidden = state_w.shape[1]
        y = self.op("LSTM", x, ordered(w), ordered(state_w), self.constant(both), hidden_size=hidden)
        return self.op("Squeeze", y, self.constant(np.array([1])))

    def last(self, x: str) -> Any:
        return self.op("Gather", x, self.constant(np.array(-1)), axis=0)


class AfterEmbedding(Onnx):
    """Begins with the rows of the words: pnnx tries graphs with random bits for their inputs, which are no words."""

    def embed(self, x: str, table: Array, positions: Array) -> Any:
        self.rows = True
        self.given = table[given("transformer")] + positions
        return x


def save(b: Onnx, name: str, x: np.ndarray[Any, Any], path: pathlib.Path) -> None:
    import onnx
    import onnx.helper as h

    y = NETS[name](Maker(b), "x")
    x = getattr(b, "given", x)
    kinds = h.np_dtype_to_tensor_dtype(x.dtype), onnx.TensorProto.FLOAT
    ends = [h.make_tensor_value_info(n, k, s) for n, k, s in zip(("x", y), kinds, (x.shape, None), strict=True)]
    graph = h.make_graph(b.nodes, name, ends[:1], ends[1:], b.weights)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), path)


def make(name: str, folder: pathlib.Path) -> None:
    x, path = given(name), folder / f"{name}.onnx"
    write_given(name, str(folder))
    save(Onnx(), name, x, path)
    convert(
        [
            "MNNConvert",
            "-f",
            "ONNX",
            "--modelFile",
            str(path),
            "--MNNModel",
            str(path.with_suffix(".mnn")),
            "--useOriginRNNImpl",
        ]
    )
    if name == "transformer":
        b, inner = AfterEmbedding(), folder / "inner"
        inner.mkdir(exist_ok=True)
        save(b, name, x, inner / path.name)
        x = b.given
        x.tofile(path.with_suffix(".rows"))
        path = inner / path.name
    convert(["pnnx", str(path), "inputshape=[" + ",".join(map(str, x.shape)) + "]", "fp16=0"])
    for made in path.parent.glob(f"{name}.ncnn.*"):
        made.replace(folder / made.name)


def convert(command: list[str]) -> None:
    """By a program beside this interpreter; one that is not there, or fails, leaves its rival out."""
    program = pathlib.Path(sys.executable).parent / command[0].lower()
    for tool in (program, program.with_name(command[0])):
        if tool.exists():
            # MNN's calls pip to install what it reports its use with, which brings a protobuf that onnx does not take.
            with tempfile.TemporaryDirectory() as refusing:
                pip = pathlib.Path(refusing) / "pip"
                pip.write_text("#!/bin/sh\nexit 1\n")
                pip.chmod(0o755)
                env = {**os.environ, "PATH": f"{refusing}{os.pathsep}{os.environ.get('PATH', '')}"}
                subprocess.run([str(tool), *command[1:]], capture_output=True, check=False, env=env)
            return


def onnxruntime(path: pathlib.Path, x: Array, threads: int) -> tuple[Callable[[], object], Callable[[], Any]]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    got: list[Any] = []

    def forward() -> None:
        got[:] = session.run(None, {"x": x})

    return forward, lambda: got[0]


def openvino(path: pathlib.Path, x: Array, threads: int) -> tuple[Callable[[], object], Callable[[], Any]]:
    import openvino as ov

    config = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = ov.Core().compile_model(str(path), "CPU", config).create_infer_request()
    request.set_input_tensor(ov.Tensor(x))
    return request.infer, lambda: request.get_output_tensor().data


def ncnn(path: pathlib.Path, x: Array, threads: int) -> tuple[Callable[[], object], Callable[[], Any]]:
    import ncnn as lib

    net = lib.Net()
    net.opt.num_threads = threads
    for half in ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_storage"):
        setattr(net.opt, half, False)
    net.load_param(str(path.with_suffix(".ncnn.param")))
    net.load_model(str(path.with_suffix(".ncnn.bin")))
    if path.with_suffix(".rows").exists():
        x = np.fromfile(path.with_suffix(".rows"), np.float32).reshape(*x.shape, -1)
    # It knows no batches. A Mat of its own, since one does not keep the array.
    image_ = lib.Mat(np.ascontiguousarray(x if x.ndim == 1 else x.squeeze(x.shape.index(1)))).clone()
    got: list[Any] = []

    def forward() -> None:
        with net.create_extractor() as run:
            run.input("in0", image_)
            got[:] = [run.extract("out0")[1]]

    return forward, lambda: np.array(got[0])


def mnn(path: pathlib.Path, x: Array, threads: int) -> tuple[Callable[[], object], Callable[[], Any]]:
    import MNN

    net = MNN.Interpreter(str(path.with_suffix(".mnn")))
    session = net.createSession({"numThread": threads, "precision": "high", "backend": "CPU"})
    given = net.getSessionInput(session)
    kind = MNN.Halide_Type_Int if x.dtype == np.int32 else MNN.Halide_Type_Float
    host = MNN.Tensor(x.shape, kind, x, MNN.Tensor_DimensionType_Caffe)
    given.copyFrom(host)

    def forward() -> None:
        given.copyFrom(host)
        net.runSession(session)

    def output() -> Any:
        y = net.getSessionOutput(session)
        shape = y.getShape()
        to = MNN.Tensor(shape, MNN.Halide_Type_Float, np.zeros(shape, np.float32), MNN.Tensor_DimensionType_Caffe)
        y.copyToHostTensor(to)
        return np.array(to.getData(), np.float32)

    return forward, output


PEERS = {"onnxruntime": onnxruntime, "openvino": openvino, "ncnn": ncnn, "mnn": mnn}


def main() -> None:
    if sys.argv[1] == "make":
        return make(sys.argv[2], pathlib.Path(sys.argv[3]))
    peer, name, folder, threads, seconds = sys.argv[2:7]
    forward, output = PEERS[peer](pathlib.Path(folder) / f"{name}.onnx", read_given(name, folder), int(threads))
    report(forward, output, float(seconds))


if __name__ == "__main__":
    main()
