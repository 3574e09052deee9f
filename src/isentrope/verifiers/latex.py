"""One spelling for what LaTeX and plain text write in many."""

import re
import unicodedata

__all__ = ["clean", "split_unit", "unit_name"]

UNICODE = {
    "\u2212": "-", "\u2013": "-", "\u2014": "-", "\u00d7": r"\times ", "\u00b7": r"\cdot ",
    "\u22c5": r"\cdot ", "\u00f7": r"\div ", "\u03c0": r"\pi ", "\u03b8": r"\theta ",
    "\u221a": r"\sqrt ", "\u221e": r"\infty ", "\u2264": r"\le ", "\u2265": r"\ge ",
    "\u2260": r"\ne ", "\u222a": r"\cup ", "\u2229": r"\cap ", "\u2208": r"\in ",
    "\u00b0": r"^\circ ", "\u00b1": r"\pm ", "\u00b2": "^2 ", "\u00b3": "^3 ", "\u2205": r"\emptyset ",
    "\u2019": "'", "\u00a3": "", "\u20ac": "", "\u00a0": " ", "\u2009": " ", "\u202f": " ",
    "\u27e8": "(", "\u27e9": ")", "\u211d": r"\mathbb{R}",
    "\u00bd": r"\frac{1}{2}", "\u00bc": r"\frac{1}{4}", "\u00be": r"\frac{3}{4}",
}  # fmt: skip

REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"(?<=\d)(?:\\!)?,(?:\\!)?(?=\d{3})", ","),
        (r"(?<!\\)\\(?=[\[\]()])", ""),  # \[ \] \( \): math delimiters
        (r"(?<!\\)\$", ""),
        (r"\\\$|\\euro\b|\\pounds\b", ""),
        (r"(?<!\\)\\\\(?=(?:d|t|c)?frac|sqrt|pi\b|cdot|times|text|left|right|boxed|circ)", r"\\"),
        (r"\\(?:left|right|[bB]igg?[lr]?|middle)(?![a-zA-Z])\s*\.?(?=[^\d]|$)", ""),
        (r"\\(?:displaystyle|textstyle|limits|nolimits|rm|bf|it)(?![a-zA-Z])", " "),
        (r"(?<!\\)\\[,;:!> ]|~|\\q?quad(?![a-zA-Z])|\\hspace\{[^{}]*\}|\\\s*$", " "),
        (r"\\(?:dfrac|tfrac|cfrac)(?![a-zA-Z])", r"\\frac"),
        (r"\\(?:dbinom|tbinom)(?![a-zA-Z])", r"\\binom"),
        (r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|mbox|hbox|mathrm|mathbf|mathit|mathsf|operatorname\*?|boldsymbol|bm|mathcal)\s*\{", r"\\text{"),
        (r"\\leqslant|\\leq|<=|\\le(?![a-zA-Z])", r"\\le "),
        (r"\\geqslant|\\geq|>=|\\ge(?![a-zA-Z])", r"\\ge "),
        (r"\\lt(?![a-zA-Z])", "<"), (r"\\gt(?![a-zA-Z])", ">"),
        (r"\\mathbb\s*([A-Z])", r"\\mathbb{\1}"),
        (r"\\neq(?![a-zA-Z])", r"\\ne "),
        (r"\\(?:langle|lparen)(?![a-zA-Z])", "("), (r"\\(?:rangle|rparen)(?![a-zA-Z])", ")"),
        (r"\\(?:lbrack)(?![a-zA-Z])", "["), (r"\\(?:rbrack)(?![a-zA-Z])", "]"),
        (r"\\(?:lbrace)(?![a-zA-Z])", r"\\{"), (r"\\(?:rbrace)(?![a-zA-Z])", r"\\}"),
        (r"\\[lr]?vert(?![a-zA-Z])|\\mid(?![a-zA-Z])", "|"),
        (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-zA-Z]))|\\degree(?![a-zA-Z])", ""),
        (r"\\varnothing|\\O(?![a-zA-Z])", r"\\emptyset "),
        (r"\\(?:times|cdot|ast)(?![a-zA-Z])|(?<!\*)\*(?!\*)", r"\\cdot "),
        (r"\*\*(?=\s*[\d({])", "^"),
        (r"\\div(?![a-zA-Z])", "/"),
        (r"\\%", "%"),
        (r"\\colon(?![a-zA-Z])", ":"),
        (r"\\prime(?![a-zA-Z])", "'"),
        (r"(?<=\d)\{,\}(?=\d)", ""),
        (r"(?<![\d.])(\d{1,3})((?: \d{3})+)(?![\d])", lambda m: m[1] + m[2].replace(" ", "")),
        (r"\\(?:ldots|dots|cdots)(?![a-zA-Z])", "..."),
        (r"\\(?:ln|lg)\b(?=\{)", r"\\ln "),
        (r"\\(?:implies|Rightarrow|therefore)(?![a-zA-Z])", " "),
    ]
]  # fmt: skip

