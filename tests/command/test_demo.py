"""`keras-vqem demo` with the presets that ship."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.command import demo, main
from keras_vqem.evaluation.image_grids import grid
from keras_vqem.models import CTCTranslator, LatentNMT, Transformer


@pytest.mark.slow
def test_both_translations_and_their_codes_are_shown(tmp_path, capsys):
    path = tmp_path / "new" / "demo.png"
    main.main(["demo", "--output", str(path)])
    printed = capsys.readouterr().out
    for model in (
        Transformer.from_preset(demo.TEACHER),
        CTCTranslator.from_preset(demo.PARALLEL),
        LatentNMT.from_preset(demo.LATENT),
    ):
        for text in model.translate(demo.SENTENCES):
            assert text in printed
    assert printed.count("from the codes [") == len(demo.SENTENCES)
    styled = LatentNMT.from_preset(demo.STYLED)
    assert len(styled.styles) > 1
    for style in styled.styles:
        for text in styled.translate(demo.STYLED_SENTENCES, style=style):
            assert f"{style:<8}  {text}" in printed
    assert (
        "all words at once" in printed.replace("\n", " ")
        and "keras-vqem zoo" in printed
    )
    # Five rows of eight, and their labels.
    height, width, _ = tf.io.decode_png(path.read_bytes()).shape
    assert height > 5 * 4 * 32 and width > 8 * 4 * 32 + 200
    assert "upper half given" in printed and demo.NO_IMAGES not in printed


def test_the_picture_needs_no_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    rows = {"one": np.zeros((8, 4, 4, 3), "uint8"), "two": np.ones((8, 4, 4, 3), "u1")}
    demo.save_rows(tmp_path / "rows.png", rows)
    found = tf.io.decode_png((tmp_path / "rows.png").read_bytes())
    assert found.shape == grid(np.stack(list(rows.values()))).shape
