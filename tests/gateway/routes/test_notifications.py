"""Rules of notifications over HTTP: one's own, made in a young session, erased with the person, and with secrets shown once."""

from typing import Any

import msgspec
import pytest

from fairlead_bus.memory import MemoryHub
from fairlead_gateway.notify.allowed_hosts import AllowedHosts
from fairlead_gateway.notify.store import RULES_OF_OWNER_MAX
from fairlead_gateway.routes.tokens import FRESH_NS
from fairlead_schemas.http.notifications import DeliveryTest
from fairlead_schemas.wire import subjects
from tests.gateway.access.accounts_world import AccountsWorld
from tests.gateway.gatehouse import Gatehouse
from tests.kit.eventually import eventually_async

HOOK = "https://hooks.example.org/services/T0/hidden?key=hidden"
PATH = "/v1/notifications"


async def test_a_rule_is_shown_without_its_secrets() -> None:
    """The key once, when it is made; the path of a URL, which may be a secret, never. A list is one's own."""
    async with AccountsWorld() as world:
        ann, eve = await world.person("ann"), await world.person("eve")
        (_, text), (_, eves) = await world.session(ann), await world.session(eve)
        wanted = {"on": ["end", "idle", "end"], "webhook": HOOK, "name": "chat", "scopes": ["mine", "queue:research"]}
        made = await world.ask("POST", PATH, wanted, token=text, status=201)
        assert made["secret"].startswith("whsec_") and made["owner"] == ann and made["on"] == ["end", "idle"]
        (shown,) = (await world.ask("GET", PATH, token=text))["items"]
        assert shown["to"] == "https://hooks.example.org/…" and shown["state"] == "ok" and shown["sent"] == 0
        assert "hidden" not in str(shown) and made["secret"] not in str(shown) and "secret" not in shown
        assert (await world.ask("GET", PATH, token=eves))["items"] == []
        await world.ask("GET", f"{PATH}?of=ann", token=eves, status=403)
        assert (await world.ask("GET", f"{PATH}?of=ann"))["items"] == [shown], "the owner is an admin"
        for method, path in (("DELETE", f"{PATH}/{made['id']}"), ("POST", f"{PATH}/{made['id']}:test")):
            hidden, missing = (
                await world.send(method, path, token=eves),
                await world.send(method, path[:-1], token=eves),
            )
            assert hidden.status_code == 404 and missing.status_code in (404, 405)
        await world.ask("DELETE", f"{PATH}/{made['id']}", token=text)
        assert (await world.ask("GET", PATH, token=text))["items"] == []
        assert world.hub.buckets[subjects.NOTIFY] == {}


async def test_a_rule_is_made_like_a_token() -> None:
    """In a young session: it outlives the credential that made it. A token with limits removes none."""
    async with AccountsWorld() as world:
        ann = await world.person("ann")
        _, text = await world.session(ann)
        wanted = {"on": ["end"], "webhook": HOOK}
        rule = (await world.ask("POST", PATH, wanted, token=text, status=201))["id"]
        token = (await world.token(text, verbs=["job:read"]))["token"]
        refused = await world.ask("POST", PATH, wanted, token=token, status=403)
        assert refused["type"].endswith("token_makes_no_token")
        await world.ask("DELETE", f"{PATH}/{rule}", token=token, status=403)
        await world.ask("POST", PATH, wanted, status=403, x_fairlead_act_as=ann)
        clock = world.gateway.notifications._clock
        world.gateway.notifications._clock = lambda: clock() + FRESH_NS + 1
        assert (await world.ask("POST", PATH, wanted, token=text, status=403))["type"].endswith("sign_in_again")
        await world.ask("DELETE", f"{PATH}/{rule}", token=text)


