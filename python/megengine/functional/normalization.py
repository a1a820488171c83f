"""Normalisation. Channels are on axis 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core import _amp
from ..core._core import UserError, is_tracing, ops
from ..core.autodiff._recomputing import recomputing
from ..core.tensor.indexing import _const, _filled
from ..core.tensor.utils import ArgumentError, _normalize_axis, as_double, is_fixed, make_shape_tuple, size_max
from ..distributed.functional import all_reduce_sum
from ..distributed.group import WORLD, Group, is_distributed
from ..tensor import Tensor
from .conv import pad


def _like_input(y: Tensor, inp: Tensor) -> Tensor:
    """A result in the precision of the input: parameters in float32 do not widen it, except under autocast."""
    return y if y.dtype == inp.dtype or _amp.enabled() else y.astype(inp.dtype)


def _per_channel(v: Tensor | None, channels: int, fill: float, like: Tensor) -> Tensor:
    """A batch-norm parameter as (1, C, 1, 1)."""
    if v is None:
        return _filled((1, channels, 1, 1), fill, "float32", like)
    return v if v.ndim == 4 else v.reshape(1, channels, 1, 1)


def batch_norm(
    inp: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    training: bool = False,
    momentum: float = 0.9,
    eps: float = 1e-5,
    inplace: bool = True,
) -> Any:
    """Normalise every channel over the batch.

    Args:
        inp: 2, 3 or 4 dimensions, channels on axis 1.
        running_mean: (1, C, 1, 1) or (C,); updated in training, used in evaluation.
        running_var: the same for the variance.
        weight: scale per channel; None is 1.
        bias: shift per channel; None is 0.
        training: use the statistics of the batch, else the running ones.
        momentum: the part of the old running value that is kept.
        eps: added to the variance.
        inplace: update the running statistics; otherwise return them.

    Returns:
        The result; with ``inplace=False`` in training and running statistics given, (result, new mean, new variance).
        The running variance is the unbiased one, the normalisation uses the biased one.

    >>> F.batch_norm(mge.tensor([[1.0], [3.0]]), training=True, eps=0.0).tolist()
    [[-1.0], [1.0]]
    """
    if inp.ndim == 4:
        x = inp
    elif inp.ndim in (2, 3):
        x = inp.reshape(*inp.shape, *(1,) * (4 - inp.ndim))
    else:
        raise UserError(f"batch_norm: the input needs 2, 3 or 4 dimensions; got {inp.shape}.")
    channels = x.shape[1]
    w = _per_channel(weight, channels, 1.0, x)
    b = _per_channel(bias, channels, 0.0, x)
    if not training:
        assert running_mean is not None and running_var is not None, (
            "batch_norm: evaluation needs running_mean and running_var."
        )
        mean, var = _per_channel(running_mean, channels, 0.0, x), _per_channel(running_var, channels, 1.0, x)
        y = _like_input(ops.batch_norm_infer(x, w, b, mean, var, eps=eps), inp)
        return y if x is inp else y.reshape(inp.shape)
    count = x.size
    if count == 0:
        return inp if inplace or (running_mean is None and running_var is None) else (inp, running_mean, running_var)
    y, mean, var, _ = ops.batch_norm_train(x, w, b, eps=eps)
    y = _like_input(y, inp)
    if x is not inp:
        y = y.reshape(inp.shape)
    if (running_mean is None and running_var is None) or (inplace and recomputing()):
        return y
    new_mean = new_var = None
    if running_mean is not None:
        new_mean = _moving(running_mean, mean, momentum)
    if running_var is not None:
        new_var = _moving(running_var, var, momentum, _unbiased(count // channels))
    if not inplace:
        return y, new_mean, new_var
    if running_mean is not None:
        running_mean._reset(new_mean)
    if running_var is not None:
        running_var._reset(new_var)
    return y


def _unbiased(n: Any) -> Any:
    """n / (n - 1), as Python's numbers give it also where n is another one in later calls."""
    if type(n) is int:
        return n / max(n - 1, 1)
    return as_double(n) / as_double(size_max(n - 1, 1))


def _moving(old: Tensor, new: Tensor, momentum: float, scale: Any = 1.0) -> Tensor:
    """momentum * old + (1 - momentum) * scale * new, in the shape of ``old``; never part of a gradient."""
    fresh = new.detach()
    if old.ndim != fresh.ndim:
        fresh = fresh.reshape(old.shape)
    if isinstance(scale, Tensor):
        part: Tensor | float = (_const(1 - momentum, scale, "float64") * scale).astype(fresh.dtype)
    else:
        part = float((1 - momentum) * scale)
    return (old * momentum + fresh * part).detach()


