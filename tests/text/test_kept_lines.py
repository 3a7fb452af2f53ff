"""Lines stay when their writer dies, and fit together when it goes on."""

import pytest

from keras_vqem.text.kept_lines import KeptLines

SETTINGS = {"model": "abc", "num_beams": 4}


@pytest.fixture
def kept(tmp_path):
    def open_it(**changed):
        path = tmp_path / "deep" / "a.txt"
        return KeptLines(path, tmp_path / "deep" / "a.json", {**SETTINGS, **changed})

    return open_it


def test_lines_are_appended_behind_the_last_complete_one(kept, tmp_path):
    with kept() as first:
        first.append(["eins", "zwei\nhalb"])
        # They are on the disk before the writer ends.
        assert first.path.read_text() == "eins\nzwei halb\n"
    with open(first.path, "ab") as file:
        file.write("torn ü".encode()[:-1])
    with kept() as second:
        assert second.count == 2
        second.append(["drei"])
        second.move_to(tmp_path / "b.txt")
    assert (tmp_path / "b.txt").read_text() == "eins\nzwei halb\ndrei\n"
    assert not list((tmp_path / "deep").iterdir())


def test_other_settings_and_other_writers_are_refused(kept):
    with kept() as first:
        with pytest.raises(BlockingIOError, match="Another process is writing"):
            kept().__enter__()
        # Nothing was written yet, so other settings may take over later.
    with kept(num_beams=2) as first:
        first.append(["eins"])
    with pytest.raises(ValueError, match="num_beams: started with 2, received 4"):
        kept().__enter__()
    first.settings_path.unlink()
    with pytest.raises(ValueError, match="is missing. Remove the lines"):
        kept().__enter__()
    assert first.path.read_text() == "eins\n"
