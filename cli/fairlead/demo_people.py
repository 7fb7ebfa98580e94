"""Scene of `fairlead demo` with two people: each has the rights that the owner gave, and who lacks one is refused with its why.

Both sign in with passwords of their own, as local users of the gateway. Start at `play`.
"""

import secrets
from collections.abc import Callable

from fairlead.client import Client, Denied
from fairlead.client.sign_in import by_password

#: {login: the roles that the owner grants, with their scopes}
ROLES = {
    "ann": (("member", "queue:research/llm"),),
    "bob": (("member", "queue:research/vision"), ("viewer", "queue:research")),
}

type Say = Callable[[str, str], None]


def play(owner: Client, say: Say) -> list[str]:
    """Play the scene. Return what is not as it must be, one line each."""
    clients = {login: _signed_in(owner, login) for login in ROLES}
    for login, roles in ROLES.items():
        say("people", "; ".join(f"{login} is {role} in {scope}" for role, scope in roles))
    ann, bob = clients["ann"], clients["bob"]
    job = ann.submit({"name": "anns-run", "queue": "research/llm", "command": ["sleep", "3600"]}).id
    say("action", f"ann submits job {job} to research/llm; bob may see it and tries to cancel it")
    wrong = _expect_refusal(lambda: bob.cancel(job), "job:cancel", say)
    wrong += _expect_refusal(lambda: bob.submit({"queue": "research/llm", "command": ["true"]}), "job:submit", say)
    ann.cancel(job)
    (ended,) = ann.wait([job], timeout_s=60)
    say("action", f"ann cancels job {job}: what is one's own needs no role")
    if ended.state != "cancelled" or ended.user != "ann":
        wrong.append(f"ann's job: expected cancelled, of ann; found {ended.state}, of {ended.user}")
    for client in clients.values():
        client.close()
    return wrong


def _signed_in(owner: Client, login: str) -> Client:
    """Add a person with their roles, and sign them in."""
    password = secrets.token_urlsafe(18)
    owner.add_person(login, password=password)
    for role, scope in ROLES[login]:
        owner.grant(login, role, scope)
    return Client(owner.url, token=by_password(owner.url, login, password).access_token)


def _expect_refusal(act: Callable[[], object], verb: str, say: Say) -> list[str]:
    try:
        act()
    except Denied as refused:
        why = refused.problem.why if refused.problem is not None else None
        if why is None or why.verb != verb:
            return [f"bob's refusal: expected {verb} to be missing, found {refused}"]
        say("why", "; ".join(str(refused).splitlines()))
        return []
    return [f"bob's {verb}: expected to be refused"]
