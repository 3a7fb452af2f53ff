"""The paper's equations in NumPy, float64, written for reading."""

import numpy as np


def squared_distances(x, codebook):
    return np.sum((x[:, None] - codebook[None]) ** 2, axis=-1)


def hard_e_step(x, codebook):
    """Equation 1: rows of 0 and a 1 at the nearest code."""
    nearest = np.argmin(squared_distances(x, codebook), axis=-1)
    return np.eye(len(codebook))[nearest]


def posterior(x, codebook, temperature=1.0, prior=0.0):
    """Section 3.2: P(z | x), proportional to exp(-|e_z - x|^2) and to a prior."""
    logits = -squared_distances(x, codebook) / temperature + prior
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def m_step(x, assignments, codebook):
    """Equation 6 and its soft form: means of what each code got; others stay."""
    counts = assignments.sum(axis=0)
    means = assignments.T @ x / np.maximum(counts, 1e-300)[:, None]
    return np.where(counts[:, None] > 0, means, codebook)


def ema_step(x, assignments, codebook, counts, decay):
    """The M step on moving averages of counts and of sums."""
    sums = decay * counts[:, None] * codebook + (1 - decay) * assignments.T @ x
    new = decay * counts + (1 - decay) * assignments.sum(axis=0)
    used = assignments.sum(axis=0) > 0
    moved = sums / np.maximum(new, 1e-300)[:, None]
    return np.where(used[:, None], moved, codebook), new


def paper_ema_step(x, assignments, codebook, counts, decay):
    """Equations 3 and 4, one after the other."""
    counts = decay * counts + (1 - decay) * assignments.sum(axis=0)
    sums = assignments.T @ x
    return decay * codebook + (1 - decay) * sums / counts[:, None], counts


def authors_ema_step(x, assignments, sums, counts, decay, epsilon=1e-5):
    """The authors' code: three variables, of which counts start at 0."""
    counts = decay * counts + (1 - decay) * assignments.sum(axis=0)
    sums = decay * sums + (1 - decay) * assignments.T @ x
    total = counts.sum()
    smooth = (counts + epsilon) / (total + len(counts) * epsilon) * total
    return sums / smooth[:, None], sums, counts


def inertia(x, codebook):
    return squared_distances(x, codebook).min(axis=-1).mean()


def lloyd(x, codebook, steps=100):
    """k-means: hard EM on all the data until it stands still."""
    for _ in range(steps):
        moved = m_step(x, hard_e_step(x, codebook), codebook)
        if np.allclose(moved, codebook, rtol=0, atol=1e-12):
            break
        codebook = moved
    return codebook


def unit(x):
    """Vectors divided by their norms; 0 stays 0."""
    norm = np.linalg.norm(x, axis=-1, keepdims=True)
    return np.divide(x, norm, out=np.zeros_like(x), where=norm > 0)


def plus_plus(x, uniforms):
    """k-means++: each centre with a probability by its squared distance so far."""
    gaps, chosen = np.ones(len(x)), []
    for u in uniforms:
        cdf = np.cumsum(gaps)
        chosen.append(int(np.searchsorted(cdf, u * cdf[-1], side="right")))
        square = np.sum((x - x[chosen[-1]]) ** 2, axis=-1)
        gaps = square if len(chosen) == 1 else np.minimum(gaps, square)
    return chosen
