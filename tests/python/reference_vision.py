"""What the ops of op_cases_vision.py mean, in NumPy, written for clarity: images, regions and boxes."""

from __future__ import annotations

import numpy as np


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
