"""The messages of a log, as a table of names and numbers.

One line per field: number, name, type; `*` after the type marks a repeated field, `?` one with explicit presence,
`map:X` a map from string to X, `in X` a member of the oneof X; `json=X` the name in metadata files where it is not the
camelCase of the field's. Enumerations stand as int32, which is the same on the wire; their values are beside them. A
message whose fields are only switches (telemetry's imports and features) stands as bytes: its set numbers are read by
`wire.set_flags`, so that a switch nobody has heard of survives.

Field numbers: measured on files of wandb 0.12 to 0.31.
"""

from __future__ import annotations

SCHEMA = """
message Record
    1 num int64
    16 control Control
    19 uuid string
    200 _info RecordInfo
    2 history HistoryRecord in record_type
    3 summary SummaryRecord in record_type
    4 output OutputRecord in record_type
    5 config ConfigRecord in record_type
    6 files FilesRecord in record_type
    7 stats StatsRecord in record_type
    8 artifact ArtifactRecord in record_type
    9 tbrecord TBRecord in record_type
    10 alert AlertRecord in record_type
    11 telemetry TelemetryRecord in record_type
    12 metric MetricRecord in record_type
    13 output_raw OutputRecord in record_type
    17 run RunRecord in record_type
    18 exit RunExitRecord in record_type
    20 final Empty in record_type
    21 header HeaderRecord in record_type
    22 footer Empty in record_type
    23 preempting Empty in record_type
    24 noop_link_artifact Empty in record_type
    25 use_artifact UseArtifactRecord in record_type
    26 environment EnvironmentRecord in record_type
    27 output_logger OutputLoggerRecord in record_type
    100 request bytes in record_type

message Empty

message RecordInfo
    1 stream_id string

message Control
    1 req_resp bool
    2 local bool
    3 relay_id string
    4 mailbox_slot string

message Timestamp
    1 seconds int64
    2 nanos int32

message HeaderRecord
    1 version_info VersionInfo

message VersionInfo
    1 producer string
    2 min_consumer string

message RunRecord
    1 run_id string
    2 entity string
    3 project string
    4 config ConfigRecord
    5 summary SummaryRecord
    6 run_group string
    7 job_type string
    8 display_name string
    9 notes string
    10 tags string*
    12 sweep_id string
    13 host string
    14 starting_step int64
    16 storage_id string
    17 start_time Timestamp
    18 resumed bool
    19 telemetry TelemetryRecord
    20 runtime int32
    21 git GitRepoRecord
    22 forked bool
    23 branch_point BranchPoint
    24 resume bool

message GitRepoRecord
    1 remote_url string
    2 commit string

message BranchPoint
    1 run string
    2 value double
    3 metric string

message RunExitRecord
    1 exit_code int32
    2 runtime int32
    3 not_complete bool

message HistoryRecord
    1 item HistoryItem*
    2 step HistoryStep

message HistoryStep
    1 num int64

# value: none is always 0; json holds JSON text. A reader that knows the oneof prefers it to value_json.
message HistoryItem
    1 key string
    2 nested_key string*
    3 none int32 in value
    4 boolean bool in value
    5 integer sint64 in value
    6 number double in value
    7 text string in value
    8 json string in value
    16 value_json string

message SummaryRecord
    1 update Item*
    2 remove Item*

message ConfigRecord
    1 update Item*
    2 remove Item*

message Item
    1 key string
    2 nested_key string*
    16 value_json string

# output_type: 0 stderr, 1 stdout
message OutputRecord
    1 output_type int32
    2 timestamp Timestamp
    3 line string

message OutputLoggerRecord
    1 line string

message FilesRecord
    1 files FilesItem*

# policy: 0 now, 1 end, 2 live; type: 0 other, 1 wandb, 2 media, 3 artifact
message FilesItem
    1 path string
    2 policy int32
    3 type int32

message StatsRecord
    1 stats_type int32
    2 timestamp Timestamp
    3 item StatsItem*

message StatsItem
    1 key string
    16 value_json string

message AlertRecord
    1 title string
    2 text string
    3 level string
    4 wait_duration int64

message MetricRecord
    1 name string
    2 glob_name string
    4 step_metric string
    5 step_metric_index int32
    6 options MetricOptions
    7 summary MetricSummary
    8 goal int32
    9 _control MetricControl
    10 expanded_from_glob bool

message MetricOptions
    1 step_sync bool
    2 hidden bool
    3 defined bool

message MetricSummary
    1 min bool
    2 max bool
    3 mean bool
    4 best bool
    5 last bool
    6 none bool
    7 copy bool
    8 first bool

message MetricControl
    1 overwrite bool

message TelemetryRecord
    1 imports_init bytes
    2 imports_finish bytes
    3 feature bytes
    4 python_version string
    5 cli_version string
    6 huggingface_version string
    8 env bytes
    9 label TelemetryLabel
    10 deprecated bytes
    11 issues bytes
    12 core_version string
    13 platform string

message TelemetryLabel
    1 code_string string
    2 repo_string string
    3 code_version string

message TBRecord
    1 log_dir string
    2 save bool
    3 root_dir string
    4 namespace string?
    5 save_path string
    6 ignore_timestamp bool
    7 ignore_hostname bool

message UseArtifactRecord
    1 id string
    2 type string
    3 name string

message ArtifactRecord
    1 run_id string
    2 project string
    3 entity string
    4 type string
    5 name string
    6 digest string
    7 description string
    8 metadata string
    9 user_created bool
    10 use_after_commit bool
    11 aliases string*
    12 manifest ArtifactManifest
    13 distributed_id string
    14 finalize bool
    15 client_id string
    16 sequence_client_id string
    17 base_id string
    18 ttl_duration_seconds int64
    19 tags string*
    20 digest_algorithm string
    100 incremental_beta1 bool

message ArtifactManifest
    1 version int32
    2 storage_policy string
    3 storage_policy_config ManifestItem*
    4 contents ArtifactManifestEntry*
    5 manifest_file_path string

message ArtifactManifestEntry
    1 path string
    2 digest string
    3 ref string
    4 size int64
    5 mimetype string
    6 local_path string
    7 birth_artifact_id string
    8 skip_cache bool
    16 extra ManifestItem*

# Unlike every other item, the JSON text is field 2 here.
message ManifestItem
    1 key string
    2 value_json string

message EnvironmentRecord
    1 os string
    2 python string
    3 started_at Timestamp
    4 docker string
    5 args string*
    6 program string
    7 code_path string
    8 code_path_local string
    9 git EnvironmentGit
    10 email string
    11 root string
    12 host string
    13 username string
    14 executable string
    15 colab string
    16 cpu_count uint32 json=cpu_count
    17 cpu_count_logical uint32 json=cpu_count_logical
    18 gpu_type string json=gpu
    19 gpu_count uint32 json=gpu_count
    20 disk map:DiskInfo
    21 memory MemoryInfo
    22 cpu CpuInfo
    23 apple AppleInfo
    24 gpu_nvidia GpuNvidiaInfo* json=gpu_nvidia
    25 cuda_version string
    26 gpu_amd GpuAmdInfo* json=gpu_amd
    27 slurm map:string
    28 trainium TrainiumInfo
    29 tpu TpuInfo
    30 coreweave CoreWeaveInfo
    199 writer_id string

message EnvironmentGit
    1 remote_url string json=remote
    2 commit string

message DiskInfo
    1 total uint64
    2 used uint64

message MemoryInfo
    1 total uint64

message CpuInfo
    1 count uint32
    2 count_logical uint32
    3 model string

message AppleInfo
    1 name string
    2 ecpu_cores uint32
    3 pcpu_cores uint32
    4 gpu_cores uint32
    5 memory_gb uint32
    6 swap_total_bytes uint64
    7 ram_total_bytes uint64
    8 mac_model string

message GpuNvidiaInfo
    1 name string
    2 memory_total uint64
    3 cuda_cores uint32
    4 architecture string
    5 uuid string
    6 pci_bus_id string
    7 numa_node uint32?

message GpuAmdInfo
    1 id string
    2 unique_id string
    3 vbios_version string
    4 performance_level string
    5 gpu_overdrive string
    6 gpu_memory_overdrive string
    7 max_power string
    8 series string
    9 model string
    10 vendor string
    11 sku string
    12 sclk_range string
    13 mclk_range string

message TrainiumInfo
    1 name string
    2 vendor string
    3 neuron_device_count uint32
    4 neuroncore_per_device_count uint32

message TpuInfo
    1 name string
    2 hbm_gib uint32
    3 devices_per_chip uint32
    4 count uint32

message CoreWeaveInfo
    1 cluster_name string
    2 org_id string
    3 region string
"""


def _record_kinds() -> dict[int, str]:
    envelope = SCHEMA.partition("message Record\n")[2].partition("\n\n")[0]
    rows = (line.split() for line in envelope.splitlines())
    return {int(row[0]): row[1] for row in rows if row[-2:] == ["in", "record_type"]}


KINDS = _record_kinds()
"""Field number in the envelope -> name of the record type."""
