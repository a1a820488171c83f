"""LeNet on handwritten digits with several processes, started in any of these ways:

    python examples/distributed/train.py --processes 2
    torchrun --nproc-per-node 2 examples/distributed/train.py
    mpirun -n 2 python examples/distributed/train.py
    srun -n 2 python examples/distributed/train.py
    python examples/distributed/ray_train.py --processes 2
    kubectl apply -f examples/distributed/kubernetes.yaml

Every process computes the gradients of its part of each batch; they are averaged while backward goes on, so all
processes make the same step. The program does not know who started it.
"""

from __future__ import annotations

import argparse
import pathlib
import sys

import numpy as np

import megengine as mge
import megengine.distributed as dist
import megengine.functional as F
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.data import DataLoader, Infinite, RandomSampler
from megengine.data.dataset import ArrayDataset

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from datasets import digits
from digits_lenet import LeNet


def train(options: argparse.Namespace) -> float:
    """One process's part of the training; returns the accuracy on the test set."""
    rank, size = dist.get_rank(), dist.get_world_size()
    x_train, y_train, x_test, y_test = digits()

    net = LeNet()
    dist.bcast_list_(net.tensors())  # everyone starts from the parameters of rank 0
    gm = GradManager().attach(net.parameters(), callbacks=[dist.make_allreduce_cb("mean")])
    opt = optim.Adam(net.parameters(), lr=options.lr)

    data = ArrayDataset(x_train, y_train)
    # The samplers know rank and size, and share an epoch out.
    sampler = Infinite(RandomSampler(data, options.batch_size // size, drop_last=True))
    net.train()
    for step, (x, y) in zip(range(1, options.steps + 1), DataLoader(data, sampler)):
        with gm:
            loss = F.nn.cross_entropy(net(mge.tensor(x)), mge.tensor(y))
            gm.backward(loss)
        opt.step().clear_grad()
        if step % 50 == 0 or step == options.steps:
            mean = dist.functional.all_reduce_sum(loss.detach()) / size
            if rank == 0:
                print(f"step {step}  loss {mean.item():.4f}", flush=True)

    net.eval()
    mine = slice(rank, None, size)
    right = (F.argmax(net(mge.tensor(x_test[mine])), 1).numpy() == y_test[mine]).sum()
    counts = dist.functional.all_reduce_sum(mge.tensor(np.array([right, len(y_test[mine])], np.int32)))
    accuracy = float(counts[0].item() / counts[1].item())
    if rank == 0:
        print(f"processes {size}  accuracy {accuracy:.4f}", flush=True)
    return accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2, help="how many, where nobody else starts them (default 2)")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch-size", type=int, default=128, help="of all processes together")
    parser.add_argument("--lr", type=float, default=2e-3)
    options = parser.parse_args()
    # Under torchrun, mpirun and srun this starts nothing and runs the function here.
    dist.launcher(train, n_gpus=options.processes)(options)


if __name__ == "__main__":
    main()
