#!/bin/sh
# Every rank of an MPI run but the first: starts what rank 0's mpirun wants here (its daemon, which starts the processes), and
# waits for the next, until it is told to end. The agent puts the command into run.<id> and the id into the pipe `down`.
box=${0%/*}
ending=
exec 9<>"$box/down"
trap 'ending=1; echo >&9' TERM
trap : HUP INT USR1 USR2
# A shell that is told to end just before it reads does not notice until it has read something.
while sleep 2; do echo >&9; done </dev/null >/dev/null 2>&1 &
ticks=$!
while [ -z "$ending" ]; do
  read -r id <&9 || continue
  if [ -n "$id" ]; then
    {
      sh "$box/run.$id" </dev/null 9<&-
      echo "ended $id $?" >"$box/up"
    } &
  fi
done
trap '' TERM
kill "$ticks" 2>/dev/null
# In a container TERM reaches the first process only; elsewhere the whole group has had it.
if [ "$PPID" -le 1 ]; then kill -s TERM 0; fi
wait
exit 0
