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

REWIND_RUN = """\
mutation RewindRun(
  $runName: String!, $entity: String, $project: String, $metricName: String!, $metricValue: Float!
) {
  rewindRun(input: {
    runName: $runName, entityName: $entity, projectName: $project, metricName: $metricName, metricValue: $metricValue
  }) {
    rewoundRun {
      id name displayName description config sweepName
      project { id name entity { id name } }
      historyLineCount
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

NOTIFY_ALERT = """\
mutation NotifyScriptableRunAlert(
  $entityName: String!, $projectName: String!, $runName: String!, $title: String!, $text: String!,
  $severity: AlertSeverity = INFO, $waitDuration: Duration
) {
  notifyScriptableRunAlert(input: {
    entityName: $entityName, projectName: $projectName, runName: $runName, title: $title, text: $text,
    severity: $severity, waitDuration: $waitDuration
  }) { success }
}"""

CREATE_ARTIFACT = """\
mutation CreateArtifact($input: CreateArtifactInput!) {
  createArtifact(input: $input) {
    artifact { id state artifactSequence { latestArtifact { id } } }
  }
}"""

CREATE_ARTIFACT_MANIFEST = """\
mutation CreateArtifactManifest(
  $artifactID: ID!, $baseArtifactID: ID, $name: String!, $digest: String!, $entityName: String!, $projectName: String!,
  $runName: String!, $manifestType: ArtifactManifestType!, $includeUpload: Boolean!
) {
  createArtifactManifest(input: {
    artifactID: $artifactID, baseArtifactID: $baseArtifactID, name: $name, digest: $digest, entityName: $entityName,
    projectName: $projectName, runName: $runName, type: $manifestType
  }) {
    artifactManifest {
      id
      file { id uploadUrl @include(if: $includeUpload) uploadHeaders @include(if: $includeUpload) }
    }
  }
}"""

UPDATE_ARTIFACT_MANIFEST = """\
mutation UpdateArtifactManifest(
  $artifactManifestID: ID!, $digest: String, $baseArtifactID: ID, $includeUpload: Boolean!
) {
  updateArtifactManifest(input: {
    artifactManifestID: $artifactManifestID, digest: $digest, baseArtifactID: $baseArtifactID
  }) {
    artifactManifest {
      id
      file { id uploadUrl @include(if: $includeUpload) uploadHeaders @include(if: $includeUpload) }
    }
  }
}"""

CREATE_ARTIFACT_FILES = """\
mutation CreateArtifactFiles($input: CreateArtifactFilesInput!) {
  createArtifactFiles(input: $input) {
    files { edges { node {
      storagePath uploadUrl uploadHeaders
      uploadMultipartUrls { uploadID uploadUrlParts { partNumber uploadUrl } }
      artifact { id }
    } } }
  }
}"""

COMPLETE_MULTIPART_UPLOAD = """\
mutation CompleteMultipartUploadArtifact(
  $completeMultipartAction: CompleteMultipartAction!, $completedParts: [UploadPartsInput!]!, $artifactID: ID!,
  $storagePath: String!, $uploadID: String!
) {
  completeMultipartUploadArtifact(input: {
    completeMultipartAction: $completeMultipartAction, completedParts: $completedParts, artifactID: $artifactID,
    storagePath: $storagePath, uploadID: $uploadID
  }) { digest }
}"""

CLIENT_ID_MAPPING = """\
query ClientIDMapping($clientID: ID!) {
  clientIDMapping(clientID: $clientID) { serverID }
}"""

COMMIT_ARTIFACT = """\
mutation CommitArtifact($artifactID: ID!) {
  commitArtifact(input: {artifactID: $artifactID}) { artifact { id digest } }
}"""

USE_ARTIFACT = """\
mutation UseArtifact($input: UseArtifactInput!) {
  useArtifact(input: $input) { artifact { id } }
}"""
