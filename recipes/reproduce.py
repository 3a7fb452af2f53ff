"""Makes a table or figure of the paper: prepares, trains, measures, and writes a page.

    python recipes/reproduce.py translation --scale smoke --work out/smoke
    python recipes/reproduce.py all --data data --work runs/paper --jobs 2
    python recipes/reproduce.py translation --scale paper --data tensorflow_datasets \\
        --work wmt14 --dry-run

The tables are translation, codebook-size, samples, width, discretisation,
attend-source, switches, stability, cifar, reconstructions, and all. --scale smoke takes
minutes and needs no data: everything runs, nothing is learned. --scale small is for two
cores, with Multi30k (DIR/multi30k) and CIFAR-10 (DIR/cifar-10-batches-bin) in --data
DIR. --scale paper is WMT14 and the paper's sizes, for GPUs. The rows are in
paper_tables.py, the settings of the scales in paper_scales.py.

Beside the tables, findings.md compares them with the paper, claim by claim. Models that
several tables have are trained once. What is done is skipped; after Ctrl-C, a kill or a
failed run the same command goes on. Speed is measured at the end, when nothing else
runs. --dry-run prints every command, what is done already, and estimated
times. The folder of --work has the runs, the logs of all commands and jobs.json.
"""

import datetime
import shlex
import sys
from pathlib import Path

from arguments import add_number, make_parser, user_errors

ALL = "all"


def parse(arguments):
    from paper_tables import MODELS, TABLES

    parser = make_parser(__doc__)
    add = parser.add_argument
    names = ", ".join([*TABLES, ALL])
    add("table", metavar="TABLE", choices=[*TABLES, ALL], help=f"one of {names}")
    add(
        "--scale",
        choices=["smoke", "small", "paper"],
        default="small",
        help="size of models and data (default: %(default)s)",
    )
    add("--work", type=Path, required=True, metavar="DIR", help="folder to work in")
    add("--data", type=Path, metavar="DIR", help="folder of the data; smoke needs none")
    add(
        "--teacher",
        metavar="RUN",
        help="run or preset of a Transformer to use as teacher (default: the preset "
        "multi30k_en_de_teacher for small; else one is trained)",
    )
    add(
        "--only",
        nargs="+",
        metavar="ROW",
        help="models of the rows to make, as --dry-run names them (default: all)",
    )
    add_number(parser, "--jobs", 1, "number of commands to run side by side")
    add_number(parser, "--seed", 1, "seed of all runs", int)
    add("--dry-run", action="store_true", help="print the plan and do nothing")
    add(
        "--output",
        type=Path,
        metavar="DIR",
        help="folder for the pages (default: docs/results/paper for small, else "
        "WORK/pages)",
    )
    options = parser.parse_args(arguments)
    options.tables = list(TABLES) if options.table == ALL else [options.table]
    models = {row.model for name in options.tables for row in TABLES[name].rows}
    if unknown := set(options.only or ()) - models:
        parser.error(
            f"--only {' '.join(sorted(unknown))}: choose from "
            f"{', '.join(name for name in MODELS if name in models)}"
        )
    if options.output is None:
        small = Path(__file__).resolve().parent.parent / "docs" / "results" / "paper"
        options.output = small if options.scale == "small" else options.work / "pages"
    return options


def print_plan(plan, jobs, parallel, output):
    from paper_pages import printed

    for job, state in jobs.plan():
        print(f"# {job.name}: {state}\n{printed(job.command)}\n")
    for model, reason in plan.left_out.items():
        print(f"# {model}: {reason}")
    total = "unknown, as not all times are"
    # What is in the plan runs side by side, comparisons at the end one by one.
    together = jobs.minutes_left(plan.jobs)
    alone = jobs.minutes_left(jobs.jobs.keys() - plan.jobs.keys())
    if None not in (together, alone):
        minutes = round(together / parallel + alone)
        total = f"about {datetime.timedelta(minutes=minutes)}"
    print(f"# time in all: {total}; estimated from {plan.scale.source}")
    print(f"# pages: {output}")


@user_errors
def main(arguments=None):
    options = parse(arguments)
    typed = shlex.join(sys.argv[1:] if arguments is None else arguments)

    import paper_findings
    import paper_pages
    from paper_plan import Plan

    from keras_vqem.training.jobs import Jobs

    def log(line):
        now = datetime.datetime.now().strftime("%H:%M:%S")
        print(f"{now} {line}", flush=True)

    plan = Plan(
        options.tables,
        options.scale,
        options.work,
        options.data,
        options.teacher,
        options.only,
        options.seed,
    )
    training = list(plan.jobs.values())

    def with_comparisons(done):
        made = {table: plan.comparison(table, done) for table in plan.tables}
        return {table: job for table, job in made.items() if job}

    if options.dry_run:
        jobs = [*training, *with_comparisons(set(plan.jobs)).values()]
        print_plan(plan, Jobs(jobs, options.work), options.jobs, options.output)
        return
    states = Jobs(training, options.work, options.jobs, log).run()
    done = {name for name, state in states.items() if state == "done"}
    compared = with_comparisons(done)
    # Latencies: nothing else runs now, and the cores are free.
    known = [job for job in training if job.name in done]
    states |= Jobs([*known, *compared.values()], options.work, log=log).run()
    for table in plan.tables:
        page = paper_pages.write(
            plan,
            table,
            compared.get(table),
            states,
            options.output,
            f"python recipes/reproduce.py {typed}",
        )
        print(f"wrote {page}")
    print(f"wrote {paper_findings.write(options.output)}")
    bad = {name: state for name, state in states.items() if state != "done"}
    if bad:
        lines = "\n".join(f"  {name}: {state}" for name, state in bad.items())
        raise RuntimeError(
            f"{len(bad)} of {len(states)} jobs are not done; the same command tries "
            f"them again:\n{lines}\nTheir whole output is in {options.work}/logs."
        )


if __name__ == "__main__":
    main()
