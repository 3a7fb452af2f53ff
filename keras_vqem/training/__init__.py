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
    good_checkpoints,
    latest,
    list_checkpoints,
    resume,
)
from keras_vqem.training.data import first_of_each_shape, validation_set
from keras_vqem.training.guards import (
    CodebookWatch,
    DivergedError,
    StopOnDivergence,
)
from keras_vqem.training.interruption import Interrupted
from keras_vqem.training.run import Run
from keras_vqem.training.run_folder import RunFolder
from keras_vqem.training.strategies import distribute_batches, strategy_scope
from keras_vqem.training.training_state import (
    Position,
    average_weights,
    load_state,
    save_model,
    save_state,
)

__all__ = [
    "Checkpoints",
    "CodebookWatch",
    "DivergedError",
    "Interrupted",
    "LossInBits",
    "MetricsLog",
    "Position",
    "Progress",
    "Run",
    "RunFolder",
    "StopOnDivergence",
    "ValidationBLEU",
    "average_weights",
    "distribute_batches",
    "first_of_each_shape",
    "good_checkpoints",
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
