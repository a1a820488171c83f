"""Sums of products, written with index letters."""

from __future__ import annotations

from math import prod

from ..core._core import ops
from ..tensor import Tensor


class _Term:
    """An operand whose axes carry the letters ``labels``."""

    def __init__(self, labels: list[str], value: Tensor) -> None:
        self.labels, self.value = labels, value

    def sizes(self) -> dict[str, int]:
        return dict(zip(self.labels, self.value.shape))

    def ordered(self, labels: list[str]) -> Tensor:
        """The value with its axes in the order of ``labels``."""
        if labels == self.labels:
            return self.value
        return ops.transpose(self.value, perm=tuple(self.labels.index(c) for c in labels))


def _parse(equation: str, ndims: list[int]) -> tuple[list[list[str]], list[str]]:
    """The labels of each operand and of the result; an ellipsis becomes labels of its own: '0', '1', …"""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(ndims):
        raise ValueError(f"einsum: {equation!r} names {len(parts)} operands; got {len(ndims)}.")
    bad = sorted(
        {c for c in text.replace("...", "").replace("->", "").replace(",", "") if not (c.isascii() and c.isalpha())}
    )
    if bad:
        raise ValueError(f"einsum: labels are letters; {equation!r} has {''.join(bad)!r}.")
    dots: list[str] | None = None
    terms: list[list[str]] = []
    for part, ndim in zip(parts, ndims):
        head, has_dots, tail = part.partition("...")
        if "..." in tail:
            raise ValueError(f"einsum: more than one ellipsis in {part!r}.")
        hidden = ndim - len(head) - len(tail)
        if hidden < 0 or (hidden > 0 and not has_dots):
            raise ValueError(f"einsum: {part!r} names {len(head) + len(tail)} axes of a tensor with {ndim} dimensions.")
        mine = [str(i) for i in range(hidden)]
        if has_dots:
            if dots is not None and len(dots) != hidden:
                raise ValueError(f"einsum: the ellipses stand for {len(dots)} and {hidden} axes; they must agree.")
            dots = mine
        terms.append([*head, *mine, *tail])
    if not arrow:
        letters = [c for t in terms for c in t]
        return terms, [*(dots or []), *sorted(c for c in set(letters) if c.isalpha() and letters.count(c) == 1)]
    head, has_dots, tail = right.partition("...")
    if has_dots and dots is None:
        raise ValueError(f"einsum: {equation!r} has an ellipsis in the result but in no operand.")
    result = [*head, *(dots or [] if has_dots else []), *tail]
    for c in result:
        if result.count(c) > 1:
            raise ValueError(f"einsum: the result of {equation!r} names {c!r} twice.")
        if not any(c in t for t in terms):
            raise ValueError(f"einsum: the result of {equation!r} names {c!r}, which no operand has.")
    return terms, result


def _diagonals(t: _Term) -> _Term:
    """Repeated labels take the diagonal: the axes are joined, and every (size + 1)th element is picked."""
    for c in dict.fromkeys(t.labels):
        while t.labels.count(c) > 1:
            i = t.labels.index(c)
            j = t.labels.index(c, i + 1)
            n = t.value.shape[i]
            rest = [k for k in range(len(t.labels)) if k not in (i, j)]
            x = ops.transpose(t.value, perm=(i, j, *rest)).reshape(n * n, *(t.value.shape[k] for k in rest))
            t = _Term([c, *(t.labels[k] for k in rest)], x[:: n + 1] if type(n) is not int or n else x)
    return t


def _reduced(t: _Term, keep: set[str]) -> _Term:
    """The term summed over the labels nobody else needs."""
    axes = tuple(i for i, c in enumerate(t.labels) if c not in keep)
    if not axes:
        return t
    return _Term([c for c in t.labels if c in keep], ops.reduce(t.value, mode="sum", axes=axes, keepdims=False))


