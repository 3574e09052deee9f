"""Expressions: a parser from cleaned LaTeX or plain text to a small tree."""

import re
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Node", "ParseError", "parse_expression"]

MAX_DEPTH = 60  # of brackets; deeper text is no answer


class ParseError(ValueError):
    """The text is not an expression that this parser knows."""


@dataclass(frozen=True, slots=True)
class Node:
    """An operation on other nodes, a number, or a symbol.

    kind is "number", "symbol", "constant" (e, pi, i, infinity), one of + * / ^ neg, or the name of
    a function. `digits` counts the significant digits of a decimal literal.
    """

    kind: str
    arguments: tuple["Node", ...] = ()
    value: Fraction = Fraction(0)
    name: str = ""
    digits: int = 0

    def symbols(self) -> set[str]:
        """The names of the symbols in the tree."""
        if self.kind == "symbol":
            return {self.name}
        return set().union(*(argument.symbols() for argument in self.arguments))


FUNCTIONS = {
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh",
    "ln", "log", "exp", "sqrt",
}  # fmt: skip
INVERSES = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}
SPELLINGS = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}
CONSTANTS = {
    "pi": "pi",
    "e": "e",
    "i": "i",
    "infty": "inf",
    "infinity": "inf",
    "inf": "inf",
    "oo": "inf",
}
GREEK = {
    "alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta",
    "iota", "kappa", "lambda", "mu", "nu", "xi", "rho", "sigma", "tau", "upsilon", "phi", "varphi",
    "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi",
    "Omega", "ell", "hbar",
}  # fmt: skip
WORDS = sorted(FUNCTIONS | set(SPELLINGS) | set(CONSTANTS) - {"e", "i"}, key=len, reverse=True)
CLOSING = {"(": ")", "[": "]", "{": "}", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil"}
SHORT_WORD = 3  # a longer run of letters is text, not a product

TOKEN = re.compile(
    r"(?P<space>\s*)(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+(?![\d.]))?)|(?P<command>\\[a-zA-Z]+)"
    r"|(?P<word>[A-Za-z]+)|(?P<symbol>[-+/^_!|()\[\]{}%':]))"
)


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    spaced: bool


def parse_expression(text: str) -> Node:
    """The tree of a cleaned expression, or ParseError."""
    parser = Parser(tokenize(text))
    node = parser.sum()
    if parser.peek() is not None:
        raise ParseError(f"{parser.peek()} is out of place")
    return node


def tokenize(text: str) -> list[Token]:
    """Numbers, commands, words of letters (split where they are products) and signs."""
    tokens: list[Token] = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = TOKEN.match(text, position)
        if match is None:
            raise ParseError(f"{text[position]!r} is no part of an expression")
        position = match.end()
        kind = match.lastgroup or ""
        spaced = bool(match["space"])
        if kind == "word":
            words = split_word(match[kind])
            tokens += [Token("word", word, spaced and not n) for n, word in enumerate(words)]
        elif kind == "command" and match[kind] == r"\text":
            raise ParseError("text is no expression")
        else:
            tokens.append(Token(kind, match[kind], spaced))
    return tokens


def split_word(word: str) -> list[str]:
    """A run of letters as function names and single letters."""
    if len(word) > SHORT_WORD and not any(known in word for known in WORDS):
        raise ParseError(f"{word!r} is a word")
    parts: list[str] = []
    while word:
        known = next((known for known in WORDS if word.startswith(known)), word[0])
        parts.append(known)
        word = word[len(known) :]
    if sum(len(part) == 1 for part in parts) > SHORT_WORD:
        raise ParseError("too many letters in a row for a product")
    return parts


class Parser:
    """Recursive descent, loosest operation first."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.position = 0
        self.depth = 0
        self.bars = 0

    def peek(self) -> str | None:
        """The text of the next token, or None at the end."""
        return self.tokens[self.position].text if self.position < len(self.tokens) else None

    def next(self) -> Token:
        """The next token, consumed."""
        if self.position >= len(self.tokens):
            raise ParseError("the expression breaks off")
        self.position += 1
        return self.tokens[self.position - 1]

    def accept(self, *texts: str) -> str | None:
        """The next token's text, consumed, if it is one of `texts`."""
        if self.peek() in texts:
            return self.next().text
        return None

    def expect(self, text: str) -> None:
        """Consumes `text`, or ParseError."""
        if self.accept(text) is None:
            raise ParseError(f"{text} is missing")

    def sum(self) -> Node:
        """Terms with + and - between them."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ParseError("nested too deeply")
        node = self.term()
        while sign := self.accept("+", "-"):
            right = self.term()
            node = Node("+", (node, right if sign == "+" else Node("neg", (right,))))
        self.depth -= 1
        return node

    def term(self) -> Node:
        """Factors with signs, \\cdot, / or nothing between them."""
        negative = False
        while sign := self.accept("+", "-"):
            negative ^= sign == "-"
        node = self.power()
        while True:
            if self.accept(r"\cdot"):
                node = Node("*", (node, self.signed_power()))
            elif self.accept("/", ":"):
                node = Node("/", (node, self.signed_power()))
            elif self.starts_factor():
                node = self.juxtaposed(node)
            else:
                return Node("neg", (node,)) if negative else node

    def signed_power(self) -> Node:
        """A factor after an operator, which may carry a sign."""
        negative = False
        while sign := self.accept("+", "-"):
            negative ^= sign == "-"
        node = self.power()
        return Node("neg", (node,)) if negative else node

    def starts_factor(self) -> bool:
        """Whether the next token begins a factor of an implicit product."""
        text = self.peek()
        if text is None or (text == "|" and self.bars):
            return False
        token = self.tokens[self.position]
        return (
            token.kind in ("number", "word")
            or (token.kind == "command" and text not in (r"\cdot", r"\rfloor", r"\rceil"))
            or text in ("(", "[", "{", "|")
        )

    def juxtaposed(self, left: Node) -> Node:
        """A product without a sign, or the mixed number that two numbers side by side mean."""
        right_is_number = self.tokens[self.position].kind == "number"
        numbers_touch = right_is_number and self.tokens[self.position - 1].kind == "number"
        fraction = self.peek() == r"\frac"
        whole = left.kind == "number" and left.digits == 0
        right = self.power()
        if whole and (fraction or right_is_number):
            if right_is_number and self.accept("/"):
                right = Node("/", (right, self.power()))
            if is_proper_fraction(right):
                return Node("+", (left, right))
        if numbers_touch:
            raise ParseError("two numbers side by side")
        return Node("*", (left, right))

    def power(self) -> Node:
        """An atom with what is written behind it: !, ^, %."""
        node = self.atom()
        while sign := self.accept("!", "^", "%", "'"):
            if sign == "!":
                node = Node("factorial", (node,))
            elif sign == "%":
                node = Node("/", (node, Node("number", value=Fraction(100))))
            elif sign == "'":
                node = Node("prime", (node,))
            else:
                node = Node("^", (node, self.exponent()))
        return node

    def exponent(self) -> Node:
        """What follows ^: a group, or one atom with a sign; right-associative."""
        if self.accept("-"):
            return Node("neg", (self.exponent(),))
        node = self.atom()
        return Node("^", (node, self.exponent())) if self.accept("^") else node

    def atom(self) -> Node:
        """A number, symbol, group or function call."""
        token = self.next()
        if token.kind == "number":
            return number(token.text)
        if token.text in CLOSING:
            return self.group(token.text)
        if token.text == "|":
            return self.absolute()
        if token.kind in ("word", "command"):
            return self.named(token.text.removeprefix("\\"))
        raise ParseError(f"{token.text} is out of place")

    def group(self, opening: str) -> Node:
        """What is between brackets."""
        bars, self.bars = self.bars, 0
        node = self.sum()
        self.expect(CLOSING[opening])
        self.bars = bars
        if opening in (r"\lfloor", r"\lceil"):
            return Node("floor" if opening == r"\lfloor" else "ceil", (node,))
        return node

    def absolute(self) -> Node:
        """What is between bars."""
        self.bars += 1
        node = self.sum()
        self.bars -= 1
        self.expect("|")
        return Node("abs", (node,))

    def braces(self) -> Node:
        """A group in braces."""
        self.expect("{")
        return self.group("{")

    def named(self, name: str) -> Node:
        """What a letter, a word or a command stands for."""
        name = SPELLINGS.get(name, name)
        if name == "frac":
            return Node("/", (self.braces(), self.braces()))
        if name == "binom":
            return Node("binomial", (self.braces(), self.braces()))
        if name == "overline":
            raise ParseError("a bar over something")
        if name == "sqrt":
            return self.root()
        if name in FUNCTIONS:
            return self.call(name)
        if name in CONSTANTS:
            return Node("constant", name=CONSTANTS[name])
        if len(name) > 1 and name not in GREEK:
            raise ParseError(f"{name} is unknown")
        return self.symbol(name)

    def symbol(self, name: str) -> Node:
        """A symbol with its subscript."""
        if self.accept("_"):
            if self.accept("{"):
                name += "_" + self.subscript()
            else:
                name += "_" + self.next().text
        kinds = [token.kind for token in self.tokens[self.position : self.position + 3]]
        if self.peek() == "(" and kinds == ["symbol", "number", "symbol"]:
            value = "".join(self.next().text for _ in range(3))
            if value.endswith(")"):  # I(0) is a value of I, and not nothing
                return Node("symbol", name=name + value)
            self.position -= 3
        return Node("symbol", name=name)

    def subscript(self) -> str:
        """The text up to the closing brace."""
        text = ""
        while (part := self.next().text) != "}":
            text += part
        return text

    def root(self) -> Node:
        """A square root, or the root whose degree is in brackets."""
        degree = Node("number", value=Fraction(2))
        if self.accept("["):
            degree = self.group("[")
        radicand = self.power()
        return Node("root", (radicand, degree))

    def call(self, name: str) -> Node:
        """A function of a bracketed argument, or of the product that follows up to a function."""
        base = power = None
        while sign := self.accept("_", "^"):
            if sign == "_":
                base = self.atom()
            else:
                power = self.exponent()
        if name in INVERSES and power == Node("neg", (number("1"),)):
            name, power = INVERSES[name], None
        argument = self.argument()
        node = Node(name, (argument,))
        if name == "log":
            node = (
                Node("ln", (argument,))
                if base is None
                else Node("/", (Node("ln", (argument,)), Node("ln", (base,))))
            )
        return node if power is None else Node("^", (node, power))

    def argument(self) -> Node:
        """A function's argument."""
        if self.peek() in ("(", "[", "{"):
            return self.power()
        negative = self.accept("-") is not None
        node = self.power()
        while self.starts_factor() and (self.peek() or "").removeprefix("\\") not in FUNCTIONS:
            node = Node("*", (node, self.power()))
        return Node("neg", (node,)) if negative else node


def number(text: str) -> Node:
    """A literal; `digits` only where it is a decimal."""
    mantissa = text.lower().partition("e")[0]
    decimal = "." in mantissa and not mantissa.endswith(".")
    digits = len(mantissa.replace(".", "").lstrip("0")) if decimal else 0
    if len(text) > 4_000 or abs(int(text.lower().partition("e")[2] or 0)) > 4_000:
        raise ParseError("a number of too many digits")
    return Node("number", value=Fraction(text.rstrip(".")), digits=digits)


def is_proper_fraction(node: Node) -> bool:
    """Whether the node is a quotient of two whole numbers, the upper one smaller."""
    if node.kind != "/" or any(part.kind != "number" or part.digits for part in node.arguments):
        return False
    upper, lower = node.arguments
    return 0 < upper.value < lower.value
