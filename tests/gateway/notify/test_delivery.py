"""Deliveries over a whole notifier: all of them, in order, to those alone who may see what happened."""

import asyncio
from typing import Any

import msgspec
import pytest

from fairlead_bus.memory import MemoryBus
from fairlead_gateway.notify import delivery
from fairlead_gateway.notify.rules import Facts, Notice, place_of
from fairlead_gateway.notify.store import Delivery, RuleStore
from fairlead_schemas.http.notifications import DeliveryTest
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import subjects
from tests.gateway.logbook import configured, ended, joined, offered, placed, started, submitted
from tests.gateway.notify.notify_world import NotifyWorld, Receiver
from tests.kit.eventually import eventually_async


async def test_a_receiver_that_was_away_gets_everything_once_and_in_order() -> None:
    """However much happened meanwhile: what has left the notifier's memory is read from the log again. Its owner sees why it failed."""
    async with NotifyWorld(ring_max=8) as world, Receiver() as receiver:
        await world.rule("n1", receiver.url)
        await world.start()
        expected = [await world.ended_job()]
        await eventually_async(lambda: receiver.ids == expected)
        await receiver.stop()
        expected += [await world.ended_job() for _ in range(100)]
        # A try that meets the receiver while it closes may fail in other words first.
        failing = await world.in_state("n1", "failing", "the receiver cannot be connected to")
        assert failing.failing_since_ns
        await receiver.start()
        await eventually_async(lambda: len(receiver.ids) >= len(expected))
        assert receiver.ids == expected
        assert (await world.in_state("n1", "ok")).error == "", "the reason of a failure that is over is gone"
        await eventually_async(lambda: world.delivery_is("n1", sent=len(expected)))


async def test_a_restart_goes_on_where_it_stopped() -> None:
    """Events of the time between are sent; those before the rule was made are not."""
    async with NotifyWorld() as world, Receiver() as receiver:
        await world.ended_job()
        await world.rule("n1", receiver.url)
        expected = [await world.ended_job()]
        task = await world.start()
        await eventually_async(lambda: receiver.ids == expected)
        await eventually_async(lambda: world.delivery_is("n1", sent=1))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        expected += [await world.ended_job() for _ in range(3)]
        await world.start()
        await eventually_async(lambda: len(receiver.ids) >= 4)
        assert receiver.ids == expected


class LostBus(MemoryBus):
    """Client whose process dies when it stores that something was sent."""

    dead = False

    async def put(self, bucket: str, key: str, value: bytes, **more: Any) -> int:
        """Store, unless it says how far a destination is."""
        if key.startswith("delivery."):
            self.dead = True
            await asyncio.Event().wait()
        return await super().put(bucket, key, value, **more)


async def test_a_kill_between_send_and_store_repeats_one_message_under_its_id() -> None:
    """And loses none."""
    async with NotifyWorld() as world, Receiver() as receiver:
        await world.rule("n1", receiver.url)
        bus = LostBus(world.hub)
        world.hub.clients.append(bus)
        task = await world.start(bus)
        expected = [await world.ended_job() for _ in range(3)]
        await eventually_async(lambda: bus.dead)
        assert receiver.ids == expected[:1]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await world.start()
        await eventually_async(lambda: len(receiver.posts) >= 4)
        assert receiver.ids == [expected[0], *expected]
        again = [post.headers["webhook-id"] for post in receiver.posts]
        assert again[0] == again[1] and len(set(again)) == 3


async def test_receivers_that_fail_hang_or_redirect_delay_no_others() -> None:
    """Each is marked with its reason, and gets everything once it is well; what a redirect names gets nothing."""
    async with (
        NotifyWorld(attempt_s=0.2) as world,
        Receiver() as fast,
        Receiver("500 Internal Server Error") as broken,
        Receiver("") as hanging,
        Receiver("302 Found") as moved,
        Receiver() as inner,
    ):
        moved.headers = f"location: {inner.url}\r\n"
        bad = {"n2": (broken, "answered 500"), "n3": (hanging, "no answer within"), "n4": (moved, "redirects are not")}
        for name, receiver in {"n1": fast, **{name: each for name, (each, _) in bad.items()}}.items():
            await world.rule(name, receiver.url)
        await world.start()
        expected = [await world.ended_job() for _ in range(20)]
        await eventually_async(lambda: fast.ids == expected)
        for name, (_, words) in bad.items():
            assert words in (await world.in_state(name, "failing")).error
        for receiver, _ in bad.values():
            receiver.answer = "204 No Content"
        # Those that failed were sent before, under the same ids.
        for receiver in (broken, moved):
            await eventually_async(lambda r=receiver: list(dict.fromkeys(r.ids)) == expected)
        assert inner.posts == []


