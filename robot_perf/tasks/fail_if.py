"""`compare --fail-if EXPR`: a small language over a comparison, with three answers and nothing of Python's in it.

    expression   conjunction ("or" conjunction)*
    conjunction  negation ("and" negation)*
    negation     "not" negation | "(" expression ")" | condition
    condition    "slower" | "faster" | "misses" | "never" | figure (">" | ">=" | "<" | "<=") amount
    figure       "p50" | "p99"                        B seen from A
    amount       a ratio such as 1.1 (B is 1.1 times A), a share such as 10% (B is 10 % above A),
                 or a difference such as 0.5ms, 200us or 100ns

`slower` and `faster` are the answer on p50, noise floor included. `misses` is true when B is shown to miss more than A, false
when its rate is no higher than A's, and unknown when it is higher but that may be chance. A figure is
compared by its interval, a ratio or share by that of B over A: true when all of it satisfies the condition, false when none
does, else unknown. Unknown is no pass: the command says INCONCLUSIVE. `and`, `or` and `not` are Kleene's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from robot_perf.analyze.comparison.compare import CANT_SAY, FASTER, SLOWER, Comparison, LatencyContrast, MissContrast
from robot_perf.errors import UsageError
from robot_perf.units import parse_duration_ns

__all__ = ["FailIf", "parse_fail_if"]

_TOKEN = re.compile(r"\s*(?:(>=|<=|>|<|\(|\))|([A-Za-z][A-Za-z0-9_.'-]*)|([0-9][0-9.]*\s*(?:%|ns|us|µs|ms|s)?))")
_WORDS = ("slower", "faster", "misses", "never")
_FIGURES = ("p50", "p99")
_MOST_DEEP = 50  # nesting beyond this is no expression of a person

Answer = bool | None
Tree = tuple["str | Tree", ...]


@dataclass(frozen=True, slots=True)
class FailIf:
    """A parsed expression. `of` answers it: True, False, or None where the Runs can't say."""

    text: str
    tree: Tree

    def of(self, comparison: Comparison) -> Answer:
        """The answer of three values for one comparison."""
        return _evaluate(self.tree, comparison)


def parse_fail_if(text: str) -> FailIf:
    """The expression in `text`. Raises UsageError that names the place where it stops making sense."""
    parser = _Parser(text)
    tree = parser.expression(0)
    if parser.token is not None:
        raise parser.refuse(f"{parser.token!r} is out of place")
    return FailIf(text, tree)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = list(self._split())

    def _split(self) -> Iterator[str]:
        at = 0
        while self.text[at:].strip():
            match = _TOKEN.match(self.text, at)
            if match is None:
                raise self.refuse(f"{self.text[at:].strip()[:20]!r} is not understood")
            at = match.end()
            yield match[0].strip()

    @property
    def token(self) -> str | None:
        """The token that comes next, or None at the end."""
        return self._tokens[0] if self._tokens else None

    def next(self) -> str | None:
        """Takes the token that comes next."""
        return self._tokens.pop(0) if self._tokens else None

    def refuse(self, what: str) -> UsageError:
        return UsageError(
            f"--fail-if {self.text!r}: {what}",
            why="Words: slower, faster, misses, never; figures: p50, p99 with >, >=, <, <= and 1.1, 10% or 0.5ms; and, or, not, ( ).",
            do="For example: --fail-if 'slower or p99>1.1 or misses'",
        )

    def expression(self, depth: int) -> Tree:
        parts = [self.conjunction(depth)]
        while self.token == "or":
            self.next()
            parts.append(self.conjunction(depth))
        return parts[0] if len(parts) == 1 else ("or", *parts)

    def conjunction(self, depth: int) -> Tree:
        parts = [self.negation(depth)]
        while self.token == "and":
            self.next()
            parts.append(self.negation(depth))
        return parts[0] if len(parts) == 1 else ("and", *parts)

    def negation(self, depth: int) -> Tree:
        if depth > _MOST_DEEP:
            raise self.refuse("it is nested too deeply")
        word = self.next()
        if word is None:
            raise self.refuse("something is missing at its end")
        if word == "not":
            return ("not", self.negation(depth + 1))
        if word == "(":
            inner = self.expression(depth + 1)
            if self.next() != ")":
                raise self.refuse("a ) is missing")
            return inner
        if word in _WORDS:
            return (word,)
        if word in _FIGURES:
            return self.figure(word)
        raise self.refuse(f"{word!r} is not known")

    def figure(self, name: str) -> Tree:
        operator, amount = self.next(), self.next()
        if operator not in (">", ">=", "<", "<="):
            raise self.refuse(f"{name} needs >, >=, < or <= after it")
        if amount is None or not amount[0].isdigit():
            raise self.refuse(f"{name}{operator} needs an amount after it")
        unit = amount.lstrip("0123456789.").strip()
        if amount[: len(amount) - len(unit)].count(".") > 1:
            raise self.refuse(f"{amount!r} is not a number")
        return (name, operator, amount)


def _evaluate(tree: Tree, c: Comparison) -> Answer:
    head, *rest = tree
    if head in ("and", "or"):
        answers = [_evaluate(part, c) for part in rest if isinstance(part, tuple)]
        decides = head == "or"
        return decides if decides in answers else None if None in answers else not decides
    if head == "not" and isinstance(rest[0], tuple):
        inner = _evaluate(rest[0], c)
        return None if inner is None else not inner
    if head == "never":
        return False
    if head == "misses":
        return _misses_more(c.misses)
    if head in (SLOWER, FASTER):
        return None if c.latency.answer == CANT_SAY else c.latency.answer == head
    name, operator, amount = (str(part) for part in tree)
    return _compare(c.latency if name == "p50" else c.tail, operator, amount)


def _misses_more(misses: MissContrast | None) -> Answer:
    if misses is None or not (misses.releases_a and misses.releases_b):
        return None
    if misses.answer == "more":
        return True
    return None if misses.higher else False


def _compare(figure: LatencyContrast, operator: str, amount: str) -> Answer:
    """Whether the whole interval of B - A lies beyond the limit (true), short of it (false), or neither."""
    if figure.a_ns is None:
        # nothing was estimable; or A's percentile is a skipped release, and any finite one of B lies below it
        return None if figure.b_ns is None else operator in ("<", "<=")
    limit, of_a = _limit(amount)
    # an end of the interval that is no number lies on a skipped release; where B's own value does, both ends may
    below = math.inf if of_a or figure.b_ns is None else -math.inf
    ends = (figure.ratio_low, figure.ratio_high) if of_a else (figure.low_ns, figure.high_ns)
    low = below if ends[0] is None else ends[0]
    high = math.inf if ends[1] is None else ends[1]
    if operator in ("<", "<="):
        low, high, limit, operator = -high, -low, -limit, operator.replace("<", ">")
    if low > limit or (operator == ">=" and low == limit):
        return True
    return False if high < limit or (operator == ">" and high == limit) else None


def _limit(amount: str) -> tuple[Fraction, bool]:
    """A multiple of A with True, or a difference in ns with False.

    A is as uncertain as B: its interval counts in a multiple, so that is held against the interval of B over A.
    """
    number = amount.replace(" ", "")
    if number.endswith("%"):
        return 1 + Fraction(number[:-1]) / 100, True
    if number[-1].isalpha():
        return Fraction(parse_duration_ns(number)), False
    return Fraction(number), True
