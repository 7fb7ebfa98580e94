"""URLs, hosts and addresses that webhooks may go to, and settings that say so."""

from typing import Any

import pytest

from fairlead_bus.environment_settings import BadSetting
from fairlead_gateway.notify.allowed_hosts import AllowedHosts, HostRefused
from fairlead_gateway.notify.settings import NotifySettings, is_mail_address
from fairlead_gateway.notify.webhook import judged_url, parse_url

#: Addresses inside, in all forms in which a resolver or a person may write them.
INSIDE = [
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "198.18.0.1",
    "192.0.2.1",
    "224.0.0.1",
    "239.255.255.250",
    "255.255.255.255",
    "240.0.0.1",
    "::1",
    "::",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd12::1",
    "ff02::1",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "2001:0:4136:e378:8000:63bf:80ff:fffe",
    "2001:db8::1",
]


@pytest.mark.parametrize("address", INSIDE)
@pytest.mark.parametrize("scheme", ["https", "http"])
def test_addresses_inside_are_refused(address: str, scheme: str) -> None:
    """Whatever wraps them, and with TLS or without."""
    with pytest.raises(HostRefused):
        AllowedHosts().require_address(address, scheme)


def test_public_addresses_need_tls() -> None:
    """Without it anybody on the way reads the message."""
    for address in ("93.184.215.14", "2606:4700::1111", "::ffff:93.184.215.14"):
        AllowedHosts().require_address(address, "https")
        with pytest.raises(HostRefused, match="https"):
            AllowedHosts().require_address(address, "http")


def test_allowed_networks_are_allowed_and_no_others() -> None:
    """An address of version 6 that wraps one of version 4 counts as that."""
    allowed = AllowedHosts(networks=("10.1.0.0/16", "fd12::/16"))
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "fd12::9"):
        allowed.require_address(address, "http")
    for address in ("10.2.0.1", "127.0.0.1", "fd13::1", "64:ff9b::a02:1"):
        with pytest.raises(HostRefused):
            allowed.require_address(address, "https")


@pytest.mark.parametrize(
    ("host", "yes"),
    [
        ("ci.example.org", True),
        ("a.hooks.example.org", True),
        ("hooks.example.org", False),
        ("evilhooks.example.org", False),
        ("ci.example.org.evil.net", False),
        ("example.org", False),
    ],
)
def test_names_are_compared_as_a_whole(host: str, yes: bool) -> None:
    """A star stands for names below, at a dot."""
    allowed = AllowedHosts(hosts=("ci.example.org", "*.hooks.example.org"))
    if yes:
        allowed.require_host(host)
    else:
        with pytest.raises(HostRefused):
            allowed.require_host(host)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x",
        "ftp://a.org/",
        "file:///etc/passwd",
        "https://",
        "https:///x",
        "https://u:p@a.org/",
        "https://a.org@evil.org/",
        "https://a.org/#f",
        "https://a.org:99999/",
        "https://a.org:x/",
        "https://a.org/ x",
        "https://a.org\\@evil.org/",
        "https://ä.org/",
        "https://a.org/\r\nx: y",
        "gopher://a.org",
        "https://[::1",
        "javascript:alert(1)",
        "https://a.org/" + "x" * 2000,
    ],
)
def test_odd_urls_are_refused(url: str) -> None:
    """Nothing is guessed about them."""
    with pytest.raises(HostRefused):
        parse_url(url)


def test_a_url_is_judged_before_it_is_stored() -> None:
    """An address by itself; a name when it is looked up, and plain http only where networks are allowed."""
    assert parse_url("https://A.org./x?y=1") == ("https", "a.org", 443, "/x?y=1")
    for url in ("https://127.0.0.1/", "http://a.org/", "https://[::1]:8443/", "https://169.254.169.254/latest"):
        with pytest.raises(HostRefused):
            judged_url(url, AllowedHosts())
    inside = AllowedHosts(networks=("127.0.0.0/8",))
    assert judged_url("http://127.0.0.1:8080/x", inside).port == 8080
    assert judged_url("http://ci.internal/x", inside).host == "ci.internal"
    assert judged_url("https://127.1/", AllowedHosts()).host == "127.1", (
        "an odd form is a name, whose address is judged later"
    )


@pytest.mark.parametrize(
    "env",
    [
        {"FAIRLEAD_NOTIFY_HOSTS": "https://a.org"},
        {"FAIRLEAD_NOTIFY_HOSTS": "a.*.org"},
        {"FAIRLEAD_NOTIFY_NETWORKS": "10.0.0.0/33"},
        {"FAIRLEAD_NOTIFY_NETWORKS": "internal"},
        {"FAIRLEAD_SMTP": "mail.example.org"},
        {"FAIRLEAD_SMTP": "smtp://u:p@mail.example.org", "FAIRLEAD_SMTP_FROM": "a@b.org"},
        {"FAIRLEAD_SMTP": "smtp://mail.example.org"},
        {"FAIRLEAD_SMTP": "smtp://mail.example.org", "FAIRLEAD_SMTP_FROM": "a@b.org\nBcc: c@d.org"},
        {"FAIRLEAD_NOTIFY_RETRY_S": "0"},
    ],
)
def test_settings_that_cannot_be_used_are_refused_by_name(env: dict[str, str]) -> None:
    """At the start."""
    with pytest.raises(BadSetting, match="FAIRLEAD_"):
        NotifySettings.from_environment(env)


def test_settings_are_read(tmp_path: Any) -> None:
    """Rights count unless sign-on is off by word; a password is never in the environment."""
    (tmp_path / "p").write_text("secret\n")
    found = NotifySettings.from_environment(
        {
            "FAIRLEAD_NOTIFY_HOSTS": "ci.example.org, *.hooks.example.org",
            "FAIRLEAD_NOTIFY_NETWORKS": "10.1.2.3/16",
            "FAIRLEAD_SMTP": "smtps://bot%40x@mail.example.org",
            "FAIRLEAD_SMTP_FROM": "fairlead@example.org",
            "FAIRLEAD_SMTP_PASSWORD_FILE": str(tmp_path / "p"),
        }
    )
    assert found.allowed == AllowedHosts(("ci.example.org", "*.hooks.example.org"), ("10.1.0.0/16",))
    assert found.mail is not None and found.mail[:5] == (
        "smtps",
        "mail.example.org",
        465,
        "fairlead@example.org",
        "bot@x",
    )
    assert found.mail.password == "secret" and "secret" not in repr(found)
    assert not found.is_open and not NotifySettings.from_environment({"FAIRLEAD_SIGN_ON": ""}).is_open
    assert NotifySettings.from_environment({"FAIRLEAD_SIGN_ON": "off"}).is_open


def test_mail_addresses_are_one_plain_address() -> None:
    """Nothing that a header would read as two, or as another header."""
    assert is_mail_address("ada@example.org")
    for text in ("", "ada", "@x.org", "ada@", "a b@x.org", "a@x.org\n", "ä@x.org", "x" * 260 + "@x.org"):
        assert not is_mail_address(text), text