async def test_rules_are_in_the_record_of_access() -> None:
    """Events leave the cluster by them: who made one, and an admin who removed one, as its owner sees. The URL and the key are not there."""
    async with AccountsWorld() as world:
        ann = await world.person("ann")
        _, text = await world.session(ann)
        rule = (await world.ask("POST", PATH, {"on": ["end"], "webhook": HOOK}, token=text, status=201))["id"]
        await world.ask("DELETE", f"{PATH}/{rule}")
        await world.ask("DELETE", f"{PATH}/{rule}", token=text, status=404)
        await world.gateway.trail.flush()
        items = (await world.ask("GET", "/v1/audit/access", token=text))["items"]
        found = [
            (each["kind"], each["login"], each["target"], bool(each["address"]))
            for each in items
            if "notification" in each["kind"]
        ]
        assert sorted(found) == [
            ("notification_made", "ann", f"notification:{rule}", True),
            ("notification_removed", "owner", f"notification:{rule}", False),
        ]
        assert b"hidden" not in b"".join(each.payload for each in world.hub.streams["AUDIT"].messages)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"on": [], "webhook": HOOK}, "on"),
        ({"on": ["ends"], "webhook": HOOK}, "on[0]"),
        ({"on": ["end"]}, "webhook"),
        ({"on": ["end"], "webhook": HOOK, "mail": True}, "webhook"),
        ({"on": ["end"], "mail": "eve@example.org"}, "mail"),
        ({"on": ["end"], "webhook": "https://127.0.0.1/x"}, "webhook"),
        ({"on": ["end"], "webhook": "http://hooks.example.org/x"}, "webhook"),
        ({"on": ["end"], "webhook": "https://other.org/x"}, "webhook"),
        ({"on": ["end"], "webhook": HOOK, "scopes": []}, "scopes"),
        ({"on": ["end"], "webhook": HOOK, "scopes": ["mine", "queue:/x"]}, "scopes[1]"),
        ({"on": ["end"], "webhook": HOOK, "name": "a\nb"}, "name"),
        ({"on": ["end"], "webhook": HOOK, "owner": "bob"}, "owner"),
    ],
)
async def test_what_cannot_be_a_rule_is_refused_by_field(body: dict[str, Any], field: str) -> None:
    """And nothing is stored."""
    async with AccountsWorld() as world:
        world.gateway.notifications._allowed = AllowedHosts(hosts=("hooks.example.org", "127.0.0.1"))
        refused = await world.ask("POST", PATH, body, status=422)
        assert [each["field"] for each in refused["errors"]] == [field], refused
        assert not world.hub.buckets[subjects.NOTIFY]


async def test_a_person_has_a_bounded_number_of_rules() -> None:
    """Each holds memory of two processes."""
    async with AccountsWorld() as world:
        for _ in range(RULES_OF_OWNER_MAX):
            await world.ask("POST", PATH, {"on": ["end"], "mail": True}, status=201)
        assert (await world.ask("POST", PATH, {"on": ["end"], "mail": True}, status=409))["type"].endswith(
            "too_many_rules"
        )


async def test_rules_about_jobs_that_have_ended_make_room() -> None:
    """`sbatch --mail-type` makes one for each job. One about other things stays, and so does one whose jobs are not over."""
    async with AccountsWorld() as world:
        rule = {"on": ["end"], "mail": True}
        kept = (await world.ask("POST", PATH, rule, status=201))["id"]
        made: dict[str, Any] = {}
        for number in range(RULES_OF_OWNER_MAX + 3):
            made = await world.ask("POST", PATH, {**rule, "scopes": [f"job:{900 + number}"], "after": 1}, status=201)
        ids = {each["id"] for each in (await world.ask("GET", PATH))["items"]}
        assert ids == {kept, made["id"]}, "no job is known by these ids"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"scopes": ["mine"], "after": 1}, "expected it with scopes of jobs only"),
        ({"scopes": ["job:1", "queue:a"], "after": 1}, "expected it with scopes of jobs only"),
        ({"scopes": ["job:1"], "after": 10**9}, "expected a sequence of the log"),
        ({"scopes": ["job:1"], "after": -1}, "expected a sequence of the log"),
    ],
)
async def test_a_rule_begins_in_the_past_for_jobs_alone(words: dict[str, Any], says: str) -> None:
    """Else a rule would send the whole log."""
    async with AccountsWorld() as world:
        refused = await world.ask("POST", PATH, {"on": ["end"], "mail": True, **words}, status=422)
        assert [each["field"] for each in refused["errors"]] == ["after"] and says in str(refused)


