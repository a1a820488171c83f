"""tools/check_imports.py on scratch trees: what it must refuse, and what its messages name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def check(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools/check_imports.py"), str(root)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small package that is in order."""
    files = {
        "__init__.py": "from . import core, functional, module\n",
        "core/__init__.py": "import numpy\nfrom . import tensor\n",
        "core/tensor/__init__.py": "",
        "core/tensor/utils.py": "from __future__ import annotations\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from ...tensor import Tensor\n",
        "tensor.py": "from .core import tensor\n",
        "functional/__init__.py": "from ..core.tensor.utils import x\nfrom ..tensor import Tensor\n",
        "module/__init__.py": "from .. import functional as F\nfrom ..utils.naming import name\n",
        "utils/__init__.py": "",
        "utils/naming.py": "",
        "utils/bn_fusion.py": "from ..module import Module\n",
    }
    for name, text in files.items():
        add(tmp_path, name, text)
    return tmp_path


def add(root: Path, name: str, text: str) -> None:
    path = root / "python" / "megengine" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_package_in_order_passes(tree: Path) -> None:
    result = check(tree)
    assert (result.returncode, result.stderr) == (0, "")


def test_this_repository_passes() -> None:
    result = check(ROOT)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("file", "text", "place", "rule"),
    [
        ("core/x.py", "\nfrom ..functional import relu\n", ":2:", "room core may import only nothing above itself"),
        ("core/x.py", "def f():\n    from .. import module\n", ":2:", "import of module: room core"),
        ("core/tensor/x.py", "import megengine.optimizer as o\n", ":1:", "import of optimizer: room core"),
        ("core/x.py", "try:\n    pass\nfinally:\n    from megengine import tensor\n", ":4:", "import of tensor"),
        ("functional/x.py", "from ..module import Module\n", ":1:", "import of module: room functional"),
        ("utils/naming.py", "from ..tensor import Tensor\n", ":1:", "room utils.naming may import only nothing"),
        ("module/x.py", "from ..utils.bn_fusion import fuse\n", ":1:", "room module may import only"),
        ("attic/x.py", "", ":1:", "attic.x is in no room"),
    ],
)
def test_a_forbidden_import_is_named(tree: Path, file: str, text: str, place: str, rule: str) -> None:
    add(tree, file, text)
    if "optimizer" in text:
        add(tree, "optimizer/__init__.py", "")
    result = check(tree)
    assert result.returncode == 1
    assert f"python/megengine/{file}{place}" in result.stderr
    assert rule in result.stderr


def test_what_is_for_the_type_checker_only_is_free(tree: Path) -> None:
    text = (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..module import Module\nelse:\n    import os\n"
    )
    add(tree, "core/x.py", text)
    assert check(tree).returncode == 0
    add(tree, "core/x.py", text.replace("import os", "from ..module import Module"))
    assert "core/x.py:5:" in check(tree).stderr
