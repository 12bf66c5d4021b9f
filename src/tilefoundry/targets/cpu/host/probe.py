"""Measuring this CPU by a small compiled program, and the Device document that follows.

The program (``rt/tf_probe.c``) prints each repetition; the best of them is what
the hardware can do, since whatever disturbs a repetition makes it slower. The spread goes from
the lower quartile to the best.
"""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from tilefoundry.build.cache import entry, key_of
from tilefoundry.build.compiler import SECONDS, compiler, processor
from tilefoundry.build.finding import model
from tilefoundry.build.machine import ALWAYS, features, missing
from tilefoundry.diag import refuse
from tilefoundry.targets import Architecture
from tilefoundry.targets.load import documents, load_document
from tilefoundry.targets.schema import VERSION

FOLDER = Path(__file__).parents[1]
SOURCE = FOLDER / "rt" / "tf_probe.c"
FLAGS = ("-std=gnu11", "-O3", "-fopenmp", "-march=native", "-ffp-contract=fast", "-Wall")
"""A product that is added is one instruction here: its rate is what is measured."""
SYSFS = Path("/sys/devices/system/cpu")
DRAM_BYTES = 1 << 27
PROBE_SECONDS = 300
COPIES = {
    "copy": "a copy by vectors", "move": "the library's copy",
    "stream": "a copy past the caches, pages side by side",
    "flow": "a copy past the caches, in order",
}  # fmt: skip
ACCESSES = {"read": "reads", "pages": "reads of pages side by side", **COPIES}
"""Kinds of figures in bytes/s, in words."""
LINE = re.compile(r"(clock|fma|dot|tile|read|pages|copy|move|stream|flow) ([a-z0-9]+) (\d+) (\S+)")


@dataclass(frozen=True)
class Sample:
    """Repetitions of one figure on ``threads`` threads."""

    kind: str
    name: str
    threads: int
    values: tuple[float, ...]

    @property
    def best(self) -> float:
        return max(self.values)

    @property
    def low(self) -> float:
        """The lower quartile."""
        if len(self.values) == 1:
            return self.values[0]
        return quantiles(self.values, n=4, method="inclusive")[0]

    @property
    def unit(self) -> str:
        if self.kind == "clock":
            return "Hz"
        if self.kind in ACCESSES:
            return "byte/s"
        return "op/s" if self.name == "i8" else "flop/s"

    def record(self) -> dict[str, object]:
        return {
            "kind": self.kind, "name": self.name, "threads": self.threads, "unit": self.unit,
            "best": self.best, "median": median(self.values), "low": self.low,
            "count": len(self.values),
        }  # fmt: skip


@dataclass(frozen=True)
class Cache:
    """A level's data cache: its bytes, its line, how many processors share one."""

    level: int
    capacity: int
    line: int
    sharers: int


@dataclass(frozen=True)
class Machine:
    """This machine as the system describes it."""

    model: str
    cpus: tuple[int, ...]
    caches: Mapping[int, Cache]
    memory: int
    architecture: str


@dataclass(frozen=True)
class Probe:
    """What was measured, where, with what."""

    machine: Machine
    samples: tuple[Sample, ...]
    compiler: str
    repetitions: int
    date: str

    def most(self, kinds: Sequence[str], name: str, threads: int = 0) -> Sample | None:
        """The sample with the best figure of some kinds; of any number of threads if 0."""
        found = [s for s in self.samples if s.kind in kinds and s.name == name]
        found = [s for s in found if threads in (0, s.threads)]
        return max(found, key=lambda s: s.best, default=None)


def machine() -> Machine:
    """What the system says; refuses a processor that no architecture document describes."""
    cpus = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
    cpus = cpus or list(range(os.cpu_count() or 1))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(model(), tuple(cpus), caches(cpus[0]), memory, architecture())


def architecture() -> str:
    """The CPU architecture document that names the most of this machine's capabilities."""
    fitting: list[tuple[int, str]] = []
    for found in documents():
        if found.place == "user" or not found.path.is_relative_to(FOLDER):
            continue
        document = load_document(found.id)
        if not isinstance(document, Architecture) or missing(document.capabilities):
            continue
        names = set(document.capabilities) - ALWAYS
        if features() is not None or not names:
            fitting.append((len(names), found.id))
    assert fitting, "the plain architecture asks for nothing"
    return max(fitting)[1]