TEXT = re.compile(r"\\text\{([^{}]*)\}")
MATHS_IN_TEXT = re.compile(r"[\s\d.,+\-/()%]*|\s*\(?[A-Za-z]\)?\s*")
CONJUNCTION = re.compile(
    r"\s*,?\s*(?:\\text\{\s*,?\s*(?:and|or|AND|OR)\s*\}|(?<![A-Za-z\\])(?:and|or|AND|OR)(?![A-Za-z]))\s*"
)
REPEATING = re.compile(r"(\d*)\.(\d*)\s*\\(?:overline|bar|dot)\s*\{?(\d+)\}?")
COMMANDS_WITH_ARGUMENTS = {r"\frac": 2, r"\binom": 2, r"\sqrt": 1}
COMMAND = re.compile(r"\\(?:frac|binom|sqrt)(?![a-zA-Z])")
ARGUMENT = re.compile(r"\\[a-zA-Z]+|\S")

UNIT_TEXT = re.compile(r"\s*((?:\\text\{[^{}]*\}\s*(?:\^\s*(?:\{-?\d\}|\d))?[\s/\\cdot.]*)+)$")
UNIT_WORDS = re.compile(
    r"(?<=[\d})\s%])\s*([A-Za-z]{2,}\.?(?:[ /]+(?:per |of |an? )?[A-Za-z]+\.?)*(?:\s*\^\s*\{?\d\}?)?)$"
)
NO_UNITS = {
    "sin",
    "cos",
    "tan",
    "ln",
    "log",
    "exp",
    "pi",
    "infty",
    "sqrt",
    "inf",
    "oo",
    "infinity",
    "or",
    "and",
}

UNITS = {
    "m": "m meter metre", "cm": "cm centimeter centimetre", "mm": "mm millimeter millimetre",
    "km": "km kilometer kilometre", "in": "in inch inche", "ft": "ft foot feet", "yd": "yd yard",
    "mi": "mi mile", "g": "g gram", "kg": "kg kilogram", "lb": "lb pound", "oz": "oz ounce",
    "s": "s sec second", "min": "min minute", "h": "h hr hour", "day": "day", "week": "week",
    "month": "month", "year": "yr year", "mph": "mph mile per hour|miles per hour|mile/hour|mi/h",
    "km/h": "km/h kph kilometers per hour", "m/s": "m/s meters per second", "l": "l liter litre",
    "ml": "ml milliliter millilitre", "dollar": "dollar usd", "cent": "cent", "degree": "degree deg",
    "percent": "percent", "rad": "rad radian",
}  # fmt: skip
UNIT_NAMES = {
    spelling: name
    for name, spellings in UNITS.items()
    for spelling in [*spellings.split("|")[0].split(" ")[:3], *spellings.split("|")[1:]]
}


def clean(text: str) -> str:
    """The text with one spelling for delimiters, spaces, fractions, relations and symbols."""
    for symbol, replacement in UNICODE.items():
        text = text.replace(symbol, replacement)
    text = re.sub(r"\s+", " ", unicodedata.normalize("NFKC", text))
    for pattern, replacement in REWRITES:
        text = pattern.sub(replacement, text)
    text = REPEATING.sub(repeating_decimal, text)
    text = CONJUNCTION.sub(", ", text)
    text = TEXT.sub(unwrap_maths, text)
    text = brace_arguments(text)
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"(?<!\.)[.,;:]$", "", text).strip()


