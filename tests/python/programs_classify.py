"""A classifier as people train one: layers of their own, hooks, an optimizer of their own, mixed precision, averages of
weights, checkpoints. Each ``main`` returns numbers that a test looks at; nothing here knows which engine runs it."""

import collections
import copy
import functools
import io
import math
import os

import numpy as np

import megengine as mge
import megengine.amp as amp
import megengine.autodiff as autodiff
import megengine.data as data
import megengine.data.transform as T
import megengine.distributed as dist
import megengine.functional as F
import megengine.jit as jit
import megengine.module as M
import megengine.optimizer as optim
from megengine.functional.inplace import _inplace_add_
from megengine.module.batchnorm import _BatchNorm
from megengine.optimizer import Optimizer
from megengine.utils.module_stats import module_stats, register_flops

NORMS = (_BatchNorm, M.GroupNorm, M.InstanceNorm, M.LayerNorm)
logger = mge.get_logger(__name__)


class Toy(data.dataset.ArrayDataset):
    """Stripes whose direction is the class."""

    def __init__(self, n=64, seed=0):
        rng = np.random.RandomState(seed)
        label = rng.randint(0, 3, n).astype("int32")
        y, x = np.mgrid[0:12, 0:12]
        waves = np.stack([np.sin(x), np.sin(y), np.sin(x + y)])
        image = waves[label][..., None] * 40 + 128 + rng.randn(n, 12, 12, 1) * 5
        super().__init__(image.astype("float32"), label)


class Excite(M.Module):
    def __init__(self, width):
        super().__init__()
        self.pool = M.AdaptiveAvgPool2d(1)
        self.scale = M.Sequential(
            collections.OrderedDict(
                [
                    ("down", M.Conv2d(width, 2, 1)),
                    ("act", M.ReLU()),
                    ("up", M.Conv2d(2, width, 1)),
                    ("gate", M.Sigmoid()),
                ]
            )
        )

    def forward(self, x):
        return x * self.scale(self.pool(x))


class DropPath(M.Dropout):
    def forward(self, x):
        if not self.training or self.drop_prob == 0.0:
            return x
        mask = F.dropout(F.ones((x.shape[0],) + (1,) * (x.ndim - 1)), self.drop_prob, training=self.training)
        return x * mask


class Net(M.Module):
    def __init__(self, norm="SyncBN", drop=0.0, classes=3):
        super().__init__()
        kinds = {"BN": M.BatchNorm2d, "SyncBN": M.SyncBatchNorm, "GN": functools.partial(M.GroupNorm, 2)}
        self.stem = M.Conv2d(1, 8, 3, padding=1, bias=False)
        self.bn = kinds[norm](8)
        self.block = M.Sequential(M.Conv2d(8, 8, 3, padding=1, groups=2), M.GELU(), Excite(8))
        self.path = DropPath(drop)
        self.head = M.Linear(8, classes)
        for m in self.modules():
            if isinstance(m, M.Conv2d):
                _, fan_out = M.init.calculate_fan_in_and_fan_out(m.weight)
                M.init.normal_(m.weight, 0, math.sqrt(2 / fan_out))
            elif isinstance(m, NORMS) and m.weight is not None:
                M.init.ones_(m.weight)
                M.init.zeros_(m.bias)

    def forward(self, x):
        x = F.relu(self.bn(self.stem(x)))
        x = x + self.path(self.block(x))
        return self.head(F.flatten(F.avg_pool2d(x, 12), 1))


class Lars(Optimizer):
    """A rule of one's own, with state and both ways to update."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self._disable_type_convert = True

    def _create_state(self, param_group):
        for param in param_group["params"]:
            self._add_state(param, "momentum_buffer")

    def _updates(self, param_group):
        lr, momentum, decay = (mge.tensor(param_group[k]) for k in ("lr", "momentum", "weight_decay"))
        one = mge.tensor(1.0)
        in_place = int(os.getenv("MEGENGINE_INPLACE_UPDATE", "0"))
        for param in param_group["params"]:
            if param.grad is None:
                continue
            grad = param.grad + param * decay
            size = F.sum(param.flatten() ** mge.tensor(2.0)) ** mge.tensor(0.5)
            step = F.sum(grad.flatten() ** mge.tensor(2.0)) ** mge.tensor(0.5)
            ratio = size / step if size > mge.tensor(0.0) and step > mge.tensor(0.0) else one
            v = self._state[param]["momentum_buffer"]
            if in_place:
                _inplace_add_(v, grad, alpha=momentum, beta=one)
                _inplace_add_(param, v, alpha=one, beta=-lr * F.minimum(ratio, one))
            else:
                v *= momentum
                v += grad
                param -= lr * F.minimum(ratio, one) * v


def draw(net, seed):
    """Weights that do not depend on the engine's generator."""
    rng = np.random.RandomState(seed)
    for _, p in sorted(net.named_parameters(), key=lambda item: item[0]):
        if p.ndim > 1 and min(p.shape[-2:]) >= 1 and p.size > max(p.shape):
            fan = np.prod(p.shape[-3:]) if p.ndim > 2 else p.shape[-1]
            p[...] = (rng.randn(*p.shape) / np.sqrt(fan)).astype("float32")


