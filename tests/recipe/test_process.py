"""What only a process of its own can show: its exit code, its stdout, and what it imported."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PLAN = """
import json, sys
from pathlib import Path
from miles_core.errors import MilesError
from miles_core.recipe.plan import load_plan
from miles_core.recipe.render import plan_to_json
try:
    print(json.dumps(plan_to_json(load_plan(Path("recipe.yaml"))[0])))
except MilesError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


def run(kitchen: Any, code: str = PLAN) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(kitchen.site.folder)}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=kitchen.folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "source", ["import sys; sys.exit(0)", "import os; raise SystemExit(0)", "class B(BaseException): pass\nraise B"]
)
def test_a_plugin_that_ends_the_process_does_not_end_it(kitchen: Any, source: str) -> None:
    kitchen.site.plugin("bad", source, "0.3.1")
    kitchen.write(kitchen.changed(plugins="[toy, lab, bad]"))
    done = run(kitchen)
    assert done.returncode == 3 and done.stdout == ""
    assert "plugin bad (miles-plugin-bad 0.3.1) failed to load" in done.stderr and "Traceback" not in done.stderr


def test_stdout_is_json_only_although_plugins_print(kitchen: Any) -> None:
    import json

    kitchen.site.plugin("noisy", "print('noise')\nfrom miles_core import hookimpl\n@hookimpl\ndef miles_rewards():\n"
                                 "    print('more'); return []\n")  # fmt: skip
    kitchen.write(kitchen.changed(plugins="[toy, lab, noisy]"))
    done = run(kitchen)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["name"] == "recipe"
    assert "noise" in done.stderr and "more" in done.stderr


def test_planning_imports_no_backend_and_no_plugin_that_is_not_enabled(kitchen: Any) -> None:
    kitchen.site.plugin("torchy", "import torch", provides=["engine.torchy"])
    kitchen.write()
    done = run(
        kitchen,
        PLAN + "\nbad = {'torch', 'ray', 'transformers', 'miles_plugin_torchy'} & set(sys.modules)\nsys.exit(len(bad))",
    )
    assert done.returncode == 0, done.stderr


def test_the_schema_of_every_installed_plugin_imports_no_backend(kitchen: Any) -> None:
    code = (
        "import sys; from miles_core.recipe.json_schema import recipe_schema; recipe_schema(None)\n"
        "sys.exit(len({'torch', 'ray', 'transformers'} & set(sys.modules)))"
    )
    assert run(kitchen, code).returncode == 0


def test_a_wheel_on_the_path_is_enabled_and_loaded(kitchen: Any, tmp_path: Path) -> None:
    import zipfile

    from miles_core.testing.installing import SitePackages

    built = SitePackages(tmp_path / "built")
    built.plugin(
        "zipped",
        "from miles_core import Component, hookimpl\n@hookimpl\ndef miles_rewards():\n"
        "    return [Component('zipped', 'miles_plugin_zipped:Any')]\nAny = None\n",
    )
    wheel = kitchen.site.folder / "miles_plugin_zipped-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in built.folder.rglob("*"):
            archive.write(file, file.relative_to(built.folder))
    kitchen.write(kitchen.changed(plugins="[toy, lab, zipped]", rewards="[{use: zipped}]"))
    done = run(kitchen, f"import sys; sys.path.append({str(wheel)!r})\n" + PLAN)
    assert done.returncode == 0, done.stderr
