#!/bin/sh
# Makes the bus keys of compose.yaml's services and of its one node, each into a volume that only that one sees, and the
# list of users that nats-server includes. Run again, it changes nothing.
#   make-keys.sh NAME…      (a name that is no service's is a node's)
set -eu
uid=10001 # of the images' user
list=/bus
for name in "$@"; do
  key=/keys/$name/key.nk
  if [ -s "$key" ]; then continue; fi
  case $name in
    streams | queue | placer | access | telemetry | explainer | gateway | notifier | past | appproxy | storage | archiver | auditor | recovery) kind=--service ;;
    *) kind= ;;
  esac
  # shellcheck disable=SC2086 -- no kind is no word
  fairlead credentials add "$name" $kind --dir "$list" --out "$key" 2>&1 | sed '/^next/d'
  chown "$uid:$uid" "$key"
done
# After an upgrade: the permissions of this version, for the keys that there are.
fairlead credentials init --refresh --dir "$list" 2>&1 | sed '/^next/d'
