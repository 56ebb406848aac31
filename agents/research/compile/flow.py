"""Which values in a function vary with the batch or with lengths. Rules of one function, no calls followed:

- EACH (as many values as there are batches): names such as num_tokens, batch_size, seq_len, max_seqlen_q, M; the first
  size of an activation (x.shape[0], q.size(0), `M, K = x.shape`); its numel and len; arithmetic, cdiv, min, max and
  int of such a value; one branch of `a if c else b`.
- POWERS (about the logarithm as many): next_power_of_2, bit_length or a shift of such a value.
- FIXED: everything else. A comparison has two values; `% constant` has few; what another function returns (a table
  entry, a configuration) is taken for fixed. So are limits that a server sets once (max_num_seqs, max_model_len) and
  query_len in the singular, which decoding kernels use for one plus the drafted tokens; in a function that decodes
  (_QUERIES), the longest query too, and in one that updates a state, a sequence's new tokens.

A name that is assigned in several places takes the most that any of them gives.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from enum import IntEnum


class Vary(IntEnum):
    FIXED = 0
    POWERS = 1
    EACH = 2


_NAMES = re.compile(
    r"(?:total_|cur_|current_)?(?:num_|n_)?(?:actual_)?(?:input_|prefill_|decode_|padded_|valid_)?"
    r"(?:tokens|seqs|reqs|requests|batch|batch_size|bs|bsz|seq_?lens?|seqlens?|query_lens|q_lens|kv_?lens?|"
    r"ctx_?lens?|context_?lens?|prefix_?lens?|num_rows|n_rows|token_num|token_count|m)"
    r"|max_(?:seq|query|ctx|context|prefix|kv|q|k|input)_?len(?:gth)?s?(?:_[qk])?|max_seqlens?_?(?:q|k|kv)?"
    r"|seq(?:_?len)?s?_[qk]v?|cu_seq_?lens?(?:_[qkv]+)?|(?:num_|n_)tokens_\w+|M"
)
_FIXED_NAMES = re.compile(r"max_num_\w+|max_model_len|num_tokens_per_\w+|tokens_per_\w+|\w*_per_(?:block|page|split)")
_ACTIVATIONS = re.compile(
    r"x\d?|a|q|k|v|o|y|out|outputs?|inputs?|inp|hidden(?:_states)?|query|key|value|qkv|logits|probs|gates?|gating_output|"
    r"router_logits|topk_(?:ids|weights|indices)|(?:input|token|draft|target|expert)_(?:ids|tokens|probs|logits)|"
    r"positions|slot_mapping|block_tables?|(?:\w+_)?seq_?lens?|(?:cu_)?seqlens?\w*|cu_num_\w+|hidden_states|\w+_tokens|"
    r"x_\w+|q_\w+|query_\w+|residual|attn_output|req_\w+"
)
# Lengths of one sequence's new tokens, one plus the drafted tokens, in functions that say that they decode, or whose
# rows are a whole number of sequences of one length (`assert tokens == sequences * max_query_len`).
_QUERIES = re.compile(r"max_(?:query|q)_?len(?:gth)?|max_seq_?lens?_?q|(?:query|q)_len|seq_?len_?q")
_DECODES = re.compile(r"(?:\w+_)?(?:decode|verify)(?:_\w+)?")
_NEW_TOKENS = re.compile(
    rf"seq_?len|{_QUERIES.pattern}"
)  # of a state's update: causal_conv1d_update, x (batch, dim, seqlen)
_UPDATES = re.compile(r"(?:\w+_)?update(?:_\w+)?")
# The first size of a tensor that lies the other way round, by what it is unpacked into.
_WIDTHS = re.compile(
    r"_|[dckne]|[a-z]?h|(?:\w+_)?(?:dims?|heads?|hidden|channels|size|width|groups|experts|lines|blocks|pages|splits?\w*)|"
    r"\w*(?:split|head|dim)\w*"
)
# Weights and caches carry activation-like names too.
_NOT_ACTIVATIONS = re.compile(r"\w*(?:cache|weight|scale|bias|proj|lora|buffer|pool)\w*")
_POWERS = ("next_power_of_2", "next_pow2", "next_power_of_two", "bit_length", "log2")
_ARITHMETIC = (
    *("cdiv", "ceil_div", "ceildiv", "div_up", "round_up", "align", "align_up", "ceil", "floor", "int", "float"),
    *("abs", "round", "min", "max", "prod", "constexpr", "item", "sum", "tolist", "cpu"),
)


def named(name: str) -> bool:
    """Whether a name says that its value varies."""
    if name == "M":
        return True
    lower = name.lower()
    return lower != "m" and bool(_NAMES.fullmatch(lower)) and not _FIXED_NAMES.fullmatch(lower)


class Flow:
    """Of one function, or of a heuristic's lambda with `given` for what its args hold."""

    def __init__(self, function: ast.AST, given: Mapping[str, Vary] | None = None) -> None:
        self.given = dict(given or {})
        self.held = _held(function)
        self.assigned: dict[str, list[ast.expr]] = {}
        self.unpacked: dict[str, Vary] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._bind(target, node.value)
            elif isinstance(node, ast.AnnAssign | ast.NamedExpr | ast.AugAssign) and node.value is not None:
                self._bind(node.target, node.value)
        self._known: dict[str, Vary] = {}
        self._open: set[str] = set()

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.assigned.setdefault(target.id, []).append(value)
        elif isinstance(target, ast.Tuple | ast.List):
            if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
                for part, one in zip(target.elts, value.elts, strict=True):
                    self._bind(part, one)
            elif _is_shape(value):
                for index, part in enumerate(target.elts):
                    if isinstance(part, ast.Name):
                        first = index == 0 and _activation(value) and not _WIDTHS.fullmatch(part.id.lower())
                        inner = named(part.id) and (part.id != "M" or index < len(target.elts) - 1)
                        self.unpacked[part.id] = Vary.EACH if first or inner else Vary.FIXED
                    if isinstance(part, ast.Starred):
                        break  # what follows counts from the end: a width
            else:
                for part in target.elts:
                    if isinstance(part, ast.Name):
                        self.unpacked.setdefault(part.id, Vary.EACH if named(part.id) else Vary.FIXED)

    def of_name(self, name: str) -> Vary:
        if name in self.given:
            return self.given[name]
        if self.held and self.held.fullmatch(name.lower()):
            return Vary.FIXED
        if name in self._known:
            return self._known[name]
        if name in self._open:  # x = x + 1
            return Vary.FIXED
        self._open.add(name)
        held = self.assigned.get(name, [])
        if _WIDTHS.fullmatch(name.lower()):  # dim = x.size(0): that tensor lies the other way round
            held = [value for value in held if not _first_size(value)]
        found = max((self.of(value) for value in held), default=Vary.FIXED)
        if name in self.unpacked:
            found = max(found, self.unpacked[name])
        elif not held and named(name):
            found = Vary.EACH
        if any(_rounds_itself(name, value) for value in held):  # size = next_power_of_2(size)
            found = min(found, Vary.POWERS)
        self._open.discard(name)
        self._known[name] = found
        return found

    def of(self, node: ast.expr) -> Vary:
        if isinstance(node, ast.Name):
            return self.of_name(node.id)
        if isinstance(node, ast.Attribute):
            return Vary.EACH if named(node.attr) and node.attr != "M" else Vary.FIXED
        if isinstance(node, ast.Subscript):
            return self._subscript(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.BinOp):
            left, right = self.of(node.left), self.of(node.right)
            if isinstance(node.op, ast.Mod | ast.BitAnd) and right == Vary.FIXED:
                return Vary.FIXED
            if isinstance(node.op, ast.LShift | ast.Pow) and right != Vary.FIXED:
                return Vary.POWERS
            return max(left, right)
        if isinstance(node, ast.UnaryOp):
            return Vary.FIXED if isinstance(node.op, ast.Not) else self.of(node.operand)
        if isinstance(node, ast.BoolOp):
            return max(self.of(value) for value in node.values)
        if isinstance(node, ast.IfExp):
            return max(self.of(node.body), self.of(node.orelse))
        if isinstance(node, ast.NamedExpr):
            return self.of(node.value)
        return Vary.FIXED

    def _subscript(self, node: ast.Subscript) -> Vary:
        if isinstance(node.value, ast.Name) and node.value.id == "args" and isinstance(node.slice, ast.Constant):
            return self.given.get(str(node.slice.value), Vary.FIXED)
        if not _is_shape(node.value) or not isinstance(node.slice, ast.Constant):
            return Vary.FIXED
        return Vary.EACH if node.slice.value == 0 and _activation(node.value) else Vary.FIXED

    def _call(self, node: ast.Call) -> Vary:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if name == "size" and owner is not None and node.args:
            first = isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
            return Vary.EACH if first and _activation_tensor(owner) else Vary.FIXED
        if name in ("numel", "nelement") and owner is not None:
            return Vary.EACH if _activation_tensor(owner) else Vary.FIXED
        if name == "len" and node.args:
            held = node.args[0]
            return Vary.EACH if _activation_tensor(held) or self.of(held) == Vary.EACH else Vary.FIXED
        inner = [self.of(a) for a in node.args]
        if owner is not None and not isinstance(owner, ast.Name):
            inner.append(self.of(owner))  # seq_lens.max().item()
        elif isinstance(owner, ast.Name) and name in ("max", "item", "sum", "tolist", "cpu", "bit_length"):
            inner.append(self.of(owner))
        most = max(inner, default=Vary.FIXED)
        if name in _POWERS:
            return min(most, Vary.POWERS)
        return most if name in _ARITHMETIC else Vary.FIXED

    def sample(self, node: ast.expr, batch: int, args: Mapping[str, int] | None = None, depth: int = 0) -> int:
        """The value of an expression for one batch size, whole numbers only: what varies is the batch size itself, what
        is not known is 64. For counting variants; good where the shape of the dependence matters, not the value."""
        if depth > 8:
            return batch if self.of(node) else 64

        def inner(n: ast.expr) -> int:
            return self.sample(n, batch, args, depth + 1)

        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return int(node.value)
        if isinstance(node, ast.Name):
            held = self.assigned.get(node.id)
            if held and node.id not in self.given:
                varying = max(reversed(held), key=lambda value: self.of(value))
                return inner(varying)
            return batch if self.of_name(node.id) else 64
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            return (args or {}).get(str(node.slice.value), batch if self.of(node) else 64)
        if isinstance(node, ast.BinOp):
            return _arithmetic(node.op, inner(node.left), inner(node.right))
        if isinstance(node, ast.IfExp):
            return inner(node.body if self.of(node.body) >= self.of(node.orelse) else node.orelse)
        if isinstance(node, ast.Call) and node.args:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            values = [inner(a) for a in node.args]
            if name in ("cdiv", "ceil_div", "ceildiv", "div_up") and len(values) == 2:
                return -(-values[0] // max(1, values[1]))
            if name in ("next_power_of_2", "next_pow2", "next_power_of_two"):
                return 1 << max(0, values[0] - 1).bit_length()
            if name in ("min", "max"):
                return min(values) if name == "min" else max(values)
            if name in ("int", "float", "abs", "round", "ceil", "floor", "constexpr"):
                return values[0]
        return batch if self.of(node) else 64


def _held(function: ast.AST) -> re.Pattern[str] | None:
    """Names that do not vary in this function, whatever they are called."""
    if not isinstance(function, ast.FunctionDef):
        return None
    if _UPDATES.fullmatch(function.name):
        return _NEW_TOKENS
    return _QUERIES if _DECODES.fullmatch(function.name) or _uniform(function) else None


def _uniform(function: ast.FunctionDef) -> bool:
    """Whether it asserts that rows are sequences x the longest query."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], ast.Eq):
            for side in (node.test.left, *node.test.comparators):
                factors = (
                    (side.left, side.right) if isinstance(side, ast.BinOp) and isinstance(side.op, ast.Mult) else ()
                )
                if any(isinstance(f, ast.Name) and _QUERIES.fullmatch(f.id.lower()) for f in factors):
                    return True
    return False


def _arithmetic(op: ast.operator, left: int, right: int) -> int:
    if isinstance(op, ast.Add):
        return left + right
    if isinstance(op, ast.Sub):
        return left - right
    if isinstance(op, ast.Mult):
        return left * right
    if isinstance(op, ast.FloorDiv | ast.Div):
        return left // right if right else left
    if isinstance(op, ast.LShift):
        return 1 << min(40, max(0, right))
    return left if not isinstance(op, ast.Pow) else int(math.pow(left, min(8, abs(right))))


def _rounds_itself(name: str, value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return False
    called = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    return called in _POWERS and any(isinstance(n, ast.Name) and n.id == name for a in value.args for n in ast.walk(a))


def _first_size(node: ast.expr) -> bool:
    return _is_shape(node) or (isinstance(node, ast.Subscript) and _is_shape(node.value))


def _is_shape(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "shape"
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size"


def _activation(shape: ast.expr) -> bool:
    """Whether the tensor of `tensor.shape` or `tensor.size()` is one that a step brings along."""
    owner = shape.value if isinstance(shape, ast.Attribute) else getattr(shape, "func", None)
    if isinstance(shape, ast.Call) and isinstance(owner, ast.Attribute):
        owner = owner.value
    return isinstance(owner, ast.expr) and _activation_tensor(owner)


def _activation_tensor(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return bool(_ACTIVATIONS.fullmatch(name)) and not _NOT_ACTIVATIONS.fullmatch(name)
