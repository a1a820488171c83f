"""What the training examples share: the command line, batches, progress, checkpoint files, the picture of the loss."""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from plot import line_chart

import megengine as mge
from megengine.data import DataLoader, RandomSampler
from megengine.data.dataset import Dataset


def parser(doc: str | None, steps: int, batch_size: int, lr: float, out: str) -> argparse.ArgumentParser:
    """The options of every example; each has its own defaults."""
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", type=_positive(int), default=steps, help=f"train up to this step (default {steps})")
    p.add_argument("--batch-size", type=_positive(int), default=batch_size, help=f"default {batch_size}")
    p.add_argument("--lr", type=_positive(float), default=lr, help=f"learning rate (default {lr})")
    p.add_argument("--device", default="xpux", help="where it runs: cpu0, gpu0 (default xpux)")
    p.add_argument("--threads", type=_positive(int), help="CPU threads (default: all cores)")
    p.add_argument("--save", metavar="PATH", help="write a checkpoint here, every 100 steps and at the end")
    p.add_argument("--resume", metavar="PATH", help="go on from this checkpoint, with its learning rate")
    p.add_argument("--out", metavar="DIR", default=out, help=f"folder for the picture loss.png (default {out})")
    return p


def parse(p: argparse.ArgumentParser, argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line; whatever would fail after an hour of training fails now."""
    options = p.parse_args(argv)
    if options.save and not pathlib.Path(options.save).absolute().parent.is_dir():
        p.error(f"argument --save: the folder of {options.save} does not exist")
    try:
        pathlib.Path(options.out).mkdir(parents=True, exist_ok=True)
    except OSError as e:
        p.error(f"argument --out: cannot make the folder {options.out}: {e.strerror}")
    try:
        mge.set_default_device(options.device)
    except (AssertionError, ValueError) as e:
        p.error(f"argument --device: {e}")
    if options.threads:
        try:
            mge.device.set_num_threads(options.threads)
        except ValueError as e:
            p.error(f"argument --threads: {e}")
    return options


def _positive(kind: type) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        value = kind(text)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"must be above 0; got {text}")
        return value

    convert.__name__ = kind.__name__  # argparse names it: "invalid int value: 'x'"
    return convert


def batches(data: Dataset, batch_size: int, step: int) -> Iterator[Any]:
    """Batches from ``step`` on, epoch after epoch, without an end.

    The order of an epoch depends on its number alone, so a resumed run sees the batches the first run would have seen.
    """
    while True:
        epoch, skip = divmod(step, len(data) // batch_size)
        sampler = RandomSampler(data, batch_size, drop_last=True, seed=epoch)
        for batch in islice(DataLoader(data, sampler), skip, None):
            yield batch
            step += 1


def run(options: argparse.Namespace, step_fn: Callable[..., mge.Tensor], data: Dataset, **parts: Any) -> list[float]:
    """Trains: calls ``step_fn`` with batch after batch and returns the losses, those before a resume included.

    ``parts`` make up the checkpoint: modules, optimizers, schedules, whatever has ``state_dict`` and
    ``load_state_dict``.
    """
    if options.batch_size > len(data):
        sys.exit(f"--batch-size {options.batch_size} is more than the {len(data)} samples there are")
    losses: list[float] = []
    if options.resume:
        losses = load_checkpoint(options.resume, options.batch_size, parts)
        if len(losses) >= options.steps:
            sys.exit(f"--resume {options.resume}: the run is at step {len(losses)}; --steps must be above that")
    progress = Progress(len(losses), options.steps)
    for batch in batches(data, options.batch_size, len(losses)):
        losses.append(float(step_fn(*(mge.Tensor(array) for array in batch))))
        step = len(losses)
        progress.show(step, losses[-1])
        if options.save and (step % 100 == 0 or step == options.steps):
            save_checkpoint(options.save, options.batch_size, losses, parts)
        if step == options.steps:
            break
    line_chart(str(pathlib.Path(options.out) / "loss.png"), {"loss": losses})
    return losses


def save_checkpoint(path: str, batch_size: int, losses: list[float], parts: dict[str, Any]) -> None:
    """Everything the next step depends on. Written beside and renamed: a crash leaves the file of before."""
    state = {name: part.state_dict() for name, part in parts.items()}
    state.update(losses=losses, batch_size=batch_size, random=mge.random.get_rng_state())
    mge.save(state, path + ".part")
    os.replace(path + ".part", path)


def load_checkpoint(path: str, batch_size: int, parts: dict[str, Any]) -> list[float]:
    """Restores ``parts`` and the random state; the losses so far."""
    try:
        state = mge.load(path)
    except OSError as e:
        sys.exit(f"--resume {path}: {e.strerror}")
    except Exception as e:  # damaged pickles fail in many ways
        sys.exit(f"--resume {path}: not a checkpoint file: {e}")
    wanted = {"losses", "batch_size", "random", *parts}
    if not isinstance(state, dict) or not wanted <= state.keys():
        missing = ", ".join(sorted(wanted - state.keys())) if isinstance(state, dict) else f"a {type(state).__name__}"
        sys.exit(f"--resume {path}: not a checkpoint of this example; missing {missing}")
    if state["batch_size"] != batch_size:
        sys.exit(f"--resume {path}: the run was started with --batch-size {state['batch_size']}; got {batch_size}")
    restore = {name: part.load_state_dict for name, part in parts.items()}
    restore["random"] = mge.random.set_rng_state
    for name, load in restore.items():
        try:
            load(state[name])
        except Exception as e:  # of another network, or not written by save_checkpoint
            sys.exit(f"--resume {path}: the {name} state does not fit this example: {e}")
    return [float(loss) for loss in state["losses"]]


class Progress:
    """A bar on a terminal; elsewhere ten lines in all."""

    def __init__(self, start: int, total: int) -> None:
        self.start, self.total = start, total
        self.began = time.perf_counter()
        self.bar = sys.stdout.isatty()

    def show(self, step: int, loss: float) -> None:
        rate = (step - self.start) / (time.perf_counter() - self.began)
        text = f"{step}/{self.total} steps, loss {loss:.4f}, {rate:.1f} steps/s"
        if self.bar:
            filled = "#" * (30 * step // self.total)
            print(f"\r  [{filled:<30}] {text} ", end="\n" if step == self.total else "", flush=True)
        elif step == self.total or step * 10 // self.total > (step - 1) * 10 // self.total:
            print(f"  {text}", flush=True)
