"""The GraphQL documents of the protocol, and nothing else."""

from __future__ import annotations

UPSERT_BUCKET = """\
mutation UpsertBucket(
  $id: String, $name: String, $project: String, $entity: String, $groupName: String, $description: String,
  $displayName: String, $notes: String, $commit: String, $config: JSONString, $host: String, $debug: Boolean,
  $program: String, $repo: String, $jobType: String, $state: String, $sweep: String, $tags: [String!],
  $summaryMetrics: JSONString
) {
  upsertBucket(input: {
    id: $id, name: $name, modelName: $project, entityName: $entity, groupName: $groupName, description: $description,
    displayName: $displayName, notes: $notes, commit: $commit, config: $config, host: $host, debug: $debug,
    jobProgram: $program, jobRepo: $repo, jobType: $jobType, state: $state, sweep: $sweep, tags: $tags,
    summaryMetrics: $summaryMetrics
  }) {
    bucket {
      id name displayName description config sweepName
      project { id name entity { id name } }
      historyLineCount
    }
    inserted
  }
}"""

RUN_RESUME_STATUS = """\
query RunResumeStatus($project: String, $entity: String, $name: String!) {
  model(name: $project, entityName: $entity) {
    id name
    entity { id name }
    bucket(name: $name, missingOk: true) {
      id name summaryMetrics displayName logLineCount historyLineCount eventsLineCount historyTail eventsTail
      config tags notes
      wandbConfig(keys: ["t"])
    }
  }
}"""

CREATE_RUN_FILES = """\
mutation CreateRunFiles($entity: String!, $project: String!, $run: String!, $files: [String!]!) {
  createRunFiles(input: {entityName: $entity, projectName: $project, runName: $run, files: $files}) {
    runID
    uploadHeaders
    files { name uploadUrl }
  }
}"""

SERVER_FEATURES = """\
query ServerFeaturesQuery {
  serverInfo { features { name isEnabled } }
}"""
