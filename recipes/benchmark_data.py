"""Measures how a training run gets its data: time and memory, step by step.

    python recipes/benchmark_data.py --data data/mine --tokens-per-batch 16384

Each line is one step of the start of a run, up to its first batch; the last is a whole
epoch of batches, without a model. Memory is that of the process, TensorFlow included:
`anonymous` is its own, `files` are pages of libraries and memory maps, which the system
may drop when it needs them. `peak` is the largest sum of both so far. Where other
processes use the same cores, only the CPU time says something.
"""

import time
from pathlib import Path

from arguments import add_batch_arguments, add_number, make_parser, user_errors


class Stages:
    """Prints time and memory of one stage after another."""

    KEYS = ("RssAnon", "RssFile", "VmHWM")  # of /proc/self/status

    def __init__(self):
        titles = ("seconds", "CPU s", "anonymous MB", "files MB", "peak MB")
        print(f"{'':<20}" + "".join(f"{title:>14}" for title in titles))
        self._start = time.perf_counter(), time.process_time()

    def end(self, name):
        now = time.perf_counter(), time.process_time()
        seconds = [f"{b - a:.2f}" for a, b in zip(self._start, now, strict=True)]
        memory = [f"{self._megabytes(key):.0f}" for key in self.KEYS]
        print(f"{name:<20}" + "".join(f"{n:>14}" for n in seconds + memory), flush=True)
        self._start = time.perf_counter(), time.process_time()

    def _megabytes(self, key):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(x.split()[1]) for x in lines if x.startswith(key)) / 1024


@user_errors
def main(arguments=None):
    stages = Stages()
    parser = make_parser(__doc__)
    parser.add_argument(
        "--data",
        required=True,
        metavar="DIR",
        help="folder made by prepare_translation.py or distill.py",
    )
    add_batch_arguments(parser, max_shapes=12)
    help = "integer that divides all target lengths, 2 ** n_c for LatentNMT"
    add_number(parser, "--length-multiple", 8, help)
    options = parser.parse_args(arguments)

    from keras_vqem.text import TranslationData
    from keras_vqem.training.data import fingerprint, first_of_each_shape

    stages.end("imports")
    data = TranslationData(options.data)
    stages.end("tokenizer")
    batches = data.batches(
        "train",
        options.tokens_per_batch,
        max_shapes=options.max_shapes,
        length_multiple=options.length_multiple,
    )
    stages.end("ids and shapes")
    fingerprint(batches)
    stages.end("fingerprint")
    first_of_each_shape(batches)
    stages.end("steps that compile")
    iterator = iter(batches.dataset())
    next(iterator)
    stages.end("first batch")
    for _ in range(batches.steps_per_epoch):
        next(iterator)
    stages.end(f"{batches.steps_per_epoch} batches")
    print(batches.summary())


if __name__ == "__main__":
    main()
