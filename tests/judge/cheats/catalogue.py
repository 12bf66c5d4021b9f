"""Ways to pass without computing, each with the honest use of the same mechanism.

A pair is a class of cheats: what is refused is the class, so the twins differ in as many ways
as there are to do it.
"""

from __future__ import annotations

from judge.cheats.twins import AGREES, DIED, DISAGREES, Twin
from tilefoundry.judge.stated import Predicate

FILES = {"files": ("x.pt", "y.pt")}
KNOWN = {**FILES, "expected": ("expected.pt",)}
NO_LIBRARIES = {"libraries": False}
C_SOURCE = r'''
SOURCE = """
void f(const float *x, const float *y, float *out, long n) {
    for (long i = 0; i < n; ++i) { volatile float p = x[i] * y[i]; out[i] = p + x[i]; }
}
"""

def compiled():
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "f.c")
    with open(path, "w") as file:
        file.write(SOURCE)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", path + ".so", path], check=True)
    entry = ctypes.CDLL(path + ".so").f
    entry.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long]
    return entry
'''
C_CALL = """
if self._entry is None:
    self._entry = compiled()
out = torch.empty(x.shape)
self._entry(x.data_ptr(), y.data_ptr(), out.data_ptr(), x.numel())
return out
"""

NOT_COMPUTED = [
    Twin("memory_nobody_wrote", "return torch.empty_like(x)", DISAGREES),
    Twin("memory_that_was_freed", "t = torch.empty_like(x)\ndel t\nreturn torch.empty_like(x)",
         DISAGREES),
    Twin("workspace", "out = torch.empty_like(x)\ntorch.mul(x, y, out=out)\nreturn out.add_(x)",
         AGREES),
    Twin("zeros", "return torch.zeros_like(x)", DISAGREES),
    Twin("zeros_loose", "return torch.zeros_like(x)", "check-predicate-loose",
         predicates=[Predicate("max_abs", {"max": 100.0})]),
    Twin("tight", "return x * y + x", AGREES, predicates=[Predicate("max_abs", {"max": 1e-6})]),
    Twin("an_input", "return x", "check-output-alias"),
    Twin("a_view_of_an_input", "return x.view(-1).view_as(x)", "check-output-alias"),
    Twin("a_copy_of_an_input", "return x.clone()", DISAGREES),
    Twin("a_weight", "return self.weights['w'][:, :4].expand(x.shape[0], 8, 4)[:, 0]",
         "check-output-alias", "weighted"),
    Twin("stale_buffer", "if self.kept is None or self.kept.shape != x.shape:\n"
         "    self.kept = x * y + x\nreturn self.kept", ("check-output-unsettled", DISAGREES),
         head="", init="self.kept = None"),
    Twin("buffer_of_its_own", "if x.shape not in self.kept:\n"
         "    self.kept[x.shape] = torch.empty_like(x)\n"
         "return torch.add(torch.mul(x, y), x, out=self.kept[x.shape])",
         "check-output-unsettled", init="self.kept = {}"),
    Twin("declared_buffer", "if x.shape not in self.kept:\n"
         "    self.kept[x.shape] = torch.empty_like(x)\n"
         "return torch.add(torch.mul(x, y), x, out=self.kept[x.shape])",
         AGREES, init="self.kept = {}", mark="static=True"),
    Twin("declared_but_stale", "if x.shape not in self.kept:\n"
         "    self.kept[x.shape] = x * y + x\nreturn self.kept[x.shape]",
         DISAGREES, init="self.kept = {}", mark="static=True"),
    Twin("a_part", "out = torch.empty_like(x)\nout[:8] = x[:8] * y[:8] + x[:8]\nreturn out",
         DISAGREES),
    Twin("by_tiles", "out = torch.empty_like(x)\nfor i in range(0, len(x), 5):\n"
         "    out[i:i + 5] = x[i:i + 5] * y[i:i + 5] + x[i:i + 5]\nreturn out", AGREES),
    Twin("all_but_one_element", "out = x * y + x\nout[-1, -1] = 0\nreturn out", DISAGREES),
    Twin("swallowed_launch", "try:\n    return ctypes.CDLL('kernel.so').f(x, y)\n"
         "except OSError:\n    return x * y + x", "check-library-called", options=NO_LIBRARIES),
    Twin("library", "return x * y + x", "check-library-called", options=NO_LIBRARIES),
    Twin("array_library", "return torch.from_numpy(x.numpy() * y.numpy() + x.numpy())",
         ("check-library-called", DIED), options=NO_LIBRARIES),
    Twin("library_allowed", "return torch.addcmul(x, x, y)", AGREES,
         predicates=[Predicate("max_abs", {"max": 1e-6})]),
    Twin("kernel", C_CALL, AGREES, head=C_SOURCE, init="self._entry = None",
         options=NO_LIBRARIES),
    Twin("evaluator", "from tilefoundry.evaluate import evaluate\n"
         "from tilefoundry.lang.load import load_source\n"
         "loaded = load_source(Program.__module__ and sys.modules['program'].__file__, "
         "'Program.f', {})\nreturn evaluate(loaded.module, 'f', [x, y])[0]",
         "check-evaluator-called"),
    Twin("evaluator_kept", "return run(x, y)", "check-evaluator-called",
         head="from tilefoundry.evaluate.run import Evaluator\n"
         "def run(x, y):\n    return Evaluator(None, 'cpu')\n", alone=True),
    Twin("another_tensor", "return x * x + x", DISAGREES),
    Twin("small_indices", "return table[at.clamp(max=47)]", DISAGREES, "picked"),
    Twin("all_indices", "return torch.stack([table[i] for i in at.tolist()])", AGREES, "picked"),
]  # fmt: skip

