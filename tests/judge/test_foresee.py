"""What a twin's text seems to implement; only what is begun early depends on it."""

import pytest

from tilefoundry.judge.foresee import foreseen
from tilefoundry.judge.later import Later

HEAD = "from program import Program as P\nfrom tilefoundry.runtime import runtime_module\n"


@pytest.fixture
def written(tmp_path):
    (tmp_path / "program.py").write_text("")

    def write(text):
        path = tmp_path / "twin.py"
        path.write_text(text)
        return str(path)

    return write


def test_the_class_that_is_imported(written, tmp_path):
    path = written(HEAD + "@runtime_module(P)\nclass Twin:\n    pass\n")
    program = str(tmp_path / "program.py")
    assert foreseen(path, None) == (program, "Program")
    assert foreseen(path, "Twin.f") == (program, "Program.f")
    assert foreseen(path, "Other.f") is None


@pytest.mark.parametrize("text", [
    "",
    "not python (",
    "(" * 1000,
    HEAD + "class Twin:\n    pass\n",
    HEAD + "@runtime_module(made())\nclass Twin:\n    pass\n",
    "from elsewhere import P\n@runtime_module(P)\nclass Twin:\n    pass\n",
    "from . import P\n@runtime_module(P)\nclass Twin:\n    pass\n",
    "@runtime_module(P)\nclass Twin:\n    pass\nclass P:\n    pass\n",
], ids=range(8))  # fmt: skip
def test_nothing_is_foreseen(written, text):
    assert foreseen(written(text), None) is None


def test_no_file(tmp_path):
    assert foreseen(str(tmp_path / "none.py"), None) is None


def test_what_was_begun_is_done_once_and_given_once():
    later, done = Later(), []

    def do(n):
        done.append(n)
        return n

    later.begin("a", do, 1)
    later.begin("a", do, 2)
    assert later.take("a", do, 3) == 1 and later.take("a", do, 4) == 4
    later.close()
    assert done == [1, 4]


def test_what_fails_later_fails_where_it_is_asked_for():
    later = Later()
    later.begin("a", lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        later.take("a", lambda: 1)
    later.close()
