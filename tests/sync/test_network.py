"""What the environment says of the network, and what of it is refused."""

from __future__ import annotations

import pytest
from runferry.sync.errors import UsageError
from runferry.sync.network import CONNECT_TIMEOUT_S, STALL_TIMEOUT_S, Network, find_network, is_loopback


def test_an_empty_environment_says_nothing() -> None:
    """Defaults: no proxy, a minute without a byte, the system's certificates, no headers."""
    assert find_network({}) == Network()


@pytest.mark.parametrize(
    ("environ", "connect", "stall"),
    [
        ({"WANDB_HTTP_TIMEOUT": "20"}, CONNECT_TIMEOUT_S, 20.0),
        ({"WANDB_HTTP_TIMEOUT": "20", "RUNFERRY_HTTP_TIMEOUT": "300"}, CONNECT_TIMEOUT_S, 300.0),
        ({"RUNFERRY_HTTP_TIMEOUT": " 2.5 "}, 2.5, 2.5),
        ({"RUNFERRY_HTTP_TIMEOUT": ""}, CONNECT_TIMEOUT_S, STALL_TIMEOUT_S),
    ],
)
def test_the_timeout_is_where_users_look_for_it(environ: dict[str, str], connect: float, stall: float) -> None:
    """Ours before the peer's; a short one holds for connecting too."""
    network = find_network(environ)

    assert (network.connect_s, network.stall_s) == (connect, stall)


@pytest.mark.parametrize("text", ["0", "-3", "nan", "inf", "soon", "1e9"])
def test_a_timeout_that_is_none_is_a_usage_error(text: str) -> None:
    """It names the variable."""
    with pytest.raises(UsageError, match="WANDB_HTTP_TIMEOUT"):
        find_network({"WANDB_HTTP_TIMEOUT": text})


@pytest.mark.parametrize(
    ("environ", "url", "proxy"),
    [
        ({"HTTPS_PROXY": "http://p.test:3128"}, "https://far.test/", "http://p.test:3128 (HTTPS_PROXY)"),
        ({"HTTPS_PROXY": "http://p.test:3128"}, "http://far.test/", None),
        ({"https_proxy": "p.test"}, "https://far.test/", "http://p.test:80 (https_proxy)"),
        ({"HTTPS_PROXY": "a:1", "WANDB_HTTPS_PROXY": "b:2"}, "https://far.test/", "http://b:2 (WANDB_HTTPS_PROXY)"),
        ({"WANDB_HTTP_PROXY": "b:2"}, "http://far.test/", "http://b:2 (WANDB_HTTP_PROXY)"),
        ({"all_proxy": "socks5h://u:p@s.test"}, "http://far.test/", "socks5://s.test:1080 (all_proxy)"),
        ({"HTTPS_PROXY": "http://[::1]:8"}, "https://far.test/", "http://[::1]:8 (HTTPS_PROXY)"),
    ],
)
def test_proxies_are_found_by_the_usual_variables(environ: dict[str, str], url: str, proxy: str | None) -> None:
    """By the scheme of the server's URL, the peer's own variables first; the user's name and password are never shown."""
    found = find_network(environ).proxy_for(url)

    assert (str(found) if found is not None else None) == proxy


@pytest.mark.parametrize(
    ("entries", "url", "is_direct"),
    [
        ("far.test", "https://far.test/", True),
        ("far.test", "https://api.far.test/", True),
        (".far.test", "https://api.far.test/", True),
        ("*.far.test", "https://api.far.test/", True),
        ("far.test", "https://notfar.test/", False),
        ("FAR.test , other", "https://Far.Test/", True),
        ("*", "https://far.test/", True),
        ("far.test:8443", "https://far.test:8443/", True),
        ("far.test:8443", "https://far.test/", False),
        ("far.test:443", "https://far.test/", True),
        ("near.test far.test", "https://far.test/", True),
        ("10.0.0.0/8", "https://10.1.2.3/", True),
        ("10.0.0.0/8", "https://11.1.2.3/", False),
        ("10.9.9.9/8", "https://10.1.2.3/", True),
        ("10.1.2.3", "https://10.1.2.3:99/", True),
        ("fd00::/8", "https://[fd00::1]/", True),
        ("[fd00::1]:99", "https://[fd00::1]:99/", True),
        ("", "https://far.test/", False),
        ("", "https://localhost:8080/", True),
        ("", "https://127.8.9.1/", True),
        ("", "https://[::1]:8080/", True),
        (",,. ,", "https://far.test/", False),
    ],
)
def test_no_proxy_names_hosts_domains_addresses_and_networks(entries: str, url: str, is_direct: bool) -> None:
    """And loopback is always direct."""
    network = find_network({"HTTPS_PROXY": "p:1", "NO_PROXY": entries})

    assert (network.proxy_for(url) is None) is is_direct


