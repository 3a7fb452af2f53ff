"""Comparison of translators: scores, sizes, codes and latencies."""

import dataclasses
import itertools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_vqem.evaluation import codes, latency, translation_scores
from keras_vqem.evaluation.markdown import markdown_table
from keras_vqem.ids import PAD_ID
from keras_vqem.models import (
    CTCTranslator,
    FertilityNAT,
    LatentNMT,
    RefinementNAT,
    Transformer,
)
from keras_vqem.text import ParallelCorpus

AnyTranslator = Transformer | LatentNMT | CTCTranslator | FertilityNAT | RefinementNAT

# A row with a larger share of empty translations gets no speed ratio.
MOSTLY_EMPTY = 0.5


def empty_share(translations: Sequence[str]) -> float:
    """Returns the share of translations without a letter or digit, from 0 to 1.

    Example:

    >>> empty_share(["Ein Hund.", "", " . "])
    0.6666666666666666
    """
    return float(np.mean([not any(map(str.isalnum, text)) for text in translations]))


def way(option: str, number: int) -> str:
    """Returns a name for a number of candidates, for tables.

    Example:

    >>> way("num_beams", 1), way("num_beams", 4), way("num_samples", 10)
    ('greedy', '4 beams', '10 samples')
    """
    return "greedy" if number == 1 else f"{number} {option.removeprefix('num_')}"


def evaluate(
    models: Mapping[str, AnyTranslator],
    corpus: ParallelCorpus,
    num_beams: Sequence[int] = (1,),
    drop_repeats: bool = False,
    rescorer: Transformer | None = None,
    batch_size: int = 64,
    rounds: int = 50,
    also: Sequence[str] = (),
    num_samples: Sequence[int] = (1,),
    num_iterations: Sequence[int] = (),
    latency_batches: Sequence[int] = (1, 32),
) -> tuple[list[dict], dict[str, list[str]]]:
    """Measures quality, use of codes, latency and relative speed of translators.

    Progress is printed to stderr.

    Args:
        models: Dict from names to translators. Speeds are compared with the first.
        corpus: Sentences to translate and their references.
        num_beams: Numbers of beams to try with each model that has beams. 1 is greedy
            search.
        drop_repeats: Whether a `LatentNMT` leaves out words that repeat the word
            before them.
        rescorer: A `Transformer` that chooses among the beams or samples of the models
            that take a rescorer, or None.
        batch_size: Number of sentences per batch for the scores.
        rounds: Number of timed batches per row.
        also: Names of further BLEUs, as `translation_scores.score` takes them.
        num_samples: Numbers of samples to try with each model that has samples instead
            of beams.
        num_iterations: Numbers of passes to try with each `RefinementNAT`, for each
            number of beams. Without any, it takes as many as it stores.
        latency_batches: Numbers of sentences per timed batch.

    Returns:
        A tuple of a list of entries, one dict per row of the table, and a dict from
        names of rows to lists of translations.
    """
    entries, outputs, timed = [], {}, {}
    for name, model in models.items():
        has_codes, found = isinstance(model, LatentNMT), None
        beams = "num_beams" in model.generation_options
        option = "num_beams" if beams else "num_samples"
        passes = num_iterations if isinstance(model, RefinementNAT) else ()
        numbers = num_beams if beams else num_samples
        for number, count in itertools.product(numbers, passes or [None]):
            row = f"{name}, {way(option, number)}"
            # Options that are not varied here are those that the model stores.
            settings = {**model.generation_config, option: number}
            if count is not None:
                row += f", {count} iteration{'s' if count > 1 else ''}"
                settings["num_iterations"] = count
            print(f"translating: {row}", file=sys.stderr, flush=True)
            if has_codes:
                settings["drop_repeats"] = drop_repeats
            options = dict(settings)
            takes_rescorer = "rescorer" in model.generation_options
            if rescorer is not None and number > 1 and takes_rescorer:
                options["rescorer"], settings["rescored"] = rescorer, True
            outputs[row], scores = quality(model, corpus, batch_size, also, **options)
            entry = {"name": row, "translator": name, "class": type(model).__name__}
            entries.append({**entry, **settings, **scores})
            timed[row] = model, options
            if has_codes:
                found = found or code_quality(model, corpus, batch_size)
                entries[-1]["codes"] = found
    for size in latency_batches:
        print(f"timing batches of {size}", file=sys.stderr, flush=True)
        times = latencies(timed, corpus.sources, size, rounds)
        for entry in entries:
            measured = times[entry["name"]]._asdict()
            entry.setdefault("latency", {})[str(size)] = measured
    add_speedups(entries)
    return entries, outputs


