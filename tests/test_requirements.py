"""The lock is complete: no installed package needs what requirements/lock.txt lacks."""

import importlib.metadata
import pathlib
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = pathlib.Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NAME = PROJECT["project"]["name"]
EXTRAS = {"dev", "serving"}  # as in `make lock`


def locked(text):
    """The versions that a requirements file pins for this interpreter, by name."""
    lines = (line.partition("#")[0].rstrip(" \\") for line in text.splitlines())
    pins = [Requirement(line) for line in lines if line and line[0] not in " -"]
    here = [pin for pin in pins if pin.marker is None or pin.marker.evaluate()]
    return {canonicalize_name(pin.name): _version(pin) for pin in here}


def _version(pin):
    [specifier] = pin.specifier
    assert specifier.operator == "==", f"{pin} is not pinned"
    return specifier.version


def problems(lock, requirements_of, extras):
    """What packages of the lock need and it does not hold, one sentence each.

    Args:
        lock: Versions by name.
        requirements_of: Function from a name to requirement strings, as in metadata.
        extras: Sets of extras by name, those that are asked for from outside.
    """
    found, seen = set(), set()
    waiting = [(name, extra) for name in lock for extra in {"", *extras.get(name, ())}]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for requirement in map(Requirement, requirements_of(name)):
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            needed = canonicalize_name(requirement.name)
            if needed not in lock:
                found.add(f"{name} needs {requirement}, which is not there")
                continue
            if not requirement.specifier.contains(lock[needed], prereleases=True):
                found.add(f"{name} needs {requirement}, but {lock[needed]} is there")
            waiting += [(needed, other) for other in requirement.extras]
    return sorted(found)


def own_requirements():
    project = PROJECT["project"]
    yield from project["dependencies"] + PROJECT["build-system"]["requires"]
    for extra, names in project["optional-dependencies"].items():
        yield from (f'{name} ; extra == "{extra}"' for name in names)


def requirements_of(name):
    if name == NAME:
        return own_requirements()
    return importlib.metadata.requires(name) or []


def test_the_lock_holds_all_that_is_needed():
    lock = locked((ROOT / "requirements" / "lock.txt").read_text())
    assert len(lock) > 50
    installed = {name: importlib.metadata.version(name) for name in lock}
    assert installed == lock, "make installs the lock: run it"
    everything = lock | {NAME: PROJECT["project"]["version"]}
    assert problems(everything, requirements_of, {NAME: EXTRAS}) == []


def test_build_tools_are_those_of_the_lock():
    tools, lock = (
        locked((ROOT / "requirements" / f"{name}.txt").read_text())
        for name in ("build", "lock")
    )
    assert {"setuptools", "wheel"} <= tools.keys()
    assert tools.items() <= lock.items()


def test_pre_commit_has_the_ruff_of_the_lock():
    lock = locked((ROOT / "requirements" / "lock.txt").read_text())
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    assert f"rev: v{lock['ruff']}\n" in hooks


@pytest.mark.parametrize("name", ["lock", "peers"])
def test_no_list_brings_cuda(name):
    names = locked((ROOT / "requirements" / f"{name}.txt").read_text())
    assert "tensorflow" in names
    unwanted = ("cuda", "nvidia", "triton")
    assert [name for name in names if name.startswith(unwanted)] == []


LOCK = """
array-record==0.8.6 \\
    --hash=sha256:00
    # via keras-vqem
etils==1.14.0 ; python_version >= "3"
Etils.Dataclasses==1.0 ; python_version < "3"
zipp==4.1.2
"""
METADATA = {
    "array-record": ["etils[epath]>=1.9"],
    "etils": [
        "zipp ; extra == 'epath'",
        "fsspec ; extra == 'epath' and python_version >= '3'",
        "importlib-resources ; extra == 'epath' and python_version < '3'",
        "jax ; extra == 'lazy'",
    ],
    "zipp": [],
}


@pytest.mark.parametrize(
    "change, extras, expected",
    [
        # Found through an extra that another package asks for.
        ({}, {}, ["etils needs fsspec"]),
        ({"fsspec": "2026.9.0"}, {}, []),
        ({"fsspec": "2026.9.0", "etils": "1.8"}, {}, ["but 1.8 is there"]),
        ({"fsspec": "2026.9.0"}, {"etils": {"lazy"}}, ["etils needs jax"]),
    ],
)
def test_what_is_missing_is_found(change, extras, expected):
    lock = locked(LOCK)
    assert lock == {"array-record": "0.8.6", "etils": "1.14.0", "zipp": "4.1.2"}
    found = problems(lock | change, lambda name: METADATA.get(name, []), extras)
    assert len(found) == len(expected)
    assert all(part in text for part, text in zip(expected, found, strict=True))


def test_what_is_not_pinned_is_refused():
    with pytest.raises(AssertionError, match="is not pinned"):
        locked("etils>=1.14")
