"""Profiles: time is shared out without loss, and operations are found by type."""

import pytest
import tensorflow as tf

from keras_vqem.evaluation import op_profile


def test_shares_add_up_to_the_time_in_which_something_runs():
    events = [("a", 0.0, 6.0), ("b", 1.0, 3.0), ("a", 2.0, 3.0), ("c", 8.0, 9.0)]
    shares = op_profile.share(events)
    # From 1 to 2 there are two, from 2 to 3 three, of which two have one name.
    assert shares == pytest.approx({"a": 1 + 1 / 2 + 2 / 3 + 3, "b": 5 / 6, "c": 1.0})
    assert sum(shares.values()) == pytest.approx(7.0)


def test_an_event_of_no_length_takes_no_time():
    assert op_profile.share([("a", 1.0, 1.0), ("b", 0.0, 2.0)])["b"] == 2.0


def test_parts_keep_everything():
    times = {"MatMul": 3.0, "Mul": 1.0, "Sub": 0.5, "Cast": 0.25}
    parts = op_profile.by_part(times, {"product": ["MatMul"], "passes": ["Sub", "Mul"]})
    assert parts == {"product": 3.0, "passes": 1.5, "all else": 0.25}


def test_operations_of_a_step_are_found():
    x = tf.ones((300, 300))
    step = tf.function(lambda: tf.cumsum(tf.matmul(x, x)))
    step()
    wall, times = op_profile.profile(step, steps=2)
    assert {"MatMul", "Cumsum"} <= set(times)
    assert 0 < times["MatMul"] and sum(times.values()) <= 1.05 * wall