def quality(
    model: AnyTranslator,
    corpus: ParallelCorpus,
    batch_size: int = 64,
    also: Sequence[str] = (),
    **options: Any,
) -> tuple[list[str], dict]:
    """Translates a corpus and scores the translations.

    Args:
        model: A translator.
        corpus: Sentences to translate and their references.
        batch_size: Number of sentences per batch.
        also: Names of further BLEUs, as `translation_scores.score` takes them.
        **options: Options of `model.generate`, such as `num_beams`.

    Returns:
        A tuple of a list of translations, and the dict of `scores_of`.
    """
    found = model.translate(corpus.sources, batch_size=batch_size, **options)
    return found, scores_of(model, found, corpus.targets, also)


def scores_of(
    model: AnyTranslator,
    translations: Sequence[str],
    references: Sequence[str],
    also: Sequence[str] = (),
) -> dict[str, Any]:
    """Scores translations of a model.

    Args:
        model: The translator.
        translations: List of strings.
        references: List of as many strings, the true translations.
        also: Names of further BLEUs, as `translation_scores.score` takes them.

    Returns:
        A dict with the fields of `TranslationScores` that were computed, `empty_share`
        and `parameters`.
    """
    scores = translation_scores.score(translations, references, also)
    scores = dataclasses.asdict(scores).items()
    scores = {name: value for name, value in scores if value is not None}
    scores["empty_share"] = empty_share(translations)
    return {**scores, "parameters": model.count_params()}


def code_quality(
    model: LatentNMT, corpus: ParallelCorpus, batch_size: int = 64, seed: int = 0
) -> dict:
    """Measures the information in the codes of a `LatentNMT`.

    Args:
        model: A `keras_vqem.models.LatentNMT`.
        corpus: Sentences and their references.
        batch_size: Number of sentences per batch.
        seed: Seed of the random codes.

    Returns:
        Dict with the size of the codebook `num_codes`, the fields of `CodeStatistics`
        for the corpus, and the BLEU of translations written from the codes of the
        references, `bleu_from_own_codes`, and from random codes,
        `bleu_from_random_codes`.
    """
    sides = corpus.sources, corpus.targets
    used = codes.usage(
        codes.encode(model, *sides, batch_size=batch_size),
        model.bottleneck.num_codes,
        codes.groups_of(model),
    )
    found = {"num_codes": model.bottleneck.num_codes, **dataclasses.asdict(used)}
    for kind in ("own", "random"):
        texts = codes.reconstruct(model, *sides, kind, seed, batch_size)
        found[f"bleu_from_{kind}_codes"] = translation_scores.bleu(
            texts, corpus.targets
        )
    return found


