"""ShuffleNetV2 (Ma et al. 2018): split, shuffle and concat of channels around small convolutions, in two ways."""

from __future__ import annotations

import megengine as mge
import megengine.functional as F
import megengine.module as M


def conv_bn(i: int, o: int, kernel: int, stride: int = 1, groups: int = 1, relu: bool = True) -> M.Module:
    layers = [M.Conv2d(i, o, kernel, stride, kernel // 2, groups=groups, bias=False), M.BatchNorm2d(o)]
    return M.Sequential(*layers, *([M.ReLU()] if relu else []))


def halves_by_index(x: mge.Tensor) -> tuple[mge.Tensor, mge.Tensor]:
    """Even and odd channels: the shuffle and the split in one."""
    n, c, h, w = x.shape
    x = F.transpose(x.reshape(n * c // 2, 2, h * w), (1, 0, 2)).reshape(2, n, c // 2, h, w)
    return x[0], x[1]


def shuffle(x: mge.Tensor) -> mge.Tensor:
    n, c, h, w = x.shape
    return F.transpose(x.reshape(n, 2, c // 2, h, w), (0, 2, 1, 3, 4)).reshape(n, c, h, w)


class Unit(M.Module):
    """``late``: the halves are split off first and shuffled after the concat; else the split takes every other one."""

    def __init__(self, i: int, o: int, stride: int, late: bool) -> None:
        super().__init__()
        self.stride, self.late = stride, late
        mid = o // 2
        inside = i if stride > 1 else i // 2
        last = o - inside if stride > 1 and not late else mid
        self.main = M.Sequential(
            conv_bn(inside, mid, 1), conv_bn(mid, mid, 3, stride, mid, relu=False), conv_bn(mid, last, 1)
        )
        if stride > 1:
            side = i if not late else mid
            self.side = M.Sequential(conv_bn(i, i, 3, stride, i, relu=False), conv_bn(i, side, 1))

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        if self.stride > 1:
            y = F.concat([self.side(x), self.main(x)], axis=1)
        else:
            a, b = F.split(x, 2, axis=1) if self.late else halves_by_index(x)
            y = F.concat([a, self.main(b)], axis=1)
        return shuffle(y) if self.late else y


class ShuffleNetV2(M.Module):
    def __init__(
        self, late: bool = False, widths: tuple[int, ...] = (24, 48, 96, 192, 1024), classes: int = 1000
    ) -> None:
        super().__init__()
        self.stem = conv_bn(3, widths[0], 3, 2)
        self.pool = M.MaxPool2d(3, 2, 1)
        units = []
        for i, o, count in zip(widths, widths[1:4], (4, 8, 4), strict=False):
            units += [Unit(i if k == 0 else o, o, 2 if k == 0 else 1, late) for k in range(count)]
        self.units = M.Sequential(*units)
        self.last = conv_bn(widths[3], widths[4], 1)
        self.fc = M.Linear(widths[4], classes)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = self.last(self.units(self.pool(self.stem(x))))
        return self.fc(F.mean(x, axis=(2, 3)))
