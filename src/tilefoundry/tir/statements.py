"""The body of a printed kernel: scopes, loops, instructions, synchronisation."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence
from typing import Any

from tilefoundry.diag import Span
from tilefoundry.ir.dtype import dtype_of
from tilefoundry.ir.expr import Dim
from tilefoundry.ir.mesh import enter
from tilefoundry.lang.express import evaluate
from tilefoundry.lang.forms import MeshBinding
from tilefoundry.lang.python import construct, spell
from tilefoundry.lang.statements import loop_variable
from tilefoundry.tir.declarations import Declarations
from tilefoundry.tir.forms import AXES, DECLARATIONS, DEFAULTS, KINDS, SYNCS
from tilefoundry.tir.operands import (
    BarrierAt,
    called,
    is_dim,
    malformed,
    read_attrs,
    read_axes,
    read_operand,
)
from tilefoundry.tir.program import (
    Advance,
    For,
    Issue,
    Stmt,
    Sync,
    View,
    When,
    With,
)


class Body:
    """The statements of one kernel; what they declare goes to ``declarations``."""

    def __init__(self, declarations: Declarations) -> None:
        self.made = declarations
        self.frame = declarations.frame
        self.comments = declarations.comments

    def block(self, body: Sequence[ast.stmt]) -> tuple[Stmt, ...]:
        """Statements in order; declarations are kept aside."""
        made = (self._stmt(stmt) for stmt in body)
        return tuple(s for s in made if s is not None)

    def _stmt(self, stmt: ast.stmt) -> Stmt | None:
        match stmt:
            case ast.Assign([ast.Name(name)], value):
                self.made.declare(stmt, name, value)
            case ast.Expr(ast.Call() as call):
                return self._call(stmt, call)
            case ast.AugAssign(ast.Name(name), ast.Add(), value):
                return Advance(self.made.counter(stmt, name), self._dim(value))
            case ast.For(orelse=[]):
                return self._for(stmt)
            case ast.With(items=[item]):
                return self._with(stmt, item)
            case ast.If(orelse=[]):
                return self._when(stmt)
            case ast.Expr(ast.Constant()) | ast.Pass():
                pass  # a docstring, or an empty body
            case _:
                found = f"{construct(stmt)}: {ast.unparse(stmt).splitlines()[0]}"
                fix = "use with, for, if, x = T...., T.instruction(...) and counter += n"
                malformed(self._span(stmt), "a statement of TIR", found, fix)
        return None

    def _span(self, node: ast.AST) -> Span:
        return self.frame.span(node)

    def _dim(self, node: ast.expr) -> Dim:
        value = evaluate(self.frame, node)
        if not is_dim(value):
            fix = "use loop variables, mesh coordinates, counters and whole numbers"
            malformed(self._span(node), "an index expression", spell(value), fix)
        return value

    # Scopes, loops, tests

    def _with(self, stmt: ast.With, item: ast.withitem) -> With:
        own, source = self.made.read_mesh(item.context_expr)
        target = item.optional_vars
        if target is not None and not isinstance(target, ast.Name):
            malformed(self._span(target), "a name", ast.unparse(target), "write `as name`")
        binding = target.id if target is not None else ""
        inside = enter(self.made.mesh, own, self.frame.levels, binding, self._span(stmt))
        end = item.optional_vars or item.context_expr
        _, span = self.comments.behind_head(end, stmt.body[0])
        outer, self.made.mesh = self.made.mesh, inside
        names, meshes = self.frame.names.get(binding), self.made.meshes.get(binding)
        if binding:
            self.frame.names[binding] = MeshBinding(own, binding)
            self.made.meshes[binding] = inside
        body = self.block(stmt.body)
        self.made.mesh = outer
        _restore(self.frame.names, binding, names)
        _restore(self.made.meshes, binding, meshes)
        return With(own, inside, binding, body, source, span)

    def _for(self, stmt: ast.For) -> For:
        head, unroll = stmt.iter, False
        if called(self.frame, head) == "unroll":
            assert isinstance(head, ast.Call)
            head, unroll = (head.args or [head])[0], True
        is_range = isinstance(head, ast.Call) and ast.unparse(head.func) == "range"
        if not is_range or not isinstance(stmt.target, ast.Name):
            found = f"for {ast.unparse(stmt.target)} in {ast.unparse(stmt.iter)}"
            fix = "write for name in range(start, stop, step)"
            malformed(self._span(stmt), "a loop over range(...)", found, fix)
        assert isinstance(head, ast.Call)
        ends = [self._dim(x) for x in head.args]
        if not 1 <= len(ends) <= 3:
            fix = "write range(start, stop, step)"
            malformed(self._span(head), "range(start, stop, step)", ast.unparse(head), fix)
        start, stop = (0, ends[0]) if len(ends) == 1 else ends[:2]
        step = ends[2] if len(ends) == 3 else 1
        name = stmt.target.id
        var = loop_variable(name, start, stop, step)
        _, span = self.comments.behind_head(stmt.iter, stmt.body[0])
        before = self.frame.names.get(name)
        self.frame.names[name] = var.expr()
        body = self.block(stmt.body)
        _restore(self.frame.names, name, before)
        return For(var, start, stop, step, body, unroll, span)

    def _when(self, stmt: ast.If) -> When:
        match stmt.test:
            case ast.Compare(left, [ast.Gt()], [ast.Constant(0)]):
                return When(self._dim(left), self.block(stmt.body))
        fix = "write the test as an index expression > 0"
        malformed(self._span(stmt.test), "if (expression) > 0", ast.unparse(stmt.test), fix)

    # Instructions and synchronisation

    def _call(self, stmt: ast.Expr, node: ast.Call) -> Stmt | None:
        path = called(self.frame, node)
        if path is None:
            malformed(self._span(node), "T.name(...)", ast.unparse(node), "call an instruction")
        if path in KINDS:
            return self._sync(stmt, node, KINDS[path])
        if path in ("shared_memory", "align", "topologies"):
            self.made.state(node, path)
            return None
        if path in DECLARATIONS:
            fix = f"give it a name: x = T.{path}(...)"
            malformed(self._span(node), "an instruction", f"T.{path}(...)", fix)
        if not node.args:
            near = difflib.get_close_matches(path, KINDS, 1)
            fix = f"write T.{near[0]}(...)" if near else "give its operands, the destination last"
            malformed(self._span(node), "an instruction with operands", f"T.{path}()", fix)
        return self._issue(stmt, node, path)

    def _issue(self, stmt: ast.Expr, node: ast.Call, path: str) -> Issue:
        *given, last = node.args
        targets = last.elts if isinstance(last, ast.Tuple) else [last]
        writes: list[View] = []
        for target in targets:
            made = read_operand(self.frame, target, dtype_of("f32"))
            if not isinstance(made, View):
                fix = "let the last operand be a buffer or a part of one"
                malformed(self._span(target), "a destination", ast.unparse(target), fix)
            writes.append(made)
        default = writes[0].dtype if writes else None
        reads = tuple(read_operand(self.frame, x, default) for x in given)
        source, span = self.comments.behind(stmt)
        attrs = read_attrs(self.frame, node)
        return Issue(path, reads, tuple(writes), attrs, span, source)

    def _sync(self, stmt: ast.Expr, node: ast.Call, kind: str) -> Sync:
        form = SYNCS[kind]
        known = [k for k in DEFAULTS if k not in ("barrier", "slot", "why", "span", form.first)]
        given = {str(k.arg): evaluate(self.frame, k.value) for k in node.keywords}
        for k in node.keywords:
            if k.arg in AXES:
                given[k.arg] = read_axes(self.frame, k.value, given[k.arg])
        positional = [evaluate(self.frame, x) for x in node.args]
        place = f"T.{form.call}({'barrier' if form.first == 'barrier' else form.first})"
        if len(positional) != bool(form.first) or not set(given) <= set(known):
            found = ast.unparse(node)
            fix = f"write {place}, and of {', '.join(f'{k}=' for k in form.stated) or 'nothing'}"
            malformed(self._span(node), f"{place} and its parameters", found, fix)
        if form.first == "barrier":
            at = positional[0]
            if not isinstance(at, BarrierAt):
                fix = "name an mbarrier declared by T.mbarrier"
                malformed(self._span(node.args[0]), "a barrier", spell(at), fix)
            given |= {"barrier": at.barrier, "slot": at.slot}
        elif form.first:
            given[form.first] = positional[0]
        for key, value in given.items():
            default = DEFAULTS[key]
            dim = key in ("slot", "parity") and is_dim(value)
            if not dim and key != "barrier" and type(value) is not type(default):
                expected = f"{key} to be {type(default).__name__}"
                malformed(self._span(node), expected, spell(value), f"write {key} as a constant")
        why, span = self.comments.behind(stmt)
        return Sync(kind, **given, why=why, span=span)


def _restore(names: dict[str, Any], name: str, value: Any) -> None:
    """What a name stood for before a scope or a loop bound it."""
    if value is None:
        names.pop(name, None)
    else:
        names[name] = value


__all__ = ["Body"]
