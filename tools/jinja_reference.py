"""Renders chat templates with PyPI's jinja2, set up as transformers sets it up for apply_chat_template (5.x): what Braid's
interpreter is compared with. Needs: pip install jinja2"""
import datetime
import functools
import json

import jinja2
from jinja2 import ext, nodes, sandbox, utils

NOW = "2024-07-26 12:30:05"


class Generation(ext.Extension):
    """{% generation %}: a block with variables of its own, whose text is written as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


class TemplateNamespace(utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        values = dict(*args, **kwargs)
        for name in values:
            TemplateNamespace.check(name)
        utils.Namespace.__init__(self, values)

    def __setitem__(self, name, value):
        TemplateNamespace.check(name)
        utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"underscore: {name}")


class Dict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@functools.lru_cache(maxsize=None)
def environment(now=NOW):
    time = datetime.datetime.strptime(now, "%Y-%m-%d %H:%M:%S")
    env = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, strftime_now=lambda format: time.strftime(format), dict=Dict(), namespace=TemplateNamespace)
    return env


@functools.lru_cache(maxsize=64)
def compiled(template, now):
    return environment(now).from_string(template)


def render(template, variables, now=NOW):
    """(text, None) or (None, the error)."""
    try:
        text = compiled(template, now).render(**variables)
        text.encode("utf-8")  # no tokenizer takes half of a character
        return text, None
    except Exception as error:  # whatever a template may raise is a refusal
        return None, f"{type(error).__name__}: {error}"


