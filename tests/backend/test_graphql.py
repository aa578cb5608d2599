"""The GraphQL reader and runner: documents in many spellings give the same calls and answers."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.backend.errors import BadRequestError
from runferry.backend.gql_execute import Request
from runferry.backend.gql_syntax import GraphQLError, parse


def request(query, variables=None, name=None):
    return Request(json.dumps({"query": query, "variables": variables, "operationName": name}).encode())


def run(query, variables=None, name=None, **resolvers):
    return request(query, variables, name).run(resolvers)


def node(_):
    return {
        "id": "1",
        "name": "n",
        "tags": ["a"],
        "inner": {"x": 1, "y": 2},
        "items": [{"k": 1}, {"k": 2}],
        "none": None,
    }


@pytest.mark.parametrize(
    "query",
    [
        "query Q($n: String!) { thing(input: {name: $n, count: 3}) { id } }",
        "query Q($n:String!){thing(input:{name:$n count:3}){id}}",
        '# comment {\nquery Q($n: String! = "x") {\n  thing(\n    input: { name: $n, count: 3 }\n  ) { id } # end\n}',
        "query Q($n: [String!]! @a(b: 1)) @c { thing(input: {name: $n, count: 3}) { id } }",
    ],
)
def test_spelling_does_not_matter(query):
    """Blank space, commas, comments, types and directives change nothing of the call."""
    (call,) = request(query, {"n": "v"}).calls

    assert (call.field.name, call.arguments) == ("thing", {"input": {"name": "v", "count": 3}})


def test_values_of_every_kind():
    """Literals arrive as Python values, an enum as its name, an absent variable as null."""
    query = r'{ f(a: 1, b: -2.5e3, c: "x\n\u00fc", d: true, e: null, g: RED, h: [1 [2]], i: $gone, j: """block""") }'

    (call,) = request(query).calls

    assert call.arguments == {
        "a": 1,
        "b": -2500.0,
        "c": "x\nü",
        "d": True,
        "e": None,
        "g": "RED",
        "h": [1, [2]],
        "i": None,
        "j": "block",
    }


def test_variables_fall_back_to_their_defaults():
    """A default holds when the variable is not sent, and not when null is."""
    query = "query Q($s: S = INFO) { f(s: $s) }"

    assert request(query).calls[0].arguments == {"s": "INFO"}
    assert request(query, {"s": None}).calls[0].arguments == {"s": None}


def test_only_what_is_selected_is_answered():
    """Aliases, lists, nested objects, fragments and inline fragments shape the answer."""
    query = """
        query { first: thing { id inner { why: y } ...More ... on Thing { none } } }
        fragment More on Thing { items { k } tags }
    """

    assert run(query, thing=node) == {
        "data": {"first": {"id": "1", "inner": {"why": 2}, "items": [{"k": 1}, {"k": 2}], "tags": ["a"], "none": None}}
    }


def test_skip_and_include():
    """Both directives follow their variable."""
    query = "query($a: Boolean!) { thing { id @include(if: $a) name @skip(if: $a) } }"

    assert run(query, {"a": True}, thing=node) == {"data": {"thing": {"id": "1"}}}
    assert run(query, {"a": False}, thing=node) == {"data": {"thing": {"name": "n"}}}


def test_the_named_operation_runs():
    """The operation name picks one of several."""
    query = "query A { a: thing { id } } query B { b: thing { id } }"

    assert run(query, name="B", thing=node) == {"data": {"b": {"id": "1"}}}
    with pytest.raises(GraphQLError):
        request(query)
    with pytest.raises(GraphQLError):
        request(query, name="C")


def test_unknown_fields_are_named_and_nothing_runs():
    """A document with one unsupported field has no effect at all."""
    ran = []

    answer = run("mutation { known other { x } }", known=ran.append)

    assert answer == {"data": None, "errors": [{"message": "not supported by this backend: other"}]}
    assert ran == []


def test_an_unknown_inner_field_is_an_error():
    """A client that reads what the server does not have is told, not given null."""
    answer = run("{ thing { id mystery } }", thing=node)

    assert answer["errors"][0]["message"] == "not supported by this backend: thing.mystery"


def test_an_operation_that_fails_says_why():
    """What an operation refuses reaches the client as a GraphQL error."""

    def refuse(_):
        raise GraphQLError("no such run")

    assert run("{ f { x } }", f=refuse)["errors"] == [{"message": "no such run", "path": ["f"]}]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "{",
        "{ a(",
        "{ a(b: ) }",
        "{ a(b: 01x) }",
        "query Q { ...Gone }",
        "query Q { ...A } fragment A on T { ...B } fragment B on T { ...A }",
        "subscription { a }",
        "{ a }" + "\x00",
        '{ a(b: "open) }',
        "{ a" + "{ a" * 100 + "}" * 101,
        "{ a(b: " + "[" * 100,
        "query Q($a: " + "[" * 100_000,
        "#" * 300_000,
    ],
)
def test_bad_documents_are_refused(query):
    """Broken, endless, looping and oversized documents are errors, not crashes."""
    with pytest.raises(GraphQLError):
        request(query)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"query":1}', b'{"query":"{a}","variables":[1]}'])
def test_bodies_that_are_no_graphql(body):
    """The request needs a document and an object of variables."""
    with pytest.raises(BadRequestError):
        Request(body)


@given(st.text(alphabet='{}()[]:!$@"\\.,#ab1 \n', max_size=60))
def test_no_text_breaks_the_parser(text):
    """Any text is parsed or refused, nothing else."""
    with contextlib.suppress(GraphQLError):
        parse(text)
