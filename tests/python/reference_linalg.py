"""What the ops of op_cases_linalg.py mean, in NumPy, written for clarity: linear algebra."""

from __future__ import annotations

import numpy as np


def svd(x, full_matrices=False):
    u, s, vh = np.linalg.svd(x, full_matrices=full_matrices)
    k = s.shape[-1]
    if full_matrices and u.shape[-1] != vh.shape[-2]:
        # The vectors beyond the k-th are one basis of many: take the one that completes by unit vectors.
        u, vh = _completed(u, k), np.swapaxes(_completed(np.swapaxes(vh, -1, -2), k), -1, -2)
    top = np.take_along_axis(u, np.abs(u).argmax(-2, keepdims=True), -2)
    sign = np.ones_like(top[..., 0, :])
    sign[..., :k] = np.sign(top[..., 0, :k])
    rows = np.ones(vh.shape[:-1])
    rows[..., :k] = sign[..., :k]
    return s, u * sign[..., None, :], vh * rows[..., None]


def _completed(u, k):
    out = u.copy()
    for b in np.ndindex(*u.shape[:-2]):
        good = [u[b][:, i] for i in range(min(k, u.shape[-1]))]
        for e in np.eye(u.shape[-2]):
            if len(good) == u.shape[-1]:
                break
            for _ in range(2):
                for g in good:
                    e = e - (e @ g) * g
            if np.linalg.norm(e) > 1e-6:
                good.append(e / np.linalg.norm(e))
        out[b] = np.stack(good, 1)
    return out
