"""Progress says how far and how long, and not too often."""

import io

from keras_vqem.command.progress import Progress, duration


class Terminal(io.StringIO):
    def isatty(self):
        return True


def told(stream, times, total=1000, start=0):
    now = iter([0.0, *times])
    progress = Progress(total, start, stream, clock=lambda: next(now))
    return progress, stream


def test_a_file_gets_a_line_now_and_then():
    progress, stream = told(io.StringIO(), [10.0, 40.0, 50.0, 100.0], start=200)
    for done, lines in [(250, 5), (400, 40), (450, 45), (600, 60)]:
        progress.tell(done, lines)
    progress.say("done")
    assert stream.getvalue().splitlines() == [
        "40 lines, 40%, 2 minutes left",
        "60 lines, 60%, 2 minutes left",
        "done",
    ]


def test_a_terminal_has_one_line_that_changes():
    progress, stream = told(Terminal(), [1.0, 1.1, 2.0])
    for done in (100, 200, 1000):
        progress.tell(done, done)
    progress.say("done")
    assert stream.getvalue() == (
        "\r100 lines, 10%, 9 seconds left\x1b[K"
        "\r1,000 lines, 100%, 0 seconds left\x1b[K\rdone\x1b[K\n"
    )


def test_the_line_of_a_terminal_makes_room_for_results():
    for stream, left in ((Terminal(), "\r\x1b[K"), (io.StringIO(), "")):
        progress, stream = told(stream, [])
        progress.clear()
        assert stream.getvalue() == left


def test_input_of_an_unknown_size_has_no_end():
    progress, stream = told(io.StringIO(), [60.0], total=0)
    progress.tell(500, 7)
    assert stream.getvalue() == "7 lines\n"


def test_durations():
    assert [duration(s) for s in (0.2, 59, 59.5, 5400, 7000)] == [
        "1 second",
        "59 seconds",
        "1 minute",
        "90 minutes",
        "1.9 hours",
    ]
