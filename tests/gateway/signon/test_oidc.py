"""The code flow against an issuer under the test's control: what each check is for, and that it holds."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import msgspec
import pytest

from fairlead_gateway.signon.jwt_check import BadToken
from fairlead_gateway.signon.keys import ProviderUnavailable
from fairlead_gateway.signon.oidc import GrantRefused, OidcProvider, SignInFailed, login_of, safe_target
from fairlead_gateway.signon.sealing import Sealing
from fairlead_gateway.signon.settings import Provider
from tests.kit.token_issuer import CLIENT, ISSUER, NOW_S, TokenIssuer, claims, sign

SETTINGS = Provider(name="corp", issuer=ISSUER, client_id=CLIENT, client_secret="s", admit="everyone")
SEALING = Sealing([b"k" * 32])


class Flow:
    """One sign-in: begun, answered by the played issuer, finished."""

    def __init__(self, **settings: Any) -> None:
        self.now = NOW_S
        self.played = TokenIssuer()
        self.provider = self.replica(**settings)

    def replica(self, **settings: Any) -> OidcProvider:
        """Return the provider as another gateway has it."""
        return OidcProvider(
            msgspec.structs.replace(SETTINGS, **settings),
            "https://f.example.org",
            self.played.client(),
            SEALING,
            lambda: self.now,
        )

    async def begin(self, target: str = "/jobs") -> tuple[dict[str, str], str]:
        """Return the query at the provider and the cookie."""
        address, cookie = await self.provider.begin(target)
        return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}, cookie

    async def sign_in(
        self, *, by: OidcProvider | None = None, answer: dict[str, Any] | None = None, **more: Any
    ) -> Any:
        """Return the person and the target of a sign-in with these claims."""
        asked, cookie = await self.begin()
        self.issue(nonce=asked["nonce"], **more)
        sent = {"code": "c", "state": asked["state"], "iss": ISSUER, **(answer or {})}
        return await (by or self.provider).finish({k: v for k, v in sent.items() if v is not ...}, cookie)

    def issue(self, **more: Any) -> None:
        """Let the token endpoint answer with an ID token."""
        self.played.token_answer = {"id_token": sign(self.played.key, "ES256", claims(**more)), "access_token": "x"}


async def test_another_gateway_finishes_a_sign_in() -> None:
    """The cookie has everything; the code goes to the token endpoint with the verifier and the client's secret."""
    flow = Flow()
    person, target = await flow.sign_in(
        by=flow.replica(), sid="s1", preferred_username="Ann.Lee", email="ann@example.org"
    )
    assert (person.issuer, person.subject, person.login, person.sid) == (ISSUER, "248289761001", "ann-lee", "s1")
    assert target == "/jobs"
    sent = parse_qs(flow.played.requests[-2 if flow.played.requests[-1].url.path == "/jwks" else -1].content.decode())
    assert (
        sent["redirect_uri"] == ["https://f.example.org/sign-in/corp/callback"] and len(sent["code_verifier"][0]) == 43
    )


async def test_the_request_has_challenge_state_and_nonce() -> None:
    """Each sign-in has its own."""
    flow = Flow()
    first, second = (await flow.begin())[0], (await flow.begin())[0]
    assert first["code_challenge_method"] == "S256" and first["response_type"] == "code"
    for name in ("state", "nonce", "code_challenge"):
        assert first[name] != second[name] and len(first[name]) == 43


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ({"state": "other"}, "state"),
        ({"state": ...}, "state"),
        ({"code": ...}, "code"),
        ({"iss": "https://evil.example"}, "iss"),
        ({"error": "access_denied"}, "the provider refused"),
    ],
)
async def test_an_answer_that_is_not_of_this_sign_in_is_refused(answer: dict[str, Any], named: str) -> None:
    """State of another browser, answer of another issuer (mix-up), refusal."""
    with pytest.raises(SignInFailed, match=f"^{named}"):
        await Flow().sign_in(answer=answer)


async def test_an_announced_iss_must_be_there() -> None:
    """Otherwise it may be missing (RFC 9207)."""
    flow = Flow()
    assert await flow.sign_in(answer={"iss": ...})
    flow = Flow()
    more = {"authorization_response_iss_parameter_supported": True}
    flow.played.answers["/.well-known/openid-configuration"] = lambda _: httpx.Response(
        200, json=flow.played.metadata(**more)
    )
    with pytest.raises(SignInFailed, match=r"^iss"):
        await flow.sign_in(answer={"iss": ...})


async def test_a_sign_in_begun_at_one_provider_does_not_end_at_another() -> None:
    """Nor without a cookie, with one of another key, or after ten minutes."""
    flow = Flow()
    with pytest.raises(SignInFailed, match=r"^state: begun at corp"):
        await flow.sign_in(by=flow.replica(name="lab"))
    asked, cookie = await flow.begin()
    answer = {"code": "c", "state": asked["state"]}
    for wrong in ("", "x", Sealing([b"o" * 32]).seal(b"{}", "sign-in")):
        with pytest.raises(SignInFailed, match=r"^state"):
            await flow.provider.finish(answer, wrong)
    flow.now += 601
    with pytest.raises(SignInFailed, match="too long ago"):
        await flow.provider.finish(answer, cookie)


