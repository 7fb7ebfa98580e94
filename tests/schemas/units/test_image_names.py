"""Names of images: the grammar of registries, and which registries a node may be sent to."""

import pytest

from fairlead_schemas.jobfile.job_spec import job_from
from fairlead_schemas.jobfile.resolve import resolve
from fairlead_schemas.units.image_names import ImageName, ImageNameError, Registries, parse_image, parse_registries
from fairlead_schemas.units.validation import InvalidJob

DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pytorch", ImageName("docker.io", "pytorch")),
        ("pytorch:2.9", ImageName("docker.io", "pytorch", "2.9")),
        ("team/train", ImageName("docker.io", "team/train")),
        ("nvcr.io/nvidia/pytorch:25.01-py3", ImageName("nvcr.io", "nvidia/pytorch", "25.01-py3")),
        ("10.0.0.5:5000/a__b/c-d:X", ImageName("10.0.0.5:5000", "a__b/c-d", "X")),
        ("localhost/x", ImageName("localhost", "x")),
        ("[fd00::1]:5000/x", ImageName("[fd00::1]:5000", "x")),
        ("Reg.Example/x", ImageName("reg.example", "x")),
        (f"x@{DIGEST}", ImageName("docker.io", "x", "", DIGEST)),
        (f"ghcr.io/a/b:1@{DIGEST}", ImageName("ghcr.io", "a/b", "1", DIGEST)),
        ("a" * 255, ImageName("docker.io", "a" * 255)),
        ("x:" + "t" * 128, ImageName("docker.io", "x", "t" * 128)),
    ],
)
def test_a_name_is_split_as_engines_split_it(text: str, expected: ImageName) -> None:
    """A first part with a dot or a port is the registry; without one it is docker.io."""
    assert parse_image(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        ".",
        "..",
        "//",
        "../containers",
        "../containers/x",
        "a/../b",
        "a//b",
        "/a",
        "a/",
        "a/./b",
        "A",
        "a/B",
        "a b",
        " a",
        "a ",
        "a\n",
        "a\0b",
        "a?b",
        "a#b",
        "a%2e%2e",
        "a:b:c",
        "a:",
        ":b",
        "a@",
        "a@b",
        "a@sha256:12",
        "a:-x",
        "a..b",
        "a_",
        "-a",
        "a___b",
        "--privileged",
        "http://a/b",
        "a.b:x/c",
        "a" * 256,
        "x:" + "t" * 129,
        "a" * 64,
        "\u0430",
        "[::1/x",
        "a" * 100_000,
        "a." * 50_000,
    ],
)
def test_any_other_text_is_refused_by_its_field(text: str) -> None:
    """Text that the engine might take as a path, an option or another request; a job with it is refused at `image`."""
    with pytest.raises(ImageNameError, match=r"expected .*, found"):
        parse_image(text)
    if text and len(text) < 60_000:
        with pytest.raises(InvalidJob) as refused:
            resolve(job_from({"command": ["x"], "image": text}), command_id="1", user="u")
        assert [error.field for error in refused.value.errors] == ["image"]


@pytest.mark.parametrize(
    ("listed", "allowed", "refused"),
    [
        (
            "",
            ["docker.io", "ghcr.io", "nvcr.io:443", "8.8.8.8", "8.8.8.8:5000", "[2600::1]:5000"],
            [
                "localhost",
                "localhost:5000",
                "127.0.0.1",
                "127.0.0.1:5000",
                "10.0.0.5:5000",
                "192.168.1.1",
                "169.254.169.254",
                "[::1]:5000",
                "[fe80::1]",
                "[fd00::1]",
                "0.0.0.0",
                "100.64.0.1",
                "127.1",
                "127.0.0.0x1",
                "2130706433:80",
                "nats:4222",
                "a.localhost",
                "printer.local",
                "metadata.google.internal",
                "[::ffff:127.0.0.1]",
            ],
        ),
        ("public, 10.0.0.5:5000", ["docker.io", "10.0.0.5:5000"], ["10.0.0.5", "10.0.0.5:22", "10.0.0.6:5000"]),
        (
            "ghcr.io,*.example.com",
            ["ghcr.io", "ghcr.io:443", "a.example.com", "a.b.example.com:5000"],
            ["docker.io", "example.com"],
        ),
        ("10.0.0.5", ["10.0.0.5", "10.0.0.5:5000"], ["docker.io"]),
    ],
)
def test_registries_are_those_of_the_list(listed: str, allowed: list[str], refused: list[str]) -> None:
    """Without one every public name and address is; loopback, private and link-local ones only where they are listed."""
    registries = parse_registries(listed)
    assert [each for each in allowed if registries.fault(each)] == []
    assert [each for each in refused if not registries.fault(each)] == []


def test_a_list_that_cannot_be_read_is_refused() -> None:
    """By the entry that is wrong."""
    for bad in ("https://ghcr.io", "ghcr.io/team", "a b", "*"):
        with pytest.raises(ValueError, match="expected"):
            parse_registries(f"public,{bad}")


def test_submit_checks_registries_where_they_are_known() -> None:
    """Without a list the name's form alone is checked: nodes may have lists of their own."""
    job = job_from({"command": ["x"], "image": "10.0.0.5:5000/x"})
    assert resolve(job, command_id="1", user="u").spec
    assert resolve(job, command_id="1", user="u", registries=parse_registries("10.0.0.5:5000")).spec
    with pytest.raises(InvalidJob, match="FAIRLEAD_REGISTRIES"):
        resolve(job, command_id="1", user="u", registries=Registries())
