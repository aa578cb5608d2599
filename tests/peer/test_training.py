"""Training scripts and framework loggers, by the peer and by us: the same metrics, config and summary."""

from __future__ import annotations

import math

import pytest
from support import audit, peer, reading
from support.state import ABSENT, Difference

pytestmark = [pytest.mark.peer, pytest.mark.slow]

CLOCKS = r"(train_|\w+/)(runtime|samples_per_second|steps_per_second)"
DIFFERENCES = {
    "a clock": Difference(
        rf"(rows \d+|summary) {CLOCKS}",
        lambda ours, theirs: min(ours, theirs) > 0,
        "how long it took is another time each time",
    ),
    "an update counted": reading.AN_UPDATE_COUNTED,
    "who was told": Difference(
        "config report_to",
        lambda ours, theirs: (ours, theirs) == ([], ["wandb"]),
        "the script's own argument",
    ),
    "bins of a tensor": Difference(
        r"(rows \d+|summary) \S+\.bins \d+",
        lambda ours, theirs: math.isclose(ours, theirs, rel_tol=1e-5, abs_tol=1e-6),
        "the peer computes the bins of a tensor in the tensor's 32 bits; we do in 64",
    ),
    "a figure's metadata": Difference(
        r"(contents|files) media/images/image_0_\w+\.png|(rows 0|summary) image\.(path|sha256|size)",
        lambda ours, theirs: ours != theirs,
        "the same picture: we keep the file that matplotlib makes, the peer leaves out what it says of itself",
    ),
    "gradients": Difference(
        r"(rows \d+|summary) gradients/\S+|features watch",
        lambda ours, theirs: ours == ABSENT,
        "`watch` logs nothing here, and says so",
    ),
}
TABLE: dict[str, set[str]] = {
    "figures": {"a figure's metadata"},
    "huggingface": {"a clock", "who was told"},
    "language": set(),
    "lightning_loop": {"an update counted"},
    "reinforcement": set(),
    "vision": {"an update counted", "bins of a tensor"},
    "watching": {"gradients"},
}
"""Script -> the differences that it shows, each of them explained above."""
ROWS = {
    "figures": 4,
    "huggingface": 11,
    "language": 14,
    "lightning_loop": 16,
    "reinforcement": 50,
    "vision": 7,
    "watching": 9,
}
"""At least so many rows: a script that trained nothing proves nothing."""
OWN = {"figures": {"mpl", "tmp"}, "huggingface": {"out", "tmp"}}
"""What a script and its libraries write themselves: torch tries out its scratch folder."""


@pytest.mark.parametrize("kind", TABLE)
def test_both_logs_of_a_training_say_the_same(trained_by_us, trained, kind):
    """Rows, config, summary and definitions of metrics, but for what is named."""
    allowed = {name: DIFFERENCES[name] for name in TABLE[kind]}
    named, other = reading.compared(trained_by_us(kind), trained(kind), allowed)

    assert other == [], "\n".join(other)
    assert named == TABLE[kind]
    assert len(reading.by_us(trained_by_us(kind).log)["rows"]) >= ROWS[kind]


@pytest.mark.parametrize("kind", TABLE)
def test_a_training_leaves_nothing_elsewhere(trained_by_us, kind):
    """No network, and no file but the run's and the script's own."""
    run = trained_by_us(kind)
    heard = audit.read(run.folder)

    assert heard.network == []
    assert audit.outside(heard.written, run.folder, OWN.get(kind, {"tmp"})) == []


def test_a_figure_is_the_same_picture(trained_by_us, trained):
    """Pixel by pixel."""
    image = pytest.importorskip("PIL.Image")
    files = [run("figures").log.parent / "files" / "media" / "images" for run in (trained_by_us, trained)]
    ours, theirs = (image.open(next(folder.glob("image_0_*.png"))).convert("RGBA") for folder in files)

    assert (ours.size, ours.tobytes()) == (theirs.size, theirs.tobytes())


def test_every_training_script_is_in_the_table():
    """None is left out."""
    assert {script.stem for script in peer.TRAINING.glob("*.py")} == set(TABLE)
