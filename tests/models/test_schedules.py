"""Schedules against their formulas, serialised, and inside a compiled step."""

import keras
import numpy as np
import pytest

from keras_vqem.models.schedules import (
    WarmupExponentialDecay,
    WarmupInverseSquareRoot,
)

SCHEDULES = {
    "exponential": (
        WarmupExponentialDecay(3e-3, 40, 100, 0.7),
        lambda t: 3e-3 * (t / 40 if t < 40 else 0.7 ** ((t - 40) / 100)),
    ),
    "from the peak": (
        WarmupExponentialDecay(1.0, 1, 10, 0.5),
        lambda t: 0.5 ** ((t - 1) / 10),
    ),
    "inverse square root": (
        WarmupInverseSquareRoot(3e-3, 40),
        lambda t: 3e-3 * min(t / 40, (40 / t) ** 0.5),
    ),
}


@pytest.fixture(params=SCHEDULES)
def case(request):
    return SCHEDULES[request.param]


def test_formula(case):
    schedule, formula = case
    # The first optimizer step has the number 0.
    for t in [1, 2, 39, 40, 41, 140, 1_000, 5_000]:
        assert float(schedule(t - 1)) == pytest.approx(formula(t), rel=1e-5)


def test_the_peak_is_the_highest_and_steps_may_be_many():
    exponential = WarmupExponentialDecay(1e-3, 4_000, 5_000, 0.5)
    for schedule in (exponential, WarmupInverseSquareRoot(1e-3, 4_000)):
        rates = np.array([float(schedule(t)) for t in range(3_980, 4_020)])
        assert rates.argmax() == 3_999 - 3_980
        assert 0 <= float(schedule(10**8)) < 1e-5
        assert np.isfinite(float(schedule(10**8)))


def test_a_steep_fall_does_not_disturb_the_rise():
    # Before the peak the fall's own formula would be 0.001 ** -1000, an infinity.
    schedule = WarmupExponentialDecay(1.0, 1_000, 1, 0.001)
    assert float(schedule(0)) == pytest.approx(1e-3)


def test_round_trip(case):
    schedule, _ = case
    data = keras.saving.serialize_keras_object(schedule)
    restored = keras.saving.deserialize_keras_object(data)
    assert type(restored) is type(schedule)
    assert restored.get_config() == schedule.get_config()
    optimizer = keras.optimizers.Adam(schedule)
    again = keras.optimizers.Adam.from_config(optimizer.get_config())
    np.testing.assert_array_equal(again.learning_rate, optimizer.learning_rate)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_steps_of_sgd_follow_the_schedule(jit_compile):
    schedule, formula = SCHEDULES["from the peak"]
    model = keras.Sequential(
        [keras.Input((1,)), keras.layers.Dense(1, "linear", False, "zeros")]
    )
    # With the loss -prediction on input 1 the gradient is -1: weights add up rates.
    model.compile(
        keras.optimizers.SGD(schedule),
        lambda y, prediction: -prediction,
        jit_compile=jit_compile,
    )
    x = np.ones((4, 1), "float32")
    model.fit(x, x, batch_size=1, epochs=1, verbose=0)
    expected = sum(formula(t) for t in range(1, 5))
    assert float(model.get_weights()[0][0, 0]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((0, 4, 10, 0.5), "`peak` must be above 0, received 0"),
        ((1.0, 0, 10, 0.5), "`warmup_steps` must be at least 1, received 0"),
        ((1.0, 4, 0, 0.5), "`decay_steps` must be above 0, received 0"),
        ((1.0, 4, 10, 1.5), "`decay_rate` must be .* received 1.5"),
        ((1.0, 4, 10, 0.0), "`decay_rate` must be .* received 0.0"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        WarmupExponentialDecay(*arguments)
    if "warmup" in message:
        with pytest.raises(ValueError, match=message):
            WarmupInverseSquareRoot(*arguments[:2])
