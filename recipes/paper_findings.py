"""The page on what the paper says and what was found here, claim by claim.

It is made of the JSON files that reproduce.py writes beside its pages. A claim whose
rows are missing says so. Only recipes import this module.
"""

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from keras_vqem.evaluation.markdown import markdown_table
from keras_vqem.files import read_json, replacing

# Runs that differ in the seed alone differ by less in 19 of 20 cases: the standard
# deviations of three seeds are 0.3 to 0.4 (docs/results/tatoeba.md).
NOISE = 1.0
BITS_NOISE = 0.01  # docs/results/cifar10.md: seeds differ by 0.006.
AGREE, NOT, CANNOT_TELL = "agree", "**not**", "can't tell at this size"
MISSING = "not measured yet"


class Claim(NamedTuple):
    """A claim of the paper.

    Attributes:
        text: The claim, in our words, with the paper's numbers.
        check: Function from `Results` to a tuple `(found, verdict)`. It raises a
            `KeyError` if rows are missing.
    """

    text: str
    check: Callable


class Results:
    """Rows of the tables that were measured, by model and way of decoding.

    Args:
        folder: Folder with the JSON files of reproduce.py. Those of further seeds
            (`samples_seed2.json`) are averaged with the first.
    """

    def __init__(self, folder):
        self._found, self._anywhere = {}, {}
        for file in sorted(Path(folder).glob("*.json")):
            result = read_json(file)
            for row in result["rows"]:
                if row["ours"]:
                    key = (
                        result["table"],
                        row["model"],
                        str(sorted(row["decoding"].items())),
                    )
                    self._found.setdefault(key, []).append(row["ours"])
                    self._anywhere.setdefault(key[1:], []).append(row["ours"])

    def number(self, table, model, name, **decoding):
        """Returns a number of a row, as the mean over seeds.

        A model is the same in all tables, but times of different tables are not
        comparable: only these have to be of the table itself.
        """
        chosen = str(sorted((decoding or {"num_beams": 1}).items()))
        if table in ("stability", "cifar"):
            chosen = str([])
        rows = self._found.get((table, model, chosen))
        if rows is None and name != "ms":
            rows = self._anywhere[model, chosen]
        if rows is None:
            raise KeyError((table, model))
        return statistics.mean(row[name] for row in rows)

    def bleu(self, model, table="translation", **decoding):
        return self.number(table, model, "bleu", **decoding)

    def ms(self, model, table="translation", **decoding):
        return self.number(table, model, "ms", **decoding)


# Verdicts.


def larger(difference, noise=NOISE):
    """Returns the verdict on a claim that a difference is above 0."""
    if abs(difference) < noise:
        return CANNOT_TELL
    return AGREE if difference > 0 else NOT


def both(*verdicts):
    """Returns the verdict on a claim with several parts."""
    if NOT in verdicts:
        return NOT
    return CANNOT_TELL if CANNOT_TELL in verdicts else AGREE


def beside(found, first, second, table="translation", **options):
    """Returns both BLEUs as text, and the verdict that the first is larger."""
    a, b = found.bleu(first, table), found.bleu(second, table)
    return f"{a:.2f} and {b:.2f}", larger(a - b, **options)


# Claims.


def near_greedy(found):
    behind = found.bleu("teacher") - found.bleu("em10")
    faster = found.ms("teacher") / found.ms("em10")
    text = f"{behind:.2f} below at {faster:.2f}x"
    return text, both(
        AGREE if behind < 0.3 + NOISE else NOT, AGREE if faster > 3.3 else NOT
    )


def near_beam(found):
    beam = {"num_beams": 4}
    behind = found.bleu("teacher", **beam) - found.bleu("em10")
    faster = found.ms("teacher", **beam) / found.ms("em10")
    text = f"{behind:.2f} below at {faster:.2f}x"
    return text, both(
        AGREE if behind < 1.4 + NOISE else NOT, AGREE if faster > 4.1 else NOT
    )


def above_nat(found):
    nat = {"num_samples": 10}
    bleu, ms = found.bleu("em10_nc4"), found.ms("em10_nc4")
    other, time = found.bleu("fertility", **nat), found.ms("fertility", **nat)
    text = f"{bleu:.2f} at {ms:.1f} ms and {other:.2f} at {time:.1f} ms"
    return text, both(larger(bleu - other), AGREE if ms < time else NOT)


