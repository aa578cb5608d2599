"""The page in a real browser: it shows what the log holds, and asks nobody for anything."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
import runferry
from runferry.export.report import Source, render
from support import logs
from support.htmlpage import Page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HOSTILE = "<script>document.title='run'</script><img src=http://198.51.100.1/a.png onerror=document.title='run'>"

_OWN = re.compile(r"(file|data|chrome|about|devtools):|https?://[a-z0-9.]+\.(google|googleapis)\.com/")
"""Addresses that no page asks for: its own file, and what the browser itself looks for when it starts."""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")


def browse(tmp_path, html):
    """What Chromium has made of a page, and the addresses that it asked for."""
    page, netlog = tmp_path / "page.html", tmp_path / "net.json"
    page.write_text(html, encoding="utf-8")
    command = [
        CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={tmp_path / 'profile'}", f"--log-net-log={netlog}", "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    log = netlog.read_text()
    log = log if log.rstrip().endswith("}") else log.rstrip().rstrip(",") + "]}"  # one that was not closed
    urls = {event["params"]["url"] for event in json.loads(log)["events"] if "url" in event.get("params", {})}
    return done.stdout, {url for url in urls if not _OWN.match(url)}


def test_a_page_that_asks_is_noticed(tmp_path):
    """The test below would see a request: a page with a picture from elsewhere makes one."""
    assert browse(tmp_path, "<img src=http://198.51.100.1/a.png>")[1] == {"http://198.51.100.1/a.png"}


def test_chromium_shows_the_values_and_asks_for_nothing(tmp_path):
    """Opened from a file without a network, all parts are there as written, no script ran, and no request was made."""
    log = logs.simple_run(tmp_path, rows=40, display_name=HOSTILE, notes=HOSTILE, tags=[HOSTILE])
    log.write_bytes(log.read_bytes()[:-3])
    state = runferry.load(log)
    html = render(state, Source((str(log),), folders=(log.parent,)))
    dom, asked = browse(tmp_path, html)
    assert asked == set()
    written, shown = Page(html), Page(re.sub(r"<!doctype[^>]*>", "", dom, flags=re.IGNORECASE))
    assert shown.text.split() == written.text.split()
    assert [tag for tag, _ in shown.tags] == [tag for tag, _ in written.tags]
    assert shown.having("data") == written.having("data")
    assert len(shown.having("svg")) == 3
    assert not re.search("<title>run</title>", dom)
