#!/bin/sh
# Bring runs from a compute node without a route to a login node that has one, and sync them there; for cron, or a loop.
#
#   login-node.sh RUNS COPY [OPTIONS OF SYNC]
#
# On the login node, RUNS is `node:job/wandb` (over ssh) or a folder on a file system that both see; COPY is a folder here.
# Logs only grow: rsync compares what is here by checksum and sends only what is new. Times are kept, by which a run that fell
# silent is known. Cursors belong to the copy and stay with it. Links that lead out of RUNS stay behind: with --copy-unsafe-links in
# place of --safe-links what they lead to comes along.
set -eu
runs=${1:?folder of runs, or host:folder} copy=${2:?folder for the copy}
shift 2

mkdir -p "$copy"
# Files first, then the logs that name them: what a log speaks of is there.
rsync --archive --safe-links --exclude='*.wandb' --exclude='*.wandb.cursor*' --exclude='*.wandb.lock*' --exclude='*.wandb.synced' \
    "$runs/" "$copy/"
rsync --archive --append-verify --prune-empty-dirs --include='*/' --include='*.wandb' --exclude='*' "$runs/" "$copy/"

exec runferry sync "$copy" "$@"
