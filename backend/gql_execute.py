"""Runs GraphQL requests against plain functions and dicts: arguments in, the selected fields out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson

from .errors import BadRequestError
from .gql_syntax import MAX_DEPTH, Document, Field, GraphQLError, Operation, Selection, Variable, parse

MAX_SELECTIONS = 1_000_000  # fields and fragments looked at in one request: fragments of fragments multiply


class Json(dict[str, Any]):
    """An object that GraphQL knows as one JSON value, without fields to select."""


Resolver: TypeAlias = Callable[[dict[str, Any]], Any]
Result: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """One top-level field of a request with its arguments, ready to run."""

    field: Field
    arguments: dict[str, Any]


class Request:
    """A decoded request body: `name` is the operation's name, `writes` whether it is a mutation, `calls` its fields in order.

    Raises:
        BadRequestError: the body is not a GraphQL request.
        GraphQLError: the document cannot be read.
    """

    def __init__(self, body: bytes) -> None:
        try:
            data = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise BadRequestError(f"the body is not JSON: {error}") from None
        if not isinstance(data, dict) or not isinstance(data.get("query"), str):
            raise BadRequestError("the body is not a JSON object with a query")
        variables, name = data.get("variables") or {}, data.get("operationName")
        if not isinstance(variables, dict) or not (name is None or isinstance(name, str)):
            raise BadRequestError("variables or operationName has the wrong type")
        self._document: Document = parse(data["query"])
        self._visited = 0
        operation: Operation = self._document.operation(name)
        self._variables = {**operation.defaults, **variables}
        self.name = operation.name
        self.writes = operation.kind == "mutation"
        self.calls = [
            Call(field, self._resolve(field.arguments)) for field in self._fields(operation.selections, frozenset())
        ]

    def run(self, resolvers: Mapping[str, Resolver]) -> Result:
        """Runs all calls; none runs when one of them has no resolver."""
        unknown = [call.field.name for call in self.calls if call.field.name not in resolvers]
        if unknown:
            return failure(*(f"not supported by this backend: {name}" for name in unknown))
        data: Result = {}
        for call in self.calls:
            try:
                data[call.field.alias] = self._project(resolvers[call.field.name](call.arguments), call.field)
            except GraphQLError as error:
                return {"data": None, "errors": [{"message": str(error), "path": [call.field.alias]}]}
        return {"data": data}

    def _fields(self, selections: list[Selection], inside: frozenset[str]) -> Iterator[Field]:
        if len(inside) > MAX_DEPTH:
            raise GraphQLError(f"fragments nest deeper than {MAX_DEPTH}")
        for selection in selections:
            self._visited += 1
            if self._visited > MAX_SELECTIONS:
                raise GraphQLError(f"the request selects more than {MAX_SELECTIONS} times")
            if not self._included(selection.directives):
                continue
            if isinstance(selection, Field):
                yield selection
            elif selection.name is None:
                yield from self._fields(selection.selections, inside)
            elif selection.name in inside or selection.name not in self._document.fragments:
                raise GraphQLError(f"fragment {selection.name} is missing or holds itself")
            else:
                yield from self._fields(self._document.fragments[selection.name], inside | {selection.name})

    def _included(self, directives: Mapping[str, Mapping[str, object]]) -> bool:
        skip = self._resolve(directives.get("skip", {}).get("if", False))
        include = self._resolve(directives.get("include", {}).get("if", True))
        return include is True and skip is not True

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, Variable):
            return self._variables.get(value.name)
        if isinstance(value, dict):
            return {key: self._resolve(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._resolve(item) for item in value]
        return value

    def _project(self, value: Any, field: Field) -> Any:
        if isinstance(value, list):
            return [self._project(item, field) for item in value]
        if value is None or not isinstance(value, dict):
            if value is not None and field.selections:
                raise GraphQLError(f"field {field.name} has no fields of its own")
            return value
        if isinstance(value, Json) and not field.selections:
            return value
        if not field.selections:
            raise GraphQLError(f"field {field.name} is an object; select its fields")
        answer: Result = {}
        for selected in self._fields(field.selections, frozenset()):
            if selected.name == "__typename":
                answer[selected.alias] = value.get("__typename", field.name[:1].upper() + field.name[1:])
                continue
            if selected.name not in value:
                raise GraphQLError(f"not supported by this backend: {field.name}.{selected.name}")
            item = value[selected.name]
            if callable(item):
                item = item(self._resolve(selected.arguments))
            answer[selected.alias] = self._project(item, selected)
        return answer


def failure(*messages: str) -> Result:
    """An answer that holds only errors."""
    return {"data": None, "errors": [{"message": message} for message in messages]}