async def test_a_replayed_code_is_refused() -> None:
    """The provider answers 400, which is no fault of the gateway."""
    flow = Flow()
    flow.played.answers["/token"] = lambda _: httpx.Response(400, json={"error": "invalid_grant"})
    with pytest.raises(SignInFailed, match=r"^code: invalid_grant"):
        await flow.sign_in()


async def test_a_clock_that_is_two_minutes_off_is_named() -> None:
    """The person reads that clocks differ, instead of a riddle."""
    flow = Flow()
    for iat, exp in ((NOW_S + 120, NOW_S + 420), (NOW_S - 420, NOW_S - 120)):
        with pytest.raises(SignInFailed) as caught:
            await flow.sign_in(iat=iat, exp=exp)
        assert "clocks" in caught.value.hint


async def test_a_provider_that_is_down_is_no_refusal() -> None:
    """It may be tried again."""
    flow = Flow()
    flow.played.answers["/token"] = lambda _: httpx.Response(503)
    with pytest.raises(ProviderUnavailable):
        await flow.sign_in()


async def test_e_mail_is_a_label() -> None:
    """The same address at another provider, changed or unverified: the person stays (issuer, subject)."""
    flow = Flow()
    claims: list[dict[str, Any]] = [{"email": "a@x"}, {"email": "b@x"}, {"sub": "2", "email": "a@x"}]
    people = [(await flow.sign_in(**more))[0] for more in claims]
    assert [(each.issuer, each.subject) for each in people] == [(ISSUER, "248289761001")] * 2 + [(ISSUER, "2")]


@pytest.mark.parametrize("more", [{}, {"groups": []}, {"groups": ["Staff"]}, {"groups": ["staff2"]}, {"staff": True}])
async def test_admitted_are_members_of_a_named_group_alone(more: dict[str, Any]) -> None:
    """Compared as they are, case included."""
    flow = Flow(admit=["staff"], groups_claim="groups", group_prefix="corp-")
    with pytest.raises(SignInFailed, match=r"^not admitted"):
        await flow.sign_in(**more)
    assert (await flow.sign_in(groups=["staff", "x"]))[0].groups == ("corp-staff", "corp-x")


async def test_an_empty_list_of_groups_admits_nobody() -> None:
    """It is not taken for no restriction."""
    flow = Flow(admit=[], groups_claim="groups")
    with pytest.raises(SignInFailed, match=r"^not admitted"):
        await flow.sign_in(groups=["staff"])


@pytest.mark.parametrize(
    "more",
    [
        {"_claim_names": {"groups": "src1"}},
        {"hasgroups": True},
        {"groups": [1]},
        {"groups": {}},
        {"groups": ["g"] * 1 + [str(i) for i in range(201)]},
    ],
)
async def test_groups_that_are_left_out_are_an_error(more: dict[str, Any]) -> None:
    """Too many for the token is not the same as none."""
    with pytest.raises(SignInFailed, match=r"^groups"):
        await Flow(groups_claim="groups").sign_in(**more)


async def test_a_refused_refresh_token_is_told_from_a_provider_that_is_down() -> None:
    """Only the first ends a session. An answer for another person does, too."""
    flow = Flow()
    flow.issue(nonce=...)
    assert (await flow.provider.refresh("r", "248289761001"))[1] == "r"
    with pytest.raises(GrantRefused):
        await flow.provider.refresh("r", "another")
    flow.played.answers["/token"] = lambda _: httpx.Response(500)
    with pytest.raises(ProviderUnavailable):
        await flow.provider.refresh("r", "248289761001")
    flow.played.answers["/token"] = lambda _: httpx.Response(400, json={"error": "invalid_grant"})
    with pytest.raises(GrantRefused):
        await flow.provider.refresh("r", "248289761001")


async def test_an_id_token_is_no_logout_token() -> None:
    """Nor may a page of 1 MiB be one."""
    flow = Flow()
    for token in (sign(flow.played.key, "ES256", claims()), "A" * 1024 * 1024):
        with pytest.raises(BadToken):
            await flow.provider.read_logout(token)


def test_the_target_after_a_sign_in_is_a_path_of_ours() -> None:
    """Everything that some browser takes for another host becomes the start page."""
    for good in ("/", "/jobs", "/jobs/7?tab=log&x=%20y", "/a/b.html"):
        assert safe_target(good) == good
    for bad in (
        "",
        "jobs",
        "//evil.example",
        "/\\evil.example",
        "/\t/evil.example",
        "%2f%2fevil.example",
        "/%2fevil.example",
        "/%2F%2fevil",
        "/%5cevil.example",
        "/%252fevil.example",
        "https://evil.example",
        "https:evil.example",
        "javascript:alert(1)",
        "/x\r\nset-cookie: a=b",
        "/%0d%0ax",
        "//a@evil.example",
        "\\\\evil",
        "/x\x00",
        "///evil",
        "/" + "x" * 3000,
        "/.//\\evil",
    ):
        assert safe_target(bad) == "/", bad


def test_login_names_are_made_of_labels() -> None:
    """One that cannot be a name is none."""
    for label, login in (
        ("Ann.Lee@example.org", "ann-lee"),
        ("ann", "ann"),
        ("Ægir", "gir"),
        ("", ""),
        ("..", ""),
        ("x" * 99, "x" * 63),
    ):
        assert login_of(label) == login
