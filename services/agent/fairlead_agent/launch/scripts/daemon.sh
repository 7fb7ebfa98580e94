#!/bin/sh
# mpirun calls this where it would call ssh: HOST COMMAND… The command is run beside the rank on that host, by that node's
# agent; this ends when it does, with its exit code. Asks through the pipe `up`, in pieces that are written at one blow.
box=${0%/*}
while :; do
  case ${1-} in
    -[lpoFi]) shift 2 ;;
    -*) shift ;;
    *) break ;;
  esac
done
host=${1-}
if [ ! -p "$box/wake.$host" ]; then
  echo "fairlead: \"$host\" is no other node of this job; its nodes are in $box/hostfile" >&2
  exit 255
fi
shift
id=$(date +%s)$$
exec 9>"$box/up"
printf '%s\n' "$*" | fold -b -w 2000 | while IFS= read -r piece; do printf 'piece %s %s\n' "$id" "$piece" >&9; done
printf 'run %s %s\n' "$id" "$host" >&9
until [ -f "$box/answer.$id" ]; do
  if [ ! -p "$box/wake.$host" ]; then exit 0; fi
  whose=
  read -r whose <"$box/wake.$host"
  case $whose in
    '' | "$id") ;; # nothing: the agent is being started anew
    over) exit 0 ;; # the run has ended, and mpirun with it: it has put us into a group of our own
    *) # another mpirun's: it reads it next
      echo "$whose" >"$box/wake.$host"
      sleep 1
      ;;
  esac
done
read -r code <"$box/answer.$id"
exit "$code"
