"""Requests made to hurt: each gets its answer, none a server error, and the run stays readable."""

from __future__ import annotations

import json
import time

import pytest
from runferry.backend.gql_syntax import GraphQLError, parse
from runferry.backend.jsontext import MAX_NESTING
from runferry.backend.jsontext import parse as parse_json
from support.inprocess import in_process

UPSERT = """mutation($config: JSONString) {
  upsertBucket(input: {modelName: "p", name: "r", config: $config}) { bucket { wandbConfig(keys: ["t"]) } }
}"""
QUADRATIC_S = 5.0


@pytest.fixture
def server(tmp_path):
    with in_process(tmp_path) as server:
        graphql(server, UPSERT, config="{}")
        yield server


def graphql(server, query, **variables):
    return server.request("POST", "/graphql", json={"query": query, "variables": variables})


def stream(server, **parts):
    files = {name.replace("_", "-") + ".jsonl": {"offset": 0, "content": lines} for name, lines in parts.items()}
    return server.request("POST", "/files/local/p/r/file_stream", json={"files": files})


def nested(levels):
    return '{"a":' * levels + "1" + "}" * levels


def read(server, tail=""):
    answer = server.request("GET", "/api/runs/local/p/r" + tail)
    assert answer.status_code == 200
    return answer


@pytest.mark.parametrize("levels", [MAX_NESTING, MAX_NESTING + 1, 900, 5_000])
def test_a_config_that_nests_without_end_is_refused_and_one_at_the_cap_is_shown(server, levels):
    """The client hears why; whatever was taken can be read in every form."""
    answer = graphql(server, UPSERT, config=nested(levels)).json()
    shown = [read(server, tail).json()["config"] for tail in ("", "?json=strict")]

    if levels <= MAX_NESTING:
        assert shown == [json.loads(nested(levels))] * 2
    else:
        assert "nested deeper" in answer["errors"][0]["message"]
        assert shown == [{}, {}]


@pytest.mark.parametrize("levels", [MAX_NESTING + 1, 900, 5_000])
def test_rows_and_summaries_that_nest_without_end_leave_the_run_readable(server, levels):
    """They are kept as they came, and no page or API of the run fails over them."""
    text = nested(levels)
    body = {"files": {"wandb-summary.json": {"content": [text]}, "wandb-history.jsonl": {"content": [text, '{"b":1}']}}}
    assert server.request("POST", "/files/local/p/r/file_stream", json=body).status_code == 200

    assert read(server, "?json=strict").json()["summary"] == {"_undecodable": text[:10_000]}
    assert read(server).json()["history_lines"] == 2
    assert [series["name"] for series in read(server, "/charts").json()["series"]] == ["b"]
    assert read(server, "/history").text.splitlines()[0] == text


@pytest.mark.parametrize(
    ("text", "good"), [("[[]," * 299 + "[]" + "]" * 299, True), ("[[]," * 300 + "[]" + "]" * 300, False)]
)
def test_depth_is_counted_and_not_brackets(text, good):
    """Wide values have many brackets and few levels."""
    assert parse_json("[" + "[]," * 5_000 + "[]]")
    if good:
        assert parse_json(text)
    else:
        with pytest.raises(ValueError, match="nested deeper"):
            parse_json(text)


@pytest.mark.parametrize(
    "call",
    [
        'upsertBucket(input: {modelName: "p", name: "r", displayName: "\\ud800"}) { inserted }',
        'createRunFiles(input: {projectName: "p", runName: "r", files: ["\\udfff"]}) { files { uploadUrl } }',
        'upsertBucket(input: {modelName: "p", name: "r", config: "{}"}) { bucket { wandbConfig(keys: [["t"], {a: 1}]) } }',
        'notifyScriptableRunAlert(input: {projectName: "p", runName: "r", title: "", text: "", severity: [1]}) { success }',
        'notifyScriptableRunAlert(input: {projectName: "p", runName: "r", title: "", text: "", waitDuration: %s}) { success }'
        % ("9" * 400),
        'notifyScriptableRunAlert(input: {projectName: "p", runName: "r", title: "", text: "", waitDuration: 1e999}) { success }',
        'rewindRun(input: {projectName: "p", runName: "r", metricName: "_step", metricValue: %s}) { rewoundRun { id } }'
        % ("9" * 400),
        'upsertBucket(input: {modelName: {a: 1}, name: ["r"], state: 1, tags: [[]]}) { inserted }',
    ],
)
def test_arguments_of_the_wrong_kind_are_answered(server, call):
    """Halves of surrogate pairs, lists where names should be, numbers beyond all floats."""
    assert graphql(server, "mutation {" + call + "}").status_code in {200, 400}
    read(server)