def loader(batch=16, workers=0):
    toy = Toy()
    return data.DataLoader(
        toy,
        sampler=data.Infinite(data.RandomSampler(toy, batch_size=batch, drop_last=True, seed=7)),
        transform=T.Compose([T.Normalize(mean=128.0, std=40.0), T.ToMode("CHW")]),
        num_workers=workers,
    )


def groups(model, decay):
    """No decay for what has one dimension."""
    found = collections.defaultdict(list)
    for name, p in model.named_parameters():
        found[0.0 if name.endswith("bias") or p.ndim == 1 else decay].append(p)
    return [{"params": params, "weight_decay": d} for d, params in found.items()]


def main(steps=12, traced=False, mixed=False, rule="sgd"):
    mge.random.seed(3)
    np.random.seed(3)
    model = Net()
    draw(model, 3)
    model.train()
    if dist.get_world_size() > 1:
        dist.bcast_list_(model.parameters(), dist.WORLD)
        dist.bcast_list_(model.buffers(), dist.WORLD)
    callbacks = [dist.make_allreduce_cb("mean", dist.WORLD)] if dist.get_world_size() > 1 else None
    gm = autodiff.GradManager().attach(model.parameters(), callbacks=callbacks)
    kinds = {
        "sgd": functools.partial(optim.SGD, momentum=0.9, weight_decay=1e-4),
        "adamw": functools.partial(optim.AdamW, weight_decay=1e-2),
        "lars": Lars,
    }
    opt = kinds[rule](groups(model, 1e-4), lr=0.1 if rule != "adamw" else 0.02)
    schedule = optim.MultiStepLR(opt, [steps // 2], gamma=0.5)
    scaler = amp.GradScaler(init_scale=64.0) if mixed else None
    average = copy.deepcopy(model)

    def step(image, label):
        with gm:
            with amp.autocast(enabled=mixed):
                logits = model(image)
                loss = F.nn.cross_entropy(logits, label, label_smooth=0.1)
            if scaler is not None:
                scaler.backward(gm, loss)
            else:
                gm.backward(loss)
        norm = optim.clip_grad_norm(model.parameters(), max_norm=5.0)
        opt.step().clear_grad()
        top1, top2 = F.metric.topk_accuracy(logits, label, (1, 2))
        return loss, top1, top2, norm

    if traced:
        step = jit.trace(step, symbolic=True)
    queue = iter(loader())
    losses = []
    for _ in range(steps):
        image, label = next(queue)
        out = step(mge.tensor(image, dtype="float32"), mge.tensor(label, dtype="int32"))
        losses.append(float(out[0].item()))
        schedule.step()
        for e, p in zip(average.parameters(), model.parameters()):
            e._reset(e * 0.9 + p * 0.1)
        mge._full_sync()
    logger.debug("loss %f", losses[-1])

    file = io.BytesIO()
    mge.save({"step": steps, "state_dict": model.state_dict(), "optimizer": opt.state_dict()}, file)
    file.seek(0)
    kept = mge.load(file, map_location="cpu0")
    fresh = Net()
    fresh.load_state_dict(kept["state_dict"], strict=True)
    opt.load_state_dict(kept["optimizer"])
    toy = Toy(32, seed=5)
    image = mge.tensor((np.stack([toy[i][0] for i in range(32)]) - 128).transpose(0, 3, 1, 2) / 40)
    for net in (model, fresh, average):
        net.eval()
    a, b = model(image).numpy(), fresh(image).numpy()
    right = float((F.argmax(model(image), axis=1).numpy() == np.array([toy[i][1] for i in range(32)])).mean())
    return {"losses": losses, "same": float(np.abs(a - b).max()), "right": right, "rank": dist.get_rank()}


def statistics():
    """Flops and parameters, with a rule for a layer of one's own."""

    @register_flops(Excite)
    def flops_excite(module, inputs, outputs):
        return int(np.prod(outputs[0].shape))

    total, details = module_stats(Net("BN"), input_shapes=(1, 1, 12, 12), logging_to_stdout=False)
    return {"params": float(total.param_dims), "flops": float(total.flops), "rows": len(details.params)}
