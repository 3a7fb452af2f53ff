"""Contestants' processes: answers, failures, and turns."""

import pathlib
import sys

import pytest

from keras_vqem.evaluation.benchmark_processes import (
    Contest,
    Entry,
    Progress,
    Worker,
    WorkerFailed,
)

CONTESTANTS = pathlib.Path(__file__).with_name("contestants.py")


def script(path, *lines):
    """A program that stands in for the interpreter with the peers."""
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    "lines, timeout, message",
    [
        (["exec sleep 60"], 0.5, "failed: no answer in 0.5 s"),
        (["exit 4"], 30, "failed: exit code 4: no message"),
        (['echo \'{"error": "it broke", "missing": false}\''], 30, "it broke"),
        (['echo \'{"error": "no torch", "missing": true}\''], 30, "not installed"),
        (["echo not JSON"], 30, "failed: answered 'not JSON'"),
    ],
)
def test_a_worker_that_does_not_answer(tmp_path, lines, timeout, message):
    python = script(tmp_path / "python", *lines)
    worker = Worker(python, CONTESTANTS, tmp_path, 1, timeout)
    with pytest.raises(WorkerFailed, match=message):
        worker.ask(run=1)
    assert worker.process.poll() is not None
    worker.close()


def test_an_interpreter_that_does_not_exist(tmp_path):
    with pytest.raises(WorkerFailed, match="not installed: .*No such file"):
        Worker(str(tmp_path / "nothing"), CONTESTANTS, tmp_path, 1)


def test_a_library_that_is_not_installed(tmp_path):
    worker = Worker(sys.executable, CONTESTANTS, tmp_path, 1)
    spec = {"contestant": "sonnet", "options": {}, "sizes": {"number": 1}}
    with pytest.raises(WorkerFailed, match="not installed: .*'sonnet'"):
        worker.ask(build=spec)
    assert worker.process.poll() == 0


def test_contestants_take_turns_in_processes_of_their_own(tmp_path):
    entries = {
        "first": Entry("the first", "counter", {"start": 10}),
        "failing": Entry("the failing one", "failing"),
        "second": Entry("the second", "counter", {"start": 20}),
        "peer": Entry("a peer", "counter", peer=True),
    }
    with Contest(CONTESTANTS, tmp_path, threads=1) as contest:
        for number in (3, 4):
            contest.build(entries, number=number)
            progress = Progress(3 * len(contest.workers))
            contest.race(rounds=2, steps=5, warmup=1, progress=progress)
            for name, start in (("first", 10), ("second", 20)):
                result = contest.results[name]
                assert result["label"] == entries[name].label
                assert len(result["seconds"]) == 2 * 5
                assert result["first"] == start + number
                assert result["versions"]["python"]
        processes = [worker.process for worker in contest.workers.values()]
        assert len({process.pid for process in processes}) == 2
    assert all(process.poll() == 0 for process in processes)
    assert contest.results["failing"]["status"] == "failed: RuntimeError: too slow"
    assert contest.results["peer"]["status"] == "left out: no --peers interpreter"
    turns = (tmp_path / "turns").read_text().split()
    # A warm-up step; then per turn a step for the caches and five that are timed.
    one = ["10", "20"] + 2 * (["10"] * 6 + ["20"] * 6)
    assert turns == 2 * one


def test_progress_ends_at_its_total(capsys):
    progress = Progress(2)
    progress.show("first")
    progress.show("second")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("[   0/2] first") and "ETA" in lines[0]


def test_workers_need_no_keras_vqem(tmp_path):
    """As in the interpreter of the peers, which need not have it."""
    script = tmp_path / "python"
    # -I: neither the environment nor the current folder adds to sys.path.
    script.write_text(f'#!/bin/sh\nshift\nexec "{sys.executable}" -I -S "$@"\n')
    script.chmod(0o755)
    worker = Worker(str(script), CONTESTANTS, tmp_path, 1, 30)
    spec = {"contestant": "counter", "options": {}, "sizes": {"number": 1}}
    assert worker.ask(build=spec)["versions"].keys() == {"python"}
    assert worker.ask(warm=1) == {"first": 1, "modules": []}
    worker.close()


def test_entries_may_share_a_process(tmp_path):
    entries = {
        name: Entry(name, "counter", {"start": start}, process=process)
        for name, start, process in [("a", 1, "one"), ("b", 2, "one"), ("c", 3, "two")]
    }
    with Contest(CONTESTANTS, tmp_path, threads=1) as contest:
        contest.build(entries, number=0)
        workers = contest.workers
        assert workers["a"] is workers["b"] and workers["a"] is not workers["c"]
        contest.race(2, 1, 1, Progress(9), untimed=0)
        assert [contest.results[name]["first"] for name in "abc"] == [1, 2, 3]
        # Each turn is that of its own contestant, whichever was there before.
        turns = (tmp_path / "turns").read_text().split()
        assert turns == 3 * ["1", "2", "3"]
        # What fails takes those with it that share its process, and only them.
        failing = entries["b"]._replace(contestant="failing", options={})
        contest.build({**entries, "b": failing}, number=0)
        contest.race(1, 1, 1, Progress(6))
    for name in "ab":
        assert contest.results[name]["status"].startswith("failed: ")
    assert len(contest.results["c"]["seconds"]) == 1