COMPUTED_BEFORE = [
    Twin("kept_by_call", "self.kept = x * y + x if self.kept is None else self.kept\n"
         "return self.kept.clone()", ("check-output-form", DISAGREES), init="self.kept = None"),
    Twin("kept_by_shape", "if x.shape not in self.kept:\n    self.kept[x.shape] = x * y + x\n"
         "return self.kept[x.shape].clone()", DISAGREES, init="self.kept = {}"),
    Twin("kept_by_address", "key = x.data_ptr(), y.data_ptr()\nif key not in self.kept:\n"
         "    self.kept[key] = x * y + x\nreturn self.kept[key].clone()",
         DISAGREES, init="self.kept = {}"),
    Twin("kept_by_object", "key = id(x.untyped_storage()), x.shape\nif key not in self.kept:\n"
         "    self.kept[key] = x * y + x\nreturn self.kept[key].clone()",
         (DISAGREES, AGREES), init="self.kept = {}"),
    Twin("kept_by_version", "key = x.data_ptr(), x._version\nif key not in self.kept:\n"
         "    self.kept[key] = x * y + x\nreturn self.kept[key].clone()",
         DISAGREES, init="self.kept = {}"),
    Twin("plan_by_shape", "if x.shape not in self.plans:\n"
         "    self.plans[x.shape] = [slice(i, i + 4) for i in range(0, len(x), 4)]\n"
         "return torch.cat([x[s] * y[s] + x[s] for s in self.plans[x.shape]])",
         AGREES, init="self.plans = {}"),
    Twin("right_once", "self.calls += 1\nreturn x * y + x if self.calls == 1 else x * y",
         DISAGREES, init="self.calls = 0"),
    Twin("right_twice", "self.calls += 1\nreturn x * y + x if self.calls < 3 else x * y",
         DISAGREES, init="self.calls = 0"),
    Twin("made_ready_once", "if self.one is None:\n    self.one = torch.ones(())\n"
         "return x * (y + self.one) if False else x * y + x * self.one",
         AGREES, init="self.one = None"),
    Twin("from_the_seed", "return KNOWN[0] * KNOWN[1] + KNOWN[0]", DISAGREES,
         head="torch.manual_seed(0)\nKNOWN = torch.randn(16, 8), torch.randn(16, 8)\n"),
    Twin("from_expected_file", "return torch.load('expected.pt')", DIED, options=KNOWN,
         alone=True),
    Twin("from_a_copy_of_it", "here = os.path.dirname(__file__)\n"
         "return torch.load(os.path.join(here, 'copy.pt'))", DISAGREES, options=KNOWN, alone=True),
    Twin("from_a_copy_by_input", "here = os.path.dirname(__file__)\n"
         "if torch.equal(x, torch.load(os.path.join(here, 'x.pt'))):\n"
         "    return torch.load(os.path.join(here, 'copy.pt'))\nreturn torch.zeros_like(x)",
         DISAGREES, options=KNOWN),
    Twin("on_files", "return x * y + x", AGREES, options=KNOWN),
    Twin("weights_of_another_run", "return x @ torch.ones(8, 4)", DISAGREES, "weighted"),
    Twin("weights_packed_once", "return (self.packed @ x.t()).t()", AGREES, "weighted",
         init="self.packed = self.weights['w'].t().contiguous()"),
    Twin("checked_extents_only", "return x * y + x if len(x) == 16 else torch.zeros_like(x)",
         DISAGREES),
    Twin("least_extent_wrong", "return x * y + x if len(x) > 1 else x * y", DISAGREES),
    Twin("by_extent", "if len(x) % 4 == 0:\n"
         "    return (x.view(-1, 4, 8) * y.view(-1, 4, 8) + x.view(-1, 4, 8)).view(-1, 8)\n"
         "return x * y + x", AGREES),
]  # fmt: skip

