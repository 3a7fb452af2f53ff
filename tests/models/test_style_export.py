"""Exported styles: one per text, and names that the model does not know."""

import pytest
import tensorflow as tf

from tests.models import small

TEXTS = ["twenty-one", "ten past two", "", "the third of May, nineteen ten", "five"]
STYLES = {"formal": 3, "größer": 5}


@pytest.fixture(scope="module")
def model():
    model = small.exportable("LatentNMT")
    model.styles = STYLES
    return model


@pytest.mark.slow
@pytest.mark.parametrize("stored", [{}, {"style": "formal"}])
def test_each_text_has_a_style(model, stored, tmp_path, monkeypatch):
    monkeypatch.setattr(model, "_generation_config", stored)
    model.export(tmp_path / "1", max_tokens=20)
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    styles = ["formal", "größer", "formal", "", "rude"]
    call = loaded.signatures["translate_with_style"]
    found = call(texts=tf.constant(TEXTS), styles=tf.constant(styles))
    translations = [text.decode() for text in found["translations"].numpy()]
    for text, style, translation in zip(TEXTS, styles, translations, strict=True):
        # Neither an empty nor an unknown name falls back to a stored style.
        known = style if style in STYLES else None
        assert translation == model.translate([text], style=known)[0]
    assert translations[2] == ""
    first = found["codes"].numpy()[:, 0]
    assert (first[0], first[1]) == (3, 5)
    default = loaded.signatures["serving_default"](texts=tf.constant(TEXTS))
    assert set(default) == set(found)
    mine = [text.decode() for text in default["translations"].numpy()]
    assert mine == model.translate(TEXTS)
    changed = [
        a != b
        for a, b in zip(mine, model.translate(TEXTS, style="größer"), strict=True)
    ]
    assert any(changed)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="`texts` and `styles` must have the same"
    ):
        call(texts=tf.constant(TEXTS), styles=tf.constant(["formal"]))
    none = call(texts=tf.constant([], tf.string), styles=tf.constant([], tf.string))
    assert len(none["translations"]) == 0


def test_a_model_without_styles_has_no_such_signature(tmp_path):
    model = small.exportable("LatentNMT")
    assert "translate_with_style" not in model._endpoints(20, {})
    model.styles = STYLES
    names = set(model._endpoints(20, {}))
    assert names == {"serve", "translate_ids", "encode", "decode"} | {
        "translate_with_style"
    }
