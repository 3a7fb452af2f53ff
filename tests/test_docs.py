"""The documents: a site without warnings, true figures, a notebook that runs."""

import ast
import importlib
import json
import pathlib
import re
import subprocess
import sys
import tomllib

import matplotlib
import pytest

ROOT = pathlib.Path(__file__).parent.parent
DOCS = ROOT / "docs"
ROOMS = ROOT / "keras_vqem"
NOTEBOOKS = sorted(DOCS.rglob("*.ipynb"))
PUBLIC = (
    "compression",
    "decoding",
    "images",
    "layers",
    "models",
    "serving",
    "text",
    "training",
)


def test_every_page_is_in_the_navigation():
    settings = (ROOT / "mkdocs.yml").read_text()
    listed = set(re.findall(r"[\w/-]+\.md", settings.split("nav:")[1]))
    assert listed == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        # After a plain `import keras_vqem` its rooms are attributes.
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"


def test_imports_point_inward_as_the_architecture_page_says():
    page = (DOCS / "architecture.md").read_text()
    page = page.split("## Rooms")[1].split("Around the package")[0]
    rows = re.findall(r"^\| `([\w/]+)` \| (.*) \|$", page, re.MULTILINE)
    allowed = {
        room: {room, "__version__", *re.findall(r"`(\w+)`", text.rpartition(" | ")[2])}
        for room, text in rows
    }
    assert all(
        (ROOMS / room).is_dir() or (ROOMS / f"{room}.py").is_file() for room, _ in rows
    )
    for path in ROOMS.rglob("*.py"):
        parts = path.relative_to(ROOMS).with_suffix("").parts
        inner, room = "/".join(parts[:2]), parts[0]
        assert room in {*allowed, "__init__"}, f"architecture.md does not name {room}"
        room = inner if inner in allowed else room
        for name in imports_of(path):
            package, *inner = name.split(".")
            assert package not in ("recipes", "tests"), f"{path} imports {name}"
            # Flags belong to commands and recipes.
            assert package != "argparse" or room == "command", f"{path} imports {name}"
            if package == "keras_vqem" and inner and room in allowed:
                assert inner[0] in allowed[room], f"{path} imports {name}"


def commands():
    """Recipes and their flags, as README, documents and model cards show them."""
    pages = [ROOT / "README.md", *DOCS.rglob("*.md"), *ROOT.glob("saved_models/*/*.md")]
    for page in pages:
        text = page.read_text().replace("\\\n", " ")
        for recipe, rest in re.findall(r"recipes/(\w+)\.py( [^\n`]*)", text):
            yield recipe, set(re.findall(r"(?<=\s)--[\w-]+", rest)), page


def test_documented_commands_have_flags_that_exist():
    flags = {}
    for recipe, used, page in commands():
        if recipe not in flags:
            command = [sys.executable, ROOT / "recipes" / f"{recipe}.py", "--help"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            flags[recipe] = set(re.findall(r"--[\w-]+", done.stdout))
        assert used <= flags[recipe], (
            f"{page}: {recipe}.py has no {used - flags[recipe]}"
        )


def headline_figures():
    """Numbers of README's first table, and the page that each row links to."""
    table = (ROOT / "README.md").read_text().split("| how measured |")[1]
    for row in table.split("\n\n")[0].splitlines()[2:]:
        page = re.search(r"\((docs/results/\w+\.md)\)", row)[1]
        cells = re.sub(r"\(docs/.*?\)|`[^`]*`|CIFAR-10|Multi30k", "", row)
        for figure in re.findall(r"\d[\d,]*\.\d+", cells):
            yield pytest.param(figure, page, id=f"{page}-{figure}")


@pytest.mark.parametrize("figure, page", list(headline_figures()))
def test_headline_figures_are_those_of_the_results(figure, page):
    assert re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", (ROOT / page).read_text())


def test_the_readme_shows_pictures_that_exist():
    pictures = re.findall(r'<img src="([^"]+)"', (ROOT / "README.md").read_text())
    assert pictures and all((ROOT / picture).is_file() for picture in pictures)


def test_the_citation_has_the_version_of_the_package():
    citation = (ROOT / "CITATION.cff").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"\nversion: {project['version']}\n" in citation
    assert "1805.11063" in citation


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    cells = json.loads(path.read_text())["cells"]
    names = {"__name__": "__main__"}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "clear the outputs before you commit"
            exec(compile("".join(cell["source"]), path.name, "exec"), names)
    matplotlib.pyplot.close("all")
    assert names["perplexity"] > 50  # of 256: most codes are in use
    assert names["error"] < 0.5 * names["baseline"]


@pytest.mark.slow
def test_the_site_is_built_without_warnings():
    done = subprocess.run(
        ["make", "docs", f"PYTHON={sys.executable}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    # Docstrings that do not fit their signatures are told, but do not fail the build.
    assert "griffe:" not in said, said
    for module in PUBLIC:
        page = (ROOT / "site" / "api" / module / "index.html").read_text()
        names = importlib.import_module(f"keras_vqem.{module}").__all__
        for name in set(names) - {"shapes"}:  # a module, with a section of its own
            # A function that shares its file's name is listed under both.
            anchors = (f"{module}.{name}", f"{module}.{name}.{name}")
            assert any(f'id="keras_vqem.{a}"' in page for a in anchors), name
