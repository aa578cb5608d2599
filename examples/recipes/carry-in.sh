#!/bin/sh
# Take in what carry-out.sh put on a medium: check it, name what has to be brought again, unpack, sync.
#
#   carry-in.sh MEDIUM RUNS [OPTIONS OF SYNC]
#
# Nothing is sent back, so behind a data diode the volumes that are named are asked for by other means. What is whole is unpacked
# and synced in any case. The same command again goes on where it was stopped, and sends nothing twice.
set -eu
medium=${1:?folder on the medium} runs=${2:?folder of runs}
shift 2

code=0
for sums in "$medium"/*.tar.zst.sha256; do
    if [ ! -e "$sums" ]; then
        echo "$medium: no bundle has arrived in full: its list (.tar.zst.sha256) comes last" >&2
        exit 1
    fi
    # Each volume that is missing or damaged, by its name: bring these again.
    (cd "$medium" && LC_ALL=C sha256sum --check --quiet "${sums##*/}") || code=1
    # The folder is for arrivals alone, so what came earlier may be replaced; a log never by a shorter one.
    runferry unpack "$sums" -C "$runs" --overwrite || code=1
done

runferry sync "$runs" "$@" || exit
exit "$code"
