"""`cascade_sim schema`: the JSON schema of scenario files."""

import json

import click

from cascade_sim.foundation.terminal import echo


@click.command()
def command() -> None:
    """Print the JSON schema of scenario files, for editors.

    With the YAML language server: save it as scenario.schema.json and put
    `# yaml-language-server: $schema=scenario.schema.json` on top of a scenario.
    """
    from cascade_sim.scenario.messages import json_schema

    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **json_schema()}
    echo(json.dumps(schema, indent=2))
