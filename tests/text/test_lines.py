import codecs
import os

from keras_vqem.text.lines import line_chunks, one_line


def test_a_file_comes_in_full_chunks(tmp_path):
    lines = [b"%d" % i + b"x" * (i % 97) for i in range(5000)]
    lines[7] = lines[8] = b""
    path = tmp_path / "lines"
    path.write_bytes(b"\r\n".join(lines[:10]) + b"\n" + b"\n".join(lines[10:]))
    with open(path, "rb") as file:
        chunks = list(line_chunks(file.fileno(), 1000))
    assert [len(chunk) for chunk in chunks] == [1000] * 5
    assert [line for chunk in chunks for line in chunk] == lines


def test_a_pipe_is_answered_before_its_end():
    reader, writer = os.pipe()
    chunks = line_chunks(reader, 3)
    os.write(writer, b"a\nb\nc")
    assert next(chunks) == [b"a", b"b"]
    os.write(writer, b"d\n")
    assert next(chunks) == [b"cd"]
    os.write(writer, b"1\n2\n3\n4\n")
    assert [next(chunks), next(chunks)] == [[b"1", b"2", b"3"], [b"4"]]
    os.write(writer, b"last")
    os.close(writer)
    assert list(chunks) == [[b"last"]]
    os.close(reader)


def test_long_lines_come_a_few_at_a_time_and_without_a_mark(tmp_path):
    path = tmp_path / "lines"
    long = b"x" * (3 * 10**6)
    path.write_bytes(codecs.BOM_UTF8 + b"a\n" + long + b"\nb\n" + codecs.BOM_UTF8)
    with open(path, "rb") as file:
        chunks = list(line_chunks(file.fileno(), 1000))
    assert chunks == [[b"a"], [long, b"b"], [codecs.BOM_UTF8]]


def test_no_line_break_is_left():
    assert one_line("a\nb\r\nc\r") == "a b  c "
