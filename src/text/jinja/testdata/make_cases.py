"""Writes cases.json: what Jinja2 itself makes of the templates in cases.txt, in the environment of chat templates.

Needs python3-jinja2. Each case of cases.txt is a template; a line "%%" stands between cases, "%% {...}" gives the variables of
the next one (JSON; else VARIABLES). Run it in this folder after editing cases.txt; the test reads only cases.json.
"""
import datetime
import json
import warnings

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

warnings.simplefilter("ignore")

VARIABLES = {
    "s": "Hello World", "u": "Zürich ß 你好 🦙", "empty": "", "n": 5, "neg": -7, "f": 2.5, "t": True, "z": None,
    "words": ["banana", "Apple", "cherry", "apple"], "nums": [3, 1, 2], "nested": [[1, 2], [3, [4, 5]], []],
    "d": {"b": 1, "a": {"x": [1, 2.0, None, True]}, "items": "shadow", "n": None},
    "people": [{"name": "Bob", "age": 30, "city": "Paris"}, {"name": "alice", "age": 25}, {"name": "Carl", "age": 30, "city": "Rome"}],
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": " hi "},
                 {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}],
    "text": "line one\nline two\n\n  indented <b> & \"q\" 'p'\n",
}


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_run"), [], [], body).set_lineno(line)

    def _run(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation])

    def raise_exception(message):
        raise TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.datetime(2026, 1, 2, 3, 4, 5).strftime(form)
    return env


def read(path):
    variables, lines, started = None, [], False
    for line in open(path, encoding="utf-8", newline="").read().split("\n"):
        if line == "%%" or line.startswith("%% {"):
            if started:
                yield "\n".join(lines), variables
            started, lines = True, []
            variables = json.loads(line[3:]) if line.startswith("%% {") else None
        else:
            lines.append(line)
    # The last separator ends the file.


def main():
    env = environment()
    out = []
    for source, variables in read("cases.txt"):
        source = source.replace("\\r", "\r").replace("\\EOL", "\n")
        case = {"template": source}
        if variables is not None:
            case["variables"] = variables
        try:
            case["expect"] = env.from_string(source).render(**json.loads(json.dumps(VARIABLES if variables is None else variables)))
        except Exception as error:  # the reference raises: so must we
            case["raises"] = f"{type(error).__name__}: {error}"
        out.append(case)
    with open("cases.json", "w", encoding="utf-8") as file:
        file.write('{"variables": ' + json.dumps(VARIABLES, ensure_ascii=False) + ',\n "cases": [\n')
        file.write(",\n".join(json.dumps(case, ensure_ascii=False) for case in out))
        file.write("\n]}\n")
    print(len(out), "cases,", sum("raises" in case for case in out), "raise")


main()
