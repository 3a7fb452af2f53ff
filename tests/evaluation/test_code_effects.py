"""Effects of first codes: counted by hand, and with a small model."""

import dataclasses
import json

import numpy as np
import pytest

from keras_vqem.evaluation import code_effects, codes
from keras_vqem.text import ParallelCorpus
from tests.models import small

CORPUS = ParallelCorpus.from_lists(
    ["Do you have time?", "Are you coming today?", "He is coming."],
    ["Haben Sie Zeit?", "Kommst du heute?", "Er kommt."],
)
PREDICTED = ["Hast du Zeit?", "Kommst du heute?", "Er kommt."]
WRITTEN = {
    4: ["Haben Sie Zeit?", "Kommen Sie heute?", "Er kommt."],
    7: ["Hast du Zeit?", "Heute kommst du?", "Er kommt an."],
}


@pytest.fixture(scope="module")
def effects():
    return code_effects.compare(CORPUS, PREDICTED, WRITTEN, {4: 1, 7: 2})


def test_what_changes_is_counted(effects):
    assert (effects.sentences, effects.addressed) == (3, 2)
    neither = {"ihr": 0, "both": 0, "neither": 0}
    assert effects.reference_forms == {"du": 1, "Sie": 1, **neither}
    assert effects.predicted_forms == {"du": 2, "Sie": 0, **neither}
    assert effects.predicted_words == pytest.approx(8 / 3)
    assert effects.words == pytest.approx((8 / 3 + 9 / 3) / 2)
    formal, informal = effects.codes
    assert (formal.code, formal.first) == (4, 1)
    assert formal.forms == {"du": 0, "Sie": 2, **neither}
    assert (formal.formed, formal.share("Sie"), formal.share("du")) == (2, 1.0, 0.0)
    assert formal.unchanged == pytest.approx(1 / 3)
    assert formal.first_word == pytest.approx(2 / 3) and formal.word_order == 0
    assert informal.unchanged == pytest.approx(1 / 3)
    assert informal.first_word == informal.word_order == pytest.approx(1 / 3)
    assert informal.words == 3


def test_words_that_one_code_writes_more_come_first(effects):
    formal, informal = (effect.typical for effect in effects.codes)
    assert formal[0].word == "Sie"
    assert (formal[0].count, formal[0].others) == (2, 0.0)
    # 2 of 8 words against 0 of 9, each count increased by a half.
    expected = np.log(2.5 / 6.5) - np.log(0.5 / 9.5)
    assert formal[0].log_odds == pytest.approx(expected)
    assert informal[0].word == "du"
    # 1 of 8 is more often than 1 of 9, but hardly: such words come last.
    assert all(word.word not in ("Er", "kommt", "Zeit") for word in formal[:3])
    many = {0: ["a b c d e f g h i j k l"], 1: ["m n o p q r s t u v w x"]}
    assert len(code_effects.typical_words(many)[0]) == code_effects.TYPICAL
    assert code_effects.typical_words({0: ["a b"]}) == {0: ()}


def effect(code, first=9, **forms):
    forms = {"du": 0, "Sie": 0, "ihr": 0, "both": 0, "neither": 0, **forms}
    return code_effects.CodeEffect(code, first, 5.0, 0.5, 0.5, 0.5, forms, ())


def of(*found):
    return code_effects.CodeEffects(100, 90, 5.0, 5.0, {}, {}, found)


def test_the_code_with_the_highest_share_gets_the_name():
    found = of(
        effect(1, du=60, Sie=20),
        effect(2, du=50, neither=30),
        effect(3, Sie=45, du=5),
        effect(4, Sie=19),  # Too few with a form, however pure.
        effect(5, ihr=20, both=20),  # A translation with two forms is a miss.
    )
    assert code_effects.name_codes(found) == {"formal": 3, "informal": 2}
    names = code_effects.name_codes(found, min_formed=19, min_share=0.5)
    assert names == {"formal": 4, "informal": 2, "plural": 5}
    assert code_effects.name_codes(of(effect(1, du=19))) == {}
    same = of(effect(6, first=3, du=30), effect(7, first=8, du=30))
    assert code_effects.name_codes(same) == {"informal": 7}


def test_the_table_has_a_row_per_code_and_its_name(effects):
    lines = code_effects.table(effects, {"formal": 4}).splitlines()
    assert lines[0].startswith("| code | name | first in references | words |")
    assert lines[2].startswith("| 4 | formal | 1 | 2.7 (-0.2) | 33% | 67% | 0% | 0 | 2")
    assert "Sie 2:0" in lines[2] and lines[3].startswith("| 7 |  | 2 | 3.0 (+0.2)")
    assert lines[-2].startswith("| predicted |") and lines[-1].startswith("| ref")
    assert len({line.count(" | ") for line in lines}) == 1
    json.dumps(dataclasses.asdict(effects))


@pytest.fixture(scope="module")
def model():
    return small.exportable("LatentNMT")


@pytest.fixture(scope="module")
def numbers():
    return ParallelCorpus.from_numbers(12)


def test_translations_begin_with_the_code_given(model, numbers):
    sources = numbers.sources[:4]
    found = codes.translate(model, sources, [-1, 3, 5, -1], batch_size=3)
    for k, options in enumerate([{}, {"first_code": 3}, {"first_code": 5}, {}]):
        assert found[k] == model.translate(sources[k : k + 1], **options)[0]
    assert found[1] != model.translate(sources[1:2])[0]
    with pytest.raises(ValueError, match="from 0 to 7, or -1"):
        codes.translate(model, sources[:1], [8])
    with pytest.raises(ValueError, match="4 sources but 1 first"):
        codes.translate(model, sources, [0])
    assert codes.translate(model, [], []) == []


@pytest.mark.slow
def test_effects_of_a_model(model, numbers):
    own = codes.encode(model, numbers.sources, numbers.targets)
    first = np.bincount([row[0] for row in own], minlength=8)
    least = int(first.max())
    found = code_effects.measure(model, numbers, min_first=least, batch_size=16)
    assert [e.code for e in found.codes] == np.flatnonzero(first == least).tolist()
    found = code_effects.measure(model, numbers, tried=range(8), batch_size=32)
    assert sorted(e.code for e in found.codes) == list(range(8))
    counts = [e.first for e in found.codes]
    assert counts == sorted(counts, reverse=True) and sum(counts) == len(numbers)
    predicted = model.translate(numbers.sources)
    for e in found.codes:
        texts = model.translate(numbers.sources, first_code=e.code)
        same = np.mean([a == b for a, b in zip(texts, predicted, strict=True)])
        assert e.unchanged == pytest.approx(same)
    assert min(e.unchanged for e in found.codes) < 1
    with pytest.raises(ValueError, match="Lower `min_first`"):
        code_effects.measure(model, numbers, min_first=13)


def test_a_stored_style_does_not_stand_in_the_way(numbers):
    model = small.exportable("LatentNMT")
    model.styles = {"formal": 3}
    model.generation_config = {"style": "formal"}
    texts = numbers.sources[:2]
    found = codes.translate(model, texts, [-1, 5])
    expected = model.translate(texts[:1], style=None)
    assert found == expected + model.translate(texts[1:], style=None, first_code=5)
