package config

// unavailable names, by key, the feature that this binary would need for any
// value other than the default. Indexes of lists are left out. A feature that
// arrives takes its lines out of this table and of unavailableValues; nothing
// else changes.
var unavailable = map[string]string{
	"site.region":                "choice by distance",
	"index.sweep":                "a sweep interval (entries age continuously)",
	"kernel.rto_min":             "the kernel plane",
	"kernel.syn_rto":             "the kernel plane",
	"kernel.xdp.interface":       "the packet filter",
	"kernel.xdp.mode":            "the packet filter",
	"kernel.xdp.deny_file":       "the packet filter",
	"kernel.xdp.allow_file":      "the packet filter",
	"kernel.xdp.syn_per_source":  "the packet filter",
	"kernel.xdp.shed":            "the packet filter",
	"keys_file":                  "API keys",
	"discovery.file":             "discovery by file",
	"discovery.register.enabled": "registration of nodes",
	"discovery.register.lease":   "registration of nodes",
	"scaler.enabled":             "the scaler",
	"scaler.interval":            "the scaler",
}

// unavailableValues is the same for single values of a key.
var unavailableValues = map[string]map[string]string{
	"kernel.mode": {"require": "the kernel plane"},
}

// notAvailable is the complaint about a value that would turn feature on.
func notAvailable(feature string) complaint {
	return complaint{"not available in this build: " + feature, "remove the key or keep its default"}
}
