"""choose_options: the options of decoding that are best on a validation set."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_vqem.evaluation import translation_scores
from keras_vqem.models.translator import Translator
from keras_vqem.text import ParallelCorpus
from keras_vqem.training.callbacks import cut_lines
from keras_vqem.training.run import Run
from keras_vqem.training.training_state import save_model

# On the thousand sentences of a usual val set, smaller differences of BLEU are noise.
EQUALLY_GOOD = 0.1


def choose_options(
    run: Run,
    model: Translator,
    val: ParallelCorpus,
    options: Sequence[Mapping[str, Any]],
) -> None:
    """Stores the options of `generate` that have the best BLEU on val in the model.

    With them, one in a hundred sentences of val has a score below `low_score`, which is
    stored too.

    Args:
        run: The `Run`, whose model is saved again.
        model: The trained translator.
        val: The `ParallelCorpus` to choose on.
        options: List of dicts of options, the plainest first. Of equally good ones,
            those within 0.1 BLEU of the best, the first is chosen.
    """
    sources, found = cut_lines(val.sources, model.tokenizer), []
    for tried in options:
        texts = model.translate(sources, **tried)
        found.append(translation_scores.bleu(texts, val.targets))
        told = "  ".join(f"{name} {value}" for name, value in tried.items())
        run.log(f"{told}  val_bleu {found[-1]:.2f}")
    best = next(i for i, b in enumerate(found) if b > max(found) - EQUALLY_GOOD)
    chosen = {n: v for n, v in options[best].items() if v is not None}
    model.generation_config = {**model.generation_config, **chosen}
    _, scores = model.translate(sources, return_scores=True)
    model.low_score = round(float(np.nanpercentile(scores, 1)), 2)
    save_model(model, run.path / "model.keras")
    run.report({**chosen, "val_bleu": found[best]})