def repeating_decimal(match: re.Match[str]) -> str:
    """0.1\\overline{6} as the fraction that it is."""
    start, period = match[2], match[3]
    lower = 10 ** len(start) * (10 ** len(period) - 1)
    upper = int((match[1] or "0") + start + period) - int((match[1] or "0") + start)
    return rf"\frac{{{upper}}}{{{lower}}}"


def unwrap_maths(match: re.Match[str]) -> str:
    """The content of a \\text that is a number or one letter; other text stays text."""
    content = match[1].strip()
    if content.isalpha() and re.search(r"[\d}/]\s*$", match.string[: match.start()]):
        return rf"\text{{{content}}}"  # a unit behind a number
    return f" {content} " if MATHS_IN_TEXT.fullmatch(content) else rf"\text{{{content}}}"


def brace_arguments(text: str) -> str:
    """Arguments of \\frac, \\binom and \\sqrt in braces: \\frac12 becomes \\frac{1}{2}."""
    parts: list[str] = []
    position = 0
    while match := COMMAND.search(text, position):
        parts.append(text[position : match.end()])
        position = match.end()
        if match[0] == r"\sqrt" and (root := re.compile(r"\s*\[[^\]]*\]").match(text, position)):
            parts.append(root[0].strip())
            position = root.end()
        for _ in range(COMMANDS_WITH_ARGUMENTS[match[0]]):
            argument, position = braced_argument(text, position)
            parts.append(argument)
    return "".join([*parts, text[position:]])


def braced_argument(text: str, position: int) -> tuple[str, int]:
    """The argument that starts at `position`, in braces, and where it ends."""
    while position < len(text) and text[position] == " ":
        position += 1
    if position >= len(text) or text[position] == "}":
        return "", position
    if text[position] == "{":
        end = closing_brace(text, position)
        return "{" + brace_arguments(text[position + 1 : end]) + "}", end + 1
    if match := COMMAND.match(text, position):
        argument, end = braced_argument(text, match.end())
        if match[0] != r"\sqrt":
            second, end = braced_argument(text, end)
            argument += second
        return "{" + match[0] + argument + "}", end
    token = ARGUMENT.match(text, position)
    assert token is not None
    return "{" + token[0] + "}", token.end()


def closing_brace(text: str, start: int) -> int:
    """Where the brace at `start` is closed, or the end of the text."""
    depth = 0
    position = start
    while position < len(text):
        if text[position] == "\\":
            position += 2
            continue
        depth += (text[position] == "{") - (text[position] == "}")
        if depth == 0:
            return position
        position += 1
    return len(text)


def split_unit(text: str) -> tuple[str, str]:
    """A cleaned scalar without the unit behind it, and the unit; either may be empty."""
    for pattern in (UNIT_TEXT, UNIT_WORDS):
        match = pattern.search(text)
        if match is None or not match.start():
            continue
        unit = match[1].replace(r"\text", " ").strip()
        if pattern is UNIT_WORDS and not re.search(r"\d", text[: match.start()]):
            continue  # two words
        if unit.split(" ")[0].strip("{}").lower() not in NO_UNITS:
            return text[: match.start()].strip(), unit
    return text, ""


def unit_name(unit: str) -> str | None:
    """The common name of a unit; None for an unknown one, which then is not compared."""
    words = re.sub(r"[{}\\.]", "", unit).replace("square ", "sq ").strip().lower()
    power = re.search(r"\^\s*(\d)$", words)
    words = re.sub(r"\s*\^\s*\d$", "", words).strip()
    prefix = ""
    if words.startswith(("sq ", "cubic ")):
        prefix, words = "^2" if words.startswith("sq ") else "^3", words.partition(" ")[2]
    singular = words[:-1] if words.endswith("s") and len(words) > 2 else words
    name = UNIT_NAMES.get(words) or UNIT_NAMES.get(singular)
    if name is None:
        return None
    return name + (f"^{power[1]}" if power else prefix)
