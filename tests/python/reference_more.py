"""What the ops of op_cases_more.py mean, in NumPy, written for clarity."""

from __future__ import annotations

import numpy as np
from reference import windows


def sort(x, axis=-1, descending=False):
    """Stable in both directions; NaN counts as largest."""
    if descending:  # the last of equals comes first in a reversed ascending sort, so positions are turned twice
        flipped = np.flip(x, axis)
        order = x.shape[axis] - 1 - np.flip(np.argsort(flipped, axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis, kind="stable")
    return np.take_along_axis(x, order, axis), order.astype(np.int32)


def topk(x, k=1, axis=-1, descending=True, sorted=True):
    order = np.take(sort(x, axis, descending)[1], np.arange(k), axis)
    if not sorted:
        order = np.sort(order, axis)
    return np.take_along_axis(x, order, axis), order.astype(np.int32)


def _along(shape, index, axis):
    grid = list(np.ix_(*(np.arange(n) for n in index.shape)))
    grid[axis] = index
    return tuple(grid)


def gather(x, index, axis=0):
    return x[_along(x.shape, index, axis)]


def gather_bwd(gy, index, axis=0, x_shape=()):
    gx = np.zeros(x_shape, gy.dtype)
    np.add.at(gx, _along(x_shape, index, axis), gy)
    return gx


def _key(x, indices, axes):
    """x with the indexed axes in front, and the index for them."""
    rest = [i for i in range(x.ndim) if i not in axes]
    return np.transpose(x, (*axes, *rest)), tuple(np.broadcast_arrays(*indices))


def _moved(y, depth, at):
    """The index dimensions of y, which are in front, moved behind `at` others."""
    front, rest = list(range(depth)), list(range(depth, y.ndim))
    return np.transpose(y, (*rest[:at], *front, *rest[at:]))


def _moved_back(v, depth, at):
    order = [*range(at, at + depth), *range(at), *range(at + depth, v.ndim)]
    return np.transpose(v, order)


def index_get(x, *indices, axes=(), at=0):
    front, key = _key(x, indices, axes)
    return _moved(front[key], key[0].ndim, at)


def index_get_last(x, *indices, axes=(), at=0):
    front, key = _key(x, indices, axes)
    y = front[key].copy()
    seen = set()
    for p in reversed(list(np.ndindex(*key[0].shape))):
        where = tuple(int(k[p]) % front.shape[i] for i, k in enumerate(key))
        if where in seen:
            y[p] = 0
        seen.add(where)
    return _moved(y, key[0].ndim, at)


def _put(x, v, indices, axes, at, add):
    out = x.copy()
    front, key = _key(out, indices, axes)  # a view of out
    values = _moved_back(v, key[0].ndim, at)
    for p in np.ndindex(*key[0].shape):
        where = tuple(int(k[p]) for k in key)
        front[where] = front[where] + values[p] if add else values[p]
    return out


def index_set(x, v, *indices, axes=(), at=0):
    return _put(x, v, indices, axes, at, add=False)


def index_incr(x, v, *indices, axes=(), at=0):
    return _put(x, v, indices, axes, at, add=True)


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


def _taps3(x_shape, w_shape, stride, pad, dilate, groups):
    """Yields slices: output channel, its channels of x, tap, part of y, part of x."""
    oc = w_shape[0] * (w_shape[1] if len(w_shape) == 6 else 1)
    cg = w_shape[-4]
    k = w_shape[-3:]
    out = [windows(x_shape[2 + i], k[i], stride[i], pad[i], dilate[i]) for i in range(3)]
    for o in range(oc):
        c0 = o // (oc // groups) * cg
        for tap in np.ndindex(*k):
            ys, xs = [], []
            for i in range(3):
                at = np.arange(out[i]) * stride[i] - pad[i] + tap[i] * dilate[i]
                ok = (at >= 0) & (at < x_shape[2 + i])
                ys.append(np.arange(out[i])[ok])
                xs.append(at[ok])
            yield o, slice(c0, c0 + cg), tap, ys, xs


def _at(a, rows, columns):
    """The block of a [N, C.., D, H, W] at three lists of positions."""
    return a[(..., *np.ix_(*columns))] if rows is None else a[:, rows][(..., *np.ix_(*columns))]


def conv3d(x, w, stride=(1, 1, 1), pad=(0, 0, 0), dilate=(1, 1, 1), groups=1):
    flat = w.reshape(-1, *w.shape[-4:])
    out = tuple(windows(x.shape[2 + i], w.shape[-3 + i], stride[i], pad[i], dilate[i]) for i in range(3))
    y = np.zeros((x.shape[0], flat.shape[0], *out), x.dtype)
    for o, cs, tap, ys, xs in _taps3(x.shape, w.shape, stride, pad, dilate, groups):
        part = np.einsum("ncdhw,c->ndhw", _at(x, cs, xs), flat[(o, slice(None), *tap)])
        y[(slice(None), o, *np.ix_(*ys))] += part
    return y


def conv3d_dx(gy, w, x_shape=(), stride=(1, 1, 1), pad=(0, 0, 0), dilate=(1, 1, 1), groups=1):
    flat = w.reshape(-1, *w.shape[-4:])
    gx = np.zeros(x_shape, gy.dtype)
    for o, cs, tap, ys, xs in _taps3(x_shape, w.shape, stride, pad, dilate, groups):
        part = gy[(slice(None), o, *np.ix_(*ys))]
        gx[:, cs][(..., *np.ix_(*xs))] += np.einsum("ndhw,c->ncdhw", part, flat[(o, slice(None), *tap)])
    return gx


def conv3d_dw(x, gy, w_shape=(), stride=(1, 1, 1), pad=(0, 0, 0), dilate=(1, 1, 1), groups=1):
    gw = np.zeros((gy.shape[1], *w_shape[-4:]), gy.dtype)
    for o, cs, tap, ys, xs in _taps3(x.shape, w_shape, stride, pad, dilate, groups):
        part = gy[(slice(None), o, *np.ix_(*ys))]
        gw[(o, slice(None), *tap)] += np.einsum("ncdhw,ndhw->c", _at(x, cs, xs), part)
    return gw.reshape(w_shape)


# ---- vision


def border(mode, p, n):
    """The pixel that position p of a line with n pixels stands for, by walking; None outside."""
    if mode == "constant" and not 0 <= p < n:
        return None
    if mode == "replicate":
        return min(max(p, 0), n - 1)
    while not 0 <= p < n:
        if mode == "wrap":
            p += n if p < 0 else -n
        elif mode == "reflect":
            p = -p - 1 if p < 0 else 2 * n - 1 - p
        else:  # reflect_101
            p = 0 if n == 1 else -p if p < 0 else 2 * (n - 1) - p
    return p


def _near(x, y, nearest):
    """Pixels (row, column), weight, and its derivatives along x and y."""
    if nearest:
        return [(int(np.trunc(y + np.copysign(0.5, y))), int(np.trunc(x + np.copysign(0.5, x))), 1.0, 0.0, 0.0)]
    x0, y0 = int(np.floor(x)), int(np.floor(y))
    out = []
    for r in (0, 1):
        for c in (0, 1):
            wy, wx = 1 - abs(y - y0 - r), 1 - abs(x - x0 - c)
            out.append((y0 + r, x0 + c, wy * wx, (2 * c - 1) * wy, (2 * r - 1) * wx))
    return out


def _remap_terms(shape, place, mode, nearest):
    """Yields image, output row and column, source (row, column) or None, weight and derivatives."""
    for n, i, j in np.ndindex(*place.shape[:3]):
        for r, c, w, dx, dy in _near(*place[n, i, j], nearest):
            rr, cc = border(mode, r, shape[2]), border(mode, c, shape[3])
            yield n, i, j, None if rr is None or cc is None else (rr, cc), w, dx, dy


def remap(x, place, border="replicate", nearest=False, value=0.0):
    y = np.zeros((*x.shape[:2], *place.shape[1:3]), x.dtype)
    for n, i, j, src, w, _, _ in _remap_terms(x.shape, place, border, nearest):
        y[n, :, i, j] += w * (value if src is None else x[n, :, src[0], src[1]])
    return y


def remap_dx(gy, place, x_shape=(), border="replicate", nearest=False):
    gx = np.zeros(x_shape, gy.dtype)
    for n, i, j, src, w, _, _ in _remap_terms(x_shape, place, border, nearest):
        if src is not None:
            gx[n, :, src[0], src[1]] += w * gy[n, :, i, j]
    return gx


def remap_dmap(x, place, gy, border="replicate", nearest=False, value=0.0):
    g = np.zeros_like(place)
    for n, i, j, src, _, dx, dy in _remap_terms(x.shape, place, border, nearest):
        v = value if src is None else x[n, :, src[0], src[1]]
        g[n, i, j, 0] += (gy[n, :, i, j] * v).sum() * dx
        g[n, i, j, 1] += (gy[n, :, i, j] * v).sum() * dy
    return g


def resize_matrix(n_in, n_out, mode, align_corners=False):
    """Each row gives one output element from the input elements."""
    m = np.zeros((n_out, n_in))
    for j in range(n_out):
        if mode == "nearest":
            m[j, j * n_in // n_out] = 1
            continue
        if align_corners:
            pos = j * (n_in - 1) / (n_out - 1) if n_out > 1 else 0.0
        else:
            pos = (j + 0.5) * n_in / n_out - 0.5
        base = int(np.floor(pos))
        for k in range(base - 1, base + 3):
            d = abs(pos - k)
            if mode == "linear":
                w = max(0.0, 1 - d)
            else:
                a = -0.75
                w = (a + 2) * d**3 - (a + 3) * d**2 + 1 if d <= 1 else a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
            m[j, min(max(k, 0), n_in - 1)] += w
    return m


def resize(x, size=(), mode="linear", align_corners=False):
    for axis, n in enumerate(size, start=2):
        m = resize_matrix(x.shape[axis], n, mode, align_corners)
        x = np.moveaxis(np.tensordot(x, m, (axis, 1)), -1, axis)
    return x


def resize_bwd(gy, x_size=(), mode="linear", align_corners=False):
    for axis, n in enumerate(x_size, start=2):
        m = resize_matrix(n, gy.shape[axis], mode, align_corners)
        gy = np.moveaxis(np.tensordot(gy, m, (axis, 0)), -1, axis)
    return gy


def _align_samples(roi, shape, size, samples, scale, aligned):
    """For each cell the samples as {pixel: weight}."""
    h, w = shape[2:]
    off = 0.5 if aligned else 0.0
    x0, y0, x1, y1 = (v * scale - off for v in roi[1:])
    ch, cw = max(y1 - y0, 0) / size[0], max(x1 - x0, 0) / size[1]
    for i, j in np.ndindex(*size):
        cell = []
        for a, b in np.ndindex(*samples):
            y, x = y0 + i * ch + (a + 0.5) * ch / samples[0], x0 + j * cw + (b + 0.5) * cw / samples[1]
            pixels = {}
            for r in (int(np.floor(y)), int(np.floor(y)) + 1):
                for c in (int(np.floor(x)), int(np.floor(x)) + 1):
                    if 0 <= r < h and 0 <= c < w:  # what lies outside counts as 0
                        pixels[r, c] = (1 - abs(y - r)) * (1 - abs(x - c))
            cell.append(pixels)
        yield i, j, cell


def _align_parts(x, rois, size, samples, scale, aligned, max):
    """Yields region, channel, cell, image and {pixel: weight} of the result."""
    for k, roi in enumerate(rois):
        n = int(roi[0])
        for i, j, cell in _align_samples(roi, x.shape, size, samples, scale, aligned):
            for c in range(x.shape[1]):
                values = [sum(w * x[n, c, p[0], p[1]] for p, w in s.items()) for s in cell]
                if max:
                    yield k, c, i, j, n, cell[int(np.argmax(values))]
                    continue
                total = {}
                for s in cell:
                    for p, w in s.items():
                        total[p] = total.get(p, 0) + w / len(cell)
                yield k, c, i, j, n, total


def roi_align(x, rois, size=(1, 1), samples=(2, 2), scale=1.0, aligned=True, max=False):
    y = np.zeros((len(rois), x.shape[1], *size))
    for k, c, i, j, n, pixels in _align_parts(x, rois, size, samples, scale, aligned, max):
        y[k, c, i, j] = sum(w * x[n, c, p[0], p[1]] for p, w in pixels.items())
    return y


def roi_align_bwd(x, rois, gy, size=(1, 1), samples=(2, 2), scale=1.0, aligned=True, max=False):
    gx = np.zeros_like(x)
    for k, c, i, j, n, pixels in _align_parts(x, rois, size, samples, scale, aligned, max):
        for p, w in pixels.items():
            gx[n, c, p[0], p[1]] += w * gy[k, c, i, j]
    return gx


def _pool_parts(x, rois, size, scale, max):
    for k, roi in enumerate(rois):
        n = int(roi[0])
        x0, y0, x1, y1 = (int(np.floor(v * scale + 0.5)) for v in roi[1:])
        h, w = y1 - y0 + 1 if y1 >= y0 else 1, x1 - x0 + 1 if x1 >= x0 else 1
        for i, j in np.ndindex(*size):
            rows = np.clip([np.floor(i * h / size[0]) + y0, np.ceil((i + 1) * h / size[0]) + y0], 0, x.shape[2]).astype(
                int
            )
            cols = np.clip([np.floor(j * w / size[1]) + x0, np.ceil((j + 1) * w / size[1]) + x0], 0, x.shape[3]).astype(
                int
            )
            pixels = [(r, c) for r in range(*rows) for c in range(*cols)]
            for ch in range(x.shape[1]):
                if max and pixels:
                    yield k, ch, i, j, n, [(pixels[int(np.argmax([x[n, ch, p[0], p[1]] for p in pixels]))], 1.0)]
                else:
                    yield k, ch, i, j, n, [(p, 1 / len(pixels)) for p in pixels]


def roi_pooling(x, rois, size=(1, 1), scale=1.0, max=True):
    y = np.zeros((len(rois), x.shape[1], *size))
    for k, c, i, j, n, pixels in _pool_parts(x, rois, size, scale, max):
        y[k, c, i, j] = sum(w * x[n, c, p[0], p[1]] for p, w in pixels)
    return y


def roi_pooling_bwd(x, rois, gy, size=(1, 1), scale=1.0, max=True):
    gx = np.zeros_like(x)
    for k, c, i, j, n, pixels in _pool_parts(x, rois, size, scale, max):
        for p, w in pixels:
            gx[n, c, p[0], p[1]] += w * gy[k, c, i, j]
    return gx


def nms(boxes, scores, iou_thresh=0.5, max_output=1):
    kept = []
    for i in sorted(range(len(scores)), key=lambda i: -scores[i]):
        for k in kept:
            w = min(boxes[i, 2], boxes[k, 2]) - max(boxes[i, 0], boxes[k, 0])
            h = min(boxes[i, 3], boxes[k, 3]) - max(boxes[i, 1], boxes[k, 1])
            both = max(w, 0) * max(h, 0)
            areas = sum((boxes[b, 2] - boxes[b, 0]) * (boxes[b, 3] - boxes[b, 1]) for b in (i, k))
            if both / (areas - both) > iou_thresh:
                break
        else:
            kept.append(i)
    kept = kept[:max_output]
    return np.array(kept + [-1] * (max_output - len(kept)), np.int32), np.array(len(kept), np.int32)


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
