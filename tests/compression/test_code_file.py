"""Whatever happens to a file, it is refused unless it is intact."""

import dataclasses
import hashlib

import hypothesis
import pytest
from hypothesis import strategies as st

from keras_vqem.compression.code_file import CodeFile

FILE = CodeFile(
    "cifar10_em", "0123456789abcdef", True, 40, 70, ((2**32 - 1, b"abc"), (0, b""))
)


def signed(body):
    return body + hashlib.sha256(body).digest()[:8]


def test_a_file_comes_back():
    assert CodeFile.from_bytes(FILE.to_bytes()) == FILE
    assert len(FILE.to_bytes()) == 23 + 10 + 8 + 3 + 8 + 8
    # The name is cut between characters.
    named = dataclasses.replace(FILE, model="é" * 200)
    assert CodeFile.from_bytes(named.to_bytes()).model == "é" * 127


def test_every_changed_byte_and_every_lost_end_is_noticed():
    content = FILE.to_bytes()
    for place in range(len(content)):
        for bit in range(8):
            other = bytearray(content)
            other[place] ^= 1 << bit
            words = "is no file of codes|has format|is damaged or incomplete"
            with pytest.raises(ValueError, match=words):
                CodeFile.from_bytes(bytes(other))
        with pytest.raises(ValueError):
            CodeFile.from_bytes(content[:place])
    with pytest.raises(ValueError, match="damaged or incomplete"):
        CodeFile.from_bytes(content + b"\0")


def test_other_files_and_other_formats_are_told():
    for content in (b"", b"VQE", b"\x89PNG\r\n\x1a\n" + bytes(50)):
        with pytest.raises(ValueError, match="no file of codes"):
            CodeFile.from_bytes(content)
    newer = bytearray(FILE.to_bytes())
    newer[4] = 2
    with pytest.raises(ValueError, match="has format 2, and .* reads format 1"):
        CodeFile.from_bytes(bytes(newer))


@hypothesis.given(st.binary(max_size=80))
def test_bytes_with_the_right_checksum_are_read_or_refused(rest):
    content = signed(b"VQEM\1" + rest)
    try:
        file = CodeFile.from_bytes(content)
    except ValueError as error:
        assert "not the parts" in str(error)
    else:
        assert file.to_bytes() == content
