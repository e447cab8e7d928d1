"""Builds the conda package with the system's dependencies, tests it and installs it:

    build.py RECIPE CHANNEL PREFIX

CHANNEL is the folder that gets the package. Also renders the recipe for conda-forge, whose packages
it does not fetch. Needs py-rattler-build and py-rattler.
"""

import asyncio
import sys
from pathlib import Path

import rattler
import rattler_build

recipe_file, channel, prefix = (Path(argument).absolute() for argument in sys.argv[1:])
recipe = rattler_build.Stage0Recipe.from_file(recipe_file)
for variant in recipe.render():
    print("rendered for conda-forge:", variant.recipe.package.name, variant.recipe.requirements.host)

variants = recipe.render(rattler_build.VariantConfig({"system_dependencies": ["true"]}))
assert len(variants) == 1, variants
result = variants[0].run_build(
    tool_config=rattler_build.ToolConfiguration(test_strategy="native"),
    output_dir=channel, channels=[channel.as_uri()],
    env_isolation=rattler_build.EnvironmentIsolation.NONE)
print("built:", *result.packages)


async def install() -> None:
    records = await rattler.solve([channel.as_uri()], ["libweightmap"],
                                  platforms=["linux-64", "noarch"])
    await rattler.install(records, prefix)


asyncio.run(install())
