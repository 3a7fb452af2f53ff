"""Programs that XLA compiled, kept for the next process that needs the same.

XLA compiles a training step once per shape of batch, which takes a network of a few
layers 10 to 40 seconds each. TensorFlow can keep the results in a folder, but reads the
name of that folder only while it starts. `keras_vqem/__init__.py` therefore calls
`start` first, and a program asks for the cache in advance with an environment variable:

    KERAS_VQEM_COMPILE_CACHE=1       keeps programs in ~/.cache/keras_vqem
    KERAS_VQEM_COMPILE_CACHE=FOLDER  keeps them in a folder of choice
    KERAS_VQEM_COMPILE_CACHE=0       keeps nothing, as without the variable

The trainers set it to 1 for `--jit`. All runs of a user share one folder: equal
networks with batches of equal shapes have equal programs.

TensorFlow trusts what it finds: a torn file ends the training, or even an epoch before
its time, without an error. So each process gets a folder of its own with links to those
files whose hash is right, and `store` takes over what was compiled since. Programs
belong to one version of TensorFlow and one kind of processor.
"""

import atexit
import contextlib
import hashlib
import importlib.metadata
import os
import pathlib
import platform
import tempfile

from keras_vqem.files import replacing

VARIABLE = "KERAS_VQEM_COMPILE_CACHE"
MAX_BYTES = 1_000_000_000
# Function names hold the number of a counter, and programs are found by these names.
ALIGNMENT = 2**20

# Of TensorFlow, when it loads a program. It tries to read the file as text first, and
# takes two preferences of the compiler for abilities of the processor.
FALSE_ALARMS = (
    b"Error parsing text-format tensorflow.XlaSerializedCacheEntry",
    b"Target machine feature +prefer-no-",
)

_own = None  # Folder of this process, while there is one.
_shared = None


def start() -> None:
    """Gives TensorFlow a folder of programs, if the environment asks for it."""
    global _own, _shared
    asked = os.environ.get(VARIABLE, "0")
    if asked in ("", "0") or _own is not None or not _versions():
        return
    root = pathlib.Path(asked).expanduser() if asked != "1" else _default_folder()
    try:
        shared = root / _machine()
        shared.mkdir(parents=True, exist_ok=True)
        _prune(root, MAX_BYTES)
        own = tempfile.TemporaryDirectory(prefix="keras-vqem-programs-")
        _link(shared, pathlib.Path(own.name))
    except OSError:
        return  # A run without a cache is slower, but a run.
    _own, _shared = own, shared
    atexit.register(store)
    flags = os.environ.get("TF_XLA_FLAGS", "")
    flags += f" --tf_xla_persistent_cache_directory={own.name}"
    os.environ["TF_XLA_FLAGS"] = flags.strip()


def store() -> None:
    """Keeps the programs that were compiled since the start. Call it between steps."""
    if _own is None:
        return
    # A full disk or a folder that is gone must not end a training.
    with contextlib.suppress(OSError):
        for path in pathlib.Path(_own.name).glob("*.pb"):
            if path.is_symlink():
                continue
            content = path.read_bytes()
            kept = _shared / f"{path.stem}.{hashlib.sha256(content).hexdigest()}.pb"
            with replacing(kept) as temporary:
                temporary.write_bytes(content)
            path.unlink()
            path.symlink_to(kept.absolute())


def align_names() -> None:
    """Lets the names of the next functions start from the same number in each process.

    A resumed run has called other functions before than a new one. Does nothing
    without a cache.
    """
    if _own is None:
        return
    # TensorFlow has no public function for this. Without it, a resumed run does not
    # find the programs of a new one, and compiles.
    with contextlib.suppress(ImportError, AttributeError):
        import tensorflow as tf
        from tensorflow.python.framework.ops import uid

        # The first function of a process takes one number more than later ones.
        tf.function(lambda x: x + 1.0).get_concrete_function(tf.constant(1.0))
        while uid() % ALIGNMENT:
            pass


def _default_folder():
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return pathlib.Path(home).expanduser() / "keras_vqem" / "programs"


def _versions():
    found = []
    for name in ("tensorflow", "tensorflow-cpu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(importlib.metadata.version(name))
    return found


def _machine():
    """Returns the name of a folder for this TensorFlow on this kind of processor."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        kinds = {x for x in lines if x.startswith(("model name", "flags", "Features"))}
    except OSError:
        kinds = {platform.processor()}
    for path in pathlib.Path("/proc/driver/nvidia").glob("gpus/*/information"):
        with contextlib.suppress(OSError):
            lines = path.read_text().splitlines()
            kinds |= {x for x in lines if x.startswith("Model")}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    facts = [*sorted(kinds), platform.machine(), cores, os.environ.get("XLA_FLAGS")]
    digest = hashlib.sha256(repr(facts).encode()).hexdigest()
    return f"tensorflow-{_versions()[0]}-{digest[:12]}"


def _link(shared, own):
    """Links the files whose content is complete, and removes the others."""
    for path in shared.glob("*.pb"):
        # Another process may remove a file at any time.
        with contextlib.suppress(OSError):
            name, _, digest = path.stem.rpartition(".")
            if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
                path.unlink()
            elif not (own / f"{name}.pb").is_symlink():
                (own / f"{name}.pb").symlink_to(path.absolute())


def _prune(root, most):
    """Removes the oldest files, until at most `most` bytes are left."""
    found = []
    for path in root.glob("*/*.pb"):
        with contextlib.suppress(OSError):
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    total = 0
    for _, size, path in sorted(found, reverse=True):
        total += size
        if total > most:
            with contextlib.suppress(OSError):
                path.unlink()
