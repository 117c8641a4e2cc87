#!/usr/bin/env bash
# Runs the GPU tests and figures of the folder that this script lies in, and leaves one folder of
# results. Needs a driver (CUDA 12 or newer) and one GPU or more.
#
#   run.sh [--results FOLDER] [PHASE...]      no PHASE: all of them, in this order
#
#   machine      what this machine is                             seconds
#   tests        gpu_copy_test, gpu_tcp_test, gpu_relay_test      2 minutes
#   demo         railhop demo, target memory on GPUs and host     1 to 2 minutes
#   copy-bench   what a piece costs by each way                   1 to 2 minutes
#   relay-bench  relayed beside direct                            3 to 4 minutes
#   small        relayed 64 KiB, 4 to 32 at a time, by each way   2 minutes; only when asked for
#   gemm-bench   what gathering takes from the host's kernels     10 seconds
#   leak         GPU memory after 100 restarts                    1 to 3 minutes
#   sanitizers   compute-sanitizer over these tests               4 to 10 minutes
#
# Figures are JSON lines in NAME.jsonl, written as they come; what else a part says is in NAME.txt.
# Each part runs even where one before it failed; summary.txt says how each went, of all calls that
# had the same folder.
set -uo pipefail

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
results=$here/results
all=(machine tests demo copy-bench relay-bench gemm-bench leak sanitizers)
bad_usage() {
  echo "run.sh: $* (--help shows what there is)" >&2
  exit 2
}
case ${1:-} in
  -h | --help)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
    exit
    ;;
  --results)
    [[ -n ${2:-} ]] || bad_usage "--results takes a folder"
    results=$2
    shift 2
    ;;
esac
for phase in "$@"; do
  [[ " ${all[*]} small " == *" $phase "* ]] || bad_usage "no phase '$phase'"
done
phases=("$@")
((${#phases[@]})) || phases=("${all[@]}")
mkdir -p "$results" || exit 2
failed=""

# part NAME FILE SECONDS COMMAND... : within so many seconds; standard output goes to FILE.
part() {
  local name=$1 file=$results/$2 seconds=$3 status=0 start=$SECONDS
  shift 3
  rm -f "$file" "$results/$name.txt"
  timeout -k 5 "$seconds" "$@" >>"$file" 2>>"$results/$name.txt" || status=$?
  ((status == 0)) || failed=yes
  printf '%-24s exit %3d, %3d s\n' "$name" "$status" "$((SECONDS - start))" |
    tee -a "$results/summary.txt"
}
words() { part "$1" "$1.txt" "${@:2}"; }
figures() { part "$1" "$1.jsonl" "${@:2}"; }

machine() {
  {
    date -u +%FT%TZ
    uname -r
    lscpu | grep -E '^(Model name|CPU\(s\)|Thread|NUMA node)'
  } >"$results/machine.txt" 2>&1
  words nvidia-smi 30 nvidia-smi
  words nvlink-topology 30 nvidia-smi topo -m
}

sanitizers() {
  if ! command -v compute-sanitizer >/dev/null; then
    echo "compute-sanitizer is not on this machine: not run" | tee -a "$results/summary.txt"
    return
  fi
  # Calls that the tests mean to fail are no findings. In gpu_copy_test the other process is a program
  # of its own and not looked into; the ranks of gpu_relay_test are.
  local tool
  for tool in memcheck racecheck; do
    words "sanitizer_${tool}_copy" 300 compute-sanitizer --tool "$tool" --report-api-errors no \
      --error-exitcode 3 "$here/gpu_copy_test"
  done
  words sanitizer_memcheck_relay 300 compute-sanitizer --report-api-errors no --error-exitcode 3 \
    --target-processes all "$here/gpu_relay_test"
}

for phase in "${phases[@]}"; do
  case $phase in
    machine) machine ;;
    tests)
      words copy_test 240 "$here/gpu_copy_test"
      words tcp_test 60 "$here/gpu_tcp_test"
      words relay_test 300 "$here/gpu_relay_test"
      ;;
    copy-bench) figures copy_bench 300 "$here/gpu_copy_bench" ;;
    demo)
      for memory in cuda host; do
        words "demo_$memory" 240 "$here/railhop" demo --ranks 2 --staging cuda --duration 10 \
          --target-memory "$memory" --json "$results/demo_$memory.jsonl"
      done
      ;;
    relay-bench) figures relay_bench 500 "$here/gpu_relay_bench" latency sweep capped ;;
    small) figures relay_small 240 "$here/gpu_relay_bench" latency small ways ;;
    gemm-bench) figures gemm_bench 120 "$here/gpu_gemm_bench" ;;
    leak) figures leak 400 "$here/gpu_relay_bench" leak ;;
    sanitizers) sanitizers ;;
  esac
done
[[ -z $failed ]]