def best_samples(found):
    parts, verdicts = [], []
    for place, name in ((3, ""), (4, "_nc4")):
        scores = {m: found.bleu(f"em{m}{name}", "samples") for m in (5, 10, 25, 50)}
        best = max(scores, key=scores.get)
        shown = ", ".join(f"{m}: {score:.2f}" for m, score in scores.items())
        parts.append(f"n_c = {place}: {shown}")
        spread = scores[best] - sorted(scores.values())[-2]
        verdicts.append(larger(spread) if best == 10 else larger(-spread))
    return "; ".join(parts), both(*verdicts)


def best_codebook(found):
    names = {
        10: "hard_gold_k10",
        12: "hard_gold",
        14: "hard_gold_k14",
        16: "hard_gold_k16",
    }
    scores = {k: found.bleu(name, "codebook-size") for k, name in names.items()}
    shown = ", ".join(f"2^{k}: {score:.2f}" for k, score in scores.items())
    ahead = scores[12] - max(score for k, score in scores.items() if k != 12)
    return shown, larger(ahead)


def worth_of_distillation(plain, distilled):
    def check(found):
        gain = found.bleu(distilled, "samples") - found.bleu(plain)
        return f"{gain:+.2f}", larger(gain)

    return check


def narrow(found):
    parts, verdicts = [], []
    for width in (256, 384):
        hard, few, many = (
            found.bleu(f"{name}_w{width}", "width") for name in ("hard", "em10", "em25")
        )
        parts.append(f"{width}: hard {hard:.2f}, m = 10 {few:.2f}, m = 25 {many:.2f}")
        verdicts += [larger(hard - few), larger(many - hard)]
    return "; ".join(parts), both(*verdicts)


def attention(found):
    parts, verdicts = [], []
    for codes, name in (("2^12", "em10"), ("2^14", "em10_k14")):
        plain = found.bleu(name, "attend-source")
        attending = found.bleu(f"{name}_attend", "attend-source")
        parts.append(f"{codes}: {plain:.2f} without, {attending:.2f} with")
        # "Unnecessary": without is not worse.
        verdicts.append(AGREE if attending - plain < NOISE else NOT)
    return "; ".join(parts), both(*verdicts)


def better_codes(other):
    return lambda found: beside(found, "hard", other, "discretisation")


def collapses(found):
    learned = found.number("switches", "em10_learned_prior", "perplexity")
    equal = found.number("switches", "em10", "perplexity")
    verdict = AGREE if learned < equal / 4 else NOT
    return (
        f"perplexity of the codes {learned:.0f}, with equal weights {equal:.0f}",
        verdict,
    )


def steady(model, table, first):
    return lambda found: beside(found, first, model, table)


def figure(rest):
    def check(found):
        parts, lost = [], {}
        for name, label in (("hard", "hard"), ("em5", "m = 5"), ("em25", "m = 25")):
            row = "stability", f"{name}_stability{rest}"
            best, last = (found.number(*row, key) for key in ("best", "last"))
            perplexity = found.number(*row, "perplexity")
            lost[name] = best - last
            parts.append(
                f"{label}: best {best:.1f}, last {last:.1f}, perplexity "
                f"{perplexity:.0f}"
            )
        soft = max(lost["em5"], lost["em25"])
        if lost["hard"] < NOISE and soft < NOISE:
            return "; ".join(parts) + " (nothing collapses)", NOT
        return "; ".join(parts), AGREE if lost["hard"] > soft + NOISE else NOT

    return check


def bits(found):
    hard, soft = (
        found.number("cifar", name, "bits") for name in ("image_hard", "image_em5")
    )
    return f"hard {hard:.3f}, EM {soft:.3f}", larger(hard - soft, BITS_NOISE)


