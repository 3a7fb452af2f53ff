"""The demo page and its endpoints for sentences: answers, and errors that help."""

import functools
import importlib
import json
import socket
import sys
import threading
import urllib.request

import numpy as np
import pytest

import keras_vqem.command
from keras_vqem.command import (
    demo,
    main,
    page_guard,
    page_images,
    page_sentences,
    web,
)
from keras_vqem.command.photos import photos
from tests.command.page_models import (
    TEXT,
    codes_of,
    neighbours_of,
    pieces_of,
    pixels,
    refused,
    served,
    written,
)


def test_the_page_asks_nobody_else(client):
    response = client.get("/")
    assert response.status_code == 200 and response.mimetype == "text/html"
    addresses = [part[:30] for part in response.text.split("http")[1:]]
    assert all(a.startswith(("://www.w3.org/2000/svg", "-equiv")) for a in addresses)
    refused(client.get("/", headers={"Host": "evil.example"}), 400)
    refused(client.get("/nothing"), 404)


def test_about(client, painter, pair):
    found = client.get("/api/about").json
    assert set(demo.SENTENCES) < set(found["sentences"])
    assert found["latent"] == {"num_codes": 8, "tokens_per_code": 4, "styles": []}
    assert found["images"]["prior"] and found["images"]["size"] == [16, 16]
    expected = [page_images.fitted(image, (16, 16)) for image in photos()]
    np.testing.assert_array_equal(
        [pixels(url) for url in found["images"]["examples"]], expected
    )


def test_translations_codes_and_times(client, pair):
    found = client.post("/api/translate", json={"text": f"  {TEXT}\n"}).json
    teacher, latent = pair
    assert found["teacher"]["text"] == teacher.translate([TEXT])[0]
    assert found["latent"]["text"] == latent.translate([TEXT])[0]
    ids, codes, _ = codes_of(latent, TEXT)
    [sentence] = found["sentences"]
    assert sentence == {
        "source": TEXT,
        "text": found["latent"]["text"],
        "codes": codes,
        "before": "",
        "pieces": pieces_of(latent, ids, codes),
    }
    times = [found[name]["ms"] for name in ("teacher", "latent")]
    assert min(times) > 0 and 1 <= found["rounds"] <= page_sentences.ROUNDS
    assert found["speedup"] == pytest.approx(times[0] / times[1])
    assert found["warnings"] == [] and found["styles"] == []


def test_a_style_is_chosen_and_all_styles_are_shown(pair, monkeypatch):
    teacher, latent = pair
    monkeypatch.setattr(latent, "styles", {"formal": 3, "informal": 5})
    client = web.create_app(teacher, latent, None).test_client()
    about = client.get("/api/about").json["latent"]
    assert about["styles"] == ["formal", "informal"]
    sentences = [TEXT, "it is ten"]
    text = "\n".join(sentences)
    expected = {
        style: "\n".join(latent.translate(sentences, style=style))
        for style in (None, "formal", "informal")
    }
    assert len(set(expected.values())) == 3
    for style, asked in [(None, {}), (None, {"style": ""}), ("formal", None)]:
        fields = {"text": text, **(asked if asked is not None else {"style": style})}
        found = client.post("/api/translate", json=fields).json
        assert found["latent"]["text"] == expected[style]
        assert found["styles"] == [
            {"name": name, "text": expected[name]} for name in latent.styles
        ]
    assert [row["codes"][0] for row in found["sentences"]] == [3, 3]
    for style in ("rude", 3, ["formal"]):
        answer = client.post("/api/translate", json={"text": TEXT, "style": style})
        refused(answer, 400, "but the model has formal, informal")
    # What the model stores holds unless another style is chosen.
    monkeypatch.setattr(latent, "generation_config", {"style": "informal"})
    client = web.create_app(teacher, latent, None).test_client()
    found = client.post("/api/translate", json={"text": text}).json
    assert found["latent"]["text"] == expected["informal"]


def test_several_sentences_are_translated_one_by_one(client, pair):
    sentences = ["five to three", "it is ten"]
    found = client.post("/api/translate", json={"text": "\n".join(sentences)}).json
    texts = pair[1].translate(sentences)
    assert [row["source"] for row in found["sentences"]] == sentences
    assert [row["text"] for row in found["sentences"]] == texts
    assert found["latent"]["text"] == "\n".join(texts)


def test_the_speed_of_a_bad_translation_is_not_praised(pair, monkeypatch):
    teacher, latent = pair
    score = float(latent.generate(codes_of(latent, TEXT)[0])["scores"][0])
    for low_score, doubted in [(score - 0.1, False), (score + 0.1, True)]:
        monkeypatch.setattr(latent, "low_score", low_score)
        client = web.create_app(teacher, latent, None).test_client()
        found = client.post("/api/translate", json={"text": TEXT}).json
        assert (found["speedup"] is None) == doubted == bool(found["warnings"])
    assert "its score" in found["warnings"][0]
    monkeypatch.setattr(latent, "low_score", None)


