"""What does a YAML file of the user's say, if it says it plainly?

YAML 1.1 has more in it than a configuration needs: tags that build objects, aliases that grow without
bound, merge keys, and numbers that are not what they look like (010 is eight, 1:30 is ninety). None of
that is accepted here; true, false, null and decimal numbers are all that is not text.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.composer import Composer

from kvprefetch.checks import InputError, refusal, shown

ACCEPTED = "plain YAML: UTF-8, keys and values, no tags, anchors or repeated keys"
# libyaml, where PyYAML comes with it, scans six times as fast; what it finds is looked at in Python all the same.
_READERS = (Composer, yaml.CSafeLoader) if yaml.__with_libyaml__ else (yaml.SafeLoader,)


class _PlainLoader(*_READERS):
    yaml_implicit_resolvers = {}  # none of YAML 1.1's; the plain ones follow below

    def __init__(self, text: str) -> None:
        _READERS[-1].__init__(self, text)
        Composer.__init__(self)  # which libyaml's loader leaves out: it composes by itself

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        for what in ("anchor", "tag"):
            if name := getattr(event, what, None):
                raise _marked(f"the {what} {shown(name)}", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise _marked(f"the key {shown(key.value)} twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


for _tag, _pattern, _first in (
    ("bool", r"true|false", "tf"),
    ("null", r"null|~|", ["n", "~", ""]),
    ("int", r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?[0-9]+\.[0-9]*([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan", "-+.0123456789"),
):
    _PlainLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^({_pattern})$"), list(_first))


def mapping(content: bytes) -> dict[Any, Any]:
    """The keys and values of a plain YAML file. Raises InputError that names the line."""
    try:
        parsed = yaml.load(content.decode("utf-8-sig"), Loader=_PlainLoader)  # noqa: S506 a SafeLoader
    except yaml.MarkedYAMLError as error:
        last = max(1, len(content.splitlines()))  # what ends too early is found beyond it
        line = f" in line {min(error.problem_mark.line + 1, last)}" if error.problem_mark else ""
        problem = " ".join(str(error.problem).split())[:100]
        raise InputError(f"not readable{line}: {problem}; accepted: {ACCEPTED}") from None
    except (yaml.YAMLError, ValueError, RecursionError):  # not text; a number of thousands of digits; nested too deep
        raise InputError(f"not readable; accepted: {ACCEPTED}") from None
    if not isinstance(parsed, dict):
        raise refusal("content", parsed, ACCEPTED)
    return parsed


def text(values: dict[str, Any]) -> str:
    """A plain YAML file that reads as `values`, in their order."""
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=110)


def _marked(problem: str, mark: yaml.Mark) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
