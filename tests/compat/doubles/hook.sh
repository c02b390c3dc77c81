#!/bin/sh
# A session hook as people wrote them for the Go omac: SessionStart prints the skills for the model, SessionEnd ends.
# It reads the agent's payload from stdin, and calls the control plane by OMAC_CONTROL_BASE with curl alone.
set -eu
payload=$(cat)
member() { printf '%s' "$payload" | python3 -c 'import json, sys; print(json.load(sys.stdin).get(sys.argv[1], ""))' "$1"; }
json() { python3 -c 'import json, sys; print(json.dumps({sys.argv[1]: sys.argv[2]}))' "$@"; }
post() {
    curl -sS --fail --max-time 60 -X POST -H 'Content-Type: application/json' -d "$2" "$OMAC_CONTROL_BASE/__omac__/$1"
}

dir=$(member cwd)
case $(member hook_event_name) in
SessionStart)
    manifest=$(post activate "$(json dir "$dir")")
    post session "$(json session "$(member session_id)")" >/dev/null
    printf '%s' "$manifest" | python3 -c '
import json, sys
skills = json.load(sys.stdin)["skills"]
context = "\n".join(["Skills:"] + [one["name"] + ": " + one.get("base", one["state"]) for one in skills])
print(json.dumps({"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": context}}))'
    ;;
SessionEnd)
    post deactivate "$(json dir "$dir")" >/dev/null
    ;;
esac
