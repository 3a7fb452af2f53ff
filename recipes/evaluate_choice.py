"""Compares several translations of each sentence: how good and how different they are.

    python recipes/evaluate_choice.py --data data/mine --split val \\
        --model runs/teacher --model runs/latent --num-return-sequences 8 \\
        --temperature 0.7 --json out/choice.json

Each model writes N translations per sentence, by a search with N beams and, if it can
sample, as N samples. The table has BLEU of the first translation; BLEU of the one
closest to the reference (oracle), a limit for any choice among them; self-BLEU, of each
translation with the others as references; the share of different 1-grams and 2-grams;
and the latency of one sentence at a time, from ids to ids. Other options are those that
a model stores. BLEU and words are those of sacreBLEU, cased.
"""

import compared_translators
from arguments import add_number, make_parser, user_errors


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add = parser.add_argument
    compared_translators.add_arguments(parser, "val")
    help = "number of translations per sentence"
    add_number(parser, "--num-return-sequences", 8, help)
    help = "temperatures of sampling to try (default: 1)"
    number = {"type": float, "metavar": "T"}
    add("--temperature", **number, nargs="+", default=[1.0], help=help)
    add_number(parser, "--seed", 0, "seed of sampling", int)
    add_number(parser, "--rounds", 50, "number of timed sentences per row")
    add_number(parser, "--batch-size", 16, "number of lines per batch")
    options = parser.parse_args(arguments)
    if options.num_return_sequences < 2:
        parser.error("--num-return-sequences must be at least 2: they are compared")
    if len(set(options.temperature)) < len(options.temperature):
        parser.error(f"--temperature {options.temperature} has a number twice")

    from keras_vqem.evaluation import choice_report
    from keras_vqem.evaluation.environment import environment
    from keras_vqem.files import write_json

    paths, models, corpus = compared_translators.load(parser, options)
    entries = choice_report.evaluate(
        models,
        corpus,
        options.num_return_sequences,
        options.temperature,
        options.seed,
        options.batch_size,
        options.rounds,
    )
    print(f"{options.data}, {options.split}: {len(corpus)} sentences\n")
    print(choice_report.table(entries))
    if options.json:
        for entry in entries:
            entry["model"] = str(paths[entry["translator"]])
        result = {
            "data": str(options.data),
            "split": options.split,
            "sentences": len(corpus),
            **environment(),
            "entries": entries,
        }
        write_json(options.json, result)


if __name__ == "__main__":
    main()
