# ruff: noqa: F821
"""Twins are held against their modules where they are written."""

import subprocess
import sys
from pathlib import Path

import pytest

from process import environment
from tilefoundry.diag import Refusal
from tilefoundry.dsl import ConstTensor, ModuleList, Tensor, func, module
from tilefoundry.runtime import is_twin, runtime_func, runtime_module, twin_declaration


@module(entry="scale")
class Inner:
    @func
    def scale(x: Tensor[(4,), "f32"], w: ConstTensor[(4,), "f32"]):
        return x * w


@module(entry="step")
class Outer:
    layers = ModuleList(Inner, 2)
    last = Inner

    @func
    def step(x: Tensor[(4,), "f32"], y: Tensor[(4,), "f32"]):
        return x + y

    def forward(self, x):
        for layer in self.layers:
            x = layer.scale(x)
        return self.step(x, self.last.scale(x))


@runtime_module(Inner)
class InnerTwin:
    @runtime_func
    def scale(self, x, w):
        return ("scale", x, w)


@runtime_module(Outer)
class OuterTwin:
    layers = ModuleList(InnerTwin, 2)
    last = InnerTwin

    def __init__(self):
        self._ready = sorted(self.weights)

    @runtime_func
    def step(self, x, y):
        return ("step", x, y)

    def _helper(self):
        return None


def diag(decorated):
    with pytest.raises(Refusal) as caught:
        decorated()
    (found,) = caught.value.diags
    assert found.span is not None and found.span.file == __file__
    return found


def test_weights_reach_their_functions():
    twin = OuterTwin({"layers.0.w": 10, "layers.1.w": 11, "last.w": 12})
    assert twin.layers[1].weights == {"w": 11} and twin._ready == []
    assert twin.last.scale("x") == ("scale", "x", 12)
    assert twin.last.scale("x", w=5) == ("scale", "x", 5)
    assert twin_declaration(InnerTwin).named_weights == {"scale": ("w",)}
    found = diag(lambda: InnerTwin().scale("x"))
    assert found.code == "twin-weight" and "w" in found.says


def test_the_modules_orchestration_is_the_twins():
    twin = OuterTwin({"layers.0.w": 10, "layers.1.w": 11, "last.w": 12})
    inner = ("scale", ("scale", "x", 10), 11)
    assert twin.forward("x") == ("step", inner, ("scale", inner, 12))


def test_a_twin_may_orchestrate_itself():
    @runtime_module(Outer)
    class Own:
        layers = ModuleList(InnerTwin, 2)
        last = InnerTwin

        @runtime_func
        def step(self, x, y):
            return None

        def forward(self, x):
            return "own"

    assert is_twin(Own) and Own().forward("x") == "own"


def test_a_twin_may_be_a_base_of_another():
    """With an ``__init__`` of its own, of its base, of both that call one another: the weights
    and children are those that were given."""

    @runtime_module(Outer)
    class Plain(OuterTwin):
        pass

    @runtime_module(Outer)
    class Calling(OuterTwin):
        def __init__(self):
            super().__init__()
            self._also = len(self.layers)

    given = {"layers.0.w": 1, "layers.1.w": 2, "last.w": 3, "own": 4}
    for cls in (Plain, Calling):
        made = cls(given)
        assert made.weights == {"own": 4} and made._ready == ["own"]
        assert [layer.weights for layer in made.layers] == [{"w": 1}, {"w": 2}]
        assert made.last.scale(0) == ("scale", 0, 3)
    assert Calling(given)._also == 2


def test_a_twin_of_no_module():
    def decorated():
        @runtime_module("Inner")
        class Bad:
            @runtime_func
            def scale(self, x):
                return x

    assert diag(decorated).code == "twin-module"


def test_a_refusal_names_the_class_of_the_twin():
    """The line of its decorator, where the class has no method, and where it has."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()

    def empty():
        @runtime_module(Outer)  # an empty one
        class Bad:
            pass

    def full():
        @runtime_module(Outer)  # a full one
        class Bad:
            layers = 3

            def _own(self):
                return None

    for decorated, mark in ((empty, "  # an empty one"), (full, "  # a full one")):
        span = diag(decorated).span
        assert lines[span.line - 1].endswith(f"@runtime_module(Outer){mark}")


def test_functions_must_match():
    def missing():
        @runtime_module(Inner)
        class Bad:
            def other(self, x):
                return x

    def surplus():
        @runtime_module(Inner)
        class Bad:
            @runtime_func
            def scale(self, x):
                return x

            @runtime_func
            def extra(self, x):
                return x

    found = diag(missing)
    assert found.code == "twin-functions"
    assert (found.expected, found.found) == ("scale", "none (missing: scale; surplus: none)")
    assert diag(surplus).found == "extra scale (missing: none; surplus: extra)"


def test_children_must_match():
    def child(**children):
        return lambda: runtime_module(Outer)(
            type("Bad", (), {"step": OuterTwin.__dict__["step"], **children})
        )

    @runtime_module(Outer)
    class Whole:
        layers = ModuleList(InnerTwin, 2)
        last = InnerTwin
        step = OuterTwin.__dict__["step"]

    for children in (
        {},
        {"layers": ModuleList(InnerTwin, 2)},
        {"layers": ModuleList(InnerTwin, 3), "last": InnerTwin},
        {"layers": ModuleList(InnerTwin, 2), "last": OuterTwin},
        {"layers": ModuleList(InnerTwin, 2), "last": InnerTwin, "more": InnerTwin},
        {"layers": InnerTwin, "last": InnerTwin},
    ):
        found = diag(child(**children))
        assert found.code == "twin-children"
        assert found.expected == "last: Inner, layers: ModuleList(Inner, 2)"


@pytest.mark.parametrize("method, seen", [
    (lambda self, x, z: x, "(self, x, z)"),
    (lambda self: 0, "(self)"),
    (lambda x, w: x, "(x, w)"),
    (lambda self, *x: x, "(self, *x)"),
])  # fmt: skip
def test_signatures_must_match(method, seen):
    def decorated():
        runtime_module(Inner)(type("Bad", (), {"scale": runtime_func(method)}))

    found = diag(decorated)
    assert found.code == "twin-signature"
    assert (found.expected, found.found) == ("(self, x), and any of w", seen)


def test_in_place_names_inputs_and_outputs():
    def declared(in_place):
        def scale(self, x, w):
            return x

        mark = runtime_func(in_place=in_place, static=True)
        return lambda: runtime_module(Inner)(type("Mine", (), {"scale": mark(scale)}))

    twin = twin_declaration(declared({"x": 0})())
    assert twin.in_place == {"scale": {"x": 0}} and twin.static == {"scale"}
    assert twin_declaration(InnerTwin).in_place == {} and not twin_declaration(InnerTwin).static
    for wrong in ({"z": 0}, {"w": 0}, {"x": -1}, {"x": "output"}):
        found = diag(declared(wrong))
        assert (found.code, found.found) == ("twin-in-place", repr(wrong))


def test_public_methods_are_the_modules():
    class Base:
        def load(self):
            return None

    def own():
        @runtime_module(Inner)
        class Bad:
            @runtime_func
            def scale(self, x):
                return x

            def evaluate(self):
                return None

    def inherited():
        @runtime_module(Inner)
        class Bad(Base):
            @runtime_func
            def scale(self, x):
                return x

    assert diag(own).found == "evaluate"
    assert diag(inherited).found == "load"


def test_importing_it_loads_no_torch():
    program = (
        "import sys, tilefoundry.runtime; print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, encoding="utf-8"
    )
    assert done.stdout == "False False\n", done.stderr
