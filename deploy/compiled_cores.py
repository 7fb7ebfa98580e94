"""Build hook of the wheel: compiles the cores to extension modules by mypyc (docs/adr/0021-compiled-cores.md).

The list of modules is `[tool.hatch.build.targets.wheel.hooks.custom]` in pyproject.toml. The hook runs only if
HATCH_BUILD_HOOK_ENABLE_CUSTOM is "true", as `make wheel-compiled` sets it; without it the wheel is plain Python. A compiled
wheel also contains every source: Python imports an extension module before the source beside it, and tracebacks name its lines.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: C files and objects, kept between builds. Not beside the sources: they never import an extension module by accident.
CACHE = ".compiled-cache"
#: C files, below it, as seen from its folder of sources.
GENERATED = "../c"
#: Name of the shared library, `fairlead_cores__mypyc`, that holds the code of all modules.
LIBRARY = "fairlead_cores"
#: Pyright checks the types of the sources strictly; mypy only derives from them what to compile. It is as lenient
#: about variables that change their type as pyright is, and reads other modules without checking them.
MYPY_OPTIONS = ("--python-version=3.12", "--follow-imports=silent", "--allow-redefinition")


class CompiledCores(BuildHookInterface[Any]):
    """Adds the extension modules to the wheel, which is then one of this Python and platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and include the results at the paths of their sources."""
        folders = [Path(self.root, folder) for folder in self.build_config.packages]
        built = _build(Path(self.root, CACHE), folders, self.config["modules"], self.config.get("except", ()))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update({str(file): inner for file, inner in built.items()})


def _build(cache: Path, packages: Iterable[Path], patterns: Iterable[str], left_out: Iterable[str]) -> dict[Path, str]:
    """Compile the modules in a process of its own, since mypy takes names of modules from the working directory.
    Return {file: its path in the wheel}.
    """
    stage, out = cache / "stage", cache / "out"
    for folder in (stage, out):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    for package in packages:
        (stage / package.name).symlink_to(package)
    modules = sorted({path.relative_to(stage) for pattern in patterns for path in stage.glob(pattern)})
    chosen = [str(module) for module in modules if str(module) not in set(left_out)]
    # From the tree's own path, so that each path in a message is that of the wheel.
    subprocess.run([sys.executable, str(Path(__file__).resolve()), *chosen], cwd=stage, check=True)
    return {file: str(file.relative_to(out)) for file in out.rglob("*") if file.is_file()}


def _compile(modules: list[str]) -> None:
    """Compile modules, given by their paths below the working directory, into ../out."""
    # In the compiler's own venv, which the type checker does not see.
    from mypyc.build import mypycify  # pyright: ignore[reportMissingImports]
    from setuptools import Distribution  # pyright: ignore[reportMissingModuleSource]
    from setuptools.command.build_ext import build_ext  # pyright: ignore[reportMissingModuleSource]

    class ParallelBuild(build_ext):
        """Compiles each C file of an extension at the same time as others: there is one large extension. An object that is
        newer than all C files is kept, since mypyc writes only those that change.
        """

        def build_extensions(self) -> None:
            one_by_one = self.compiler.compile
            changed = max(file.stat().st_mtime for file in Path(GENERATED).rglob("*.[ch]"))

            def compile_one(source: str, **options: Any) -> list[str]:
                objects = self.compiler.object_filenames([source], output_dir=options["output_dir"])
                if all(Path(each).exists() and Path(each).stat().st_mtime > changed for each in objects):
                    return objects
                return one_by_one([source], **options)

            def compile_all(sources: list[str], **options: Any) -> list[str]:
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    objects = pool.map(lambda source: compile_one(source, **options), sources)
                    return [each for some in objects for each in some]

            self.compiler.compile = compile_all
            super().build_extensions()

    extensions = mypycify(
        [*MYPY_OPTIONS, *modules],
        opt_level="2",
        debug_level="0",
        multi_file=True,
        group_name=LIBRARY,
        target_dir=GENERATED,
    )
    distribution = Distribution({"name": LIBRARY, "ext_modules": extensions, "cmdclass": {"build_ext": ParallelBuild}})
    command = distribution.get_command_obj("build_ext")
    command.build_lib, command.build_temp = "../out", "../objects"
    command.ensure_finalized()
    command.run()
    print(f"compiled  {len(modules)} modules", flush=True)


if __name__ == "__main__":
    _compile(sys.argv[1:])
