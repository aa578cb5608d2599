"""Old versions of the peer run a script here and now, each in an environment of its own: `make old-envs`."""

from __future__ import annotations

import pytest
from runferry.logformat import GapReason, load
from support import old, oldlogs, peer
from support.allyes import stand_in

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.skipif(bool(peer.missing()), reason=peer.missing())]


@pytest.fixture(scope="module")
def server():
    """The URL of a server that says yes to everything."""
    with stand_in() as url:
        yield url


@pytest.fixture(scope="module", params=old.VERSIONS, ids=lambda version: version.name)
def runs(request, server, tmp_path_factory):
    """`runs(kind, online=...)` is a run of that kind by one version, made once."""
    version, made = request.param, {}
    if version.missing():
        pytest.skip(version.missing())

    def run(kind, *, online=False):
        if (kind, online) not in made:
            made[kind, online] = old.run_script(
                version, kind, tmp_path_factory.mktemp("old") / "run", server, online=online
            )
        return made[kind, online]

    run.version = version.name
    return run


def timeless(state):
    """The leaves of summary and config, less what clock and server decide."""
    ours = oldlogs.leaves(oldlogs.our_state(state))
    return {path: value for path, value in ours if path[1:] not in oldlogs.TIMES | oldlogs.BY_SERVER}


def test_at_least_four_versions_are_there():
    """Fewer would prove little of all the logs that there are."""
    missing = [version.missing() for version in old.VERSIONS if version.missing()]

    assert len(old.VERSIONS) - len(missing) >= 4, missing


def test_summary_and_config_are_what_the_version_leaves(runs):
    """Its own files, beside the fold of its log, value by value and type by type, but for what is named."""
    run = runs("everything", online=True)
    ours = oldlogs.our_state(load(run.log))

    assert run.exit_code == 0, run.stderr
    assert oldlogs.differences(ours, oldlogs.own_state(run.files)) == oldlogs.named(runs.version)


def test_long_logs_are_what_the_version_leaves(runs):
    """Over the edges of blocks, nothing is missing."""
    run = runs("long", online=True)
    state = load(run.log)

    assert (run.exit_code, state.gaps, state.row_count) == (0, [], 403), run.stderr
    assert oldlogs.differences(oldlogs.our_state(state), oldlogs.own_state(run.files)) == {}


def test_offline_logs_fold_to_the_same(runs):
    """What is proven of logs that were written online holds for those that were not."""
    offline, online = (load(runs("everything", online=how).log) for how in (False, True))

    assert oldlogs.different(timeless(offline), timeless(online)) == {}
    assert oldlogs.different_rows(oldlogs.rows_of(offline), oldlogs.rows_of(online)) == {}
    assert (offline.exit_code, offline.gaps) == (0, [])


def test_the_log_that_is_kept_is_of_this_script(runs):
    """`fixtures/logs` holds what the version writes today."""
    (kept,) = oldlogs.KEPT.glob(f"{runs.version}/everything.wandb*")

    kept_rows, rows = (oldlogs.rows_of(load(log)) for log in (kept, runs("everything").log))

    assert oldlogs.different_rows(kept_rows, rows) == {}


def test_the_end_of_a_run(runs):
    """`sys.exit(3)` is exit code 3."""
    run = runs("code")
    state = load(run.log)

    assert (run.exit_code, state.exit_code, state.row_count) == (3, 3, 1), run.stderr


def test_a_killed_run(runs):
    """A beginning of what was logged, without a hole and without an end."""
    run = runs("killed")
    state = load(run.log)

    assert run.exit_code == -9, run.stderr
    assert [row["i"] for row in state.rows] == list(range(state.row_count))
    assert (state.exit_code, state.damage) == (None, [])
    assert [gap.reason for gap in state.gaps] in ([], [GapReason.TORN_TAIL])
