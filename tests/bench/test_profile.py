"""Shares of functions in py-spy's samples, and the section of the page."""

from bench.profile import Share, markdown, section, shares, with_section

RAW = """main (a/run.py:1);loop (a/run.py:9);step (a/run.py:20);decide (b/core.py:3) 30
main (a/run.py:1);loop (a/run.py:9);step (a/run.py:20);decide (b/core.py:3);place (b/core.py:7);place (b/core.py:7) 50
main (a/run.py:1);loop (a/run.py:9);wait (a/run.py:30) 10
main (a/run.py:1);send (lib/net.py:2) 10
"""


def test_a_share_counts_a_function_with_those_that_it_calls() -> None:
    """Once per sample, however deep it recurses. Functions that contain everything, or only pass on to one other, are left out."""
    assert shares(RAW) == [
        Share("a/run.py loop", 0.9, 0),
        Share("b/core.py decide", 0.8, 0.3),
        Share("b/core.py place", 0.5, 0.5),
        Share("a/run.py wait", 0.1, 0.1),
        Share("lib/net.py send", 0.1, 0.1),
    ]


def test_the_section_takes_the_place_of_the_earlier_one() -> None:
    """What precedes and follows it is kept."""
    new = section({"queue, 50 µs a job": shares(RAW)}, 40_000)
    page = with_section("# Page\n\ntable\n", new)
    assert page == f"# Page\n\ntable\n\n{new}"
    assert with_section(page, new) == page
    followed = f"{page}\n## Other\n\ntext\n"
    assert with_section(followed, new).endswith("\n## Other\n\ntext\n")
    assert with_section(followed, new).count("## CPU by function") == 1


def test_the_table_names_a_process_once() -> None:
    """In its first row."""
    lines = markdown({"queue, 50 µs a job": shares(RAW)}).splitlines()
    assert lines[2:4] == [
        "| queue, 50 µs a job | `a/run.py loop` | 90.0% | 0.0% |",
        "|  | `b/core.py decide` | 80.0% | 30.0% |",
    ]


def test_a_function_is_named_by_its_package() -> None:
    """However deep, and wherever the package is; other files by their last folders."""
    raw = (
        "a (/x/services/t/fairlead_t/idle/decide/b.py:3) 3\nc (/usr/lib/python3/asyncio/d/e.py:1) 2\nf (<string>:2) 1\n"
    )
    names = [each.function for each in shares(raw)]
    assert names == ["fairlead_t/idle/decide/b.py a", "asyncio/d/e.py c", "<string> f"]
