"""Under which circumstances a number was measured."""

import os
import platform
from importlib import metadata

import tensorflow as tf

import keras_vqem

PACKAGES = ("keras", "numpy", "sacrebleu", "tensorflow", "tensorflow-text")


def environment():
    """Versions and machine: what a latency cannot be read without."""
    versions = {name: metadata.version(name) for name in PACKAGES}
    versions |= {"python": platform.python_version()}
    versions |= {"keras_vqem": keras_vqem.__version__}
    cores = getattr(os, "sched_getaffinity", None)  # not on every system
    machine = {
        "cores": len(cores(0)) if cores else os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "intra_op_threads": tf.config.threading.get_intra_op_parallelism_threads(),
        "inter_op_threads": tf.config.threading.get_inter_op_parallelism_threads(),
        "threads_from_environment": os.environ.get("TF_NUM_INTRAOP_THREADS"),
        "gpus": len(tf.config.list_physical_devices("GPU")),
    }
    return {"versions": versions, "machine": machine}