def _multiply(a: _Term, b: _Term, keep: set[str]) -> _Term:
    """The product of two terms, summed over common labels that are not kept: one matrix product."""
    shared = [c for c in a.labels if c in b.labels]
    batch, summed = [c for c in shared if c in keep], [c for c in shared if c not in keep]
    rows, cols = [c for c in a.labels if c not in shared], [c for c in b.labels if c not in shared]
    size = {**b.sizes(), **a.sizes()}

    def count(labels: list[str]) -> int:
        return prod(size[c] for c in labels)

    labels = [*batch, *rows, *cols]
    if not summed or a.value.dtype.kind != "f":  # an outer product, or integers, which have no matrix product
        wide = [*labels, *summed]
        x, y = (
            t.ordered([c for c in wide if c in t.labels]).reshape(tuple(size[c] if c in t.labels else 1 for c in wide))
            for t in (a, b)
        )
        return _reduced(_Term(wide, x * y), set(labels))
    x = a.ordered([*batch, *rows, *summed]).reshape(count(batch), count(rows), count(summed))
    y = b.ordered([*batch, *summed, *cols]).reshape(count(batch), count(summed), count(cols))
    z = ops.matmul(x, y)
    return _Term(labels, z.reshape(tuple(size[c] for c in labels)))


def _cheapest(terms: list[_Term], result: list[str]) -> tuple[int, int]:
    """The pair whose product is smallest against what it replaces (greedy)."""
    best, found = None, (0, 1)
    if len(terms) == 2:
        return found
    for i in range(len(terms)):
        for j in range(i + 1, len(terms)):
            others = {*result, *(c for k, t in enumerate(terms) if k not in (i, j) for c in t.labels)}
            size = {**terms[i].sizes(), **terms[j].sizes()}
            out = (
                prod(n for c, n in size.items() if c in others)
                - prod(terms[i].value.shape)
                - prod(terms[j].value.shape)
            )
            if best is None or out < best:
                best, found = out, (i, j)
    return found


def einsum(equation: str, *args: Tensor) -> Tensor:
    """Sums of products as ``np.einsum`` writes them.

    Letters name axes; a letter that the result lacks is summed over, one repeated in an operand takes the diagonal, and
    ``...`` stands for axes without a name. Without ``->`` the result has the ellipsis and, in alphabetic order, the
    letters that occur once. Axes with one letter must agree in size. Pairs are multiplied in the order that keeps
    intermediate results small, each as one matrix product.

    Args:
        equation: for example ``"ij,jk->ik"``.
        args: one tensor for each part before the arrow.

    >>> a, b = mge.tensor([[1.0, 2.0], [3.0, 4.0]]), mge.tensor([[5.0, 6.0], [7.0, 8.0]])
    >>> F.einsum("ij,jk->ik", a, b).tolist()
    [[19.0, 22.0], [43.0, 50.0]]
    >>> F.einsum("ii", a).item()
    5.0
    """
    values = [x if isinstance(x, Tensor) else Tensor(x) for x in args]
    labels, result = _parse(equation, [x.ndim for x in values])
    known: dict[str, int] = {}
    for part, x in zip(labels, values):
        for c, n in zip(part, x.shape):
            if known.setdefault(c, n) != n:
                raise ValueError(f"einsum: {equation!r} gives {c!r} the sizes {known[c]} and {n}.")
    terms = [_diagonals(_Term(part, x)) for part, x in zip(labels, values)]
    for i, t in enumerate(terms):
        others = {c for k, o in enumerate(terms) if k != i for c in o.labels}
        terms[i] = _reduced(t, {*result, *others})
    while len(terms) > 1:
        i, j = _cheapest(terms, result)
        a, b = terms[i], terms[j]
        terms = [t for k, t in enumerate(terms) if k not in (i, j)]
        others = {c for t in terms for c in t.labels}
        terms.append(_multiply(a, b, {*result, *others}))
    return terms[0].ordered(result)
