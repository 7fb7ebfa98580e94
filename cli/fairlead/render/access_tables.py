"""Tables and facts about access: grants, people, tokens, reasons, the record of access."""

from fairlead.render import terminal
from fairlead.render.terminal import Format, TableColumn
from fairlead_schemas.http.access import RecordOfAccess
from fairlead_schemas.http.accounts import AccessAnswer, RoleHeld, WhoAmI

GRANTS = (
    TableColumn("SUBJECT", lambda g: g.subject_name),
    TableColumn("ROLE", lambda g: g.role),
    TableColumn("SCOPE", lambda g: g.scope),
    TableColumn("ID", lambda g: g.subject, wide=True),
    TableColumn("BY", lambda g: ", ".join(g.sources), wide=True),
)
PEOPLE = (
    TableColumn("LOGIN", lambda p: p.login),
    TableColumn("NAME", lambda p: p.name),
    TableColumn("STATE", lambda p: p.state),
    TableColumn("TOKENS", lambda p: str(p.tokens), right=True),
    TableColumn("SIGN-INS", lambda p: str(p.sessions), right=True),
    TableColumn("ID", lambda p: p.id),
    TableColumn("EMAIL", lambda p: p.email, wide=True),
    TableColumn("FROM", lambda p: p.source, wide=True),
)
TOKENS = (
    TableColumn("ID", lambda t: t.id),
    TableColumn("NAME", lambda t: t.name),
    TableColumn("VERBS", lambda t: ",".join(t.verbs) or "all of its owner"),
    TableColumn("SCOPES", lambda t: ",".join(t.scopes) or "all of its owner"),
    TableColumn("EXPIRES", lambda t: t.expires_at),
    TableColumn("USED", lambda t: t.used_at or "never"),
    TableColumn("KIND", lambda t: t.kind, wide=True),
    TableColumn("MADE", lambda t: t.made_at or "", wide=True),
)
NOTIFICATIONS = (
    TableColumn("ID", lambda n: n.id),
    TableColumn("NAME", lambda n: n.name),
    TableColumn("TO", lambda n: n.to or "your own address"),
    TableColumn("ON", lambda n: ",".join(n.on)),
    TableColumn("SCOPES", lambda n: ",".join(n.scopes)),
    TableColumn("STATE", lambda n: n.state),
    TableColumn("SENT", lambda n: str(n.sent), right=True),
    TableColumn("ERROR", lambda n: n.error),
    TableColumn("SINCE", lambda n: n.failing_since or "", wide=True),
    TableColumn("LAST SENT", lambda n: n.sent_at or "never", wide=True),
    TableColumn("MADE", lambda n: n.made_at, wide=True),
)
_RECORD = (
    TableColumn("TIME", lambda a: a.at),
    TableColumn("WHAT", lambda a: a.kind.replace("_", " ")),
    TableColumn("WHO", lambda a: a.login or a.principal),
    TableColumn("VERB", lambda a: a.verb),
    TableColumn("TARGET", lambda a: a.target),
    TableColumn("TIMES", lambda a: str(a.count), right=True),
    TableColumn("VIA", lambda a: a.via, wide=True),
    TableColumn("ADDRESS", lambda a: a.address, wide=True),
)


def _sentence(held: RoleHeld) -> str:
    return f"{held.subject} is {held.role} in {held.scope}"


def whoami_facts(me: WhoAmI) -> list[tuple[str, str]]:
    """Return the facts of a principal as labels and values."""
    roles = [
        (
            ("roles" if not i else ""),
            (f"{r.role} in {r.scope}" + (f" by {r.subject}" if r.subject != me.principal else "")),
        )
        for i, r in enumerate(me.roles)
    ]
    return [
        ("login", me.login or me.principal),
        ("name", me.name),
        ("id", me.principal if me.login else ""),
        ("kind", me.kind or "no sign-on: the name is believed"),
        ("via", me.via),
        ("until", me.expires_at or ""),
        ("groups", ", ".join(me.groups)),
        *(roles or ([("roles", "none: an admin gives some by `fairlead access grant`")] if me.kind else [])),
    ]


def why_facts(answer: AccessAnswer) -> list[tuple[str, str]]:
    """Return an answer's facts as labels and values."""
    missing = (
        [] if answer.allowed else [("missing", answer.missing), ("could grant", ", ".join(answer.givers) or "an admin")]
    )
    return [("answer", answer.sentence), *missing, ("as of", f"sequence {answer.sequence}")]


def record(found: RecordOfAccess, form: Format) -> str:
    """Return a record of access as text."""
    if form in (Format.json, Format.yaml):
        return terminal.document(found, form)
    if form is Format.names:
        return "".join(f"{each.kind}/{each.target or each.principal}\n" for each in found.items)
    shown = terminal.shown(_RECORD, form)
    rows = [[column.text(each) for column in shown] for each in found.items]
    return terminal.table(rows, shown) if rows else "nothing was noted\n"
