"""Convolutions. A weight has a leading axis for groups when there is more than one."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..functional import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose2d,
    conv_transpose3d,
    deformable_conv2d,
    local_conv2d,
    pad,
    region_restricted_conv,
    relu,
)
from ..tensor import Parameter, Tensor
from ..utils.tuple_function import (
    _pair,
    _pair_nonzero,
    _single,
    _single_nonzero,
    _triple,
    _triple_nonzero,
    check_size,
)
from . import init
from .module import Module, _shape_of

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvRelu2d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "ConvTransposeRelu2d",
    "DeformableConv2d",
    "LocalConv2d",
    "RegionRestrictedConv",
]

Ints = int | Sequence[int]
_AXES = "T, H, W"


class _ConvNd(Module):
    """What convolutions share: sizes, parameters and their initialisation."""

    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        groups: int,
        bias: bool = True,
        output_padding: Any = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        who = type(self).__name__
        check_size(f"{who}: groups", groups)
        check_size(f"{who}: in_channels", in_channels)
        check_size(f"{who}: out_channels", out_channels)
        if in_channels % groups != 0:
            raise ValueError(f"{who}: in_channels {in_channels} must be divisible by groups {groups}.")
        if out_channels % groups != 0:
            raise ValueError(f"{who}: out_channels {out_channels} must be divisible by groups {groups}.")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.groups = groups
        self.output_padding = output_padding
        self.weight = Parameter(np.zeros(self._infer_weight_shape(), dtype=np.float32))
        self.bias = Parameter(np.zeros(self._infer_bias_shape(), dtype=np.float32)) if bias else None
        self.reset_parameters()

    @abstractmethod
    def _infer_weight_shape(self) -> tuple[int, ...]: ...

    def _infer_bias_shape(self) -> tuple[int, ...]:
        return (1, self.out_channels, *(1,) * len(self._kernel()))

    def _kernel(self) -> tuple[int, ...]:
        return (self.kernel_size,) if isinstance(self.kernel_size, int) else tuple(self.kernel_size)

    def _grouped(self, first: int, second: int) -> tuple[int, ...]:
        if self.groups == 1:
            return (first, second, *self._kernel())
        return (self.groups, first // self.groups, second // self.groups, *self._kernel())

    def _get_fanin(self) -> int:
        return math.prod(self._kernel()) * self.in_channels

    def reset_parameters(self) -> None:
        """Normal numbers with variance 1 / fan-in, the groups not counted; the bias is 0."""
        init.normal_(self.weight, 0.0, math.sqrt(1.0 / max(self._get_fanin(), 1)))
        if self.bias is not None:
            init.zeros_(self.bias)

    def _misfit(self, inputs: tuple[Any, ...], error: Exception) -> str | None:
        shape = _shape_of(inputs)
        if shape is None:
            return None
        kernel = self._kernel()
        n = len(kernel)
        if len(shape) != n + 2:
            way = " F.expand_dims(x, 0) makes a batch of one." if len(shape) == n + 1 else ""
            return f"the input must be (N, C, {'L' if n == 1 else _AXES[3 * (3 - n) :]}); got {shape}.{way}"
        if shape[1] != self.in_channels:
            order = ", ".join(map(str, (0, n + 1, *range(1, n + 1))))
            way = f" Channels come first: x.transpose({order})." if shape[-1] == self.in_channels else ""
            return f"the input {shape} has {shape[1]} channels on axis 1, but in_channels={self.in_channels}.{way}"
        if "output_padding" in str(error):
            return f"output_padding={self.output_padding} must be below stride={self.stride}."
        if "larger than the padded input" in str(error):
            return (
                f"kernel_size={self.kernel_size} does not fit into the input {shape}; dilation={self.dilation}, "
                f"padding={self.padding}. Use a smaller kernel_size or a larger padding."
            )
        return None

    def _module_info_string(self) -> str:
        n = len(self._kernel())

        def differs(value: Any, default: int) -> bool:
            return tuple(value if isinstance(value, (list, tuple)) else (value,) * n) != (default,) * n

        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        if differs(self.stride, 1):
            text += f", stride={self.stride}"
        if differs(self.padding, 0):
            text += f", padding={self.padding}"
        if differs(self.dilation, 1):
            text += f", dilation={self.dilation}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        return text


class _PaddedConv(_ConvNd):
    """Convolutions that can pad by reflection or replication."""

    def _check_padding_mode(self, mode: str) -> None:
        if mode not in ("zeros", "reflect", "replicate"):
            raise ValueError(f"{type(self).__name__}: padding_mode must be zeros, reflect or replicate; got {mode!r}.")
        self.padding_mode = mode

    def get_pad_witdth(self) -> tuple[tuple[int, int], ...]:
        """The widths for ``functional.pad``. The spelling is the API's."""
        sides = (self.padding,) if isinstance(self.padding, int) else self.padding
        return ((0, 0), (0, 0), *((p, p) for p in sides))

    def _padded(self, inp: Tensor) -> tuple[Tensor, Any]:
        """The input and the padding that is left for the convolution."""
        if self.padding_mode == "zeros":
            return inp, self.padding
        nothing = 0 if isinstance(self.padding, int) else (0,) * len(self.padding)
        return pad(inp, self.get_pad_witdth(), mode=self.padding_mode), nothing