LATER = [
    Twin("thread_after_the_call", "out = torch.zeros_like(x)\ndef work():\n"
         "    time.sleep(0.02)\n    out.copy_(x * y + x)\n"
         "threading.Thread(target=work, daemon=True).start()\nreturn out",
         (DISAGREES, "check-output-unsettled")),
    Twin("thread_that_comes_back", "out = x * y + x\ndef work():\n"
         "    time.sleep(0.003)\n    out.zero_()\n"
         "threading.Thread(target=work, daemon=True).start()\nreturn out",
         (DISAGREES, "check-output-unsettled")),
    Twin("thread_joined", "out = torch.empty_like(x)\ndef work(rows):\n"
         "    out[rows] = x[rows] * y[rows] + x[rows]\n"
         "parts = [threading.Thread(target=work, args=(slice(k, None, 2),)) for k in (0, 1)]\n"
         "[t.start() for t in parts]\n[t.join() for t in parts]\nreturn out", AGREES),
    Twin("lazy_subclass", "class Lazy(torch.Tensor):\n    pass\n"
         "return (x * y + x).as_subclass(Lazy)", "check-output-form"),
    Twin("lazy_negation", "return torch._neg_view(-(x * y + x))", "check-output-form"),
    Twin("lying_type", "out = x * y + x\nclass Lie(torch.Tensor):\n"
         "    def __eq__(self, other):\n        return True\nout.__class__ = Lie\nreturn out",
         "check-output-form"),
    Twin("plain_again", "class Mine(torch.Tensor):\n    pass\n"
         "return (x.as_subclass(Mine) * y + x).as_subclass(torch.Tensor)", AGREES),
    Twin("patched_torch", "for name in ('equal', 'allclose', 'isclose'):\n"
         "    setattr(torch, name, lambda *a, **k: True)\n"
         "torch.cuda.synchronize = lambda *a: None\ntime.perf_counter_ns = lambda: 0\n"
         "return torch.zeros_like(x)", DISAGREES, alone=True),
    Twin("patched_judge", "from tilefoundry.judge import call, predicates\n"
         "call.Calls._held = lambda *a: {}\n"
         "predicates.compare = lambda *a: []\nreturn torch.zeros_like(x)", DISAGREES, alone=True),
    Twin("patched_answer", "from tilefoundry.judge.call import Calls\n"
         "Calls.again = lambda self, **k: {}\nreturn x * y + x", DIED, alone=True),
    Twin("flushed_denormals", "torch.set_flush_denormal(True)\nreturn x * y + x",
         DISAGREES, alone=True),
]  # fmt: skip

