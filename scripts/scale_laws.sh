#!/usr/bin/env bash
# Compares scaling laws in virtual time, into bench/results/scale-laws: runs and a plot of each
# case. Laws are tuned to the attainment where a bound is asked for: the loads that were
# recorded, and whole days. Takes an hour of one core.
#
#   scripts/scale_laws.sh [CASE ...]     all cases, or these
set -eu
cd "$(dirname "$0")/.."

traces=${TRACES:-../shared/data/traces}
results=bench/results/scale-laws
mkdir -p "$results"
cases=${*:-azure mooncake diurnal diurnal_noise constant_noise step burst failures outage hang price}
for c in $cases; do
  laws=hpa,keda,oracle,warmpath
  tune=--tune
  case $c in
  diurnal*) laws=hpa_busy,keda_work,oracle,warmpath ;; # one of each family: a run takes a quarter of a minute
  constant_noise | step | burst | failures | outage | hang | price) laws=hpa_busy,keda_work,warmpath tune= ;;
  esac
  bin/warmbench scale --trace "$c" --scaler "$laws" $tune --plot "$results/$c.png" \
    --azure-file "$traces/azure_2023_conv.csv" --mooncake-file "$traces/mooncake_conversation.jsonl" | tee "$results/$c.jsonl"
done
