"""The command `braid` of the wheel: starts the program beside this file with the libraries of this environment's torch."""
import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TORCH = "@TORCH@"  # the version that the program was built with


def folder_of(package):
    """Where a package of this environment lies, without importing it; None where it is not installed."""
    found = importlib.util.find_spec(package)
    return Path(found.submodule_search_locations[0]) if found and found.submodule_search_locations else None


def check_torch():
    """Its folder; another version has other symbols, and the loader's messages about these help nobody."""
    folder, installed = folder_of("torch"), "none"
    try:
        installed = importlib.metadata.version("torch").split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        pass
    if folder is None or installed != TORCH:
        sys.exit(f"braid: error: this braid was built with torch {TORCH}, but the environment of {sys.executable} has {installed}; "
                 f"run: {sys.executable} -m pip install torch=={TORCH}")
    return folder


def main():
    torch, arrow = check_torch(), folder_of("pyarrow")
    environment = {"BRAID_TORCH_DIR": str(torch), "BRAID_PYTHON": sys.executable, **os.environ}
    # The programs look beside their own folder; a torch of another one (of the system, say) must be named.
    elsewhere = [str(folder) for folder in (torch / "lib", arrow) if folder and not folder.is_relative_to(HERE.parent)]
    if elsewhere:
        environment["LD_LIBRARY_PATH"] = ":".join([*elsewhere, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    os.execve(HERE / "braid", [sys.argv[0], *sys.argv[1:]], environment)
