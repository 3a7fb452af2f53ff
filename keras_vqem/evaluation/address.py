"""Forms of address: whether a German sentence says du, Sie or ihr to its reader.

English has one word, you. German has three, and a translator has to choose. The form
is read off words, without a grammar:

- du: du, dich, dir and all forms of dein.
- Sie: Sie, Ihnen and all forms of Ihr with a capital letter inside a sentence, such
  as the Sie of "Haben Sie Zeit?". At the start of a sentence every word has a capital
  letter, so that "Sie kommen." may be about them, and does not count.
- ihr: euch, all forms of euer, and ihr beside a verb that fits, as in "Habt ihr Zeit?"
  or "Ihr geht jetzt." Elsewhere ihr means her or their.

What it cannot see: imperatives without a pronoun ("Komm her!"), Sie that stands at the
start only, and, after a question word, a verb that takes ihr as a dative and is in no
list here.
"""

import re
from collections import Counter
from collections.abc import Iterable

# What the styles that `recipes/name_codes.py` finds are called, and their forms.
STYLES = {"formal": "Sie", "informal": "du", "plural": "ihr"}
FORMS = ("du", "Sie", "ihr", "both", None)

_YOU = re.compile(r"\b(you|your|yours|yourself|yourselves)\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]+")
_DU = re.compile(r"du|dich|dir|dein\w*", re.IGNORECASE)
_SIE = re.compile(r"Sie|Ihnen|Ihr(e[mnrs]?|s|et\w+|ig\w+|erseits)?")
_EUCH = re.compile(r"euch|euer[ens]?|euer[ne]\w*|eure[mnrs]?|euret\w+", re.IGNORECASE)
_CLAUSES = re.compile(r"[^\w\s'’-]+|\s[-–—]+\s")
_OPENING = "\"'„“”»«‚‘’›‹(["
_ENDS = ".!?…:"

# Verbs in forms that only ihr has. Elsewhere "er kommt" and "ihr kommt" are alike.
_PLURAL = frozenset(
    """
    seid wart wärt wäret habt hattet hättet werdet wurdet würdet könnt konntet könntet
    wollt wolltet müsst müßt musstet mußtet müsstet müßtet dürft durftet dürftet sollt
    solltet mögt mochtet möchtet wisst wißt wusstet wußtet wüsstet fahrt lest seht gebt
    nehmt sprecht versprecht helft trefft esst eßt vergesst vergeßt lauft schlaft lasst
    laßt verlasst verlaßt haltet behaltet tragt fangt fallt werft brecht tretet schlagt
    ratet ladet wascht stehlt sterbt empfehlt befehlt wachst stoßt kamt gingt saht gabt
    nahmt fandet bliebt ließt hieltet dachtet sagtet machtet tatet
    """.split()
)
# Words in t beside which ihr is dative or possessive.
_OTHERS = frozenset(
    """
    ist hat tut tat fehlt gefällt missfällt gehört passt paßt steht schmeckt hilft gibt
    nimmt sieht spricht liest fährt trifft vergisst hält lässt läßt trägt schlägt
    verspricht bleibt gelingt leicht nicht jetzt seit mit selbst oft gut recht laut fast
    erst leid schlecht vielleicht echt direkt sonst dort weit kalt insgesamt zuletzt
    """.split()
)
_BEFORE_VERB = frozenset(
    """
    was wo wohin woher wann warum weshalb wieso wie wen wem womit woran wofür worüber
    worauf wovon wozu wonach und dann jetzt heute
    """.split()
)
_CONJUNCTIONS = frozenset(
    """
    dass daß ob wenn weil falls damit bevor nachdem bis als was wo wohin woher wann
    warum weshalb wieso wie solange sobald
    """.split()
)


def addresses_reader(english: str) -> bool:
    """Returns whether an English sentence has you, your, yours or yourself in it.

    Example:

    >>> from keras_vqem.evaluation import address
    >>> address.addresses_reader("You're late."), address.addresses_reader("Young.")
    (True, False)
    """
    return _YOU.search(english) is not None


def form_of_address(german: str) -> str | None:
    """Finds the form of address of a German text.

    Args:
        german: One or several sentences.

    Returns:
        `"du"`, `"Sie"` or `"ihr"`; `"both"` if there are signs of more than one; None
        if there are none.

    Example:

    >>> from keras_vqem.evaluation import address
    >>> texts = ["Kommst du?", "Kommen Sie?", "Kommt ihr?", "Sie kommen."]
    >>> [address.form_of_address(text) for text in texts]
    ['du', 'Sie', 'ihr', None]
    """
    plural = _plural_ihr(german)
    found = {"ihr"} if plural else set()
    for match in _WORD.finditer(german):
        word, place = match[0], match.start()
        if _DU.fullmatch(word):
            found.add("du")
        elif _EUCH.fullmatch(word):
            found.add("ihr")
        elif _SIE.fullmatch(word) and place not in plural:
            if not _starts_sentence(german, place):
                found.add("Sie")
    if len(found) > 1:
        return "both"
    return found.pop() if found else None


def count_forms(texts: Iterable[str]) -> dict[str, int]:
    """Counts the forms of address of texts.

    Args:
        texts: German texts.

    Returns:
        Dict with the numbers of texts for `"du"`, `"Sie"`, `"ihr"`, `"both"` and
        `"neither"`.

    Example:

    >>> from keras_vqem.evaluation import address
    >>> address.count_forms(["Kommst du?", "Dein Hund.", "Ja."])
    {'du': 2, 'Sie': 0, 'ihr': 0, 'both': 0, 'neither': 1}
    """
    counts = Counter(map(form_of_address, texts))
    return {form or "neither": counts[form] for form in FORMS}


def _starts_sentence(text, place):
    if text[:place].endswith(tuple(_OPENING)):
        return True
    before = text[:place].rstrip(" \t\n\xa0-–—" + _OPENING)
    return not before or before[-1] in _ENDS


def _plural_ihr(text):
    """Returns the places at which ihr is the subject of a verb."""
    found, start = set(), 0
    ends = [*_CLAUSES.finditer(text), None]
    for end in ends:
        stop = len(text) if end is None else end.start()
        words = list(_WORD.finditer(text, start, stop))
        lower = [match[0].lower() for match in words]
        for i, match in enumerate(words):
            if lower[i] == "ihr" and _is_subject(words, lower, i):
                found.add(match.start())
        start = stop if end is None else end.end()
    return found


def _is_subject(words, lower, i):
    """Whether word i of a clause, which is ihr, is the subject of a verb."""
    if any(
        word in _PLURAL and (match[0].islower() or k == 0)  # die Fahrt is a noun
        for k, (word, match) in enumerate(zip(lower, words, strict=True))
    ):
        return True

    def fits(k):
        word = words[k][0]
        written = word.islower() or k == 0
        return written and lower[k].endswith("t") and lower[k] not in _OTHERS

    last = i + 1 == len(words) - 1
    if i == 0:  # Ihr geht jetzt. But: Ihr geht es gut.
        return len(words) > 1 and fits(1) and lower[2:3] != ["es"]
    if i == 1 and fits(0):  # Kommt ihr mit?
        return True
    if i == 2 and fits(1) and lower[0] in _BEFORE_VERB:  # Wohin geht ihr?
        return True
    # Ich weiß, dass ihr kommt.
    return last and lower[i - 1] in _CONJUNCTIONS and fits(i + 1)
