"""The modules of the page fit into one script."""

import shutil
import subprocess
from collections import Counter
from importlib.resources import files
from pathlib import Path

import pytest

from regard.page.bundle import bundle, declared, order, reached, static

STATIC = Path(str(files("regard.page").joinpath("static")))
ENTRIES = ("main.js", "widget.js")


@pytest.mark.parametrize("entry", ENTRIES)
def test_no_two_modules_declare_the_same_name(entry: str) -> None:
    names = Counter(name for module in reached(entry) for name in declared(static(module)))
    assert [name for name, count in names.items() if count > 1] == []
    assert len(names) > 50


def test_every_module_is_reached() -> None:
    assert {path.name for path in STATIC.glob("*.js")} == {name for entry in ENTRIES for name in reached(entry)}


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_bundle_is_one_script_without_imports(entry: str) -> None:
    script = bundle(entry)
    lines = script.splitlines()
    assert not any(line.startswith("import ") for line in lines)
    assert [line for line in lines if line.startswith("export")] == (
        ["export default { render };"] if entry == "widget.js" else []
    )
    assert "</script" not in script.lower() and "<!--" not in script


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_bundle_is_a_module_that_can_be_read(entry: str, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node to read it with")
    path = tmp_path / "bundle.mjs"
    path.write_text(bundle(entry), encoding="utf-8")
    subprocess.run([node, "--check", str(path)], check=True, timeout=600)


def test_modules_come_after_those_that_they_import() -> None:
    sources = {
        "a.js": 'import { b } from "./b.js";\nimport {\n  c,\n} from "./c.js";\nb(c);\n',
        "b.js": 'import { c } from "./c.js";\nexport function b() {}\n',
        "c.js": "export const c = 1;\n",
    }
    assert order(sources, "a.js") == ["c.js", "b.js", "a.js"]


def test_a_circle_is_found() -> None:
    sources = {"a.js": 'import { b } from "./b.js";\n', "b.js": 'import { a } from "./a.js";\n'}
    with pytest.raises(AssertionError, match="circle"):
        order(sources, "a.js")


def test_text_never_becomes_markup() -> None:
    for path in STATIC.glob("*.js"):
        source = path.read_text(encoding="utf-8")
        for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert way not in source, f"{path.name} uses {way}"


def test_types() -> None:
    """tsc over the modules, where it is installed."""
    tsc = shutil.which("tsc")
    if tsc is None:
        pytest.skip("no tsc")
    how = "--noEmit --checkJs --allowJs --strict --target es2022 --module es2022 --moduleResolution bundler"
    modules = sorted(str(path) for path in STATIC.glob("*.js"))
    subprocess.run([tsc, *how.split(), "--lib", "es2022,dom,dom.iterable", *modules], check=True, timeout=600)
