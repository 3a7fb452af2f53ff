"""Training runs with exact resume, callbacks and distribution strategies."""

from keras_vqem.training.callbacks import (
    LossInBits,
    MetricsLog,
    Progress,
    ValidationBLEU,
    loss_in_bits,
)
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
from keras_vqem.training.data import first_of_each_shape, validation_set
from keras_vqem.training.run import Run
from keras_vqem.training.run_folder import RunFolder
from keras_vqem.training.strategies import distribute_batches, strategy_scope

__all__ = [
    "Checkpoints",
    "LossInBits",
    "MetricsLog",
    "Progress",
    "Run",
    "RunFolder",
    "ValidationBLEU",
    "average_weights",
    "distribute_batches",
    "first_of_each_shape",
    "latest",
    "list_checkpoints",
    "load_state",
    "loss_in_bits",
    "resume",
    "save_model",
    "save_state",
    "strategy_scope",
    "validation_set",
]
