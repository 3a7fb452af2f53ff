"""Jobs of shell commands: order, skipping, resuming, refusing, failing, stopping."""

import json
import os
import shlex
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from keras_vqem.training import Interrupted
from keras_vqem.training.jobs import Job, Jobs


@pytest.fixture
def shell(tmp_path):
    """Function from a name and a script to a job, whose script has to make $out."""

    def shell(name, script="", flags=(), kind="file", **options):
        output = tmp_path / name
        make = f"touch {output}" if kind == "file" else f"mkdir -p {output}"
        script = f"out={output}; echo {name} >> {tmp_path}/order; {script}\n{make}"
        return Job(name, ["bash", "-c", script, *flags], output, **options)

    return shell


@pytest.fixture
def run(tmp_path):
    """Function that runs jobs in a folder, and returns states and lines of the log."""

    def run(*jobs, **options):
        lines = []
        found = Jobs(jobs, tmp_path / "work", log=lines.append, **options).run()
        return found, lines

    return run


def order(tmp_path):
    return (tmp_path / "order").read_text().split()


def record(tmp_path):
    return json.loads((tmp_path / "work" / "jobs.json").read_text())


def wait_for(path):
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.02)


def test_jobs_run_in_order_and_once(shell, run, tmp_path):
    jobs = [shell("a"), shell("b", needs=["a"]), shell("c", needs=["a", "b"])]
    assert run(*jobs)[0] == dict.fromkeys("abc", "done")
    found, lines = run(*jobs)
    assert found == dict.fromkeys("abc", "done")
    assert lines == [f"{name}: done already" for name in "abc"]
    assert order(tmp_path) == ["a", "b", "c"]
    # What was removed is made again, and nothing else is.
    (tmp_path / "b").unlink()
    run(*jobs)
    assert order(tmp_path) == ["a", "b", "c", "b"]


def test_needs_come_first(shell, tmp_path):
    with pytest.raises(ValueError, match="Job b needs a, which must come before"):
        Jobs([shell("b", needs=["a"]), shell("a")], tmp_path)


@pytest.mark.parametrize("parallel", [1, 2])
def test_two_run_side_by_side(shell, run, tmp_path, monkeypatch, parallel):
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)

    def job(me, other):
        # Each waits for the other to begin, if they are to meet for long.
        tries = 400 if parallel == 2 else 2
        script = f"""
        met=alone; touch {tmp_path}/at_{me}
        for i in $(seq {tries}); do
            [ -e {tmp_path}/at_{other} ] && met=together && break; sleep 0.05
        done
        echo $met, threads: ${{TF_NUM_INTRAOP_THREADS:-all}} > $out
        """
        return shell(me, script)

    run(job("a", "b"), job("b", "a"), parallel=parallel)
    said = (tmp_path / "a").read_text()
    expected = "together, threads: 1\n" if parallel == 2 else "alone, threads: all\n"
    assert said == expected


def test_a_failure_names_the_last_line_and_others_go_on(shell, run, tmp_path):
    bad = shell("bad", "echo begun; echo 'error: no space left'; echo; exit 3")
    jobs = [bad, shell("next", needs=["bad"]), shell("last", needs=["next"])]
    found, lines = run(*jobs, shell("other"))
    assert found == {
        "bad": "failed: error: no space left",
        "next": "left out: bad is missing",
        "last": "left out: next is missing",
        "other": "done",
    }
    assert any("error: no space left after" in line for line in lines)
    assert record(tmp_path)["bad"]["error"] == "error: no space left"
    # The next time it may work.
    good = bad._replace(command=[*bad.command[:2], f"touch {bad.output}"])
    found, _ = run(good, *jobs[1:], shell("other"))
    assert set(found.values()) == {"done"}
    assert order(tmp_path) == ["bad", "other", "next", "last"]


@pytest.mark.parametrize("script", ["true", "exit 0"])
def test_a_job_that_makes_nothing_has_failed(tmp_path, run, script):
    job = Job("empty", ["bash", "-c", script], tmp_path / "nothing")
    assert run(job)[0] == {"empty": "failed: exit status 0"}
    job = Job("absent", ["no-such-program"], tmp_path / "nothing")
    assert "No such file" in run(job)[0]["absent"]


def test_changed_settings_are_refused_by_name(shell, run, tmp_path):
    def jobs(epochs, lines, **options):
        data = shell("data", flags=["--lines", lines])
        row = ["--epochs", epochs, "--jit"]
        return data, shell("row", flags=row, needs=["data"], **options)

    run(*jobs("8", "100"))
    with pytest.raises(ValueError) as error:
        run(*jobs("9", "100"))
    assert "row was done with other settings" in str(error.value)
    assert "row --epochs was '8', is '9'" in str(error.value)
    assert f"remove {tmp_path / 'row'} to run it anew" in str(error.value)
    assert order(tmp_path) == ["data", "row"]
    # Without its output nothing stands in the way; but what it was made of counts too.
    (tmp_path / "data").unlink()
    with pytest.raises(ValueError, match="row was done .* data --lines was '100'"):
        run(*jobs("8", "200"))
    (tmp_path / "row").unlink()
    run(*jobs("9", "200"))
    assert order(tmp_path) == ["data", "row"] * 2
    # A measurement is made again instead.
    run(*jobs("7", "200", again=True))
    assert order(tmp_path)[4:] == ["row"]


