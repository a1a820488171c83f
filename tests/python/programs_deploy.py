"""From float training to a file that ships: distributed names with one process, quantisation-aware training, a traced
module, an int8 model, a dumped graph."""

import io

import numpy as np
from programs_classify import Toy, draw

import megengine as mge
import megengine.autodiff as autodiff
import megengine.distributed as dist
import megengine.functional as F
import megengine.module as M
import megengine.module.qat as QAT
import megengine.optimizer as optim
import megengine.quantization as Q
import megengine.traced_module as tm
from megengine.jit import trace
from megengine.quantization.quantize import (
    disable_fake_quant,
    disable_observer,
    enable_fake_quant,
    enable_observer,
    quantize,
    quantize_qat,
    reset_qconfig,
)


class Net(M.Module):
    """Layers that have quantised forms, in the usual order."""

    def __init__(self):
        super().__init__()
        self.quant = M.QuantStub()
        self.conv0 = M.ConvBnRelu2d(1, 8, 3, padding=1)
        self.conv1 = M.ConvBn2d(8, 8, 3, padding=1)
        self.add = M.Elemwise("FUSE_ADD_RELU")
        self.fc = M.Linear(8 * 9, 3)
        self.dequant = M.DequantStub()

    def forward(self, x):
        x = self.conv0(self.quant(x))
        x = self.add(x, self.conv1(x))
        x = F.max_pool2d(x, 4)
        return self.dequant(self.fc(F.flatten(x, 1)))


def batches(n, size=16):
    toy = Toy(64)
    rng = np.random.RandomState(1)
    for _ in range(n):
        at = rng.randint(0, 64, size)
        image = np.stack([toy[i][0] for i in at]).transpose(0, 3, 1, 2)
        yield mge.tensor((image - 128) / 40), mge.tensor(np.array([toy[i][1] for i in at], "int32"))


def train(net, steps, lr):
    net.train()
    rank, world = dist.get_rank(), dist.get_world_size()
    assert rank == 0 and world == 1 and not dist.is_distributed()
    if world > 1:
        dist.bcast_list_(net.parameters(), dist.WORLD)
    gm = autodiff.GradManager().attach(
        net.parameters(), callbacks=[dist.make_allreduce_cb("mean", dist.WORLD)] if world > 1 else None
    )
    opt = optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    losses = []
    for image, label in batches(steps):
        with gm:
            loss = F.nn.cross_entropy(net(image), label)
            gm.backward(loss)
        opt.step().clear_grad()
        if dist.is_distributed():
            loss = dist.functional.all_reduce_sum(loss) / world
        losses.append(loss.item())
    dist.group_barrier() if world > 1 else None
    return losses


def dumped(function, x, name="data"):
    """The model file of a function of one tensor."""
    traced = trace(function, symbolic=True, capture_as_const=True)
    traced(x)
    file = io.BytesIO()
    traced.dump(file, arg_names=[name], output_names=["logits"], optimize_for_inference=False)
    file.seek(0)
    return file


def main(steps=8):
    mge.random.seed(2)
    net = Net()
    draw(net, 2)
    losses = train(net, steps, 0.05)

    quantize_qat(net, qconfig=Q.ema_fakequant_qconfig)
    assert isinstance(net.conv0, QAT.ConvBnRelu2d) and isinstance(net.fc, QAT.Linear)
    disable_fake_quant(net)
    enable_observer(net)
    train(net, 2, 0.0)
    enable_fake_quant(net)
    tuned = train(net, steps, 0.01)
    disable_observer(net)
    net.eval()

    image, label = next(batches(1, 8))
    simulated = net(image).numpy()
    graph_module = tm.trace_module(net, image)
    traced = graph_module(image).numpy()
    file = io.BytesIO()
    mge.save(graph_module, file)
    file.seek(0)
    loaded = mge.load(file)(image).numpy()

    ship = quantize(net, inplace=False)
    ship.eval()
    integers = ship(image).numpy()
    model = dumped(lambda x: ship(x), image)
    lite = mge.cgtools.GraphInference(model).run(image.numpy())["logits"]
    right = float((integers.argmax(1) == label.numpy()).mean())
    return {
        "losses": losses,
        "tuned": tuned,
        "traced": float(np.abs(traced - simulated).max()),
        "loaded": float(np.abs(loaded - simulated).max()),
        "int8": float(np.abs(integers - simulated).max()),
        "range": float(np.abs(simulated).max()),
        "lite": float(np.abs(lite - integers).max()),
        "right": right,
    }


