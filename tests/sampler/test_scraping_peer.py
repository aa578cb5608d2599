"""The real peer and we scrape one server: which keys, which values, and where we differ on purpose."""

from __future__ import annotations

import http.server
import json
import subprocess
import threading
from pathlib import Path

import pytest
from runferry.logformat import read_records
from runferry.sampler import SamplerSettings, registry
from runferry.sampler.context import Context
from support import peer

pytestmark = [pytest.mark.peer, pytest.mark.skipif(bool(peer.missing()), reason=peer.missing())]

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "sampler"
EDGES = r"""# TYPE dup gauge
dup{a="1"} 1
dup{a="2"} 5
dup{a="1"} 3
# TYPE perm gauge
perm{a="1",b="2"} 1
perm{b="2",a="1"} 2
# TYPE empty gauge
empty{a=""} 1
empty{} 3
  empty 4
# TYPE trail gauge
trail{a="1",} 7
# TYPE vals gauge
vals{v="1"} 1e400
vals{v="2"} nan
vals{v="3"} -3
vals{v="4"} +.5
vals{v="5"} 5.
vals{v="6"} 1E3
vals{v="7"} 12 1395066363000
vals{v="8"} 13 -1
vals{v="9"} 1_000
vals{v="a"} one
vals{v="b"} 123456789012345678901234567890
# TYPE ns:colon gauge
ns:colon 1
# TYPE before gauge
# TYPE h histogram
h_bucket{le="1"} 1
h_sum 2
before 3
# TYPE twice gauge
twice 1
# TYPE twice counter
twice 2
# TYPE upper GAUGE
upper 1
untyped 2
# TYPE x_bucket gauge
x_bucket 2
# TYPE last gauge
last{q="a\nb\\c\"d"} 1
last{q="brace } inside, x=\"y\""} 2
last{q="hash # x"} 3
"""
BODIES = {
    "edges": EDGES,
    "basic": (FIXTURES / "prometheus-basic.txt").read_text(),
    "om": (FIXTURES / "openmetrics-1.0.txt").read_text(),
    "node": (FIXTURES / "node-exporter.txt").read_text(),
    "dcgm": (FIXTURES / "dcgm-exporter.txt").read_text(),
    "windows": '# TYPE m gauge\r\nm{a="b"} 1\r\n',
    "api/v1/query": (FIXTURES / "prometheus-api-query-dcgm.json").read_text(),
}
OURS_ALONE = {"openmetrics.om.batches_total.0": 812.0}
"""The peer takes the total of an OpenMetrics counter for untyped."""
UNITS = {"pipeTensorActive": 100.0, "memoryUsed": 1 << 20}
"""Ratios and MiB, which the peer writes as they are under keys that are per cent and bytes by NVML."""

SCRIPT = """
import json, sys, time, wandb
given = json.loads(sys.argv[1])
run = wandb.init(settings=wandb.Settings(console="off", x_stats_buffer_size=-1, **given))
wanted = {"openmetrics"} | ({"gpu"} if "x_stats_dcgm_exporter" in given else set())
until = time.monotonic() + 20
while time.monotonic() < until and not wanted <= {key.partition(".")[0] for key in run._system_metrics}:
    time.sleep(0.1)
run.finish()
"""


@pytest.fixture(scope="module")
def server():
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = BODIES[self.path.split("?")[0].strip("/")].encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        thread = threading.Thread(target=serving.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_address[1]}"
        serving.shutdown()
        thread.join()


def by_the_peer(folder, **settings):
    """The keys that it scraped, with what stands in the log."""
    given = json.dumps({f"x_stats_{name}": value for name, value in settings.items()})
    command = [peer.PYTHON, "-c", SCRIPT, given]
    subprocess.run(command, cwd=folder, env=peer.environment(folder), check=True, timeout=60, capture_output=True)
    (log,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    samples = [record.message() for record in read_records(log) if record.kind == "stats"]
    scraped = {item.key: json.loads(item.value_json) for sample in samples for item in sample.item}
    return {key: value for key, value in scraped.items() if key.startswith(("openmetrics.", "gpu."))}


def by_us(**settings):
    """The same by our probes, one sample each."""
    given = SamplerSettings(probes=("openmetrics", "dcgm_exporter"), **settings)
    ctx = Context(given)
    values = {}
    for probe in registry.built_in(given, pytest.fail):
        probe.open(ctx)
        probe.sample(ctx, values)
    return values


def test_keys_and_values_are_those_of_the_peer(server, tmp_path):
    """Of the same answers the same keys with the same values, but for the exceptions above and for NaN and blanks."""
    endpoints = {name: f"{server}/{name}" for name in BODIES if "/" not in name}
    exporter = f"{server}/api/v1/query?query=up"
    theirs = by_the_peer(tmp_path, sampling_interval=1, open_metrics_endpoints=endpoints, dcgm_exporter=exporter)
    ours = by_us(open_metrics_endpoints=endpoints, dcgm_exporter=exporter)
    assert len(theirs) > 70
    missing = {key: value for key, value in theirs.items() if key not in ours}
    assert set(missing.values()) == {None, float(2**63)}
    assert {key: value for key, value in ours.items() if key not in theirs} == OURS_ALONE
    for key, value in ours.items():
        factor = UNITS.get(key.partition("/l:")[0].rpartition(".")[2], 1.0)
        assert key in OURS_ALONE or value == pytest.approx(theirs[key] * factor, rel=1e-12), key


def test_a_mapping_of_filters_keeps_what_it_keeps_in_the_peer(server, tmp_path):
    """Patterns of labels, a name's pattern without its labels' match, and numbers after filtering."""
    filters = {"queue_depth": {"pool": "train"}, r"^dcgm\..*_TEMP$": {"gpu": "1", "pod": "llm"}, "tokens": {"x": ".*"}}
    endpoints = {name: f"{server}/{name}" for name in ("basic", "dcgm")}
    theirs = by_the_peer(tmp_path, sampling_interval=1, open_metrics_endpoints=endpoints, open_metrics_filters=filters)
    ours = by_us(open_metrics_endpoints=endpoints, open_metrics_filters=filters)
    blank = {key for key, value in theirs.items() if value == float(2**63)}
    assert len(ours) == 3
    assert ours == {key: value for key, value in theirs.items() if key not in blank}