def test_what_the_model_does_not_know_is_copied(client, pair):
    text = "five to three 🐕\n\nit is ten"
    found = client.post("/api/translate", json={"text": text}).json
    first, second = pair[1].translate(["five to three", "it is ten"])
    assert found["notes"] == ["copied as it is: 🐕"] and found["warnings"] == []
    assert found["latent"]["text"] == f"{first.rstrip('.')} 🐕\n\n{second}"
    assert [row["before"] for row in found["sentences"]] == ["", " 🐕\n\n"]
    assert found["after"] == ""
    answer = client.post("/api/translate", json={"text": "🐕 日本"})
    refused(answer, 400, "There is nothing to translate")


def test_changed_codes_are_decoded(client, pair):
    latent = pair[1]
    ids, codes, other = codes_of(latent, TEXT)
    for row in (codes, other, codes[:1]):
        found = client.post("/api/decode", json={"text": TEXT, "codes": row}).json
        assert found["text"] == written(latent, ids, row)
        assert found["pieces"] == pieces_of(latent, ids, row)
    same = client.post("/api/decode", json={"text": TEXT, "codes": codes})
    assert same.json["text"] == latent.translate([TEXT])[0]


def test_codes_are_written_as_translations_are(pair, monkeypatch):
    teacher, latent = pair
    monkeypatch.setattr(latent, "generation_config", {"drop_repeats": True})
    client = web.create_app(teacher, latent, None).test_client()
    found = client.post("/api/translate", json={"text": TEXT}).json
    [sentence] = found["sentences"]
    fields = {"text": TEXT, "codes": sentence["codes"]}
    assert client.post("/api/decode", json=fields).json["text"] == sentence["text"]


def test_neighbours_of_a_code_and_what_they_write(client, pair):
    latent = pair[1]
    ids, codes, _ = codes_of(latent, TEXT)
    fields = {"text": TEXT, "codes": codes, "place": 1}
    found = client.post("/api/neighbours", json=fields).json["neighbours"]
    expected = neighbours_of(latent, ids, codes, 1)
    assert found == expected[: page_sentences.NEIGHBOURS] != []
    for place in (-1, len(codes), None, True, "0"):
        answer = client.post("/api/neighbours", json={**fields, "place": place})
        refused(answer, 400, "`place` must be from 0 to")


@pytest.mark.parametrize("path", ["/api/translate", "/api/decode"])
@pytest.mark.parametrize(
    "text, words",
    [
        ("", "no text"),
        (" \n ", "no text"),
        (None, "received null"),
        (["a"], 'received ["a"]'),
        ("x" * 401, "has 401 characters, but at most 400"),
        ("xvw" * 60, "tokens, but at most 128"),
    ],
)
def test_bad_text(client, path, text, words):
    fields = {"text": text, "codes": [0]}
    refused(client.post(path, json=fields), 400, words)


def test_odd_text_is_translated(client):
    for text in ("five \0", "\ud800 five", "<b> five </b> & \u202e"):
        assert client.post("/api/translate", json={"text": text}).status_code == 200


@pytest.mark.parametrize(
    "codes, words",
    [
        ([0, 8], "Code 2 must be an integer from 0 to 7, received 8"),
        ([-1], "Code 1 must be an integer from 0 to 7, received -1"),
        ([0, None], "Code 2 must be an integer from 0 to 7, received nothing"),
        ([1.5], "received 1.5"),
        ([True], "received true"),
        ([10**30], "received 1000"),
        ([], "a list of 1 to 67 codes, received []"),
        ([0] * 68, "a list of 1 to 67 codes"),
        ("12", 'received "12"'),
        (None, "received null"),
    ],
)
def test_bad_codes(client, codes, words):
    refused(client.post("/api/decode", json={"text": TEXT, "codes": codes}), 400, words)


def test_bad_requests(client):
    post = client.post
    for text in (
        "[" * 10**5,
        '{"text":' * 10**5,
        '{"text":' + "[" * 900 + "]" * 900 + "}",
    ):
        answer = post("/api/translate", data=text, content_type="application/json")
        refused(answer, 400)
    refused(post("/api/translate", json=[1]), 400, "object", "[1]")
    refused(post("/api/translate", data="{", content_type="application/json"), 400)
    refused(post("/api/translate", data="text"), 415)
    refused(client.get("/api/translate"), 405)


