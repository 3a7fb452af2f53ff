"""Keras docstrings, rewritten for the parser of the API reference.

`make docs` runs this file (see mkdocs.yml). The parser reads Google's style. Keras
differs from it in a few places: it has call arguments, it lets one entry describe
several arguments, and its examples start at the left margin.
"""

import re
import textwrap

import griffe

# Google's style allows a title after the name of a section.
LISTS = {"Args": "Args: Arguments", "Call arguments": "Other Args: Call arguments"}
PROSE = ("Example", "References", "Returns")
# A section: its name at the margin, then indented or empty lines.
SECTION = re.compile(r"^(\w[\w ]*):\n((?:(?:    .*)?\n)*(?:    .*)?)", re.MULTILINE)
# One entry for several arguments: "min_length, max_length: ...".
SHARED = re.compile(
    r"^    (\*{0,2}\w+(?:, \*{0,2}\w+)+):((?:.*\n)(?:     .*\n|\n)*)", re.MULTILINE
)
# Prompts at the margin and their output, up to the next empty line.
SESSION = re.compile(r"^>>> .*\n?(?:^.+\n?)*", re.MULTILINE)


def _section(found):
    name, body = found[1], found[2]
    if name in PROSE:
        return f"**{name}**\n\n{textwrap.dedent(body)}"
    if name in LISTS:
        body = SHARED.sub(
            lambda entry: "".join(
                f"    {argument}:{entry[2]}" for argument in entry[1].split(", ")
            ),
            body,
        )
        return f"{LISTS[name]}\n{body}"
    return found[0]


def translate(text):
    """A Keras docstring as Markdown with the sections of Google's style."""
    text = SECTION.sub(_section, text + "\n")
    return SESSION.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)


class KerasDocstrings(griffe.Extension):
    def on_object(self, *, obj, **kwargs):
        if obj.docstring:
            obj.docstring.value = translate(obj.docstring.value)