class Conv1d(_PaddedConv):
    """1-D convolution of (N, C, L).

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: size of the window.
        stride: step of the window.
        padding: on each side.
        dilation: distance of the weights.
        groups: number of independent groups of channels.
        bias: whether to add a bias.
        conv_mode: only ``"cross_correlation"``.
        compute_mode: ``"default"`` or ``"float32"``.
        padding_mode: ``"zeros"``, ``"reflect"`` or ``"replicate"``.

    >>> M.Conv1d(3, 1, 3)(F.ones((2, 3, 4))).shape
    (2, 1, 2)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        padding_mode: str = "zeros",
        **kwargs: Any,
    ) -> None:
        self.conv_mode = conv_mode
        self.compute_mode = compute_mode
        self._check_padding_mode(padding_mode)
        who = type(self).__name__
        (k,), (s,), (d,) = (
            _single_nonzero(v, f"{who}: {n}")
            for v, n in ((kernel_size, "kernel_size"), (stride, "stride"), (dilation, "dilation"))
        )
        (p,) = _single(padding, f"{who}: padding")
        super().__init__(in_channels, out_channels, k, s, p, d, groups, bias, **kwargs)

    def _infer_weight_shape(self) -> tuple[int, ...]:
        return self._grouped(self.out_channels, self.in_channels)

    def calc_conv(self, inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The layer with other parameters."""
        x, padding = self._padded(inp)
        return conv1d(
            x, weight, bias, self.stride, padding, self.dilation, self.groups, self.conv_mode, self.compute_mode
        )

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv(inp, self.weight, self.bias)


class Conv2d(_PaddedConv):
    """2-D convolution of (N, C, H, W).

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: size of the window, one number or (height, width).
        stride: step of the window.
        padding: on each side.
        dilation: distance of the weights.
        groups: number of independent groups of channels.
        bias: whether to add a bias.
        conv_mode: only ``"cross_correlation"``.
        compute_mode: ``"default"`` or ``"float32"``.
        padding_mode: ``"zeros"``, ``"reflect"`` or ``"replicate"``.

    >>> M.Conv2d(3, 1, 3)(F.ones((2, 3, 4, 4))).shape
    (2, 1, 2, 2)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        padding_mode: str = "zeros",
        **kwargs: Any,
    ) -> None:
        self.conv_mode = conv_mode
        self.compute_mode = compute_mode
        self._check_padding_mode(padding_mode)
        super().__init__(
            in_channels,
            out_channels,
            _pair_nonzero(kernel_size, f"{type(self).__name__}: kernel_size"),
            _pair_nonzero(stride, f"{type(self).__name__}: stride"),
            _pair(padding, f"{type(self).__name__}: padding"),
            _pair_nonzero(dilation, f"{type(self).__name__}: dilation"),
            groups,
            bias,
            **kwargs,
        )

    def _infer_weight_shape(self) -> tuple[int, ...]:
        return self._grouped(self.out_channels, self.in_channels)

    def calc_conv(self, inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The layer with other parameters."""
        x, padding = self._padded(inp)
        return conv2d(
            x, weight, bias, self.stride, padding, self.dilation, self.groups, self.conv_mode, self.compute_mode
        )

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv(inp, self.weight, self.bias)


class ConvRelu2d(Conv2d):
    """relu of a 2-D convolution.

    >>> bool((M.ConvRelu2d(3, 1, 3)(F.ones((2, 3, 4, 4))) >= 0).numpy().all())
    True
    """

    def forward(self, inp: Tensor) -> Tensor:
        return relu(self.calc_conv(inp, self.weight, self.bias))


