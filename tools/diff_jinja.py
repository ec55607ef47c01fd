#!/usr/bin/env python3
"""Compares Braid's interpreter of chat templates with PyPI's jinja2 on generated templates and variables.

usage: tools/diff_jinja.py build/jinja_lines [--count 2000] [--seed 1]
       tools/diff_jinja.py build/jinja_lines --goldens tests/data/jinja/goldens.json [--count 150]     (writes what jinja2 gives)

Both must give the same text, or both refuse. Left out is what Braid refuses by design: what has no text of its own, such as a
generator (Python writes its address, another one in every run), integers beyond 64 bits and complex numbers. Exits with 1 when one
differs. (needs: pip install jinja2)
"""
import argparse
import copy
import json
import pathlib
import random
import subprocess
import sys
import warnings

import jinja_reference

TEXTS = ["", "a", "user", "Hello, World", "  pad \n", "a,b,,c", "x=1;y=2", "Ünï ß ǅ", "世界 🙂", "line1\nline2\r\nline3\n", "<b>&'\"", "007", "-12", "well-known T-shirt--really: a-b-c", "(see www.a-b.org/x_(y)).", "http://[::1]:80/ <me@x.co>, mailto:a@b.c. tel://5 1.2.net", "3.5e2", "abcABC",
         "%s-%d", "{} {0}", "\\n", "tab\there", "the quick brown fox jumps over", "assistant", "__x__", "1_000", " ", "ff", "0x1F"]
VARIABLES = {"n": 3, "z": 0, "neg": -7, "f": 2.5, "big": 1e20, "small": 1e-7, "t": True, "no": False, "none": None, "s": "Hello", "e": "", "u": "Grüße 世界",
             "xs": [3, 1, 2], "ys": ["b", "A", "c", "a"], "empty": [], "wide": {"text": "many words in a line, and more of them, so that it is longer than one line of a terminal is\nand a second one", "more": [["long " * 9, ["x" * 70, ""]], {"z": 1, "a": "y" * 66}]},
             "d": {"b": 1, "a": [1, 2.0, None], "items": "x", "k": {"deep": True}},
             "rows": [{"name": "x", "v": 2, "tag": "B"}, {"name": "Y", "v": 1, "tag": "a"}, {"name": "z", "v": 2}]}
NAMES = list(VARIABLES) + ["missing", "m", "ns"]
FILTERS = """abs attr('a') batch(2) batch(2,'-') capitalize center(9) count default('D') d('D',true) dictsort dictsort(true,'value') e escape filesizeformat
first float float(1) forceescape format(1,2) groupby('tag') groupby('v') indent indent(2,true) indent('>',blank=true) int int(5) int(base=16) join join(',')
join(',',attribute='name') last length list lower items map('upper') map(attribute='name') map(attribute='v',default=0) max min reject('odd') reject
rejectattr('tag') replace('a','b') replace('l','',1) replace('','.') reverse round round(1) round(0,'floor') round(1,'ceil') safe select select('string')
selectattr('tag') selectattr('v','gt',1) selectattr('tag','defined') slice(2) slice(3,'-') sort sort(reverse=true) sort(attribute='name') sort(case_sensitive=true)
string striptags sum sum(attribute='v') sum(start=5) title tojson tojson(indent=2) tojson(ensure_ascii=true) tojson(sort_keys=true) tojson(separators=(',',':'))
trim trim('ab') truncate(8) truncate(9,true) truncate(12,false,'!',0) unique upper urlencode wordcount xmlattr
pprint urlize urlize(5) urlize(none,true,'_top',rel='me') urlize(extra_schemes=['ftp:','tel://']) wordwrap wordwrap(7) wordwrap(5,false)
wordwrap(6,wrapstring='|') wordwrap(9,break_on_hyphens=false)""".split("\n")
FILTERS = [name for line in FILTERS for name in line.split(" ") if name]
TESTS = """boolean callable defined divisibleby(2) eq(3) escaped even false filter float ge(2) gt('a') in([1,2,3]) in('Hello') integer iterable le(3) lower lt(3) mapping ne(3)
none number odd sameas(none) sequence string test true undefined upper""".split()
METHODS = """capitalize() casefold() center(12,'*') count('l') endswith('o') endswith(('a','o')) expandtabs(4) find('l') find('l',3) format(1,x=2) index('e') isalnum()
isalpha() isascii() isdecimal() isdigit() isidentifier() islower() isnumeric() isspace() istitle() isupper() join(['a','b']) ljust(8) lower() lstrip() lstrip('aH')
partition('l') removeprefix('He') removesuffix('o') replace('l','L') replace('l','L',1) rfind('l') rindex('l') rjust(8,'.') rpartition('l') rsplit(None,1) rsplit(',')
rstrip() split() split(',') split(',',1) split(None,1) splitlines() splitlines(true) startswith('H') startswith('l',2) strip() strip('Ho') swapcase() title() upper()
zfill(8) get('a') get('q',1) items() keys() values() copy() index(1) count(1) append(1) update({}) pop() bit_length() is_integer() nothing()""".split()


