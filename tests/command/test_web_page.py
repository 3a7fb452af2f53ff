"""The demo page in a real browser: what is seen is what the models say."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.command import page_images
from keras_vqem.command.photos import photos
from keras_vqem.images import shapes
from tests.command import page_models as small

pytestmark = pytest.mark.soak  # needs a browser, which .ci/run does not install


def chromium():
    """Playwright's module and the system's Chromium."""
    try:
        from playwright import sync_api
    except ImportError:
        pytest.fail("Playwright is missing: pip install '.[browser]'")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.fail("Chromium is missing: apt-get install chromium, or the like")
    return sync_api, path


def test_a_visit(tmp_path, monkeypatch):
    sync_api, path = chromium()
    expect = sync_api.expect
    expect.set_options(timeout=60_000)
    teacher, latent = small.translators()
    painter = small.image_model()
    ids, codes, other = small.codes_of(latent, small.TEXT)
    presets = {"TEACHER": teacher, "LATENT": latent, "IMAGES": painter}
    with (
        small.served(tmp_path, monkeypatch, **presets) as port,
        sync_api.sync_playwright() as play,
        play.chromium.launch(executable_path=path) as browser,
    ):
        page = browser.new_page()
        asked, problems = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: problems.append(error))
        page.goto(f"http://127.0.0.1:{port}/")

        def text(name):
            return page.locator(f"#{name}").text_content()

        # Nothing typed: told, and gone with the next answer.
        page.get_by_role("button", name="Translate").click()
        expect(page.locator("#text-error")).to_contain_text("There is no text")
        page.get_by_label("English sentence").fill(small.TEXT)
        page.keyboard.press("Enter")
        expect(page.locator("#translations")).to_be_visible()
        expect(page.locator("#text-error")).to_be_hidden()
        translation = latent.translate([small.TEXT])[0]
        assert text("teacher-text") == teacher.translate([small.TEXT])[0]
        assert text("latent-text") == text("changed-text") == translation
        assert text("teacher-ms").endswith(" ms") and "times as fast" in text("speedup")
        fields = page.locator("#codes input")
        assert [int(f.input_value()) for f in fields.all()] == codes
        reset = page.get_by_role("button", name="Reset codes", exact=True)
        expect(reset).to_be_disabled()

        # What each code writes, and what its neighbours would.
        pieces = small.pieces_of(latent, ids, codes)
        shown = page.locator("#codes .writes").all_text_contents()
        assert shown == [piece or "(nothing)" for piece in pieces]
        page.get_by_label("Code 2", exact=True).focus()
        others = small.neighbours_of(latent, ids, codes, 1)[:6]
        shown = [f"{one['code']} {one['writes'] or '(nothing)'}" for one in others]
        expect(page.locator("#neighbours-list button")).to_have_text(shown)
        expect(page.locator("#doubts")).to_be_hidden()

        # Another code, another text; its new words are marked, and no others.
        changed = small.written(latent, ids, other)
        field = page.get_by_label("Code 2", exact=True)
        field.fill(str(other[1]))
        expect(page.locator("#changed-text mark").first).to_be_visible()
        assert text("changed-text") == changed and text("latent-text") == translation
        marked = page.locator("#changed-text mark").all_text_contents()
        assert set(changed.split(" ")) - set(translation.split(" ")) <= set(marked)
        assert len(marked) <= len(changed.split(" "))

        # A code that is none: told, and the field stays for correction.
        field.fill("8")
        expect(page.locator("#codes-error")).to_contain_text("from 0 to 7, received 8")
        field.fill("")
        expect(page.locator("#codes-error")).to_contain_text("received nothing")
        reset.click()
        expect(page.locator("#codes-error")).to_be_hidden()
        assert text("changed-text") == translation
        assert page.locator("mark").count() == 0

        # One up, by the button.
        more = page.get_by_role("button", name="Increase code 1")
        with page.expect_response("**/api/decode") as answer:
            more.click()
        stepped = small.written(latent, ids, [codes[0] + 1, *codes[1:]])
        assert answer.value.json()["text"] == stepped
        expect(page.get_by_label("Code 1", exact=True)).to_have_value(str(codes[0] + 1))
        expect(page.locator("#changed-how")).to_contain_text("words")
        assert text("changed-text") == stepped

        # Images: an example, an upload, one that is none, samples.
        page.get_by_role("button", name="Example 3").click()
        expect(page.locator("#through")).to_be_visible()
        original = page_images.fitted(photos()[2], (16, 16))
        assert_shown(page, "original", original)
        assert_shown(page, "reconstruction", painter.reconstruct(original[None])[0])
        image = shapes.images(1, seed=5, size=16)[0][0]
        png = {"name": "a.png", "mimeType": "image/png"}
        png["buffer"] = tf.io.encode_png(image).numpy()
        with page.expect_response("**/api/images"):
            page.locator("#file").set_input_files(png)
        grid = painter.encode(image[None])[0].numpy()
        first = page.locator("#cells button").first
        expect(first).to_have_attribute("title", f"codes of this cell: {said(grid)}")
        assert_shown(page, "original", image)
        assert_shown(page, "reconstruction", painter.reconstruct(image[None])[0])
        page.locator("#slot").select_option("2")
        cells = page.locator("#cells button").all_text_contents()
        assert cells == [str(code) for code in grid[..., 2].ravel()]
        # Another code in a cell, another image; and back.
        first.click()
        changed_codes = grid.copy()
        changed_codes[0, 0, 1] = (grid[0, 0, 1] + 1) % 32
        with page.expect_response("**/api/images/decode"):
            page.get_by_label("slot 2").fill(str(changed_codes[0, 0, 1]))
        expect(page.locator("#psnr")).to_contain_text("changed codes")
        assert_shown(page, "reconstruction", painter.decode(changed_codes[None])[0])
        page.get_by_label("slot 2").fill("32")
        expect(page.locator("#cell-error")).to_contain_text("from 0 to 31, received 32")
        page.get_by_role("button", name="Reset codes of the image").click()
        expect(page.locator("#cell-error")).to_be_hidden()
        assert_shown(page, "reconstruction", painter.reconstruct(image[None])[0])
        error = page.locator("#image-error")
        page.locator("#file").set_input_files({**png, "buffer": b"no image"})
        expect(error).to_contain_text("neither a PNG nor a JPEG")
        page.locator("#file").set_input_files({**png, "buffer": bytes(9 * 2**20)})
        expect(error).to_contain_text("larger than 8 MB")
        page.get_by_role("button", name="Draw samples").click()
        expect(page.locator("#samples img")).to_have_count(8)

        own = f"http://127.0.0.1:{port}/"
        assert all(url.startswith((own, "data:")) for url in asked), asked
        assert not problems
        page.screenshot(path=tmp_path / "page.png", full_page=True)
        print(f"to look at: {tmp_path / 'page.png'}")
    assert translation != changed


def said(grid):
    return ", ".join(str(code) for code in grid[0, 0])


def assert_shown(page, name, image):
    found = small.pixels(page.locator(f"#{name}").get_attribute("src"))
    np.testing.assert_array_equal(found, image)
