"""Type hints: public signatures have them, and the wheel tells type checkers so."""

import importlib
import inspect
import pathlib
import pkgutil
import tomllib

import pytest

import keras_vqem

ROOT = pathlib.Path(__file__).parent.parent
MODULES = [
    module.name
    for module in pkgutil.walk_packages(keras_vqem.__path__, "keras_vqem.")
    if not module.ispkg and module.name != "keras_vqem.ids"  # which has no functions
]


def public(members):
    return [(name, member) for name, member in members if not name.startswith("_")]


def functions_of(module):
    """Yields names and functions, with constructors, methods and properties."""
    for name, member in public(vars(module).items()):
        if getattr(member, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(member):
            yield name, member
        elif inspect.isclass(member):
            own = vars(member)
            if "__init__" in own and not getattr(member, "_is_protocol", False):
                yield f"{name}.__init__", own["__init__"]
            for method, value in public(own.items()):
                value = getattr(value, "fget", getattr(value, "__func__", value))
                if inspect.isfunction(value):
                    yield f"{name}.{method}", value


def missing(name, function):
    """The parameters without type hints, and "return"."""
    signature = inspect.signature(function)
    parameters = [*signature.parameters.values()][1 if "." in name else 0 :]
    found = [p.name for p in parameters if p.annotation is p.empty]
    if not name.endswith("__init__") and signature.return_annotation is signature.empty:
        found.append("return")
    return found


@pytest.mark.parametrize("name", MODULES)
def test_public_signatures_have_type_hints(name):
    functions = dict(functions_of(importlib.import_module(name)))
    assert functions
    without = {key: missing(key, function) for key, function in functions.items()}
    assert not {key: names for key, names in without.items() if names}


def test_the_marker_of_typed_packages_is_packaged():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "py.typed" in settings["tool"]["setuptools"]["package-data"]["keras_vqem"]
    assert (ROOT / "keras_vqem" / "py.typed").is_file()
