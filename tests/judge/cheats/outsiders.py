"""More attacks that no list names: on the process and its numbers, on memory that others hold,
on what is said and by whom; each kind with its honest use."""

from __future__ import annotations

from judge.cheats.catalogue import C_CALL, C_SOURCE, KNOWN
from judge.cheats.twins import AGREES, DIED, DISAGREES, Twin

UNSETTLED = (DISAGREES, "check-output-unsettled")
WHOLE = "whole = x * y + x\n"
FLUSH = """
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
"""


def _in_mode(before: str, after: str = "") -> str:
    """The function in C, with statements before and after what it computes."""
    headers = "#include <fenv.h>\n#if defined(__x86_64__)\n#include <xmmintrin.h>\n#endif\n"
    text = C_SOURCE.replace("void f(", headers + "void f(")
    text = text.replace("    for (long", f"    {before}\n    for (long")
    return text.replace("p + x[i]; }\n", f"p + x[i]; }}\n    {after}\n")


SHARED = ("place = os.path.join(tempfile.mkdtemp(), 'out')\n"
          "out = torch.from_file(place, shared=True, size=x.numel()).view(x.shape)\n"
          "out.copy_(x * y + x)\n")  # fmt: skip
SCAN = """
def scanned(x, *patterns):
    for pattern in patterns:
        for place in glob.glob(pattern, recursive=True):
            try:
                with open(place, 'rb') as file:
                    data = file.read(1 << 20)
            except OSError:
                continue
            for at in range(0, max(0, len(data) - 4 * x.numel() + 1), 64):
                part = data[at:at + 4 * x.numel()]
                found = torch.frombuffer(bytearray(part), dtype=torch.float32).view(x.shape)
                if not torch.equal(found, x) and found.isfinite().all() and found.std() > 0.5:
                    return found
    return torch.zeros_like(x)
"""

