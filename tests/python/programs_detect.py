"""A small detector in the usual parts: pyramid, anchors, assignment, losses, suppression, crops of regions."""

import math

import numpy as np
from programs_classify import draw

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.autodiff import Function, GradManager
from megengine.core.tensor.array_method import _elwise
from megengine.functional.elemwise import Elemwise
from megengine.optimizer import SGD


class SmoothSign(Function):
    """A step that passes gradients on."""

    def forward(self, x):
        return F.sign(x)

    def backward(self, dy):
        return dy


class Neck(M.Module):
    def __init__(self):
        super().__init__()
        self.layers = [M.ConvBnRelu2d(3, 8, 3, stride=2, padding=1), M.ConvBnRelu2d(8, 8, 3, stride=2, padding=1)]
        self.lateral = M.Conv2d(8, 8, 1)

    def forward(self, x):
        fine = self.layers[0](x)
        coarse = self.layers[1](fine)
        up = F.vision.interpolate(coarse, scale_factor=2, mode="nearest")
        return {"p2": fine + self.lateral(up), "p3": coarse}


class Detector(M.Module):
    strides = (2, 4)

    def __init__(self, classes=2):
        super().__init__()
        self.neck = Neck()
        self.cls = M.Conv2d(8, classes, 3, padding=1)
        self.box = M.Conv2d(8, 4, 3, padding=1)
        self.roi = M.Linear(8 * 4, classes)
        M.init.fill_(self.cls.bias, -math.log((1 - 0.1) / 0.1))

    def centres(self, height, width, stride):
        ys = F.linspace(stride / 2, (height - 0.5) * stride, height)
        xs = F.linspace(stride / 2, (width - 0.5) * stride, width)
        y = F.broadcast_to(F.expand_dims(ys, 1), (height, width))
        x = F.broadcast_to(F.expand_dims(xs, 0), (height, width))
        return F.stack([x.reshape(-1), y.reshape(-1)], axis=1)

    def forward(self, image):
        features = self.neck(image)
        logits, boxes, points = [], [], []
        for stride, feature in zip(self.strides, features.values()):
            n, _, h, w = feature.shape
            centre = self.centres(int(h), int(w), stride)
            logits.append(self.cls(feature).transpose(0, 2, 3, 1).reshape(n, -1, 2))
            size = F.exp(F.clip(self.box(feature), upper=4.0)).transpose(0, 2, 3, 1).reshape(n, -1, 4)
            low = F.expand_dims(centre, 0) - size[..., :2] * stride
            high = F.expand_dims(centre, 0) + size[..., 2:] * stride
            boxes.append(F.concat([low, high], axis=2))
            points.append(centre)
        return F.concat(logits, 1), F.concat(boxes, 1), F.concat(points, 0), features["p2"]


def iou(a, b):
    low = F.maximum(F.expand_dims(a[:, :2], 1), F.expand_dims(b[:, :2], 0))
    high = F.minimum(F.expand_dims(a[:, 2:4], 1), F.expand_dims(b[:, 2:4], 0))
    inter = F.prod(F.maximum(high - low, 0), axis=2)
    area = [F.prod(x[:, 2:4] - x[:, :2], axis=1) for x in (a, b)]
    return inter / (F.expand_dims(area[0], 1) + F.expand_dims(area[1], 0) - inter)


def focal(logits, target, gamma=2.0, alpha=0.25):
    p = F.sigmoid(logits)
    loss = F.loss.binary_cross_entropy(logits, target, with_logits=True, reduction="none")
    weight = target * (1 - p) ** gamma * alpha + (1 - target) * p**gamma * (1 - alpha)
    return (loss * weight).sum()


def scenes(n, seed=0):
    rng = np.random.RandomState(seed)
    image = rng.randn(n, 3, 16, 16).astype("float32") * 0.1
    boxes = np.zeros((n, 4), "float32")
    label = rng.randint(0, 2, n).astype("int32")
    for i in range(n):
        x, y = rng.randint(0, 8, 2)
        image[i, label[i], y : y + 7, x : x + 7] += 2
        boxes[i] = (x, y, x + 7, y + 7)
    return image, boxes, label


def main(steps=10):
    mge.random.seed(5)
    np.random.seed(5)
    net = Detector()
    draw(net, 5)
    gm = GradManager().attach(net.parameters())
    opt = SGD(net.parameters(), lr=0.02, momentum=0.9)
    losses = []
    for i in range(steps):
        image, boxes, label = (mge.tensor(v) for v in scenes(4, i % 2))
        with gm:
            logits, found, points, p2 = net(image)
            parts = []
            for k in range(4):
                inside = F.logical_and(
                    F.logical_and(points[:, 0] > boxes[k, 0], points[:, 0] < boxes[k, 2]),
                    F.logical_and(points[:, 1] > boxes[k, 1], points[:, 1] < boxes[k, 3]),
                )
                _, at = F.cond_take(inside, inside)
                target = F.zeros_like(logits[k])
                target[at] = F.one_hot(label[k : k + 1], 2)
                overlap = iou(found[k][at], F.expand_dims(boxes[k], 0))
                parts.append(focal(logits[k], target) / max(int(at.shape[0]), 1) + (1 - overlap).mean())
            rois = F.concat([F.expand_dims(F.arange(4), 1).astype("float32"), boxes], axis=1)
            crops = F.vision.roi_align(p2, rois, (2, 2), spatial_scale=0.5)
            second = F.nn.cross_entropy(net.roi(F.flatten(crops, 1)), label)
            loss = sum(parts) + second
            gm.backward(loss)
        opt.step().clear_grad()
        losses.append(loss.item())
    net.eval()
    image, boxes, label = scenes(4, 0)
    logits, found, _, _ = net(mge.tensor(image))
    score = F.sigmoid(logits[0])
    best, kind = F.max(score, axis=1), F.argmax(score, axis=1)
    value, order = F.topk(best, 20, descending=True)
    kept = F.vision.nms(found[0][order], value, iou_thresh=0.5, max_output=5)
    overlap = iou(found[0][order][kept], mge.tensor(boxes[:1])).numpy()
    return {"losses": losses, "kept": int(kept.shape[0]), "overlap": float(overlap.max()), "kinds": kind.numpy().max()}


def straight_through():
    """A Function of one's own, and private elementwise names."""
    x = Tensor(np.linspace(-1, 1, 5).astype("float32"))
    with GradManager().attach(x) as gm:
        y = SmoothSign()(x) * _elwise(x, mode=Elemwise.Mode.TANH)
        gm.backward(y.sum())
    return {"y": y.numpy().tolist(), "dx": x.grad.numpy().tolist()}