# In Braid's messages where it refuses by design (docs/chat_templates.md).
REFUSED = ("has no text of its own", "does not fit into 64 bits", "complex number")


class Generator:
    def __init__(self, rng):
        self.rng = rng

    def pick(self, *choices):
        return self.rng.choice(choices)

    def text(self):
        text = self.rng.choice(TEXTS)
        if self.rng.random() < 0.5:
            return json.dumps(text, ensure_ascii=False)
        # Not as json.dumps escapes them: pairs of surrogates stay two halves in Python.
        return "".join(c if c < "\x7f" else f"\\U{ord(c):08x}" for c in json.dumps(text, ensure_ascii=False))

    def leaf(self):
        kind = self.rng.randrange(10)
        if kind < 5:
            return self.rng.choice(NAMES)
        if kind < 7:
            return self.text()
        return self.pick("0", "1", "2", "-3", "7", "1.5", "0.1", "1e3", "true", "false", "none", "10", "'x'", "0x1f", "1_000")

    def expr(self, depth):
        if depth <= 0 or self.rng.random() < 0.15:
            return self.leaf()
        sub = lambda: self.expr(depth - 1)  # noqa: E731
        kind = self.rng.randrange(20)
        if kind < 5:
            return f"({sub()} | {self.rng.choice(FILTERS)})"
        if kind < 7:
            return f"({sub()}).{self.rng.choice(METHODS)}"
        if kind < 8:
            return f"({sub()} is {self.pick('', 'not ')}{self.rng.choice(TESTS)})"
        if kind < 11:
            return f"({sub()} {self.pick('+', '-', '*', '/', '//', '%', '**', '~', '~', '+', 'and', 'or')} {sub()})"
        if kind < 13:
            return f"({sub()} {self.pick('==', '!=', '<', '<=', '>', '>=', 'in', 'not in')} {sub()}{self.pick('', '', ' < ' + self.leaf())})"
        if kind < 14:
            if self.rng.random() < 0.5:
                return f"{self.pick(self.rng.choice(NAMES), self.text(), f'({sub()})')}[{self.pick('1:', ':2', '::-1', '1:3', '::2', '-2:')}]"
            return f"({sub()})[{self.pick('0', '-1', chr(39) + 'a' + chr(39), sub())}]"
        if kind < 15:
            return f"({sub()}){self.pick('.a', '.name', '.0', '.items', '.k.deep', '.tag')}"
        if kind < 16:
            return f"({sub()} if {sub()}{self.pick(' else ' + sub(), '')})"
        if kind < 17:
            return self.pick(f"[{sub()}, {sub()}]", f"({sub()},)", f"{{'k': {sub()}, 'l': {sub()}}}", "{1: 2, true: 3}", "()", "[]", "{}")
        if kind < 18:
            return f"({self.pick('not', '-', '+')} {sub()})"
        if kind < 19:
            return self.pick(f"range({sub()})", "range(1, 9, 3)", f"dict(a={sub()})", "m(1)", f"m({sub()}, b={sub()})", "ns.x", "joiner('|')()", f"namespace(x={sub()}).x")
        return f"({self.text()} % ({sub()}, {sub()}))" if self.rng.random() < 0.5 else f"('{self.pick('%s', '%5d', '%.2f', '%r', '%x', '%-4s|')}' % {sub()})"

    def tag(self, text):
        return "{%" + self.pick("", "", "-", "+") + f" {text} " + self.pick("", "", "-") + "%}"

    def block(self, depth, loop=False):
        return "".join(self.statement(depth, loop) for _ in range(self.rng.randrange(1, 4)))

    def statement(self, depth, loop):
        kind = self.rng.randrange(22 if depth > 0 else 8)
        if kind < 4:
            return "{{" + self.pick("", "-") + f" {self.expr(3)} " + self.pick("", "-") + "}}"
        if kind < 7:
            return self.pick(" ", "\n", "  \n  ", "text", "a\n", "\tb ", "{# note #}", "\n{#- c -#}\n", "{% raw %} {{ x }} {% endraw %}\n", "é\n\n")
        if kind < 8:
            return self.pick(self.tag("break"), self.tag("continue")) if loop and self.rng.random() < 0.4 else self.tag(f"set {self.pick('v', 'n', 's')} = {self.expr(2)}")
        if kind < 11:
            middle = self.tag(f"elif {self.expr(2)}") + self.block(depth - 1, loop) if self.rng.random() < 0.3 else ""
            last = self.tag("else") + self.block(depth - 1, loop) if self.rng.random() < 0.5 else ""
            return self.tag(f"if {self.expr(2)}") + self.block(depth - 1, loop) + middle + last + self.tag("endif")
        if kind < 15:
            return self.loop(depth)
        if kind < 16:
            return self.tag("set w") + self.block(depth - 1, loop) + self.tag("endset") + "{{ w }}"
        if kind < 17:
            return self.tag(f"filter {self.pick('upper', 'trim', 'indent(2)', 'replace(1, 2)', 'length')}") + self.block(depth - 1) + self.tag("endfilter")
        if kind < 18:
            return self.tag(f"with v = {self.expr(2)}, q = v") + self.block(depth - 1, loop) + self.tag("endwith")
        if kind < 19:
            return self.tag(f"call{self.pick('', '(a)')} m({self.expr(1)})") + self.block(depth - 1) + self.tag("endcall")
        if kind < 20:
            return self.tag("generation") + self.block(depth - 1) + self.tag("endgeneration")
        if kind < 21:
            return self.tag(f"set ns.x = {self.expr(2)}") + "{{ ns.x }}"
        return self.tag("macro m(a, b=2, c=a)") + self.block(depth - 1) + self.pick("{{ caller() }}", "{{ varargs }}", "{{ kwargs }}", "{{ a }}{{ c }}") + self.tag("endmacro")

    def loop(self, depth):
        target, items = self.pick(("v", self.expr(2)), ("v", self.pick("xs", "ys", "rows", "u", "d", "empty")), ("v, w", "d.items()"), ("v", "range(4)"))
        inside = self.pick("", "{{ loop.index }}", "{{ loop.last }},", "{{ loop.revindex0 }}/{{ loop.length }}", "{{ loop.previtem }}|{{ loop.nextitem }}",
                           "{{ loop.cycle(1, 2) }}", "{{ loop.changed(v) }}", "{{ v }}")
        test = f" if {self.expr(1)}" if self.rng.random() < 0.25 else ""
        last = self.tag("else") + self.block(depth - 1) if self.rng.random() < 0.3 else ""
        return self.tag(f"for {target} in {items}{test}") + inside + self.block(depth - 1, True) + last + self.tag("endfor")

    def template(self):
        return "{% set ns = namespace(x=1) %}{% macro m(a, b=2) %}<{{ a }}|{{ b }}{{ caller() if caller }}>{% endmacro %}" + self.block(3)


