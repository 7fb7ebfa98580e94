#!/bin/sh
# The processes of one node (launcher: env): FIRST COUNT GRACE_S ON_FAILURE COMMAND…
# Each gets RANK and LOCAL_RANK, and each of its lines says whose it is. The first that fails ends the others, unless ON_FAILURE
# is `continue`; its exit code is the whole's. Children say through the pipe `ends` how they ended.
box=${0%/*}
first=$1 count=$2 grace=$3 on_failure=$4
shift 4
signals='HUP INT USR1 USR2'

tag() {
  trap '' TERM $signals # the last lines of a program that is ending count most
  LC_ALL=C
  export LC_ALL
  # grep ends a last line that has no end. Where the tools know no unbuffered work, the shell does it, byte by byte.
  if echo | grep -a --line-buffered '' 2>/dev/null | sed -u p >/dev/null 2>&1; then
    grep -a --line-buffered '' | sed -u "s/^/[rank $RANK] /"
  else
    while IFS= read -r line || [ -n "$line" ]; do printf '[rank %s] %s\n' "$RANK" "$line"; done
  fi
}

program() {
  trap : TERM $signals # the program gets them; this is to say how it ended
  "$@" 8>&- 9>&-
  echo "ended $LOCAL_RANK $?" >&9
}

one() {
  trap : TERM $signals
  LOCAL_RANK=$1 RANK=$((first + $1))
  export LOCAL_RANK RANK
  shift
  { { program "$@" 2>&1 >&8 | tag >&2; } 8>&1 | tag; }
  echo "printed $LOCAL_RANK 0" >&9
}

# In a container signals reach the first process only; elsewhere the whole group has had them.
pass_on() {
  if [ "$PPID" -le 1 ]; then
    trap '' "$1"
    kill -s "$1" 0
    trap "pass_on $1" "$1"
  fi
}

exec 9<>"$box/ends"
for signal in TERM $signals; do trap "pass_on $signal" "$signal"; done
i=0
while [ "$i" -lt "$count" ]; do
  one "$i" "$@" &
  i=$((i + 1))
done
left=$count unprinted=$count code=0
while [ "$unprinted" -gt 0 ]; do
  read -r what which how <&9 || continue # a signal
  case $what in
    printed) unprinted=$((unprinted - 1)) ;;
    over) break ;; # what is left ends with us
    ended)
      left=$((left - 1))
      if [ "$how" -ne 0 ] && [ "$code" -eq 0 ]; then
        code=$how
        echo "fairlead: rank $((first + which)) was the first here to fail, with exit code $how" >&2
        if [ "$on_failure" != continue ] && [ "$left" -gt 0 ]; then
          trap '' TERM
          kill -s TERM 0
          { sleep "$grace"; echo over >&9; } &
        fi
      fi
      # What a program left behind may hold its output open for ever.
      if [ "$left" -eq 0 ]; then { sleep 2; echo over >&9; } & fi
      ;;
  esac
done
exit "$code"
