"""The data of the examples, as NumPy arrays: shipped digits, and images and text made up here."""

from __future__ import annotations

import pathlib

import numpy as np

VOCABULARY, LENGTH = 64, 32  # of the text: different words, words per sentence


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """1,797 images (1, 8, 8) with labels: images and labels to train with, then to test; every sixth is for testing."""
    data = np.load(pathlib.Path(__file__).resolve().parent / "data" / "digits.npz")
    x = data["images"].astype(np.float32)[:, None] / 16.0
    y = data["labels"].astype(np.int32)
    test = np.arange(len(x)) % 6 == 5
    return x[~test], y[~test], x[test], y[test]


def synthetic_images(number: int, seed: int, size: int = 48, noise: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Images (number, 3, size, size) and their class numbers: each of ten classes has a pattern, under noise."""
    patterns = np.random.RandomState(0).randn(10, 3, 8, 8).repeat(size // 8, axis=2).repeat(size // 8, axis=3)
    rng = np.random.RandomState(seed)
    labels = rng.randint(0, 10, number)
    images = patterns[labels] + noise * rng.randn(number, 3, size, size)
    return images.astype(np.float32), labels.astype(np.int32)


def synthetic_text(number: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Sentences in which each word is followed by one of four others, with different odds.

    Returns:
        Words (number, LENGTH), the word that follows each, and the entropy: on average, no model has a smaller loss.
    """
    rng = np.random.RandomState(0)
    followers = np.stack([rng.permutation(VOCABULARY)[:4] for _ in range(VOCABULARY)])
    odds = np.array([0.6, 0.2, 0.15, 0.05])
    text = np.empty((number, LENGTH + 1), np.int32)
    text[:, 0] = rng.randint(0, VOCABULARY, number)
    for i in range(LENGTH):
        text[:, i + 1] = followers[text[:, i], rng.choice(4, number, p=odds)]
    return text[:, :-1], text[:, 1:], float(-(odds * np.log(odds)).sum())