def float_traced_module():
    """A traced module is queried, changed, flattened and shipped."""
    net = Net()
    draw(net, 4)
    net.eval()
    image, _ = next(batches(1, 4))
    want = net(image).numpy()
    module = tm.trace_module(net, image)
    flat = module.flatten()
    graph = flat.graph
    relus = graph.get_function_by_type(F.max_pool2d).as_list()
    kinds = [type(m).__name__ for m in module.graph.get_module_by_type(M.Module).as_list()]
    got = flat(image).numpy()
    model = dumped(lambda x: module(x), image)
    lite = mge.cgtools.GraphInference(model).run(image.numpy())["logits"]
    fresh = Net()
    reset_qconfig(quantize_qat(fresh, inplace=False), Q.min_max_fakequant_qconfig)
    return {
        "flat": float(np.abs(got - want).max()),
        "lite": float(np.abs(lite - want).max()),
        "pools": len(relus),
        "modules": len(kinds),
    }


def quantised_traced_module():
    """The other order: the graph first, its batch norms folded, then quantisation of the graph itself."""
    net = Net()
    draw(net, 6)
    train(net, 4, 0.05)
    net.eval()
    image, _ = next(batches(1, 8))
    want = net(image).numpy()
    module = tm.trace_module(net, image)
    quantize_qat(module, qconfig=Q.min_max_fakequant_qconfig)
    module.train()
    enable_observer(module)
    for x, _ in batches(3):
        module(x)
    disable_observer(module)
    module.eval()
    simulated = module(image).numpy()
    ship = quantize(module, inplace=False)
    ship.eval()
    integers = ship(image).numpy()
    lite = mge.cgtools.GraphInference(dumped(lambda x: ship(x), image)).run(image.numpy())["logits"]
    return {
        "near": float(np.abs(simulated - want).max() / np.abs(want).max()),
        "int8": float(np.abs(integers - simulated).max()),
        "lite": float(np.abs(lite - integers).max()),
        "kinds": sorted(
            {type(m).__module__ + "." + type(m).__name__ for m in ship.modules() if "quantized" in type(m).__module__}
        ),
    }


def shipped_with_preprocessing():
    """Images as bytes go into the model, boxes of a size of their own come out, and sizes change after dumping."""
    net = M.Sequential(M.Conv2d(3, 4, 3, stride=2), M.ReLU(), M.AdaptiveAvgPool2d(2))
    draw(net, 8)
    net.eval()

    def infer(image):
        x = (image.astype("float32") - 127.5) / 128.0
        x = F.vision.interpolate(x, size=(16, 16), mode="bilinear", align_corners=False)
        y = net(x)
        return F.softmax(F.flatten(y, 1), axis=1)

    rng = np.random.RandomState(0)
    image = mge.tensor(rng.randint(0, 255, (1, 3, 20, 24)).astype("uint8"))
    model = mge.cgtools.GraphInference(dumped(infer, image))
    first = np.abs(model.run(image.numpy())["logits"] - infer(image).numpy()).max()
    other = mge.tensor(rng.randint(0, 255, (1, 3, 33, 18)).astype("uint8"))
    second = np.abs(model.run(other.numpy())["logits"] - infer(other).numpy()).max()
    return {"first": float(first), "second": float(second)}