class Conv3d(_ConvNd):
    """3-D convolution of (N, C, T, H, W); arguments as for ``Conv2d``.

    >>> M.Conv3d(3, 2, 3)(F.ones((1, 3, 5, 5, 5))).shape
    (1, 2, 3, 3, 3)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        conv_mode: str = "cross_correlation",
    ) -> None:
        self.conv_mode = conv_mode
        super().__init__(
            in_channels,
            out_channels,
            _triple_nonzero(kernel_size, f"{type(self).__name__}: kernel_size"),
            _triple_nonzero(stride, f"{type(self).__name__}: stride"),
            _triple(padding, f"{type(self).__name__}: padding"),
            _triple_nonzero(dilation, f"{type(self).__name__}: dilation"),
            groups,
            bias,
        )

    def _infer_weight_shape(self) -> tuple[int, ...]:
        return self._grouped(self.out_channels, self.in_channels)

    def calc_conv(self, inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The layer with other parameters."""
        return conv3d(inp, weight, bias, self.stride, self.padding, self.dilation, self.groups, self.conv_mode)

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv(inp, self.weight, self.bias)


class ConvTranspose2d(_ConvNd):
    """2-D transposed convolution, the adjoint of ``Conv2d``.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: size of the window.
        stride: distance of input elements in the output.
        padding: taken off each side of the output.
        output_padding: added to the far side.
        dilation: distance of the weights.
        groups: number of independent groups of channels.
        bias: whether to add a bias.
        conv_mode: only ``"cross_correlation"``.
        compute_mode: ``"default"`` or ``"float32"``.

    >>> M.ConvTranspose2d(3, 1, 2, stride=2)(F.ones((2, 3, 4, 4))).shape
    (2, 1, 8, 8)
    """

    output_padding: Any = 0

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        output_padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        **kwargs: Any,
    ) -> None:
        self.conv_mode = conv_mode
        self.compute_mode = compute_mode
        super().__init__(
            in_channels,
            out_channels,
            _pair_nonzero(kernel_size, f"{type(self).__name__}: kernel_size"),
            _pair_nonzero(stride, f"{type(self).__name__}: stride"),
            _pair(padding, f"{type(self).__name__}: padding"),
            _pair_nonzero(dilation, f"{type(self).__name__}: dilation"),
            groups,
            bias,
            _pair(output_padding, f"{type(self).__name__}: output_padding"),
            **kwargs,
        )

    def _get_fanin(self) -> int:
        return math.prod(self._kernel()) * self.out_channels

    def _infer_weight_shape(self) -> tuple[int, ...]:
        return self._grouped(self.in_channels, self.out_channels)

    def calc_conv_transpose2d(self, inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The layer with other parameters."""
        return conv_transpose2d(
            inp,
            weight,
            bias,
            self.stride,
            self.padding,
            self.output_padding,
            self.dilation,
            self.groups,
            self.conv_mode,
            self.compute_mode,
        )

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv_transpose2d(inp, self.weight, self.bias)


class ConvTransposeRelu2d(ConvTranspose2d):
    """relu of a 2-D transposed convolution.

    >>> M.ConvTransposeRelu2d(3, 1, 2)(F.ones((2, 3, 4, 4))).shape
    (2, 1, 5, 5)
    """

    def forward(self, inp: Tensor) -> Tensor:
        return relu(self.calc_conv_transpose2d(inp, self.weight, self.bias))


class ConvTranspose3d(_ConvNd):
    """3-D transposed convolution, the adjoint of ``Conv3d``.

    >>> M.ConvTranspose3d(3, 2, 2, stride=2)(F.ones((1, 3, 2, 2, 2))).shape
    (1, 2, 4, 4, 4)
    """

    output_padding: Any = 0

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        output_padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            _triple_nonzero(kernel_size, f"{type(self).__name__}: kernel_size"),
            _triple_nonzero(stride, f"{type(self).__name__}: stride"),
            _triple(padding, f"{type(self).__name__}: padding"),
            _triple_nonzero(dilation, f"{type(self).__name__}: dilation"),
            groups,
            bias,
            _triple(output_padding, f"{type(self).__name__}: output_padding"),
        )

    def _infer_weight_shape(self) -> tuple[int, ...]:
        return self._grouped(self.in_channels, self.out_channels)

    def forward(self, inp: Tensor) -> Tensor:
        return conv_transpose3d(
            inp, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.dilation, self.groups
        )


class LocalConv2d(Conv2d):
    """Convolution with its own weight at every position.

    >>> M.LocalConv2d(3, 4, 5, 5, 3)(F.ones((2, 3, 5, 5))).shape
    (2, 4, 3, 3)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        input_height: int,
        input_width: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        conv_mode: str = "cross_correlation",
        **kwargs: Any,
    ) -> None:
        self.input_height = input_height
        self.input_width = input_width
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias=False,
            conv_mode=conv_mode,
            **kwargs,
        )

    def _infer_weight_shape(self) -> tuple[int, ...]:
        group = self.groups
        size = (self.input_height, self.input_width)
        reach = tuple(d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel_size))
        out = tuple((n + 2 * p - r) // s + 1 for n, p, r, s in zip(size, self.padding, reach, self.stride))
        return (group, *out, self.in_channels // group, *self.kernel_size, self.out_channels // group)

    def forward(self, inp: Tensor) -> Tensor:
        return local_conv2d(inp, self.weight, None, self.stride, self.padding, self.dilation, self.conv_mode)


class DeformableConv2d(_ConvNd):
    """Convolution at learned positions.

    >>> conv = M.DeformableConv2d(3, 4, 3)
    >>> conv(F.ones((2, 3, 5, 5)), F.zeros((2, 18, 3, 3)), F.ones((2, 9, 3, 3))).shape
    (2, 4, 3, 3)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        **kwargs: Any,
    ) -> None:
        self.conv_mode = conv_mode
        self.compute_mode = compute_mode
        super().__init__(
            in_channels,
            out_channels,
            _pair_nonzero(kernel_size, f"{type(self).__name__}: kernel_size"),
            _pair_nonzero(stride, f"{type(self).__name__}: stride"),
            _pair(padding, f"{type(self).__name__}: padding"),
            _pair_nonzero(dilation, f"{type(self).__name__}: dilation"),
            groups,
            bias,
            **kwargs,
        )

    def _infer_weight_shape(self) -> tuple[int, ...]:
        return self._grouped(self.out_channels, self.in_channels)

    def calc_conv(self, inp: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor | None) -> Tensor:
        """The layer with other parameters."""
        return deformable_conv2d(
            inp,
            weight,
            offset,
            mask,
            bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            self.conv_mode,
            self.compute_mode,
        )

    def forward(self, inp: Tensor, offset: Tensor, mask: Tensor) -> Tensor:
        return self.calc_conv(inp, self.weight, offset, mask, self.bias)


class RegionRestrictedConv(_ConvNd):
    """Convolution that joins equal regions only.

    >>> region = F.zeros((2, 5, 5), dtype="int32")
    >>> M.RegionRestrictedConv(3, 4, 3)(F.ones((2, 3, 5, 5)), region, region[:, 1:4, 1:4]).shape
    (2, 4, 3, 3)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        groups: int = 1,
        bias: bool = True,
        stride: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        padding_mode: str = "zeros",
        **kwargs: Any,
    ) -> None:
        if padding_mode not in ("zeros", "reflect", "replicate"):
            raise ValueError(
                f"RegionRestrictedConv: padding_mode must be zeros, reflect or replicate; got {padding_mode!r}."
            )
        self.conv_mode = conv_mode
        self.compute_mode = compute_mode
        self.padding_mode = padding_mode
        super().__init__(
            in_channels,
            out_channels,
            _pair_nonzero(kernel_size, f"{type(self).__name__}: kernel_size"),
            _pair_nonzero(stride, f"{type(self).__name__}: stride"),
            _pair(padding, f"{type(self).__name__}: padding"),
            _pair_nonzero(dilation, f"{type(self).__name__}: dilation"),
            groups,
            bias,
            **kwargs,
        )

    def _infer_weight_shape(self) -> tuple[int, ...]:
        return (self.groups, self.out_channels // self.groups, self.in_channels // self.groups, *self._kernel())

    def get_pad_width(self) -> tuple[tuple[int, int], ...]:
        """The widths for ``functional.pad``."""
        return ((0, 0), (0, 0), *((p, p) for p in self.padding))

    def calc_conv(self, inp: Tensor, weight: Tensor, rin: Tensor, rout: Tensor, bias: Tensor | None) -> Tensor:
        """The layer with other parameters."""
        return region_restricted_conv(
            inp,
            weight,
            rin,
            rout,
            bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            self.conv_mode,
            self.compute_mode,
        )

    def forward(self, inp: Tensor, rin: Tensor, rout: Tensor) -> Tensor:
        return self.calc_conv(inp, self.weight, rin, rout, self.bias)
