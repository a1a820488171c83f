"""Random ops: distribution, determinism, independence of the thread count."""

from __future__ import annotations

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.core import _core

ops = _core.ops


def state(seed: int = 7) -> mge.Tensor:
    return mge.Tensor(np.array([seed, 0, 0, 0], np.int32))


@pytest.mark.parametrize("threads", [1, 2])
def test_the_stream_depends_on_seed_and_counter_alone(threads: int) -> None:
    before = _core.get_num_threads()
    try:
        _core.set_num_threads(threads)
        a, next_state = ops.rng_uniform(state(), shape=(100_003,), lo=-1.0, hi=3.0)
        b, _ = ops.rng_uniform(state(), shape=(100_003,), lo=-1.0, hi=3.0)
        c, _ = ops.rng_uniform(next_state, shape=(100_003,), lo=-1.0, hi=3.0)
    finally:
        _core.set_num_threads(before)
    assert a.numpy().tobytes() == b.numpy().tobytes()
    assert (a.numpy() != c.numpy()).mean() > 0.99
    head, _ = ops.rng_uniform(state(), shape=(11,), lo=-1.0, hi=3.0)
    np.testing.assert_array_equal(head.numpy(), a.numpy()[:11])  # a longer draw starts with the shorter one
    assert a.numpy().min() > -1.0 and a.numpy().max() <= 3.0
    assert abs(a.numpy().mean() - 1.0) < 0.02 and abs(a.numpy().std() - 4 / np.sqrt(12)) < 0.02


def test_normal_has_the_moments_asked_for() -> None:
    y, _ = ops.rng_normal(state(3), shape=(200_000,), mean=2.0, std=0.5)
    v = y.numpy().astype(np.float64)
    assert abs(v.mean() - 2.0) < 0.01 and abs(v.std() - 0.5) < 0.01
    z = (v - 2.0) / 0.5
    assert abs((z**3).mean()) < 0.03 and abs((z**4).mean() - 3) < 0.1


def test_seeding_the_module_repeats_the_stream() -> None:
    mge.random.seed(5)
    a = mge.random.normal(size=(4, 5)).numpy().copy()
    b = mge.random.normal(size=(4, 5)).numpy().copy()
    mge.random.seed(5)
    np.testing.assert_array_equal(mge.random.normal(size=(4, 5)).numpy(), a)
    assert not np.array_equal(a, b)


def test_dropout_masks_scales_and_passes_the_gradient_through_the_mask() -> None:
    x = mge.Tensor(np.full((300, 300), 2.0, np.float32))
    grads = []
    s = _core.GradSession()
    s.start()
    s.attach(x, grads.append)
    y, mask, _ = ops.dropout(x, state(), p=0.25)
    s.backward([y], [mge.Tensor(np.ones(y.shape, np.float32))])
    s.stop()
    kept = y.numpy() != 0
    assert abs(kept.mean() - 0.75) < 0.01
    np.testing.assert_allclose(y.numpy()[kept], 2.0 / 0.75, rtol=1e-6)
    np.testing.assert_array_equal(grads[0].numpy(), mask.numpy())
    np.testing.assert_array_equal(mask.numpy() != 0, kept)


# ---- distributions beyond uniform and normal: moments, distribution functions, determinism


def draws(fn, *args, n=100_000, **kw) -> np.ndarray:
    return fn(*args, size=(n,), **kw).numpy().astype(np.float64)


def farthest(sample: np.ndarray, cdf) -> float:
    """The Kolmogorov-Smirnov distance of a sample from a distribution function."""
    x = np.sort(sample)
    f = np.array([cdf(v) for v in x])
    n = len(x)
    return float(max((np.arange(1, n + 1) / n - f).max(), (f - np.arange(n) / n).max()))


def gamma_cdf(shape: int, x: float) -> float:
    """For whole shapes: 1 - exp(-x) * sum of x^k / k!."""
    term, total = 1.0, 1.0
    for k in range(1, shape):
        term *= x / k
        total += term
    return 1 - np.exp(-x) * total


@pytest.mark.parametrize("shape, scale", [(0.3, 1.0), (1.0, 2.0), (2.5, 0.5), (30.0, 1.0)])
def test_gamma_moments(shape: float, scale: float) -> None:
    v = draws(mge.random.RNG(seed=11).gamma, shape, scale)
    sd = np.sqrt(shape) * scale
    assert (v >= 0).all()
    assert abs(v.mean() - shape * scale) < 5 * sd / np.sqrt(len(v))
    assert abs(v.std() - sd) < 0.03 * sd
    skew = (((v - v.mean()) / v.std()) ** 3).mean()
    assert abs(skew - 2 / np.sqrt(shape)) < 0.15 * (1 + 2 / np.sqrt(shape))


