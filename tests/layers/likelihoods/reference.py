"""Both distributions by their equations: float64, one pixel and one number at a time.

`outputs` [parameters], `base` [3] or None; probabilities come as a [levels] * 3 table.
"""

import itertools
import math

import numpy as np


def logistic(x):
    return 0.5 * (1 + math.tanh(0.5 * x))


def start(levels, spread=None):
    # levels / 8 pixel values, if not said otherwise, where the range is 2 wide.
    return math.log((spread or levels / 8) * 2 / (levels - 1))


def bounded(log_scale):
    return min(max(log_scale, -7.0), 7.0)


def mixture_table(outputs, levels, mixtures, base=None, spread=None):
    """Salimans et al. 2017, equations 2 and 3."""
    outputs = np.asarray(outputs, "float64")
    logits = outputs[:mixtures]
    means, log_scales, couplings = outputs[mixtures:].reshape(3, 3, mixtures)
    means = means * math.exp(start(levels, spread))
    weights = np.exp(logits - logits.max())
    weights /= weights.sum()
    unit = [2 * k / (levels - 1) - 1 for k in range(levels)]
    guess = [0.0] * 3 if base is None else [2 * b / (levels - 1) - 1 for b in base]

    def bin_probability(k, mean, log_scale):
        scale = math.exp(bounded(log_scale + start(levels, spread)))
        half = 1 / (levels - 1)
        upper = logistic((unit[k] + half - mean) / scale) if k < levels - 1 else 1.0
        lower = logistic((unit[k] - half - mean) / scale) if k > 0 else 0.0
        return upper - lower

    table = np.zeros((levels,) * 3)
    for r, g, b in itertools.product(range(levels), repeat=3):
        for i in range(mixtures):
            alpha, beta, gamma = (math.tanh(c) for c in couplings[:, i])
            red, green = unit[r] - guess[0], unit[g] - guess[1]
            p = bin_probability(r, guess[0] + means[0, i], log_scales[0, i])
            mean = guess[1] + means[1, i] + alpha * red
            p *= bin_probability(g, mean, log_scales[1, i])
            mean = guess[2] + means[2, i] + beta * red + gamma * green
            p *= bin_probability(b, mean, log_scales[2, i])
            table[r, g, b] += weights[i] * p
    return table


def categorical_table(outputs, levels, base=None, spread=None):
    outputs = np.asarray(outputs, "float64")
    base = [(levels - 1) / 2] * 3 if base is None else base
    channels = []
    for c in range(3):
        log_scale = bounded(outputs[3 * levels + c] + start(levels, spread))
        scale = math.exp(log_scale) * (levels - 1) / 2
        p = np.zeros(levels)
        for k in range(levels):
            z = (k - base[c]) / scale
            density = logistic(z) * logistic(-z)
            p[k] = math.exp(outputs[c * levels + k]) * density
        channels.append(p / p.sum())
    return np.einsum("r,g,b->rgb", *channels)
