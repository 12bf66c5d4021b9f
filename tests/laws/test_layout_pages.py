"""The layout expressions on the diagnostics' pages are refused and accepted as they say."""

import ast
import re
from pathlib import Path

import pytest

import tilefoundry.layout as layout
from tilefoundry.diag import Refusal, codes, page

SOURCES = "".join(p.read_text(encoding="utf-8") for p in Path(layout.__file__).parent.glob("*.py"))
LAYOUT_CODES = [code for code in codes() if f'"{code}"' in SOURCES]
SHOWN = [code for code in LAYOUT_CODES if "## Fails" in page(code).body]


def run_constants(block):
    """Run the top-level assignments of a program, up to its module."""
    names = {name: getattr(layout, name) for name in layout.__all__}
    for node in ast.parse(block).body:
        if isinstance(node, ast.Assign):
            exec(compile(ast.Module([node], []), "page", "exec"), names)
    return names["TILE"]


@pytest.mark.parametrize("code", SHOWN)
def test_page_fails_and_repaired_show_the_code(code):
    fails, repaired = re.findall(r"```python\n(.*?)```", page(code).body, re.S)
    with pytest.raises(Refusal) as refused:
        run_constants(fails)
    (diag,) = refused.value.diags
    assert diag.code == code
    assert "{" not in diag.text()
    tile = run_constants(repaired)
    shape = ast.literal_eval(re.search(r"Tensor\[(\(.*?\)),", repaired)[1])
    assert tile.is_injective()
    assert tile.size() == layout.product(shape)


def test_pages_that_show_no_program_are_about_the_python_interface():
    assert set(LAYOUT_CODES) - set(SHOWN) == {
        "layout-symbolic",
        "layout-composition-swizzle",
        "layout-empty",
        "layout-swizzle-width",
    }