@pytest.mark.parametrize("shape", [1, 2, 7])
def test_gamma_distribution(shape: int) -> None:
    v = draws(mge.random.RNG(seed=5).gamma, float(shape), n=20_000)
    assert farthest(v, lambda x: gamma_cdf(shape, x)) < 1.63 / np.sqrt(len(v))  # 1 % level


def test_beta_distribution() -> None:
    v = draws(mge.random.RNG(seed=6).beta, 2.0, 1.0, n=20_000)  # distribution function x^2
    assert farthest(v, lambda x: x * x) < 1.63 / np.sqrt(len(v))
    w = draws(mge.random.RNG(seed=6).beta, 0.5, 3.0)
    assert abs(w.mean() - 0.5 / 3.5) < 0.005
    assert abs(w.var() - 0.5 * 3 / (3.5**2 * 4.5)) < 0.001


def test_exponential_distribution() -> None:
    v = draws(mge.random.RNG(seed=7).exponential, 2.0, n=20_000)
    assert farthest(v, lambda x: 1 - np.exp(-2 * x)) < 1.63 / np.sqrt(len(v))


@pytest.mark.parametrize("lam", [0.0, 0.5, 4.0, 9.99, 10.0, 50.0, 1000.0])
def test_poisson_counts(lam: float) -> None:
    v = draws(mge.random.RNG(seed=8).poisson, lam)
    assert (v >= 0).all() and (v == np.round(v)).all()
    assert abs(v.mean() - lam) <= 5 * np.sqrt(lam / len(v))
    assert abs(v.var() - lam) <= 0.03 * lam
    if 0 < lam < 20:  # frequencies of single counts
        p = np.exp(-lam)
        for k in range(int(lam) + 3):
            assert abs((v == k).mean() - p) < 5 * np.sqrt(p / len(v)) + 1e-9
            p *= lam / (k + 1)


def test_parameters_broadcast_and_size_goes_in_front() -> None:
    rng = mge.random.RNG(seed=1)
    shape, scale = mge.Tensor([1.0, 100.0]), mge.Tensor([[1.0], [10.0], [100.0]])
    y = rng.gamma(shape, scale, size=(500,))
    assert y.shape == (500, 3, 2)
    np.testing.assert_allclose(y.numpy().mean(0), scale.numpy() * shape.numpy(), rtol=0.2)
    assert rng.beta(shape, 1.0).shape == (2,) and rng.poisson(4.0).shape == (1,) and rng.poisson(4.0, 3).shape == (3,)
    assert rng.gamma(1.0, size=(2, 0)).shape == (2, 0)


@pytest.mark.parametrize(
    "name, args", [("gamma", (0.0,)), ("gamma", (1.0, -1.0)), ("beta", (1.0, 0.0)), ("poisson", (-1.0,))]
)
def test_parameters_out_of_range(name: str, args: tuple[float, ...]) -> None:
    with pytest.raises(AssertionError, match=f"{name}: parameters must be"):
        getattr(mge.random, name)(*args)


def test_multinomial_follows_the_weights() -> None:
    rng = mge.random.RNG(seed=3)
    w = np.array([[1, 2, 0, 5], [3, 3, 3, 1]], "float32")
    y = rng.multinomial(mge.Tensor(w), 40_000, replacement=True).numpy()
    assert y.shape == (2, 40_000) and y.dtype == np.int32
    for row, weights in zip(y, w):
        np.testing.assert_allclose(np.bincount(row, minlength=4) / len(row), weights / weights.sum(), atol=0.01)
    firsts = np.array([rng.multinomial(mge.Tensor(w[0]), 3).numpy() for _ in range(2000)])
    assert all(len(set(r)) == 3 and 2 not in r for r in firsts)  # distinct, and never a class of weight 0
    np.testing.assert_allclose(np.bincount(firsts[:, 0], minlength=4) / 2000, w[0] / 8, atol=0.05)
    # The second draw is among the rest: P(first 3, second 1) = 5/8 * 2/3.
    assert abs(((firsts[:, 0] == 3) & (firsts[:, 1] == 1)).mean() - 5 / 8 * 2 / 3) < 0.05


def test_multinomial_refuses_bad_weights() -> None:
    with pytest.raises(AssertionError, match="need replacement=True"):
        mge.random.multinomial(mge.Tensor([1.0, 1.0]), 3)
    with pytest.raises(AssertionError, match="at least one class"):
        mge.random.multinomial(mge.Tensor(np.zeros((2, 0), "float32")), 1)
    with pytest.raises(AssertionError, match="at least one class"):
        mge.random.multinomial(mge.Tensor([1.0]), 0)
    with pytest.raises(RuntimeError, match="not negative; got -1"):
        mge.random.multinomial(mge.Tensor([1.0, -1.0]), 1).numpy()
    with pytest.raises(RuntimeError, match="all weights of row 0 are 0"):
        mge.random.multinomial(mge.Tensor([0.0, 0.0]), 1).numpy()


