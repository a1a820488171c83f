"""Tests derived from the op registry: every op against NumPy, every kernel against ref, gradients of first and second
order, and the same bits eagerly, traced, replayed and from a file in Lite."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import numpy as np
import pytest
from op_case import OpCase
from op_cases import CASES, ELSEWHERE
from op_gradients import BY_DEFINITION, CONSTANT_INPUTS, GRADIENT_ELSEWHERE, NO_GRADIENT, NO_SECOND_ORDER

import megengine as mge
from megengine.core import _core
from megengine.jit import trace

case_grid = pytest.mark.parametrize("case", CASES, ids=[c.id for c in CASES])


def seeded(case: OpCase) -> list[np.ndarray]:
    return case.inputs(np.random.RandomState(len(case.id) * 7 + 1))


def as_float32(arrays: list[np.ndarray]) -> list[np.ndarray]:
    return [a.astype(np.float32) if a.dtype == np.float64 else a for a in arrays]


def call(case: OpCase, tensors: list[Any]) -> tuple[Any, ...]:
    out = getattr(_core.ops, case.name)(*tensors, **case.attrs)
    return out if isinstance(out, tuple) else (out,)


def expected(case: OpCase, arrays: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    with np.errstate(all="ignore"):
        out = case.ref(*arrays, **case.attrs)
    return tuple(np.asarray(o) for o in (out if isinstance(out, tuple) else (out,)))


def close(got: np.ndarray, want: np.ndarray, tol: float) -> None:
    assert got.shape == want.shape
    if want.dtype == bool or want.dtype.kind in "iu":
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_allclose(got, want, rtol=tol, atol=tol)


def test_every_registered_op_has_a_row() -> None:
    rows = {c.name for c in CASES} | set(ELSEWHERE)
    assert set(_core.op_names()) - rows == set()
    assert rows - set(_core.op_names()) == set()


def input_name(op: str, i: int) -> str:
    names = _core.op_info(op)["inputs"]
    return names[min(i, len(names) - 1)]  # a variadic op repeats its last input


def test_every_floating_input_has_its_gradients_checked_or_a_reason() -> None:
    """Each floating input of each op: checked in first and second order, or listed in op_gradients.py with a reason."""
    first, second, floating = set(), set(), set()
    for case in CASES:
        arrays = seeded(case)
        wrt = {input_name(case.name, i) for i in differentiable(case, arrays)} if case.grad else set()
        floating |= {(case.name, input_name(case.name, i)) for i, a in enumerate(arrays) if a.dtype == np.float64}
        first |= {(case.name, i) for i in wrt}
        second |= {(case.name, i) for i in wrt if case.grad2}
    gaps = {(op, i) for op, i in floating - first if op not in NO_GRADIENT}
    assert gaps == set(CONSTANT_INPUTS) | set(BY_DEFINITION)
    assert {op for op, i in first - second if op not in NO_SECOND_ORDER} == set()
    assert {c.name for c in CASES if c.grad and not c.grad2} == set(NO_SECOND_ORDER)


def test_reasons_for_no_gradient_are_those_of_the_registry() -> None:
    by_registry = {name: _core.op_info(name) for name in _core.op_names()}
    rows = {c.name: c for c in CASES}
    for name, info in by_registry.items():
        differentiated = info["has_vjp"] or (info["has_decompose"] and "no_grad" not in info["traits"])
        if name in NO_GRADIENT:
            assert not differentiated, f"{name} has a gradient now: take it out of NO_GRADIENT and add rows."
        elif name not in rows:
            assert not differentiated or name in GRADIENT_ELSEWHERE, f"{name}: where is its gradient checked?"
        elif not differentiated:
            takes_floats = any(a.dtype == np.float64 for c in CASES if c.name == name for a in seeded(c))
            assert not takes_floats, f"{name} takes floats and has no vjp: write one, or its reason in op_gradients.py."
    for table in (NO_GRADIENT, NO_SECOND_ORDER, GRADIENT_ELSEWHERE, dict.fromkeys(op for op, _ in CONSTANT_INPUTS)):
        assert set(table) <= set(by_registry)
    assert all(CONSTANT_INPUTS.values()) and all(NO_GRADIENT.values()) and all(NO_SECOND_ORDER.values())


@pytest.mark.asan_subset
@case_grid
def test_forward_matches_numpy(case: OpCase) -> None:
    arrays = seeded(case)
    narrow = as_float32(arrays)
    want = expected(case, [a.astype(np.float64) if a.dtype == np.float32 else a for a in narrow])
    got = call(case, [mge.Tensor(a) for a in narrow])
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.numpy().shape == g.shape  # inferred == actual
        assert g.numpy().dtype == g.dtype
        close(g.numpy(), w, case.tol)


@case_grid
def test_every_kernel_agrees_with_ref(case: OpCase) -> None:
    tensors = [mge.Tensor(a) for a in as_float32(seeded(case))]
    elementwise = "elementwise" in _core.op_info(case.name)["traits"] or case.name == "reduce"
    try:
        _core.set_option("kernel_tier", 2)
        ref = [o.numpy().copy() for o in call(case, tensors)]
        for tier in (1, 0):
            _core.set_option("kernel_tier", tier)
            for g, w in zip(call(case, tensors), ref, strict=True):
                if elementwise:  # one scalar body and one reduction order: the bits are the same
                    assert g.numpy().tobytes() == w.tobytes()
                else:
                    close(g.numpy(), w, case.tol)
    finally:
        _core.set_option("kernel_tier", 0)


@case_grid
def test_any_number_of_threads_gives_the_same_bits(case: OpCase) -> None:
    """In the smallest pieces there are, results and gradients, by every set of kernels."""
    arrays = as_float32(seeded(case))
    wide = seeded(case)
    wrt = differentiable(case, wide) if case.grad else []
    before, piece = _core.get_num_threads(), _core.get_option("piece_ns")

    def bits() -> list[bytes]:
        out = [o.numpy().tobytes() for o in call(case, [mge.Tensor(a) for a in arrays])]
        if wrt:
            out += [g.tobytes() for g in analytic(case, arrays, wrt, weights_for(case, arrays))]
        return out

    try:
        _core.set_option("piece_ns", 0)
        for tier in (0, 1, 2):
            _core.set_option("kernel_tier", tier)
            _core.set_num_threads(1)
            want = bits()
            for threads in (2, 3, 8, 16, 64):
                _core.set_num_threads(threads)
                assert bits() == want, f"{threads} threads, kernel tier {tier}"
    finally:
        _core.set_option("kernel_tier", 0)
        _core.set_option("piece_ns", piece)
        _core.set_num_threads(before)


@case_grid
def test_strided_inputs_give_the_same_bits(case: OpCase) -> None:
    arrays = as_float32(seeded(case))
    plain = call(case, [mge.Tensor(a) for a in arrays])
    strided = []
    for a in arrays:
        t = mge.Tensor(a.T.copy())
        strided.append(_core.ops.transpose(t, perm=tuple(range(a.ndim))[::-1]))  # a view of transposed memory
    for g, w in zip(call(case, strided), plain, strict=True):
        assert g.numpy().tobytes() == w.numpy().tobytes()


def without(arrays: list[np.ndarray], size: int) -> list[np.ndarray]:
    """The arrays with nothing along every axis of that size."""
    return [a[tuple(slice(0, 0) if n == size else slice(None) for n in a.shape)] for a in arrays]


@case_grid
def test_sizes_of_nothing(case: OpCase) -> None:
    """Each size in turn is 0, where it is one of an attribute, too: a result or a refusal, the same by all kernels."""
    arrays = seeded(case)

    def attempt(given: list[np.ndarray], attrs: dict[str, Any], tier: int) -> list[np.ndarray] | None:
        _core.set_option("kernel_tier", tier)
        row = dataclasses.replace(case, attrs=attrs)
        try:
            narrow = as_float32(given)
            results = [o.numpy() for o in call(row, [mge.Tensor(a) for a in narrow])]
            wrt = differentiable(row, given) if case.grad else []
            return results + (analytic(row, narrow, wrt, weights_for(row, narrow)) if wrt else [])
        except (ValueError, IndexError, TypeError, NotImplementedError, AssertionError):
            return None

    try:
        for size in sorted({n for a in arrays for n in a.shape if n}):
            given = without(arrays, size)
            changed = {
                name: type(v)(0 if n == size else n for n in v) if isinstance(v, (tuple, list)) else v
                for name, v in case.attrs.items()
            }
            for attrs in (case.attrs, changed) if changed != case.attrs else (case.attrs,):
                want = attempt(given, attrs, 2)
                for tier in (1, 0):
                    got = attempt(given, attrs, tier)
                    assert (got is None) == (want is None)
                    for g, w in zip(got or [], want or [], strict=True):
                        close(g, w, max(case.tol, 1e-3))
    finally:
        _core.set_option("kernel_tier", 0)


def loss_of(case: OpCase, outs: tuple[Any, ...], weights: list[Any]) -> Any:
    picked = [o for i, o in enumerate(outs) if (case.outs is None or i in case.outs) and o.dtype.kind == "f"]
    total = None
    for o, w in zip(picked, weights, strict=True):
        if o.device != w.device:
            o = o.to(w.device)
        term = _core.ops.reduce(o * w, mode="sum")
        total = term if total is None else total + term
    return total


def analytic(case: OpCase, arrays: list[np.ndarray], wrt: list[int], weights: list[Any]) -> list[np.ndarray]:
    tensors = [_core.exact_tensor(a) for a in arrays]
    grads: dict[int, Any] = {}
    s = _core.GradSession()
    s.start()
    for i in wrt:
        s.attach(tensors[i], lambda g, i=i: grads.__setitem__(i, g))
    y = loss_of(case, call(case, tensors), weights)
    s.backward([y], [_core.exact_tensor(np.ones(()))])
    s.stop()
    return [grads[i].numpy() if i in grads else np.zeros_like(arrays[i]) for i in wrt]


def numeric(f: Any, arrays: list[np.ndarray], i: int, eps: float = 1e-6) -> np.ndarray:
    out = np.zeros(arrays[i].shape)
    flat = arrays[i].reshape(-1)
    for k in range(flat.size):
        keep = flat[k]
        flat[k] = keep + eps
        hi = f(arrays)
        flat[k] = keep - eps
        lo = f(arrays)
        flat[k] = keep
        out.reshape(-1)[k] = (hi - lo) / (2 * eps)
    return out


def differentiable(case: OpCase, arrays: list[np.ndarray]) -> list[int]:
    return [i for i, a in enumerate(arrays) if a.dtype == np.float64 and (case.wrt is None or i in case.wrt)]


def weights_for(case: OpCase, arrays: list[np.ndarray]) -> list[Any]:
    rng = np.random.RandomState(3)
    outs = call(case, [_core.exact_tensor(a) for a in arrays])
    picked = [o for i, o in enumerate(outs) if (case.outs is None or i in case.outs) and o.dtype.kind == "f"]
    return [_core.exact_tensor(np.asarray(rng.uniform(0.5, 1.5, o.shape))) for o in picked]


GRAD_CASES = [c for c in CASES if c.grad]


@pytest.mark.parametrize("case", GRAD_CASES, ids=[c.id for c in GRAD_CASES])
def test_gradient_matches_finite_difference(case: OpCase) -> None:
    arrays = [np.array(a) for a in seeded(case)]
    wrt = differentiable(case, arrays)
    assert wrt, "a case with gradients needs a floating input"
    weights = weights_for(case, arrays)

    def value(xs: list[np.ndarray]) -> float:
        return float(loss_of(case, call(case, [_core.exact_tensor(x) for x in xs]), weights).numpy())

    for i, got in zip(wrt, analytic(case, arrays, wrt, weights), strict=True):
        np.testing.assert_allclose(got, numeric(value, arrays, i), rtol=2e-5, atol=2e-6, err_msg=f"input {i}")


GRAD2_CASES = [c for c in GRAD_CASES if c.grad2]


@pytest.mark.parametrize("case", GRAD2_CASES, ids=[c.id for c in GRAD2_CASES])
def test_second_order_gradient_matches_finite_difference(case: OpCase) -> None:
    """d/dx of <dL/dx, v> by nested sessions against differences of the first-order gradient."""
    arrays = [np.array(a) for a in seeded(case)]
    wrt = differentiable(case, arrays)
    weights = weights_for(case, arrays)
    rng = np.random.RandomState(5)
    vs = [rng.uniform(-1, 1, arrays[i].shape) for i in wrt]
    tensors = [_core.exact_tensor(a) for a in arrays]
    second: dict[int, np.ndarray] = {}
    outer, inner = _core.GradSession(), _core.GradSession()
    outer.start()
    for i in wrt:
        outer.attach(tensors[i], lambda g, i=i: second.__setitem__(i, g.numpy()))
    inner.start()
    first: dict[int, Any] = {}
    for i in wrt:
        inner.attach(tensors[i], lambda g, i=i: first.__setitem__(i, g))
    y = loss_of(case, call(case, tensors), weights)
    inner.backward([y], [_core.exact_tensor(np.ones(()))])
    inner.stop()
    total = None
    for i, v in zip(wrt, vs, strict=True):
        if i in first:
            term = _core.ops.reduce(first[i] * _core.exact_tensor(np.asarray(v)), mode="sum")
            total = term if total is None else total + term
    assert total is not None
    outer.backward([total], [_core.exact_tensor(np.ones(()))])
    outer.stop()

    def directional(xs: list[np.ndarray]) -> float:
        return float(sum((g * v).sum() for g, v in zip(analytic(case, xs, wrt, weights), vs, strict=True)))

    for i in wrt:
        want = numeric(directional, arrays, i)
        np.testing.assert_allclose(second.get(i, np.zeros_like(want)), want, rtol=1e-4, atol=1e-5, err_msg=f"input {i}")


LITE_CASES = [c for c in CASES if c.lite]


@pytest.mark.parametrize("case", LITE_CASES, ids=[c.id for c in LITE_CASES])
def test_same_bits_eager_traced_replayed_and_in_lite(case: OpCase, tmp_path: pathlib.Path) -> None:
    arrays = as_float32(seeded(case))
    tensors = [mge.Tensor(a) for a in arrays]
    eager = [o.numpy().copy() for o in call(case, tensors)]

    def fn(*args: Any) -> tuple[Any, ...]:
        return call(case, list(args))

    traced = trace(fn)
    replayed = trace(fn, without_host=True, capture_as_const=True)
    for f in (traced, replayed):
        for _ in range(3):
            for g, w in zip(f(*tensors), eager, strict=True):
                assert g.shape == w.shape and g.numpy().tobytes() == w.tobytes()
    if any(a.dtype not in (np.float32, np.int32) for a in arrays + eager) or any(a.size == 0 for a in arrays):
        return  # Lite's interface has no bool, and no empty tensors
    path = tmp_path / "op.mge"
    replayed.dump(
        str(path), arg_names=[f"x{i}" for i in range(len(arrays))], output_names=[f"y{i}" for i in range(len(eager))]
    )
    from megenginelite import LiteNetwork

    net = LiteNetwork()
    net.load(str(path))
    for i, a in enumerate(arrays):
        net.get_io_tensor(f"x{i}").set_data_by_copy(np.ascontiguousarray(a))
    net.forward()
    net.wait()
    for i, w in enumerate(eager):
        assert net.get_io_tensor(f"y{i}").to_numpy().reshape(w.shape).tobytes() == w.tobytes()
