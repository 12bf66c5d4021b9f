"""Programs written as text, loaded and priced."""

import textwrap
from dataclasses import dataclass

import pytest

from tilefoundry.analyze.function import Priced, price
from tilefoundry.analyze.report import analyze
from tilefoundry.lang.load import load_source
from tilefoundry.lang.parse import module_context

HEAD = """\
from tilefoundry.dsl import *
from tilefoundry.target import CpuTarget, CudaTarget

TARGET = CudaTarget("nvidia.h200_sxm")
"""


@dataclass
class Case:
    """One program file and the questions tests ask of it."""

    path: str

    def priced(self, level="cta", func=None, **dims) -> Priced:
        loaded = load_source(self.path, None, {})
        module = loaded.module
        target = module.target.load()
        context = module_context(module)
        return price(module, module.funcs[func or loaded.func], target, context, dims, level)

    def report(self, *families, topology=None, **dims):
        return analyze(load_source(self.path, None, {}), families, dims, topology)

    def head(self, family, *families, **dims):
        """The head lines of one family, as records."""
        report = self.report(*families, **dims)
        return [line.record() for line in report.head if line.family == family]

    def facts(self, *families, **dims):
        """(line of source, fact record) in order."""
        report = self.report(*families, **dims)
        return [(row.source.strip(), fact.record()) for row in report.rows for fact in row.facts]


@pytest.fixture
def program(tmp_path):
    """``program(body, topologies=..., entry=...)``: a module whose functions are ``body``."""
    made = []

    def write(body, cta=None, thread=None, target="TARGET", before="", entry="f"):
        sizes = [f'Topology("cta", {cta})'] * bool(cta) + [f'Topology("thread", {thread})'] * bool(
            thread
        )
        topologies = f"({', '.join(sizes)},)" if sizes else "()"
        text = HEAD + textwrap.dedent(before)
        text += f'\n@module(entry="{entry}", target={target}, topologies={topologies})\nclass M:\n'
        text += textwrap.indent(textwrap.dedent(body), "    ")
        path = tmp_path / f"program{len(made)}.py"
        path.write_text(text, encoding="utf-8")
        made.append(path)
        return Case(str(path))

    return write


@pytest.fixture
def case(request):
    """``case("gemm_grid")``: a program of ``tests/cases``, else of ``examples/gpu``."""
    tests = request.path.parent.parent
    folders = (tests / "cases", tests.parent / "examples" / "gpu")

    def found(name):
        return Case(next(str(p) for f in folders if (p := f / f"{name}.py").is_file()))

    return found
