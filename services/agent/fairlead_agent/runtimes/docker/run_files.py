"""What stands in a run's directory beside its output: a mark while it waits for its image, notes to who follows it, and the files
that its container is given."""

from pathlib import Path

from fairlead_agent.launch import Launch
from fairlead_agent.runtimes.docker import template
from fairlead_agent.runtimes.docker.inside import CHECKPOINT, make_word
from fairlead_agent.runtimes.docker.template import Bind
from fairlead_agent.runtimes.notes import clear, write_note

#: While it waits for its image: nothing of it was created yet.
PULLING = "pulling"


class Notes:
    """What the agent itself says to who follows a run that has not started: lines at the head of its stderr."""

    def __init__(self, directory: Path, stderr: Path) -> None:
        self._directory = directory
        self._stderr = stderr
        self.said = False

    def say(self, words: str) -> None:
        """One line; the first makes the run's directory, marked as one of which nothing was created yet, and ends what an
        earlier process of the agent has said there."""
        if not self.said:
            make_directory(self._directory)
            (self._directory / PULLING).touch()
            clear(self._stderr)
            self.said = True
        write_note(self._stderr, words)


def own_files(launch: Launch, directory: Path) -> list[Bind]:
    """What the run finds of its own directory."""
    files: list[Bind] = []
    if launch.hostfile:
        hostfile = directory / "hostfile"
        hostfile.write_text(launch.hostfile)
        files.append(Bind(str(hostfile), template.HOSTFILE, read_only=True))
    if launch.order.checkpoint is not None:
        word = make_word(directory / CHECKPOINT)
        files.append(Bind(word, template.CHECKPOINT_FILE, read_only=False))
    if launch.box:
        files.append(Bind(launch.box, launch.box_inside, read_only=True))
    return files


def make_directory(directory: Path) -> None:
    """The run's directory, new; or that of the same run which an earlier process of the agent had waiting."""
    directory.mkdir(mode=0o750, exist_ok=(directory / PULLING).exists())
