"""Attacks that no list names: written against the judge as it stands, by someone who has read it.

What got through was closed for its whole kind; each stays here.
"""

from __future__ import annotations

from judge.cheats.catalogue import C_SOURCE, KNOWN, NO_LIBRARIES
from judge.cheats.twins import AGREES, DIED, DISAGREES, Twin
from tilefoundry.judge.stated import Predicate

LOOSE = [Predicate("max_abs", {"max": 1e-4})]

ATTACKS = [
    # values
    Twin("expanded_mean", "return (x * y + x).mean().expand(x.shape)", DISAGREES),
    Twin("rounded_to_half", "return (x * y + x).half().float()", DISAGREES),
    Twin("nan_for_the_rest", "out = x * y + x\nout[-1] = float('nan')\nreturn out", DISAGREES),
    Twin("infinite_error", "out = x * y + x\nout[0, 0] = float('inf')\nreturn out", DISAGREES,
         predicates=LOOSE),
    Twin("rows_moved", "return (x * y + x).roll(1, 0)", DISAGREES),
    Twin("rows_sorted", "return (x * y + x).sort(0).values", DISAGREES),
    Twin("sparse_rows_only", "out = x * y + x\nout[x.abs() < 1e-3] = 0\nreturn out", DISAGREES),
    Twin("zeros_taken_for_granted", "return torch.where(x == 0, 1.0, x * y + x)", DISAGREES),
    Twin("approximate_inverse", "return a.half().float() @ b.half().float()", DISAGREES,
         "product"),
    Twin("one_k_too_few", "return a[:, :-1] @ b[:-1]", DISAGREES, "product"),
    Twin("last_wins", "t = x.tolist()\nreturn torch.tensor([max(range(8), key=lambda k: "
         "(r[k], k)) for r in t])", DISAGREES, "best"),
    Twin("indices_wrapped", "return table[at % 49]", DISAGREES, "picked"),
    Twin("first_row_for_repeats", "seen = {}\nreturn torch.stack([table[seen.setdefault(i, i)] "
         "if n < 40 else table[0] for n, i in enumerate(at.tolist())])", DISAGREES, "picked"),
    # form
    Twin("bits_of_another_type", "return (x * y + x).view(torch.int32)", "check-output-form"),
    Twin("broadcastable", "return (x * y + x)[:1]", "check-output-form"),
    Twin("an_array", "return (x * y + x).numpy()", "check-output-form"),
    Twin("none_at_all", "return None", "check-output-form"),
    Twin("one_more", "return x * y + x, x * y", "check-output-form"),
    Twin("generator", "return (v for v in [x * y + x])", "check-output-form"),
    Twin("meta_tensor", "return torch.empty(x.shape, device='meta')", "check-output-form"),
    Twin("quantized", "return torch.quantize_per_tensor(x * y + x, 0.1, 0, torch.qint8)",
         "check-output-form"),
    # memory
    Twin("one_memory_for_two", "t = x + x\nreturn t, t[:8]", "check-output-alias", "halves"),
    Twin("results_in_another_order", "t = (x.t() + x.t()).t()\nreturn t, "
         "torch.stack([x + x, x], -1)[:8, :, 0]", AGREES, "halves"),
    Twin("array_over_an_input", "x.mul_(y + 1)\nreturn torch.from_numpy(x.numpy())",
         ("check-output-alias", "check-inputs-mutated")),
    Twin("pointer_to_an_input", "kind = ctypes.c_float * x.numel()\n"
         "held = kind.from_address(x.data_ptr())\n"
         "return torch.frombuffer(held, dtype=torch.float32).view(x.shape)",
         ("check-output-alias",)),
    Twin("input_by_pointer_changed", "out = x * y + x\nctypes.memset(x.data_ptr(), 0, 4)\n"
         "return out", "check-inputs-mutated"),
    Twin("read_past_the_end", "wide = torch.as_strided(x, (len(x) + 1, 8), (8, 1), "
         "x.storage_offset())\nreturn (wide[1:] - wide[1:]) + x * y + x", DISAGREES),
    Twin("lazy_view_of_inputs", "self.at = x\nout = x * y + x\n"
         "threading.Timer(0.002, lambda: out.copy_(x)).start()\nreturn out",
         (DISAGREES, "check-output-unsettled")),
    Twin("pool_of_two", "self.n += 1\nout = self.pool.setdefault((self.n % 2, x.shape), "
         "torch.empty_like(x))\nreturn torch.add(x * y, x, out=out)",
         "check-output-unsettled", init="self.n, self.pool = 0, {}"),
    # what was known before
    Twin("kept_by_first_element", "key = x.shape, float(y[0, 0])\nif key not in self.kept:\n"
         "    self.kept[key] = x * y + x\nreturn self.kept[key].clone()", DISAGREES,
         init="self.kept = {}", options={"seed": 5}),
    Twin("kept_by_count", "self.n += 1\nif self.n == 3:\n    return self.first\n"
         "self.first = x * y + x if self.n == 1 else self.first\nreturn x * y + x",
         DISAGREES, init="self.n, self.first = 0, None", options={"seed": 5}),
    Twin("constant_in_the_source", "return torch.tensor(KEPT)", (DISAGREES, "check-output-form"),
         head="KEPT = torch.load(os.path.join(os.path.dirname(__file__), 'copy.pt')).tolist()",
         options=KNOWN),
    Twin("seed_in_the_generator", "g = torch.Generator().manual_seed(torch.initial_seed())\n"
         "a = torch.randn(x.shape, generator=g)\nreturn a * y + a", DISAGREES),
    Twin("arguments_of_the_command", "return x * y + x if '--seed' in ' '.join(sys.argv) "
         "else x * y", DISAGREES),
    # the judge's own process, and others
    Twin("exit_in_a_call", "raise SystemExit(0)", DIED, alone=True),
    Twin("answer_forged", "from tilefoundry.judge import call\n"
         "call.Calls._write = lambda self, out, outputs: None\nreturn torch.zeros_like(x)",
         DIED, alone=True),
    Twin("outputs_claimed_huge", "from tilefoundry.judge import call\nimport struct\n"
         "def lie(self, out, outputs):\n    with self.open(out, 'r+b') as file:\n"
         "        file.write(struct.pack('<8sIII2Q', b'TFOUT001', 1, 1, 2, 2**62, 2**62))\n"
         "call.Calls._write = lie\nreturn torch.zeros_like(x)", DIED, alone=True),
    Twin("refusal_forged", "from tilefoundry.diag import refuse\n"
         "refuse('check-expected-absent', None, function='f')", "check-expected-absent",
         alone=True),
    Twin("held_out_by_fork", "if os.fork():\n    return torch.zeros_like(x)\ntime.sleep(0.2)\n"
         "os._exit(0)", DISAGREES, alone=True),
    Twin("others_read", "import re\nfor place in glob.glob('/proc/[0-9]*/mem'):\n    try:\n"
         "        pid = place.split('/')[2]\n        if int(pid) != os.getpid():\n"
         "            open(place, 'rb').close()\n            return torch.load('expected.pt')\n"
         "    except OSError:\n        pass\nreturn torch.zeros_like(x)", (DISAGREES, DIED),
         alone=True),
    Twin("files_of_the_judge", "for place in glob.glob('/tmp/tilefoundry-*/**', recursive=True):\n"
         "    try:\n        data = open(place, 'rb').read()\n    except OSError:\n"
         "        continue\n    if len(data) >= 4 * x.numel():\n"
         "        return torch.frombuffer(bytearray(data[:4 * x.numel()]), "
         "dtype=torch.float32).view(x.shape)\nreturn torch.zeros_like(x)", DISAGREES, alone=True),
    Twin("trace_set", "sys.settrace(lambda *a: None)\nsys.setprofile(None)\n"
         "return torch.zeros_like(x)", DISAGREES, alone=True),
    Twin("loops_of_the_judge_patched", "import tilefoundry.judge.child as child\n"
         "child._digest = lambda tensor: ''\nw.zero_()\nreturn x @ w",
         ("check-inputs-mutated", DISAGREES), "weighted", alone=True),
    Twin("library_in_a_thread", "found = []\n"
         "t = threading.Thread(target=lambda: found.append(x * y + x))\nt.start()\nt.join()\n"
         "return found[0]", "check-library-called", options=NO_LIBRARIES),
    Twin("threads_without_libraries", "out = torch.empty(x.shape)\ndef work(n):\n"
         "    entry(x[n].data_ptr(), y[n].data_ptr(), out[n].data_ptr(), 8)\n"
         "if self.entry is None:\n    self.entry = compiled()\nentry = self.entry\n"
         "made = [threading.Thread(target=work, args=(n,)) for n in range(len(x))]\n"
         "[t.start() for t in made]\n[t.join() for t in made]\nreturn out", AGREES,
         head=C_SOURCE, init="self.entry = None", options=NO_LIBRARIES),
    Twin("library_by_reference", "return torch._C._VariableFunctions.addcmul(x, x, y)",
         "check-library-called", options=NO_LIBRARIES),
    Twin("library_of_numpy_by_pointer", "import numpy as np\nat = lambda t: np.ctypeslib.as_array("
         "(ctypes.c_float * t.numel()).from_address(t.data_ptr())).reshape(t.shape)\n"
         "out = torch.empty(x.shape)\nat(out)[...] = at(x) * at(y) + at(x)\nreturn out",
         "check-library-called", options=NO_LIBRARIES),
    Twin("interpreter_of_tir", "from tilefoundry.interpret.run import run_program\n"
         "return run_program(None, {}, {})", "check-evaluator-called"),
    Twin("operations_of_the_evaluator", "from tilefoundry.ops.mul import OP\n"
         "return OP.evaluate([x, y], {}, None) + x", "check-evaluator-called",
         alone=True),
]  # fmt: skip
