"""Applications of job files: profiles, words of one's own, and what is refused."""

import pytest

from fairlead_schemas.jobfile.agent_fields import app_faults, app_of
from fairlead_schemas.jobfile.alike import JobResolver
from fairlead_schemas.jobfile.job_spec import AppWords, JobSpec, decode_job, job_from
from fairlead_schemas.jobfile.resolve import resolve
from fairlead_schemas.policies.apps import PORT_VARIABLE, PROFILES
from fairlead_schemas.units.validation import InvalidJob


@pytest.mark.parametrize("name", [name for name, profile in PROFILES.items() if profile.command])
def test_a_profile_brings_its_command(name: str) -> None:
    """It listens on 127.0.0.1 and the port that the node chooses; the log has the whole command, and the name."""
    command = resolve(JobSpec(app=name, kind="session"), command_id="c", user="ann")
    spec = decode_job(bytes(command.spec))
    assert spec.app == name == command.name
    assert "127.0.0.1" in spec.command[2] and f"${PORT_VARIABLE}" in spec.command[2]
    assert JobResolver().resolve(JobSpec(app=name, kind="session"), "ann").spec == command.spec
    twice = JobResolver()
    for _ in range(2):  # the second is resolved by what the first has shown
        assert twice.resolve(JobSpec(app=name, kind="session"), "ann").spec == command.spec


def test_own_fields_of_an_app() -> None:
    """A path that shows that it serves, and paths that count as the page's, in addition to the profile's."""
    app = app_of(AppWords(profile="jupyterlab", ready="/lab", background=["/poll"]))
    assert app is not None and app.ready == "/lab" and app.background == (*PROFILES["jupyterlab"].background, "/poll")
    own = app_of(AppWords(port=8000))
    assert own is not None and (own.profile.name, own.port, own.ready) == ("http", 8000, "/")
    assert app_of("") is None


@pytest.mark.parametrize(
    ("words", "kind", "field"),
    [
        ("jupiter", "session", "app"),
        ("jupyterlab", "batch", "app"),
        ({"profile": "x"}, "session", "app.profile"),
        ({"port": 65536}, "session", "app.port"),
        ({"port": -1}, "session", "app.port"),
        ({"socket": "run/a.sock"}, "session", "app.socket"),
        ({"socket": "/run/../a"}, "session", "app.socket"),
        ({"socket": "/run/a\0"}, "session", "app.socket"),
        ({"socket": "/" + "a" * 90}, "session", "app.socket"),
        ({"socket": "/run/a", "port": 1}, "session", "app.socket"),
        ({"ready": "health"}, "session", "app.ready"),
        ({"ready": "/a\r\nHost: b"}, "session", "app.ready"),
        ({"background": ["/ok", "bad path"]}, "service", "app.background[1]"),
        ({"background": ["/a"] * 33}, "service", "app.background"),
    ],
)
def test_a_bad_app_is_refused_by_path(words: object, kind: str, field: str) -> None:
    """With what was expected; at submit and, since the words are the same, at the node."""
    spec = job_from({"command": ["true"], "kind": kind, "app": words})
    with pytest.raises(InvalidJob) as refused:
        resolve(spec, command_id="c", user="ann")
    assert [each.field for each in refused.value.errors] == [field]
    assert "expected" in refused.value.errors[0].message
    assert [each.field for each in app_faults(spec.app, kind)] == [field]


def test_a_command_may_be_missing_only_with_an_app_that_has_one() -> None:
    """The profile of one's own programs has none."""
    with pytest.raises(InvalidJob, match="command"):
        job_from({"kind": "session"})
    with pytest.raises(InvalidJob) as refused:
        resolve(job_from({"kind": "session", "app": "http"}), command_id="c", user="ann")
    assert [each.field for each in refused.value.errors] == ["command"]