def test_a_list_among_the_wanted_config_keys_hides_no_other_key(server):
    """What cannot be a key is passed over."""
    query = UPSERT.replace('["t"]', '[["t"], "t"]')
    answer = graphql(server, query, config='{"_wandb": {"value": {"t": {"1": []}}}}')

    assert answer.json()["data"]["upsertBucket"]["bucket"]["wandbConfig"] == '{"t": {"1": []}}'


@pytest.mark.parametrize("header", ["Basic é", "Basic %%%", "Basic"])
def test_a_key_that_is_no_base64_is_refused(server, header):
    """Not even letters outside ASCII get a server error."""
    answer = server.request("POST", "/graphql", key=None, headers={b"Authorization": header.encode("latin-1")}, json={})

    assert answer.status_code == 401


def test_an_upload_address_of_endless_digits_is_refused(server):
    """A number that nobody signed is not even read."""
    assert server.request("PUT", "/storage/" + "9" * 5_000 + "/x?expires=9&signature=x").status_code == 403


def test_steps_that_are_no_place_on_a_chart_are_drawn_by_line(server):
    """A NaN, infinite or gigantic `_step` gives a chart that strict readers can read."""
    rows = ['{"_step":%s,"a":NaN}' % ("9" * 400), '{"_step":NaN,"a":1}', '{"_step":-1e999,"a":2}', '{"_step":7,"a":3}']
    stream(server, wandb_history=rows)
    answer = read(server, "/charts").text
    (series,) = json.loads(answer, parse_constant=pytest.fail)["series"]

    assert series["points"] == [[0.0, None], [1.0, 1.0], [2.0, 2.0], [7.0, 3.0]]


@pytest.mark.parametrize("exit_code", [2**31, -(2**31) - 1, True, 1.5])
def test_exit_codes_are_32_bit_integers(server, exit_code):
    """Anything else is refused and the run goes on."""
    body = {"complete": True, "exitcode": exit_code}

    assert server.request("POST", "/files/local/p/r/file_stream", json=body).status_code == 400
    assert read(server).json()["state"] == "running"


def test_fragments_can_neither_multiply_nor_nest_without_end(server, monkeypatch):
    """A small document cannot ask for endless work."""
    monkeypatch.setattr("runferry.backend.gql_execute.MAX_SELECTIONS", 5_000)
    doubling = "".join(f" fragment f{at} on X {{ ...f{at + 1} ...f{at + 1} }}" for at in range(30))
    chain = "".join(f" fragment f{at} on X {{ ...f{at + 1} }}" for at in range(2_000))

    for fragments, last, word in ((doubling, 30, "more than 5000"), (chain, 2_000, "deeper than")):
        answer = graphql(server, '{ model(name: "p") { ...f0 } }' + fragments + f" fragment f{last} on X {{ id }}")
        assert word in answer.json()["errors"][0]["message"]


def test_comment_signs_take_no_time_to_speak_of():
    """Many of them in a row have one reading only."""
    begun = time.monotonic()
    with pytest.raises(GraphQLError):
        parse("#" * 5_000 + "\n~")

    assert time.monotonic() - begun < QUADRATIC_S
    assert parse("{ a # comment # more\n b } # end").operations[0].selections[1].name == "b"


def test_a_body_without_a_length_is_capped_as_it_comes(server, monkeypatch):
    """A client that announces nothing cannot send more than one that does."""
    monkeypatch.setattr("runferry.backend.app.MAX_BODY", 1_000)

    async def parts():
        yield b"{"
        for _ in range(20):
            yield b" " * 100
        yield b"}"

    answer = server.request("POST", "/files/local/p/r/file_stream", content=parts())
    assert answer.status_code == 413
