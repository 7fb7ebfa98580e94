"""The sign-on file: what it refuses at start. A restriction that is misspelt, missing or of another program never admits anybody."""

from pathlib import Path

import pytest

from fairlead_bus.environment_settings import BadSetting
from fairlead_gateway.service import GatewaySettings
from fairlead_gateway.signon.sealing import Sealing, read_keys
from fairlead_gateway.signon.settings import SignOnFile, read_sign_on_file

PROVIDER = """
[[provider]]
name = "corp"
issuer = "https://idp.example.org"
client_id = "fairlead"
client_secret = "s3cret"
admit = "everyone"
"""
HEAD = 'public_url = "https://fairlead.example.org"\nkey_file = "sign-on.key"\n'


def read(tmp_path: Path, text: str, mode: int = 0o600) -> SignOnFile:
    """Read a sign-on file with this text."""
    path = tmp_path / "sign-on.toml"
    path.write_text(text)
    path.chmod(mode)
    return read_sign_on_file(path)


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    """Secrets may be in files of their own."""
    (tmp_path / "secret").write_text("of the file\n")
    (tmp_path / "secret").chmod(0o600)
    text = HEAD + PROVIDER + PROVIDER.replace("corp", "lab").replace('secret = "s3cret"', 'secret_file = "secret"')
    found = read(tmp_path, text)
    assert [each.client_secret for each in found.provider] == ["s3cret", "of the file"]
    assert found.session.life_h == 12


def test_a_file_may_have_directories_alone(tmp_path: Path) -> None:
    """Without a provider no browser is sent anywhere, and nothing is sealed. Files are next to the file that names them."""
    ldap = '[ldap]\nurl = "ldaps://x"\npeople_base = "p"\ngroups_base = "g"\nca_file = "ca.pem"\n'
    found = read(tmp_path, '[scim]\nissuer = "https://idp.example.org"\n' + ldap)
    assert found.scim.issuer == "https://idp.example.org"
    assert found.ldap is not None and found.ldap.ca_file == str(tmp_path / "ca.pem")


@pytest.mark.parametrize("name", ["FAIRLEAD_LDAP", "FAIRLEAD_SCIM_ISSUER", "FAIRLEAD_IDENTITIES"])
def test_a_setting_that_has_moved_refuses_the_start(name: str) -> None:
    """In silence it would leave the directory out. The sentence says where it is now."""
    with pytest.raises(BadSetting, match=f"{name}: (moved|removed): .*FAIRLEAD_SIGN_ON.*docs/"):
        GatewaySettings.from_environment({name: "x", "FAIRLEAD_SIGN_ON": "local"})


def with_provider(old: str, new: str) -> str:
    """Return a file whose provider differs in one line."""
    assert old in PROVIDER
    return HEAD + PROVIDER.replace(old, new)


