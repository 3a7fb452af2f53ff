"""Programs in processes of their own, to try faults on.

A server process loads TensorFlow once and is forked for each of them.
"""

import importlib
import importlib.util
import multiprocessing
import os
import pathlib
import resource
import signal
import sys
import time

import keras
import numpy as np

from keras_vqem import layers
from keras_vqem.array_batches import ArrayBatches
from keras_vqem.training import Run, validation_set
from tests.training.tiny_run import Autoencoder

RECIPES = pathlib.Path(__file__).parents[2] / "recipes"


def start(program, *arguments, die=None, largest=None):
    """Starts a program.

    Args:
        program: Function of this module.
        *arguments: Its arguments. The first is a path; what is printed goes to a file
            beside it, which ends in `.out`.
        die: Tuple of a function's name and a number: in that call of the function,
            counted from 0, half a file is written and the process is killed.
        largest: Number of bytes after which writing a file fails, as on a full disk.

    Returns:
        The process.
    """
    pathlib.Path(f"{arguments[0]}.out").write_text("")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(
        target=_run, args=(program.__name__, arguments, die, largest)
    )
    process.start()
    return process


def finish(program, *arguments, **options):
    """Runs a program to its end. Returns its exit status and what it printed."""
    process = start(program, *arguments, **options)
    process.join()
    return process.exitcode, output(arguments[0])


def output(path):
    return pathlib.Path(f"{path}.out").read_text()


def wait_for(found, process, seconds=300):
    """Waits until `found()` is true, while the process lives."""
    end = time.monotonic() + seconds
    while not found():
        assert process.is_alive() and time.monotonic() < end, "nothing to wait for"
        time.sleep(0.01)


def kill(process, number=signal.SIGKILL):
    os.kill(process.pid, number)
    process.join()
    return process.exitcode


def _run(name, arguments, die, largest):
    with open(f"{arguments[0]}.out", "w") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    if die is not None:
        _die_in(*die)
    if largest is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    globals()[name](*arguments)


def _die_in(place, call):
    module, name = place.rsplit(".", 1)
    try:
        owner = importlib.import_module(module)
    except ModuleNotFoundError:  # A method.
        module, class_name = module.rsplit(".", 1)
        owner = getattr(importlib.import_module(module), class_name)
    original, calls = getattr(owner, name), iter(range(call))

    def dying(*arguments, **options):
        if next(calls, None) is not None:
            return original(*arguments, **options)
        for argument in arguments:
            if hasattr(argument, "write"):
                argument.write(b"half a file")
                argument.flush()
            elif isinstance(argument, pathlib.Path) and not argument.is_dir():
                argument.write_bytes(b"half a file")
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, dying)


def recipe(path, name, *arguments):
    """Runs a recipe. The path is only for what it prints."""
    sys.path.insert(0, str(RECIPES))
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main([str(argument) for argument in arguments])


def command(path, *arguments):
    """Runs `keras-vqem`. The path is only for what it prints."""
    from keras_vqem.command.main import main

    main([str(argument) for argument in arguments])


class Slow(keras.callbacks.Callback):
    """Makes steps long enough to be hit, and a validation that takes a while."""

    def on_train_batch_begin(self, batch, logs=None):
        time.sleep(0.02)

    def on_test_begin(self, logs=None):
        time.sleep(0.2)


def autoencoder(path, resume=False, collapsed=False, steps=24):
    """A model with dropout, soft EM and Adam: three epochs."""
    rows = np.random.default_rng(0).normal(size=(4 * steps, 4)).astype("float32")
    with Run(path, seed=3, resume=resume) as run:
        bottleneck = None
        if collapsed:  # Nearly all codes are far from all vectors.
            far = keras.initializers.RandomNormal(stddev=100.0, seed=0)
            bottleneck = layers.VQBottleneck(512, initializer=far)
        model = Autoencoder(bottleneck)
        model.compile("adam")
        run.fit(
            model,
            ArrayBatches({"rows": rows}, batch_size=4),
            epochs=3,
            validation_data=validation_set({"rows": rows[:8]}, 4),
            callbacks=[Slow()],
            average=2,
            checkpoint_steps=5,
        )


def long_autoencoder(path, resume=False):
    """The same with 100 steps per epoch."""
    autoencoder(path, resume, steps=100)


def out_of_memory(path):
    """A batch for which a petabyte is asked."""
    import tensorflow as tf

    class Greedy(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            tf.zeros((10**6, 10**6, 10**3))

    with Run(path) as run:
        model = Autoencoder()
        model.compile("adam")
        rows = np.ones((8, 4), "float32")
        run.fit(model, ArrayBatches({"rows": rows}, 4), 1, callbacks=[Greedy()])
