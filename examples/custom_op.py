"""An operator of your own with its gradient, from C++ to a dumped model: y = x * sigmoid(beta * x).

python examples/custom_op.py
"""

from __future__ import annotations

import io
import pathlib
import tempfile

import numpy as np

import megengine as mge
from megengine.autodiff import Function, GradManager
from megengine.core._imperative_rt.core2 import apply
from megengine.core.ops import custom
from megengine.jit import trace
from megengine.utils import custom_op_tools
from megengine.utils.comp_graph_tools import GraphInference

SOURCE = """
#include <cmath>
#include "megbrain/custom/custom.h"
CUSTOM_OP_REG_BEGIN(Swish)

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

void forward(const std::vector<Tensor>& in, const Param& params, std::vector<Tensor>& out) {
  const float beta = params["beta"].as<float>();
  const float* x = in[0].data<float>();
  for (size_t i = 0; i < in[0].size(); ++i) out[0].data<float>()[i] = x[i] * sigmoid(beta * x[i]);
}
void backward(const std::vector<Tensor>& in, const Param& params, std::vector<Tensor>& out) {
  const float beta = params["beta"].as<float>();
  const float *x = in[0].data<float>(), *gy = in[1].data<float>();
  for (size_t i = 0; i < in[0].size(); ++i) {
    const float s = sigmoid(beta * x[i]);
    out[0].data<float>()[i] = gy[i] * (s + beta * x[i] * s * (1 - s));
  }
}
void same(const std::vector<Shape>& in, const Param&, std::vector<Shape>& out) { out[0] = in[0]; }
void same_dtype(const std::vector<DType>& in, const Param&, std::vector<DType>& out) { out[0] = in[0]; }

CUSTOM_OP_REG(SwishForward).add_inputs(1).add_outputs(1).add_param("beta", 1.0f)
    .set_shape_infer(same).set_dtype_infer(same_dtype).set_compute(forward);
CUSTOM_OP_REG(SwishBackward).add_inputs(2).add_outputs(1).add_param("beta", 1.0f)
    .set_shape_infer(same).set_dtype_infer(same_dtype).set_compute(backward);

CUSTOM_OP_REG_END(Swish)
"""


class Swish(Function):
    """The two operators as one function that can be differentiated."""

    def __init__(self, beta: float) -> None:
        self.beta = beta

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        self.saved = x
        return apply(custom.SwishForward(beta=self.beta), x)[0]

    def backward(self, *output_grads: mge.Tensor) -> mge.Tensor:
        (gy,) = output_grads
        return apply(custom.SwishBackward(beta=self.beta), self.saved, gy)[0]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "swish.cpp"
        source.write_text(SOURCE)
        path = custom_op_tools.build_and_load("swish", [str(source)], build_dir=folder)
        print(f"operators: {', '.join(custom._get_custom_op_lib_info()[path])}")

        x = mge.Tensor(np.linspace(-2, 2, 5, dtype="float32"))
        gm = GradManager().attach(x)
        with gm:
            y = Swish(1.5)(x)
            gm.backward(y.sum())
        print("y  ", y.numpy().round(4))
        assert x.grad is not None
        print("dx ", x.grad.numpy().round(4))

        @trace(symbolic=True, capture_as_const=True)
        def model(x: mge.Tensor) -> mge.Tensor:
            return apply(custom.SwishForward(beta=1.5), x)[0] * 2

        want = model(x)
        file = io.BytesIO()
        model.dump(file, arg_names=["x"], output_names=["y"])
        file.seek(0)
        got = GraphInference(file).run(x.numpy())["y"]
        assert np.array_equal(got, want.numpy())
        print("the dumped model gives the same bits")
        custom.unload(path)


if __name__ == "__main__":
    main()
