"""Rows of the bottlenecks' table: codebooks with strategies other than the defaults."""

import keras

from keras_vqem import layers

CASES = {
    "hard_em_cosine": lambda **k: layers.VQEMBottleneck(
        8, groups=2, decay=0.9, seed=1, similarity="cosine", **k
    ),
    "soft_em_cosine": lambda **k: layers.VQEMBottleneck(
        8, num_samples=5, decay=0.9, seed=1, similarity=layers.Cosine(), **k
    ),
    "hard_em_learned": lambda **k: layers.VQEMBottleneck(
        8, groups=layers.LearnedProjections(dim=4, seed=1), decay=0.9, seed=1, **k
    ),
    "hard_em_kmeans": lambda **k: layers.VQEMBottleneck(
        8, initializer="kmeans", decay=0.9, seed=1, **k
    ),
    "exact_em": lambda **k: layers.VQEMBottleneck(
        8, num_samples="exact", temperature=3.0, decay=0.9, seed=1, **k
    ),
    "hard_em_paper_averages": lambda **k: layers.VQEMBottleneck(
        8, decay=layers.PaperAverages(0.9), seed=1, **k
    ),
    "hard_em_reference_averages": lambda **k: layers.VQEMBottleneck(
        8,
        groups=2,
        decay=layers.ReferenceAverages(0.5, epsilon=0.1),
        initializer=keras.initializers.RandomNormal(stddev=1.0, seed=1),
        **k,
    ),
    "hard_em_norm_commitment": lambda **k: layers.VQEMBottleneck(
        8, decay=0.9, commitment_weight=layers.NormCommitment(0.3), seed=1, **k
    ),
    "soft_em_one_draw": lambda **k: layers.VQEMBottleneck(
        8, layers.Draws(5, decoder="draw"), temperature=3.0, decay=0.9, seed=1, **k
    ),
    "soft_em_mode": lambda **k: layers.VQEMBottleneck(
        8,
        layers.Draws(5, decoder="mode"),
        temperature=3.0,
        groups=2,
        decay=0.9,
        gradient="rotation",
        seed=1,
        **k,
    ),
    "soft_em_hard_labels": lambda **k: layers.VQEMBottleneck(
        8, layers.Draws(5, labels="mode"), temperature=3.0, decay=0.9, seed=1, **k
    ),
    "hard_em_learned_prior": lambda **k: layers.LearnedPriorVQEMBottleneck(
        8, temperature=0.5, groups=2, decay=0.9, seed=1, **k
    ),
    "soft_em_learned_prior": lambda **k: layers.LearnedPriorVQEMBottleneck(
        8, num_samples=5, temperature=0.5, decay=0.9, seed=1, **k
    ),
    "vq_rotation": lambda **k: layers.VQBottleneck(
        8,
        initializer=keras.initializers.RandomNormal(stddev=1.0, seed=1),
        gradient="rotation",
        **k,
    ),
    "vq_kmeans_penalties": lambda **k: layers.VQBottleneck(
        8,
        initializer="kmeans",
        similarity="cosine",
        penalties=[layers.OrthogonalCodes(0.1), layers.AssignmentEntropy(0.1)],
        seed=1,
        **k,
    ),
}
# What soft EM drew cannot be seen from the labels of the last one.
EMA = [name for name in CASES if "_em" in name and name != "soft_em_hard_labels"]
SOFT = [name for name in CASES if name.startswith("soft_em")]
# Whose outputs show the noise of a step.
SAMPLED = [name for name in SOFT if name != "soft_em_hard_labels"]
# Nothing is drawn in a step, so results compare exactly.
EXACT = [name for name in CASES if name not in SOFT]
# Every code is the code of its vector.
NEAREST = [name for name in CASES if "learned" not in name]
# The gradient of the inputs is exactly that of the output.
STRAIGHT = [
    *("hard_em_kmeans", "exact_em", "hard_em_paper_averages"),
    *("hard_em_norm_commitment", "soft_em_one_draw", "soft_em_hard_labels"),
    *("hard_em_learned_prior", "soft_em_learned_prior"),
]
# Not in the quick tests.
VARIANTS = [name for name in CASES if name not in ("hard_em_cosine", "exact_em")]
