"""Measures sentences per second of greedy and beam search, in large batches.

    python recipes/benchmark_search.py --data multi30k/val.en --json out/search.json

Translates the first lines of a file as one batch, with a preset's own weights and real
lengths, greedily and by beam search. With --before, the same is done with the code of
another checkout, for example that of an earlier commit (git worktree add ../before
COMMIT), in turns with this one, and the ids that both find are compared. Run it on an
idle machine, and compare ratios.
"""

import json
import pathlib
import statistics
import tempfile

from arguments import add_number, make_parser, positive, user_errors


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add = parser.add_argument
    help = "file of source sentences, one per line"
    add("--data", type=pathlib.Path, required=True, metavar="FILE", help=help)
    help = "preset of a Transformer (default: %(default)s)"
    add("--preset", default="multi30k_en_de_teacher", metavar="NAME", help=help)
    help = "numbers of beams (default: 1 4)"
    add("--num-beams", type=positive, nargs="+", default=[1, 4], help=help)
    add_number(parser, "--length-penalty", 1.5, "length penalty of beam search")
    add_number(parser, "--batch-size", 256, "number of sentences", positive)
    add_number(parser, "--rounds", 5, "number of timed batches each", positive)
    help = "another checkout, whose code takes part as well"
    add("--before", type=pathlib.Path, metavar="DIR", help=help)
    add("--json", type=pathlib.Path, metavar="FILE", help="file for all numbers")
    args = parser.parse_args(arguments)
    if args.before and not (args.before / "keras_vqem").is_dir():
        parser.error(f"--before {args.before}: there is no keras_vqem in it")

    from keras_vqem.evaluation import environment
    from keras_vqem.evaluation.benchmark_processes import Contest, Entry, Progress
    from keras_vqem.evaluation.markdown import markdown_table
    from keras_vqem.files import write_json
    from keras_vqem.models import Transformer

    lines = args.data.read_text(encoding="utf-8").splitlines()[: args.batch_size]
    tokenizer = Transformer.from_preset(args.preset).tokenizer
    codes = {"now": pathlib.Path(__file__).resolve().parent.parent}
    codes |= {"before": args.before.resolve()} if args.before else {}
    entries = {}
    for num_beams in args.num_beams:
        options = {"preset": args.preset, "num_beams": num_beams}
        options |= {"length_penalty": args.length_penalty}
        way = "greedy" if num_beams == 1 else f"{num_beams} beams"
        for when, code in codes.items():
            label = f"{way}, {when}" if args.before else way
            entries[label] = Entry(label, "search", {"code": str(code), **options})
    file = pathlib.Path(__file__).with_name("search_contestants.py")
    with tempfile.TemporaryDirectory() as folder:
        rows = [ids.tolist() for ids in tokenizer.encode_lines(lines)]
        pathlib.Path(folder, "rows.json").write_text(json.dumps(rows))
        progress = Progress((args.rounds + 1) * len(entries))
        with Contest(file, folder, environment.usable_cores()) as contest:
            contest.build(entries)
            contest.race(args.rounds, 1, 1, progress, untimed=0)
            progress.close()
            results = contest.results
    table, found = [], {}
    for label, result in results.items():
        if "seconds" not in result:
            table.append([label, result["status"], "", ""])
            continue
        rate = len(lines) / statistics.median(result["seconds"])
        same = ""
        way, _, when = label.partition(", ")
        before = results.get(f"{way}, before")
        if when == "now" and before and "ids" in before:
            pairs = zip(result["ids"], before["ids"], strict=True)
            same = f"{sum(a == b for a, b in pairs)} of {len(lines)}"
        found[label] = {"sentences_per_second": rate, "seconds": result["seconds"]}
        ratio = ""
        if when == "now" and before and "seconds" in before:
            ratio = statistics.median(before["seconds"])
            ratio = f"{ratio / statistics.median(result['seconds']):.2f}x"
        table.append([label, f"{rate:.1f}", ratio, same])
    header = ["search", "sentences/s", "over before", "same translations"]
    print(markdown_table(header, table))
    if args.json:
        settings = {key: str(value) for key, value in vars(args).items()}
        report = {"settings": settings, "results": found, **environment.environment()}
        write_json(args.json, report)


if __name__ == "__main__":
    main()
