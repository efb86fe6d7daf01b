"""The packages that lie beside cascade_sim/ in a checkout are installed inside it.

So `models`, `agents` and `analysis` are never names that a user's own folders could clash with. All else is
in pyproject.toml, which cannot list packages of several folders by itself.
"""

from setuptools import find_packages, setup

BESIDE = ("agents", "models", "analysis")

packages = find_packages(include=["cascade_sim", "cascade_sim.*"])
for folder in BESIDE:
    packages += [f"cascade_sim.{folder}", *(f"cascade_sim.{folder}.{name}" for name in find_packages(folder))]
packages += ["cascade_sim.scenarios", "cascade_sim.scenarios.data"]

setup(packages=packages, package_dir={f"cascade_sim.{name}": name for name in (*BESIDE, "scenarios")})
