"""Comparison of translators that offer several translations of one sentence."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from keras_vqem.checks import whole_number
from keras_vqem.evaluation import diversity, translation_report, translation_scores
from keras_vqem.evaluation.markdown import markdown_table
from keras_vqem.models.translator import Translator
from keras_vqem.text import ParallelCorpus


def ways(
    model: Translator,
    num_return_sequences: int,
    temperatures: Sequence[float] = (1.0,),
    seed: int = 0,
) -> dict[str, dict[str, Any]]:
    """Lists the ways in which a model can write several translations.

    Args:
        model: A translator with the option `num_return_sequences`.
        num_return_sequences: Number of translations per sentence.
        temperatures: Temperatures of sampling to try, if the model can sample.
        seed: Seed of sampling.

    Returns:
        Dict from names to dicts of options of `model.generate`: a beam search, or as
        many samples if the model has `num_samples` instead of `num_beams`, and a
        way of sampling per temperature if the model has the option `temperature`.
        Other options are those that the model stores.
    """
    number = whole_number("num_return_sequences", num_return_sequences, 1)
    known = model.generation_options
    if "num_return_sequences" not in known:
        raise ValueError(
            f"{type(model).__name__} has no option `num_return_sequences`, so it "
            f"writes one translation per sentence. Its options are {known}. Leave this "
            f"model out."
        )
    samples = "temperature" in known
    option = "num_beams" if "num_beams" in known else "num_samples"
    options = {"num_return_sequences": number, option: number}
    name = translation_report.way(option, number)
    found = {name: options | ({"temperature": None} if samples else {})}
    for temperature in temperatures if samples else ():
        options = {"num_return_sequences": number, "num_beams": 1, "seed": seed}
        name = f"{number} samples, temperature {temperature:g}"
        found[name] = options | {"temperature": temperature}
    return found


def evaluate(
    models: Mapping[str, Translator],
    corpus: ParallelCorpus,
    num_return_sequences: int = 8,
    temperatures: Sequence[float] = (1.0,),
    seed: int = 0,
    batch_size: int = 16,
    rounds: int = 50,
) -> list[dict]:
    """Measures quality, diversity and latency of several translations per sentence.

    Progress is printed to stderr.

    Args:
        models: Dict from names to translators.
        corpus: Sentences to translate and their references.
        num_return_sequences: Number of translations per sentence, at least 2.
        temperatures: Temperatures of sampling to try with the models that can sample.
        seed: Seed of sampling.
        batch_size: Number of sentences per batch for the scores. The latency is that
            of one sentence at a time.
        rounds: Number of timed sentences per row.

    Returns:
        A list of entries, one dict per model and way, with its options, the fields of
        `measures`, and `latency`.
    """
    whole_number("num_return_sequences", num_return_sequences, 2)
    rows = [
        (name, way, model, {**model.generation_config, **options})
        for name, model in models.items()
        for way, options in ways(
            model, num_return_sequences, temperatures, seed
        ).items()
    ]
    entries, timed = [], {}
    for name, way, model, options in rows:
        row = f"{name}, {way}"
        print(f"translating: {row}", file=sys.stderr, flush=True)
        candidates = model.translate(corpus.sources, batch_size=batch_size, **options)
        entry = {"name": row, "translator": name, "class": type(model).__name__}
        entries.append({**entry, **options, **measures(candidates, corpus.targets)})
        timed[row] = model, options
    print("timing", file=sys.stderr, flush=True)
    times = translation_report.latencies(timed, corpus.sources, 1, rounds)
    for entry in entries:
        entry["latency"] = times[entry["name"]]._asdict()
    return entries


def measures(candidates: Sequence[Sequence[str]], references: Sequence[str]) -> dict:
    """Scores several translations per sentence.

    Args:
        candidates: List of lists of strings, the translations of each sentence, best
            first.
        references: List of strings, one true translation per sentence.

    Returns:
        Dict with the BLEU of the first translations, `first_bleu`, and those of
        `keras_vqem.evaluation.diversity`: `oracle_bleu`, `self_bleu`, `distinct_1` and
        `distinct_2`.
    """
    first = [texts[0] for texts in candidates]
    return {
        "first_bleu": translation_scores.bleu(first, references),
        "oracle_bleu": diversity.oracle_bleu(candidates, references),
        "self_bleu": diversity.self_bleu(candidates),
        "distinct_1": diversity.distinct_ngrams(candidates, 1),
        "distinct_2": diversity.distinct_ngrams(candidates, 2),
    }


def table(entries: Sequence[dict]) -> str:
    """Writes entries as a Markdown table.

    Args:
        entries: List of entries as `evaluate` returns them.

    Returns:
        The table as text, one line per entry.
    """
    columns = ["", "BLEU of the first", "oracle BLEU", "self-BLEU"]
    columns += ["distinct 1-grams", "distinct 2-grams"]
    columns += ["one sentence: median ms", "p95 ms"]
    rows = [
        [
            entry["name"],
            *(f"{entry[n]:.2f}" for n in ("first_bleu", "oracle_bleu", "self_bleu")),
            *(f"{entry[n]:.3f}" for n in ("distinct_1", "distinct_2")),
            *(f"{entry['latency'][n]:.1f}" for n in ("median_ms", "p95_ms")),
        ]
        for entry in entries
    ]
    return markdown_table(columns, rows)
