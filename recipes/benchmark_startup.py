"""Measures the start: imports, loading, first translations, the whole command.

    python recipes/benchmark_startup.py --json out/startup.json

Every round starts new processes, so that nothing is imported or traced yet; files are
in the memory of the system after the first round, which is not counted. One process
imports TensorFlow, Keras and keras_vqem one after the other, loads a preset and
translates three times: the first short text needs no graph, the second traces it. The
other process is the command `keras-vqem translate` from its start to its end.
Run it on an idle machine.
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from arguments import add_number, make_parser, user_errors

STEPS = """
import sys, time
start = time.perf_counter()
def done(name):
    global start
    print(name, time.perf_counter() - start, sep="\\t", flush=True)
    start = time.perf_counter()
import tensorflow
done("import tensorflow")
import keras
done("import keras, after that")
import keras_vqem
done("import keras_vqem, after that")
model = keras_vqem.zoo.load(sys.argv[1])
done("load the preset")
for number in ("first", "second", "third"):
    model.translate([sys.argv[2]])
    done(f"{number} translate")
"""
WHOLE = "keras-vqem translate, all of it"


def seconds_of_steps(model, text, environment):
    """Runs all steps in one new process and returns seconds by the name of the step."""
    command = [sys.executable, "-c", STEPS, model, text]
    done = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    )
    pairs = (line.split("\t") for line in done.stdout.splitlines() if "\t" in line)
    return {name: float(seconds) for name, seconds in pairs}


def seconds_of_command(model, text, environment):
    """Runs the command in a new process and returns its seconds."""
    module = "keras_vqem.command.main"
    command = [sys.executable, "-m", module, "translate", "--model", model, text]
    start = time.perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return time.perf_counter() - start


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add = parser.add_argument
    help = "preset to load (default: %(default)s)"
    add("--model", default="multi30k_en_de_ctc", metavar="NAME", help=help)
    help = "text to translate (default: %(default)s)"
    add("--text", default="A dog runs through the snow.", help=help)
    add_number(parser, "--rounds", 5, "number of counted rounds")
    add("--json", type=Path, metavar="FILE", help="file for all numbers, as JSON")
    options = parser.parse_args(arguments)

    from keras_vqem.evaluation.environment import environment
    from keras_vqem.evaluation.markdown import markdown_table
    from keras_vqem.files import write_json

    variables = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "KERAS_VQEM_QUIET": "1"}
    given = (options.model, options.text, variables)
    rounds = [
        {**seconds_of_steps(*given), WHOLE: seconds_of_command(*given)}
        for _ in range(1 + options.rounds)
    ][1:]
    found = {name: [one[name] for one in rounds] for name in rounds[0]}
    rows = [
        [name, f"{statistics.median(times):.2f}", f"{min(times):.2f}"]
        for name, times in found.items()
    ]
    print(markdown_table(["", "median s", "fastest s"], rows))
    if options.json:
        settings = {"model": options.model, "text": options.text}
        write_json(options.json, {**settings, "seconds": found, **environment()})


if __name__ == "__main__":
    main()
