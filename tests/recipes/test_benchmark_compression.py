"""A table and a picture; a small untrained model is enough."""

import numpy as np
import pytest
from PIL import Image

from tests.compression import small


@pytest.mark.slow
def test_files_are_compared_at_equal_size(recipe, tmp_path, capsys):
    small.model().save_to_preset(tmp_path / "small")
    image = small.image(48, 80)
    Image.fromarray(image).save(tmp_path / "mine.png")
    recipe("benchmark_compression").main(
        ["--model", str(tmp_path / "small"), "--images", str(tmp_path / "mine.png")]
        + ["--output", str(tmp_path / "out"), "--crop", "20"]
    )
    lines = (tmp_path / "out" / "compression.md").read_text().splitlines()
    assert "\n".join(lines) in capsys.readouterr().out
    rows = [line.strip("| ").split(" | ") for line in lines[2:]]
    names = ["8 photographs, 128 x 64", "portrait, 256 x 300", "mine, 80 x 48"]
    assert [row[0] for row in rows] == [name for name in names for _ in range(4)]
    sizes = [int(row[2].replace(",", "")) for row in rows]
    for first in range(0, 12, 4):
        ours, _, *others = sizes[first : first + 4]
        for size, row in zip(others, rows[first + 2 : first + 4], strict=True):
            assert size >= ours or row[1].endswith(("quality 95", "quality 100"))
    width = float(rows[-4][3]) * 48 * 80 / 8
    assert width == pytest.approx(sizes[-4], rel=0.01)
    picture = np.asarray(Image.open(tmp_path / "out" / "compression.png"))
    assert picture.ndim == 3 and picture.std() > 0