def test_seeds_and_counts_that_are_no_integers_are_refused() -> None:
    for make in (mge.random.seed, mge.random.RNG):
        for bad in ("7", 1.5, [7]):
            with pytest.raises(TypeError):
                make(bad)
        for bad in (-1, 1 << 64):
            with pytest.raises(ValueError, match=f"from 0 up to .* got {bad}"):
                make(bad)
    mge.random.seed(np.int64(7))
    first = mge.random.uniform(size=(3,)).numpy()
    mge.random.seed(7)
    np.testing.assert_array_equal(mge.random.uniform(size=(3,)).numpy(), first)
    for bad in (2.5, [1, 1], np.array([1, 1]), -1):
        with pytest.raises(AssertionError, match="permutation: n is a tensor or an int"):
            mge.random.permutation(bad)
    with pytest.raises(TypeError):
        mge.random.multinomial(mge.Tensor([1.0, 1.0]), 1.5)
    with pytest.raises(TypeError, match="sizes must be integers"):
        mge.random.uniform(size=(2.5,))


@pytest.mark.parametrize("executor", [0, 1])
def test_a_failed_draw_does_not_stop_the_generator(executor: int) -> None:
    rng = mge.random.RNG(seed=1)
    before = _core.get_option("executor")
    try:
        _core.set_option("executor", executor)
        with pytest.raises(RuntimeError, match="not negative"):
            rng.multinomial(mge.Tensor([1.0, -1.0]), 1).numpy()
        assert rng.uniform(size=(3,)).numpy().shape == (3,)
    finally:
        _core.set_option("executor", before)


def test_permutation_has_every_order_alike() -> None:
    rng = mge.random.RNG(seed=2)
    orders = [tuple(rng.permutation(3).numpy()) for _ in range(6000)]
    counts = {o: orders.count(o) for o in set(orders)}
    assert len(counts) == 6 and all(abs(c - 1000) < 150 for c in counts.values())
    big = rng.permutation(100_000).numpy()
    assert (np.sort(big) == np.arange(100_000)).all() and abs(np.corrcoef(big, np.arange(100_000))[0, 1]) < 0.02
    assert rng.permutation(0).shape == (0,) and rng.permutation(5, dtype="float32").dtype == np.float32


@pytest.mark.parametrize("without_host", [False, True])
def test_draws_inside_a_trace_go_on_from_step_to_step(without_host: bool) -> None:
    rng = mge.random.RNG(seed=9)

    @mge.jit.trace(without_host=without_host)
    def step(x: mge.Tensor) -> tuple[mge.Tensor, ...]:
        w = F.ones((2, 5))
        return rng.permutation(x), rng.gamma(2.0, size=(3,)), rng.poisson(5.0, (3,)), rng.multinomial(w, 2)

    x = np.arange(30, dtype="float32")
    got = [[v.numpy().copy() for v in step(mge.Tensor(x))] for _ in range(3)]
    other = mge.random.RNG(seed=9)
    for outs in got:
        w = F.ones((2, 5))
        want = (
            other.permutation(mge.Tensor(x)),
            other.gamma(2.0, size=(3,)),
            other.poisson(5.0, (3,)),
            other.multinomial(w, 2),
        )
        for a, b in zip(outs, want):
            np.testing.assert_array_equal(a, b.numpy())


def test_shuffle_sends_gradients_back_where_they_came_from() -> None:
    x = mge.Parameter(np.arange(5, dtype="float32"))
    weights = np.array([1, 2, 3, 4, 5], "float32")
    gm = mge.autodiff.GradManager().attach([x])
    with gm:
        y = F.copy(x)
        mge.random.shuffle(y)
        gm.backward((y * mge.Tensor(weights)).sum())
    want = np.empty(5, "float32")
    want[y.numpy().astype(int)] = weights
    np.testing.assert_array_equal(x.grad.numpy(), want)


def test_the_new_draws_do_not_depend_on_threads() -> None:
    before = _core.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            _core.set_num_threads(threads)
            rng = mge.random.RNG(seed=4)
            w = mge.Tensor(np.random.RandomState(0).rand(50, 300).astype("float32"))
            results.append(
                [
                    rng.gamma(1.5, size=(5000,)),
                    rng.poisson(20.0, (5000,)),
                    rng.multinomial(w, 9),
                    rng.multinomial(w, 999, True),
                    rng.permutation(9999),
                ]
            )
            results[-1] = [v.numpy().copy() for v in results[-1]]
    finally:
        _core.set_num_threads(before)
    for a, b in zip(*results):
        assert a.tobytes() == b.tobytes()


