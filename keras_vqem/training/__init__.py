"""Running a training: folders, exact resume, callbacks, distribution strategies."""

from keras_vqem.training.callbacks import MetricsLog, Progress, ValidationBLEU
from keras_vqem.training.checkpoints import (
    Checkpoints,
    average_weights,
    latest,
    list_checkpoints,
    load_state,
    resume,
    save_model,
    save_state,
)
from keras_vqem.training.run_folder import RunFolder
from keras_vqem.training.strategies import strategy_scope

__all__ = [
    "Checkpoints",
    "MetricsLog",
    "Progress",
    "RunFolder",
    "ValidationBLEU",
    "average_weights",
    "list_checkpoints",
    "latest",
    "load_state",
    "resume",
    "save_model",
    "save_state",
    "strategy_scope",
]