RULE = (
    '[[exchange]]\nissuer = "https://idp.example.org"\naudience = "{}"\nsubject = "repo:a/b"\nservice_account = "ci"\n'
)
REFUSED = {
    "misspelt restriction": (with_provider('admit = "everyone"', 'admitt = ["staff"]'), '"admitt"; use admit'),
    "misspelt beside it": (
        with_provider('admit = "everyone"', 'admit = "everyone"\ngroup_claim = "g"'),
        '"group_claim"; use groups_claim',
    ),
    "of another program": (
        with_provider('admit = "everyone"', 'admit = "everyone"\nallowed_groups = ["a"]'),
        "use admit = ",
    ),
    "e-mail domains": (
        with_provider('admit = "everyone"', 'admit = "everyone"\nallowed_domains = ["a"]'),
        "an e-mail address says nothing",
    ),
    "default role": (HEAD + 'default_role = "admin"\n' + PROVIDER, "a new person has none"),
    "admit missing": (with_provider('admit = "everyone"\n', ""), 'write admit = "everyone"'),
    "admit is another word": (with_provider('"everyone"', '"all"'), "admit"),
    "groups without a claim": (with_provider('"everyone"', '["staff"]'), "groups_claim"),
    "plain http": (with_provider("https://idp", "http://idp"), "https"),
    "both secrets": (with_provider("admit", 'client_secret_file = "x"\nadmit'), "either"),
    "no secret": (with_provider('client_secret = "s3cret"\n', ""), "either"),
    "secret file missing": (with_provider('secret = "s3cret"', 'secret_file = "gone"'), "No such file"),
    "reserved name": (with_provider('"corp"', '"local"'), "name"),
    "same name twice": (HEAD + PROVIDER + PROVIDER, "each name once"),
    "scope openid missing": (with_provider("admit", 'scopes = ["email"]\nadmit'), "openid"),
    "public address with a path": ((HEAD + PROVIDER).replace('example.org"\nkey', 'example.org/x"\nkey'), "public_url"),
    "public address on http": (HEAD.replace("https", "http") + PROVIDER, "public_url"),
    "life of a week": (HEAD + PROVIDER + "[session]\nlife_h = 168\n", "life_h"),
    "misspelt time": (HEAD + PROVIDER + "[session]\nlife = 8\n", "use life_h"),
    "ID tokens as job tokens": (HEAD + PROVIDER + RULE.format("fairlead"), "ID token"),
    "misspelt rule": (HEAD + RULE.format("x").replace("subject", "subjects"), "use subject"),
    "misspelt directory": (
        HEAD + PROVIDER + '[ldap]\nurl = "ldaps://x"\nsuspend_leaver = true\n',
        "use suspend_leavers",
    ),
    "misspelt issuer": ('[scim]\nissuers = "https://x"\n', "use issuer"),
    "directory's issuer on http": ('[scim]\nissuer = "http://idp.example.org"\n', "scim: issuer"),
    "provider without an address": (PROVIDER, "expected public_url and key_file"),
    "no TOML": ("[", "TOML"),
}


@pytest.mark.parametrize(("text", "named"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_file_refuses_the_start(tmp_path: Path, text: str, named: str) -> None:
    """The message names the setting, and what to write instead."""
    with pytest.raises(BadSetting) as caught:
        read(tmp_path, text)
    assert named in str(caught.value)


def test_a_file_with_a_secret_is_read_by_its_owner_alone(tmp_path: Path) -> None:
    """Any other mode refuses the start."""
    with pytest.raises(BadSetting, match="0600"):
        read(tmp_path, HEAD + PROVIDER, 0o644)


@pytest.mark.parametrize(("one", "two"), [("", ""), ("", "b-"), ("a", "a-b")])
def test_groups_of_two_providers_never_have_one_name(tmp_path: Path, one: str, two: str) -> None:
    """One prefix must not begin another."""
    text = HEAD
    for name, prefix in (("corp", one), ("lab", two)):
        text += PROVIDER.replace("corp", name) + f'groups_claim = "groups"\ngroup_prefix = "{prefix}"\n'
    with pytest.raises(BadSetting, match="group_prefix"):
        read(tmp_path, text)
    assert read(tmp_path, text.replace(f'"{one}"', '"c-"', 1).replace(f'prefix = "{two}"', 'prefix = "l-"')).provider


def test_sealed_texts_open_with_the_old_key_and_for_their_purpose_alone(tmp_path: Path) -> None:
    """A new first line seals; the line after it opens what it sealed before."""
    path = tmp_path / "key"
    old = Sealing(read_keys(path))
    assert path.stat().st_mode & 0o777 == 0o600
    text = old.seal(b"value", "cookie")
    second = tmp_path / "second"
    read_keys(second)
    path.write_text(second.read_text() + path.read_text())
    new = Sealing(read_keys(path))
    assert new.open(text, "cookie") == b"value"
    assert old.open(new.seal(b"value", "cookie"), "cookie") is None
    changed = text[:20] + ("A" if text[20] != "A" else "B") + text[21:]
    for wrong, purpose in ((text, "other"), (changed, "cookie"), ("", "cookie"), ("é", "cookie"), ("AAAA", "cookie")):
        assert new.open(wrong, purpose) is None
    path.write_text("c2hvcnQ=\n")
    with pytest.raises(BadSetting, match="32 bytes"):
        read_keys(path)