def sync_batch_norm(
    inp: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.9,
    eps: float = 1e-5,
    eps_mode: str = "additive",
    group: Group = WORLD,
) -> Tensor:
    """``batch_norm`` with statistics over the processes of a group; with one process the same as ``batch_norm``.

    Args:
        inp: as of ``batch_norm``; batches of different sizes on different processes are weighted by size.
        running_mean: updated in training, used in evaluation.
        running_var: the same for the variance.
        weight: scale per channel; None is 1.
        bias: shift per channel; None is 0.
        training: use the statistics of the batches, else the running ones.
        momentum: the part of the old running value that is kept.
        eps: keeps the variance away from 0.
        eps_mode: ``"additive"`` for var + eps, ``"max"`` for max(var, eps).
        group: whose batches count.

    >>> F.nn.sync_batch_norm(mge.tensor([[1.0], [3.0]]), F.zeros(1), F.ones(1), training=True, eps=0.0).tolist()
    [[-1.0], [1.0]]
    """
    mode = eps_mode.lower()
    if mode not in ("additive", "max"):
        raise ArgumentError(f"sync_batch_norm: eps_mode must be 'additive' or 'max'; got {eps_mode!r}.")
    if mode == "additive" and not (training and is_distributed() and group.size > 1):
        y: Tensor = batch_norm(
            inp, running_mean, running_var, weight, bias, training=training, momentum=momentum, eps=eps
        )
        return y
    if inp.ndim not in (2, 3, 4):
        raise UserError(f"sync_batch_norm: the input needs 2, 3 or 4 dimensions; got {inp.shape}.")
    x = inp if inp.ndim == 4 else inp.reshape(*inp.shape, *(1,) * (4 - inp.ndim))
    wide = x if x.dtype == "float64" else x.astype("float32")
    channels = x.shape[1]
    if training:
        mean, var, count = _group_moments(wide, group)
        if not recomputing():
            unbiased = var * (count / ops.maximum(count - 1, 1.0))
            for running, fresh in ((running_mean, mean), (running_var, unbiased)):
                if running is not None:
                    running._reset(_moving(running, fresh, momentum))
    else:
        mean = _per_channel(running_mean, channels, 0.0, x)
        var = _per_channel(running_var, channels, 1.0, x)
    spread = ops.maximum(var, eps) if mode == "max" else var + eps
    scale = spread**-0.5 * _per_channel(weight, channels, 1.0, x)
    y = _like_input((wide - mean) * scale + _per_channel(bias, channels, 0.0, x), inp)
    return y if x is inp else y.reshape(inp.shape)


def _group_moments(x: Tensor, group: Group) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of each channel over the batches of a group, (1, C, 1, 1), and how many values they are of.

    The variance is that of the differences to the mean of all, so that it does not cancel; the mean counts as a
    constant in it, because its gradient there is a sum of such differences, which is 0.
    """
    axes, channels = [0, 2, 3], x.shape[1]
    mine = _filled((1,), 1.0, "float32", x).astype(x.dtype) * (x.size // channels)
    sums = all_reduce_sum(ops.concat(ops.reduce(x, mode="sum", axes=axes), mine, axis=0), group)
    count = sums[channels:].detach()
    mean = (sums[:channels] / count).reshape(1, channels, 1, 1)
    away = x - mean.detach()
    var = all_reduce_sum(ops.reduce(away * away, mode="sum", axes=axes), group) / count
    return mean, var.reshape(1, channels, 1, 1), count.reshape(1, 1, 1, 1)


def layer_norm(
    inp: Tensor,
    normalized_shape: int | Sequence[int],
    affine: bool,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise over the last axes, which must have sizes ``normalized_shape``.

    >>> F.layer_norm(mge.tensor([[1.0, 3.0]]), 2, False, eps=0.0).tolist()
    [[-1.0, 1.0]]
    """
    sizes = make_shape_tuple(normalized_shape)
    last = inp.shape[inp.ndim - len(sizes) :]
    if affine and weight is not None and not is_fixed(last):
        last = weight.shape  # which the op compares with the input
    if last != sizes:
        raise UserError(f"layer_norm: the last sizes must be {sizes}; got shape {inp._tuple_shape}.")
    if not affine:
        return _like_input(ops.layer_norm(inp, n_axes=len(sizes), eps=eps)[0], inp)
    assert weight is not None and bias is not None, "layer_norm: affine needs weight and bias."
    return _like_input(ops.layer_norm(inp, weight, bias, n_axes=len(sizes), eps=eps)[0], inp)


