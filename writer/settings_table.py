"""The settings of a run: one table, from which everything that deals with settings is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, NoReturn, TypeVar, overload

from . import settings_values as takes
from .settings_values import Kind

T = TypeVar("T")

ANYWHERE = "taken from anywhere"
NOT_IN_WORKSPACE = "not taken from a workspace's file"
NOT_IN_FILES = "not taken from files"


class Setting(Generic[T]):
    """One setting; read from a `Resolved`, its decided value.

    Attributes:
        name: what it is called in code and files.
        kind: the values it takes.
        default: as somebody would write it; None where there is none to write.
        about: one line for people.
        keys: its names, the strongest first: switches, its own, the peer's.
        switches: other names that, when true, stand for a value of this setting.
        environment: the variables that give it, the strongest first.
        steers: what the run is and where it goes hangs on it: a wrong value ends `init` wherever it stands, where that
            of another setting is named and passed over unless it was given in code.
        scope: where it may stand. What lies beside a training script may have come with somebody else's code, so it
            does not decide what is kept secret, nor where anything goes.
    """

    def __init__(
        self,
        kind: Kind[T],
        default: Any,
        about: str,
        *,
        name: str = "",
        peer: tuple[str, ...] = (),
        also: tuple[str, ...] = (),
        switches: Mapping[str, Any] | None = None,
        scope: str = ANYWHERE,
        steers: bool = False,
    ) -> None:
        self.name, self.kind, self.default, self.about, self.scope = name, kind, default, about, scope
        self.steers = steers
        self.switches: Mapping[str, Any] = switches or {}
        self.peer = (*self.switches, *peer)
        self._also = also

    def __set_name__(self, _owner: type, attribute: str) -> None:
        self.attribute = attribute
        self.name = self.name or attribute
        self.keys = tuple(dict.fromkeys((*self.switches, self.name, *self._also, *self.peer)))
        ours = tuple(f"RUNFERRY_{key.upper()}" for key in self.keys if not key.startswith("x_"))
        self.environment = (*ours, *(f"WANDB_{key.upper()}" for key in self.peer))

    @overload
    def __get__(self, resolved: None, owner: type) -> Setting[T]: ...
    @overload
    def __get__(self, resolved: object, owner: type) -> T: ...
    def __get__(self, resolved: object, owner: type) -> Setting[T] | T:
        # A decided value stands in the instance and hides this method.
        if resolved is None:
            return self
        raise AttributeError(self.attribute)


class Resolved:
    """The settings of one run, decided and checked.

    Attributes:
        given_id: whether somebody chose the run's id.
        warnings: what its user should be told about the settings, a line each.
    """

    given_id: bool
    warnings: tuple[str, ...]

    mode = Setting(
        takes.choice(
            *("offline", "online", "disabled"),
            also={"dryrun": "offline", "run": "online", "shared": "online"},
            remarks={"shared": "treated as online; logs of one run id become one run where they are synced"},
        ),
        "offline",
        "`online` logs here too and starts a sync beside the run; `disabled` writes nothing.",
        peer=("mode",),
        switches={"disabled": "disabled"},
        steers=True,
    )
    root = Setting(
        takes.FOLDER,
        ".",
        "The folder that holds `wandb/`.",
        name="dir",
        peer=("dir", "root_dir"),
        scope=NOT_IN_FILES,
        steers=True,
    )
    project = Setting(takes.PROJECT, "uncategorized", "Where the run belongs.", peer=("project",), steers=True)
    entity = Setting(takes.TEXT, "", "The user or team whose project it is.", peer=("entity",), steers=True)
    name = Setting(takes.TEXT, "", "How the run is shown.", peer=("name", "run_name"))
    notes = Setting(takes.TEXT, "", "Free text about the run.", peer=("notes", "run_notes"))
    tags = Setting(takes.TAGS, (), "Labels to find the run by.", peer=("tags", "run_tags"))
    run_id = Setting(
        takes.RUN_ID,
        None,
        "The run's id; eight random characters unless given.",
        peer=("run_id",),
        also=("id",),
        steers=True,
    )
    group = Setting(takes.TEXT, "", "Runs that are shown together.", peer=("run_group",))
    job_type = Setting(takes.TEXT, "", "What the run does within its group.", peer=("job_type", "run_job_type"))
    sweep_id = Setting(takes.TEXT, "", "The sweep that the run belongs to.", peer=("sweep_id",))
    resume_mode = Setting(
        takes.RESUME,
        False,
        "Whether the run goes on where earlier logs of its id end: `must` wants some, `never` wants none.",
        name="resume",
        peer=("resume",),
        steers=True,
    )
    reinit = Setting(
        takes.REINIT,
        "default",
        "What `init` does with a run that is not finished; `default` returns it, in a notebook it finishes it.",
        peer=("reinit",),
    )
    config_paths = Setting(
        takes.LIST,
        (),
        "JSON (or YAML) files whose values stand in the config below those of `config=`.",
        peer=("config_paths",),
        scope=NOT_IN_WORKSPACE,
    )

    durability = Setting(
        takes.choice("relaxed", "normal", "record", "disk"), "normal", "What a crash may lose; see writing.md."
    )
    strict = Setting(takes.FLAG, False, "Raise for values that cannot be logged instead of leaving them out.")
    ranks = Setting(
        takes.choice("auto", "all"),
        "auto",
        "`auto`: rank 0 logs, local rank 0 of each node samples; `all`: every process is a run.",
    )
    dir_prefix = Setting(
        takes.choice("run", "offline-run"), "run", "How run folders begin; the peer's own sync looks for `offline-run`."
    )
    file_transfer = Setting(
        takes.choice("copy", "link"),
        "copy",
        "How saved files come into the run's folder: copied, or hard-linked where that can be.",
        switches={"allow_media_symlink": "link"},
    )
    copy_limit = Setting(takes.BYTES, "1 GiB", "Larger files are hard-linked where that can be.")
    ignore_globs = Setting(
        takes.LIST, (), "Files that are not kept, by patterns such as `*.ckpt`.", peer=("ignore_globs",)
    )
    sync_watch = Setting(takes.FLAG, True, "Whether a run with mode `online` starts the process that syncs it.")
    base_url = Setting(
        takes.SERVER,
        "",
        "The server that an `online` run is synced to; the sync's own setting unless given.",
        peer=("base_url",),
        scope=NOT_IN_FILES,
    )

    console = Setting(
        takes.choice("off", "wrap", "redirect", also={"auto": "wrap", "wrap_raw": "wrap", "wrap_emu": "wrap"}),
        "off",
        "What of the console is logged: `wrap` what is written to `sys.stdout` and `sys.stderr`, `redirect` all output.",
        peer=("console",),
    )
    silent = Setting(takes.FLAG, False, "Print nothing as the run begins, and only warnings later.", peer=("silent",))
    quiet = Setting(takes.FLAG, False, "Print only warnings.", peer=("quiet",))
    log_guides = Setting(
        takes.FLAG,
        True,
        "Warn once of each documented limit that is passed (sizes of values and calls, numbers of files).",
    )

    redact = Setting(
        takes.REDACT,
        "all",
        "Where secrets are hidden before anything is written: "
        + takes.words(tuple(sorted(takes.REDACTED_PARTS)), "and")
        + ".",
        scope=NOT_IN_WORKSPACE,
    )
    disable_git = Setting(takes.FLAG, False, "No commit and remote of the git repository.", peer=("disable_git",))
    git_diff = Setting(
        takes.FLAG,
        False,
        "Keep what is not committed as `files/diff.patch`: up to 10 MiB, without secrets.",
        scope=NOT_IN_WORKSPACE,
    )
    save_code = Setting(
        takes.FLAG,
        False,
        "Keep the main script.",
        peer=("save_code",),
        switches={"disable_code": False},
        scope=NOT_IN_WORKSPACE,
    )
    disable_meta = Setting(
        takes.FLAG,
        False,
        "No record of the machine and the command.",
        peer=("x_disable_meta",),
        switches={"x_disable_machine_info": True},
    )
    primary = Setting(
        takes.FLAG,
        True,
        "`false` on all but one of several writers of a run: only one records the machine and the command.",
        peer=("x_primary", "x_primary_node"),
    )
    host = Setting(takes.TEXT, "", "The machine's name; its own unless given.", peer=("host",))
    program = Setting(takes.TEXT, "", "The script; found out unless given.", peer=("program",))
    username = Setting(takes.TEXT, "", "The user; found out unless given.", peer=("username",))

    disable_stats = Setting(
        takes.FLAG,
        False,
        "No system metrics.",
        peer=("x_disable_stats",),
        switches={"x_disable_machine_info": True},
    )
    sample_interval = Setting(
        takes.SECONDS, 15.0, "Seconds between samples of system metrics.", peer=("x_stats_sampling_interval",)
    )
    label = Setting(
        takes.TEXT, "", "Appended to the names of system metrics, to keep the nodes of a run apart.", peer=("x_label",)
    )
    disk_paths = Setting(takes.LIST, ("/",), "Paths whose disks are sampled.", peer=("x_stats_disk_paths",))
    gpu_device_ids = Setting(
        takes.LIST,
        (),
        "GPUs that are sampled, by NVML index or UUID, or `visible`; all unless given.",
        peer=("x_stats_gpu_device_ids",),
    )
    stats_pid = Setting(
        takes.COUNT, 0, "The process whose metrics are sampled; the run's own unless given.", peer=("x_stats_pid",)
    )
    process_tree = Setting(
        takes.FLAG, True, "Count child processes as the run's.", peer=("x_stats_track_process_tree",)
    )
    no_cgroup = Setting(
        takes.FLAG, False, "Percentages of the host instead of the container's limits.", peer=("x_stats_no_cgroup",)
    )
    cpu_norm = Setting(
        takes.choice("available", "physical"),
        "available",
        "What 100 % of `cpu` is: the CPUs that the process may use, or the host's physical cores.",
    )
    probes = Setting(takes.LIST, (), "Probes of system metrics that run; all unless given.")
    skip_probes = Setting(takes.LIST, (), "Probes of system metrics that do not run.")
    probe_intervals = Setting(takes.INTERVALS, {}, "How long a probe is left alone at least, in place of its own time.")
    per_core = Setting(takes.FLAG, False, "Also the load of each core.")
    per_interface = Setting(takes.FLAG, False, "Also the traffic of each network interface.")
    extended = Setting(takes.FLAG, False, "Also system metrics beyond the public list; see metrics.md.")
    seed_aliases = Setting(takes.FLAG, True, "Keys that the peer spells otherwise than the public list in both ways.")
    self_metrics = Setting(takes.FLAG, True, "What each probe costs and how it fares, as `sampler.*`.")
    self_usage = Setting(
        takes.FLAG, False, "What the sampler's own processes use, as `sampler.*`.", peer=("x_stats_self_usage",)
    )
    key_cap = Setting(takes.NUMBER, 2000, "System metrics of a run; further ones are left out with one warning.")
    stats_buffer_size = Setting(
        takes.SAMPLES,
        0,
        "Values of each system metric that are kept in memory as `run._system_metrics`.",
        peer=("x_stats_buffer_size",),
    )
    neuron_monitor_config_path = Setting(
        takes.TEXT,
        "",
        "Configuration for `neuron-monitor`; made for the interval unless given.",
        peer=("x_stats_neuron_monitor_config_path",),
        scope=NOT_IN_WORKSPACE,
    )
    open_metrics_endpoints = Setting(
        takes.ENDPOINTS,
        {},
        "OpenMetrics or Prometheus endpoints that are sampled.",
        peer=("x_stats_open_metrics_endpoints",),
        scope=NOT_IN_WORKSPACE,
    )
    open_metrics_filters = Setting(
        takes.FILTERS,
        (),
        "Which of their metrics are kept, by patterns that are searched in `endpoint.metric`; all unless given.",
        peer=("x_stats_open_metrics_filters",),
    )
    open_metrics_http_headers = Setting(
        takes.HEADERS,
        {},
        "Headers of the requests: of all, or by the endpoint's name of its own.",
        peer=("x_stats_open_metrics_http_headers",),
        scope=NOT_IN_WORKSPACE,
    )
    dcgm_exporter = Setting(
        takes.ADDRESS,
        "",
        "DCGM's metrics: a query to a Prometheus server, or the exporter itself.",
        peer=("x_stats_dcgm_exporter",),
        scope=NOT_IN_WORKSPACE,
    )
    dcgm_profiling = Setting(
        takes.FLAG, False, "Read profiling counters from the DCGM daemon.", peer=("enable_dcgm_profiling",)
    )
    powermetrics = Setting(takes.FLAG, False, "Ask Apple's `powermetrics` where IOReport is missing; it needs root.")
    coreweave_metadata_base_url = Setting(
        takes.ADDRESS,
        "http://169.254.169.254",
        "The server that names a CoreWeave cluster, asked only in one.",
        peer=("x_stats_coreweave_metadata_base_url",),
        scope=NOT_IN_WORKSPACE,
    )
    coreweave_metadata_endpoint = Setting(
        takes.TEXT,
        "/api/v2/cloud-init/meta-data",
        "The path on it.",
        peer=("x_stats_coreweave_metadata_endpoint",),
        scope=NOT_IN_WORKSPACE,
    )
    cpu_count = Setting(takes.COUNT, 0, "Physical cores in the record of the machine.", peer=("x_stats_cpu_count",))
    cpu_logical_count = Setting(
        takes.COUNT, 0, "Logical cores in the record of the machine.", peer=("x_stats_cpu_logical_count",)
    )
    gpu_count = Setting(takes.COUNT, 0, "GPUs in the record of the machine.", peer=("x_stats_gpu_count",))
    gpu_type = Setting(
        takes.TEXT, "", "The GPUs' name in the record of the machine; found unless given.", peer=("x_stats_gpu_type",)
    )

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)

    @property
    def continues(self) -> bool:
        """Whether this log continues others of its run."""
        return self.resume_mode in {"allow", "must", "auto"}

    @property
    def talks(self) -> bool:
        """Whether news are printed that are no warnings."""
        return not (self.silent or self.quiet)

    def _replace(self, **changes: Any) -> Resolved:
        """The same with other values for some attributes, as of a named tuple."""
        return Resolved({**self.__dict__, **changes})

    def __getattr__(self, name: str) -> Any:
        """What a script asks for by another of a setting's names: `run.settings.run_name`."""
        setting = BY_KEY.get(key_of(name))
        if setting is None or name in setting.switches or setting.attribute not in self.__dict__:
            raise AttributeError(f"{name} is no setting")
        return self.__dict__[setting.attribute]

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{name} was decided")

    def __repr__(self) -> str:
        return shown("Resolved", self.__dict__)


