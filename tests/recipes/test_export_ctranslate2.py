"""export_ctranslate2.py: what it compares, and that it writes nothing unequal."""

import numpy as np
import pytest

from keras_vqem import serving
from keras_vqem.models import loading


@pytest.fixture
def export(recipe, tiny, monkeypatch, tmp_path):
    """Runs the recipe with a CTranslate2 that translates as the given function."""

    def run(translate, *flags):
        written = []

        def write(model, folder, python, quantization=None):
            folder.mkdir()
            (folder / "model.bin").write_bytes(b"0")
            written.append((folder, quantization))

        monkeypatch.setattr(serving, "write_ctranslate2", write)
        monkeypatch.setattr(serving, "ctranslate2_translate", translate)
        arguments = ["--model", str(tiny.teacher), "--output", str(tmp_path / "out")]
        arguments += ["--peers", "python", "--sentences", "3", *flags]
        recipe("export_ctranslate2").main(arguments)
        return written

    return run


def test_equal_translations_are_written(export, tiny, tmp_path, capsys):
    model = loading.load_model(tiny.teacher)
    calls = []

    def translate(folder, rows, python, beam_size, max_decoding_length, **options):
        assert options == {"length_penalty": 0, "min_decoding_length": 0}
        calls.append((folder.name, len(rows), beam_size))
        found = []
        for row in rows:
            ids = model.translate_ids(
                np.array([row]),
                num_beams=beam_size,
                length_penalty=0.0,
                max_length=max_decoding_length,
            )
            ids = ids[0].numpy().tolist()
            found.append(ids[: ids.index(1)] if 1 in ids else ids)
        return found

    texts = tmp_path / "texts"
    texts.write_text("twenty-one\nfive\nhalf past two\nsix\n")
    written = export(translate, "--texts", str(texts), "--quantization", "int8")
    assert calls == [("model", 3, 1), ("model", 3, 4)]
    assert written[-1] == (tmp_path / "out", "int8")
    assert "the same ids for 3 sentences" in capsys.readouterr().out


def test_different_translations_are_refused(export, tmp_path, capsys):
    with pytest.raises(SystemExit):
        export(lambda folder, rows, *_, **options: [[7]] * len(rows))
    assert "3 of 3 sentences differently with 1 beam" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
