"""The harness itself: what it reads from a page and what it lets pass."""

import pytest
from page import Block, Command, blocks, commands, matches

PAGE = """\
# T

```python file=a.py
x = 1
```

## Fails

````text
```
inner
```
````

```console
$ tilefoundry analyze a.py \\
    --memory
line
[exit 3]
$ true
```
"""


def test_blocks_and_commands(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    program, text, console = blocks(path)
    assert program == Block(("python", "file=a.py"), "x = 1\n", 4, "")
    assert (program.language, program.file) == ("python", "a.py")
    assert (text.text, text.section, text.file) == ("```\ninner\n```\n", "Fails", None)
    assert commands(console) == [
        Command("tilefoundry analyze a.py --memory", ("line",), 3, 16),
        Command("true", (), 0, 20),
    ]


@pytest.mark.parametrize(
    "expected, seen, same",
    [
        (["a", "b"], ["a", "b"], True),
        (["a", "b"], ["a"], False),
        (["a"], ["a", "b"], False),
        (["a", "...", "c"], ["a", "c"], True),
        (["a", "...", "c"], ["a", "b", "b", "c"], True),
        (["a", "...", "c"], ["a", "b"], False),
        (["..."], [], True),
        (["..."], ["a", "b"], True),
        (["t=[..]us ok"], ["t=7.68us ok"], True),
        (["t=[..]us ok"], ["t=7.68us no"], False),
        (["a.c"], ["abc"], False),
        ([], [], True),
        ([], ["a"], False),
    ],
)
def test_matches(expected, seen, same):
    assert matches(tuple(expected), seen) is same