def key_of(name: str) -> str:
    """The key of a setting's name: the peer's older names of internal settings begin with a line."""
    return f"x{name}" if name.startswith("_") else name


def shown(name: str, values: Mapping[str, Any]) -> str:
    """What `repr` says of settings: they may hold a secret, such as a key in `notes`."""
    from ..sampler.redact import redact_text

    texts = {key: "..." if _is_secret(key) and value else repr(value) for key, value in values.items()}
    return redact_text(f"{name}({', '.join(f'{key}={text}' for key, text in texts.items())})").text


def _is_secret(name: str) -> bool:
    setting = BY_KEY.get(key_of(name))
    return setting is not None and setting.kind.secret


SETTINGS: tuple[Setting[Any], ...] = tuple(item for item in vars(Resolved).values() if isinstance(item, Setting))
"""Every setting, in the order of the documentation."""

BY_KEY: dict[str, Setting[Any]] = {}
"""The setting of each name; of a switch, one of its settings."""
for _setting in SETTINGS:
    for _key in _setting.keys:
        BY_KEY.setdefault(_key, _setting)

UNSUPPORTED = {
    "fork_from": "a run is not forked here: it begins anew",
    "api_key": "a sync takes the key from RUNFERRY_API_KEY, WANDB_API_KEY or netrc",
    "resume_from": "a run is not rewound here: `resume` goes on at its end",
    "sync_tensorboard": "what is written for TensorBoard is not read here: log it to the run too",
    "tensorboard": "what is written for TensorBoard is not read here: log it to the run too",
    "code_dir": "`run.log_code(root)` keeps the code of a folder",
    "monitor_gym": "recorded films are not looked for here: log each as a `Video`",
}
"""Settings of the peer whose absence somebody could miss, and what is done instead."""

OWN_VARIABLES = frozenset(
    {
        "API_KEY",
        "API_KEY_FILE",
        "CONFIG_DIR",
        "HTTP_TIMEOUT",
        "IDENTITY_TOKEN_FILE",
        "LOCAL_RANK",
        "RANK",
        "SERVE_API_KEYS",
        "STATE_DIR",
        "USER_EMAIL",
        "X_EXTRA_HTTP_HEADERS",
    }
)
"""What stands behind `RUNFERRY_` in variables that are no settings of a run."""

WITHOUT_EFFECT = frozenset(
    {"start_method", "allow_val_change", "anonymous", "force", "init_timeout", "x_service_wait", "disable_job_creation"}
)
"""Settings of the peer that many scripts give and nobody misses: nothing is said about them."""
