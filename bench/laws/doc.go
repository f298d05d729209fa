// Package laws holds the scaling laws that simulated fleets are run under, and finds
// for each the setting at which it just attains a target: only so do their GPU-hours
// compare.
//
// It owns the baselines (a fixed fleet, the horizontal pod autoscaler of Kubernetes,
// KEDA on queues), the oracle, the registry of all laws by name, and Tune. It may
// assume that a run is deterministic. Laws see what scenario.Law allows them, and
// never what is to come; the oracle is none of them, it knows all arrivals.
//
// Each law has one knob. What a family has of variants (two metrics of the pod
// autoscaler, two of queues) is run each, and the better one speaks for it.
package laws