OUTSIDERS = [
    # how the processor rounds
    Twin("rounding_upward", C_CALL, DISAGREES, head=_in_mode("fesetround(FE_UPWARD);"),
         init="self._entry = None", alone=True),
    Twin("rounding_put_back", C_CALL, AGREES, init="self._entry = None",
         head=_in_mode("fesetround(FE_UPWARD); fesetround(FE_TONEAREST);")),
    Twin("subnormals_flushed_by_the_processor", C_CALL, DISAGREES, head=_in_mode(FLUSH),
         init="self._entry = None", alone=True),
    Twin("settings_that_change_nothing", "torch.set_num_threads(1)\n"
         "torch.use_deterministic_algorithms(True)\ntorch.set_default_dtype(torch.float64)\n"
         "out = x * y + x\ntorch.set_default_dtype(torch.float32)\n"
         "torch.use_deterministic_algorithms(False)\nreturn out", AGREES),
    Twin("type_by_default", "torch.set_default_dtype(torch.bfloat16)\n"
         "out = torch.empty(x.shape).copy_(x * y + x).float()\n"
         "torch.set_default_dtype(torch.float32)\nreturn out", DISAGREES),
    # memory that others hold
    Twin("file_that_another_process_writes", SHARED + "if not os.fork():\n    time.sleep(0.005)\n"
         "    out.zero_()\n    os._exit(0)\nreturn out", UNSETTLED, alone=True),
    Twin("file_of_its_own", SHARED + "return out", AGREES),
    Twin("alarm_that_writes_later", WHOLE + "import signal\n"
         "signal.signal(signal.SIGALRM, lambda *a: whole.zero_())\n"
         "signal.setitimer(signal.ITIMER_REAL, 0.0005)\nreturn whole",
         (*UNSETTLED, DIED), alone=True),
    Twin("collector_that_writes_later", WHOLE + "gc.callbacks.append(lambda *a: whole.zero_())\n"
         "gc.set_threshold(1)\nreturn whole", (*UNSETTLED, DIED), alone=True),
    Twin("written_back_by_a_finalizer", "import weakref\n" + WHOLE +
         "class Held:\n    pass\nheld = Held()\nweakref.finalize(held, whole.zero_)\n"
         "self.held, out = getattr(self, 'held', None), whole\nself.held = held\nreturn out",
         "check-output-unsettled"),
    Twin("protected_from_poison", "if self.at is None or self.at.shape != x.shape:\n"
         "    import mmap\n    raw = mmap.mmap(-1, 1 << 14)\n"
         "    flat = torch.frombuffer(raw, dtype=torch.float32)[:x.numel()].view(x.shape)\n"
         "    flat.copy_(x * y + x)\n"
         "    ctypes.CDLL(None).mprotect(ctypes.c_void_p(flat.data_ptr()), 1 << 14, 1)\n"
         "    self.at = flat\nreturn self.at", (DIED, *UNSETTLED), init="self.at = None",
         alone=True),
    Twin("storage_without_memory", WHOLE + "whole.untyped_storage().resize_(0)\nreturn whole",
         (DIED, DISAGREES), alone=True),
    Twin("one_row_for_all", "out = x * y + x\nreturn out.as_strided(out.shape, (0, 1))", DISAGREES),
    Twin("within_a_large_workspace", "space = torch.empty(1 << 20)\n"
         "out = space[12345:12345 + x.numel()].view(x.shape)\nout.copy_(x * y + x)\nreturn out",
         AGREES),
    Twin("address_that_lies", "was = torch.Tensor.data_ptr\n"
         "torch.Tensor.data_ptr = lambda self: was(self) if self.numel() < 8 else 1 << 40\n"
         "return x.mul_(y).add_(x)",
         ("check-output-alias", "check-inputs-mutated", DISAGREES, DIED), alone=True),
    Twin("set_on_an_input", "out = torch.empty(0)\nout.set_(x.untyped_storage(), "
         "x.storage_offset(), x.shape, x.stride())\nreturn out.mul_(y + 1)",
         ("check-output-alias", "check-inputs-mutated", DISAGREES)),
    # results that are not there
    Twin("list_that_computes", "class Later(list):\n    def __iter__(self):\n"
         "        yield x * y + x\nreturn Later()", "check-output-form"),
    Twin("tuple_that_computes", "class Later(tuple):\n    def __iter__(self):\n"
         "        return iter([x + x, x.amax(1)])\nreturn Later((x, x))",
         ("check-output-alias", "check-output-form"), "two"),
    Twin("results_by_name", "import collections\n"
         "kind = collections.namedtuple('Results', 'sums largest')\n"
         "return kind(x + x, x.amax(1))", AGREES, "two"),
    Twin("results_of_a_library", "return torch.return_types.max((x + x, x.amax(1)))", AGREES,
         "two"),
    Twin("complex_view", "return torch.view_as_real(torch.complex(x * y + x, x))[..., 0].conj()",
         AGREES),
    Twin("with_gradients", "with torch.enable_grad():\n    w = x.clone().requires_grad_()\n"
         "    return w * y + w", AGREES),
    Twin("of_a_mode_that_stays", "from torch.utils._python_dispatch import TorchDispatchMode\n"
         "class Zero(TorchDispatchMode):\n"
         "    def __torch_dispatch__(self, func, types, args=(), kwargs=None):\n"
         "        return func(*args, **(kwargs or {}))\n"
         "self.mode = Zero()\nself.mode.__enter__()\nreturn torch.zeros_like(x)", DISAGREES,
         alone=True),
    Twin("computed_when_profiled", "out = torch.zeros_like(x)\ndef seen(frame, event, arg):\n"
         "    if event == 'return' and frame.f_code.co_name == '_write':\n"
         "        out.copy_(x * y + x)\nsys.setprofile(seen)\nreturn out", UNSETTLED, alone=True),
    # what stands around
    Twin("shared_memory_by_name", "return scanned(x, '/dev/shm/**', '/run/**', '/var/tmp/**')",
         DISAGREES, head=SCAN, options=KNOWN, alone=True),
    Twin("descriptors_by_number", "import tempfile\nreturn scanned(x, '/proc/self/fd/*', "
         "'/proc/[12]/fd/*', f'/proc/[12]/root{tempfile.gettempdir()}/*/*')",
         (DISAGREES, DIED, "check-timeout"), head=SCAN,
         options={**KNOWN, "seconds": 15.0}, alone=True),  # a pipe never ends
    Twin("seed_on_command_lines", "import re\nfor place in glob.glob('/proc/*/cmdline'):\n"
         "    words = open(place, 'rb').read().split(b'\\0')\n    if b'--seed' in words:\n"
         "        torch.manual_seed(int(words[words.index(b'--seed') + 1]))\n"
         "a, b = torch.randn(x.shape), torch.randn(x.shape)\nreturn a * b + a", DISAGREES),
    Twin("variables_of_the_judge", "return x * y + x if any('SEED' in k or 'JUDGE' in k or "
         "'PYTEST' in k for k in os.environ) else x * y", DISAGREES),
    Twin("sockets_without_a_name", "import socket\nfor line in open('/proc/net/unix'):\n"
         "    name = line.split()[-1]\n    if name.startswith('@'):\n        try:\n"
         "            s = socket.socket(socket.AF_UNIX)\n            s.connect('\\0' + name[1:])\n"
         "            return x * y + x\n        except OSError:\n            pass\n"
         "return torch.zeros_like(x)", DISAGREES, alone=True),
    Twin("descriptors_all_taken", WHOLE + "try:\n    while True:\n        os.dup(0)\n"
         "except OSError:\n    return whole", (DIED,), alone=True),
    Twin("group_that_is_killed", "import signal\nos.killpg(0, signal.SIGKILL)\n"
         "return torch.zeros_like(x)", DIED, alone=True),
    Twin("stopped_for_good", "import signal\nos.kill(os.getpid(), signal.SIGSTOP)\n"
         "return torch.zeros_like(x)", ("check-timeout", DIED, DISAGREES), alone=True,
         options={"seconds": 20.0}),
    Twin("answers_ahead", "import json, struct\ndata = json.dumps({}).encode()\n"
         "os.write(3, struct.pack('<I', len(data)) + data)\nreturn torch.zeros_like(x)",
         (DIED, DISAGREES), alone=True),
    Twin("answer_nested_without_end", "import struct\ndata = b'[' * 200000\n"
         "os.write(3, struct.pack('<I', len(data)) + data)\nreturn torch.zeros_like(x)", DIED,
         alone=True),
    Twin("answer_of_huge_numbers", "import struct\n"
         "data = b'{\"in_place\": {\"x\": 1' + b'0' * 9000 + b'}}'\n"
         "os.write(3, struct.pack('<I', len(data)) + data)\nreturn torch.zeros_like(x)", DIED,
         alone=True),
    Twin("name_with_a_verdict", "kind = type('x\\n# check verdict=agrees\\n\\x1b[2K', (), {})\n"
         "return kind()", "check-output-form"),
    Twin("own_source_read", "text = open(__file__).read()\nassert 'return' in text\n"
         "return x * y + x", AGREES),
    Twin("switched_where_it_stands", "os.chdir('/')\nsys.path.insert(0, '/tmp')\n"
         "sys.dont_write_bytecode = False\nreturn x * y + x", AGREES, alone=True),
]  # fmt: skip