def test_what_fails_inside_is_told_without_a_traceback(pair, monkeypatch):
    app = web.create_app(*pair, None)
    monkeypatch.setattr(page_sentences.Sentences, "translate", lambda *a: 1 / 0)
    response = app.test_client().post("/api/translate", json={"text": TEXT})
    refused(response, 500, "failed")


def test_other_sites_are_refused(client):
    simple = {"data": b"x", "content_type": "text/plain"}  # needs no permission
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://localhost"},
        {"Origin": "http://localhost:9"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        refused(client.post("/api/images", headers=headers, **simple), 403, "Only the")
        refused(client.get("/api/images/0", headers=headers), 403, "Only the")
        assert client.get("/", headers=headers).status_code == 200  # as by a link
    own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    refused(client.post("/api/images", headers=own, **simple), 415, "neither a PNG")


def test_every_answer_has_headers_that_browsers_act_on(client):
    for path in ("/", "/api/about", "/nothing"):
        headers = client.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"


def test_a_busy_page_says_so(pair, monkeypatch):
    monkeypatch.setattr(page_guard, "WAIT_SECONDS", 0.01)
    working, done = threading.Event(), threading.Event()

    def work(*_):
        working.set()
        assert done.wait(60)
        return {}

    monkeypatch.setattr(page_sentences.Sentences, "translate", work)
    app = web.create_app(*pair, None)
    ask = functools.partial(
        app.test_client().post, "/api/translate", json={"text": TEXT}
    )
    thread = threading.Thread(target=ask)
    thread.start()
    assert working.wait(60)
    answer = ask()
    refused(answer, 503, "busy")
    assert int(float(answer.headers["Retry-After"])) >= 0
    assert app.test_client().get("/api/about").status_code == 200
    done.set()
    thread.join(60)
    assert ask().status_code == 200


def test_a_slow_text_is_translated_once_and_timed_once(pair, monkeypatch):
    monkeypatch.setattr(page_sentences, "TIMING_SECONDS", 0.0)
    sentences, calls = page_sentences.Sentences(*pair), []
    graph = sentences._teacher_graph
    sentences._teacher_graph = lambda ids: calls.append(1) or graph(ids)
    assert sentences.translate(TEXT)["rounds"] == 1
    assert len(calls) == 2


def test_many_sentences_are_refused_together(client):
    text = ("xvw" * 4 + "\n") * 25
    fields = {"text": text}
    refused(client.post("/api/translate", json=fields), 400, "tokens, but at most 256")


def test_a_client_that_sends_nothing_is_given_up(pair, monkeypatch):
    monkeypatch.setattr(page_guard.RequestHandler, "timeout", 0.2)
    app = web.create_app(*pair, None)
    with web._listen(0) as listener:
        server = web.serving.make_server(
            web.HOST,
            listener.getsockname()[1],
            app,
            threaded=True,
            request_handler=page_guard.RequestHandler,
            fd=listener.fileno(),
        )
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        head = b"POST /api/translate HTTP/1.1\r\nHost: localhost\r\n"
        head += b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n"
        try:
            for sent, answer in ((b"", b""), (head, b"HTTP/1.1 400")):
                with socket.create_connection(server.server_address) as connection:
                    connection.settimeout(60)
                    connection.sendall(sent)
                    assert connection.recv(12) == answer  # and not a timeout
        finally:
            server.shutdown()
            thread.join(30)


def test_serve_loads_presets_and_listens(pair, tmp_path, monkeypatch, capsys):
    teacher, latent = pair
    with served(tmp_path, monkeypatch, TEACHER=teacher, LATENT=latent) as port:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/about") as answer:
            assert json.load(answer)["images"] == {"missing": demo.NO_IMAGES}
    said = capsys.readouterr().out
    assert f"Open http://127.0.0.1:{port} " in said and demo.NO_IMAGES in said


def test_a_port_in_use_is_told(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(SystemExit, match="2"):
            main.main(["demo", "--web", "--port", port])
    said = " ".join(capsys.readouterr().err.split())
    assert f"Port {port} of 127.0.0.1 cannot be used" in said and "--port" in said
    with pytest.raises(SystemExit, match="2"):
        main.main(["demo", "--web", "--port", "70000"])
    assert "from 0 to 65535, received 70000" in capsys.readouterr().err


def test_a_missing_flask_is_told(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "flask", None)
    monkeypatch.delitem(sys.modules, web.__name__)
    monkeypatch.delattr(keras_vqem.command, "web")
    with pytest.raises(SystemExit, match="2"):
        main.main(["demo", "--web"])
    assert "pip install '.[web]'" in capsys.readouterr().err
    monkeypatch.undo()
    assert importlib.import_module(web.__name__) is web