# What no comparison can hold: addresses of objects, integers beyond 64 bits, and text that grows without end.
def comparable(text, error):
    if error is not None:
        return "too large" not in error and "Exceeds the limit" not in error and "MemoryError" not in error
    text = text.lower()
    return " at 0x" not in text and "<generator" not in text and len(text) < 200000 and not any(len(run) > 18 for run in digits(text)) and "<built-in" not in text \
        and "<function" not in text and "object at" not in text and "_iterator" not in text


def digits(text):
    return "".join(c if c.isdigit() else " " for c in text).split()


def cases(count, seed):
    """[(template, text or None)] that can be compared."""
    out, at = [], 0
    while len(out) < count:
        rng = random.Random(seed * 1000003 + at)
        at += 1
        template = Generator(rng).template()
        text, error = jinja_reference.render(template, copy.deepcopy(VARIABLES))  # the filter indent changes lists
        if comparable(text, error) and (error is None or rng.random() < 0.3):
            out.append((template, text))
    return out


def braid_results(program, wanted):
    lines = "".join(json.dumps({"template": t, "variables": VARIABLES, "now": jinja_reference.NOW}) + "\n" for t, _ in wanted)
    run = subprocess.run([program], input=lines, capture_output=True, text=True)
    return [json.loads(line) for line in run.stdout.split("\n") if line]


def write_goldens(path, cases):
    lines = ",\n".join(json.dumps({"template": template, "text": text}, ensure_ascii=False) for template, text, _ in cases)
    variables = json.dumps(VARIABLES, ensure_ascii=False)
    pathlib.Path(path).write_text(f'{{"variables": {variables},\n"cases": [\n{lines}\n]}}\n', encoding="utf-8")


def main():
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--goldens")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=5)
    options = parser.parse_args()
    wanted = cases(options.count, options.seed)
    found = braid_results(options.program, wanted)
    answered = [(template, text, got) for (template, text), got in zip(wanted, found) if text is None or not any(reason in got.get("error", "") for reason in REFUSED)]
    if options.goldens:
        write_goldens(options.goldens, answered)
        return
    bad = [one for one in answered if one[2].get("text") != one[1]]
    for template, text, got in bad[:options.show]:
        print(f"--- {template!r}\n  jinja2: {text!r}\n  braid:  {got}\n  reason: {jinja_reference.render(template, VARIABLES)[1]}")
    refused = sum(text is None for _, text, _ in answered)
    print(f"{len(answered)} templates ({refused} refused by jinja2), {len(bad)} differences, {len(wanted) - len(found)} without an answer; "
          f"{len(found) - len(answered)} more are left out")
    sys.exit(1 if bad or len(found) != len(wanted) else 0)


if __name__ == "__main__":
    main()
