"""The choice of options on val: the plainest of those that are equally good."""

import types

import pytest

from keras_vqem.text import ParallelCorpus
from keras_vqem.training import decoding_options

VAL = ParallelCorpus(["a", "b"], ["A", "B"])


@pytest.mark.parametrize(
    "scores, place",
    [
        ([38.80, 38.83, 38.89], 0),  # all within a tenth of the best
        ([38.70, 38.83, 38.89], 1),
        ([38.0, 38.1, 39.0], 2),
        ([39.0, 38.1, 38.0], 0),
    ],
)
def test_the_first_of_equally_good_options_is_stored(
    scores, place, tmp_path, monkeypatch
):
    options = [{"blank_bias": -0.5 * i, "end_threshold": None} for i in range(3)]
    bleu = {f"bias {o['blank_bias']}": s for o, s in zip(options, scores, strict=True)}

    class Model:
        tokenizer = None
        generation_config = {"num_beams": 1}

        def translate(self, sources, return_scores=False, **given):
            if return_scores:
                # With what is stored by then.
                assert self.generation_config["blank_bias"] == -0.5 * place
                return sources, [-0.2, -1.0]
            return f"bias {given['blank_bias']}"

    reported, saved = [], []
    run = types.SimpleNamespace(
        path=tmp_path, log=lambda line: None, report=reported.append
    )
    patch = monkeypatch.setattr
    patch(decoding_options, "cut_lines", lambda lines, tokenizer: lines)
    patch(decoding_options.translation_scores, "bleu", lambda text, _: bleu[text])
    patch(decoding_options, "save_model", lambda model, path: saved.append(path))
    model = Model()
    decoding_options.choose_options(run, model, VAL, options)
    assert model.generation_config == {"num_beams": 1, "blank_bias": -0.5 * place}
    assert reported == [{"blank_bias": -0.5 * place, "val_bleu": scores[place]}]
    assert model.low_score == -0.99  # the first percentile, rounded
    assert saved == [tmp_path / "model.keras"]
