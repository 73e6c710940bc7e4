#!/usr/bin/env bash
# A Slurm of real daemons on this machine, for tests: munged, slurmctld, slurmd.
#
#   tests/slurm/start.sh DIR [NODES]     start them with all their files in DIR; prints the configuration file
#   tests/slurm/start.sh --stop DIR      end them
#
# Needs Debian's slurmctld, slurmd, slurm-client and munge (apt-get install), and to be root, as slurmd
# does. NODES (default 2) nodes are of this one host, each a slurmd with a port of its own. Clients find
# it by SLURM_CONF=DIR/slurm.conf.
set -euo pipefail

stop() {
  local name
  for name in slurmctld slurmd-* munged; do
    for file in "$1"/$name.pid; do
      [ -f "$file" ] || continue
      kill "$(cat "$file")" 2>/dev/null || true
    done
  done
}
if [ "${1:-}" = --stop ]; then
  stop "$(realpath "$2")"
  exit 0
fi
dir=$(mkdir -p "$1" && realpath "$1") nodes=${2:-2}
for program in munged slurmctld slurmd sbatch; do
  PATH=$PATH:/usr/sbin command -v $program >/dev/null || { echo "start.sh: there is no $program" >&2; exit 77; }
done
export PATH=$PATH:/usr/sbin
[ "$(id -u)" = 0 ] || { echo "start.sh: slurmd must be started by root" >&2; exit 77; }

mkdir -p "$dir/state" "$dir/munge"
chmod 755 "$dir" "$dir/munge"
chmod 700 "$dir/state"
[ -f "$dir/munge/key" ] || { head -c 1024 /dev/urandom >"$dir/munge/key"; chmod 400 "$dir/munge/key"; }
port=$((20000 + RANDOM % 20000))
host=$(hostname -s)
cat >"$dir/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation=$dir/state
SlurmctldPidFile=$dir/slurmctld.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmdLogFile=$dir/slurmd-%n.log
SlurmdSpoolDir=$dir/spool-%n
SlurmdTimeout=10
SlurmctldTimeout=10
ReturnToService=2
MinJobAge=2
KillWait=2
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
CONF
for n in $(seq "$nodes"); do
  mkdir -p "$dir/spool-n$n"
  echo "NodeName=n$n NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + n)) CPUs=1 Boards=1 SocketsPerBoard=1 CoresPerSocket=1 ThreadsPerCore=1 RealMemory=100 State=UNKNOWN" >>"$dir/slurm.conf"
done
echo "PartitionName=all Nodes=n[1-$nodes] Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4" >>"$dir/slurm.conf"

munged --force --key-file="$dir/munge/key" --socket="$dir/munge/socket" --pid-file="$dir/munged.pid" \
  --log-file="$dir/munged.log" --seed-file="$dir/munge/seed" >&2
export SLURM_CONF=$dir/slurm.conf
slurmctld -c >&2
for n in $(seq "$nodes"); do slurmd -N "n$n" >&2; done
for _ in $(seq 60); do
  [ "$(sinfo --noheader --format=%T --Node 2>/dev/null | grep -c idle)" = "$nodes" ] && { echo "$dir/slurm.conf"; exit 0; }
  sleep 0.5
done
echo "start.sh: nodes do not come up; see $dir/*.log" >&2
sinfo >&2 || true
stop "$dir"
exit 1
