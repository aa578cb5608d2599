"""`runferry serve`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ..backend import DOCUMENTED, STYLES, UNLIMITED, Rates, ServeSettings


def default_data_dir() -> Path:
    """Where the data lies when nothing is said: the user's data folder."""
    try:
        base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    except RuntimeError:
        raise click.ClickException("this user has no home directory: set HOME, or give --data-dir") from None
    return Path(base) / "runferry" / "serve"


@click.command()
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where everything is kept. [default: ~/.local/share/runferry/serve]",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; another one than loopback lets other machines in.",
)
@click.option("--port", default=8765, show_default=True, type=click.IntRange(0, 65535), help="0: a free one.")
@click.option("--entity", default="local", show_default=True, help="Entity of runs that name none.")
@click.option("--api-key-file", type=click.Path(dir_okay=False, path_type=Path), help="API keys, one per line.")
@click.option("--no-auth", is_flag=True, help="Ask for no API key; on loopback only.")
@click.option("--no-gzip", is_flag=True, help="Neither offer nor take compressed requests.")
@click.option("--structured-console", is_flag=True, help="Offer clients to send console lines as JSON.")
@click.option("--limit", type=click.IntRange(1), help="Requests per window and project; more are answered 429.")
@click.option("--window", default=60.0, show_default=True, help="Seconds of that window.")
@click.option(
    "--limits",
    type=click.Choice(["none", "documented"]),
    default="none",
    show_default=True,
    help="documented: the rates that W&B documents: 500 stream requests, 120 MB, 80 new runs per second and project, "
    "2 stream requests per second and run. The options below change one each.",
)
@click.option("--limit-requests", type=click.IntRange(1), help="Stream requests per second and project.")
@click.option("--limit-bytes", type=click.IntRange(1), help="Bytes of stream requests per second and project.")
@click.option("--limit-run-requests", type=click.IntRange(1), help="Stream requests per second and run.")
@click.option("--limit-new-runs", type=click.IntRange(1), help="New runs per second and project.")
@click.option(
    "--limit-headers",
    type=click.Choice(STYLES),
    default="fields",
    show_default=True,
    help="How clients are told: RateLimit-Limit, -Remaining and -Reset; the reset alone; Retry-After on 429; the "
    "structured RateLimit and RateLimit-Policy; nothing.",
)
@click.option(
    "--crash-after", default=300.0, show_default=True, help="Seconds of silence after which a run counts as crashed."
)
@click.option("--refuse-deleted", is_flag=True, help="Answer 409 where a client makes a run again that was deleted.")
@click.option(
    "--faults",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Fault script (JSON) for testing clients; read again when it changes.",
)
@click.option(
    "--request-log",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append one JSON line per request to this file.",
)
@click.option("--json", "json_output", is_flag=True, help="Print one JSON line with the address.")
def command(  # noqa: PLR0917 - click passes by name
    data_dir: Path | None,
    host: str,
    port: int,
    entity: str,
    api_key_file: Path | None,
    no_auth: bool,
    no_gzip: bool,
    structured_console: bool,
    limit: int | None,
    window: float,
    limits: str,
    limit_requests: int | None,
    limit_bytes: int | None,
    limit_run_requests: int | None,
    limit_new_runs: int | None,
    limit_headers: str,
    crash_after: float,
    refuse_deleted: bool,
    faults: Path | None,
    request_log: Path | None,
    json_output: bool,
) -> None:
    """Serve the embedded backend: the W&B protocol and a page, on one SQLite file.

    Point a client at the printed address: runferry sync, or wandb with WANDB_BASE_URL and WANDB_API_KEY. The page at the
    same address shows the runs. What was acknowledged survives a kill.

    API keys come from --api-key-file, else from RUNFERRY_SERVE_API_KEYS (separated by commas), else one is made at the
    first start and kept in the data folder.
    """
    base = DOCUMENTED if limits == "documented" else UNLIMITED
    try:
        settings = ServeSettings(
            data_dir=data_dir or default_data_dir(),
            host=host,
            port=port,
            entity=entity,
            auth=not no_auth,
            api_key_file=api_key_file,
            gzip=not no_gzip,
            structured_console=structured_console,
            limit=limit,
            window_s=window,
            rates=Rates(
                requests=limit_requests or base.requests,
                size=limit_bytes or base.size,
                run_requests=limit_run_requests or base.run_requests,
                run_creations=limit_new_runs or base.run_creations,
            ),
            limit_headers=limit_headers,
            crash_after_s=crash_after,
            refuse_deleted=refuse_deleted,
            faults=faults,
            request_log=request_log,
        )
        from ..backend import serve

        serve(settings, json_output=json_output)
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"the embedded backend needs {error.name}, which is not installed: pip install starlette uvicorn"
        ) from None
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from None
