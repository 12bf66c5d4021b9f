"""What is known of a family of hardware stands in its folder: no other code says its words."""

import ast
import re

import pytest
from sources import FILES, PACKAGE, tree

FAMILIES = {path.parent.name for path in PACKAGE.glob("targets/*/schema.py")}
WORDS = re.compile(
    r"(?<![a-z])(cuda|nvidia|nvcc|nvrtc|cublas|hopper|ptx|sm_?\d\d|avx\w*|sse\d*|amx\w*|xeon|epyc"
    r"|intel|neon|apple\w*|x86(_64)?|aarch64|arm64)(?![a-z])",
    re.IGNORECASE,
)
SAID = re.compile(r"tilefoundry [a-z]+ |^[a-z0-9_]+\.[a-z0-9_]+$")
"""Commands as examples of a help text."""
ELSEWHERE = {
    "cli/check.py": {"cuda"},  # torch's name of a device
    "cli/measure.py": {"cuda", "cublas"},
    "cli/doctor.py": {"cuda"},
    "models/qwen3.py": {"cuda", "nvidia"},  # programs for one device
    # torch's device, its driver's files, system calls by machine, a library's title
    "judge": {"cuda", "nvidia", "cublas", "x86_64", "aarch64", "intel"},
}
"""Words that are another's than the family's, by file or folder."""


def spoken(tree):
    """Names and texts of a file's code, with their lines; docstrings are not code."""
    words = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in words:
            yield node.value, node.lineno
        elif isinstance(node, ast.Name):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute):
            yield node.attr, node.lineno
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.replace(".", " "), node.lineno


def others(path):
    """Whether a file is outside the folders of families."""
    return not (len(path.parts) > 1 and path.parts[0] == "targets" and path.parts[1] in FAMILIES)


@pytest.mark.parametrize("path", [path for path in FILES if others(path)], ids=str)
def test_no_word_of_a_family(path):
    allowed = set()
    for place, words in ELSEWHERE.items():
        if path.as_posix() == place or place in path.as_posix().split("/")[:-1]:
            allowed |= words
    found = [
        f"{path}:{line}: {match[0]} in {text!r}"
        for text, line in spoken(tree(path))
        if not SAID.match(text)
        for match in WORDS.finditer(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text))
        if match[0].lower() not in allowed
    ]
    assert not found, "\n".join(found)


def test_the_words_are_seen():
    """A planted one of each kind: a name, a text, a class, an import."""
    for code in ("avx512 = 1", "x = 'has_avx2'.split('nvidia')", "class CudaThing: pass",
                 "from tilefoundry.targets.cuda import emit"):  # fmt: skip
        said = [re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", t) for t, _ in spoken(ast.parse(code))]
        assert any(WORDS.search(t) for t in said), code
