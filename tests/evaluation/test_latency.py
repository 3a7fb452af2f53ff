"""Latencies, with a clock of our own."""

import time

import pytest

from keras_vqem.evaluation.latency import Latency, measure, table


class Machine:
    """Calls take as long as it is told, and it writes down who was called."""

    def __init__(self):
        self.now = 0.0
        self.calls = []

    def function(self, name, seconds):
        seconds = iter(seconds)

        def call():
            self.calls.append(name)
            self.now += next(seconds)

        return call


def test_medians_and_percentiles_without_the_warmup():
    machine = Machine()
    functions = {
        "slow": machine.function("slow", [60, 9, *range(1, 22)]),
        "fast": machine.function("fast", [50, 8, *[0.25] * 21]),
    }
    latencies = measure(functions, rounds=21, warmup=2, clock=lambda: machine.now)
    assert list(latencies) == ["slow", "fast"]
    assert latencies["slow"] == pytest.approx((11_000, 20_000, 21))
    assert latencies["fast"] == pytest.approx((250, 250, 21))


def test_rounds_take_turns():
    machine = Machine()
    functions = {name: machine.function(name, [1] * 4) for name in "abc"}
    measure(functions, rounds=3, warmup=1, clock=lambda: machine.now)
    assert "".join(machine.calls) == "abc" + "bca" + "cab" + "abc"


def test_real_clock():
    latency = measure({"sleep": lambda: time.sleep(0.02)}, rounds=2)["sleep"]
    assert latency.rounds == 2 and 20 <= latency.median_ms <= latency.p95_ms


def test_table():
    latencies = {"greedy": Latency(80, 90, 30), "latent": Latency(20, 24.26, 30)}
    assert table(latencies, baseline="latent").splitlines() == [
        "| | median ms | p95 ms | ratio |",
        "|---|---:|---:|---:|",
        "| greedy | 80.0 | 90.0 | 4.00 |",
        "| latent | 20.0 | 24.3 | 1.00 |",
    ]
    assert "| latent | 20.0 | 24.3 | 0.25 |" in table(latencies)


def test_bad_arguments():
    with pytest.raises(ValueError, match="`functions` is empty"):
        measure({})
    with pytest.raises(ValueError, match="`rounds` must be"):
        measure({"nothing": lambda: None}, rounds=0)
    with pytest.raises(ValueError, match="`baseline` must be one of"):
        table({"greedy": Latency(1, 1, 1)}, baseline="beam")