def group_norm(
    inp: Tensor,
    num_groups: int,
    affine: bool,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise over groups of channels; weight and bias have shape (C,).

    >>> F.group_norm(F.ones((1, 4, 2, 2)), 2, False).sum().item()
    0.0
    """
    if inp.ndim != 4:
        raise UserError(f"group_norm: the input needs 4 dimensions (N, C, H, W); got {inp.shape}.")
    n, c = inp.shape[:2]
    if affine and weight is not None and weight.ndim == 1:
        c = weight.shape[0]  # the same, as the product with it shows
    if num_groups < 1 or c % num_groups != 0:
        raise ArgumentError(f"group_norm: {c} channels do not fall into {num_groups} groups.")
    if not is_tracing() and 0 in inp._tuple_shape:  # where -1 could be anything; a trace is for all sizes
        grouped = inp.reshape(n, num_groups, c // num_groups, *inp.shape[2:])
    else:
        grouped = inp.reshape(n, num_groups, -1)
    y = ops.layer_norm(grouped, n_axes=grouped.ndim - 2, eps=eps)[0].reshape(inp.shape)
    if affine:
        assert weight is not None and bias is not None, "group_norm: affine needs weight and bias."
        y = y * weight.reshape(1, c, 1, 1) + bias.reshape(1, c, 1, 1)
    return _like_input(y, inp)


def instance_norm(
    inp: Tensor, affine: bool, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalise every channel of every image by itself; weight and bias have shape (C,).

    >>> F.instance_norm(F.ones((1, 2, 2, 2)), False).sum().item()
    0.0
    """
    if inp.ndim != 4:
        raise UserError(f"instance_norm: the input needs 4 dimensions (N, C, H, W); got {inp.shape}.")
    return group_norm(inp, inp.shape[1], affine, weight, bias, eps).astype(inp.dtype)


def general_norm(
    inp: Tensor,
    normalized_axis: int | Sequence[int],
    affine: bool = True,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise over any axes, given in ascending order; weight and bias have the sizes of those axes.

    >>> F.general_norm(mge.tensor([[1.0], [3.0]]), 0, False, eps=0.0).tolist()
    [[-1.0], [1.0]]
    """
    ndim = inp.ndim
    axes = [_normalize_axis(ndim, int(a), False, "general_norm") for a in make_shape_tuple(normalized_axis)]
    assert axes and all(a < b for a, b in zip(axes, axes[1:])), (
        f"general_norm: axes must be ascending and different; got {normalized_axis}."
    )
    perm = [i for i in range(ndim) if i not in axes] + axes
    x = inp if perm == list(range(ndim)) else ops.transpose(inp, perm=tuple(perm))
    if affine:
        assert weight is not None and bias is not None, "general_norm: affine needs weight and bias."
        y = ops.layer_norm(x, weight, bias, n_axes=len(axes), eps=eps)[0]
    else:
        y = ops.layer_norm(x, n_axes=len(axes), eps=eps)[0]
    return y if x is inp else ops.transpose(y, perm=tuple(perm.index(i) for i in range(ndim)))


def local_response_norm(
    inp: Tensor, kernel_size: int = 5, k: float = 2.0, alpha: float = 1e-4, beta: float = 0.75
) -> Tensor:
    """x * (k + alpha * sum of squares over ``kernel_size`` neighbouring channels) ** -beta.

    >>> F.local_response_norm(F.ones((1, 1, 1, 1)), 1, k=1.0, alpha=1.0, beta=1.0).item()
    0.5
    """
    if kernel_size % 2 != 1:
        raise ValueError(f"local_response_norm: kernel_size must be odd; got {kernel_size}.")
    if inp.ndim != 4:
        raise UserError(f"local_response_norm: the input needs 4 dimensions (N, C, H, W); got {inp.shape}.")
    half, c = kernel_size // 2, inp.shape[1]
    squares = pad(ops.square(inp), ((0, 0), (half, half)))
    total = squares[:, 0:c]
    for i in range(1, kernel_size):
        total = total + squares[:, i : i + c]
    return (inp * ops.pow(total * alpha + k, -beta)).astype(inp.dtype)  # the numbers make bfloat16 float32