def latencies(
    entries: Mapping[str, tuple[AnyTranslator, dict]],
    sources: Sequence[str],
    batch_size: int,
    rounds: int = 50,
    seed: int = 0,
) -> dict[str, latency.Latency]:
    """Times translators from ids to ids, in turns on the same sentences.

    Args:
        entries: Dict from names to pairs of a model and a dict of options of its
            `generate`.
        sources: List of sentences. Each round takes the next `batch_size` of them, in
            random order, and every model translates them.
        batch_size: Number of sentences per batch.
        rounds: Number of timed batches per entry.
        seed: Seed of the random order.

    Returns:
        Dict from the names to `keras_vqem.evaluation.latency.Latency`.
    """
    order = np.random.default_rng(seed).permutation(len(sources))
    # A small set is repeated, so that every batch is full.
    places = itertools.cycle(order.tolist())
    batches = [
        [sources[place] for place in itertools.islice(places, batch_size)]
        for _ in range(min(rounds, -(-len(sources) // batch_size)))
    ]
    functions = {}
    for name, (model, options) in entries.items():
        ids = [model.tokenizer.encode(batch).to_tensor(PAD_ID) for batch in batches]
        graph = model.translation_graph(**options)
        functions[name] = _caller(graph, itertools.cycle(ids))
    return latency.measure(functions, rounds=rounds)


def _caller(graph, feed):
    return lambda: graph(next(feed)).numpy()


def writes(entry: Mapping) -> bool:
    """Returns whether at most half of the translations of a row are empty.

    Otherwise its latency is not that of translations.
    """
    return entry["empty_share"] <= MOSTLY_EMPTY


def add_speedups(entries: Sequence[dict]) -> None:
    """Adds speed ratios relative to the baselines to the latencies of entries.

    Baselines are the entries of the first translator, such as a teacher, greedy and
    with beams. An entry that writes (almost) nothing gets no ratio and is not a
    baseline; see `writes`.

    Args:
        entries: List of entries as `evaluate` makes them. Each latency gets a dict
            `speedup` from names of baselines to ratios.
    """
    first = entries[0]["translator"]
    baselines = [e for e in entries if e["translator"] == first and writes(e)]
    for entry in entries:
        for size, times in entry["latency"].items():
            times["speedup"] = {
                base["name"]: base["latency"][size]["median_ms"] / times["median_ms"]
                for base in baselines
                if writes(entry)
            }


def table(entries: Sequence[dict]) -> str:
    """Writes entries as a Markdown table, and those with codes as a second one.

    Args:
        entries: List of entries as `evaluate` returns them.

    Returns:
        The tables as text, with a remark per row that writes (almost) nothing. There
        are columns of latencies and of training minutes if entries have them.
    """
    sizes = list(entries[0].get("latency", ()))
    timed = any("training_seconds" in entry for entry in entries)
    baselines = {
        size: list(dict.fromkeys(n for e in entries for n in _speedup(e, size)))
        for size in sizes
    }
    further = {
        f"bleu_{name}": label
        for name, (label, _) in translation_scores.FURTHER.items()
        if f"bleu_{name}" in entries[0]
    }
    columns = ["", "parameters", *(["training minutes"] if timed else []), "BLEU"]
    columns += [f"BLEU, {label}" for label in further.values()]
    columns += ["brevity penalty", "chrF"]
    for size in sizes:
        columns += [f"batch {size}: median ms", "p95 ms"]
        columns += [f"times as fast as {name}" for name in baselines[size]]
    rows = []
    for entry in entries:
        seconds = entry.get("training_seconds")
        row = [entry["name"], f"{entry['parameters']:,}"]
        if timed:
            row += ["" if seconds is None else f"{seconds / 60:.0f}"]
        row += [f"{entry['bleu']:.2f}"]
        row += [f"{entry[name]:.2f}" for name in further]
        row += [f"{entry['brevity_penalty']:.3f}", f"{entry['chrf']:.2f}"]
        for size, times in entry.get("latency", {}).items():
            row += [f"{times['median_ms']:.1f}", f"{times['p95_ms']:.1f}"]
            ratios = (times["speedup"].get(name) for name in baselines[size])
            row += ["-" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
        rows.append(row)
    parts = [markdown_table(columns, rows)]
    parts += [
        f"{entry['name']} wrote nothing for {entry['empty_share']:.0%} of the "
        f"sentences, so its times are not those of translations: no speed ratio."
        for entry in entries
        if not writes(entry)
    ]
    rows = [
        [
            entry["name"],
            f"{entry['codes']['num_codes']}",
            f"{entry['codes']['used']:.1%}",
            f"{entry['codes']['perplexity']:.1f}",
            f"{entry['codes']['per_sentence']:.2f}",
            f"{entry['codes']['bleu_from_own_codes']:.2f}",
            f"{entry['bleu']:.2f}",
            f"{entry['codes']['bleu_from_random_codes']:.2f}",
        ]
        for entry in entries
        if "codes" in entry
    ]
    if rows:
        names = ["", "codebook", "used", "perplexity", "codes per sentence"]
        names += ["BLEU, codes of references", "predicted codes", "random codes"]
        parts.append(markdown_table(names, rows))
    return "\n\n".join(parts)


def _speedup(entry, size):
    return entry["latency"][size]["speedup"]