def test_a_measurement_is_made_again_after_what_it_measures(shell, run, tmp_path):
    jobs = [shell("a"), shell("b", needs=["a"], again=True)]
    run(*jobs)
    (tmp_path / "a").unlink()
    run(*jobs)
    assert order(tmp_path) == ["a", "b", "a", "b"]


def test_the_folder_may_be_moved(tmp_path):
    def jobs(work):
        command = ["bash", "-c", 'touch "$2"', "--", "--out", str(work / "x")]
        return Jobs([Job("x", command, work / "x")], work, log=lambda line: None)

    jobs(tmp_path / "old").run()
    (tmp_path / "old").rename(tmp_path / "new")
    assert jobs(tmp_path / "new").is_done("x")


def test_the_record_is_complete_while_jobs_run(shell, run, tmp_path):
    written = tmp_path / "work" / "jobs.json"
    copy = f"cp {written} {tmp_path}/copy_"
    run(shell("a", f"{copy}a"), shell("b", f"{copy}b"))
    during = [json.loads((tmp_path / f"copy_{name}").read_text()) for name in "ab"]
    assert during[0]["a"]["status"] == "started" and "b" not in during[0]
    assert during[1]["a"]["status"] == "done" and during[1]["a"]["seconds"] > 0
    assert record(tmp_path)["b"]["status"] == "done"


def test_a_signal_is_passed_on_and_the_job_goes_on_later(shell, run, tmp_path):
    saves = """
    if [ -e $out/state ]; then echo resumed > $out/end; exit 0; fi
    mkdir -p $out; trap 'touch $out/state; exit 143' TERM
    touch $out/ready; while true; do sleep 0.05; done
    """
    jobs = [shell("slow", saves, kind="folder"), shell("after")]

    def stop():
        wait_for(tmp_path / "slow" / "ready")
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(Interrupted, match="SIGTERM stopped .* same command") as error:
        run(*jobs)
    thread.join()
    assert error.value.signal_number == signal.SIGTERM
    assert record(tmp_path)["slow"]["status"] == "stopped"
    assert (tmp_path / "slow" / "state").exists()
    states = dict((job.name, s) for job, s in Jobs(jobs, tmp_path / "work").plan())
    assert states == {"slow": "to go on", "after": "to do"}
    assert set(run(*jobs)[0].values()) == {"done"}
    assert (tmp_path / "slow" / "end").read_text() == "resumed\n"
    assert order(tmp_path) == ["slow", "slow", "after"]


@pytest.mark.slow
def test_killed_jobs_save_too_and_go_on(shell, run, tmp_path):
    script = f"mkdir -p $out; trap 'touch {tmp_path}/saved; exit 143' TERM;"
    script += f"[ -e {tmp_path}/saved ] && exit 0;"
    script += "touch $out/ready; while true; do sleep 0.05; done"
    job = shell("slow", script, kind="folder")
    code = f"""
    import pathlib
    from keras_vqem.training.jobs import Job, Jobs
    job = Job("slow", {list(job.command)!r}, pathlib.Path({str(job.output)!r}))
    Jobs([job], {str(tmp_path / "work")!r}).run()
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)])
    wait_for(tmp_path / "slow" / "ready")
    process.kill()
    process.wait()
    wait_for(tmp_path / "saved")
    assert run(job)[0] == {"slow": "done"}


def test_only_one_process_works_in_a_folder(shell, tmp_path):
    def again(line):
        if "started" in line:
            with pytest.raises(RuntimeError, match="Another process runs jobs in"):
                Jobs([shell("b")], tmp_path / "work").run()
            seen.append(line)

    seen = []
    Jobs([shell("a")], tmp_path / "work", log=again).run()
    assert seen and not (tmp_path / "b").exists()


def test_progress_has_epochs_and_time_left(shell, run, tmp_path):
    lines = [json.dumps({"epoch": number}) for number in (1, 2)]
    write = "; ".join(
        f"echo {shlex.quote(line)} >> $out/metrics.jsonl; sleep 0.4" for line in lines
    )
    job = shell("row", f"mkdir -p $out; {write}", kind="folder", epochs=2, minutes=3)
    _, log = run(job, shell("more", minutes=6))
    told = [line for line in log if "row: epoch" in line]
    assert told[0].startswith("row: epoch 1/2, 0:00:0")
    # The other job by its estimate: six minutes.
    assert "0 of 2 jobs, 0:06:" in told[0]
    assert log[-1].endswith("2 of 2 jobs, 0:00:00 left")
    jobs = Jobs([job, shell("c", minutes=5), shell("d", minutes=7)], tmp_path / "work")
    assert jobs.minutes_left() == 12
    assert dict((j.name, s) for j, s in jobs.plan()) == {
        "row": "done",
        "c": "to do, about 0:05:00 (estimate)",
        "d": "to do, about 0:07:00 (estimate)",
    }
