"""Forms of address, with sentences as people write them."""

import pytest

from keras_vqem.evaluation import address


@pytest.mark.parametrize(
    "text",
    [
        "You came at just the right moment.",
        "Is this YOUR hat?",
        "The red one is yours.",
        "Behave yourself!",
        "Help yourselves.",
        "I know you're busy.",
        "Thank you.",
    ],
)
def test_sentences_that_address_their_reader(text):
    assert address.addresses_reader(text)


@pytest.mark.parametrize(
    "text", ["", "Come here!", "He is young.", "The youth is ours.", "Yourcenar wrote."]
)
def test_sentences_that_do_not(text):
    assert not address.addresses_reader(text)


FORMS = {
    "du": [
        "Du bist genau im richtigen Augenblick gekommen.",
        "Setz dich nicht!",
        "Ich habe dir doch gesagt, dass es regnet.",
        "Wann hast du etwas mit deinen Kindern unternommen?",
        "Sie haben dein Fahrrad gefunden.",  # They, at the start of the sentence.
        "Ist das deins?",
        "Hast du ihr geholfen?",
        "Ich bin Deinetwegen gekommen.",
    ],
    "Sie": [
        "Was haben Sie hinzugefügt?",
        "Haben Sie Bilder Ihrer Kinder bei sich?",
        "Kommen Sie bitte herein!",
        "Ich danke Ihnen.",
        "Wie ist Ihr Name?",
        "Sie haben Ihren Schlüssel vergessen.",  # The second word gives it away.
        "Ich glaube, Sie irren sich.",
        "Nein, Sie nicht.",
        "Tom hat Ihr Auto gestohlen.",
        "Er fragte: „Wo wohnen Sie?“",
        "Geht es Ihnen gut?",
        "Das steht Ihnen gut.",
        "Ist das Ihrs?",
    ],
    "ihr": [
        "Habt ihr Hunger?",
        "Ihr seid zu spät.",
        "Seid ihr sicher?",
        "Wo wart Ihr gestern?",
        "Kommt ihr mit?",
        "Wohin geht ihr?",
        "Was macht ihr da?",
        "Ihr geht jetzt nach Hause.",
        "Ich weiß, dass ihr kommt.",
        "Sagt mir, wenn ihr das nicht könnt.",
        "Wenn ihr Hunger habt, esst etwas.",
        "Ich habe euch gesehen.",
        "Wo ist euer Hund?",
        "Das ist nicht eure Schuld.",
        "Eure Kinder schlafen.",
        "Ist das euer Lehrer? Ich kenne eueren Lehrer.",
    ],
    None: [
        "",
        "Sie kommen morgen.",
        "Sie ist meine Schwester. Sie wohnt in Bonn.",
        "„Sie schläft“, sagte er.",
        'Tom rief: "Sie sind weg!"',
        "- Sie sind da.",
        "Komm her!",  # No pronoun: not seen.
        "Man kommt mit dem Fahrrad dorthin.",
        "Er starrte ihr ins Gesicht.",
        "Er gibt ihr das Buch.",
        "Tom sagte ihr nicht die Wahrheit.",
        "Ihr Hund ist alt.",
        "Ihr ist kalt.",
        "Ihr tat der ganze Körper weh.",
        "Ihr geht es gut.",
        "Was fehlt ihr?",
        "Ich weiß, dass ihr Mann krank ist.",
        "Die Fahrt hat ihr gefallen.",
        "Ich habe ihr geschmeichelt.",
        "Das kostet drei Euro.",
        "Europa ist groß.",
        "Das ist nur die Dirigentin.",
    ],
    "both": [
        "Haben Sie dein Buch?",
        "Du und Tom, habt ihr Zeit?",
        "Können Sie euch helfen?",
    ],
}


@pytest.mark.parametrize(
    "form, text", [(form, text) for form, texts in FORMS.items() for text in texts]
)
def test_form_of_address(form, text):
    assert address.form_of_address(text) == form


def test_forms_are_counted():
    texts = [text for texts in FORMS.values() for text in texts]
    found = address.count_forms(texts)
    assert found == {form or "neither": len(texts) for form, texts in FORMS.items()}


def test_every_style_has_a_form():
    assert set(address.STYLES.values()) == {"du", "Sie", "ihr"}
