#!/bin/sh
# A command whose output also goes to files: MODE STDOUT STDERR COMMAND…  MODE is `new` or `append`; STDERR "" is the file of stdout.
# Directories are made. A file that cannot be written costs the file only: the output stays where Fairlead keeps it. The pipes `out`
# and `err` lead to the copies.
box=${0%/*}
mode=$1 out=$2 err=$3
shift 3
signals='HUP INT USR1 USR2'

opened() {
  case $1 in */*) mkdir -p "${1%/*}" 2>/dev/null ;; esac
  # Not `:`, since a redirection that fails at a special built-in ends the shell.
  if [ "$mode" = new ]; then true >"$1"; else true >>"$1"; fi 2>/dev/null && return
  echo "fairlead: the output file $1 cannot be written" >&2
  return 1
}

# Ended by the end of its input alone: the last lines of a program that is ending count most.
copy() {
  trap '' TERM $signals
  exec tee -a -- "$1" 2>/dev/null
}

[ -n "$err" ] || err=$out
if ! opened "${out:=/dev/null}"; then
  [ "$err" != "$out" ] || err=/dev/null
  out=/dev/null
fi
[ "$err" = "$out" ] || opened "${err:=/dev/null}" || err=/dev/null
copy "$out" <"$box/out" &
copies=$!
copy "$err" <"$box/err" >&2 &
copies="$copies $!"
"$@" >"$box/out" 2>"$box/err" &
child=$!
for signal in $signals; do trap "kill -s $signal $child 2>/dev/null" "$signal"; done
# In a container TERM reaches the first process only; elsewhere the whole group has had it.
if [ "$PPID" -le 1 ]; then trap "kill -s TERM $child 2>/dev/null" TERM; else trap : TERM; fi
while :; do
  wait "$child"
  code=$?
  kill -0 "$child" 2>/dev/null || break # else a signal has come
done
# What a program left behind may hold its output open for ever.
{ sleep 2; kill -s KILL $copies; } >/dev/null 2>&1 &
for each in $copies; do wait "$each"; done
# Ended by a signal, as its command was: else an end by TERM would be an exit code.
case $code in
  129 | 130 | 137 | 143) trap - TERM $signals; kill -s "$(kill -l "$code")" $$ ;;
esac
exit "$code"