# ---- saving and restoring


def test_the_global_state_goes_through_a_file(tmp_path) -> None:
    mge.random.seed(11)
    mge.random.normal(size=(3,))
    mge.save(mge.random.get_rng_state(), str(tmp_path / "rng.pkl"))
    x = mge.Tensor(np.ones(1000, np.float32))
    want = [mge.random.uniform(size=(5,)).numpy(), F.dropout(x, 0.5).numpy(), mge.random.permutation(9).numpy()]
    mge.random.seed(12)
    mge.random.set_rng_state(mge.load(str(tmp_path / "rng.pkl")))
    got = [mge.random.uniform(size=(5,)).numpy(), F.dropout(x, 0.5).numpy(), mge.random.permutation(9).numpy()]
    for a, b in zip(want, got):
        np.testing.assert_array_equal(a, b)


def test_a_device_that_had_not_drawn_starts_from_the_saved_seed() -> None:
    mge.random.seed(21)
    state = mge.random.get_rng_state()
    want = mge.random.RNG(device="cpu1").uniform(size=(4,)).numpy()
    mge.random.seed(22)
    mge.random.set_rng_state(state)
    np.testing.assert_array_equal(mge.random.RNG(device="cpu1").uniform(size=(4,)).numpy(), want)


@pytest.mark.parametrize("without_host", [False, True])
def test_a_traced_draw_follows_a_restored_state(without_host: bool) -> None:
    @mge.jit.trace(without_host=without_host)
    def draw(x):
        return F.dropout(x, 0.5)

    x = mge.Tensor(np.ones(100, np.float32))
    draw(x), draw(x)
    state = mge.random.get_rng_state()
    want = [draw(x).numpy() for _ in range(3)]
    mge.random.set_rng_state(state)
    for w in want:
        np.testing.assert_array_equal(draw(x).numpy(), w)


def test_bad_states_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="set_rng_state: needs what get_rng_state returned"):
        mge.random.set_rng_state({"seed": 1})
    good = mge.random.get_rng_state()
    with pytest.raises(ValueError, match=r"set_rng_state: a state is 4 integers; got float64 of shape \(3,\)"):
        mge.random.set_rng_state({"seed": 1, "devices": {"cpu0": np.zeros(3)}})
    assert mge.random.get_rng_state()["seed"] == good["seed"]
    with pytest.raises(ValueError, match="RNG.set_state: a state is 4 integers"):
        mge.random.RNG(seed=1).set_state([1, 2])


def test_parameters_say_where_the_global_generator_draws() -> None:
    there = "cpu0:1"
    ones = mge.Tensor(np.ones(3, "float32"), device=there)
    draws = {
        "gamma": lambda r: r.gamma(ones, size=(2,)),
        "beta": lambda r: r.beta(ones, 2.0),
        "poisson": lambda r: r.poisson(ones),
        "exponential": lambda r: r.exponential(ones),
        "multinomial": lambda r: r.multinomial(ones, 2),
        "permutation": lambda r: r.permutation(ones),
    }
    for name, draw in draws.items():
        assert draw(mge.random).device == there, name
        assert draw(mge.random.RNG(seed=3, device=there)).device == there, name
        with pytest.raises(AssertionError, match="the parameter is on cpu0:1, the generator on xpux:0"):
            draw(mge.random.RNG(seed=3))
    x = mge.Tensor([1, 2, 3], device=there)
    mge.random.shuffle(x)
    assert x.device == there and sorted(x.tolist()) == [1, 2, 3]


def test_random_means_and_streams() -> None:
    for draw, mean, std in (
        (lambda g: g.uniform(2, 4, (10000,)), 3, 2 / 12**0.5),
        (lambda g: g.normal(3, 2, (10000,)), 3, 2),
        (lambda g: g.exponential(2.0, (10000,)), 0.5, 0.5),
    ):
        a, b = mge.random.RNG(seed=5, device="cpu0"), mge.random.RNG(seed=5, device="cpu0:1")
        x, y = draw(a), draw(b)
        assert y.device == "cpu0:1" and np.allclose(x.numpy(), y.numpy(), atol=1e-6)
        assert abs(x.numpy().mean() - mean) < 0.1 and abs(x.numpy().std() - std) < 0.1
    assert sorted(mge.random.permutation(1000).tolist()) == list(range(1000))
