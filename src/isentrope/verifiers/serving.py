"""Two programs for function tests, each run in a sandbox of its own and joined by a socket.

SERVER ends with the candidate's functions: it answers calls with plain data. TESTER has the tests
and stand-ins for those functions. So the candidate never meets a test or an expected value, and
what comes back to be compared is built of Python's own types only, whose == it cannot change.
"""

__all__ = ["SERVER", "TESTER"]

# Data as a Python literal: exact built-in types, rebuilt, so that no subclass gets through.
LITERAL = """
def literal(value, depth=0):
    if depth > 50:
        raise TypeError("nested too deeply")
    if hasattr(value, "tolist") and type(value).__module__ == "numpy":
        value = value.tolist()
    if value is None or value is True or value is False:
        return repr(value)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return {"inf": "1e999", "-inf": "-1e999"}.get(float.__repr__(value), float.__repr__(value))
    if isinstance(value, (str, bytes, complex)):
        kind = next(kind for kind in (str, bytes, complex) if isinstance(value, kind))
        return kind.__repr__(value)
    if isinstance(value, dict):
        pairs = [literal(k, depth + 1) + ":" + literal(v, depth + 1) for k, v in dict.items(value)]
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, (list, tuple, set, frozenset)):
        items = ",".join(literal(item, depth + 1) for item in value)
        if isinstance(value, list):
            return "[" + items + "]"
        if isinstance(value, tuple):
            return "(" + items + ("," if len(value) == 1 else "") + ")"
        return "{" + items + "}" if items else "set()"
    if hasattr(value, "__next__"):
        return literal(list(value), depth + 1)
    raise TypeError(type(value).__name__ + " is no plain data")
"""

SERVER = (
    LITERAL
    + """
def serve():
    import ast, os, socket, sys
    candidate = {"__name__": "solution"}
    link = socket.socket(fileno=int(sys.argv[1])).makefile("rw", encoding="utf-8", newline="\\n")
    sys.setrecursionlimit(10_000)
    try:
        exec(compile(open(0).read(), "solution.py", "exec"), candidate)
        names = [name for name, value in candidate.items() if callable(value)]
        link.write(repr(("names", names)) + "\\n")
    except BaseException as error:
        link.write(repr(("failed", type(error).__name__ + ": " + str(error)[:200])) + "\\n")
    link.flush()
    for line in link:
        name, arguments, keywords = ast.literal_eval(line)
        try:
            function = candidate.get(name)
            if function is None:
                function = getattr(candidate["Solution"](), name)
            reply = "('value'," + literal(function(*arguments, **keywords)) + ")"
        except Exception as error:
            reply = repr(("raised", type(error).__name__, str(error)[:200]))
        link.write(reply.replace("\\n", " ") + "\\n")
        link.flush()
    os._exit(0)

serve()
"""
)

TESTER = (
    LITERAL
    + '''
def load():
    import ast, builtins, json, os, socket, sys, types
    job = json.loads(open(0).read())
    link = socket.socket(fileno=int(sys.argv[1])).makefile("rw", encoding="utf-8", newline="\\n")

    def finish(verdict, detail=""):
        os.pwrite(1, json.dumps([verdict, detail]).encode(), 0)
        os._exit(0)

    def receive():
        try:
            line = link.readline(4_000_000)
        except OSError:
            finish("ended")
        if not line.endswith("\\n"):
            finish("ended")
        try:
            return ast.literal_eval(line)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            finish("wrong", "the program answered no plain data")

    def stand_in(name):
        def call(*arguments, **keywords):
            try:
                link.write(literal((name, arguments, keywords)).replace("\\n", " ") + "\\n")
                link.flush()
            except OSError:
                finish("ended")
            reply = receive()
            if type(reply) is tuple and reply[0] == "value" and len(reply) == 2:
                return reply[1]
            if type(reply) is tuple and reply[0] == "raised" and len(reply) == 3:
                kind = getattr(builtins, str(reply[1]), RuntimeError)
                known = isinstance(kind, type) and issubclass(kind, Exception)
                raise (kind if known else RuntimeError)(str(reply[2]))
            finish("wrong", "the program answered out of turn")
        return call

    reply = receive()
    if type(reply) is not tuple or len(reply) != 2 or reply[0] != "names":
        finish("wrong", str(reply)[:300])
    functions = {str(name): stand_in(str(name)) for name in reply[1]}
    module = types.ModuleType("solution")
    module.__dict__.update(functions)
    sys.modules["solution"] = module
    return job, functions, stand_in, finish

def run():
    job, functions, stand_in, finish = load()
    try:
        for name, arguments, expected in job["calls"]:
            value = stand_in(name)(*arguments)
            if not equal(value, expected):
                finish("wrong", f"{name}: {str(value)[:100]} is not {str(expected)[:100]}")
        scope = dict(functions, __name__="tests")
        exec(compile(job["code"], "tests.py", "exec"), scope)
        tests = [f for n, f in scope.items() if n.startswith("test_") and callable(f) and n not in functions]
        for test in tests:
            test()
    except SystemExit:
        finish("wrong", "exit")
    except BaseException as error:
        finish("wrong", type(error).__name__ + ": " + str(error)[:200])
    finish("right")

def equal(value, expected):
    """Equality of JSON data, which has no tuples, and no whole numbers as keys."""
    if isinstance(value, (list, tuple)) and isinstance(expected, (list, tuple)):
        return len(value) == len(expected) and all(map(equal, value, expected))
    if isinstance(value, dict) and isinstance(expected, dict):
        return {str(k) for k in value} == {str(k) for k in expected} and all(
            equal(v, {str(n): e for n, e in expected.items()}[str(k)]) for k, v in value.items()
        )
    if isinstance(value, float) or isinstance(expected, float):
        numbers = isinstance(value, (int, float)) and isinstance(expected, (int, float))
        return numbers and (value == expected or abs(value - expected) <= 1e-6 * max(1, abs(expected)))
    return type(value) is type(expected) and value == expected

run()
'''
)
