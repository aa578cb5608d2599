#!/bin/sh
# Put runs on a medium that is carried to a machine with a network: a USB disk, or the inbox of a data diode.
#
#   carry-out.sh RUNS MEDIUM [NAME]
#
# RUNS is a folder of runs, MEDIUM a folder on the medium. Volumes are small enough for FAT32; SIZE says another size. Stopped,
# or with a medium that was full, the same command goes on. Again later it puts the state of then in place of that of now; an
# own NAME keeps both.
set -eu
runs=${1:?folder of runs} medium=${2:?folder on the medium} name=${3:-runs}

code=0
runferry pack "$runs" -o "$medium/$name.tar.zst" --split "${SIZE:-3900MB}" --overwrite || code=$?
[ "$code" -le 1 ] || exit "$code" # 1: something is not in it, and was named; the rest is good

sync # to the medium, before it is read back
runferry unpack "$medium/$name.tar.zst.sha256" --verify
exit "$code"
