"""einsum, matinv and svd against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from functional_helpers import check, gradcheck, rand

import megengine.functional as F
from megengine import Tensor
from megengine.jit import trace

EQUATIONS = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,jk", (3, 4), (4, 5)),
    ("ij,kj->ik", (3, 4), (5, 4)),
    ("ji,jk->ki", (4, 3), (4, 5)),
    ("i,i->", (4,), (4,)),
    ("i,i->i", (4,), (4,)),
    ("i,j->ij", (4,), (3,)),
    ("i,j->ji", (4,), (3,)),
    ("ij->", (3, 4)),
    ("ij->j", (3, 4)),
    ("ij->i", (3, 4)),
    ("ij->ji", (3, 4)),
    ("ba", (3, 4)),
    ("ii", (3, 3)),
    ("ii->i", (3, 3)),
    ("iij->j", (3, 3, 2)),
    ("iji->ij", (3, 2, 3)),
    ("iii->i", (3, 3, 3)),
    ("iijj->ij", (3, 3, 2, 2)),
    ("ii,ij->j", (3, 3), (3, 2)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bij,bkj->bik", (2, 3, 4), (2, 5, 4)),
    ("bij,jk->bik", (2, 3, 4), (4, 5)),
    ("abij,abjk->abik", (2, 3, 4, 5), (2, 3, 5, 2)),
    ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
    ("...ij,jk->...ik", (2, 2, 3, 4), (4, 5)),
    ("...i->...", (2, 3, 4)),
    ("i...->...", (2, 3, 4)),
    ("...ij->...ji", (2, 3, 4)),
    ("i...,i...->i...", (2, 3, 4), (2, 3, 4)),
    ("...ii->...i", (2, 3, 3)),
    ("ij,jk,kl->il", (3, 4), (4, 5), (5, 2)),
    ("ij,jk,kl,lm->im", (3, 4), (4, 5), (5, 2), (2, 6)),
    ("ij,ij,ij->ij", (3, 4), (3, 4), (3, 4)),
    ("i,j,k->kji", (2,), (3,), (4,)),
    ("ij,k->", (2, 3), (4,)),
    ("a,ab,abc->abc", (2,), (2, 3), (2, 3, 4)),
    ("a b, b c -> a c", (2, 3), (3, 4)),
    ("nchw,oc->nohw", (2, 3, 4, 5), (6, 3)),
    ("->", ()),
    (",i->i", (), (3,)),
    ("ij,j->i", (0, 3), (3,)),
    ("ij,jk->ik", (2, 0), (0, 3)),
]


@pytest.mark.parametrize("case", EQUATIONS, ids=[f"{i}:{e[0]}" for i, e in enumerate(EQUATIONS)])
def test_einsum_equals_numpy_on_small_integers(case):
    equation, *shapes = case
    rng = np.random.RandomState(3)
    xs = [rng.randint(-5, 6, s).astype("float32") for s in shapes]
    got = F.einsum(equation, *(Tensor(x) for x in xs))
    np.testing.assert_array_equal(got.numpy(), np.einsum(equation.replace(" ", ""), *xs))
    ints = [x.astype("int32") for x in xs]
    np.testing.assert_array_equal(
        F.einsum(equation, *(Tensor(x) for x in ints)).numpy(), np.einsum(equation.replace(" ", ""), *ints)
    )


def test_einsum_is_traced_and_has_gradients():
    f = trace(lambda a, b: F.einsum("bij,bkj->bik", a, b), without_host=True)
    for _ in range(3):
        a, b = rand(2, 3, 4), rand(2, 5, 4)
        check(f(Tensor(a), Tensor(b)), np.einsum("bij,bkj->bik", a, b))
    gradcheck(lambda a, b: F.einsum("iij,jk->ik", a, b), rand(2, 2, 3), rand(3, 2))
    gradcheck(lambda a, b, c: F.einsum("ij,j,jk->k", a, b, c), rand(2, 3), rand(3), rand(3, 2))


@pytest.mark.parametrize(
    "equation, shapes, text",
    [
        ("ij,jk->ik", [(2, 3)], "names 2 operands; got 1"),
        ("ij->i", [(2,)], "names 2 axes of a tensor with 1"),
        ("ij,jk->ik", [(2, 3), (4, 5)], "gives 'j' the sizes 3 and 4"),
        ("i->ii", [(2,)], "names 'i' twice"),
        ("i->j", [(2,)], "which no operand has"),
        ("i1->i", [(2, 2)], "labels are letters"),
        ("...i,...i->i", [(2, 3), (2, 2, 3)], "the ellipses stand for 1 and 2"),
        ("i->...i", [(2,)], "ellipsis in the result but in no operand"),
    ],
)
def test_einsum_says_what_is_wrong(equation, shapes, text):
    with pytest.raises(ValueError, match=text):
        F.einsum(equation, *(Tensor(rand(*s)) for s in shapes))


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (3, 4, 4), (0, 2, 2), (60, 60)])
def test_matinv(shape):
    x = np.random.RandomState(0).uniform(-1, 1, shape).astype("float32") + 2 * np.eye(shape[-1], dtype="float32")
    check(F.matinv(Tensor(x)), np.linalg.inv(x.astype("float64")), rtol=1e-4, atol=1e-5)


def test_matinv_needs_pivots_and_square_matrices():
    check(F.matinv(Tensor([[0.0, 2.0], [1.0, 0.0]])), [[0, 1], [0.5, 0]])
    with pytest.raises(RuntimeError, match="matinv: matrix 1 of 2 is singular"):
        F.matinv(Tensor(np.array([np.eye(2), np.ones((2, 2))], "float32"))).numpy()
    with pytest.raises(RuntimeError, match="only square matrices"):
        F.matinv(Tensor(rand(2, 3)))
    gradcheck(F.matinv, rand(3, 3) + 4 * np.eye(3, dtype="float32"))


@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (3, 5), (4, 4), (2, 3, 6), (2, 6, 3), (40, 30), (0, 3, 2), (3, 0)])
@pytest.mark.parametrize("full", [False, True])
def test_svd_decomposes(shape, full):
    x = np.random.RandomState(1).uniform(-1, 1, shape).astype("float32")
    u, s, vh = (v.numpy().astype("float64") for v in F.svd(Tensor(x), full_matrices=full))
    m, n = shape[-2:]
    k = min(m, n)
    assert u.shape[-2:] == (m, m if full else k) and vh.shape[-2:] == (n if full else k, n) and s.shape[-1] == k
    np.testing.assert_allclose(s, np.linalg.svd(x, compute_uv=False), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x, atol=1e-5)
    for basis in (np.swapaxes(u, -1, -2) @ u, vh @ np.swapaxes(vh, -1, -2)):
        np.testing.assert_allclose(basis, np.broadcast_to(np.eye(basis.shape[-1]), basis.shape), atol=1e-5)


def test_svd_of_matrices_without_full_rank():
    for x in (np.zeros((3, 2)), np.ones((3, 4)), np.diag([2.0, 0.0, 1.0])):
        u, s, vh = (v.numpy() for v in F.svd(Tensor(x.astype("float32")), full_matrices=True))
        k = min(x.shape)
        np.testing.assert_allclose((u[:, :k] * s) @ vh[:k], x, atol=1e-6)
        np.testing.assert_allclose(u.T @ u, np.eye(len(u)), atol=1e-6)


def test_svd_without_vectors_and_its_gradient():
    x = rand(3, 4)
    none_u, s, none_v = F.svd(Tensor(x), compute_uv=False)
    assert none_u is None and none_v is None
    check(s, np.linalg.svd(x, compute_uv=False))
    a = np.random.RandomState(4).uniform(-1, 1, (4, 3))
    gradcheck(lambda v: F.svd(v)[1], a)
    gradcheck(lambda v: F.matmul(F.svd(v)[0] ** 2, F.svd(v)[2] ** 2), a)
    from megengine.autodiff import GradManager

    t = Tensor(rand(4, 3))
    with pytest.raises(NotImplementedError, match="not unique"), GradManager().attach([t]) as gm:
        gm.backward(F.svd(t, full_matrices=True)[0].sum())
