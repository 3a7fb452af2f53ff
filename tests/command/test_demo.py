"""`keras-vqem demo` with the presets that ship."""

import pytest
import tensorflow as tf

from keras_vqem.command import demo, main
from keras_vqem.models import LatentNMT, Transformer


@pytest.mark.slow
def test_both_translations_and_their_codes_are_shown(tmp_path, capsys):
    path = tmp_path / "new" / "demo.png"
    main.main(["demo", "--output", str(path)])
    printed = capsys.readouterr().out
    for model in (
        Transformer.from_preset(demo.TEACHER),
        LatentNMT.from_preset(demo.LATENT),
    ):
        for text in model.translate(demo.SENTENCES):
            assert text in printed
    assert printed.count("by way of the codes [") == len(demo.SENTENCES)
    assert "times as fast" in printed and "keras-vqem zoo" in printed
    # Three rows of ten: images, through their codes, samples.
    height, width, _ = tf.io.decode_png(path.read_bytes()).shape
    assert height > 3 * 32 and width > 10 * 32 and demo.NO_IMAGES not in printed
