"""Rows that a member sees by grants: SQL over jobs says what the rights package says of each job."""

from typing import NamedTuple

import duckdb
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_rights.access_list import Grant, Reach, Target
from fairlead_rights.state import AccessState, Token
from fairlead_schemas.policies.rights import Scope, parse_scope
from fairlead_schemas.queries.telemetry import QueryCaller, RowScope
from fairlead_telemetry.sql import visibility
from fairlead_telemetry.sql.member_copy import scope_of

QUEUES = ("a", "a/b", "a/bc", "a/b/c", "ab", "d")
PROJECTS = ("", "p", "q")


class Job(NamedTuple):
    id: str
    user: str
    project: str
    queue: str


JOBS = st.lists(
    st.builds(
        Job,
        st.sampled_from(("1", "2", "3_0", "3_1")),
        st.sampled_from(("ann", "bob")),
        st.sampled_from(PROJECTS),
        st.sampled_from(QUEUES),
    ),
    unique_by=lambda job: job.id,
)
WIDE = st.sampled_from([*(f"queue:{path}" for path in QUEUES), "project:p", "project:q"])
LIMITS = st.sampled_from([*(f"queue:{path}" for path in QUEUES), "project:p", "job:1", "job:3"])


def _rows(reach: Reach) -> RowScope:
    named = {kind: tuple(sorted(name for each, name in reach.others if each == kind)) for kind in ("project", "job")}
    return RowScope(queues=tuple(sorted(reach.queues)), projects=named["project"], jobs=named["job"])


@settings(deadline=None)
@given(JOBS, st.lists(WIDE, max_size=3), st.lists(LIMITS, max_size=2))
def test_sql_shows_what_the_rights_allow(jobs: list[Job], scopes: list[str], limits: list[str]) -> None:
    """For any jobs, grants and limits of a token: the same jobs, by SQL, by `MemberScope.sees` and by `AccessState.may`."""
    state = AccessState()
    state.access.admit("ann")
    for scope in map(parse_scope, scopes):
        state.access.grant(Grant("ann", "viewer", Scope(*scope)), "test")
    state.add_token(Token("t", "ann", "person", 1, (), tuple(limits)))
    reaches = state.reaches("ann", "sql:read", "t")
    own = _rows(reaches[0]) if reaches else RowScope()
    token = state._limits.get("t")
    within = _rows(token[1]) if token is not None and token[1] is not None else None
    caller = QueryCaller(user="ann", role="member", projects=own.projects, queues=own.queues, within=within)
    member = scope_of(caller)
    assert member is not None
    part = member.within or RowScope()
    with duckdb.connect(":memory:") as db:
        db.execute("CREATE SCHEMA fold")
        db.execute('CREATE TABLE fold.jobs (job VARCHAR, "user" VARCHAR, project VARCHAR, queue VARCHAR)')
        for job in jobs:
            db.execute("INSERT INTO fold.jobs VALUES (?, ?, ?, ?)", list(job))
        parameters = {
            "user": member.user,
            "projects": list(member.projects),
            "queues": list(member.queues),
            "unlimited": member.within is None,
            "part_projects": list(part.projects),
            "part_queues": list(part.queues),
            "part_jobs": list(part.jobs),
        }
        found = {row[0] for row in db.execute(visibility.JOBS_OF_A_MEMBER, parameters).fetchall()}
    may = {
        job.id
        for job in jobs
        if state.may("ann", "job:read", Target(job.queue, "", job.project, job.id, "", job.user), "t")
    }
    assert found == may
    assert {job.id for job in jobs if member.sees(*job)} == may