def caches(cpu: int, root: Path = SYSFS) -> dict[int, Cache]:
    """Each level's data cache, as the system reports it; empty where it does not."""
    found: dict[int, Cache] = {}
    for index in sorted((root / f"cpu{cpu}" / "cache").glob("index*")):
        try:
            kind, level, size, line, shared = (
                (index / name).read_text().strip()
                for name in ("type", "level", "size", "coherency_line_size", "shared_cpu_list")
            )
        except OSError:
            continue
        unit = {"K": 1 << 10, "M": 1 << 20}.get(size[-1:], 0)
        if kind != "Instruction" and unit and size[:-1].isdigit():
            capacity = int(size[:-1]) * unit
            found[int(level)] = Cache(int(level), capacity, int(line or 0), listed(shared))
    return found


def listed(text: str) -> int:
    """How many numbers ``0-3,8`` names."""
    total = 0
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        total += int(high or low) - int(low) + 1
    return total


def sizes(machine: Machine) -> dict[str, int]:
    """Bytes that each thread touches for each memory: within its cache, beyond the next.

    A thread's part of a shared cache must be larger than the caches before it; where all
    threads' parts would not fit, the memory is left out.
    """
    found: dict[str, int] = {}
    inner = 0
    count = len(machine.cpus)
    for level, cache in sorted(machine.caches.items()):
        each = cache.capacity // max(1, min(cache.sharers, count))
        size = max(each // 2, 2 * inner)
        if size <= each * 3 // 4:
            found[f"l{level}"] = size
        inner = max(inner, each)
    last = max((c.capacity for c in machine.caches.values()), default=0)
    room = machine.memory // 4 // count
    found["dram"] = max(1 << 20, min(room, max(DRAM_BYTES, 4 * last // count)))
    return found


def probe(repetitions: int) -> Probe:
    """Compile and run the program on 1, 2, 4 ... all of the processors that may be used."""
    here = machine()
    path, version = compiler()
    words = [str(repetitions)]
    for name, size in sizes(here).items():
        own = name != "dram" and here.caches[int(name[1:])].sharers == 1
        words += [name, str(int(own)), str(size)]
    program = _compiled(path, version)
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_", "KMP_"))}
    cpus = ",".join(map(str, here.cpus))
    try:
        done = subprocess.run(
            [str(program), cpus, *words], capture_output=True, text=True, env=plain,
            timeout=PROBE_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        refuse("probe-failed", None, how=f"no end after {PROBE_SECONDS} s")
    if done.returncode:
        how = f"it ended with {done.returncode}"
        refuse("probe-failed", None, how=how, notes=tuple(done.stderr.splitlines()[:10]))
    return Probe(here, samples(done.stdout), version, repetitions,
                 datetime.date.today().isoformat())  # fmt: skip


def _compiled(path: str, version: str) -> Path:
    text = SOURCE.read_text(encoding="utf-8")
    name = "tf_probe"

    def make(folder: Path) -> None:
        (folder / SOURCE.name).write_text(text, encoding="utf-8")
        with tempfile.TemporaryFile("w+") as said:
            line = [path, *FLAGS, "-o", name, SOURCE.name]
            done = subprocess.run(line, cwd=folder, stderr=said, timeout=SECONDS)
            said.seek(0)
            errors = said.read().splitlines()
        if done.returncode:
            first = next((x for x in errors if "error" in x), "no message")
            refuse("build-compile", None, notes=tuple(errors[:20]), compiler=version, error=first)

    return entry(key_of([path, version, processor(), *FLAGS, text]), name, make).library


def samples(text: str) -> tuple[Sample, ...]:
    """The program's lines, by figure, in the order of their first lines."""
    found: dict[tuple[str, str, int], list[float]] = {}
    for line in text.splitlines():
        if match := LINE.fullmatch(line):
            kind, name, threads, value = match.groups()
            found.setdefault((kind, name, int(threads)), []).append(float(value))
    return tuple(Sample(*key, tuple(values)) for key, values in found.items())


# ---- the document


def document(id: str, probe: Probe) -> str:
    """A Device document of what was measured; what was not is unavailable with the reason."""
    here = probe.machine
    count = len(here.cpus)
    lines = [
        f"# Measured by `tilefoundry target probe` on {probe.date}.",
        "",
        "[spec]",
        f'schema = "tilefoundry.cpu.device/v{VERSION}"',
        'kind = "device"',
        f"id = {_text(id)}",
        f"name = {_text(f'{here.model}, {count} processors')}",
        "",
        "[compatibility]",
        f"architectures = [{_text(here.architecture)}]",
        "",
        "[storages]",
        'gmem = "dram"',
    ]
    told = _Told(probe)
    lines += told.stated("processors.count", count, "processor", "usable by this process")
    clock = "dependent instructions of known latency"
    lines += told.best("clock.boost", probe.most(("clock",), "core", 1), f"{clock}, one busy")
    if count > 1:
        lines += told.best(
            "clock.sustained", probe.most(("clock",), "core", count), f"{clock}, all busy"
        )
    lines += told.unknown("clock.base", "not measured: the system's time stamp is no clock rate")
    lines += told.stated("memory.dram.capacity", here.memory, "byte", "physical memory")
    lines += told.bandwidth("dram")
    for level in (3, 2, 1):
        cache = here.caches.get(level)
        at = f"memory.l{level}"
        if cache is None:
            lines += told.unknown(f"{at}.capacity", "the system does not report it")
            continue
        shared = f"shared by {cache.sharers}" if cache.sharers > 1 else "of one processor"
        lines += told.stated(f"{at}.capacity", cache.capacity, "byte", shared)
        if cache.line:
            lines += told.stated(f"{at}.line", cache.line, "byte", "coherency line")
        lines += told.bandwidth(f"l{level}")
    for dtype in ("f32", "f64"):
        found = probe.most(("fma",), dtype)
        lines += told.best(f"peak.vector.{dtype}", found, "vector multiply-adds in registers")
    for dtype in ("bf16", "i8"):
        found = probe.most(("dot", "tile"), dtype)
        if found is not None:
            what = "tile products" if found.kind == "tile" else "vector dot products"
            what += " in registers, of small or zero operands: others may take more power"
            lines += told.best(f"peak.matrix.{dtype}", found, what)
    return "\n".join(lines) + "\n"


class _Told:
    """Facts as the lines of a document."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.source = f"tilefoundry target probe, {probe.machine.model}"
        self.when = f"{probe.date}, {platform.system()} {platform.release()}, {probe.compiler}"

    def stated(self, path: str, value: int, unit: str, conditions: str) -> list[str]:
        """A number that the system reports."""
        return ["", f"[facts.{path}]", f"value = {value}", f'unit = "{unit}"',
                'origin = "measured"', f"source = {_text(self.source)}",
                f"conditions = {_text(f'{conditions}, as the system reports it; {self.when}')}",
                ]  # fmt: skip

    def best(self, path: str, sample: Sample | None, conditions: str) -> list[str]:
        if sample is None:
            return self.unknown(path, "this machine's instructions for it are not measured")
        many = "1 thread" if sample.threads == 1 else f"{sample.threads} threads"
        how = f"{conditions}; {many}"
        spread = f"best of {len(sample.values)}, low is the lower quartile"
        return ["", f"[facts.{path}]", f"value = {sample.best:.6g}", f'unit = "{sample.unit}"',
                'origin = "measured"', f"source = {_text(self.source)}",
                f"conditions = {_text(f'{how}; {spread}; {self.when}')}",
                f"low = {min(float(f'{sample.low:.6g}'), float(f'{sample.best:.6g}')):.6g}",
                f"high = {sample.best:.6g}"]  # fmt: skip

    def bandwidth(self, memory: str) -> list[str]:
        """The most that any access reached, and the most that a copy did."""
        any = self.probe.most(tuple(ACCESSES), memory)
        copied = self.probe.most(tuple(COPIES), memory)
        at = f"memory.{memory}"
        if any is None or copied is None:
            return self.unknown(f"{at}.bandwidth", "a thread's part is no larger than its caches")
        return [
            *self.best(f"{at}.bandwidth", any, f"{ACCESSES[any.kind]}, all processors together"),
            *self.best(f"{at}.copy_bandwidth", copied,
                       f"{COPIES[copied.kind]}, read and written bytes counted"),
        ]  # fmt: skip

    def unknown(self, path: str, why: str) -> list[str]:
        return ["", f"[facts.{path}]", f"unavailable = {_text(why)}"]


def _text(words: str) -> str:
    """A TOML string."""
    plain = "".join(c if c.isprintable() else " " for c in words)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'
