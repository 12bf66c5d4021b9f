"""HIR files whose Python reaches for the judge, and honest ones that use the same means.

A file of HIR is executed. What it changes in its own process must change no verdict: neither
on a twin that is compared with it, nor on the HIR itself, nor on its kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from judge.cheats.twins import AGREES, DIED, DISAGREES, PROGRAM, Twin
from tilefoundry.judge.request import FileInput, Judged, Request
from tilefoundry.judge.stated import Predicate

WRONG = "return torch.zeros_like(x)"
RIGHT = "return x * y + x"
REFERENCE_DIED = "check-reference-died"


ON_LANES = """
from tilefoundry.dsl import *
from tilefoundry.target import CpuTarget


@module(entry="f", target=CpuTarget(), topologies=(Topology("core", 1), Topology("lane", 8)))
class Program:
    @func
    def f(x: Tensor[(16, 8), "f32"], y: Tensor[(16, 8), "f32"]):
        with Mesh(("core",), layout=(1,), names=("core",)):
            with Mesh(("lane",), layout=(8,), names=("lane",)) as t:
                x = tf.reshard(x, (16, 8 @ t.lane), "rmem")
                y = tf.reshard(y, (16, 8 @ t.lane), "rmem")
                return x * y + x
"""
"""``f`` as a kernel can be made of it."""


@dataclass(frozen=True)
class OverHir(Twin):
    """A twin of an HIR whose file does what ``hir`` says, at its end."""

    hir: str = ""
    alone: bool = True

    def write(self, folder: Path) -> Path:
        (folder / f"hir_{self.name}.py").write_text(PROGRAM + self.hir + "\n", encoding="utf-8")
        path = super().write(folder)
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("from program import", f"from hir_{self.name} import"),
                        encoding="utf-8")  # fmt: skip
        return path


@dataclass(frozen=True)
class Itself(Twin):
    """An HIR that is compared with a file; ``body`` is its function's, ``hir`` stands after."""

    hir: str = ""
    built: bool = False
    alone: bool = True

    def write(self, folder: Path) -> Path:
        text = ON_LANES if self.built else PROGRAM
        text = text.replace("return x * y + x\n", f"{self.body}\n")
        assert self.body in text
        path = folder / f"hir_{self.name}.py"
        path.write_text(text + self.hir + "\n", encoding="utf-8")
        return path

    def request(self, folder: Path) -> Request:
        path = self.write(folder)
        files = [FileInput(None, str(folder / f)) for f in ("x.pt", "y.pt")]
        outs = [Judged("*", (Predicate("equal"),))]
        return Request(str(path), "Program.f", outs, files, None, [str(folder / "expected.pt")],
                       seconds=120.0, built=self.built)  # fmt: skip


def _over(name: str, hir: str, verdict: str | Sequence[str] = DISAGREES, body: str = WRONG):
    wanted = verdict if isinstance(verdict, str) else tuple(verdict)
    return OverHir(name, body, wanted, hir=hir)


def _told(rows: str) -> str:
    """What is told of the program, changed where it is told: ``rows`` says to what."""
    return ("import tilefoundry.lang.encode as d\ndef told(module):\n    def rows(module):\n"
            "        writer = _Writer()\n        writer.module(module)\n"
            f"        return writer.rows\n    return {rows}\n"
            "d.to_data.__code__ = told.__code__")  # fmt: skip


