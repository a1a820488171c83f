"""The models that the other examples run: a small classifier of feature maps, and one that takes bytes of an image.

    python make_models.py FOLDER

writes FOLDER/classifier.mge (input ``data`` float32 [n,3,h,w], outputs ``logits`` and ``prob``) and FOLDER/image.mge
(input ``image`` uint8 [1,h,w,3] of any size; scaling, normalising and the order of axes are part of the model).
"""

from __future__ import annotations

import pathlib
import sys

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.jit import trace


class Classifier(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = M.ConvBnRelu2d(3, 8, 3, padding=1)
        self.fc = M.Linear(8, 5)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return self.fc(F.flatten(F.avg_pool2d(self.conv(x), 2), 2).mean(2))


def write(folder: pathlib.Path) -> Classifier:
    mge.random.seed(7)
    net = Classifier()
    net.eval()
    mean, scale = (
        mge.Tensor([[[[123.7]], [[116.3]], [[103.5]]]]),
        mge.Tensor([[[[1 / 58.4]], [[1 / 57.1]], [[1 / 57.4]]]]),
    )

    @trace(symbolic=True, capture_as_const=True)
    def classify(data: mge.Tensor) -> tuple[mge.Tensor, mge.Tensor]:
        logits = net(data)
        return logits, F.softmax(logits, axis=1)

    @trace(symbolic=True, capture_as_const=True)
    def classify_image(image: mge.Tensor) -> mge.Tensor:
        x = F.transpose(image.astype("float32"), (0, 3, 1, 2))
        x = F.nn.interpolate(x, (16, 16))
        return F.softmax(net((x - mean) * scale), axis=1)

    folder.mkdir(parents=True, exist_ok=True)
    classify(mge.Tensor(np.zeros((2, 3, 8, 8), "float32")))
    classify.dump(str(folder / "classifier.mge"), arg_names=["data"], output_names=["logits", "prob"])
    classify_image(mge.Tensor(np.zeros((1, 24, 32, 3), "uint8")))
    classify_image.dump(str(folder / "image.mge"), arg_names=["image"], output_names=["prob"])
    return net


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: make_models.py FOLDER")
    write(pathlib.Path(sys.argv[1]))
