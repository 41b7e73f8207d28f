#!/usr/bin/env bash
# Diagnose captures in CI: every report into a folder, then the gate. Runs on any CI system.
#
#   CAPTURES=report.sqlite BASELINE=perf/baseline.json bash diagnose.sh
#
# CAPTURES, OPTIONS (of the analysis): one a line. BASELINE, FAIL_ON, ONLY_NEW, OUTPUT: as in action.yml.
# Exit code: that of the gate (0 fine, 1 a finding fails it, 2 it could not run).
set -euo pipefail

: "${CAPTURES:?name a capture}"
output=${OUTPUT:-advisor-report}
mapfile -t captures < <(printf '%s\n' "$CAPTURES" | sed '/^[[:space:]]*$/d')
mapfile -t options < <(printf '%s\n' "${OPTIONS:-}" | sed '/^[[:space:]]*$/d')
mkdir -p "$output"

# A file, or a name that `advisor baseline save` gave. One that is not there yet (the first run
# on a branch) is no error: nothing is compared.
compared=()
if [[ -n ${BASELINE:-} && ( -f $BASELINE || -f .advisor/$BASELINE.json ) ]]; then
  compared+=("--baseline=$BASELINE")
elif [[ -n ${BASELINE:-} ]]; then
  echo "no baseline at $BASELINE: all findings count as they are" >&2
fi

gate=()
if [[ -n ${FAIL_ON:-} ]]; then
  gate+=("--fail-on=$FAIL_ON")
  if [[ ${#compared[@]} -gt 0 && ${ONLY_NEW:-true} == true ]]; then
    gate+=(--fail-on-new)
  fi
fi

# The captures are analysed once; this is the next baseline, too.
advisor diagnose "${captures[@]}" "${options[@]}" --format json -o "$output/advisor.json" --force
show() { advisor diagnose "$output/advisor.json" "$@"; }

# Code scanning has a memory of its own.
show --format sarif -o "$output/advisor.sarif" --force
show "${compared[@]}" --format markdown -o "$output/advisor.md" --html "$output/advisor.html" --force
show "${compared[@]}" --format junit -o "$output/advisor.xml" --force
if [[ -n ${GITHUB_STEP_SUMMARY:-} ]]; then
  cat "$output/advisor.md" >> "$GITHUB_STEP_SUMMARY"
fi

# Last, because its exit code decides: annotations on GitHub, elsewhere the findings as text.
if [[ -n ${GITHUB_ACTIONS:-} ]]; then
  show "${compared[@]}" --format github "${gate[@]}"
else
  show "${compared[@]}" --format text --quiet "${gate[@]}"
fi