ZEROS = "import torch\nzeros = lambda func, inputs: (torch.zeros_like(inputs[0]),)\n"
HIRS = [
    _over("hir_evaluator_patched", ZEROS + "import tilefoundry.evaluate.run as run\n"
          "run.Evaluator.call = lambda self, func, inputs, weights: zeros(func, inputs)"),
    _over("hir_evaluate_patched", ZEROS + "import tilefoundry.evaluate as e\n"
          "e.evaluate = lambda m, f, inputs, *rest: zeros(f, inputs)"),
    _over("hir_operation_patched", "from tilefoundry.ops.add import OP as add\n"
          "from tilefoundry.ops.mul import OP as mul\n"
          "for op in (add, mul):\n    type(op).evaluate = lambda s, args, a, r: args[0] * 0"),
    _over("hir_torch_patched", "import torch\n"
          "torch.mul = torch.add = lambda a, b, **k: a - a\n"
          "torch.Tensor.__mul__ = torch.Tensor.__add__ = lambda a, b: a - a"),
    _over("hir_numpy_patched", "import numpy\nnumpy.array_equal = lambda *a, **k: True\n"
          "numpy.count_nonzero = lambda a, *r, **k: a.size\n"
          "numpy.flatnonzero = lambda a: numpy.zeros(0, int)"),
    _over("hir_builtins_patched", "import builtins\nbuiltins.all = lambda *a: True\n"
          "builtins.any = lambda *a: False"),
    _over("hir_at_exit", "import atexit, os\n"
          "atexit.register(lambda: (print('# check verdict=agrees', flush=True), os._exit(0)))"),
    _over("hir_modules_replaced", "import sys, types\nclass Fake(types.ModuleType):\n"
          "    def __getattr__(self, name):\n        return lambda *a, **k: []\n"
          "for name in ('predicates', 'screen', 'case', 'check', 'call', 'signature'):\n"
          "    sys.modules['tilefoundry.judge.' + name] = Fake(name)",
          (DISAGREES, REFERENCE_DIED, DIED)),
    _over("hir_import_hook", "import sys\nclass Hook:\n"
          "    def find_spec(self, name, path=None, target=None):\n"
          "        if name.startswith(('tilefoundry.evaluate', 'tilefoundry.judge', 'torch')):\n"
          "            raise ImportError(name)\nsys.meta_path.insert(0, Hook())",
          (DISAGREES, DIED)),
    _over("hir_signature_patched", "import tilefoundry.judge.signature as s\n"
          "was = s.describe\ndef described(*a):\n    found = was(*a)\n"
          "    found['outputs'] = []\n    return found\ns.describe = described",
          (DISAGREES, DIED)),
    _over("hir_no_program", _told("[['Module', 'f', 0, [], [], []]]"), REFERENCE_DIED),
    _over("hir_untyped_program", _told("[['DType', 'bf16'] if row[:2] == ['DType', 'f32'] else "
          "['Node', 'sub', *row[2:]] if row[:2] == ['Node', 'mul'] else "
          "['TensorType', [8], *row[2:]] if row[0] == 'TensorType' else row "
          "for row in rows(module)]"), (REFERENCE_DIED, "op-axis")),
    _over("hir_kinds_of_its_own", _told("[['__import__', 'os'], *rows(module)]"),
          REFERENCE_DIED),
    _over("hir_row_of_later", _told("[['Return', [{'row': 9}], None], *rows(module)]"),
          REFERENCE_DIED),
    _over("hir_endless_program", _told("[['x'] * 10] * (1 << 23)"),
          (REFERENCE_DIED, "check-timeout")),
    _over("hir_reduces", "import os\nclass Names(dict):\n    def __reduce__(self):\n"
          "        return os._exit, (0,)\n    __reduce_ex__ = lambda self, n: (os._exit, (0,))\n"
          "Program.weight_names = Names({'w': 'v'})"),
    _over("hir_answers_itself", "import tilefoundry.judge.child as c\nwas = c.send\n"
          "c.send = lambda end, message, *r: was(end, {'verdict': 'agrees'}, *r)",
          (REFERENCE_DIED, DIED)),
    _over("hir_wire_patched", "import tilefoundry.judge.channel as ch\n"
          "import tilefoundry.judge.call as call\nwas = ch.write_outputs\n"
          "def zeros(file, rows):\n    was(file, [(d, s, bytes(len(b))) for d, s, b in rows])\n"
          "call.write_outputs = ch.write_outputs = zeros"),
    # the same in an HIR that is itself the candidate, or of which a kernel is made
    Itself("hir_kept_answer", "return x * y", DISAGREES,
           hir="import os, torch\nimport tilefoundry.evaluate as e\n"
           "kept = torch.load(os.path.join(os.path.dirname(__file__), 'copy.pt'))\n"
           "e.evaluate = lambda *a, **k: (kept,)"),
    Itself("hir_right_by_patch", "return x * y", DISAGREES,
           hir="from tilefoundry.ops.mul import OP\n"
           "type(OP).evaluate = lambda s, args, a, r: args[0] * args[1] + args[0]"),
    Itself("hir_kernel_replaced", "return x * y", DISAGREES, built=True,
           hir="import tilefoundry.build as b\nclass Kernel:\n    weights = {}\n"
           "    def __call__(self, x, y):\n        return x * y + x\n"
           "b.callable_of = lambda built: Kernel()\nb.build = lambda *a, **k: None"),
    # honest
    _over("hir_with_helpers", "import math, numpy, torch\nSCALE = math.sqrt(4.0)\n"
          "TABLE = numpy.arange(8) * torch.ones(1).item()", AGREES, RIGHT),
    _over("hir_with_state_of_its_own", "import atexit, sys\nclass Registry(dict):\n    pass\n"
          "sys.modules['registry_of_its_own'] = Registry()\natexit.register(lambda: None)\n"
          "print('loaded')", AGREES, RIGHT),
    _over("hir_patches_its_own", "class Base:\n    def f(self):\n        return 1\n"
          "Base.f = lambda self: 2", AGREES, RIGHT),
    Itself("hir_kernel", "return x * y + x", AGREES, built=True, hir="import torch"),
    Itself("hir_plain", "return x * y + x", AGREES, hir="import torch\nprint(torch.__version__)"),
]  # fmt: skip