async def test_forgetting_a_person_erases_their_rules() -> None:
    """With addresses and keys, whichever gateway they were made by; those of others stay."""
    async with AccountsWorld() as world:
        ann = await world.person("ann")
        _, text = await world.session(ann)
        await world.ask("POST", PATH, {"on": ["end"], "webhook": HOOK}, token=text, status=201)
        kept = (await world.ask("POST", PATH, {"on": ["end"], "mail": True}, status=201))["id"]
        await world.bus.put(subjects.NOTIFY, "rule.n2", msgspec.json.encode({**_row(ann), "id": "n2"}))
        await world.bus.put(subjects.NOTIFY, "delivery.n2", b'{"place":1}')
        await world.ask("POST", "/v1/people/ann:forget")
        assert set(world.hub.buckets[subjects.NOTIFY]) == {f"rule.{kept}"}


def _row(owner: str) -> dict[str, Any]:
    return {"owner": owner, "channel": "webhook", "to": HOOK, "kinds": ["end"], "secret": "whsec_AA=="}


async def test_gateways_know_each_others_rules() -> None:
    """Also those that were made while a gateway could not reach the bus."""
    async with AccountsWorld() as world:
        store = world.gateway.rules
        await eventually_async(lambda: store.loaded)
        await world.bus.put(subjects.NOTIFY, "rule.n2", msgspec.json.encode({**_row("ann"), "id": "n2"}))
        await eventually_async(lambda: list(store.rules) == ["n2"])
        await world.bus.put(subjects.NOTIFY, "rule.n3", b'{"id":"n3"}')
        await world.bus.put(subjects.NOTIFY, "rule.n4", b"no JSON")
        await world.bus.delete(subjects.NOTIFY, "rule.n2")
        store._reload.set()
        await eventually_async(lambda: not store.rules)


async def test_a_test_is_the_notifiers_answer() -> None:
    """503 without one."""
    async with AccountsWorld() as world:
        rule = (await world.ask("POST", PATH, {"on": ["end"], "mail": True}, status=201))["id"]
        answer = DeliveryTest(sent=False, error="no mail server is configured (FAIRLEAD_SMTP)")

        async def test(_message: Any) -> bytes:
            return msgspec.json.encode(answer)

        assert (await world.ask("POST", f"{PATH}/{rule}:test", status=503))["type"].endswith("no_notifier")
        await world.hub.connect().serve(subjects.rpc("notifier", "test"), test)
        assert await world.ask("POST", f"{PATH}/{rule}:test") == msgspec.to_builtins(answer)


async def test_without_sign_on_a_name_has_rules() -> None:
    """Mail needs an address there."""
    async with Gatehouse() as house:
        assert isinstance(house.hub, MemoryHub)
        ada, bob = {"x-fairlead-user": "ada"}, {"x-fairlead-user": "bob"}
        made = await house.http.post(PATH, json={"on": ["end"], "mail": "ada@example.org"}, headers=ada)
        assert (made.status_code, made.json()["owner"], made.json()["to"]) == (201, "ada", "ada@example.org")
        assert (await house.http.post(PATH, json={"on": ["end"], "mail": True}, headers=ada)).status_code == 422
        assert len((await house.http.get(PATH, headers=ada)).json()["items"]) == 1
        assert (await house.http.get(PATH, headers=bob)).json()["items"] == []
