"""Contestants that compute nothing, for tests of the processes."""

import pathlib
import sys
from types import SimpleNamespace


def load_data(folder, number):
    return pathlib.Path(folder), number


def counter(data, start=0):
    folder, number = data

    def step():
        with (folder / "turns").open("a") as file:
            file.write(f"{start}\n")

    def check(steps):
        step()
        found = {"first": start + number}
        loaded = [name for name in sys.modules if name.startswith("keras")]
        return found | {"modules": loaded}

    return SimpleNamespace(step=step, check=check)


def failing(data):
    raise RuntimeError("too  slow")


CONTESTANTS = {
    "counter": (counter, ()),
    "failing": (failing, ()),
    "sonnet": (counter, ("dm-sonnet",)),
}
