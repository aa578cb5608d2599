"""Reads GraphQL documents: as much of the language as clients of this protocol write, which is all of its executable part."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass, field
from typing import TypeAlias

MAX_DOCUMENT_CHARS = 262_144
MAX_DEPTH = 40
CACHED_CHARS = 16_384  # longer documents are read each time

_TOKEN = re.compile(
    r"""[\ufeff\s,]* (?: \#[^\n\r]* (?:[\n\r]|\Z) [\ufeff\s,]* )*  # a comment takes its line end: only one way to match
    (?: (?P<name>[_A-Za-z][_0-9A-Za-z]*)
      | (?P<punctuation>\.\.\.|[!$&()\[\]{}:=@|])
      | (?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
      | (?P<block>\"\"\"(?:\\\"\"\"|[^\"]|\"(?!\"\"))*\"\"\")
      | (?P<string>"(?:\\.|[^"\\\n\r])*")
      | (?P<end>\Z) )""",
    re.VERBOSE,
)


class GraphQLError(Exception):
    """What a client is told in `errors[].message`."""


@dataclass(frozen=True)
class Variable:
    """`$name`, to be replaced when the operation runs."""

    name: str


Arguments: TypeAlias = dict[str, object]


@dataclass(frozen=True)
class Field:
    """One field; `name` is what is asked for, `alias` is what the answer calls it."""

    alias: str
    name: str
    arguments: Arguments
    directives: dict[str, Arguments]
    selections: list[Selection]


@dataclass(frozen=True)
class Spread:
    """`...name`, or an inline fragment when it brings its own selections."""

    name: str | None
    directives: dict[str, Arguments]
    selections: list[Selection]


Selection: TypeAlias = "Field | Spread"


@dataclass(frozen=True)
class Operation:
    """A query or mutation; `defaults` holds the default values of its variables."""

    kind: str
    name: str | None
    defaults: dict[str, object]
    selections: list[Selection]


@dataclass(frozen=True)
class Document:
    """The operations and fragments of one request."""

    operations: list[Operation] = field(default_factory=list)
    fragments: dict[str, list[Selection]] = field(default_factory=dict)

    def operation(self, name: str | None) -> Operation:
        """The operation to run: the named one, or the only one."""
        chosen = [operation for operation in self.operations if name in (None, "", operation.name)]
        if len(chosen) != 1:
            raise GraphQLError(f"the document has no single operation {name!r}" if name else "operationName is needed")
        return chosen[0]


def parse(text: str) -> Document:
    """Parses a document.

    Raises:
        GraphQLError: with the offset of the first character that does not fit.
    """
    if len(text) > MAX_DOCUMENT_CHARS:
        raise GraphQLError(f"the document has more than {MAX_DOCUMENT_CHARS} characters")
    # Clients ask with the same few documents again and again, and no part of one is ever changed.
    return _cached(text) if len(text) <= CACHED_CHARS else _Parser(text).document()


@functools.lru_cache(maxsize=256)
def _cached(text: str) -> Document:
    return _Parser(text).document()


class _Parser:
    """Recursive descent with one token of look-ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0
        self._advance()

    def _advance(self) -> tuple[str, str]:
        previous = getattr(self, "_token", ("", ""))
        match = _TOKEN.match(self._text, self._position)
        if match is None:
            raise GraphQLError(f"syntax error at character {self._position}")
        kind = match.lastgroup or "end"
        self._token: tuple[str, str] = (kind, match.group(kind))
        self._start, self._position = match.start(kind), match.end()
        return previous

    def _accept(self, punctuation: str) -> bool:
        if self._token != ("punctuation", punctuation):
            return False
        self._advance()
        return True

    def _expect(self, punctuation: str) -> None:
        if not self._accept(punctuation):
            raise GraphQLError(f"syntax error at character {self._start}: expected {punctuation!r}")

    def _name(self) -> str:
        if self._token[0] != "name":
            raise GraphQLError(f"syntax error at character {self._start}: expected a name")
        return self._advance()[1]

    def document(self) -> Document:
        document = Document()
        while self._token[0] != "end":
            if self._token == ("punctuation", "{"):
                document.operations.append(Operation("query", None, {}, self._selections()))
                continue
            keyword = self._name()
            if keyword == "fragment":
                name = self._name()
                self._type_condition()
                self._directives()
                document.fragments[name] = self._selections()
            elif keyword in {"query", "mutation"}:
                name_or_none = self._name() if self._token[0] == "name" else None
                defaults = self._variable_definitions()
                self._directives()
                document.operations.append(Operation(keyword, name_or_none, defaults, self._selections()))
            else:
                raise GraphQLError(f"{keyword} is not supported by this backend")
        return document

    def _variable_definitions(self) -> dict[str, object]:
        defaults: dict[str, object] = {}
        if self._accept("("):
            while not self._accept(")"):
                self._expect("$")
                name = self._name()
                self._expect(":")
                self._type()
                if self._accept("="):
                    defaults[name] = self._value()
                self._directives()
        return defaults

    def _type(self) -> None:
        if self._accept("["):
            self._deeper()
            self._type()
            self._depth -= 1
            self._expect("]")
        else:
            self._name()
        self._accept("!")

    def _type_condition(self) -> None:
        if self._name() != "on":
            raise GraphQLError(f"syntax error before character {self._start}: expected 'on'")
        self._name()

    def _directives(self) -> dict[str, Arguments]:
        directives: dict[str, Arguments] = {}
        while self._accept("@"):
            name = self._name()
            directives[name] = self._arguments()
        return directives

    def _arguments(self) -> Arguments:
        arguments: Arguments = {}
        if self._accept("("):
            while not self._accept(")"):
                name = self._name()
                self._expect(":")
                arguments[name] = self._value()
        return arguments

    def _selections(self) -> list[Selection]:
        self._deeper()
        self._expect("{")
        selections: list[Selection] = []
        while not self._accept("}"):
            selections.append(self._spread() if self._accept("...") else self._field())
        self._depth -= 1
        return selections

    def _spread(self) -> Spread:
        name: str | None = None
        if self._token[0] == "name" and self._token[1] != "on":
            return Spread(self._name(), self._directives(), [])
        if self._token[0] == "name":
            self._type_condition()
        return Spread(name, self._directives(), self._selections())

    def _field(self) -> Field:
        alias = name = self._name()
        if self._accept(":"):
            name = self._name()
        arguments, directives = self._arguments(), self._directives()
        selections = self._selections() if self._token == ("punctuation", "{") else []
        return Field(alias, name, arguments, directives, selections)

    def _value(self) -> object:
        if self._accept("$"):
            return Variable(self._name())
        if self._accept("["):
            self._deeper()
            items = []
            while not self._accept("]"):
                items.append(self._value())
            self._depth -= 1
            return items
        if self._accept("{"):
            self._deeper()
            fields: dict[str, object] = {}
            while not self._accept("}"):
                name = self._name()
                self._expect(":")
                fields[name] = self._value()
            self._depth -= 1
            return fields
        kind, text = self._advance()
        if kind == "name":
            return {"true": True, "false": False, "null": None}.get(text, text)  # any other name is an enum value
        if kind == "block":
            return text[3:-3].replace('\\"""', '"""').strip("\n")
        if kind in {"number", "string"}:
            try:
                value = json.loads(text)
                if kind == "string":
                    value.encode()  # half of a surrogate pair is no text
            except ValueError:
                pass
            else:
                return value
        raise GraphQLError(f"syntax error before character {self._start}: expected a value")

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise GraphQLError(f"the document nests deeper than {MAX_DEPTH}")