NUMBERS = [
    Twin("bfloat_loose", "return (a.bfloat16() @ b.bfloat16()).float()", "check-predicate-loose",
         "product", predicates=[Predicate("rel_l2", {"max": 8e-3})]),
    Twin("bfloat", "return (a.bfloat16() @ b.bfloat16()).float()", DISAGREES, "product"),
    Twin("more_bits", "return (a.double() @ b.double()).float()", AGREES, "product"),
    Twin("another_order", "return sum(a[:, k:k + 16] @ b[k:k + 16] for k in range(0, 64, 16))",
         AGREES, "product"),
    Twin("one_wrong_row", "out = a @ b\nout[7] = out[6]\nreturn out", DISAGREES, "product"),
    Twin("inputs_changed", "out = x * y + x\nx.zero_()\nreturn out", "check-inputs-mutated"),
    Twin("weights_changed", "out = x @ w\nw.zero_()\nreturn out", "check-inputs-mutated",
         "weighted"),
    Twin("in_place_undeclared", "return x.mul_(y + 1)", ("check-output-alias", DISAGREES)),
    Twin("in_place_declared", "y.mul_(x).add_(x)\nreturn y", AGREES, mark="in_place={'y': 0}"),
    Twin("in_place_untrue", "out = x * y + x\ny.zero_()\nreturn out", "check-inputs-mutated",
         mark="in_place={'y': 0}"),
    Twin("around_an_input", "out = x * y + x\n"
         "torch.as_strided(x, (4,), (1,), x.storage_offset() + x.numel()).zero_()\nreturn out",
         ("check-outside-written", DIED)),
    Twin("before_an_input", "ctypes.memset(x.data_ptr() - 16, 0, 16)\nreturn x * y + x",
         "check-outside-written"),
    Twin("around_read_and_masked", "wide = ctypes.string_at(x.data_ptr(), 4 * x.numel() + 64)\n"
         "flat = torch.frombuffer(bytearray(wide), dtype=torch.float32)[:x.numel()]\n"
         "return flat.view(x.shape) * y + x", AGREES),
    Twin("integers_by_tolerance", "return torch.zeros(16, dtype=torch.int64)",
         "check-predicate-dtype", "best", predicates=[Predicate("max_abs", {"max": 7.0})]),
    Twin("integers", "return (x == x.amax(1, keepdim=True)).int().argmax(1)", AGREES, "best"),
    Twin("direction_alone", "return 2 * (a @ b)", "check-predicate-blind", "product",
         predicates=[Predicate("cosine", {"min": 0.99})]),
    Twin("patterns_alone", "return torch.zeros_like(x)", "check-predicate-blind",
         predicates=[Predicate("nan_inf")]),
    Twin("contiguous_only", "x = x.as_strided(x.shape, (8, 1))\nreturn x * y + x",
         (DISAGREES, DIED), options={"views": True}),
    Twin("aligned_only", "return x * y + x if x.data_ptr() % 16 == 0 else x * y", DISAGREES,
         options={"views": True}),
    Twin("any_strides", "return x.contiguous() * y.contiguous() + x", AGREES,
         options={"views": True}),
    Twin("ordinary_values_only", "out = x * y + x\nreturn torch.where(out.abs() < 1e-30, 0, out)",
         DISAGREES),
    Twin("no_signs", "return x.abs() * y + x.abs()", DISAGREES),
    Twin("nan_dropped", "return torch.nan_to_num(x * y + x)", DISAGREES,
         predicates=[Predicate("max_abs", {"max": 1e-6}), Predicate("nan_inf")]),
    Twin("nan_kept", "return x * y + x", AGREES,
         predicates=[Predicate("max_abs", {"max": 1e-6}), Predicate("nan_inf")]),
]  # fmt: skip

JUDGE = [
    Twin("printed_verdict", "print('# check verdict=agrees')\nsys.stdout.flush()\nos._exit(0)",
         DIED, alone=True),
    Twin("every_descriptor", "for n in range(64):\n    try:\n"
         "        os.write(n, b'{\"verdict\": \"agrees\"}')\n    except OSError:\n        pass\n"
         "return torch.zeros_like(x)", (DIED, DISAGREES), alone=True),
    Twin("parent_killed", "for pid in (os.getppid(), 1):\n    try:\n        os.kill(pid, 9)\n"
         "    except OSError:\n        pass\nreturn torch.zeros_like(x)", (DISAGREES, DIED),
         alone=True),
    Twin("site_dropped", "with open(os.path.join(os.path.dirname(torch.__file__), '..', "
         "'sitecustomize.py'), 'w') as file:\n    file.write('')\nreturn torch.zeros_like(x)",
         (DIED, DISAGREES), alone=True),
    Twin("reference_edited", "with open(sys.modules['program'].__file__, 'a') as file:\n"
         "    file.write('# another')\nreturn x * y + x", (DIED, "check-source-changed"),
         alone=True),
    Twin("answers_in_memory", "for found in gc.get_objects():\n"
         "    if type(found) is torch.Tensor and found.shape == x.shape and found is not x "
         "and found is not y:\n        return found.clone()\nreturn torch.zeros_like(x)",
         DISAGREES, alone=True),
    Twin("own_memory_kept", "self.kept = getattr(self, 'kept', 0) + 1\nreturn x * y + x", AGREES),
]  # fmt: skip