CLAIMS = [
    Claim(
        "EM, distilled, is 0.3 BLEU below greedy decoding, at 3.3 times its speed",
        near_greedy,
    ),
    Claim("It is 1.4 BLEU below four beams, at 4.1 times their speed", near_beam),
    Claim(
        "With n_c = 4, EM has 25.4 at 58 ms, better and faster than NAT with NPD 10 "
        "(18.7 at 79 ms)",
        above_nat,
    ),
    Claim(
        "EM is better than hard EM without distillation (22.4 and 21.4)",
        lambda found: beside(found, "em5_gold", "hard_gold"),
    ),
    Claim(
        "EM is better than hard EM with distillation (26.7 and 26.4)",
        lambda found: beside(found, "em10", "hard"),
    ),
    Claim(
        "EM is better than hard EM with n_c = 4 (25.4 and 22.4)",
        lambda found: beside(found, "em10_nc4", "hard_nc4"),
    ),
    Claim(
        "With n_c = 4, m = 5 is not better than hard EM (22.3 and 22.4)",
        lambda found: (
            beside(found, "em5_nc4", "hard_nc4", "samples")[0],
            AGREE
            if found.bleu("em5_nc4", "samples") - found.bleu("hard_nc4", "samples")
            < NOISE
            else NOT,
        ),
    ),
    Claim("m = 10 is the best number of samples, for n_c = 3 and 4", best_samples),
    Claim(
        "At widths 256 and 384, m = 10 loses to hard EM and m = 25 wins (24.5, 21.9, "
        "25.8 and 25.6, 22.2, 26.2)",
        narrow,
    ),
    Claim(
        "2^12 codes are best. So the text; the table has 2^16 ahead of them, 21.8 to "
        "21.6, and Table 1 has 21.4 for 2^12",
        best_codebook,
    ),
    Claim("Attention of the compressor to the source is unnecessary", attention),
    Claim(
        "Distillation helps hard EM (5.0 BLEU)",
        worth_of_distillation("hard_gold", "hard"),
    ),
    Claim(
        "Distillation helps EM, m = 5 (4.0 BLEU)",
        worth_of_distillation("em5_gold", "em5"),
    ),
    Claim(
        "Hard EM (26.4) is better than Gumbel-Softmax (23.2)", better_codes("gumbel")
    ),
    Claim(
        "Hard EM (26.4) is better than improved semantic hashing (24.1)",
        better_codes("semhash"),
    ),
    Claim("One codebook is better than product quantization", better_codes("product")),
    Claim(
        "Moving averages are better than a codebook trained by gradient",
        better_codes("vq"),
    ),
    Claim("Learned weights of the codes let them collapse to a few", collapses),
    Claim(
        "The decoder does better with the mean of the draws than with one of them",
        steady("em10_one_draw", "switches", "em10"),
    ),
    Claim(
        "With 2^14 codes and attention, hard EM collapses and EM does not", figure("")
    ),
    Claim(
        "The same at twice the learning rate: EM is robust, hard EM is not",
        figure("_fast"),
    ),
    Claim("On CIFAR-10 EM has 0.03 bits per dimension less than hard EM", bits),
]


def write(folder):
    """Writes findings.md beside the results, and returns its path.

    Args:
        folder: Folder of the pages.
    """
    results, rows = Results(folder), []
    for claim in CLAIMS:
        try:
            found, verdict = claim.check(results)
        except KeyError:
            found, verdict = "", MISSING
        rows.append([claim.text, found, verdict])
    verdicts = [verdict for _, _, verdict in rows]
    counts = ", ".join(
        f"{verdict.strip('*')} {verdicts.count(verdict)}"
        for verdict in (AGREE, NOT, CANNOT_TELL, MISSING)
    )
    parts = [
        "# What we found, beside what the paper says",
        f"{len(rows)} claims: {counts}. Numbers are BLEU on the test set and "
        f"milliseconds per sentence, from the tables of `recipes/reproduce.py` beside "
        f"this page, which have commands, settings, seeds and the machine. A verdict "
        f"is one at the size of these models, which train for minutes, and no more.",
        f"A difference below {NOISE:g} BLEU, or {BITS_NOISE:g} bits per dimension, is "
        f"one that another seed can make: nothing can be told from it.",
        markdown_table(["the paper", "here", "verdict"], rows),
    ]
    target = Path(folder) / "findings.md"
    with replacing(target) as part:
        part.write_text("\n\n".join(parts) + "\n")
    return target
