"""What the ops of op_cases_sequence.py mean, in NumPy, written for clarity: CTC and recurrences."""

from __future__ import annotations

import numpy as np


def _ctc_paths(p, label, blank):
    """Every path that spells the label."""
    import itertools

    for path in itertools.product(range(p.shape[1]), repeat=len(p)):
        if [c for i, c in enumerate(path) if (i == 0 or c != path[i - 1]) and c != blank] == list(label):
            yield path


def ctc_loss(pred, steps, label, sizes, blank=0):
    out = []
    for n, (t, s) in enumerate(zip(steps, sizes)):
        p = pred[:t, n]
        out.append(-np.log(sum(np.prod(p[range(t), path]) for path in _ctc_paths(p, label[n, :s], blank))))
    return np.array(out)


def ctc_loss_bwd(pred, steps, label, sizes, gy, blank=0):
    g = np.zeros_like(pred)
    for n, (t, s) in enumerate(zip(steps, sizes)):
        p = pred[:t, n]
        paths = list(_ctc_paths(p, label[n, :s], blank))
        total = sum(np.prod(p[range(t), path]) for path in paths)
        for path in paths:
            for i, c in enumerate(path):
                g[i, n, c] -= gy[n] * np.prod(p[range(t), path]) / p[i, c] / total
    return g


def recurrence(
    gates: np.ndarray, w: np.ndarray, h0: np.ndarray, *c0: np.ndarray, mode: str, reverse: bool
) -> tuple[np.ndarray, ...]:
    """hs, cs and activated gates of a recurrent layer, step by step."""
    h, c = h0, c0[0] if c0 else None
    steps, n, _ = gates.shape
    size = w.shape[1]
    hs = np.zeros((steps, n, size))
    cs, acts = (np.zeros_like(hs), np.zeros_like(gates)) if c0 else (np.zeros(0), np.zeros(0))
    for t in range(steps)[:: -1 if reverse else 1]:
        pre = gates[t] + h @ w.T
        if c is None:
            h = np.tanh(pre) if mode == "tanh" else np.maximum(pre, 0)
        else:
            i, f, g, o = np.split(pre, 4, 1)
            i, f, g, o = 1 / (1 + np.exp(-i)), 1 / (1 + np.exp(-f)), np.tanh(g), 1 / (1 + np.exp(-o))
            c = f * c + i * g
            h = o * np.tanh(c)
            cs[t], acts[t] = c, np.concatenate([i, f, g, o], 1)
        hs[t] = h
    return hs, cs, acts


def recurrence_bwd(
    w: np.ndarray, hs: np.ndarray, g_hs: np.ndarray, *lstm: np.ndarray, mode: str, reverse: bool
) -> tuple[np.ndarray, ...]:
    """Gradients in the gates and the initial state."""
    steps, n, size = hs.shape
    out = np.zeros((steps, n, w.shape[0]))
    dh = np.zeros((n, size))
    dc = np.zeros((n, size) if lstm else 0)
    order = list(range(steps))[:: -1 if reverse else 1]
    for k in range(steps - 1, -1, -1):
        t = order[k]
        gh = g_hs[t] + dh
        if not lstm:
            out[t] = gh * (1 - hs[t] ** 2) if mode == "tanh" else gh * (hs[t] > 0)
        else:
            acts, cs, c0, g_cs = lstm[:4]
            i, f, g, o = np.split(acts[t], 4, 1)
            extra = np.split(lstm[4][t], 4, 1) if len(lstm) > 4 else [0, 0, 0, 0]
            tanh_c = np.tanh(cs[t])
            gc = g_cs[t] + dc + gh * o * (1 - tanh_c**2)
            before = cs[order[k - 1]] if k else c0
            gi, gf, gg, go = gc * g + extra[0], gc * before + extra[1], gc * i + extra[2], gh * tanh_c + extra[3]
            out[t] = np.concatenate([gi * i * (1 - i), gf * f * (1 - f), gg * (1 - g * g), go * o * (1 - o)], 1)
            dc = gc * f
        dh = out[t] @ w
    return out, dh, dc
