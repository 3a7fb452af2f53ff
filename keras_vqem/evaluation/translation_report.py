"""Translators side by side: scores, sizes, codes and latency of each."""

import dataclasses
import itertools

import numpy as np

from keras_vqem.evaluation import codes, latency, translation_scores
from keras_vqem.ids import PAD_ID


def quality(model, corpus, batch_size=64, **options):
    """Translates a corpus and scores it.

    Args:
        model: A translator.
        corpus: A `keras_vqem.text.ParallelCorpus`.
        batch_size: How many are translated at a time.
        **options: Of `model.translate_ids`, such as `num_beams`.

    Returns:
        The translations, and a dict of `TranslationScores`' fields and `parameters`.
    """
    found = model.translate(corpus.sources, batch_size=batch_size, **options)
    scores = translation_scores.score(found, corpus.targets)
    return found, {**dataclasses.asdict(scores), "parameters": model.count_params()}


def code_quality(model, corpus, batch_size=64, seed=0):
    """What the codes of a `LatentNMT` carry.

    Returns:
        A dict: `CodeUsage`'s fields over the corpus, and the BLEU of translations
        written from the codes of the references, `bleu_from_own_codes`, and from
        random ones, `bleu_from_random_codes`.
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


def latencies(entries, sources, batch_size, rounds=50, seed=0):
    """Times translators, ids to ids, on the same sentences in turns.

    Args:
        entries: A dict from names to pairs of a model and a dict of options of
            `translate_ids`.
        sources: A list of strings to take sentences from, in random order. A round
            translates the next `batch_size` of them with each model.
        batch_size: How many are translated at a time.
        rounds: The number of timed batches.
        seed: Of the order.

    Returns:
        A dict from the names to `keras_vqem.evaluation.latency.Latency`.
    """
    order = np.random.default_rng(seed).permutation(len(sources))
    # A small set is gone through again, so that every batch is full.
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


def add_speedups(entries):
    """Adds to each entry's latencies how many times faster it is than the baselines.

    These are the entries of the first model: a teacher, greedy and with beams.
    """
    baselines = [e for e in entries if e["model"] == entries[0]["model"]]
    for entry in entries:
        for size, times in entry["latency"].items():
            times["speedup"] = {
                base["name"]: base["latency"][size]["median_ms"] / times["median_ms"]
                for base in baselines
            }


def table(entries):
    """The entries as a Markdown table; codes in a second one where there are any."""
    columns = ["", "parameters", "training minutes", "BLEU", "chrF"]
    for size, times in entries[0]["latency"].items():
        columns += [f"batch {size}: median ms", "p95 ms"]
        columns += [f"times as fast as {name}" for name in times["speedup"]]
    rows = []
    for entry in entries:
        seconds = entry.get("training_seconds")
        row = [entry["name"], f"{entry['parameters']:,}"]
        row += ["" if seconds is None else f"{seconds / 60:.0f}"]
        row += [f"{entry['bleu']:.2f}", f"{entry['chrf']:.2f}"]
        for times in entry["latency"].values():
            row += [f"{times['median_ms']:.1f}", f"{times['p95_ms']:.1f}"]
            row += [f"{ratio:.2f}" for ratio in times["speedup"].values()]
        rows.append(row)
    text = _markdown(columns, rows)
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
    if not rows:
        return text
    names = ["", "codebook", "used", "perplexity", "codes a sentence"]
    names += ["BLEU, codes of references", "predicted codes", "random codes"]
    return f"{text}\n\n{_markdown(names, rows)}"


def _markdown(names, rows):
    lines = [names, ["---"] + ["---:"] * (len(names) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
