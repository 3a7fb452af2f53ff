"""Files and folders are complete or absent, whenever their writer is killed."""

import fcntl
import json
import os
import subprocess
import sys

import pytest

from keras_vqem import files

# Writes a folder and is killed before or after call number `moment` of the system.
KILLED = """
import importlib.util, os, shutil, sys
spec = importlib.util.spec_from_file_location("files", sys.argv[1])
files = importlib.util.module_from_spec(spec)
spec.loader.exec_module(files)
folder, moment, exchanges = sys.argv[2], int(sys.argv[3]), sys.argv[4] == "exchange"
calls = 0
def killed_at(owner, name):
    call = getattr(owner, name)
    def maybe(*args, **kwargs):
        global calls
        for act in (lambda: None, lambda: call(*args, **kwargs)):
            result = act()
            calls += 1
            if calls == moment:
                os._exit(9)
        return result
    setattr(owner, name, maybe)
if not exchanges:
    files._exchange = lambda one, other: False
for owner, name in [(os, "rename"), (os, "fsync"), (os, "mkdir"), (os, "unlink"),
                    (os, "rmdir"), (files, "_exchange")]:
    killed_at(owner, name)
with files.replacing_folder(folder) as new:
    for name in ("a", "b"):
        (new / name).write_text("new")
"""


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("way", ["exchange", "two renames"])
def test_a_folder_is_old_or_new_whenever_its_writer_is_killed(way, tmp_path):
    folder, seen = tmp_path / "model", []
    for moment in range(1, 100):
        with files.replacing_folder(folder) as new:
            for name in ("a", "b"):
                (new / name).write_text("old")
        done = subprocess.run(
            [sys.executable, "-c", KILLED, files.__file__, folder, str(moment), way],
            timeout=60,
        )
        assert done.returncode in (0, 9)
        found = contents(files.restored(folder))
        assert found in ({"a": "old", "b": "old"}, {"a": "new", "b": "new"})
        seen.append(found["a"])
        if done.returncode == 0:
            break
    assert seen == sorted(seen, reverse=True) and set(seen) == {"old", "new"}
    # The next writer tidies up.
    with files.replacing(tmp_path / "x.txt") as temporary:
        temporary.write_text("x")
    assert sorted(os.listdir(tmp_path)) == ["model", "x.txt"]


def test_parts_of_the_dead_are_removed_and_those_of_the_living_kept(tmp_path):
    dead = tmp_path / ".a.0123456789abcdef.partial.npz"
    dead.write_text("half")
    (tmp_path / ".hidden.partial").write_text("of somebody else")
    with files.replacing(tmp_path / "a.npz") as one:
        assert not dead.exists()
        with files.replacing(tmp_path / "a.npz") as other:  # of another thread
            assert one != other and one.exists()
            other.write_text("other")
        one.write_text("one")
    assert contents(tmp_path) == {"a.npz": "one", ".hidden.partial": "of somebody else"}


def test_a_part_that_was_removed_before_it_was_locked_is_made_again(
    tmp_path, monkeypatch
):
    flock, made = fcntl.flock, []

    def removed_once(descriptor, operation):
        if not made:
            [part] = tmp_path.iterdir()
            made.append(part)
            part.unlink()
        return flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", removed_once)
    with files.replacing(tmp_path / "a.txt") as temporary:
        assert temporary.exists() and temporary != made[0]
        temporary.write_text("complete")
    assert contents(tmp_path) == {"a.txt": "complete"}


def test_a_disk_without_locks_loses_nothing(tmp_path, monkeypatch):
    def no_locks(descriptor, operation):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    left = tmp_path / ".a.0123456789abcdef.partial"
    left.write_text("perhaps of a living writer")
    with files.replacing(tmp_path / "a") as temporary:
        temporary.write_text("complete")
    assert sorted(os.listdir(tmp_path)) == [left.name, "a"]


def test_files_and_the_names_of_folders_reach_the_disk(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync

    def watched(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    with files.replacing_folder(tmp_path / "model") as new:
        (new / "inner").mkdir()
        (new / "inner" / "a").write_text("a")
    expected = [new / "inner" / "a", new / "inner", new, tmp_path]
    assert set(synced) == set(map(str, expected)) and synced[-1] == str(tmp_path)
    synced.clear()
    with files.replacing(tmp_path / "a.txt") as temporary:
        temporary.write_text("a")
    assert synced == [str(temporary), str(tmp_path)]


def test_a_failed_block_leaves_all_as_it_was(tmp_path):
    for write in (files.replacing, files.replacing_folder):
        with pytest.raises(OSError, match="full"), write(tmp_path / "a"):
            raise OSError("disk full")
    assert not os.listdir(tmp_path)


def test_what_is_no_json_is_named(tmp_path):
    path = tmp_path / "facts.json"
    for text in ("{", "", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(ValueError, match="facts.json is no complete JSON"):
            files.read_json(path)
    path.write_text(json.dumps({"a": 1}), encoding="utf-8-sig")
    assert files.read_json(path) == {"a": 1}
    path.write_text('{"epoch": 1}\n{"epoch\n{"epoch": 3}\n')
    with pytest.raises(ValueError, match="facts.json, line 2: '{\"epoch' is not JSON"):
        files.read_json_lines(path)
