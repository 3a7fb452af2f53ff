"""How well styles of a `LatentNMT` control the form of address, and what they gain.

Only sentences whose source addresses the reader can show a form of address. For each
style, its share is that among translations that have a form at all. A translation with
two forms is a miss. How many have neither is given as well, for translations and for
references.
"""

import dataclasses

from keras_vqem.evaluation import address, code_effects, codes
from keras_vqem.evaluation.markdown import markdown_table
from keras_vqem.evaluation.translation_scores import bleu
from keras_vqem.models import LatentNMT
from keras_vqem.models.translator import Translator
from keras_vqem.text import ParallelCorpus


@dataclasses.dataclass(frozen=True)
class Control:
    """Measures of control over the form of address.

    Attributes:
        sentences: Number of sentences.
        addressed: Number of sentences that address the reader.
        forms: Dict from `"references"`, `"predicted"`, `"baseline"` if there is one,
            and names of styles to the forms of address of their translations of
            these, as `address.count_forms` returns them.
        bleu: Dict from `"predicted"` codes, `"as in the reference"`, which is the
            style of the reference where it has one, and `"baseline"` to pairs: BLEU of
            all sentences, and of those that address the reader, or None if there are
            none.
        styled: Number of sentences whose reference has the form of a style.
    """

    sentences: int
    addressed: int
    forms: dict[str, dict[str, int]]
    bleu: dict[str, tuple[float, float | None]]
    styled: int


def measure(
    model: LatentNMT,
    corpus: ParallelCorpus,
    styles: dict[str, int] | None = None,
    baseline: Translator | None = None,
    batch_size: int = 128,
) -> Control:
    """Measures control over the form of address on a test set.

    Args:
        model: A `keras_vqem.models.LatentNMT`. It decodes with its stored options.
        corpus: Sentences to translate and their references.
        styles: Dict from names to first codes. None takes those of the model.
            `"formal"`, `"informal"` and `"plural"` have a form of address.
        baseline: A translator to compare with, such as one without codes, or None.
        batch_size: Number of sentences per batch.

    Returns:
        A `Control`.
    """
    if styles is None:
        styles = model.styles
    sources, references = corpus.sources, corpus.targets
    you = [i for i, text in enumerate(sources) if address.addresses_reader(text)]
    code_of = {
        form: styles[style] for style, form in address.STYLES.items() if style in styles
    }
    given = [code_of.get(address.form_of_address(text), -1) for text in references]
    number = len(sources)
    # All in one call, and so in one graph.
    asked = [-1] * number + given
    rows = sources * 2
    for code in styles.values():
        asked += [code] * len(you)
        rows = rows + [sources[i] for i in you]
    texts = codes.translate(model, rows, asked, batch_size)
    written = {
        "predicted": texts[:number],
        "as in the reference": texts[number : 2 * number],
    }
    if baseline is not None:
        written["baseline"] = baseline.translate(sources, batch_size=batch_size)
    forms = {"references": address.count_forms(references[i] for i in you)}
    for name in ("predicted", "baseline"):
        if name in written:
            forms[name] = address.count_forms(written[name][i] for i in you)
    for k, style in enumerate(styles):
        start = 2 * number + k * len(you)
        forms[style] = address.count_forms(texts[start : start + len(you)])
    scores = {}
    for name, found in written.items():
        part = None
        if you:
            part = bleu([found[i] for i in you], [references[i] for i in you])
        scores[name] = bleu(found, references), part
    return Control(
        sentences=number,
        addressed=len(you),
        forms=forms,
        bleu=scores,
        styled=sum(code >= 0 for code in given),
    )


def share(control: Control, style: str) -> float | None:
    """Returns the share of a style's translations that are in the form asked for.

    Args:
        control: A `Control`.
        style: Name of a style that has a form of address.

    Returns:
        The share among translations that have a form at all, from 0 to 1. None if none
        has a form.
    """
    forms = control.forms[style]
    number = code_effects.formed(forms)
    return forms[address.STYLES[style]] / number if number else None


def table(control: Control) -> str:
    """Writes measures of control as two Markdown tables.

    Args:
        control: A `Control`.

    Returns:
        The tables as text: forms of address, and BLEU.
    """
    columns = ["", "du", "Sie", "ihr", "both", "neither", "in the form asked for"]
    rows = []
    for name, forms in control.forms.items():
        total = max(sum(forms.values()), 1)
        found = share(control, name) if name in address.STYLES else None
        row = [name, *(str(forms[form]) for form in columns[1:5])]
        row += [f"{forms['neither']} ({forms['neither'] / total:.1%})"]
        row += ["" if found is None else f"{found:.1%}"]
        rows.append(row)
    parts = [markdown_table(columns, rows)]
    columns = ["BLEU", "all", "those that address the reader"]
    rows = [
        [name, f"{whole:.2f}", "" if part is None else f"{part:.2f}"]
        for name, (whole, part) in control.bleu.items()
    ]
    return "\n\n".join([*parts, markdown_table(columns, rows)])


def report(
    effects: code_effects.CodeEffects,
    names: dict[str, int],
    split: str,
    control: Control | None = None,
    test: str | None = None,
) -> str:
    """Writes what codes do, and how well styles work, as a page of Markdown.

    Args:
        effects: Effects of first codes.
        names: Dict from names to codes, as `code_effects.name_codes` returns it.
        split: Name of the split that the effects were measured on.
        control: Measures of the styles, or None if they were not measured.
        test: Name of the split that the styles were measured on.

    Returns:
        The text, with one heading, the title.
    """
    said = ", ".join(
        f"`{name}` is code {code}"
        + (f" ({address.STYLES[name]})" if name in address.STYLES else "")
        for name, code in names.items()
    )
    lines = [
        "# What codes do",
        "",
        f"{effects.sentences:,} sentences of {split} were translated with each of "
        f"{len(effects.codes)} codes in the first place; the predictor went on from "
        f"there. Unchanged, first word and order are compared with predicted codes. "
        f"Forms of address are counted for the {effects.addressed:,} sentences that "
        f"address the reader. Typical words come up more than with other codes: count "
        f"with this code, and mean count with another.",
        "",
        code_effects.table(effects, names),
        "",
        f"Styles: {said}." if said else "No code stands clearly for a form of address.",
        "",
    ]
    if control is not None:
        lines += [
            f"Measured on {control.sentences:,} sentences of {test}, of which "
            f"{control.addressed:,} address the reader. The share in the form asked "
            f"for is that among translations that have a form. {control.styled:,} "
            f"references have the form of a style.",
            "",
            table(control),
            "",
        ]
    return "\n".join(lines)
