"""Lists of kernel calls as functions in C.

A function takes its operands and writes its results in slots, so that a caller says where they are. What a function
allocates lies in a part of the arena, its frame, behind the frames of the functions that call it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from meta.backend.tvm import adapter as tvm
from meta.deploy.frames import ArenaFrame, aligned, frame_bases, known_shape, loop_workspaces
from meta.deploy.sizes import CSizes
from meta.deploy.tables import SlotPlace, TensorTables, array, unsupported
from meta.records import mutable
from meta.vm.lower.calls import CHECK_FUNCTION, LOOP_FUNCTION, LoopCall
from meta.vm.plan.kernels import (
    OBJECT,
    OWN,
    KernelCall,
    KernelList,
    Memory,
    ObjectCall,
    Operand,
    Tensor,
    Value,
    leaves,
)
from meta.vm.plan.relax import elements
from meta.vm.plan.relax import sizes as sizes_of


@mutable(eq=False)
class CFunction:
    """A function under construction. parameters, results: the slots.  frame: bytes of the arena that it uses.
    solution: how its caller sets its sizes, see `CSizes.solve`."""

    symbol: str
    source: KernelList
    sizes: CSizes
    parameters: list[int]
    results: list[int]
    solution: list[tuple[int, int, str]]
    frame: int = 0
    body: tuple[str, ...] = ()


class ProgramFunctions:
    """All functions of a program. lists: by name.  loops: by the name that programs call them by.
    calls: the functions that each calls.  symbols: of kernels, by their names in the lists."""

    def __init__(
        self, tables: TensorTables, lists: Mapping[str, KernelList], loops: Mapping[str, LoopCall],
        calls: Mapping[str, Sequence[str]], symbols: Mapping[str, str],
    ) -> None:  # fmt: skip
        self.tables = tables
        self.lists = lists
        self.loops = loops
        self.calls = calls
        self.symbols = symbols
        self.functions: dict[str, CFunction] = {}
        self.constants: list[tuple[int, bytes]] = []
        """Constants of functions other than "main": their slots and values."""
        self.data: list[str] = []
        """Tables of loops in C."""

    def get(self, name: str, within: tuple[str, ...] = ()) -> CFunction:
        """The function of a list. within: the functions that are being written, which may not be called."""
        if name in within:
            raise unsupported(
                f"'{name}' calls itself before its last action", "recursion in the last action of a function",
                "call itself as the last action of the function",
            )  # fmt: skip
        if name not in self.functions:
            source = self.lists[name]
            parameters = [o.tensor for _, value in source.parameters for o in leaves(value)]
            sizes = CSizes(self.tables)
            solution = sizes.solve([known_shape(t) for t in parameters])
            slots = [self.tables.slot() for _ in parameters], [self.tables.slot() for _ in leaves(source.result)]
            function = CFunction(f"function_{len(self.functions)}", source, sizes, *slots, solution)
            self.functions[name] = function
            _Writer(self, name, function, (*within, name)).write()
        return self.functions[name]

    def bases(self) -> dict[str, int]:
        """Where the frame of each function starts in the arena."""
        return frame_bases({name: function.frame for name, function in self.functions.items()}, self.calls)

    def arena(self) -> int:
        """The bytes of the arena."""
        return max(base + self.functions[name].frame for name, base in self.bases().items())

    def text(self) -> str:
        """The functions in C, callees first."""
        out = list(self.data)
        for name, function in reversed(self.functions.items()):
            setup = () if name == "main" else function.sizes.statements
            lines = ["(void)p;", *setup, *function.body, "return META_OK;"]
            out.append(
                "\n".join([f"static int {function.symbol}(meta_program *p) {{", *("  " + x for x in lines), "}"])
            )
        return "\n\n".join(out)


class _Writer(ArenaFrame):
    """Writes the body of one function."""

    def __init__(self, program: ProgramFunctions, name: str, function: CFunction, within: tuple[str, ...]) -> None:
        super().__init__(program.tables, name, function.sizes)
        self.program = program
        self.function = function
        self.within = within
        self.workspaces: Iterator[Tensor] = iter(())
        """Of the step that is written."""

    def write(self) -> None:
        source, function = self.function.source, self.function
        for size in source.storages:
            self.storages.append(aligned(self.bytes))
            self.bytes = self.storages[-1] + size
        parameters = (o.tensor for _, value in source.parameters for o in leaves(value))
        for tensor, slot in zip(parameters, function.parameters, strict=True):
            self.places[tensor.memory] = SlotPlace(slot)
        for operand, slot in zip(leaves(source.result), function.results, strict=True):
            if operand.tensor.memory.kind in (OWN, OBJECT):
                self.places.setdefault(operand.tensor.memory, SlotPlace(slot))
        lives = self.temporary_lives()
        for i, step in enumerate(source.steps):
            for memory, (first, _) in lives.items():
                if first == i:
                    slot = self.places[memory].slot
                    tensor = next(t for s in source.steps for t in s.results if t.memory is memory)
                    self.lines.append(f"TRY(meta_take(p, {slot}, {self.view(Operand(tensor))}));")
            self.step(step)
            ended = [self.places[memory].slot for memory, (_, last) in lives.items() if last == i]
            self.lines += [f"meta_drop(p, {slot});" for slot in ended]
        for operand, slot in zip(leaves(source.result), function.results, strict=True):
            if self.place(operand.tensor) != SlotPlace(slot):
                self.lines.append(f"meta_copy(p, {self.view(operand)}, {self.view(operand, SlotPlace(slot))});")
        function.body, function.frame = tuple(self.lines), self.bytes

    def temporary_lives(self) -> dict[Memory, tuple[int, int]]:
        """The first and the last step that use memory of symbolic size, which is allocated by each run."""
        steps = self.function.source.steps
        lives: dict[Memory, tuple[int, int]] = {}
        for i, step in enumerate(steps):
            operands = step.operands if isinstance(step, KernelCall) else step.reads
            for tensor in (*(o.tensor for o in operands), *step.results):
                memory = tensor.memory
                if memory.kind in (OWN, OBJECT) and not tensor.is_static and tensor.dtype:
                    if memory not in self.places:
                        self.places[memory] = SlotPlace(self.tables.slot())
                        lives[memory] = (i, i)
                    elif memory in lives:
                        lives[memory] = (lives[memory][0], i)
        for operand in leaves(self.function.source.result):
            if operand.tensor.memory in lives:
                lives[operand.tensor.memory] = (lives[operand.tensor.memory][0], len(steps) - 1)
        return lives

    # --- steps -------------------------------------------------------------------------------------------------------

    def step(self, step: KernelCall | ObjectCall) -> None:
        if isinstance(step, ObjectCall):
            values = {var.__chandle__(): value for var, value in step.operands.items()}
            self.workspaces = iter(step.workspaces)
            self.evaluate(step.expression, values, step.result)
        elif not step.packed:
            self.kernel(step)
        elif step.function in self.program.loops:
            self.loop(step, self.program.loops[step.function])
        else:
            raise unsupported(
                f"the program calls {step.function}", "kernels of TVM", 'compile it inside meta.with_dialect("tvm")'
            )

    def kernel(self, call: KernelCall) -> None:
        start = len(self.tables.arguments)
        for argument in call.arguments:
            is_tensor = isinstance(argument, Operand)
            self.tables.arguments.append(self.view(argument) if is_tensor else self.sizes.argument(argument))
        symbol = self.program.symbols[call.function]
        self.lines.append(f"TRY(meta_call(p, {symbol}, p->values + {start}, {len(call.arguments)}));")

    def call(self, name: str, operands: Sequence[Operand], results: Sequence[Operand]) -> CFunction:
        """Call a function."""
        callee = self.program.get(name, self.within)
        self.set_sizes(callee, operands)
        self.lines += [
            *(self.passing(slot, o) for slot, o in zip(callee.parameters, operands, strict=True)),
            *(self.passing(slot, o) for slot, o in zip(callee.results, results, strict=True)),
            f"TRY({callee.symbol}(p));",
        ]
        return callee

    def set_sizes(self, callee: CFunction, operands: Sequence[Operand]) -> None:
        """Set the symbolic sizes of a called function from its operands. A loop passes a row of an operand: the
        parameter has the last axes of the operand."""
        for i, axis, statement in callee.solution:
            parameters = [o.tensor for _, value in callee.source.parameters for o in leaves(value)]
            shape = self.shape(operands[i])
            self.lines.append(statement.format(self.sizes.text(shape[axis - len(known_shape(parameters[i]))])))

    def passing(self, slot: int, operand: Operand) -> str:
        return f"meta_place(p, {slot}, p->views[{self.view(operand)}].data);"

    # --- expressions of Relax ----------------------------------------------------------------------------------------

    def evaluate(self, expression: Any, values: dict[int, Value], target: Value) -> None:
        """Compute an expression into `target`, tensors of this function."""
        if isinstance(expression, tvm.SeqExpr):
            values = dict(values)
            result = expression.body
            for block in elements(expression.blocks):
                for binding in elements(block.bindings):
                    var, value = binding.var, binding.value
                    if result.same_as(var) and isinstance(value, (tvm.RelaxCall, tvm.RelaxIf)):
                        self.evaluate(value, values, target)
                        return
                    values[var.__chandle__()] = self.value(value, var, values)
            self.evaluate(result, values, target)
        elif isinstance(expression, tvm.RelaxIf):
            (condition,) = leaves(self.value(expression.cond, None, values))
            self.lines.append(f"if (meta_is_true(p->views[{self.view(condition)}].data)) {{")
            self.evaluate(expression.true_branch, values, target)
            self.lines.append("} else {")
            self.evaluate(expression.false_branch, values, target)
            self.lines.append("}")
        elif isinstance(expression, tvm.RelaxCall):
            self.function_call(expression, values, target)
        elif isinstance(expression, tvm.RelaxConstant):
            (operand,) = leaves(target)
            self.constant(expression, operand.tensor)
        else:
            pairs = zip(leaves(self.value(expression, None, values)), leaves(target), strict=True)
            self.lines += [f"meta_copy(p, {self.view(a)}, {self.view(b)});" for a, b in pairs]

    def value(self, expression: Any, var: Any, values: dict[int, Value]) -> Value:
        """The value of an expression; what it computes goes to new memory."""
        if isinstance(expression, tvm.RelaxVar):
            return values[expression.__chandle__()]
        if isinstance(expression, tvm.RelaxTuple):
            return tuple(self.value(item, None, values) for item in elements(expression.fields))
        if isinstance(expression, tvm.RelaxTupleGetItem):
            items = self.value(expression.tuple_value, None, values)
            return cast("tuple[Value, ...]", items)[expression.index]
        kind = expression.ty if var is None else var.ty
        target = self.new(kind)
        self.evaluate(expression, values, target)
        return target

    def new(self, kind: Any) -> Value:
        """New tensors of a type of Relax."""
        if isinstance(kind, tvm.TupleType):
            return tuple(self.new(each) for each in elements(kind.fields))
        shape = sizes_of(kind.shape.values) if kind.shape is not None else None
        return Operand(Tensor("value", shape, str(kind.dtype), Memory(OBJECT)))

    def constant(self, expression: Any, tensor: Tensor) -> None:
        slot = self.tables.slot()
        self.program.constants.append((slot, expression.value.numpy().tobytes()))
        if tensor.memory in self.places:
            operand = Operand(tensor)
            self.lines.append(f"meta_copy(p, {self.view(operand, SlotPlace(slot))}, {self.view(operand)});")
        else:
            self.places[tensor.memory] = SlotPlace(slot)

    def function_call(self, call: Any, values: dict[int, Value], target: Value) -> None:
        arguments = elements(call.args)
        if isinstance(call.op, tvm.GlobalVar):
            operands = [o for a in arguments if not _is_token(a) for o in leaves(self.value(a, None, values))]
            self.call(str(call.op.name_hint), operands, list(leaves(target)))
            return
        name = str(getattr(call.op, "global_symbol", call.op))
        if name == CHECK_FUNCTION:  # a token that the stack suffices: calls nest as deep as the program is written
            return
        if name != LOOP_FUNCTION:
            raise unsupported(f"the program calls {name}", "kernels of TVM")
        step = str(arguments[0].value)
        operands = [o for a in arguments[1:] for o in leaves(self.value(a, None, values))]
        self.repeat(step, operands, list(leaves(target)))

    def repeat(self, step: str, operands: Sequence[Operand], results: Sequence[Operand]) -> None:
        """Repeat a step until the first of its results is False."""
        callee = self.program.get(step, self.within)
        flag, *last = results
        spares = [self.view(Operand(next(self.workspaces))) for _ in last]
        table = self.carries(callee.parameters, callee.results[1:], operands, last, spares)
        self.set_sizes(callee, operands)
        self.lines += [
            f"meta_begin(p, {table}, {len(operands)}, -1);",
            self.passing(callee.results[0], flag),
            "do {",
            f"  TRY({callee.symbol}(p));",
            f"  meta_advance(p, {table}, {len(operands)});",
            f"}} while (meta_is_true(p->slots[{callee.results[0]}]));",
            f"meta_finish(p, {table}, {len(operands)});",
        ]

    # --- loops -------------------------------------------------------------------------------------------------------

    def loop(self, call: KernelCall, loop: LoopCall) -> None:
        arguments: list[Operand] = [a for a in call.arguments if isinstance(a, Operand)]
        first, last = loop.carried, loop.carried + len(loop.elements)
        outs = arguments[last + loop.captured :][: first + len(loop.stacks)]
        given = iter(arguments[last + loop.captured + len(outs) :])
        own = [0 if each is None else self.view(next(given)) for each in loop_workspaces(call, loop)]
        operands = arguments[: last + loop.captured]
        callee = self.program.get(loop.step, self.within)
        steps = -1 if loop.length == "while" else loop.length
        if steps == "n":
            steps = self.sizes.text(self.shape((*arguments[first:last], *outs[first:])[0])[0])
        carries = self.carries(callee.parameters[:first], callee.results[:first], operands[:first], outs[:first], own)
        rows = self.rows(callee.parameters[first:last], arguments[first:last], own[first:])
        items = self.rows(callee.results[first:], outs[first:], own[last:])
        self.set_sizes(callee, operands)
        captured = zip(callee.parameters[last:], operands[last:], strict=True)
        self.lines += [self.passing(slot, o) for slot, o in captured]
        self.lines.append(f"meta_begin(p, {carries}, {first}, {steps});")
        if loop.length == "while":
            self.lines.append(f"while (meta_is_true(p->slots[{callee.parameters[0]}])) {{")
        elif loop.reverse:
            self.lines.append(f"for (int64_t i = {steps}; i-- > 0;) {{")
        else:
            self.lines.append(f"for (int64_t i = 0; i < {steps}; ++i) {{")
        numbers = len(loop.elements), len(loop.stacks)
        self.lines += [f"  meta_read_rows(p, {rows}, {numbers[0]}, i);"] * bool(numbers[0])
        self.lines += [f"  meta_write_rows(p, {items}, {numbers[1]}, i);"] * bool(numbers[1])
        self.lines.append(f"  TRY({callee.symbol}(p));")
        self.lines += [f"  meta_store_rows(p, {items}, {numbers[1]}, i);"] * bool(numbers[1])
        self.lines += [f"  meta_advance(p, {carries}, {first});", "}", f"meta_finish(p, {carries}, {first});"]

    def carries(
        self, parameters: Sequence[int], results: Sequence[int], first: Sequence[Operand], last: Sequence[Operand],
        spares: Sequence[int],
    ) -> str:  # fmt: skip
        """The table of the values that a loop carries; its name."""
        views = zip(map(self.view, first), map(self.view, last), spares, strict=False)
        rows = [
            f"{{{p}, {r}, {', '.join(map(str, each))}}}" for p, r, each in zip(parameters, results, views, strict=True)
        ]
        return self.table("meta_carry", rows)

    def rows(self, slots: Sequence[int], stacks: Sequence[Operand], own: Sequence[int]) -> str:
        """The table of the tensors whose rows steps read or write; its name."""
        rows = [f"{{{s}, {self.view(x)}, {row}}}" for s, x, row in zip(slots, stacks, own, strict=False)]
        return self.table("meta_rows", rows)

    def table(self, kind: str, rows: Sequence[str]) -> str:
        if not rows:
            return "NULL"
        name = f"{kind.removeprefix('meta_')}_{len(self.program.data)}"
        self.program.data.append(array(kind, name, rows))
        return name


def _is_token(argument: Any) -> bool:
    return isinstance(argument, tvm.RelaxVar) and argument.name.startswith("token")