async def test_rights_of_now_decide_what_is_sent() -> None:
    """A reader gets others' jobs while the role lasts, without the fields that name others; the next event is not sent any more."""
    async with NotifyWorld() as world, Receiver() as receiver:
        grant: dict[str, Any] = {"subject": "bob", "role": "viewer", "scope": "queue:research", "source": "person"}
        await world.write(configured("research"))
        await world.write(ev.RoleGranted(cause="cmd:g", **grant), writer="access")
        await world.rule("n1", receiver.url, "end", "preemption", owner="bob", scopes=("cluster",))
        await world.start()
        hidden = await world.ended_job(queue="default")
        seen = await world.ended_job(queue="research", project="llm")
        await eventually_async(lambda: receiver.ids == [seen])
        document = msgspec.json.decode(receiver.posts[0].body)
        assert document["summary"] == f"job {document['data']['job']} (job-2) was cancelled"
        assert (document["jobname"], document["queue"], document["project"]) == ("job-2", "research", "llm")
        assert document["type"] == "fairlead.job.cancelled.v1" and document["specversion"] == "1.0"
        await world.write(ev.RoleRevoked(cause="cmd:r", **grant), writer="access")
        lost = await world.ended_job(queue="research")
        await world.write(ev.RoleGranted(cause="cmd:g", **grant), writer="access")
        again = await world.ended_job(queue="research")
        await eventually_async(lambda: len(receiver.ids) >= 2)
        assert receiver.ids == [seen, again] and hidden not in receiver.ids and lost not in receiver.ids


async def test_a_message_that_waits_for_its_receiver_is_judged_again() -> None:
    """A suspended person gets nothing, not even what failed before."""
    async with (
        NotifyWorld(retry_first_s=30.0, retry_most_s=30.0) as world,
        Receiver("503 Service Unavailable") as receiver,
    ):
        await world.rule("n1", receiver.url)
        await world.start()
        await world.ended_job()
        await world.in_state("n1", "failing")
        await world.write(ev.PrincipalSuspended(cause="cmd:s", principal="ada"), writer="access")
        receiver.answer = "200 OK"
        assert len(receiver.posts) == 1
        await world.test("n1")  # which ends the pause
        await world.in_state("n1", "ok")
        assert [post.headers["webhook-id"][:4] for post in receiver.posts] == ["evt_", "test"]
        assert (await world.delivery("n1")).sent == 0


async def test_kinds_of_all_sorts_arrive() -> None:
    """Ends with their causes, idle warnings, preemptions, budgets and nodes, each in words; what names others is left out."""
    async with NotifyWorld(is_open=False) as world, Receiver() as receiver:
        await world.write(
            ev.RoleGranted(cause="cmd:g", subject="ada", role="member", scope="queue:default", source="person"),
            ev.RoleGranted(cause="cmd:g", subject="ada", role="viewer", scope="pool:default", source="person"),
            writer="access",
        )
        await world.write(joined("n1"), writer="placer")
        await world.write(submitted("7", name="train", user="ada"), submitted("8", user="bob"), offered("7"))
        await world.write(placed("7"), started("7"), writer="placer")
        await world.rule("n9", receiver.url, "failure", "preemption", "node", "budget")
        await world.start()
        await world.write(
            ev.PreemptionStarted(cause="3.0", job="7", attempt=1, beneficiary="8", rule="lower_priority"),
            writer="placer",
        )
        await world.write(ended("7", 3), writer="placer")
        await world.write(ev.JobFailed(cause="5.0", job="7", reason="exit_code", attempt=1, exit_code=3))
        await world.write(ev.NodeLost(cause="clock", node="n1", silent_ns=120 * 10**9), writer="placer")
        await world.write(ev.BudgetReached(cause="clock", queue="default", percent=80, spent=8, budget=10, period_ns=1))
        await eventually_async(lambda: len(receiver.posts) >= 4)
        documents = [msgspec.json.decode(post.body) for post in receiver.posts]
        assert [each["summary"] for each in documents] == [
            "job 7 (train) yields its GPUs to another job (lower_priority)",
            "job 7 (train) failed: exit code 3",
            "node n1 is lost: silent for 120 s",
            "queue default has used 80 % of its budget",
        ]
        assert "beneficiary" not in documents[0]["data"]


async def test_a_job_that_has_left_the_views_is_known_by_telemetry() -> None:
    """While telemetry does not answer, the destination waits, and says so."""
    async with NotifyWorld(ring_max=1) as world, Receiver() as receiver:
        await world.rule("n1", receiver.url)
        expected = [await world.ended_job() for _ in range(3)]
        await world.write(ev.JobsRetired(cause="clock", jobs=("1", "2")))
        await world.start()
        assert "telemetry" in (await world.in_state("n1", "failing")).error
        await world.play_telemetry({"queue": "default", "user": "ada", "name": "old"})
        await eventually_async(lambda: len(receiver.ids) >= 3)
        assert receiver.ids == expected
        assert msgspec.json.decode(receiver.posts[0].body)["jobname"] == "old"


async def test_a_receiver_that_wants_no_more_is_paused_until_a_test_arrives() -> None:
    """410 pauses at once, other failures after days; nothing is lost."""
    async with (
        NotifyWorld(pause_after_s=1e-9) as world,
        Receiver("410 Gone") as gone,
        Receiver("404 Not Found") as wrong,
    ):
        await world.rule("n1", gone.url)
        await world.rule("n2", wrong.url)
        await world.start()
        expected = [await world.ended_job() for _ in range(2)]
        for name, receiver in (("n1", gone), ("n2", wrong)):
            paused = await world.in_state(name, "paused")
            assert (await world.test(name)) == DeliveryTest(sent=False, error=paused.error)
            receiver.answer = "200 OK"
            receiver.posts.clear()
            assert (await world.test(name)).sent
            await eventually_async(lambda r=receiver: r.ids[-2:] == expected)


