"""Guards of a run: divergence stops it, a collapsed codebook is told.

Memory that runs out is told together with the setting to lower.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from keras_vqem.checks import nonfinite_weight
from keras_vqem.layers import DiscreteBottleneck
from keras_vqem.layers.bottlenecks import notices


class DivergedError(RuntimeError):
    """Raised if a loss or a weight is NaN or infinite."""


class StopOnDivergence(keras.callbacks.Callback):
    """Stops training in the first step whose loss is NaN or infinite.

    It also stops if a bottleneck meets vectors that are not finite because weights are
    not. List this callback before `Checkpoints`, so that no such state is saved.

    Args:
        kept: Function that returns a sentence about the last good weights, or None.

    Example:

    >>> from keras_vqem.training import StopOnDivergence
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> x, y = np.zeros((4, 2)), np.full((4, 1), np.inf)
    >>> try:
    ...     model.fit(x, y, verbose=0, callbacks=[StopOnDivergence()])
    ... except keras_vqem.training.DivergedError as error:
    ...     print(str(error).partition(".")[0])
    Training diverged in batch 1 of epoch 1 (step 1): loss is inf
    """

    def __init__(self, kept: Callable[[], str] | None = None):
        super().__init__()
        self.kept = kept

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch
        self._nonfinite = 0.0

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        # Logs are means over the epoch, and no finite value makes such a mean finite
        # again. Keras has made them Python numbers, so that looking is free.
        logs, wrong = logs or {}, []
        if not math.isfinite(logs.get("loss", 0.0)):
            bad = {n: v for n, v in logs.items() if not math.isfinite(v)}
            wrong = [f"{name} is {value}" for name, value in bad.items()]
        # A bottleneck leaves out such vectors, with which the loss stays finite.
        nonfinite = sum(v for n, v in logs.items() if n.endswith("nonfinite"))
        if not wrong and nonfinite > self._nonfinite:
            if name := nonfinite_weight(self.model):
                wrong = [f"{name} has values that are NaN or infinite"]
        self._nonfinite = nonfinite
        if wrong:
            self._stop(batch, ", ".join(wrong))

    def _stop(self, batch, wrong):
        iterations = self.model.optimizer.iterations
        step = int(tf.convert_to_tensor(getattr(iterations, "value", iterations)))
        kept = f" {self.kept()}" if self.kept else ""
        raise DivergedError(
            f"Training diverged in batch {batch + 1} of epoch {self._epoch + 1} (step "
            f"{step}): {wrong}.{kept} Start a new run with a lower learning rate or a "
            f"longer warm-up; the same arguments would lead here again."
        )


class CodebookWatch(keras.callbacks.Callback):
    """Tells when codes collapse, and what to do about it.

    At the end of an epoch it looks at the perplexity of each discrete bottleneck, and
    at BLEU from the true codes against BLEU from random codes if `ValidationBLEU` logs
    them. A warning is given when either falls below its threshold, and again only if it
    has recovered in between. While a `LatentNMT` lets sentences bypass its bottleneck,
    nothing is said. It also tells, once, if the first batch or the first epoch has
    fewer vectors than there are codes to start from data. What to do about a collapse
    is on the page docs/guides/collapse.md.

    Args:
        log: Function that takes the warning, such as `Run.log`.
        min_perplexity: Perplexity, as a share of the number of codes, below which a
            codebook counts as collapsed.
        min_worth: Share of the BLEU from true codes that must be lost with random
            codes. Measured runs had a third or more where codes were of use, and an
            eighth or less where they were not.

    Example:

    >>> from keras_vqem.training import CodebookWatch
    >>> inputs = keras.Input((4,))
    >>> outputs = keras_vqem.layers.VQBottleneck(512)(inputs)["quantized"]
    >>> watch = CodebookWatch(log=lambda line: print(line.split(". ")[0]))
    >>> watch.set_model(keras.Model(inputs, outputs))
    >>> watch.on_train_begin()
    >>> watch.on_epoch_end(0, {"perplexity": 3.0})
    WARNING: the codebook has collapsed: a perplexity of 3.0 with 512 codes
    """

    def __init__(
        self,
        log: Callable[[str], object] = print,
        min_perplexity: float = 0.02,
        min_worth: float = 0.2,
    ):
        super().__init__()
        self.log = log
        self.min_perplexity = min_perplexity
        self.min_worth = min_worth

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._told = set()
        self._begun = False

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        if self._begun:
            return
        self._begun = True
        for layer in self._bottlenecks():
            if number := notices.waiting(layer):
                size = layer.num_codes - number
                notices.look_at_batch(layer, size, self._warn)

    def _bottlenecks(self):
        layers = self.model._flatten_layers()
        return [layer for layer in layers if isinstance(layer, DiscreteBottleneck)]

    def _warn(self, message):
        self.log(f"WARNING: {message}")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        logs = logs or {}
        if self._bypassing():
            return
        for layer in self._bottlenecks():
            notices.look_at_codebook(layer, self._warn)
            self._look_at_use(layer, logs)
        own, random = (
            logs.get(f"val_{name}_bleu") for name in ("teacher_forced", "random_codes")
        )
        # Below a few BLEU, nothing can be said about what the codes are worth.
        if own is not None and random is not None and own >= 5:
            self._tell(
                "worth",
                own - random < self.min_worth * own,
                f"the decoder hardly uses the codes: BLEU {own:.1f} from the true "
                f"codes, {random:.1f} from random ones. Raise bypass_steps, lower "
                f"predicted_share and prior_weight, or raise num_codes, so that codes "
                f"say more.",
            )

    def _bypassing(self):
        steps = getattr(self.model, "steps", None)
        if steps is None or not getattr(self.model, "bypass_steps", 0):
            return False
        return int(tf.convert_to_tensor(steps.value)) < self.model.bypass_steps

    def _look_at_use(self, layer, logs):
        found = logs.get(layer.perplexity.name)
        # 0 if no code was counted. Levels have codebooks, a residual bottleneck none.
        if not found or hasattr(layer, "quantizers"):
            return
        # Two codes in equal use have perplexity 2: less is a single code.
        least = max(1.5, self.min_perplexity * layer.num_codes)
        remedies = [
            f"raise {name} (now {getattr(layer, name)})"
            for name in ("dead_code_threshold", "commitment_weight")
            if hasattr(layer, name)
        ]
        if hasattr(self.model, "bypass_steps"):
            remedies.append(f"raise bypass_steps (now {self.model.bypass_steps})")
        self._tell(
            layer.name,
            found < least,
            f"the codebook has collapsed: a {layer.perplexity.name} of {found:.1f} "
            f"with {layer.num_codes} codes. To use more of them, "
            f"{', '.join([*remedies, 'lower the learning rate'])}, or choose fewer "
            f"codes.",
        )

    def _tell(self, what, bad, message):
        if bad and what not in self._told:
            self._warn(message)
        (self._told.add if bad else self._told.discard)(what)


@contextlib.contextmanager
def memory_told(settings: Mapping[str, Any], phase: Callable[[], str]) -> Iterator:
    """Context manager that says what to lower if memory runs out.

    Args:
        settings: Settings that memory depends on, from names to values, such as
            `{"batch_size": 64}`.
        phase: Function that returns what was going on, such as "in batch 3 of epoch 1".

    Raises:
        RuntimeError: If a `tf.errors.ResourceExhaustedError` or `MemoryError` is raised
            inside.
    """
    try:
        yield
    except (tf.errors.ResourceExhaustedError, MemoryError) as error:
        flags = " or ".join(
            f"{name} (--{name.replace('_', '-')}), now {value}"
            for name, value in settings.items()
        )
        first = str(error).strip().partition("\n")[0]
        raise RuntimeError(
            f"Out of memory {phase()}. Lower {flags}, or choose a smaller model "
            f"(hidden_dim, num_codes). TensorFlow says: {first}"
        ) from error
