"""Reading one document: TOML in, a typed and checked Architecture or Device out.

Every independent fault of a document is collected; each names its line and key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilefoundry.diag import Diag, Refusal, Span
from tilefoundry.targets.fact import EXPLAINED, ORIGINS, Entry, Fact, Family
from tilefoundry.targets.schema import (
    KINDS,
    VERSION,
    Shape,
    StorageForm,
    bound,
    entries,
    find,
    required,
)

ID = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")
NAME = re.compile(r"[a-z][a-z0-9_]*")
SCHEMA = re.compile(r"tilefoundry\.([a-z0-9_]+)\.([a-z]+)/v([0-9]+)")
FACT_KEYS = ("value", "unit", "origin", "source", "conditions", "explanation", "low", "high")
CACHE_SCOPES = ("device", "group", "processor")
LONGEST_ID = 100

Table = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Architecture:
    """What all devices of one architecture share."""

    id: str
    name: str
    family: str
    shape: Shape
    capabilities: tuple[str, ...]
    facts: Mapping[str, Fact]


@dataclass(frozen=True, eq=False)
class Device:
    """One piece of hardware: counts, capacities, bandwidths, peaks."""

    id: str
    name: str
    family: str
    architecture: Architecture
    compatible: tuple[str, ...]
    memories: Mapping[str, str]
    """Storage name → memory, for the storages that the architecture leaves open."""
    facts: Mapping[str, Fact]


def read_document(
    text: str,
    file: str,
    family_of: Callable[[str], Family | None],
    architecture_of: Callable[[str], Architecture | None],
) -> Architecture | Device:
    """The document that ``text`` holds; ``file`` names it in refusals.

    ``family_of`` knows families by name; ``architecture_of`` Architecture documents by
    id. Refuses with one diagnostic per fault (codes ``target-*``).
    """
    return _Reader(text, file).read(family_of, architecture_of)


class _Reader:
    """Collects faults while it walks one document."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.faults: list[Diag] = []
        self.id = ""

    # ---- faults

    def fault(self, code: str, key: str, **fields: object) -> None:
        span = Span(self.file, _line_of(self.text, key))
        self.faults.append(Diag(code, span, {"key": key, **fields}))

    def settle(self) -> None:
        """Refuse with all faults so far, if any."""
        if self.faults:
            raise Refusal(*sorted(self.faults, key=lambda d: d.span.line if d.span else 0))

    # ---- tables and their keys

    def table(self, tree: Table, at: str, required: bool = True) -> Table:
        name = at.rpartition(".")[2]
        if name not in tree:
            if required:
                self.fault("target-missing", at, form=f"a table [{at}]", add=f"[{at}]")
            return {}
        if not isinstance(tree[name], dict):
            self.fault("target-value", at, form="a table", found=_shown(tree[name]))
            return {}
        return tree[name]

    def keys(self, table: Table, at: str, allowed: tuple[str, ...]) -> None:
        for key in table:
            if key not in allowed:
                where = f"{at}.{key}" if at else key
                near = _nearest(key, allowed)
                self.fault("target-key", where, allowed=" ".join(allowed), near=near)

    def string(self, table: Table, at: str, name: str, required: bool = True) -> str:
        key = f"{at}.{name}"
        if name not in table:
            if required:
                self.fault("target-missing", key, form="a string", add=f'{name} = "..."')
            return ""
        value = table[name]
        if not isinstance(value, str) or not value.strip():
            self.fault("target-value", key, form="a string that says it", found=_shown(value))
            return ""
        return value

    def names(self, table: Table, at: str, name: str, required: bool = True) -> tuple[str, ...]:
        key = f"{at}.{name}"
        if name not in table:
            if required:
                self.fault("target-missing", key, form="a list", add=f'{name} = ["..."]')
            return ()
        values = table[name]
        good = isinstance(values, list) and all(isinstance(v, str) and v for v in values)
        if not good or len(set(values)) != len(values) or (required and not values):
            form = "a list of names, each once"
            self.fault("target-value", key, form=form, found=_shown(values))
            return ()
        return tuple(values)

    def one_of(self, value: str, key: str, allowed: tuple[str, ...]) -> None:
        if value and value not in allowed:
            form = "one of " + " ".join(allowed)
            self.fault("target-value", key, form=form, found=_shown(value))

    # ---- the document

    def read(
        self,
        family_of: Callable[[str], Family | None],
        architecture_of: Callable[[str], Architecture | None],
    ) -> Architecture | Device:
        tree = self.parse()
        spec = self.table(tree, "spec")
        self.keys(spec, "spec", ("schema", "kind", "id", "name"))
        self.id = self.string(spec, "spec", "id")
        name = self.string(spec, "spec", "name")
        if self.id and (not ID.fullmatch(self.id) or len(self.id) > LONGEST_ID):
            self.fault("target-id", "spec.id", found=self.id)
        family = self.schema(spec, family_of)
        self.settle()
        assert family is not None
        if spec["kind"] == "device":
            return self.device(tree, name, family, architecture_of)
        return self.architecture(tree, name, family)

    def parse(self) -> Table:
        import tomllib

        try:
            return tomllib.loads(self.text)
        except (ValueError, RecursionError) as error:
            at = re.search(r"line (\d+)", str(error))
            span = Span(self.file, int(at[1]) if at else 1)
            message = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise Refusal(Diag("target-syntax", span, {"message": message})) from None

    def schema(self, spec: Table, family_of: Callable[[str], Family | None]) -> Family | None:
        schema = self.string(spec, "spec", "schema")
        kind = self.string(spec, "spec", "kind")
        self.one_of(kind, "spec.kind", KINDS)
        if not schema or kind not in KINDS:
            return None
        found = SCHEMA.fullmatch(schema)
        family = family_of(found[1]) if found else None
        if not found or not family or found[2] != kind or int(found[3]) != VERSION:
            name = family.name if family else "FAMILY"
            form = f"tilefoundry.{name}.{kind}/v{VERSION}"
            self.fault("target-schema", "spec.schema", form=form, found=schema)
        return family

    # ---- Architecture

    def architecture(self, tree: Table, name: str, family: Family) -> Architecture:
        top = ("spec", "topology", "capabilities", "storages", "caches", "facts")
        self.keys(tree, "", top)
        capable = self.table(tree, "capabilities")
        self.keys(capable, "capabilities", ("names", "source"))
        capabilities = self.names(capable, "capabilities", "names")
        self.string(capable, "capabilities", "source")
        shape = self.shape(tree, family)
        self.settle()
        known = entries(family, shape)
        facts = self.facts(self.table(tree, "facts"), known, "architecture")
        for entry in required(known.values(), "architecture"):
            self.must(entry, facts)
        self.settle()
        return Architecture(self.id, name, family.name, shape, capabilities, facts)

    def shape(self, tree: Table, family: Family) -> Shape:
        at = "topology"
        topology = self.table(tree, at)
        self.keys(topology, at, ("levels", "optional", "groups", "processor", "processor_level"))
        levels = self.names(topology, at, "levels")
        optional = self.names(topology, at, "optional", required=False)
        groups = self.names(topology, at, "groups", required=False)
        for key, names in (("levels", levels), ("groups", groups)):
            for name in names:
                if not NAME.fullmatch(name) or (key == "groups" and name in levels):
                    form = "names of lower case letters, digits and _"
                    self.fault("target-value", f"{at}.{key}", form=form, found=_shown(name))
        for name in optional:
            self.one_of(name, f"{at}.optional", levels)
        processor = self.string(topology, at, "processor")
        level = self.string(topology, at, "processor_level")
        self.one_of(level, f"{at}.processor_level", levels)
        forms = self.storages(self.table(tree, "storages"), levels, family)
        caches = self.caches(self.table(tree, "caches", required=False), family)
        return Shape(levels, optional, groups, processor, level, forms, caches)

    def storages(
        self, table: Table, levels: tuple[str, ...], family: Family
    ) -> tuple[StorageForm, ...]:
        forms: list[StorageForm] = []
        for name in table:
            at = f"storages.{name}"
            form = self.table(table, at)
            self.keys(form, at, ("level", "pool", "memory"))
            memory = self.string(form, at, "memory", required=False)
            self.one_of(memory, f"{at}.memory", family.memories)
            if not NAME.fullmatch(name):
                words = "a name of lower case letters, digits and _"
                self.fault("target-value", at, form=words, found=_shown(name))
            if "level" not in form:
                # Shared by all units: the device says which of its memories this is.
                self.keys(form, at, ("memory",))
                forms.append(StorageForm(name, None, None, memory or None))
                continue
            level = self.string(form, at, "level")
            pool = self.string(form, at, "pool", required=False) or level
            for key, value in (("level", level), ("pool", pool)):
                self.one_of(value, f"{at}.{key}", levels)
            if "memory" not in form:
                self.fault("target-missing", f"{at}.memory", form="a string", add='memory = "..."')
            forms.append(StorageForm(name, level, pool, memory or None))
        if not forms and not self.faults:
            self.fault("target-missing", "storages.gmem", form="a table", add="[storages.gmem]")
        return tuple(forms)

    def caches(self, table: Table, family: Family) -> dict[str, str]:
        scopes: dict[str, str] = {}
        for name in table:
            at = f"caches.{name}"
            form = self.table(table, at)
            self.keys(form, at, ("scope",))
            scopes[name] = self.string(form, at, "scope")
            self.one_of(scopes[name], f"{at}.scope", CACHE_SCOPES)
            self.one_of(name, at, family.memories)
        return scopes

    # ---- Device

    def device(
        self,
        tree: Table,
        name: str,
        family: Family,
        architecture_of: Callable[[str], Architecture | None],
    ) -> Device:
        self.keys(tree, "", ("spec", "compatibility", "storages", "facts"))
        at = "compatibility"
        compatibility = self.table(tree, at)
        self.keys(compatibility, at, ("architectures",))
        ids = self.names(compatibility, at, "architectures")
        found = [self.compatible(id, family, architecture_of) for id in ids]
        self.settle()
        architecture = found[0]
        assert architecture is not None
        known = entries(family, architecture.shape)
        memories = self.memories(tree, architecture, family)
        facts = self.facts(self.table(tree, "facts"), known, "device")
        for entry in required(known.values(), "device"):
            self.must(entry, facts)
        for entry in known.values():
            if entry.required and len(entry.kinds) > 1:
                self.must(entry, {**architecture.facts, **facts})
        for memory in memories.values():
            for entry in bound(memory):
                self.must(entry, facts)
        self.settle()
        return Device(self.id, name, family.name, architecture, ids, memories, facts)

    def compatible(
        self, id: str, family: Family, architecture_of: Callable[[str], Architecture | None]
    ) -> Architecture | None:
        found = architecture_of(id)
        if found is None or found.family != family.name:
            other = f"one of family {found.family}" if found else "there is none"
            key = "compatibility.architectures"
            self.fault("target-architecture", key, id=id, family=family.name, found=other)
        return found

    def memories(self, tree: Table, architecture: Architecture, family: Family) -> dict[str, str]:
        names = tuple(s.name for s in architecture.shape.storages if s.memory is None)
        table = self.table(tree, "storages", required=bool(names))
        self.keys(table, "storages", names)
        stated = names if "storages" in tree else ()
        memories = {name: self.string(table, "storages", name) for name in stated}
        for name, memory in memories.items():
            self.one_of(memory, f"storages.{name}", family.memories)
        return {name: memory for name, memory in memories.items() if memory in family.memories}

    # ---- facts

    def must(self, entry: Entry, facts: Mapping[str, Fact]) -> None:
        key = f"facts.{entry.path}"
        faulty = any(str(fault.fields["key"]).startswith(key) for fault in self.faults)
        if entry.path not in facts and not faulty:
            form = f"{entry.form} in {entry.unit}, or unavailable with its reason"
            self.fault("target-missing", key, form=form, add=f"[{key}]")

    def facts(self, tree: Table, known: Mapping[str, Entry], kind: str) -> dict[str, Fact]:
        prefixes = {
            ".".join(parts[:end])
            for parts in (path.split(".") for path in known)
            for end in range(1, len(parts))
        }
        facts: dict[str, Fact] = {}
        pending: list[tuple[str, Table]] = [("", tree)]
        while pending:
            at, table = pending.pop()
            for name, value in table.items():
                path = f"{at}.{name}" if at else name
                entry = find(known, path)
                if not NAME.fullmatch(name):
                    # A quoted key with a dot in it would pass for another fact's path.
                    self.unread(path, known, kind)
                elif entry is not None:
                    if fact := self.fact(path, value, entry, kind):
                        facts[path] = fact
                elif path in prefixes and isinstance(value, dict) and value:
                    pending.append((path, value))
                else:
                    self.unread(path, known, kind)
        return facts

    def unread(self, path: str, known: Mapping[str, Entry], kind: str) -> None:
        near = _nearest(path, [name for name, entry in known.items() if kind in entry.kinds])
        self.fault("target-fact-unread", f"facts.{path}", kind=kind, near=near)

    def fact(self, path: str, table: object, entry: Entry, kind: str) -> Fact | None:
        at = f"facts.{path}"
        before = len(self.faults)
        if not isinstance(table, dict):
            self.fault("target-value", at, form="a table of a fact", found=_shown(table))
            return None
        if kind not in entry.kinds:
            near = f"move it to the {entry.kinds[0]} document"
            self.fault("target-fact-unread", at, kind=kind, near=near)
            return None
        if "unavailable" in table:
            self.keys(table, at, ("unavailable",))
            reason = self.string(table, at, "unavailable")
            return Fact(path, entry.unit, unavailable=reason, document=self.id) if reason else None
        self.keys(table, at, (*FACT_KEYS, "unavailable"))
        value = self.number(table, at, "value", entry)
        unit = self.string(table, at, "unit")
        if unit and unit != entry.unit:
            self.fault("target-unit", f"{at}.unit", unit=entry.unit, found=unit)
        origin = self.string(table, at, "origin")
        if origin and origin not in ORIGINS:
            self.fault("target-origin", f"{at}.origin", known=" ".join(ORIGINS), found=origin)
        source = self.string(table, at, "source")
        conditions = self.string(table, at, "conditions", required=origin == "measured")
        explanation = self.string(table, at, "explanation", required=False)
        if origin in EXPLAINED and "explanation" not in table:
            self.fault("target-unexplained", at, origin=origin)
        low, high = self.spread(table, at, entry, value)
        if len(self.faults) > before:
            return None
        return Fact(
            path, unit, value, origin, source, conditions, explanation, low, high, "", self.id
        )

    def number(self, table: Table, at: str, name: str, entry: Entry) -> int | float | None:
        if name not in table:
            form = f"{entry.form} in {entry.unit}, or unavailable with its reason"
            self.fault("target-missing", f"{at}.{name}", form=form, add=f"{name} = ...")
            return None
        value = table[name]
        if not entry.accepts(value):
            form = f"{entry.form} in {entry.unit}"
            self.fault("target-value", f"{at}.{name}", form=form, found=_shown(value))
            return None
        return value

    def spread(
        self, table: Table, at: str, entry: Entry, value: int | float | None
    ) -> tuple[int | float | None, int | float | None]:
        if "low" not in table and "high" not in table:
            return None, None
        low = self.number(table, at, "low", entry)
        high = self.number(table, at, "high", entry)
        if low is not None and high is not None and value is not None and not low <= value <= high:
            found = f"low {low}, value {value}, high {high}"
            self.fault("target-value", f"{at}.low", form="low <= value <= high", found=found)
        return low, high


def _shown(value: object) -> str:
    text = f'"{value}"' if isinstance(value, str) else str(value)
    text = "true" if value is True else "false" if value is False else text
    return text if len(text) <= 60 else text[:57] + "..."


def _nearest(name: str, known: tuple[str, ...] | list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, 1, 0.5)
    return f"did you mean {near[0]}? else remove it" if near else "remove it"


HEADER = re.compile(r"\s*\[([^\[\]]+)\]")
KEY = re.compile(r"\s*([\w.\"'-]+)\s*=")


def _line_of(text: str, key: str) -> int:
    """The first line that states ``key`` or something in it, else the nearest table around
    it; counted from 1."""
    nearest, depth, table = 1, 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := HEADER.match(line):
            table = stated = _plain(header[1])
        elif assigned := KEY.match(line):
            stated = _plain(f"{table}.{assigned[1]}" if table else assigned[1])
        else:
            continue
        if f"{stated}.".startswith(f"{key}."):
            return number
        if key.startswith(f"{stated}.") and len(stated) > depth:
            nearest, depth = number, len(stated)
    return nearest


def _plain(dotted: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in dotted.split("."))