async def test_a_paused_destination_stays_paused_over_a_restart() -> None:
    """It makes no attempt by itself."""
    async with NotifyWorld() as world, Receiver("410 Gone") as receiver:
        await world.rule("n1", receiver.url)
        task = await world.start()
        await world.ended_job()
        await world.in_state("n1", "paused")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await world.start()
        await eventually_async(lambda: world.test_has_failed("n1", "answered 410"))
        assert [post.headers["webhook-id"][:4] for post in receiver.posts] == ["evt_", "test"]


async def test_without_rules_nothing_is_read() -> None:
    """A notifier at rest leads nothing; with the first rule it begins, and after the last it rests again, with nothing left of it."""
    async with NotifyWorld() as world, Receiver() as receiver:
        await world.start()
        await world.ended_job()
        assert await world.bus.get(subjects.LEASE, "notifier") is None
        rule = await world.rule("n1", receiver.url)
        expected = await world.ended_job()
        await eventually_async(lambda: receiver.ids == [expected])
        assert await world.bus.get(subjects.LEASE, "notifier") is not None
        await world.store.remove(rule.id)

        async def rests() -> bool:
            return await world.bus.get(subjects.LEASE, "notifier") is None

        await eventually_async(rests)
        assert world.hub.buckets[subjects.NOTIFY].keys() == set()


async def test_an_idle_destination_stores_how_far_it_is() -> None:
    """So that a restart need not read again what does not concern it."""
    async with NotifyWorld(checkpoint_s=0.02) as world, Receiver() as receiver:
        await world.rule("n1", receiver.url)
        await world.start()
        await world.ended_job()
        await eventually_async(lambda: receiver.posts)
        for _ in range(3):
            await world.ended_job(user="bob")
        last = place_of((await world.bus.state(subjects.LOG)).last)
        await eventually_async(lambda: world.delivery_is("n1", sent=1, place=last))


async def test_an_error_of_the_notifier_stops_one_destination_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner sees it, others get everything, and it continues once the error is gone."""
    whole = delivery.summary

    def broken(notice: Notice, facts: Facts, data: dict[str, Any]) -> str:
        if facts.target.owner == "bob":
            raise ZeroDivisionError
        return whole(notice, facts, data)

    monkeypatch.setattr(delivery, "summary", broken)
    async with NotifyWorld() as world, Receiver() as adas, Receiver() as bobs:
        await world.rule("n1", adas.url)
        await world.rule("n2", bobs.url, owner="bob")
        await world.start()
        mine, his = await world.ended_job(), await world.ended_job(user="bob")
        assert "ZeroDivisionError" in (await world.in_state("n2", "failing")).error
        again = await world.ended_job()
        await eventually_async(lambda: adas.ids == [mine, again])
        monkeypatch.setattr(delivery, "summary", whole)
        await eventually_async(lambda: bobs.ids == [his])


async def test_a_slow_receiver_among_fast_ones_delays_none_in_a_flood() -> None:
    """All fast ones have everything, in order, while the slow one has begun."""
    async with NotifyWorld(ring_max=64) as world, Receiver() as slow, Receiver() as fast:
        slow.delay_s = 30.0
        await world.rule("n0", slow.url)
        for number in range(1, 4):
            await world.rule(f"n{number}", fast.url)
        await world.start()
        expected = [await world.ended_job() for _ in range(100)]
        await eventually_async(lambda: len(fast.posts) == 300)
        assert len(slow.posts) == 1
        for rule in ("n1", "n2", "n3"):
            await eventually_async(lambda r=rule: world.delivery_is(r, sent=100))
        assert sorted(fast.ids) == sorted(expected * 3)


async def test_rows_of_rules_that_are_gone_are_swept() -> None:
    """The notifier may write how far a destination is just after its rule was removed."""
    async with NotifyWorld() as world:
        await world.rule("n1", "https://hooks.example.org")
        for rule in ("n1", "n2"):
            await world.store.note(rule, Delivery(place=1))
        await RuleStore(world.hub.connect(), sweeps=True).load()
        assert set(world.hub.buckets[subjects.NOTIFY]) == {"rule.n1", "delivery.n1"}


async def test_a_rule_without_sign_on_is_no_silence_where_the_notifier_has_it() -> None:
    """Its owner, whom access does not know, sees the reason, and nothing is skipped; a notifier without sign-on sends everything."""
    async with NotifyWorld() as world, Receiver() as receiver:
        await world.rule("n1", receiver.url, owner="anonymous")
        task = await world.start()
        expected = [await world.ended_job(user="anonymous")]
        assert "FAIRLEAD_SIGN_ON=off" in (await world.in_state("n1", "failing")).error
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        world.settings = world.settings._replace(is_open=True)
        await world.start()
        await eventually_async(lambda: receiver.ids == expected)
