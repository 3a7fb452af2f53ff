"""Control over the form of address: shares and BLEU, with translations by hand."""

import pytest

from keras_vqem.evaluation import codes, control
from keras_vqem.evaluation.translation_scores import bleu
from keras_vqem.text import ParallelCorpus
from tests.models import small

CORPUS = ParallelCorpus.from_lists(
    [
        "Do you have some time today?",
        "Are you coming home today?",
        "I can see all of you.",
        "He is coming home today.",
        "How are you doing?",
    ],
    [
        "Haben Sie heute etwas Zeit?",
        "Kommst du heute nach Hause?",
        "Ich kann euch alle sehen.",
        "Er kommt heute nach Hause.",
        "Wie geht es so?",
    ],
)
WORDS = {
    10: [  # Sie
        "Haben Sie heute etwas Zeit?",
        "Kommen Sie heute nach Hause?",
        "Ich kann dich alle sehen.",
        "Er kommt heute nach Hause.",
        "Wie geht es dir und Ihnen?",
    ],
    12: [  # du
        "Hast du heute etwas Zeit?",
        "Kommst du heute nach Hause?",
        "Ich kann dich alle sehen.",
        "Er kommt jetzt nach Hause.",
        "Wie geht es?",
    ],
}
PREDICTED = [WORDS[12][0], WORDS[10][1], "Man kann das sehen.", *WORDS[12][3:]]


class Baseline:
    def translate(self, texts, batch_size):
        return ["Ja, so ist es hier."] * len(texts)


@pytest.fixture
def measured(monkeypatch):
    def translate(model, sources, first_codes, batch_size):
        rows = [CORPUS.sources.index(source) for source in sources]
        pairs = zip(rows, first_codes, strict=True)
        return [WORDS[c][r] if c >= 0 else PREDICTED[r] for r, c in pairs]

    monkeypatch.setattr(codes, "translate", translate)
    styles = {"formal": 10, "informal": 12}
    return control.measure(None, CORPUS, styles, Baseline())


def test_shares_are_of_those_that_have_a_form(measured):
    assert (measured.sentences, measured.addressed) == (5, 4)
    forms = measured.forms
    assert forms["references"] == {"du": 1, "Sie": 1, "ihr": 1, "both": 0, "neither": 1}
    assert forms["formal"] == {"du": 1, "Sie": 2, "ihr": 0, "both": 1, "neither": 0}
    assert forms["informal"] == {"du": 3, "Sie": 0, "ihr": 0, "both": 0, "neither": 1}
    assert forms["predicted"] == {"du": 1, "Sie": 1, "ihr": 0, "both": 0, "neither": 2}
    assert forms["baseline"]["neither"] == 4
    assert control.share(measured, "formal") == 0.5
    assert control.share(measured, "informal") == 1.0


def test_the_form_of_the_reference_is_given_where_a_style_has_it(measured):
    # ihr has no style, so those codes are predicted.
    given = [WORDS[10][0], WORDS[12][1], *PREDICTED[2:]]
    assert measured.styled == 2
    you = [0, 1, 2, 4]
    for name, texts in [
        ("predicted", PREDICTED),
        ("as in the reference", given),
        ("baseline", Baseline().translate(CORPUS.sources, 1)),
    ]:
        whole = bleu(texts, CORPUS.targets)
        part = bleu([texts[i] for i in you], [CORPUS.targets[i] for i in you])
        assert measured.bleu[name] == (whole, part)
    assert measured.bleu["as in the reference"] > measured.bleu["predicted"]


def test_tables(measured):
    forms, scores = control.table(measured).split("\n\n")
    assert "| references | 1 | 1 | 1 | 0 | 1 (25.0%) |  |" in forms
    assert "| formal | 1 | 2 | 0 | 1 | 0 (0.0%) | 50.0% |" in forms
    whole, part = measured.bleu["baseline"]
    assert f"| baseline | {whole:.2f} | {part:.2f} |" in scores


def test_a_model_without_styles_or_readers():
    model = small.exportable("LatentNMT")
    corpus = ParallelCorpus.from_numbers(4)
    found = control.measure(model, corpus)
    assert found.addressed == found.styled == 0
    assert set(found.forms) == {"references", "predicted"}
    expected = bleu(model.translate(corpus.sources), corpus.targets)
    assert found.bleu["predicted"] == (pytest.approx(expected), None)
    model.styles = {"formal": 3, "loud": 2}
    found = control.measure(model, corpus)
    assert control.share(found, "formal") is None
    assert "| loud | 0 | 0 | 0 | 0 | 0 (0.0%) |  |" in control.table(found)
