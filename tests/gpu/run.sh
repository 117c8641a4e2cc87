#!/usr/bin/env bash
# Runs the GPU tests and figures of the folder that this script lies in, and leaves one folder of
# results: run.sh [RESULTS-FOLDER]. Needs a driver (CUDA 12 or newer) and one GPU or more. Each part
# runs even where one before it failed; summary.txt says how each went.
set -uo pipefail

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
results=${1:-$here/results}
mkdir -p "$results"
summary=$results/summary.txt
: >"$summary"

# part NAME SECONDS COMMAND... : its output goes to NAME.txt.
part() {
  local name=$1 seconds=$2 status=0 start=$SECONDS
  shift 2
  timeout -k 5 "$seconds" "$@" >"$results/$name.txt" 2>&1 || status=$?
  printf '%-24s exit %3d, %3d s\n' "$name" "$status" "$((SECONDS - start))" | tee -a "$summary"
}

{
  date -u +%FT%TZ
  uname -r
  lscpu | grep -E '^(Model name|CPU\(s\)|NUMA node)'
} >"$results/machine.txt" 2>&1
part nvidia-smi 30 nvidia-smi
part nvlink-topology 30 nvidia-smi topo -m
part copy_test 240 "$here/gpu_copy_test"
part relay_test 240 "$here/gpu_relay_test"
part copy_bench 120 "$here/gpu_copy_bench"
part relay_bench 240 "$here/gpu_relay_bench"
if command -v compute-sanitizer >/dev/null; then
  # The other process is a program of its own: it is not looked into.
  for tool in memcheck racecheck; do
    part "sanitizer_$tool" 200 compute-sanitizer --tool "$tool" --error-exitcode 3 \
      "$here/gpu_copy_test" '--gtest_filter=*EveryByte*gather*'
  done
else
  echo "compute-sanitizer is not on this machine: not run" | tee -a "$summary"
fi
! grep -qv 'exit   0' <(grep exit "$summary")