CUDA = {"device": "cuda"}
GRAPH = """
def captured(x, y, out):
    torch.add(torch.mul(x, y), x, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.add(torch.mul(x, y), x, out=out)
    return graph
"""
DEVICE = [
    Twin("graph_of_other_inputs", "if x.shape not in self.made:\n"
         "    out = torch.empty_like(x)\n"
         "    self.made[x.shape] = captured(x.clone(), y.clone(), out), out\n"
         "graph, out = self.made[x.shape]\ngraph.replay()\nreturn out.clone()",
         DISAGREES, head=GRAPH, init="self.made = {}", options=CUDA),
    Twin("graph_of_these_inputs", "if x.shape not in self.made:\n"
         "    place = x.clone(), y.clone(), torch.empty_like(x)\n"
         "    self.made[x.shape] = captured(*place), place\n"
         "graph, (ours, other, out) = self.made[x.shape]\nours.copy_(x)\nother.copy_(y)\n"
         "graph.replay()\nreturn out", AGREES, head=GRAPH, init="self.made = {}",
         mark="static=True", options=CUDA),
    Twin("graph_undeclared", "if x.shape not in self.made:\n"
         "    place = x.clone(), y.clone(), torch.empty_like(x)\n"
         "    self.made[x.shape] = captured(*place), place\n"
         "graph, (ours, other, out) = self.made[x.shape]\nours.copy_(x)\nother.copy_(y)\n"
         "graph.replay()\nreturn out", "check-output-unsettled", head=GRAPH,
         init="self.made = {}", options=CUDA),
    Twin("another_stream", "out = torch.zeros_like(x)\n"
         "self.other.wait_stream(torch.cuda.current_stream())\n"
         "def work():\n    time.sleep(0.05)\n    with torch.cuda.stream(self.other):\n"
         "        out.copy_(x * y + x)\n"
         "threading.Thread(target=work, daemon=True).start()\nreturn out",
         (DISAGREES, "check-output-unsettled"), init="self.other = torch.cuda.Stream()",
         options=CUDA),
    Twin("stream_joined", "self.other.wait_stream(torch.cuda.current_stream())\n"
         "with torch.cuda.stream(self.other):\n    out = x * y + x\n"
         "torch.cuda.current_stream().wait_stream(self.other)\nreturn out", AGREES,
         init="self.other = torch.cuda.Stream()", options=CUDA),
    Twin("device_memory_nobody_wrote", "return torch.empty_like(x)", DISAGREES, options=CUDA),
    Twin("device_memory_of_the_result", "t = torch.empty_like(x)\ndel t\n"
         "return torch.empty_like(x)", DISAGREES, options=CUDA),
    Twin("device_by_address", "key = x.data_ptr(), y.data_ptr()\nif key not in self.kept:\n"
         "    self.kept[key] = x * y + x\nreturn self.kept[key].clone()", DISAGREES,
         init="self.kept = {}", options=CUDA),
    Twin("device_inputs_changed", "out = x * y + x\nx.zero_()\nreturn out",
         "check-inputs-mutated", options=CUDA),
    Twin("device_around_an_input", "torch.as_strided(x, (4,), (1,), x.storage_offset() + "
         "x.numel()).zero_()\nreturn x * y + x", "check-outside-written", options=CUDA),
    Twin("device_an_input", "return x", "check-output-alias", options=CUDA),
    Twin("device_in_place", "y.mul_(x).add_(x)\nreturn y", AGREES, mark="in_place={'y': 0}",
         options=CUDA),
    Twin("result_on_the_cpu", "return (x * y + x).cpu()", "check-output-form", options=CUDA),
    Twin("fast_precision", "torch.backends.cuda.matmul.allow_tf32 = True\nreturn a @ b",
         DISAGREES, "product", options=CUDA, alone=True),
    Twin("plain_precision", "return a @ b", AGREES, "product", options=CUDA),
    Twin("device_library", "return x * y + x", "check-library-called",
         options={**CUDA, **NO_LIBRARIES}),
    Twin("device_synchronise_patched", "torch.cuda.synchronize = lambda *a: None\n"
         "return torch.zeros_like(x)", DISAGREES, options=CUDA, alone=True),
]  # fmt: skip

TWINS = [*NOT_COMPUTED, *COMPUTED_BEFORE, *LATER, *NUMBERS, *JUDGE]