@pytest.mark.parametrize(
    "text", ["http://", "http://[::1", "http://p:99999", "ftp://p:1", "socks4://p:1", "https://p:1"]
)
def test_a_proxy_that_is_none_is_a_usage_error(text: str) -> None:
    """It names the variable, and not what may hold a password."""
    with pytest.raises(UsageError, match="HTTPS_PROXY") as caught:
        find_network({"HTTPS_PROXY": text})
    assert text not in str(caught.value)


def test_passwords_and_headers_are_in_no_repr() -> None:
    """Whatever prints the settings shows neither."""
    network = find_network({"HTTPS_PROXY": "http://u:s3cret@p:1", "WANDB_X_EXTRA_HTTP_HEADERS": '{"X-Gate": "s3cret"}'})

    assert "s3cret" not in repr(network)
    assert network.hide(b"you sent s3cret") == b"you sent ***"


def test_extra_headers_are_a_json_object() -> None:
    """Ours before the peer's variable."""
    environ = {
        "WANDB_X_EXTRA_HTTP_HEADERS": '{"X-Gate": "one"}',
        "RUNFERRY_X_EXTRA_HTTP_HEADERS": '{"X-Gate": "two", "Cookie": "a=b"}',
    }

    assert find_network(environ).headers == {"X-Gate": "two", "Cookie": "a=b"}


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"X-Gate": 5}',
        '{"X-Gate": "s3cret\\r\\nHost: evil"}',
        '{"X Gate": "s3cret"}',
        '{"": "s3cret"}',
        '{"authorization": "s3cret"}',
        '{"Content-Length": "s3cret"}',
        '{"Accept-Encoding": "s3cret"}',
        '{"expect": "s3cret"}',
        '{"X": "s3cret\u00e9"}',
        '{"X-Gate": " s3cret"}',
        "[" * 100_000,
    ],
)
def test_headers_that_cannot_be_sent_are_a_usage_error(text: str) -> None:
    """The variable is named, and no value shown."""
    with pytest.raises(UsageError, match="WANDB_X_EXTRA_HTTP_HEADERS") as caught:
        find_network({"WANDB_X_EXTRA_HTTP_HEADERS": text})
    assert "s3cret" not in str(caught.value)


def test_the_first_variable_for_certificates_counts(tmp_path: object) -> None:
    """SSL_CERT_FILE and SSL_CERT_DIR go together; then the bundle of requests, then that of curl."""
    one = find_network({"SSL_CERT_FILE": "a", "SSL_CERT_DIR": "b", "REQUESTS_CA_BUNDLE": "c", "CURL_CA_BUNDLE": "d"})
    two = find_network({"REQUESTS_CA_BUNDLE": str(tmp_path), "CURL_CA_BUNDLE": "d"})
    three = find_network({"CURL_CA_BUNDLE": "d"})

    assert (one.trusted_file, one.trusted_folder) == ("a", "b")
    assert (two.trusted_file, two.trusted_folder) == (None, str(tmp_path))
    assert (three.trusted_file, three.trusted_by) == ("d", "CURL_CA_BUNDLE")


def test_loopback_is_known_by_name_and_address() -> None:
    """Names that only look like it are not."""
    assert all(map(is_loopback, ["http://localhost:1/", "http://127.0.0.1/", "http://[::1]:5/", "http://a.localhost/"]))
    assert not any(map(is_loopback, ["http://localhost.test/", "http://128.0.0.1/", "http://notlocalhost/"]))
